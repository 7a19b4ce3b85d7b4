/*
 * report_tables: the numbers of runs as text: a summary, and how each run was made.
 */
#include "tools/ccstream_report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/html_json.h"

static void put(struct page *p, const char *before, const char *text, const char *after) {
    html_raw(&p->html, before);
    html_text(&p->html, text, strlen(text));
    html_raw(&p->html, after);
}

void report_put_number(char cell[REPORT_CELL_BYTES], double value, int digits) {
    if (isfinite(value)) {
        (void)snprintf(cell, REPORT_CELL_BYTES, "%.*f", digits, value);
    }
}

/* A list leaves out the run's name, which is the title of the page, and what is not known. */
void report_put_table(struct page *p, const struct report_table *t) {
    put(p, "<p class=\"number\">", t->caption, "</p>\n");
    if (p->run_count == 1) {
        html_raw(&p->html, "<dl class=\"tiles\">\n");
        for (size_t k = 1; k < t->columns; k++) {
            if (t->cells[0][k][0] != '\0') {
                put(p, "<div><dt>", t->heads[k], "</dt>");
                put(p, "<dd>", t->cells[0][k], "</dd></div>\n");
            }
        }
        html_raw(&p->html, "</dl>\n");
        return;
    }
    html_raw(&p->html, "<div class=\"scroll\"><table><tr>");
    for (size_t k = 0; k < t->columns; k++) {
        put(p, "<th>", t->heads[k], "</th>");
    }
    for (size_t i = 0; i < p->run_count; i++) {
        html_raw(&p->html, "</tr>\n<tr>");
        for (size_t k = 0; k < t->columns; k++) {
            put(p, "<td>", t->cells[i][k], "</td>");
        }
    }
    html_raw(&p->html, "</tr>\n</table></div>\n");
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

void report_draw_summary(struct page *p) {
    struct report_table t = {
        .caption = "At the end of what was recorded; recall in percent, mean of both directions",
        .heads = {"run", "loss function", "step", "epoch", "loss", "global loss", "R@1", "best R@1",
                  "pairs/s, median", "memory, GiB", "last entry"},
        .columns = 11};
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_log *r = p->runs[i];
        const struct run_points *loss = &r->series[RUN_LOSS];
        (void)snprintf(t.cells[i][0], REPORT_CELL_BYTES, "%s", r->name);
        (void)snprintf(t.cells[i][1], REPORT_CELL_BYTES, "%s",
                       strcmp(option(r, "task"), "curl") == 0 ? "block" : option(r, "loss"));
        report_put_number(t.cells[i][2], loss->count > 0 ? loss->x[loss->count - 1] : (double)NAN,
                          0);
        report_put_number(t.cells[i][3], run_log_last(&r->series[RUN_EPOCH]), 0);
        report_put_number(t.cells[i][4], run_log_last(loss), 4);
        report_put_number(t.cells[i][5], run_log_last(&r->series[RUN_GLOBAL_LOSS]), 4);
        report_put_number(t.cells[i][6], run_log_last(&r->series[RUN_MEAN_R1]), 2);
        report_put_number(t.cells[i][7], best(&r->series[RUN_MEAN_R1]), 2);
        report_put_number(t.cells[i][8], median(&r->series[RUN_PAIRS_PER_S]), 0);
        report_put_number(t.cells[i][9], run_log_last(&r->series[RUN_PEAK_RSS]) / (1 << 30), 2);
        /* To the second; the dates of a log end with milliseconds and Z. */
        if (strlen(r->last_time) > 11) {
            (void)snprintf(t.cells[i][10], REPORT_CELL_BYTES, "%.10s %.8s UTC", r->last_time,
                           r->last_time + 11);
        }
    }
    report_put_table(p, &t);
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

void report_draw_run(struct page *p, const struct run_log *r) {
    html_raw(&p->html, "<h3>");
    html_text(&p->html, r->path, strlen(r->path));
    html_raw(&p->html, "</h3>\n");
    if (r->launch != NULL) {
        html_raw(&p->html, "<p>Command, machine and datasets of the last call:</p>\n");
        html_json_facts(&p->html, json_document_root(r->launch));
    } else {
        html_raw(&p->html, "<p class=\"number\">Its command and machine were not recorded: there "
                           "is no launches.jsonl.</p>\n");
    }
    if (r->config != NULL) {
        html_raw(&p->html, "<details><summary>All options</summary>\n");
        html_json_facts(&p->html, json_value_get(json_document_root(r->config), "options"));
        html_raw(&p->html, "</details>\n");
    }
}
