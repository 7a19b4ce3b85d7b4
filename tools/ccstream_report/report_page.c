/*
 * Every quantity has one figure with a line for each run, if any run has it. Long lines are reduced
 * to the means of equal parts with a band from the least to the greatest value, so the page stays
 * small.
 */
#include "tools/ccstream_report/report_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_report/state_histogram.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli_text.h"

enum { LINE_POINTS = 240 };

/* Up to LINE_POINTS points of a line, and what lies around them. */
struct reduced {
    double x[LINE_POINTS], y[LINE_POINTS], low[LINE_POINTS], high[LINE_POINTS];
    size_t count;
    bool is_reduced;
};

struct page {
    struct html_page html;
    struct run_log *const *runs;
    size_t run_count;
    struct reduced *lines; /* (CHART_MAX_SERIES) */
    struct chart_series series[CHART_MAX_SERIES];
    size_t series_count;
};

static void reduce(struct reduced *out, const struct run_points *p, double scale) {
    out->is_reduced = p->count > LINE_POINTS;
    out->count = out->is_reduced ? LINE_POINTS : p->count;
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
    reduce(r, points, scale);
    p->series[p->series_count++] = (struct chart_series){
        .name = name,
        .x = r->x,
        .y = r->y,
        .low = r->is_reduced ? r->low : NULL,
        .high = r->is_reduced ? r->high : NULL,
        .count = r->count,
        .colour = colour,
        .plain = r->count > 40,
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
static void draw_runs(struct page *p,
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
                draw_runs(p, which, title, y_label, 1);
                return;
            }
        }
    }
}

/* Of one run several lines; of several runs a figure for each. */
static void draw_together(struct page *p,
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
            draw_runs(p, which[i], one, y_label, scale);
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
    draw_runs(p, RUN_LOSS, "Loss of the batch", "loss", 1);
    draw_runs(p, RUN_GLOBAL_LOSS, "Global loss, estimated from the state of samples", "loss", 1);
    draw_together(p, recalls, recall_names, 3, "Retrieval, mean of both directions", "recall, %",
                  1);
    draw_together(p, tops, top_names, 2, "Zero-shot classification", "accuracy, %", 1);
    draw_runs(p, RUN_LR, "Learning rate", "learning rate", 1);
    draw_changes(p, RUN_ZETA_LR, "Step size of zeta", "step size");
    draw_changes(p, RUN_TAU, "Temperature", "tau");
    draw_runs(p, RUN_GRAD_NORM, "Norm of the gradient, before clipping", "norm", 1);
    html_raw(&p->html, "</div>\n");
    open_section(p, "Speed and memory");
    draw_runs(p, RUN_PAIRS_PER_S, "Throughput", "pairs per second", 1);
    draw_runs(p, RUN_STALL, "Time spent waiting for data", "% of the time", 100);
    draw_runs(p, RUN_WAIT, "Time spent waiting for other ranks", "% of the time", 100);
    draw_changes(p, RUN_REPLACED, "Damaged samples that were replaced", "samples");
    draw_runs(p, RUN_PEAK_RSS, "Greatest memory of the process", "GiB", 1.0 / (1 << 30));
    draw_runs(p, RUN_DEVICE_BYTES, "Memory of the device", "GiB", 1.0 / (1 << 30));
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

static void draw_histogram(struct page *p, const char *name, struct error *err) {
    char title[SAMPLE_STATE_NAME_BYTES + 48];
    struct histogram h[REPORT_MAX_RUNS];
    size_t count = 0;
    for (size_t i = 0; i < p->run_count; i++) {
        struct histogram *one = &h[count];
        if (histogram_read(one, p->runs[i]->path, name, err) != STATUS_OK || one->visited == 0) {
            continue;
        }
        p->series[p->series_count++] = (struct chart_series){.name = p->runs[i]->name,
                                                             .x = one->x,
                                                             .y = one->y,
                                                             .count = one->count,
                                                             .colour = i + 1,
                                                             .plain = true};
        count++;
    }
    (void)snprintf(title, sizeof title, "%s in the last checkpoint", name);
    draw(p, title, name, "% of the samples that were seen", false);
}

static void draw_state(struct page *p) {
    struct error err = {0};
    bool any = false;
    for (size_t i = 0; i < p->run_count; i++) {
        for (size_t c = 0; c < p->runs[i]->column_count; c++) {
            const char *name = p->runs[i]->columns[c].name;
            bool seen = false;
            for (size_t k = 0; k < i; k++) {
                seen = seen || find_column(p->runs[k], name) != NULL;
            }
            if (seen) {
                continue;
            }
            if (!any) {
                open_section(p, "What the run keeps for every sample");
                any = true;
            }
            draw_column(p, name);
            draw_histogram(p, name, &err);
        }
    }
    if (any) {
        html_raw(&p->html, "</div>\n");
    }
    if (err.status != STATUS_OK) {
        html_raw(&p->html, "<p class=\"number\">A histogram is missing: ");
        html_text(&p->html, err.text, strlen(err.text));
        html_raw(&p->html, "</p>\n");
    }
}

/* ---- tables ---- */

static void cell(struct page *p, const char *text) {
    html_raw(&p->html, "<td>");
    html_text(&p->html, text, strlen(text));
}

static void number_cell(struct page *p, double value, const char *fmt) {
    char text[48] = "";
    if (isfinite(value)) {
        (void)snprintf(text, sizeof text, "%.*f", fmt[0] - '0', value);
    }
    cell(p, text);
}

static double best(const struct run_points *p) {
    double most = NAN;
    for (size_t i = 0; i < p->count; i++) {
        most = fmax(most, p->y[i]);
    }
    return most;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct run_points *p) {
    double *sorted = malloc((p->count + 1) * sizeof *sorted);
    if (sorted == NULL || p->count == 0) {
        free(sorted);
        return (double)NAN;
    }
    memcpy(sorted, p->y, p->count * sizeof *sorted);
    qsort(sorted, p->count, sizeof *sorted, compare);
    const double m = sorted[p->count / 2];
    free(sorted);
    return m;
}

static const char *option(const struct run_log *r, const char *name) {
    const char *text = json_value_string(run_log_option(r, name), NULL);
    return text != NULL ? text : "";
}

static void draw_summary(struct page *p) {
    html_raw(&p->html,
             "<div class=\"scroll\"><table><caption>At the end of what the runs have recorded; "
             "recall in percent, mean of both directions</caption><tr><th>run<th>loss "
             "function<th>step<th>epoch<th>loss<th>global loss<th>R@1<th>best R@1<th>pairs/s "
             "(median)<th>memory, GiB<th>last entry</tr>\n");
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_log *r = p->runs[i];
        const struct run_points *loss = &r->series[RUN_LOSS];
        html_raw(&p->html, "<tr>");
        cell(p, r->name);
        cell(p, option(r, "loss"));
        number_cell(p, loss->count > 0 ? loss->x[loss->count - 1] : (double)NAN, "0");
        number_cell(p, run_log_last(&r->series[RUN_EPOCH]), "0");
        number_cell(p, run_log_last(loss), "4");
        number_cell(p, run_log_last(&r->series[RUN_GLOBAL_LOSS]), "4");
        number_cell(p, run_log_last(&r->series[RUN_MEAN_R1]), "2");
        number_cell(p, best(&r->series[RUN_MEAN_R1]), "2");
        number_cell(p, median(&r->series[RUN_PAIRS_PER_S]), "0");
        number_cell(p, run_log_last(&r->series[RUN_PEAK_RSS]) / (1 << 30), "2");
        cell(p, r->last_time);
        html_raw(&p->html, "</tr>\n");
    }
    html_raw(&p->html, "</table></div>\n");
    for (size_t i = 0; i < p->run_count; i++) {
        if (p->runs[i]->unread_lines > 0) {
            html_markup(&p->html, "<p class=\"number\">%zu line%s of metrics.jsonl of ",
                        p->runs[i]->unread_lines, p->runs[i]->unread_lines == 1 ? "" : "s");
            html_text(&p->html, p->runs[i]->name, strlen(p->runs[i]->name));
            html_raw(&p->html, " cannot be read, such as the last one of a run that was killed."
                               "</p>\n");
        }
    }
}

/* Any JSON value on one line. */
static void put_value(struct page *p, const struct json_value *v) {
    char text[64];
    double number;
    bool yes;
    const char *string = json_value_string(v, NULL);
    if (string != NULL) {
        html_text(&p->html, string, strlen(string));
    } else if (json_value_bool(v, &yes)) {
        html_raw(&p->html, yes ? "yes" : "no");
    } else if (json_value_double(v, &number)) {
        (void)snprintf(text, sizeof text, "%.12g", number);
        html_text(&p->html, text, strlen(text));
    } else if (json_value_is_array(v)) {
        for (size_t i = 0; i < json_value_count(v); i++) {
            html_raw(&p->html, i > 0 ? " " : "");
            put_value(p, json_value_at(v, i));
        }
    } else if (json_value_is_object(v)) {
        void *position = NULL;
        const char *name;
        const struct json_value *member;
        const char *comma = "";
        while (json_value_next_member(v, &position, &name, &member)) {
            html_raw(&p->html, comma);
            html_text(&p->html, name, strlen(name));
            html_raw(&p->html, " ");
            put_value(p, member);
            comma = ", ";
        }
    }
}

static void draw_facts(struct page *p, const struct json_value *object) {
    void *position = NULL;
    const char *name;
    const struct json_value *v;
    html_raw(&p->html, "<dl>\n");
    while (json_value_next_member(object, &position, &name, &v)) {
        html_raw(&p->html, "<div><dt>");
        html_text(&p->html, name, strlen(name));
        html_raw(&p->html, "<dd>");
        put_value(p, v);
        html_raw(&p->html, "</div>\n");
    }
    html_raw(&p->html, "</dl>\n");
}

static void draw_run(struct page *p, const struct run_log *r) {
    html_raw(&p->html, "<h3>");
    html_text(&p->html, r->path, strlen(r->path));
    html_raw(&p->html, "</h3>\n");
    if (r->launch != NULL) {
        html_raw(&p->html, "<p>Command, machine and datasets of the last call:</p>\n");
        draw_facts(p, json_document_root(r->launch));
    } else {
        html_raw(&p->html, "<p class=\"number\">Its command and machine were not recorded: there "
                           "is no launches.jsonl.</p>\n");
    }
    if (r->config != NULL) {
        html_raw(&p->html, "<details><summary>All options</summary>\n");
        draw_facts(p, json_value_get(json_document_root(r->config), "options"));
        html_raw(&p->html, "</details>\n");
    }
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
    draw_summary(&p);
    draw_figures(&p);
    draw_state(&p);
    html_raw(&p.html, "<h2>How the runs were made</h2>\n");
    for (size_t i = 0; i < count; i++) {
        draw_run(&p, runs[i]);
    }
    chart_script(&p.html);
    const enum status s = html_write(&p.html, path, err);
    html_fini(&p.html);
    free(p.lines);
    return s;
}
