/*
 * report_tables: the numbers of runs as text: a summary, and how each run was made.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Older runs call this task curl. */
static bool trains_blocks(const struct run_log *log) {
    return strcmp(option(log, "task"), "blocks") == 0 || strcmp(option(log, "task"), "curl") == 0;
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
    struct report_table t = {
        .title = "At the end of what was recorded; recall is the mean of both directions",
        .heads = {"run", "loss function", "step", "epoch", "loss", "global loss", "R@1, %",
                  "best R@1, %", "pairs/s, median", "memory, GiB", "last entry"},
        .columns = 11};
    for (size_t i = 0; i < r->run_count; i++) {
        const struct run_log *log = r->runs[i];
        const struct json_value *launch =
            log->launch != NULL ? json_document_root(log->launch) : NULL;
        (void)snprintf(t.cells[i][1], REPORT_CELL_BYTES, "%s",
                       trains_blocks(log) ? "block" : option(log, "loss"));
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
        const struct json_value *fault =
            log->nonfinite != NULL ? json_document_root(log->nonfinite) : NULL;
        if (json_value_u64(json_value_get(fault, "step"), &step)) {
            const char *why = json_value_string(json_value_get(fault, "why"), NULL);
            page_note(&r->page,
                      "A number was not finite in step %" PRIu64
                      " of %s: %s (nonfinite.json in its directory has more).",
                      step, log->name, why != NULL ? why : "");
        }
    }
}

static void put(struct page *p, struct byte_buffer *out, const char *text, size_t size_bytes) {
    if (p->status == STATUS_OK) {
        p->status = byte_buffer_append(out, text, size_bytes, &p->error);
    }
}

/* As a shell reads it. */
static void put_command(struct page *p, const struct json_value *command) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    struct byte_buffer out;
    byte_buffer_init(&out, PAGE_MAX_BYTES);
    for (size_t i = 0; i < json_value_count(command); i++) {
        const char *word = json_value_string(json_value_at(command, i), NULL);
        word = word != NULL ? word : "";
        const bool quoted = word[0] == '\0' || word[strspn(word, plain)] != '\0';
        put(p, &out, " '", (size_t)(i > 0) + (quoted ? 1 : 0));
        if (i == 0 && quoted) {
            out.data[0] = '\'';
        }
        for (const char *quote; quoted && (quote = strchr(word, '\'')) != NULL; word = quote + 1) {
            put(p, &out, word, (size_t)(quote - word));
            put(p, &out, "'\\''", 4);
        }
        put(p, &out, word, strlen(word));
        put(p, &out, "'", quoted ? 1 : 0);
    }
    page_item(p, "code", NULL);
    json_string_n(page_json(p), "text", (const char *)out.data, out.size_bytes);
    json_close_object(page_json(p));
    byte_buffer_fini(&out);
}

/* A row of the table of datasets, if the launch has this one. */
static void put_dataset(struct json_writer *j, const char *use, const struct json_value *d) {
    static const char *const texts[] = {"directory", "fingerprint"};
    static const char *const numbers[] = {"samples", "captions"};
    if (!json_value_is_object(d)) {
        return;
    }
    json_open_array(j, NULL);
    json_string(j, NULL, use);
    for (size_t k = 0; k < 2; k++) {
        json_string(j, NULL, json_value_string(json_value_get(d, texts[k]), NULL));
    }
    for (size_t k = 0; k < 2; k++) {
        uint64_t n = 0;
        if (json_value_u64(json_value_get(d, numbers[k]), &n)) {
            json_u64(j, NULL, n);
        } else {
            json_null(j, NULL);
        }
    }
    json_close_array(j);
}

static void put_datasets(struct page *p, const struct json_value *launch) {
    static const char *const heads[] = {"dataset for", "directory", "fingerprint", "samples",
                                        "captions"};
    const struct json_value *train = json_value_get(launch, "datasets");
    struct json_writer *j = page_json(p);
    page_item(p, "table", NULL);
    json_open_array(j, "columns");
    for (size_t k = 0; k < CLI_COUNT(heads); k++) {
        json_open_object(j, NULL);
        json_string(j, "name", heads[k]);
        json_close_object(j);
    }
    json_close_array(j);
    json_open_array(j, "rows");
    for (size_t i = 0; i < json_value_count(train); i++) {
        put_dataset(j, "training", json_value_at(train, i));
    }
    put_dataset(j, "retrieval", json_value_get(launch, "val"));
    json_close_array(j);
    json_close_object(j);
}

/* What else a launch has: counts with commas, sizes with a unit. Nobody needs the pid later. */
static void put_machine(struct page *p, const struct json_value *launch) {
    void *position = NULL;
    const char *name;
    const struct json_value *v;
    page_facts(p, NULL, false);
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
        page_fact(p, title, text);
    }
    page_facts_end(p);
}

static void put_origin(struct page *p, const struct run_log *r) {
    page_text(p, "%s", r->path);
    if (r->launch != NULL) {
        const struct json_value *launch = json_document_root(r->launch);
        put_command(p, json_value_get(launch, "command"));
        put_datasets(p, launch);
        put_machine(p, launch);
    } else {
        page_note(p, "Its command and machine were not recorded: there is no launches.jsonl.");
    }
    if (r->config != NULL) {
        page_facts(p, "All options", true);
        page_facts_of(p, json_value_get(json_document_root(r->config), "options"));
        page_facts_end(p);
    }
}

void report_put_origins(struct report *r) {
    page_section(&r->page, r->run_count > 1 ? "How the runs were made" : "How the run was made",
                 false);
    for (size_t i = 0; i < r->run_count; i++) {
        put_origin(&r->page, r->runs[i]);
    }
}
