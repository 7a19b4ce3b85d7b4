/*
 * The columns of a sample as JSON: texts unchanged, the first ones of numbers.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect/input_internal.h"

enum { SHOWN_NUMBERS = 8, LOOK_MAX_BYTES = 64 << 20 };

void input_columns_close(struct input_columns *c) {
    for (size_t i = 0; c && i < c->count; i++) {
        column_close(c->items[i]);
    }
    if (c) {
        column_workspace_destroy(c->workspace);
    }
    free(c);
}

/* A remote column is downloaded when it is opened, so a large one is not opened to show a sample.
 */
static enum status
open_column(struct column **out, const struct input *in, const char *name, struct error *err) {
    const struct file_system *fs = file_system_of(in->path);
    char path[PATH_MAX_BYTES];
    uint64_t size = 0;
    FAIL_IF(path_is_remote(in->path) && !in->all_numbers &&
                column_path(path, in->path, name, NULL) == STATUS_OK &&
                file_size(fs, &size, path, NULL) == STATUS_OK && size > LOOK_MAX_BYTES,
            err, STATUS_LIMIT,
            "has %" PRIu64 " bytes at the server, which stats and cat --columns read", size);
    return column_open(out, fs, in->path, name, in->manifest, err);
}

enum status input_open_columns(struct input *in, struct error *err) {
    if (in->kind != INPUT_DATASET || in->columns) {
        return STATUS_OK;
    }
    struct input_columns *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c, err, "%s: out of memory for columns", in->path);
    in->columns = c;
    TRY(column_workspace_create(&c->workspace, err));
    TRY(column_names_read(&c->names, file_system_of(in->path), in->path, err));
    for (; c->count < c->names.count; c->count++) {
        (void)open_column(&c->items[c->count], in, c->names.items[c->count], &c->errors[c->count]);
    }
    return STATUS_OK;
}

static void put_captions(struct json_writer *w, const uint8_t *row, size_t row_bytes) {
    struct column_caption c = {0};
    json_open_array(w, "captions");
    while (column_next_caption(&c, row, row_bytes)) {
        json_open_object(w, NULL);
        json_string_n(w, "text", c.text, c.size_bytes);
        json_double(w, "weight", (double)c.weight);
        json_u64(w, "source", c.source);
        json_close_object(w);
    }
    json_close_array(w);
}

static void
put_numbers(struct json_writer *w, const struct column *c, const uint8_t *row, bool all) {
    const struct column_info *i = column_info(c);
    json_u64(w, "values", i->values);
    json_u64(w, "vectors", i->vectors);
    json_open_array(w, all ? "numbers" : "first");
    for (uint32_t k = 0; k < i->values && (all || k < SHOWN_NUMBERS); k++) {
        json_double(w, NULL, column_number(c, row, k));
    }
    json_close_array(w);
}

enum status
input_put_columns(struct input *in, struct json_writer *w, uint64_t id, struct error *err) {
    TRY(input_open_columns(in, err));
    const struct input_columns *c = in->columns;
    if (!c) {
        return STATUS_OK;
    }
    if (c->count > 0) {
        json_open_object(w, "columns");
    }
    for (size_t i = 0; i < c->count; i++) {
        const uint8_t *row = NULL;
        size_t row_bytes = 0;
        struct error why = c->errors[i];
        const enum status s =
            c->items[i] ? column_get(c->items[i], c->workspace, id, &row, &row_bytes, &why)
                        : why.status;
        if (s == STATUS_NOTFOUND && c->items[i]) {
            continue;
        }
        json_open_object(w, c->names.items[i]);
        if (s != STATUS_OK) {
            json_string(w, "error", why.text);
        } else {
            const int kind = column_info(c->items[i])->kind;
            json_string(w, "kind", column_kind_name(kind));
            if (kind == COLUMN_CAPTIONS) {
                put_captions(w, row, row_bytes);
            } else if (kind >= COLUMN_CAPTIONS) {
                json_string_n(w, "text", (const char *)row, row_bytes);
            } else {
                put_numbers(w, c->items[i], row, in->all_numbers);
            }
        }
        json_close_object(w);
    }
    if (c->count > 0) {
        json_close_object(w);
    }
    return STATUS_OK;
}
