/*
 * batch_cells: lines of text in and out, and means over seeds.
 */
#include "tools/ccstudy/batch_cells.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"

enum { MAX_FILE_BYTES = 16 << 20, MAX_LINE_BYTES = 512, METHOD_BYTES = 16 };

const char *const batch_method_names[BATCH_METHODS] = {
    [BATCH_CLIP] = "clip",
    [BATCH_SOGCLR] = "sogclr",
    [BATCH_SOGCLR_FORGETS] = "sogclr-forgets",
    [BATCH_NUCLR_FROZEN] = "nuclr-frozen",
    [BATCH_NUCLR_FIXED] = "nuclr-fixed",
    [BATCH_NUCLR_AUTO] = "nuclr-auto",
};

double batch_recall_mean(const struct batch_recall *r) {
    return (r->at[0] + r->at[1] + r->at[2]) / BATCH_RECALLS;
}

/* ---- the file ---- */

static bool in_percent(const struct batch_recall *r) {
    for (int k = 0; k < BATCH_RECALLS; k++) {
        if (!(r->at[k] >= 0.0 && r->at[k] <= 100.0)) {
            return false;
        }
    }
    return true;
}

/* Whether the line is a run. */
static bool parse_line(struct batch_cell *c, const char *line) {
    char method[METHOD_BYTES];
    double *v = c->validation.at;
    double *t = c->test.at;
    int end = 0;
    int last = 0;
    c->gcl = (double)NAN;
    if (sscanf(line, "%15s %" SCNu32 " %lf %lf %lf %" SCNu32 " %lf %lf %lf %lf %lf %lf%n %lf%n",
               method, &c->batch, &c->tau, &c->rate, &c->gamma, &c->seed, &v[0], &v[1], &v[2],
               &t[0], &t[1], &t[2], &end, &c->gcl, &last) < 12 ||
        line[last > 0 ? last : end] != '\0') {
        return false;
    }
    int m = 0;
    while (m < BATCH_METHODS && strcmp(method, batch_method_names[m]) != 0) {
        m++;
    }
    c->method = (enum batch_method)m;
    return m < BATCH_METHODS && c->batch >= 2 && in_percent(&c->validation) && in_percent(&c->test);
}

static enum status take_line(struct batch_cells *c,
                             const char *line,
                             size_t number,
                             const char *path,
                             struct error *err) {
    struct batch_cell cell = {0};
    if (number == 1 && strncmp(line, "# ", 2) == 0) {
        (void)snprintf(c->settings, sizeof c->settings, "%.*s", BATCH_SETTINGS_BYTES - 1, line + 2);
        return STATUS_OK;
    }
    if (line[0] == '#' || line[0] == '\0') {
        return STATUS_OK;
    }
    if (!parse_line(&cell, line)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: line %zu is not METHOD BATCH TAU RATE GAMMA SEED, six recalls in "
                         "percent, and the global loss or nothing",
                         path, number);
    }
    return batch_cells_add(c, &cell, err);
}

static enum status take_lines(struct batch_cells *c,
                              const char *text,
                              size_t size,
                              const char *path,
                              struct error *err) {
    char line[MAX_LINE_BYTES];
    size_t number = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
        number++;
        if (length >= sizeof line) {
            return error_set(err, STATUS_CORRUPT, "%s: line %zu is too long", path, number);
        }
        memcpy(line, text + at, length);
        line[length] = '\0';
        TRY(take_line(c, line, number, path, err));
        at += length + 1;
    }
    return STATUS_OK;
}

enum status batch_cells_read(struct batch_cells *c, const char *path, struct error *err) {
    struct byte_buffer text;
    *c = (struct batch_cells){0};
    enum status s = file_read_all(file_posix(), &text, path, MAX_FILE_BYTES, err);
    if (s == STATUS_OK) {
        s = take_lines(c, (const char *)text.data, text.size_bytes, path, err);
    }
    byte_buffer_fini(&text);
    if (s != STATUS_OK) {
        batch_cells_fini(c);
    }
    return s;
}

/* %.17g: what is read again is the same number. */
static int format_line(char out[MAX_LINE_BYTES], const struct batch_cell *c) {
    const double *v = c->validation.at;
    const double *t = c->test.at;
    return snprintf(out, MAX_LINE_BYTES,
                    "%s %" PRIu32 " %.17g %.17g %.17g %" PRIu32
                    " %.17g %.17g %.17g %.17g %.17g %.17g %.17g\n",
                    batch_method_names[c->method], c->batch, c->tau, c->rate, c->gamma, c->seed,
                    v[0], v[1], v[2], t[0], t[1], t[2], c->gcl);
}

enum status batch_cells_write(const struct batch_cells *c, const char *path, struct error *err) {
    char line[MAX_LINE_BYTES];
    struct byte_buffer text;
    byte_buffer_init(&text, MAX_FILE_BYTES);
    int length = snprintf(line, sizeof line, "# %s\n", c->settings);
    enum status s = byte_buffer_append(&text, line, (size_t)length, err);
    for (size_t i = 0; s == STATUS_OK && i < c->count; i++) {
        length = format_line(line, &c->items[i]);
        s = byte_buffer_append(&text, line, (size_t)length, err);
    }
    if (s == STATUS_OK) {
        s = file_write_atomic(file_posix(), path, text.data, text.size_bytes, err);
    }
    byte_buffer_fini(&text);
    return s;
}

/* ---- the list ---- */

void batch_cells_fini(struct batch_cells *c) {
    free(c->items);
    *c = (struct batch_cells){0};
}

enum status
batch_cells_add(struct batch_cells *c, const struct batch_cell *cell, struct error *err) {
    if (c->count == c->capacity) {
        const size_t capacity = c->capacity > 0 ? 2 * c->capacity : 64;
        struct batch_cell *items = realloc(c->items, capacity * sizeof *items);
        if (items == NULL) {
            return error_set(err, STATUS_NOMEM, "out of memory for %zu runs", capacity);
        }
        c->items = items;
        c->capacity = capacity;
    }
    c->items[c->count++] = *cell;
    return STATUS_OK;
}

static bool same_setting(const struct batch_cell *a, const struct batch_cell *b) {
    return a->method == b->method && a->batch == b->batch && a->tau == b->tau &&
           a->rate == b->rate && a->gamma == b->gamma;
}

const struct batch_cell *batch_cells_find(const struct batch_cells *c,
                                          const struct batch_cell *like) {
    for (size_t i = 0; i < c->count; i++) {
        if (same_setting(&c->items[i], like) && c->items[i].seed == like->seed) {
            return &c->items[i];
        }
    }
    return NULL;
}

const struct batch_cell *batch_cells_tuned(const struct batch_cells *c,
                                           enum batch_method method,
                                           uint32_t batch,
                                           double tau) {
    const struct batch_cell *best = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const struct batch_cell *it = &c->items[i];
        if (it->seed == 0 && it->method == method && it->batch == batch &&
            (tau == 0.0 || it->tau == tau) &&
            (best == NULL ||
             batch_recall_mean(&it->validation) > batch_recall_mean(&best->validation))) {
            best = it;
        }
    }
    return best;
}

const struct batch_cell *batch_cells_fitted(const struct batch_cells *c,
                                            enum batch_method method,
                                            uint32_t batch,
                                            double tau) {
    const struct batch_cell *best = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const struct batch_cell *it = &c->items[i];
        if (it->seed == 0 && it->method == method && it->batch == batch && it->tau == tau &&
            isfinite(it->gcl) && (best == NULL || it->gcl < best->gcl)) {
            best = it;
        }
    }
    return best;
}

/* ---- the table ---- */

enum { KIND_MEAN, KIND_OVER_CLIP, KIND_AT }; /* KIND_AT + k: R@1, R@5, R@10 */

struct sum {
    double count, total, squares;
};

static void sum_add(struct sum *s, double value) {
    s->count += 1.0;
    s->total += value;
    s->squares += value * value;
}

static struct batch_mean sum_mean(const struct sum *s) {
    const double mean = s->total / s->count;
    const double variance = fmax(0.0, s->squares / s->count - mean * mean);
    return (struct batch_mean){mean,
                               s->count > 1.0 ? sqrt(variance / (s->count - 1.0)) : (double)NAN};
}

struct batch_mean batch_mean_of(const double *values, size_t count) {
    struct sum s = {0};
    for (size_t i = 0; i < count; i++) {
        sum_add(&s, values[i]);
    }
    return sum_mean(&s);
}

static void fill_row(struct batch_row *row,
                     const struct batch_cells *c,
                     enum batch_method method,
                     uint32_t batch) {
    struct sum sums[KIND_AT + BATCH_RECALLS] = {0};
    const struct batch_cell *clip = batch_cells_tuned(c, BATCH_CLIP, batch, 0.0);
    *row = (struct batch_row){
        .tuned = batch_cells_tuned(c, method, batch, 0.0), .batch = batch, .method = method};
    for (size_t i = 0; i < c->count && row->tuned != NULL; i++) {
        const struct batch_cell *it = &c->items[i];
        if (it->seed == 0 || !same_setting(it, row->tuned)) {
            continue;
        }
        row->seeds++;
        sum_add(&sums[KIND_MEAN], batch_recall_mean(&it->test));
        for (int k = 0; k < BATCH_RECALLS; k++) {
            sum_add(&sums[KIND_AT + k], it->test.at[k]);
        }
        struct batch_cell like = clip != NULL ? *clip : *it;
        like.seed = it->seed;
        const struct batch_cell *other = clip != NULL ? batch_cells_find(c, &like) : NULL;
        if (other != NULL) {
            sum_add(&sums[KIND_OVER_CLIP],
                    batch_recall_mean(&it->test) - batch_recall_mean(&other->test));
        }
    }
    row->recall = sum_mean(&sums[KIND_MEAN]);
    row->over_clip = sum_mean(&sums[KIND_OVER_CLIP]);
    for (int k = 0; k < BATCH_RECALLS; k++) {
        row->at[k] = sum_mean(&sums[KIND_AT + k]);
    }
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Adds a value that is not there yet, in its place. */
static enum status
add_value(double *values, size_t *count, size_t max, double value, struct error *err) {
    for (size_t i = 0; i < *count; i++) {
        if (values[i] == value) {
            return STATUS_OK;
        }
    }
    if (*count == max) {
        return error_set(err, STATUS_LIMIT, "more than %zu batches or temperatures", max);
    }
    values[(*count)++] = value;
    qsort(values, *count, sizeof *values, compare_doubles);
    return STATUS_OK;
}

enum status
batch_table_make(struct batch_table *t, const struct batch_cells *c, struct error *err) {
    double batches[BATCH_MAX_BATCHES];
    *t = (struct batch_table){0};
    for (size_t i = 0; i < c->count; i++) {
        TRY(add_value(batches, &t->batch_count, BATCH_MAX_BATCHES, c->items[i].batch, err));
        TRY(add_value(t->taus, &t->tau_count, BATCH_MAX_TAUS, c->items[i].tau, err));
    }
    for (size_t b = 0; b < t->batch_count; b++) {
        t->batches[b] = (uint32_t)batches[b];
        for (int m = 0; m < BATCH_METHODS; m++) {
            fill_row(&t->rows[m][b], c, (enum batch_method)m, t->batches[b]);
        }
    }
    return STATUS_OK;
}
