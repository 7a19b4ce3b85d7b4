/*
 * noise_page: a row for each loss and share of noisy pairs, two figures, and the thesis's table.
 */
#include "tools/ccstudy/noise_page.h"

#include <stdio.h>
#include <string.h>

#include "tools/cli/chart.h"

/* ---- means ---- */

enum kind { KIND_SCORE, KIND_OVER_CLIP, KIND_LOST };

static const char *score_name(const struct noise_result *r) {
    return r->labelled ? "accuracy" : "recall";
}

/* Over the seeds of row i. Differences are of runs with the same seed. */
static struct batch_mean mean_of(const struct noise_result *r, size_t i, enum kind kind) {
    const struct noise_row *row = &r->rows[i];
    const struct noise_row *clip = &r->rows[i % r->noise_count];
    const struct noise_row *clean = row - i % r->noise_count;
    double values[BATCH_MAX_SEEDS];
    for (size_t k = 0; k < r->seeds; k++) {
        const double score = row->scores[k];
        values[k] = kind == KIND_SCORE       ? score
                    : kind == KIND_OVER_CLIP ? score - clip->scores[k]
                                             : clean->scores[k] - score;
    }
    return batch_mean_of(values, r->seeds);
}

static struct batch_mean untrained_mean(const struct noise_result *r) {
    return batch_mean_of(r->untrained.scores, r->seeds);
}

static struct batch_mean mean_at(const struct noise_result *r, size_t i, int at) {
    double values[BATCH_MAX_SEEDS];
    for (size_t k = 0; k < r->seeds; k++) {
        values[k] = r->rows[i].test[k].at[at];
    }
    return batch_mean_of(values, r->seeds);
}

static const char *name_of(char out[32], const struct noise_row *row) {
    (void)snprintf(out, 32, row->q > 0.0 ? "RINCE, q = %g" : "CLIP", row->q);
    return out;
}

/* ---- numbers ---- */

static void write_mean(struct json_writer *w, const char *key, struct batch_mean m) {
    char error[32];
    (void)snprintf(error, sizeof error, "%s_se", key);
    json_double(w, key, m.mean);
    json_double(w, error, m.error);
}

void noise_write_json(struct json_writer *w, const void *result) {
    static const char *const keys[BATCH_RECALLS] = {"r1", "r5", "r10"};
    const struct noise_result *r = result;
    json_string(w, "settings", r->settings);
    write_mean(w, "untrained", untrained_mean(r));
    json_open_array(w, "rows");
    for (size_t i = 0; i < r->row_count; i++) {
        const struct noise_row *row = &r->rows[i];
        json_open_object(w, NULL);
        json_string(w, "loss", row->q > 0.0 ? "rince" : "clip");
        if (row->q > 0.0) {
            json_double(w, "q", row->q);
        }
        json_double(w, "noise", row->noise);
        json_u64(w, "seeds", r->seeds);
        write_mean(w, score_name(r), mean_of(r, i, KIND_SCORE));
        for (int k = 0; k < BATCH_RECALLS && !r->labelled; k++) {
            write_mean(w, keys[k], mean_at(r, i, k));
        }
        write_mean(w, "over_clip", mean_of(r, i, KIND_OVER_CLIP));
        write_mean(w, "lost", mean_of(r, i, KIND_LOST));
        json_double(w, "tau", row->tau);
        if (row->q > 0.0) {
            json_double(w, "lambda", row->lambda);
        }
        json_double(w, "validation", row->validation);
        json_close_object(w);
    }
    json_close_array(w);
}

void noise_print_table(const struct noise_result *r) {
    printf("%-15s %5s %16s", "loss", "noise", score_name(r));
    printf(r->labelled ? "" : " %8s %8s", "R@1", "R@10");
    printf(" %16s %16s %6s %6s\n", "over clip", "lost to noise", "tau", "lambda");
    for (size_t i = 0; i < r->row_count; i++) {
        const struct noise_row *row = &r->rows[i];
        const struct batch_mean score = mean_of(r, i, KIND_SCORE);
        const struct batch_mean over = mean_of(r, i, KIND_OVER_CLIP);
        const struct batch_mean lost = mean_of(r, i, KIND_LOST);
        char name[32];
        printf("%-15s %5g %7.2f +- %5.2f", name_of(name, row), row->noise, score.mean, score.error);
        if (!r->labelled) {
            printf(" %8.2f %8.2f", mean_at(r, i, 0).mean, mean_at(r, i, 2).mean);
        }
        printf(" %7.2f +- %5.2f %7.2f +- %5.2f %6g", over.mean, over.error, lost.mean, lost.error,
               row->tau);
        printf(row->q > 0.0 ? " %6g\n" : "\n", row->lambda);
    }
    const struct batch_mean untrained = untrained_mean(r);
    printf("%-15s %5s %7.2f +- %5.2f\n", "untrained", "", untrained.mean, untrained.error);
}

/* ---- the page ---- */

static void draw_lines(struct html_page *p,
                       const struct noise_result *r,
                       enum kind kind,
                       const char *title,
                       const char *y_label) {
    double x[NOISE_MAX_NOISES];
    double y[NOISE_MAX_LOSSES * NOISE_MAX_NOISES];
    double error[NOISE_MAX_LOSSES * NOISE_MAX_NOISES];
    char names[NOISE_MAX_LOSSES][32];
    struct chart_series series[NOISE_MAX_LOSSES];
    const size_t count = r->row_count / r->noise_count;
    for (size_t i = 0; i < r->row_count; i++) {
        const struct batch_mean m = mean_of(r, i, kind);
        x[i % r->noise_count] = r->rows[i].noise;
        y[i] = m.mean;
        error[i] = m.error;
    }
    for (size_t k = 0; k < count; k++) {
        const size_t first = k * r->noise_count;
        series[k] = (struct chart_series){.name = name_of(names[k], &r->rows[first]),
                                          .x = x,
                                          .y = y + first,
                                          .error = error + first,
                                          .count = r->noise_count};
    }
    chart_lines(p,
                &(struct chart){.title = title,
                                .x_label = r->labelled ? "share of training labels that are wrong"
                                                       : "share of training pairs that are wrong",
                                .y_label = y_label,
                                .series = series,
                                .series_count = count});
}

static void draw_mean(struct html_page *p, struct batch_mean m) {
    html_markup(p, "<td>%.2f &plusmn; %.2f", m.mean, m.error);
}

static void draw_numbers(struct html_page *p, const struct noise_result *r) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><caption>%s over %d seeds &plusmn; "
                "standard error; over CLIP, lost to noise: of the same "
                "seed</caption><tr><th>loss<th>noise<th>%s<th>over CLIP<th>lost to "
                "noise<th>tau<th>lambda</tr>",
                r->labelled ? "Accuracy of a linear classifier on test points in percent, means"
                            : "Recall on test pairs in percent, means of both directions and, as "
                              "recall, of R@1, R@5 and R@10,",
                (int)r->seeds, r->labelled ? "accuracy" : "recall<th>R@1<th>R@5<th>R@10");
    for (size_t i = 0; i < r->row_count; i++) {
        const struct noise_row *row = &r->rows[i];
        char name[32];
        html_markup(p, "<tr><td>%s<td>%g", name_of(name, row), row->noise);
        draw_mean(p, mean_of(r, i, KIND_SCORE));
        for (int k = 0; k < BATCH_RECALLS && !r->labelled; k++) {
            html_markup(p, "<td>%.2f", mean_at(r, i, k).mean);
        }
        if (row->q > 0.0) {
            draw_mean(p, mean_of(r, i, KIND_OVER_CLIP));
        } else {
            html_markup(p, "<td>");
        }
        if (row->noise > 0.0) {
            draw_mean(p, mean_of(r, i, KIND_LOST));
        } else {
            html_markup(p, "<td>");
        }
        html_markup(p, row->q > 0.0 ? "<td>%g<td>%g</tr>" : "<td>%g<td></tr>", row->tau,
                    row->lambda);
    }
    html_markup(p, "</table></div>");
}

static void draw_published(struct html_page *p) {
    static const struct {
        double noise, infonce, q[4];
    } table[] = {{0.0, 93.4, {93.4, 93.2, 93.3, 93.0}}, {0.2, 93.1, {93.3, 93.0, 93.2, 92.9}},
                 {0.4, 90.7, {93.0, 92.0, 93.1, 92.8}}, {0.6, 88.2, {90.8, 90.6, 92.9, 92.4}},
                 {0.8, 87.1, {89.1, 89.3, 89.9, 91.6}}, {1.0, 87.1, {88.7, 89.3, 89.3, 88.2}}};
    html_markup(p, "<h2>The thesis</h2><div class=\"scroll\"><table><caption>Table A.1: accuracy "
                   "of a linear probe on CIFAR-10, percent, where positives are pictures of one "
                   "label and labels are exchanged with those of a similar class; ResNet-50, 500 "
                   "epochs, tau 0.5</caption><tr><th>noise<th>InfoNCE<th>q = 0.01<th>q = 0.1<th>q "
                   "= 0.5<th>q = 1</tr>");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        html_markup(p, "<tr><td>%g<td>%.1f", table[i].noise, table[i].infonce);
        for (int k = 0; k < 4; k++) {
            html_markup(p, "<td>%.1f", table[i].q[k]);
        }
        html_markup(p, "</tr>");
    }
    html_markup(p, "</table></div>");
}

/* What each loss has at the largest share, and how much it lost. */
static void draw_ends(struct html_page *p, const struct noise_result *r) {
    const size_t last = r->noise_count - 1;
    html_markup(p,
                "<p>Measured here with a share of %g, %s in percent and how much of it was "
                "lost to noise: ",
                r->rows[last].noise, score_name(r));
    for (size_t i = last; i < r->row_count; i += r->noise_count) {
        char name[32];
        html_markup(p, "%s%s: %.2f, %.2f lost", i > last ? "; " : "", name_of(name, &r->rows[i]),
                    mean_of(r, i, KIND_SCORE).mean, mean_of(r, i, KIND_LOST).mean);
    }
    const struct batch_mean untrained = untrained_mean(r);
    html_markup(
        p,
        ". Heads that are not trained: %.2f &plusmn; %.2f. Bars in the figures are standard "
        "errors over seeds.</p>",
        untrained.mean, untrained.error);
}

enum status
noise_draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct noise_result *r = result;
    (void)options;
    (void)err;
    html_markup(p,
                "<p>The claim (Chuang et al., CVPR 2022; thesis, chapter 5): InfoNCE weighs "
                "pairs that do not match most and loses accuracy to wrong ones; RINCE, whose q "
                "leads from InfoNCE (q near 0) to a symmetric loss (q = 1), loses the less the "
                "larger q is.</p><p>%s Every loss has, at every share, its own temperature and "
                "lambda, tuned on validation %s with one seed. The setting of all runs: ",
                r->labelled ? "Here a share of the training points has the label of another class, "
                              "and two points of one label are a pair; the classifier that judges "
                              "the embeddings, and the points that it is tested on, have right "
                              "labels."
                            : "Here a share of the training images has the texts of another image; "
                              "validation and test pairs are right.",
                r->labelled ? "points" : "pairs");
    html_text(p, r->settings, strlen(r->settings));
    html_markup(p, ".</p>");
    draw_ends(p, r);
    html_markup(p, "<div class=\"wide\">");
    draw_lines(p, r, KIND_SCORE,
               r->labelled ? "Accuracy on test points over the share of wrong labels"
                           : "Recall on test pairs over the share of wrong pairs",
               r->labelled ? "accuracy, %" : "mean of R@1, R@5, R@10, %");
    draw_lines(p, r, KIND_OVER_CLIP,
               r->labelled ? "How much more accuracy than CLIP with the same wrong labels and seed"
                           : "How much more recall than CLIP with the same wrong pairs and seed",
               "difference, percentage points");
    html_markup(p, "</div>");
    draw_numbers(p, r);
    draw_published(p);
    return STATUS_OK;
}
