/*
 * Parquet: a table whose cells come from a process that reads the file (rows_stream_internal.h).
 * Columns are found by their names as in a CSV with a header line; without a usual name the image
 * is the first column of bytes.
 *
 * The image is a path (text), the bytes themselves, or a struct of bytes and path as Hugging Face
 * stores it, where a null `bytes` with a path means the file of that name. A caption is a text or a
 * list of texts. A null is no caption and no image. Every other column of texts, numbers, booleans
 * and times becomes a member of the sample's JSON, a null as null; integers beyond 2^53 are texts.
 *
 * Rows with images in the file are samples each; those with paths are grouped as in other tables.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pack/source/rows_stream_internal.h"

size_t parquet_find_image(const struct source_table *t) {
    for (size_t i = 0; !t->base.urls && i < t->rows->column_count; i++) {
        if (t->rows->columns[i].kind == 'B') {
            return i;
        }
    }
    return TABLE_NO_COLUMN;
}

bool parquet_may_keep(const struct source_table *t, size_t column) {
    return !t->rows || (column != t->image_path_column &&
                        memchr("TJ", t->rows->columns[column].kind, 2) != NULL);
}

static enum status check_kind(const struct source_table *t,
                              size_t column,
                              const char *kinds,
                              const char *use,
                              struct error *err) {
    const struct rows_column *c = &t->rows->columns[column];
    FAIL_IF(!strchr(kinds, c->kind), err, STATUS_USAGE,
            "%.200s: column '%s' is nested or of %s: %s", t->base.path, c->name,
            c->kind == 'B' ? "bytes" : "another type", use);
    return STATUS_OK;
}

/* The columns are found by their names: what they hold must fit, and only they are read. */
static enum status take_columns(struct source_table *t, struct error *err) {
    TRY(check_kind(t, t->path_column, t->base.urls ? "T" : "TB",
                   t->base.urls ? "it cannot hold URLs" : "it cannot hold images or their paths",
                   err));
    for (size_t i = 0; i < t->caption_count; i++) {
        TRY(check_kind(t, t->captions[i], "TL", "it cannot hold captions", err));
    }
    for (size_t i = 0; i < t->rows->column_count; i++) {
        TRY(t->kept[i] ? check_kind(t, i, "TJ", "it cannot be kept as metadata", err) : STATUS_OK);
        t->rows->columns[i].wanted = t->kept[i] || i == t->path_column || i == t->image_path_column;
    }
    for (size_t i = 0; i < t->caption_count; i++) {
        t->rows->columns[t->captions[i]].wanted = true;
    }
    return STATUS_OK;
}

static enum status
parquet_find_columns(struct source_table *t, const struct source_options *opt, struct error *err) {
    struct table_cell cells[TABLE_MAX_COLUMNS];
    const struct rows_stream *r = t->rows;
    t->header = true;
    for (size_t i = 0; i < r->column_count; i++) {
        cells[i] = (struct table_cell){.data = r->columns[i].name,
                                       .size_bytes = strlen(r->columns[i].name)};
    }
    TRY(table_columns_by_names(t, cells, r->column_count, opt, err));
    return take_columns(t, err);
}

void parquet_find_image_path(struct source_table *t) {
    char name[SOURCE_MAX_NAME_BYTES + 8];
    const struct rows_column *c = t->rows->columns;
    t->image_path_column = TABLE_NO_COLUMN;
    if (c[t->path_column].kind == 'B') {
        snprintf(name, sizeof(name), "%s.path", c[t->path_column].name);
        for (size_t i = 0; i < t->rows->column_count; i++) {
            t->image_path_column = strcmp(c[i].name, name) == 0 ? i : t->image_path_column;
        }
    }
}

enum status parquet_read(struct source_table *t, struct error *err) {
    const enum status s = rows_stream_next(t->rows, err);
    t->line = t->rows->next_row;
    if (s == STATUS_END && t->rows->not_finite > 0 && !t->base.note) {
        snprintf(t->note, sizeof(t->note),
                 "%.80s: %" PRIu64 " numbers are not finite and kept as null", t->base.path,
                 t->rows->not_finite);
        t->base.note = t->note;
    }
    return s;
}

size_t parquet_split(struct source_table *t, struct table_cell cells[TABLE_MAX_COLUMNS]) {
    bool too_long;
    for (size_t i = 0; i < t->rows->column_count; i++) {
        cells[i] = rows_stream_cell(t->rows, i, &too_long);
        t->too_long_cell = i == t->path_column ? too_long : t->too_long_cell;
    }
    return t->rows->column_count;
}

enum status parquet_take_image(struct source_table *t,
                               struct source_row *row,
                               const struct table_cell *cells,
                               struct table_cell *path,
                               struct error *err) {
    const struct table_cell *image = &cells[t->path_column];
    const bool bytes = image->kind == 'B';
    *path = bytes && t->image_path_column < TABLE_NO_COLUMN ? cells[t->image_path_column]
            : bytes                                         ? (struct table_cell){.data = NULL}
                                                            : table_path(image);
    if (path->data && path->size_bytes > 0) {
        source_row_set_stem(row, path->data, path->size_bytes);
    } else {
        source_row_set_number_key(row, row->row);
    }
    if (t->too_long_cell || image->size_bytes > SOURCE_MAX_IMAGE_BYTES) {
        source_row_reject(row, REASON_IMAGE_LIMIT, "the image has more than %d bytes",
                          SOURCE_MAX_IMAGE_BYTES);
    } else if (bytes && image->data) {
        row->member_bytes = image->size_bytes;
        return byte_buffer_append(&row->image, image->data, image->size_bytes, err);
    } else if (path->data) {
        source_row_set_path(row, &t->base, path->data, path->size_bytes);
    } else {
        source_row_reject(row, REASON_IMAGE_MISSING, "column '%s' is null",
                          t->rows->columns[t->path_column].name);
    }
    return STATUS_OK;
}

enum status
parquet_add_captions(struct source_row *row, const struct table_cell *cell, struct error *err) {
    for (size_t at = 0; cell->kind == 'L' && cell->size_bytes - at >= 4;) {
        const size_t n = load_u32((const uint8_t *)cell->data + at);
        at += 4;
        if (n > cell->size_bytes - at) {
            source_row_reject(row, REASON_ROW_BAD, "a list of captions is damaged");
            break;
        }
        TRY(source_row_add_caption(row, cell->data + at, n, err));
        at += n;
    }
    return STATUS_OK;
}

static enum status
parquet_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    byte_buffer_init(&t->text, SOURCE_MAX_LINE_BYTES);
    TRY(file_size(file_posix(), &s->size_bytes, s->path, err));
    TRY(rows_stream_open(&t->rows, s->path, opt, err));
    TRY(parquet_find_columns(t, opt, err));
    const bool inside = t->rows->columns[t->path_column].kind == 'B';
    FAIL_IF(inside && opt->grouping != SOURCE_GROUP_AUTO && opt->grouping != SOURCE_GROUP_NEVER,
            err, STATUS_USAGE, "%.200s: --group-captions is for tables with paths of images",
            s->path);
    t->grouping = inside ? SOURCE_GROUP_NEVER : opt->grouping;
    return t->grouping == SOURCE_GROUP_NEVER ? STATUS_OK : table_groups_create(&t->groups, err);
}

static bool parquet_detect(const struct source_head *h) {
    return h->size_bytes >= 4 &&
           (memcmp(h->data, "PAR1", 4) == 0 || memcmp(h->data, "PARE", 4) == 0);
}

const struct source_type source_type_parquet = {
    .options = SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN | SOURCE_HAS_GROUPING |
               SOURCE_HAS_URLS | SOURCE_HAS_KEEP,
    .struct_bytes = sizeof(struct source_table),
    .detect = parquet_detect,
    .open = parquet_open,
    .next = table_next,
    .close = table_close,
};
