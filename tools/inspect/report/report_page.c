/*
 * Every quantity has one figure with a line for each run, if any run has it. Long lines are reduced
 * to the means of equal parts with a band from the smallest to the largest value, so the page stays
 * small.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/inspect/report/report_internal.h"

enum { IMAGE_PX = 128, IMAGES_UNTIL_BYTES = 900 << 10, MAX_RIDGES = 10 };

/* Returns how many points are left. */
static size_t reduce(struct reduced *out, const struct run_points *p, double scale, size_t most) {
    const size_t count = p->count > most ? most : p->count;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = i * p->count / count;
        const size_t end = (i + 1) * p->count / count;
        double sum = 0.0;
        out->low[i] = INFINITY;
        out->high[i] = -INFINITY;
        for (size_t k = begin; k < end; k++) {
            const double y = p->y[k] * scale;
            sum += y;
            out->low[i] = fmin(out->low[i], y);
            out->high[i] = fmax(out->high[i], y);
        }
        out->x[i] = p->x[end - 1];
        out->y[i] = sum / (double)(end - begin);
    }
    return count;
}

/* Adds a line to the next figure, unless it has no points. colour: from 1. */
static void add_line(struct report *r,
                     const char *name,
                     const struct run_points *points,
                     double scale,
                     size_t colour,
                     bool dashed) {
    if (points->count == 0 || r->series_count == REPORT_MAX_SERIES) {
        return;
    }
    struct reduced *line = &r->lines[r->series_count];
    /* Many runs share the room that two have. */
    const size_t most = r->run_count > 2 ? 2 * LINE_POINTS / r->run_count : LINE_POINTS;
    const size_t count = reduce(line, points, scale, most);
    const bool has_band = count < points->count && r->run_count <= 2; /* more cover each other */
    r->series[r->series_count++] = (struct page_series){.name = name,
                                                        .x = line->x,
                                                        .y = line->y,
                                                        .low = has_band ? line->low : NULL,
                                                        .high = has_band ? line->high : NULL,
                                                        .count = count,
                                                        .colour = (uint32_t)colour,
                                                        .dashed = dashed};
}

/* Epochs, samples and seconds of training, without evaluations, until the steps of a line; of ranks
 * and resumed launches the seconds are those of rank 0, and what a killed one did is not known. */
static void add_axes(struct page_series *s, struct reduced *line, const struct run_log *log) {
    const struct json_value *launch = json_document_root(log->launch);
    const struct run_points *all = &log->series[RUN_STAGE_ALL];
    double per_epoch = 0.0;
    double batch = 0.0;
    double sum = 0.0;
    size_t k = 0;
    if (!json_value_double(json_value_get(launch, "steps_per_epoch"), &per_epoch) ||
        !json_value_double(json_value_get(launch, "batch"), &batch) || !(per_epoch > 0.0) ||
        all->count == 0 || log->series[RUN_STAGE_EVALUATION].count != all->count) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        for (; k < all->count && all->x[k] <= line->x[i]; k++) {
            sum += all->y[k] - log->series[RUN_STAGE_EVALUATION].y[k];
        }
        line->epochs[i] = line->x[i] / per_epoch;
        line->samples[i] = line->x[i] * batch;
        line->seconds[i] = sum;
    }
    s->also[0] = (struct page_also){"epoch", line->epochs};
    s->also[1] = (struct page_also){"samples", line->samples};
    s->also[2] = (struct page_also){"training time, s", line->seconds};
}

/* A line of a run; evaluations have other axes too. */
static void add_run_line(struct report *r,
                         const char *name,
                         size_t run,
                         enum run_series which,
                         double scale,
                         size_t colour) {
    const size_t before = r->series_count;
    add_line(r, name, &r->runs[run]->series[which], scale, colour, false);
    if (which >= RUN_MEAN_R1 && r->series_count > before) {
        add_axes(&r->series[before], &r->lines[before], r->runs[run]);
    }
}

void report_draw(struct report *r, const struct page_figure *f) {
    struct page_figure whole = *f;
    whole.series = r->series;
    whole.series_count = r->series_count;
    if (r->series_count > 0) {
        page_figure(&r->page, &whole);
    }
    r->series_count = 0;
}

static void
draw_lines(struct report *r, const char *title, const char *y, const char *unit, bool log_y) {
    report_draw(r, &(struct page_figure){.kind = "lines",
                                         .title = title,
                                         .x = {.title = "step"},
                                         .y = {.title = y, .unit = unit, .log = log_y}});
}

/* Whether the values of any run differ by a factor of more than 10. */
static bool spans_decades(const struct report *r, enum run_series which) {
    double low = INFINITY;
    double high = 0.0;
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_points *points = &r->runs[i]->series[which];
        for (size_t k = 0; k < points->count; k++) {
            low = fmin(low, points->y[k]);
            high = fmax(high, points->y[k]);
        }
    }
    return low > 0.0 && high > 10.0 * low;
}

void report_draw_runs(struct report *r,
                      enum run_series which,
                      const char *title,
                      const char *y,
                      const char *unit,
                      double scale) {
    for (size_t i = 0; i < r->run_count; i++) {
        add_run_line(r, r->runs[i]->name, i, which, scale, i + 1);
    }
    draw_lines(r, title, y, unit, which == RUN_GRAD_NORM && spans_decades(r, which));
}

/* The same of what is mostly constant: only where it changes, or differs between runs. */
static void
draw_changes(struct report *r, enum run_series which, const char *title, const char *y) {
    double first = (double)NAN;
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_points *points = &r->runs[i]->series[which];
        for (size_t k = 0; k < points->count; k++) {
            first = isnan(first) ? points->y[k] : first;
            if (points->y[k] != first) {
                report_draw_runs(r, which, title, y, NULL, 1);
                return;
            }
        }
    }
}

void report_draw_together(struct report *r,
                          const enum run_series *which,
                          const char *const *names,
                          size_t count,
                          const char *title,
                          const char *y,
                          const char *unit,
                          double scale) {
    if (r->run_count > 1) {
        for (size_t i = 0; i < count; i++) {
            char one[96];
            (void)snprintf(one, sizeof one, "%s: %s", title, names[i]);
            report_draw_runs(r, which[i], one, y, unit, scale);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        add_run_line(r, names[i], 0, which[i], scale, i + 1);
    }
    draw_lines(r, title, y, unit, false);
}

/* The options that a loss depends on: that of a batch also on its size. */
static const char *loss_setting(const struct run_log *r, enum run_series which) {
    static const char *const names[] = {"task", "loss",      "variant",
                                        "tau",  "positives", "batch-size"};
    char out[160] = "";
    size_t n = 0;
    for (size_t i = 0; i < CLI_COUNT(names) - (which == RUN_LOSS ? 0 : 1); i++) {
        const struct json_value *value = run_log_option(r, names[i]);
        const char *word = json_value_string(value, NULL);
        double number;
        if (n < sizeof out && word != NULL) {
            n += (size_t)snprintf(out + n, sizeof out - n, "%s%s %s", n > 0 ? ", " : "", names[i],
                                  word);
        } else if (n < sizeof out && json_value_double(value, &number)) {
            n += (size_t)snprintf(out + n, sizeof out - n, "%s%s %g", n > 0 ? ", " : "", names[i],
                                  number);
        }
    }
    return cli_format("%s", out);
}

/* Losses of several runs in one figure only where a lower one is a better one. */
static void draw_losses(struct report *r, enum run_series which, const char *title) {
    const char *other = NULL;
    const char *first = NULL;
    for (size_t i = 0; i < r->run_count && other == NULL; i++) {
        if (r->runs[i]->series[which].count > 0) {
            const char *setting = loss_setting(r->runs[i], which);
            other = first != NULL && strcmp(first, setting) != 0 ? setting : NULL;
            first = first == NULL ? setting : first;
        }
    }
    if (other == NULL) { /* of one tau, too */
        report_draw_runs(r, which, title, "loss", NULL, 1);
        return;
    }
    page_note(&r->page, "%s: a figure for each run, because these are different losses: %s; %s.",
              title, first, other);
    for (size_t i = 0; i < r->run_count; i++) {
        add_line(r, r->runs[i]->name, &r->runs[i]->series[which], 1, i + 1, false);
        draw_lines(r, cli_format("%s of %s", title, r->runs[i]->name), "loss", NULL, false);
    }
}

static void draw_figures(struct report *r) {
    static const enum run_series recalls[] = {RUN_MEAN_R1, RUN_MEAN_R5, RUN_MEAN_R10};
    static const char *const recall_names[] = {"R@1", "R@5", "R@10"};
    static const enum run_series tops[] = {RUN_ZEROSHOT_TOP1, RUN_ZEROSHOT_TOP5};
    static const char *const top_names[] = {"top 1", "top 5"};
    static const enum run_series features[] = {RUN_NN1, RUN_NN10, RUN_KNN, RUN_PROBE};
    static const char *const feature_names[] = {"nearest neighbour", "ten nearest", "k-NN",
                                                "linear probe"};
    page_section(&r->page, "Training", false);
    report_put_faults(r);
    draw_losses(r, RUN_LOSS, "Batch loss");
    draw_losses(
        r, RUN_GLOBAL_LOSS,
        cli_format("Global contrastive loss at tau %.3g, estimated from the per-sample state",
                   run_log_last(&r->runs[0]->series[RUN_TAU])));
    report_draw_together(r, recalls, recall_names, 3, "Retrieval, mean of both directions",
                         "recall", "%", 1);
    report_draw_together(r, tops, top_names, 2, "Zero-shot classification", "accuracy", "%", 1);
    report_draw_together(r, features, feature_names, 4, "Classification by features", "accuracy",
                         "%", 1);
    report_draw_runs(r, RUN_LR, "Learning rate", "learning rate", NULL, 1);
    draw_changes(r, RUN_ZETA_LR, "Learning rate of zeta", "learning rate");
    draw_changes(r, RUN_TAU, "Temperature", "tau");
    report_draw_runs(r, RUN_GRAD_NORM, "Gradient norm, before clipping", "norm", NULL, 1);
    report_draw_stages(r);
    page_section(&r->page, "Speed and memory", false);
    report_draw_runs(r, RUN_PAIRS_PER_S, "Throughput", "pairs per second", NULL, 1);
    draw_changes(r, RUN_REPLACED, "Damaged samples that were replaced", "samples");
    report_draw_runs(r, RUN_PEAK_RSS, "Peak memory of the process", "memory", "GiB",
                     1.0 / (1 << 30));
    report_draw_runs(r, RUN_DEVICE_BYTES, "Device memory", "memory", "GiB", 1.0 / (1 << 30));
}

/* ---- per-sample state ---- */

static const struct run_column *find_column(const struct run_log *r, const char *name) {
    for (size_t i = 0; i < r->column_count; i++) {
        if (strcmp(r->columns[i].name, name) == 0) {
            return &r->columns[i];
        }
    }
    return NULL;
}

/* Smallest, mean and largest value at every checkpoint; of several runs the means. */
static void draw_column(struct report *r, const char *name) {
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_column *c = find_column(r->runs[i], name);
        if (c != NULL && r->run_count == 1) {
            add_line(r, "max", &c->max, 1, 1, true);
            add_line(r, "mean", &c->mean, 1, 1, false);
            add_line(r, "min", &c->min, 1, 1, true);
        } else if (c != NULL) {
            add_line(r, r->runs[i]->name, &c->mean, 1, i + 1, false);
        }
    }
    draw_lines(r, cli_format("%s%s", name, r->run_count > 1 ? ", mean" : ""), name, NULL, false);
}

static const struct page_axis share = {.title = "samples seen", .unit = "%"};

/* Of several runs the last histogram of each. */
static void draw_last_histograms(struct report *r, const char *name) {
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_column *c = find_column(r->runs[i], name);
        if (c == NULL || c->histogram_count == 0) {
            continue;
        }
        const struct run_histogram *h = &c->histograms[c->histogram_count - 1];
        double *edges = r->lines[r->series_count].x;
        for (size_t k = 0; k <= h->count; k++) {
            edges[k] = h->low + h->width * (double)k;
        }
        r->series[r->series_count++] = (struct page_series){.name = r->runs[i]->name,
                                                            .x = edges,
                                                            .y = h->shares,
                                                            .count = h->count,
                                                            .colour = (uint32_t)(i + 1)};
    }
    const char *title = cli_format("%s in the last checkpoint", name);
    report_draw(r, &(struct page_figure){
                       .kind = "histogram", .title = title, .x = {.title = name}, .y = share});
}

/* Of one run histograms of checkpoints that are spread evenly, the first and the last among them.
 */
static void draw_ridges(struct report *r, const char *name) {
    const struct run_column *c = find_column(r->runs[0], name);
    struct json_writer *j = page_json(&r->page);
    if (c == NULL || c->histogram_count == 0) {
        return;
    }
    const size_t count = c->histogram_count < MAX_RIDGES ? c->histogram_count : (size_t)MAX_RIDGES;
    page_item(&r->page, "ridges", cli_format("%s of visited samples, at checkpoints", name));
    page_axis(&r->page, "x", &(struct page_axis){.title = name});
    page_axis(&r->page, "y", &share);
    json_string(j, "label", "step");
    json_open_array(j, "series");
    for (size_t i = 0; i < count; i++) {
        const struct run_histogram *h =
            &c->histograms[count > 1 ? i * (c->histogram_count - 1) / (count - 1) : 0];
        json_open_object(j, NULL);
        json_double(j, "label", h->step);
        json_double(j, "low", h->low);
        json_double(j, "width", h->width);
        page_numbers(&r->page, "y", h->shares, h->count);
        json_close_object(j);
    }
    json_close_array(j);
    json_close_object(j);
}

static bool is_momentum(const char *name) {
    return strstr(name, "_momentum") != NULL;
}

/* Every column that any run has: those of momenta, or the others. */
static void draw_columns(struct report *r, bool momenta) {
    page_section(&r->page, momenta ? "Momenta of zeta" : "Per-sample state", momenta);
    for (size_t i = 0; i < r->run_count; i++) {
        for (size_t c = 0; c < r->runs[i]->column_count; c++) {
            const char *name = r->runs[i]->columns[c].name;
            bool done = is_momentum(name) != momenta;
            for (size_t k = 0; k < i; k++) {
                done = done || find_column(r->runs[k], name) != NULL;
            }
            if (!done) {
                draw_column(r, name);
                (r->run_count > 1 ? draw_last_histograms : draw_ridges)(r, name);
            }
        }
    }
}

enum status
report_page_write(const char *path, struct run_log *const *runs, size_t count, struct error *err) {
    REQUIRE(path != NULL && runs != NULL && count >= 1 && count <= REPORT_MAX_RUNS);
    struct report r = {.runs = runs, .run_count = count};
    r.lines = calloc(REPORT_MAX_SERIES, sizeof *r.lines);
    TRY_MEMORY(r.lines, err, "out of memory for a page");
    page_begin(&r.page, count > 1 ? cli_format("%zu runs", count) : runs[0]->name);
    r.page.image_px = IMAGE_PX;
    r.page.images_until_bytes = IMAGES_UNTIL_BYTES;
    report_put_summary(&r);
    draw_figures(&r);
    draw_columns(&r, false);
    draw_columns(&r, true);
    if (count == 1) {
        report_examples(&r.page, runs[0]);
        report_extremes(&r.page, runs[0]);
    }
    report_put_origins(&r);
    const enum status s = page_end(&r.page, path, err);
    page_fini(&r.page);
    free(r.lines);
    return s;
}
