/*
 * Every quantity has one figure with a line for each run, if any run has it. Long lines are reduced
 * to the means of equal parts with a band from the least to the greatest value, so the page stays
 * small.
 */
#include "tools/inspect/report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect/report/report_pictures.h"

enum { PICTURE_PX = 128, PICTURES_UNTIL_BYTES = 960 << 10 };

static void reduce(struct reduced *out, const struct run_points *p, double scale, size_t most) {
    out->is_reduced = p->count > most;
    out->count = out->is_reduced ? most : p->count;
    for (size_t i = 0; i < out->count; i++) {
        const size_t begin = i * p->count / out->count;
        const size_t end = (i + 1) * p->count / out->count;
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
}

/* Adds a line to the next figure, unless it has no points. colour: from 1. */
static void add_line(struct page *p,
                     const char *name,
                     const struct run_points *points,
                     double scale,
                     size_t colour,
                     bool dashed) {
    if (points->count == 0 || p->series_count == CHART_MAX_SERIES) {
        return;
    }
    struct reduced *r = &p->lines[p->series_count];
    /* Many runs share the room that two have. */
    reduce(r, points, scale, p->run_count > 2 ? 2 * LINE_POINTS / p->run_count : LINE_POINTS);
    const bool has_band = r->is_reduced && p->run_count <= 2; /* more would cover each other */
    p->series[p->series_count++] = (struct chart_series){
        .name = name,
        .x = r->x,
        .y = r->y,
        .low = has_band ? r->low : NULL,
        .high = has_band ? r->high : NULL,
        .count = r->count,
        .colour = colour,
        .plain = r->count > (p->run_count > 1 ? 12 : 40),
        .dashed = dashed,
    };
}

static void draw(struct page *p, const char *title, const char *x, const char *y, bool log_y) {
    if (p->series_count > 0) {
        const struct chart c = {.title = title,
                                .x_label = x,
                                .y_label = y,
                                .log_y = log_y,
                                .series = p->series,
                                .series_count = p->series_count,
                                .no_legend = p->series_count == 1 && p->run_count == 1,
                                .table = true};
        chart_lines(&p->html, &c);
    }
    p->series_count = 0;
}

/* Whether the values of any run differ by a factor of more than 10. */
static bool spans_decades(const struct page *p, enum run_series which) {
    double low = INFINITY;
    double high = 0.0;
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_points *points = &p->runs[i]->series[which];
        for (size_t k = 0; k < points->count; k++) {
            low = fmin(low, points->y[k]);
            high = fmax(high, points->y[k]);
        }
    }
    return low > 0.0 && high > 10.0 * low;
}

/* A line of each run. */
void report_draw_runs(struct page *p,
                      enum run_series which,
                      const char *title,
                      const char *y_label,
                      double scale) {
    const bool log_y = which == RUN_GRAD_NORM && spans_decades(p, which);
    for (size_t i = 0; i < p->run_count; i++) {
        add_line(p, p->runs[i]->name, &p->runs[i]->series[which], scale, i + 1, false);
    }
    draw(p, title, "step", y_label, log_y);
}

/* The same of what is mostly constant: only where it changes, or differs between runs. */
static void
draw_changes(struct page *p, enum run_series which, const char *title, const char *y_label) {
    double first = (double)NAN;
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_points *points = &p->runs[i]->series[which];
        for (size_t k = 0; k < points->count; k++) {
            first = isnan(first) ? points->y[k] : first;
            if (points->y[k] != first) {
                report_draw_runs(p, which, title, y_label, 1);
                return;
            }
        }
    }
}

/* Of one run several lines; of several runs a figure for each. */
void report_draw_together(struct page *p,
                          const enum run_series *which,
                          const char *const *names,
                          size_t count,
                          const char *title,
                          const char *y_label,
                          double scale) {
    if (p->run_count > 1) {
        for (size_t i = 0; i < count; i++) {
            char one[96];
            (void)snprintf(one, sizeof one, "%s: %s", title, names[i]);
            report_draw_runs(p, which[i], one, y_label, scale);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        add_line(p, names[i], &p->runs[0]->series[which[i]], scale, i + 1, false);
    }
    draw(p, title, "step", y_label, false);
}

static void open_section(struct page *p, const char *title) {
    html_raw(&p->html, "<h2>");
    html_text(&p->html, title, strlen(title));
    html_raw(&p->html, "</h2>\n<div class=\"wide\">\n");
}

static void draw_figures(struct page *p) {
    static const enum run_series recalls[] = {RUN_MEAN_R1, RUN_MEAN_R5, RUN_MEAN_R10};
    static const char *const recall_names[] = {"R@1", "R@5", "R@10"};
    static const enum run_series tops[] = {RUN_ZEROSHOT_TOP1, RUN_ZEROSHOT_TOP5};
    static const char *const top_names[] = {"top 1", "top 5"};
    open_section(p, "Training");
    report_draw_runs(p, RUN_LOSS, "Loss of the batch", "loss", 1);
    report_draw_runs(p, RUN_GLOBAL_LOSS, "Global loss, estimated from the state of samples", "loss",
                     1);
    report_draw_together(p, recalls, recall_names, 3, "Retrieval, mean of both directions",
                         "recall, %", 1);
    report_draw_together(p, tops, top_names, 2, "Zero-shot classification", "accuracy, %", 1);
    report_draw_runs(p, RUN_LR, "Learning rate", "learning rate", 1);
    draw_changes(p, RUN_ZETA_LR, "Step size of zeta", "step size");
    draw_changes(p, RUN_TAU, "Temperature", "tau");
    report_draw_runs(p, RUN_GRAD_NORM, "Norm of the gradient, before clipping", "norm", 1);
    html_raw(&p->html, "</div>\n");
    report_draw_stages(p);
    open_section(p, "Speed and memory");
    report_draw_runs(p, RUN_PAIRS_PER_S, "Throughput", "pairs per second", 1);
    draw_changes(p, RUN_REPLACED, "Damaged samples that were replaced", "samples");
    report_draw_runs(p, RUN_PEAK_RSS, "Greatest memory of the process", "GiB", 1.0 / (1 << 30));
    report_draw_runs(p, RUN_DEVICE_BYTES, "Memory of the device", "GiB", 1.0 / (1 << 30));
    html_raw(&p->html, "</div>\n");
}

/* ---- the state of samples ---- */

static const struct run_column *find_column(const struct run_log *r, const char *name) {
    for (size_t i = 0; i < r->column_count; i++) {
        if (strcmp(r->columns[i].name, name) == 0) {
            return &r->columns[i];
        }
    }
    return NULL;
}

/* Least, mean and greatest at every checkpoint; of several runs the means. */
static void draw_column(struct page *p, const char *name) {
    char title[SAMPLE_STATE_NAME_BYTES + 32];
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_column *c = find_column(p->runs[i], name);
        if (c != NULL && p->run_count == 1) {
            add_line(p, "greatest", &c->max, 1, 1, true);
            add_line(p, "mean", &c->mean, 1, 1, false);
            add_line(p, "least", &c->min, 1, 1, true);
        } else if (c != NULL) {
            add_line(p, p->runs[i]->name, &c->mean, 1, i + 1, false);
        }
    }
    (void)snprintf(title, sizeof title, p->run_count > 1 ? "%s, mean" : "%s", name);
    draw(p, title, "step", name, false);
}

/* The outline of a histogram's bars, from the axis and back to it. */
static void outline(struct reduced *out, const struct run_histogram *h) {
    out->count = 0;
    out->x[out->count] = h->low;
    out->y[out->count++] = 0.0;
    for (size_t i = 0; i < h->count; i++) {
        for (size_t side = 0; side < 2; side++) {
            out->x[out->count] = h->low + h->width * (double)(i + side);
            out->y[out->count++] = h->shares[i];
        }
    }
    out->x[out->count] = out->x[out->count - 1];
    out->y[out->count++] = 0.0;
}

/* Of several runs the last histogram of each. */
static void draw_last_histograms(struct page *p, const char *name) {
    char title[SAMPLE_STATE_NAME_BYTES + 48];
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_column *c = find_column(p->runs[i], name);
        if (c != NULL && c->histogram_count > 0) {
            struct reduced *r = &p->lines[p->series_count];
            outline(r, &c->histograms[c->histogram_count - 1]);
            p->series[p->series_count++] = (struct chart_series){.name = p->runs[i]->name,
                                                                 .x = r->x,
                                                                 .y = r->y,
                                                                 .count = r->count,
                                                                 .colour = i + 1,
                                                                 .filled = true,
                                                                 .plain = true};
        }
    }
    (void)snprintf(title, sizeof title, "%s in the last checkpoint", name);
    draw(p, title, name, "% of the samples that were seen", false);
}

/* Of one run histograms of checkpoints that are spread evenly, the first and the last among them.
 */
static void draw_histograms(struct page *p, const char *name) {
    const struct run_column *c = find_column(p->runs[0], name);
    struct chart_ridge ridges[CHART_MAX_RIDGES];
    char title[SAMPLE_STATE_NAME_BYTES + 64];
    if (p->run_count > 1) {
        draw_last_histograms(p, name);
        return;
    }
    if (c == NULL || c->histogram_count == 0) {
        return;
    }
    const size_t count =
        c->histogram_count < CHART_MAX_RIDGES ? c->histogram_count : (size_t)CHART_MAX_RIDGES;
    for (size_t i = 0; i < count; i++) {
        const struct run_histogram *h =
            &c->histograms[count > 1 ? i * (c->histogram_count - 1) / (count - 1) : 0];
        ridges[i] = (struct chart_ridge){h->step, h->low, h->width, h->shares, h->count};
    }
    (void)snprintf(title, sizeof title, "%s of the samples that were seen, at checkpoints", name);
    chart_ridges(
        &p->html,
        &(struct chart_ridges){
            .title = title, .x_label = name, .label = "step", .ridges = ridges, .count = count});
}

static bool is_momentum(const char *name) {
    return strstr(name, "_momentum") != NULL;
}

/* Every column that any run has; those of momenta, or the others. Returns whether there is one. */
static bool draw_columns(struct page *p, bool momenta) {
    bool any = false;
    for (size_t i = 0; i < p->run_count; i++) {
        for (size_t c = 0; c < p->runs[i]->column_count; c++) {
            const char *name = p->runs[i]->columns[c].name;
            bool seen = is_momentum(name) != momenta;
            for (size_t k = 0; k < i; k++) {
                seen = seen || find_column(p->runs[k], name) != NULL;
            }
            if (seen) {
                continue;
            }
            if (!any && momenta) {
                html_raw(&p->html, "<details><summary>Momenta of zeta</summary>"
                                   "<div class=\"wide\">\n");
            } else if (!any) {
                open_section(p, "What the run keeps for every sample");
            }
            any = true;
            draw_column(p, name);
            draw_histograms(p, name);
        }
    }
    html_raw(&p->html, any ? "</div>\n" : "");
    return any;
}

static void draw_state(struct page *p) {
    draw_columns(p, false);
    html_raw(&p->html, draw_columns(p, true) ? "</details>\n" : "");
}

enum status
report_page_write(const char *path, struct run_log *const *runs, size_t count, struct error *err) {
    REQUIRE(path != NULL && runs != NULL && count >= 1 && count <= REPORT_MAX_RUNS);
    struct page p = {.runs = runs, .run_count = count};
    char title[160];
    p.lines = calloc(CHART_MAX_SERIES, sizeof *p.lines);
    if (p.lines == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for a page");
    }
    (void)snprintf(title, sizeof title, count > 1 ? "%zu runs" : "%.0zu%.120s",
                   count > 1 ? count : 0, runs[0]->name);
    html_init(&p.html, title);
    p.html.image_px = PICTURE_PX;
    p.html.images_until_bytes = PICTURES_UNTIL_BYTES;
    report_draw_summary(&p);
    draw_figures(&p);
    draw_state(&p);
    if (count == 1) {
        report_examples(&p.html, runs[0]);
        report_extremes(&p.html, runs[0]);
    }
    html_raw(&p.html,
             count > 1 ? "<h2>How the runs were made</h2>\n" : "<h2>How the run was made</h2>\n");
    for (size_t i = 0; i < count; i++) {
        report_draw_run(&p, runs[i]);
    }
    chart_script(&p.html);
    const enum status s = html_write(&p.html, path, err);
    html_fini(&p.html);
    free(p.lines);
    return s;
}
