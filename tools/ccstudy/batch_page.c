/*
 * batch_page: a row for each loss and batch; two figures; and in words what they show.
 */
#include "tools/ccstudy/batch_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/chart.h"

static const char *const titles[BATCH_METHODS] = {
    [BATCH_CLIP] = "CLIP",
    [BATCH_SOGCLR] = "SogCLR",
    [BATCH_SOGCLR_FORGETS] = "SogCLR, gamma 1",
    [BATCH_NUCLR_FROZEN] = "NUCLR, zeta frozen",
    [BATCH_NUCLR_FIXED] = "NUCLR, zeta at 5e-6",
    [BATCH_NUCLR_AUTO] = "NUCLR, zeta at auto",
};

/* The row at (method, batch), or NULL where there are no runs of its tuned setting. */
static const struct batch_row *row_at(const struct batch_result *r, int method, size_t b) {
    const struct batch_row *row = &r->table.rows[method][b];
    return row->seeds > 0 ? row : NULL;
}

/* The run that fits best at a temperature, or NULL. */
static const struct batch_cell *
fitted_at(const struct batch_result *r, int method, size_t b, size_t tau) {
    return batch_cells_fitted(&r->cells, (enum batch_method)method, r->table.batches[b],
                              r->table.taus[tau]);
}

/* ---- numbers ---- */

static void write_mean(struct json_writer *w, const char *key, const struct batch_mean *m) {
    char error[32];
    (void)snprintf(error, sizeof error, "%s_se", key);
    json_double(w, key, m->mean);
    json_double(w, error, m->error);
}

static void write_row(struct json_writer *w, const struct batch_row *row) {
    static const char *const keys[BATCH_RECALLS] = {"r1", "r5", "r10"};
    json_open_object(w, NULL);
    json_string(w, "method", batch_method_names[row->method]);
    json_u64(w, "batch", row->batch);
    json_u64(w, "seeds", row->seeds);
    write_mean(w, "recall", &row->recall);
    for (int k = 0; k < BATCH_RECALLS; k++) {
        write_mean(w, keys[k], &row->at[k]);
    }
    write_mean(w, "over_clip", &row->over_clip);
    json_double(w, "tau", row->tuned->tau);
    json_double(w, "lr", row->tuned->rate);
    json_double(w, "gamma", row->tuned->gamma);
    json_double(w, "validation", batch_recall_mean(&row->tuned->validation));
    json_close_object(w);
}

static void write_fit(struct json_writer *w, const struct batch_cell *c) {
    if (c != NULL) {
        json_open_object(w, NULL);
        json_string(w, "method", batch_method_names[c->method]);
        json_u64(w, "batch", c->batch);
        json_double(w, "tau", c->tau);
        json_double(w, "gcl", c->gcl);
        json_close_object(w);
    }
}

void batch_write_json(struct json_writer *w, const void *result) {
    const struct batch_result *r = result;
    json_string(w, "settings", r->cells.settings);
    json_u64(w, "runs", r->cells.count);
    json_open_array(w, "rows");
    for (int m = 0; m < BATCH_METHODS; m++) {
        for (size_t b = 0; b < r->table.batch_count; b++) {
            if (row_at(r, m, b) != NULL) {
                write_row(w, row_at(r, m, b));
            }
        }
    }
    json_close_array(w);
    json_open_array(w, "fit");
    for (int m = 0; m < BATCH_METHODS; m++) {
        for (size_t b = 0; b < r->table.batch_count; b++) {
            for (size_t k = 0; k < r->table.tau_count; k++) {
                write_fit(w, fitted_at(r, m, b, k));
            }
        }
    }
    json_close_array(w);
}

void batch_print_table(const struct batch_result *r) {
    printf("%-14s %5s %5s %16s %8s %8s %16s %6s %7s %6s\n", "method", "batch", "seeds", "recall",
           "R@1", "R@10", "over clip", "tau", "lr", "gamma");
    for (int m = 0; m < BATCH_METHODS; m++) {
        for (size_t b = 0; b < r->table.batch_count; b++) {
            const struct batch_row *row = row_at(r, m, b);
            if (row != NULL) {
                printf("%-14s %5" PRIu32 " %5zu %7.2f +- %5.2f %8.2f %8.2f %7.2f +- %5.2f %6g %7g "
                       "%6g\n",
                       batch_method_names[m], row->batch, row->seeds, row->recall.mean,
                       row->recall.error, row->at[0].mean, row->at[2].mean, row->over_clip.mean,
                       row->over_clip.error, row->tuned->tau, row->tuned->rate, row->tuned->gamma);
            }
        }
    }
}

/* ---- the page ---- */

static void draw_lines(struct html_page *p,
                       const struct batch_result *r,
                       bool over_clip,
                       const char *title,
                       const char *y_label) {
    double x[BATCH_METHODS][BATCH_MAX_BATCHES];
    double y[BATCH_METHODS][BATCH_MAX_BATCHES];
    double error[BATCH_METHODS][BATCH_MAX_BATCHES];
    struct chart_series series[BATCH_METHODS];
    size_t series_count = 0;
    for (int m = 0; m < BATCH_METHODS; m++) {
        size_t n = 0;
        for (size_t b = 0; b < r->table.batch_count; b++) {
            const struct batch_row *row = row_at(r, m, b);
            if (row != NULL) {
                const struct batch_mean *mean = over_clip ? &row->over_clip : &row->recall;
                x[m][n] = row->batch;
                y[m][n] = mean->mean;
                error[m][n] = isfinite(mean->error) ? mean->error : 0.0;
                n++;
            }
        }
        if (n > 0) {
            series[series_count++] = (struct chart_series){
                .name = titles[m], .x = x[m], .y = y[m], .error = error[m], .count = n};
        }
    }
    if (series_count > 0) {
        chart_lines(p, &(struct chart){.title = title,
                                       .x_label = "batch",
                                       .y_label = y_label,
                                       .log_x = true,
                                       .series = series,
                                       .series_count = series_count});
    }
}

/* What the batch does to the fit, where the temperature is given: the claim as theory has it. */
static void draw_fit(struct html_page *p, const struct batch_result *r, size_t tau) {
    double x[BATCH_METHODS][BATCH_MAX_BATCHES];
    double y[BATCH_METHODS][BATCH_MAX_BATCHES];
    struct chart_series series[BATCH_METHODS];
    size_t series_count = 0;
    char title[160];
    for (int m = 0; m < BATCH_METHODS; m++) {
        size_t n = 0;
        for (size_t b = 0; b < r->table.batch_count; b++) {
            const struct batch_cell *c = fitted_at(r, m, b, tau);
            if (c != NULL) {
                x[m][n] = c->batch;
                y[m][n++] = c->gcl;
            }
        }
        if (n > 0) {
            series[series_count++] =
                (struct chart_series){.name = titles[m], .x = x[m], .y = y[m], .count = n};
        }
    }
    if (series_count == 0) {
        return;
    }
    (void)snprintf(title, sizeof title,
                   "Global loss over the training pairs where tau = %g for all (one seed)",
                   r->table.taus[tau]);
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "batch",
                                   .y_label = "GCL",
                                   .log_x = true,
                                   .series = series,
                                   .series_count = series_count});
}

/* Of the runs that tuned: the best learning rate and gamma of every temperature. */
static void draw_temperatures(struct html_page *p, const struct batch_result *r, size_t b) {
    double x[BATCH_METHODS][BATCH_MAX_TAUS];
    double y[BATCH_METHODS][BATCH_MAX_TAUS];
    struct chart_series series[BATCH_METHODS];
    size_t series_count = 0;
    char title[160];
    for (int m = 0; m < BATCH_METHODS; m++) {
        size_t n = 0;
        for (size_t k = 0; k < r->table.tau_count; k++) {
            const struct batch_cell *best = batch_cells_tuned(
                &r->cells, (enum batch_method)m, r->table.batches[b], r->table.taus[k]);
            if (best != NULL) {
                x[m][n] = best->tau;
                y[m][n++] = batch_recall_mean(&best->test);
            }
        }
        if (n > 0) {
            series[series_count++] =
                (struct chart_series){.name = titles[m], .x = x[m], .y = y[m], .count = n};
        }
    }
    if (series_count == 0) {
        return;
    }
    (void)snprintf(title, sizeof title,
                   "Recall over the temperature at batch %" PRIu32
                   " (the runs that tune: one seed)",
                   r->table.batches[b]);
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "tau",
                                   .y_label = "mean of R@1, R@5, R@10, %",
                                   .log_x = true,
                                   .series = series,
                                   .series_count = series_count});
}

/* Without a standard error where there is one seed. */
static void draw_mean(struct html_page *p, const struct batch_mean *m) {
    html_markup(p, "<td>%.2f", m->mean);
    if (isfinite(m->error)) {
        html_markup(p, " &plusmn; %.2f", m->error);
    }
}

static void draw_numbers(struct html_page *p, const struct batch_result *r) {
    html_markup(p, "<h2>Numbers</h2><div class=\"scroll\"><table><caption>Recall on test pairs in "
                   "percent, means of both directions over seeds &plusmn; standard error; recall: "
                   "the mean of R@1, R@5 and R@10; over CLIP: of the same batch and seed"
                   "</caption><tr><th>loss<th>batch<th>seeds<th>recall<th>R@1<th>R@5<th>R@10"
                   "<th>over CLIP<th>tau<th>learning rate<th>gamma</tr>");
    for (int m = 0; m < BATCH_METHODS; m++) {
        for (size_t b = 0; b < r->table.batch_count; b++) {
            const struct batch_row *row = row_at(r, m, b);
            if (row == NULL) {
                continue;
            }
            html_markup(p, "<tr><td>%s<td>%d<td>%d", titles[m], (int)row->batch, (int)row->seeds);
            draw_mean(p, &row->recall);
            for (int k = 0; k < BATCH_RECALLS; k++) {
                html_markup(p, "<td>%.2f", row->at[k].mean);
            }
            if (m == BATCH_CLIP || !isfinite(row->over_clip.mean)) {
                html_markup(p, "<td>");
            } else {
                draw_mean(p, &row->over_clip);
            }
            html_markup(p, "<td>%g<td>%.3g", row->tuned->tau, row->tuned->rate);
            html_markup(p, m == BATCH_CLIP ? "<td></tr>" : "<td>%g</tr>", row->tuned->gamma);
        }
    }
    html_markup(p, "</table></div>");
}

/* One sentence for each method with runs at the smallest and the largest batch. */
static void draw_ends(struct html_page *p, const struct batch_result *r) {
    const size_t last = r->table.batch_count - 1;
    html_markup(p, "<p>Measured here, mean recall at batch %d and %d: ", (int)r->table.batches[0],
                (int)r->table.batches[last]);
    bool begun = false;
    for (int m = 0; m < BATCH_METHODS; m++) {
        const struct batch_row *small = row_at(r, m, 0);
        const struct batch_row *large = row_at(r, m, last);
        if (small != NULL && large != NULL) {
            html_markup(p, "%s%s %.2f and %.2f %%", begun ? "; " : "", titles[m],
                        small->recall.mean, large->recall.mean);
            begun = true;
        }
    }
    html_markup(p, begun ? "." : "no loss has runs at both.");
    html_markup(p, " Bars in the figures are standard errors over seeds. A line that seems to be "
                   "missing is hidden by another one with the same values.</p>");
}

/* At one batch: the paper has no table over it. */
static void draw_papers(struct html_page *p) {
    html_markup(p,
                "<h2>The papers</h2><div class=\"scroll\"><table><caption>Table 1 of Wang et al. "
                "(NUCLR): recall at 1, percent, of ResNet-50 and DistilBERT trained with batch "
                "512</caption><tr><th>data<th>tested on<th>CLIP<th>SogCLR<th>NUCLR</tr>"
                "<tr><td>CC3M<td>MSCOCO<td>24.23<td>28.54<td>29.55</tr>"
                "<tr><td>CC3M<td>Flickr30k<td>46.33<td>52.20<td>53.55</tr>"
                "<tr><td>CC12M<td>MSCOCO<td>30.30<td>33.91<td>34.36</tr>"
                "<tr><td>CC12M<td>Flickr30k<td>55.21<td>59.28<td>60.45</tr></table></div>"
                "<p>All at one batch, and none without memory (gamma 1). With zeta fixed NUCLR is "
                "worse there (figure 4).</p>");
}

enum status
batch_draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct batch_result *r = result;
    (void)options;
    (void)err;
    html_markup(p, "<p>The papers' claim (Yuan et al., ICML 2022; Wang et al., ICLR 2025): CLIP's "
                   "gradient is biased in small batches, because its contrasts are those of the "
                   "batch; SogCLR and NUCLR keep moving averages of each sample's contrasts over "
                   "the whole dataset, and need no large batch. SogCLR with gamma 1 keeps nothing "
                   "from one batch to the next: what it gains on CLIP is not due to memory, but to "
                   "the own pair, which is no contrast.</p>");
    html_markup(p, "<p>Every loss and batch has its own temperature and gamma, tuned on validation "
                   "pairs with one seed, and sees as many pairs.");
    if (r->cells.settings[0] != '\0') { /* empty of runs made elsewhere */
        html_markup(p, " The setting of all runs: ");
        html_text(p, r->cells.settings, strlen(r->cells.settings));
        html_markup(p, ".");
    }
    html_markup(p, "</p>");
    if (r->table.batch_count > 0) {
        draw_ends(p, r);
    }
    html_markup(p, "<div class=\"wide\">");
    draw_lines(p, r, false, "Recall on test pairs over the batch", "mean of R@1, R@5, R@10, %");
    draw_lines(p, r, true, "How much more recall than CLIP in the same batch, with the same seed",
               "difference, percentage points");
    for (size_t b = 0; b < r->table.batch_count; b++) {
        if (b == 0 || b + 1 == r->table.batch_count) {
            draw_temperatures(p, r, b);
        }
    }
    for (size_t k = 0; k < r->table.tau_count; k++) {
        draw_fit(p, r, k);
    }
    html_markup(p, "</div>");
    draw_numbers(p, r);
    draw_papers(p);
    return STATUS_OK;
}
