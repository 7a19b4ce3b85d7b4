/*
 * Attached columns in ccdump stats: counts of rows, numbers, captions.
 */
#include <math.h>
#include <stdlib.h>

#include "formats/base/sort.h"
#include "tools/ccdump/stats_internal.h"

static enum status add_row(struct stats_column *n,
                           const struct column *c,
                           const uint8_t *row,
                           size_t row_bytes,
                           struct error *err) {
    const struct column_info *info = column_info(c);
    struct column_caption caption = {0};
    n->rows++;
    while (info->kind == COLUMN_CAPTIONS && column_next_caption(&caption, row, row_bytes)) {
        uint64_t characters;
        (void)stats_words(&(struct shard_text){caption.text, caption.size_bytes}, &characters);
        n->captions++;
        n->characters += characters;
    }
    if (info->values == 1) {
        const double value = column_number(c, row, 0);
        n->nan += isnan(value);
        return isnan(value) ? STATUS_OK
                            : byte_buffer_append(&n->values, &value, sizeof(value), err);
    }
    return STATUS_OK;
}

enum status stats_columns_add(struct stats *s, uint64_t id, struct error *err) {
    TRY(input_open_columns(s->input, err));
    const struct input_columns *c = s->input->columns;
    for (size_t i = 0; c != NULL && i < c->count; i++) {
        const uint8_t *row = NULL;
        size_t row_bytes = 0;
        const enum status found =
            c->items[i] != NULL ? column_get(c->items[i], c->workspace, id, &row, &row_bytes, err)
                                : STATUS_NOTFOUND;
        RETURN_IF(found != STATUS_OK && found != STATUS_NOTFOUND, found);
        TRY(found == STATUS_OK ? add_row(&s->columns[i], c->items[i], row, row_bytes, err)
                               : STATUS_OK);
    }
    return STATUS_OK;
}

/* `known` false: null. */
static void put_double(struct json_writer *w, const char *key, bool known, double value) {
    known ? json_double(w, key, value) : json_null(w, key);
}

static void put_u64(struct json_writer *w, const char *key, bool known, uint64_t value) {
    known ? json_u64(w, key, value) : json_null(w, key);
}

/* The same fields for all, so that they are the rows of a table. */
static void
write_column(struct json_writer *w, const struct column *c, const struct stats_column *n) {
    const struct column_info *info = column_info(c);
    const bool captions = info->kind == COLUMN_CAPTIONS;
    double *values = (double *)(void *)n->values.data;
    const size_t count = n->values.size_bytes / sizeof(*values);
    const bool some = count > 0;
    double sum = 0.0;
    if (some) {
        qsort(values, count, sizeof(*values), compare_double);
    }
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    json_string(w, "kind", column_kind_name(info->kind));
    json_u64(w, "samples", n->rows);
    put_u64(w, "values", info->values > 0, info->values);
    put_u64(w, "captions", captions, n->captions);
    put_double(w, "mean_characters", captions && n->captions > 0,
               (double)n->characters / (double)n->captions);
    put_u64(w, "nan", info->values == 1, n->nan);
    put_double(w, "min", some, some ? values[0] : 0.0);
    put_double(w, "mean", some, sum / (double)count);
    put_double(w, "median", some, some ? values[(count - 1) / 2] : 0.0);
    put_double(w, "max", some, some ? values[count - 1] : 0.0);
}

void stats_columns_write(struct json_writer *w, const struct stats *s) {
    const struct input_columns *c = s->input->columns;
    const size_t count = c != NULL ? c->count : 0;
    bool damaged = false;
    for (size_t i = 0; i < count; i++) {
        damaged = damaged || c->items[i] == NULL;
    }
    if (count > 0) {
        json_open_object(w, "columns");
    }
    for (size_t i = 0; i < count; i++) {
        json_open_object(w, c->names.items[i]);
        if (c->items[i] != NULL) {
            write_column(w, c->items[i], &s->columns[i]);
        }
        if (damaged) {
            c->items[i] == NULL ? json_string(w, "error", c->errors[i].text)
                                : json_null(w, "error");
        }
        json_close_object(w);
    }
    if (count > 0) {
        json_close_object(w);
    }
}
