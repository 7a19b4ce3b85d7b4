/*
 * run_log: one pass over metrics.jsonl. A line of a step that is not after the last one takes back
 * everything from that step on, as the run itself does when it is resumed.
 */
#include "tools/inspect/run_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 30, MAX_POINTS = 1 << 24, MAX_HISTOGRAMS = 1 << 18 };

static const char *const series_objects[RUN_SERIES_COUNT] = {
#define X(id, object, name) [RUN_##id] = (object),
    RUN_SERIES_LIST(X)
#undef X
};
const char *const run_series_names[RUN_SERIES_COUNT] = {
#define X(id, object, name) [RUN_##id] = (name),
    RUN_SERIES_LIST(X)
#undef X
};

/* ---- lists of points ---- */

static enum status add_point(struct run_points *p, double x, double y, struct error *err) {
    if (!isfinite(y)) {
        return STATUS_OK;
    }
    while (p->count > 0 && p->x[p->count - 1] >= x) {
        p->count--;
    }
    if (p->count == p->capacity) {
        const size_t capacity = p->capacity > 0 ? 2 * p->capacity : 256;
        double *xs = capacity <= MAX_POINTS ? realloc(p->x, capacity * sizeof *xs) : NULL;
        p->x = xs != NULL ? xs : p->x;
        double *ys = xs != NULL ? realloc(p->y, capacity * sizeof *ys) : NULL;
        p->y = ys != NULL ? ys : p->y;
        TRY_MEMORY(ys, err, "out of memory for the metrics of a run");
        p->capacity = capacity;
    }
    p->x[p->count] = x;
    p->y[p->count++] = y;
    return STATUS_OK;
}

static void rewind_points(struct run_points *p, double step) {
    while (p->count > 0 && p->x[p->count - 1] >= step) {
        p->count--;
    }
}

static void free_points(struct run_points *p) {
    free(p->x);
    free(p->y);
}

/* Calls `act` with every list that a step can take back. */
static void each_list(struct run_log *r, void (*act)(struct run_points *, double), double step) {
    for (int i = 0; i < RUN_SERIES_COUNT; i++) {
        act(&r->series[i], step);
    }
    for (size_t i = 0; i < r->column_count; i++) {
        act(&r->columns[i].visited, step);
        act(&r->columns[i].min, step);
        act(&r->columns[i].mean, step);
        act(&r->columns[i].max, step);
    }
}

double run_log_last(const struct run_points *p) {
    return p->count > 0 ? p->y[p->count - 1] : (double)NAN;
}

/* ---- lines ---- */

static struct run_column *find_column(struct run_log *r, const char *name) {
    for (size_t i = 0; i < r->column_count; i++) {
        if (strcmp(r->columns[i].name, name) == 0) {
            return &r->columns[i];
        }
    }
    if (r->column_count == SAMPLE_STATE_MAX_COLUMNS || strlen(name) >= SAMPLE_STATE_NAME_BYTES) {
        return NULL;
    }
    struct run_column *c = &r->columns[r->column_count++];
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

static enum status
add_member(struct run_points *p, const struct json_value *v, double step, struct error *err) {
    double value;
    return json_value_double(v, &value) ? add_point(p, step, value, err) : STATUS_OK;
}

/* A histogram of metrics.jsonl; one that does not make sense is omitted. */
static enum status add_histogram(struct run_column *c,
                                 const struct json_value *v,
                                 double step,
                                 double visited,
                                 struct error *err) {
    const struct json_value *counts = json_value_get(v, "counts");
    struct run_histogram h = {.step = step, .count = json_value_count(counts)};
    while (c->histogram_count > 0 && c->histograms[c->histogram_count - 1].step >= step) {
        c->histogram_count--;
    }
    if (!json_value_double(json_value_get(v, "low"), &h.low) ||
        !json_value_double(json_value_get(v, "width"), &h.width) || !(h.width > 0.0) ||
        h.count == 0 || h.count > SAMPLE_STATE_BINS) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < h.count; i++) {
        double n;
        if (!json_value_double(json_value_at(counts, i), &n) || !(n >= 0.0)) {
            return STATUS_OK;
        }
        h.shares[i] = 100.0 * n / visited;
    }
    if (c->histogram_count == c->histogram_capacity) {
        const size_t capacity = c->histogram_capacity > 0 ? 2 * c->histogram_capacity : 16;
        struct run_histogram *more =
            capacity <= MAX_HISTOGRAMS ? realloc(c->histograms, capacity * sizeof *more) : NULL;
        TRY_MEMORY(more, err, "out of memory for the histograms of a run");
        c->histograms = more;
        c->histogram_capacity = capacity;
    }
    c->histograms[c->histogram_count++] = h;
    return STATUS_OK;
}

static enum status
add_state(struct run_log *r, const struct json_value *state, double step, struct error *err) {
    void *position = NULL;
    const char *name;
    const struct json_value *v;
    while (json_value_next_member(state, &position, &name, &v)) {
        struct run_column *c = find_column(r, name);
        double visited = 0.0;
        if (c == NULL || !json_value_double(json_value_get(v, "visited"), &visited)) {
            continue;
        }
        TRY(add_point(&c->visited, step, visited, err));
        if (visited > 0.0) {
            TRY(add_member(&c->min, json_value_get(v, "min"), step, err));
            TRY(add_member(&c->mean, json_value_get(v, "mean"), step, err));
            TRY(add_member(&c->max, json_value_get(v, "max"), step, err));
            TRY(add_histogram(c, json_value_get(v, "histogram"), step, visited, err));
        }
    }
    return STATUS_OK;
}

static enum status
add_numbers(struct run_log *r, const struct json_value *root, double step, struct error *err) {
    if (json_value_get(root, "loss") != NULL) {
        each_list(r, rewind_points, step);
    }
    for (int i = 0; i < RUN_SERIES_COUNT; i++) {
        const char *object = series_objects[i];
        const struct json_value *in = object != NULL ? json_value_get(root, object) : root;
        TRY(add_member(&r->series[i], json_value_get(in, run_series_names[i]), step, err));
    }
    return add_state(r, json_value_get(root, "state"), step, err);
}

/* Takes the document. */
static void keep_examples(struct run_log *r, struct json_document *d) {
    if (r->first_examples == NULL) {
        r->first_examples = d;
        r->last_examples = d;
        return;
    }
    if (r->last_examples != r->first_examples) {
        json_document_destroy(r->last_examples);
    }
    r->last_examples = d;
}

/* Takes one line of metrics.jsonl, without its end. */
static enum status
add_line(struct run_log *r, const char *line, size_t size_bytes, struct error *err) {
    struct json_document *d = NULL;
    uint64_t step;
    r->lines++;
    if (json_document_parse(&d, "metrics.jsonl", line, size_bytes, NULL) != STATUS_OK ||
        !json_value_u64(json_value_get(json_document_root(d), "step"), &step)) {
        json_document_destroy(d);
        r->first_unread = r->unread_lines++ == 0 ? r->lines : r->first_unread;
        return STATUS_OK;
    }
    r->last_step = (double)step;
    const struct json_value *root = json_document_root(d);
    const char *time = json_value_string(json_value_get(root, "time"), NULL);
    if (time != NULL) {
        (void)snprintf(r->last_time, sizeof r->last_time, "%s", time);
    }
    const enum status s = add_numbers(r, root, (double)step, err);
    if (s == STATUS_OK && json_value_get(root, "examples") != NULL) {
        keep_examples(r, d);
    } else {
        json_document_destroy(d);
    }
    return s;
}

/* ---- files ---- */

/* An absent file is an empty one. */
static enum status
read_file(struct byte_buffer *out, const char *run, const char *name, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct error why = {0};
    TRY(path_join(path, sizeof path, run, name, err));
    const enum status s = file_read_all(file_posix(), out, path, MAX_FILE_BYTES, &why);
    if (s == STATUS_NOTFOUND) {
        byte_buffer_init(out, 0);
        return STATUS_OK;
    }
    return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
}

static enum status read_metrics(struct run_log *r, struct error *err) {
    struct byte_buffer text;
    TRY(read_file(&text, r->path, "metrics.jsonl", err));
    enum status s = STATUS_OK;
    const char *line = (const char *)text.data;
    const char *end = line != NULL ? line + text.size_bytes : NULL;
    while (line < end && s == STATUS_OK) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        s = stop > line ? add_line(r, line, (size_t)(stop - line), err) : STATUS_OK;
        line = stop + 1;
    }
    byte_buffer_fini(&text);
    return s;
}

/* NULL where there is none, or it does not parse: the page says what is missing. */
static enum status
read_document(struct json_document **out, const char *run, const char *name, struct error *err) {
    struct byte_buffer text;
    TRY(read_file(&text, run, name, err));
    if (text.size_bytes > 0) {
        (void)json_document_parse(out, name, text.data, text.size_bytes, NULL);
    }
    byte_buffer_fini(&text);
    return STATUS_OK;
}

/* The last line that parses. */
static enum status read_launches(struct run_log *r, struct error *err) {
    TRY(read_file(&r->launches, r->path, "sessions.jsonl", err));
    size_t end = r->launches.size_bytes;
    while (end > 0 && r->launch == NULL) {
        const char *text = (const char *)r->launches.data;
        size_t begin = end - 1;
        while (begin > 0 && text[begin - 1] != '\n') {
            begin--;
        }
        (void)json_document_parse(&r->launch, "sessions.jsonl", text + begin, end - begin, NULL);
        end = begin;
    }
    return STATUS_OK;
}

static enum status check_run(const char *run, struct error *err) {
    static const char *const names[] = {"config.json", "metrics.jsonl"};
    const struct file_system *fs = file_posix();
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX_BYTES];
        bool there = false;
        TRY(path_join(path, sizeof path, run, names[i], err));
        TRY(fs->exists(fs->context, path, &there, err));
        if (there) {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_NOTFOUND,
                     "%s is not a run of ccstream-train: there is no config.json and no "
                     "metrics.jsonl in it",
                     run);
}

enum status run_log_open(struct run_log **out, const char *run, struct error *err) {
    REQUIRE(out != NULL && run != NULL);
    enum status s;
    *out = NULL;
    TRY(check_run(run, err));
    struct run_log *r = calloc(1, sizeof *r);
    TRY_MEMORY(r, err, "out of memory for the metrics of a run");
    (void)snprintf(r->path, sizeof r->path, "%s", run);
    for (size_t n = strlen(r->path); n > 1 && r->path[n - 1] == '/'; n--) {
        r->path[n - 1] = '\0';
    }
    const char *slash = strrchr(r->path, '/');
    r->name = slash != NULL && slash[1] != '\0' ? slash + 1 : r->path;
    r->last_step = (double)NAN;
    TRY_OR_FAIL(s, read_document(&r->config, r->path, "config.json", err));
    TRY_OR_FAIL(s, read_document(&r->nonfinite, r->path, "nonfinite.json", err));
    TRY_OR_FAIL(s, read_launches(r, err));
    TRY_OR_FAIL(s, read_metrics(r, err));
fail:
    RETURN_CREATED(s, out, r, run_log_close);
}

static void free_list(struct run_points *p, double unused) {
    (void)unused;
    free_points(p);
}

void run_log_close(struct run_log *r) {
    if (r == NULL) {
        return;
    }
    each_list(r, free_list, 0.0);
    for (size_t i = 0; i < r->column_count; i++) {
        free(r->columns[i].histograms);
    }
    if (r->last_examples != r->first_examples) {
        json_document_destroy(r->last_examples);
    }
    json_document_destroy(r->first_examples);
    json_document_destroy(r->config);
    json_document_destroy(r->launch);
    json_document_destroy(r->nonfinite);
    byte_buffer_fini(&r->launches);
    free(r);
}

/* One more folder of the path, if it has one. */
static void lengthen(struct run_log *r) {
    const char *at = r->name;
    while (at > r->path && at[-1] == '/') {
        at--;
    }
    while (at > r->path && at[-1] != '/') {
        at--;
    }
    r->name = at;
}

void run_log_name_apart(struct run_log *const *runs, size_t count) {
    for (bool longer = true; longer;) {
        uint32_t same = 0;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < count; k++) {
                same |= i != k && strcmp(runs[i]->name, runs[k]->name) == 0 ? 1U << i : 0;
            }
        }
        longer = false;
        for (size_t i = 0; i < count; i++) {
            if ((same >> i & 1) != 0 && runs[i]->name > runs[i]->path) {
                lengthen(runs[i]);
                longer = true;
            }
        }
    }
}

const struct json_value *run_log_option(const struct run_log *r, const char *name) {
    return r->config != NULL
               ? json_value_get(json_value_get(json_document_root(r->config), "options"), name)
               : NULL;
}
