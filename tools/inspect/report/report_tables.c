/*
 * report_tables: the numbers of runs as text: a summary, and how each run was made.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "tools/cli/cli.h"
#include "tools/inspect/report/report_internal.h"

void report_put_number(char cell[REPORT_CELL_BYTES], double value, int digits) {
    if (isfinite(value)) {
        (void)snprintf(cell, REPORT_CELL_BYTES, "%.*f", digits, value);
    }
}

/* Of one run without its name, which is the title of the page. */
void report_put_table(struct report *r, const struct report_table *t, bool summary) {
    const char *cells[REPORT_MAX_RUNS * REPORT_MAX_CELLS];
    const size_t first = r->run_count == 1 ? 1 : 0;
    size_t count = 0;
    for (size_t i = 0; i < r->run_count; i++) {
        for (size_t k = first; k < t->columns; k++) {
            cells[count++] = k == 0 ? r->runs[i]->name : t->cells[i][k];
        }
    }
    (summary ? page_summary : page_table)(&r->page,
                                          &(struct page_table){.title = t->title,
                                                               .columns = t->heads + first,
                                                               .column_count = t->columns - first,
                                                               .cells = cells,
                                                               .row_count = r->run_count});
}

static double best(const struct run_points *p) {
    double most = NAN;
    for (size_t i = 0; i < p->count; i++) {
        most = fmax(most, p->y[i]);
    }
    return most;
}

static double median(const struct run_points *p) {
    double *sorted = malloc((p->count + 1) * sizeof *sorted);
    if (sorted == NULL || p->count == 0) {
        free(sorted);
        return (double)NAN;
    }
    memcpy(sorted, p->y, p->count * sizeof *sorted);
    qsort(sorted, p->count, sizeof *sorted, compare_double);
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

void report_put_summary(struct report *r) {
    struct report_table t = {.title = "Last recorded values; recall is the mean of both directions",
                             .heads = {"run", "loss function", "step", "epoch", "batch loss",
                                       "global loss", "R@1, %", "best R@1, %", "pairs/s, median",
                                       "memory, GiB", "last entry"},
                             .columns = 11};
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_log *log = r->runs[i];
        const struct json_value *launch = json_document_root(log->launch);
        (void)snprintf(t.cells[i][1], REPORT_CELL_BYTES, "%s",
                       strcmp(option(log, "task"), "blocks") == 0 ? "block" : option(log, "loss"));
        put_of(t.cells[i][2], log->last_step, json_value_get(launch, "total_steps"));
        put_of(t.cells[i][3], 1.0 + run_log_last(&log->series[RUN_EPOCH]),
               run_log_option(log, "epochs"));
        report_put_number(t.cells[i][4], run_log_last(&log->series[RUN_LOSS]), 4);
        report_put_number(t.cells[i][5], run_log_last(&log->series[RUN_GLOBAL_LOSS]), 4);
        report_put_number(t.cells[i][6], run_log_last(&log->series[RUN_MEAN_R1]), 2);
        report_put_number(t.cells[i][7], best(&log->series[RUN_MEAN_R1]), 2);
        report_put_number(t.cells[i][8], median(&log->series[RUN_PAIRS_PER_S]), 0);
        report_put_number(t.cells[i][9], run_log_last(&log->series[RUN_PEAK_RSS]) / (1 << 30), 2);
        /* To the second; the dates of a log end with milliseconds and Z. */
        if (strlen(log->last_time) > 11) {
            (void)snprintf(t.cells[i][10], REPORT_CELL_BYTES, "%.10s %.8s UTC", log->last_time,
                           log->last_time + 11);
        }
    }
    report_put_table(r, &t, true);
}

/* What a reader of the figures must know of a log that is not whole. */
void report_put_faults(struct report *r) {
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_log *log = r->runs[i];
        const bool one = log->unread_lines == 1;
        uint64_t step = 0;
        if (log->unread_lines > 0) {
            page_note(&r->page, "%zu line%s of metrics.jsonl of %s cannot be read%s %zu%s",
                      log->unread_lines, one ? "" : "s", log->name,
                      one ? ": line" : "; the first is line", log->first_unread,
                      log->first_unread == log->lines ? ", the last: the run was killed." : ".");
        }
        const struct json_value *fault = json_document_root(log->nonfinite);
        if (json_value_u64(json_value_get(fault, "step"), &step)) {
            const char *why = json_value_string(json_value_get(fault, "why"), NULL);
            page_note(&r->page,
                      "A number was not finite in step %" PRIu64
                      " of %s: %s (nonfinite.json in its directory has more).",
                      step, log->name, why != NULL ? why : "");
        }
    }
}

void report_put_origins(struct report *r) {
    struct json_writer *j = page_json(&r->page);
    page_section(&r->page, r->run_count > 1 ? "Run configurations" : "Run configuration", false);
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_log *log = r->runs[i];
        page_item(&r->page, "run", log->path);
        page_locations(&r->page, "launch", json_document_root(log->launch));
        page_locations(&r->page, "options",
                       json_value_get(json_document_root(log->config), "options"));
        json_close_object(j);
    }
}
