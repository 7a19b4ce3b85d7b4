/*
 * report_tables: the numbers of runs as text: a summary, and how each run was made.
 */
#include "tools/inspect/report/report_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"
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

/* A list leaves out the run's name, which is the title of the page, and what is not known. The
 * first cell of a row is the run's name, of any length. */
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
    html_raw(&p->html, "<div class=\"scroll\"><table class=\"runs\"><tr>");
    for (size_t k = 0; k < t->columns; k++) {
        put(p, "<th>", t->heads[k], "</th>");
    }
    for (size_t i = 0; i < p->run_count; i++) {
        html_raw(&p->html, "</tr>\n<tr>");
        put(p, "<th>", p->runs[i]->name, "</th>");
        for (size_t k = 1; k < t->columns; k++) {
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

/* "3 of 30"; the end is not known to all logs. */
static void put_of(char cell[REPORT_CELL_BYTES], double at, const struct json_value *end) {
    double last = 0.0;
    if (isfinite(at) && json_value_double(end, &last)) {
        (void)snprintf(cell, REPORT_CELL_BYTES, "%.0f of %.0f", at, last);
    } else {
        report_put_number(cell, at, 0);
    }
}

/* What a reader of the figures must know of a log that is not whole. */
static void put_faults(struct page *p, const struct run_log *r) {
    uint64_t step = 0;
    if (r->unread_lines > 0) {
        html_markup(&p->html, "<p class=\"number\">%zu line%s of metrics.jsonl of ",
                    r->unread_lines, r->unread_lines == 1 ? "" : "s");
        html_text(&p->html, r->name, strlen(r->name));
        html_markup(&p->html, " cannot be read%s %zu%s</p>\n",
                    r->unread_lines == 1 ? ": line" : "; the first is line", r->first_unread,
                    r->first_unread == r->lines ? ", the last, as of a run that was killed." : ".");
    }
    const struct json_value *fault = r->nonfinite != NULL ? json_document_root(r->nonfinite) : NULL;
    if (json_value_u64(json_value_get(fault, "step"), &step)) {
        const char *why = json_value_string(json_value_get(fault, "why"), NULL);
        html_markup(&p->html, "<p class=\"number\">A number was not finite in step %" PRIu64 " of ",
                    step);
        put(p, "", r->name, ": ");
        put(p, "", why != NULL ? why : "", " (nonfinite.json in its directory has more).</p>\n");
    }
}

void report_draw_summary(struct page *p) {
    struct report_table t = {
        .caption = "At the end of what was recorded; recall is the mean of both directions",
        .heads = {"run", "loss function", "step", "epoch", "loss", "global loss", "R@1, %",
                  "best R@1, %", "pairs/s, median", "memory, GiB", "last entry"},
        .columns = 11};
    for (size_t i = 0; i < p->run_count; i++) {
        const struct run_log *r = p->runs[i];
        const struct run_points *loss = &r->series[RUN_LOSS];
        const struct json_value *launch = r->launch != NULL ? json_document_root(r->launch) : NULL;
        (void)snprintf(t.cells[i][1], REPORT_CELL_BYTES, "%s",
                       strcmp(option(r, "task"), "curl") == 0 ? "block" : option(r, "loss"));
        put_of(t.cells[i][2], r->last_step, json_value_get(launch, "total_steps"));
        put_of(t.cells[i][3], 1.0 + run_log_last(&r->series[RUN_EPOCH]),
               run_log_option(r, "epochs"));
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
        put_faults(p, p->runs[i]);
    }
}

/* As a shell reads it. */
static void put_command(struct page *p, const struct json_value *command) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    html_raw(&p->html, "<pre>");
    for (size_t i = 0; i < json_value_count(command); i++) {
        const char *word = json_value_string(json_value_at(command, i), NULL);
        word = word != NULL ? word : "";
        html_raw(&p->html, i > 0 ? " " : "");
        if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
            put(p, "", word, "");
            continue;
        }
        html_raw(&p->html, "'");
        for (const char *quote; (quote = strchr(word, '\'')) != NULL; word = quote + 1) {
            html_text(&p->html, word, (size_t)(quote - word));
            html_raw(&p->html, "'\\''");
        }
        put(p, "", word, "'");
    }
    html_raw(&p->html, "</pre>\n");
}

/* A row of the table of datasets, if the launch has this one. */
static void put_dataset(struct page *p, const char *use, const struct json_value *d) {
    static const char *const numbers[] = {"samples", "captions"};
    char text[CLI_TEXT_BYTES];
    uint64_t n = 0;
    if (!json_value_is_object(d)) {
        return;
    }
    const char *directory = json_value_string(json_value_get(d, "directory"), NULL);
    const char *fingerprint = json_value_string(json_value_get(d, "fingerprint"), NULL);
    put(p, "<tr><td>", use, "</td>");
    put(p, "<td>", directory != NULL ? directory : "", "</td>");
    for (size_t k = 0; k < 2; k++) {
        const bool known = json_value_u64(json_value_get(d, numbers[k]), &n);
        put(p, "<td>", known ? cli_format_count(text, n) : "", "</td>");
    }
    put(p, "<td>", fingerprint != NULL ? fingerprint : "", "</td></tr>\n");
}

static void put_datasets(struct page *p, const struct json_value *launch) {
    const struct json_value *train = json_value_get(launch, "datasets");
    html_raw(&p->html, "<div class=\"scroll\"><table>\n<tr><th>dataset for</th><th>directory</th>"
                       "<th>samples</th><th>captions</th><th>fingerprint</th></tr>\n");
    for (size_t i = 0; i < json_value_count(train); i++) {
        put_dataset(p, "training", json_value_at(train, i));
    }
    put_dataset(p, "retrieval", json_value_get(launch, "val"));
    html_raw(&p->html, "</table></div>\n");
}

/* What else a launch has: counts with commas, sizes with a unit. Nobody needs the pid later. */
static void put_machine(struct page *p, const struct json_value *launch) {
    void *position = NULL;
    const char *name;
    const struct json_value *v;
    html_raw(&p->html, "<dl>\n");
    while (json_value_next_member(launch, &position, &name, &v)) {
        char title[64];
        char number[CLI_TEXT_BYTES];
        uint64_t n = 0;
        const char *text = json_value_string(v, NULL);
        const char *bytes = strstr(name, "_bytes");
        if (strcmp(name, "pid") == 0) {
            continue;
        }
        if (text == NULL && json_value_u64(v, &n)) {
            text = bytes != NULL ? cli_format_bytes(number, n) : cli_format_count(number, n);
        }
        if (text == NULL) {
            continue; /* the command and the datasets */
        }
        (void)snprintf(title, sizeof title, "%.*s",
                       bytes != NULL ? (int)(bytes - name) : (int)sizeof title, name);
        for (char *c = title; (c = strchr(c, '_')) != NULL;) {
            *c = ' ';
        }
        put(p, "<div><dt>", title, "</dt>");
        put(p, "<dd>", text, "</dd></div>\n");
    }
    html_raw(&p->html, "</dl>\n");
}

void report_draw_run(struct page *p, const struct run_log *r) {
    put(p, "<h3>", r->path, "</h3>\n");
    if (r->launch != NULL) {
        const struct json_value *launch = json_document_root(r->launch);
        put_command(p, json_value_get(launch, "command"));
        put_datasets(p, launch);
        put_machine(p, launch);
    } else {
        html_note(&p->html,
                  "Its command and machine were not recorded: there is no launches.jsonl.", "");
    }
    if (r->config != NULL) {
        html_raw(&p->html, "<details><summary>All options</summary>\n");
        html_json_facts(&p->html, json_value_get(json_document_root(r->config), "options"));
        html_raw(&p->html, "</details>\n");
    }
}
