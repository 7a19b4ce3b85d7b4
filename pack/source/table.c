/*
 * Tables of records with a path and a caption. By default adjacent records of one path are one row
 * (table_groups.c). Cells of a TSV
 * are separated by TABs; those of a CSV by the one of , ; | by which the first records agree best,
 * or by --delimiter. Cells of a CSV may be quoted, and then contain delimiters, line feeds, and
 * quotes written twice. Those of a TSV may be too if most of its cells with a quote are quoted so,
 * as those that pandas writes; in others, such as CC3M, a quote is a character. Lines end with LF
 * or CRLF; blank lines are skipped.
 */
#include <inttypes.h>
#include <string.h>

#include "pack/source/rows_stream_internal.h"

enum {
    LOOK_LINES = 100,
    TABLE_OPTIONS = SOURCE_HAS_COLUMNS | SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN |
                    SOURCE_HAS_DELIMITER | SOURCE_HAS_GROUPING | SOURCE_HAS_URLS | SOURCE_HAS_KEEP,
};

/* Makes the cells that are kept the row's JSON. */
static enum status keep_cells(struct source_table *t,
                              struct source_row *row,
                              const struct table_cell *cells,
                              size_t count,
                              struct error *err) {
    struct json_writer *w = &t->base.json;
    json_writer_reset(w);
    json_open_object(w, NULL);
    for (size_t i = 0; i < count; i++) {
        if (t->kept[i] && !cells[i].data) {
            json_null(w, t->names[i]);
        } else if (t->kept[i] && cells[i].kind == 'J') {
            json_raw(w, t->names[i], cells[i].data, cells[i].size_bytes);
        } else if (t->kept[i]) {
            json_string_n(w, t->names[i], cells[i].data, cells[i].size_bytes);
        }
    }
    row->json_unchecked = true; /* a cell may hold a NUL, or no JSON */
    return source_row_take_json(row, w, err);
}

/* Of a Parquet file: what the rows so far are of its size. */
static uint64_t table_share(const struct source_table *t) {
    const double share = (double)t->rows->next_row / ((double)t->rows->row_count + 1);
    return share < 1 ? (uint64_t)(share * (double)t->base.size_bytes) : t->base.size_bytes;
}

enum status table_record(struct source_table *t,
                         struct source_row *row,
                         struct table_cell *path,
                         struct error *err) {
    struct source *s = &t->base;
    enum status status = table_read(t, err);
    s->position_bytes = t->rows ? table_share(t) : source_blocks_position(&t->blocks);
    if (status != STATUS_OK) {
        return status;
    }
    if (t->too_long || t->unclosed) {
        source_row_reject(row, REASON_ROW_BAD,
                          t->too_long ? "line %" PRIu64 " has more than %d bytes"
                                      : "line %" PRIu64 ": a quoted field is not closed",
                          t->line, SOURCE_MAX_LINE_BYTES);
        return STATUS_OK;
    }
    struct table_cell cells[TABLE_MAX_COLUMNS];
    size_t count = table_split(t, cells);
    if (count < t->needed_columns || count > t->column_count ||
        (count < t->column_count && !t->header)) {
        source_row_reject(row, REASON_ROW_BAD, "line %" PRIu64 " has %zu column%s instead of %zu",
                          t->line, count, count == 1 ? "" : "s", t->column_count);
        return STATUS_OK;
    }
    if (t->rows) {
        TRY(parquet_take_image(t, row, cells, path, err));
    } else {
        *path = table_path(&cells[t->path_column]);
        source_row_set_stem(row, path->data, path->size_bytes);
        source_row_set_path(row, s, path->data, path->size_bytes);
    }
    size_t nulls = 0;
    row->captions_optional = t->caption_count == 0;
    TRY(t->keeps ? keep_cells(t, row, cells, count, err) : STATUS_OK);
    for (size_t i = 0; i < t->caption_count; i++) {
        const struct table_cell *caption = &cells[t->captions[i]];
        TRY(!caption->data ? STATUS_OK
            : caption->kind == 'L'
                ? parquet_add_captions(row, caption, err)
                : source_row_add_caption(row, caption->data, caption->size_bytes, err));
        nulls += !caption->data;
    }
    if (nulls > 0 && nulls == t->caption_count) {
        source_row_reject(row, REASON_CAPTION_MISSING, "the caption is null");
    }
    return STATUS_OK;
}

enum status table_restart(struct source_table *t, struct error *err) {
    TRY(table_rewind(t, err));
    if (t->header && !t->rows) {
        TRY(table_read(t, err));
    }
    return STATUS_OK;
}

enum status table_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    struct table_cell path;
    switch (t->grouping) {
    case SOURCE_GROUP_NEVER:
        return table_record(t, row, &path, err);
    case SOURCE_GROUP_ALL:
        return table_groups_all(t, row, err);
    default:
        break;
    }
    const uint64_t number = row->row;
    enum status status = table_groups_adjacent(t, row, err);
    row->row = number; /* it may be another row's storage now */
    return status;
}

void table_close(struct source *s) {
    struct source_table *t = (struct source_table *)s;
    source_blocks_close(&t->blocks);
    rows_stream_close(t->rows);
    byte_buffer_fini(&t->text);
    table_groups_destroy(t->groups);
}

/* Sets the delimiter that the option names. Returns OK or USAGE. */
static enum status set_delimiter(struct source_table *t, const char *option, struct error *err) {
    bool tab = strcmp(option, "tab") == 0 || strcmp(option, "\\t") == 0;
    t->delimiter = tab ? '\t' : option[0];
    bool one = option[1] == '\0' && (unsigned char)option[0] < 0x80;
    FAIL_IF(!tab && (!one || strchr("\"\r\n", option[0])), err, STATUS_USAGE,
            "--delimiter %.20s: must be one ASCII character, or 'tab'", option);
    return STATUS_OK;
}

static enum status
table_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    const bool csv = s->type == &source_type_csv;
    t->quotes = csv;
    t->delimiter = '\t';
    byte_buffer_init(&t->text, SOURCE_MAX_LINE_BYTES);
    TRY(source_blocks_open(&t->blocks, s->path, err));
    s->size_bytes = t->blocks.size_bytes;
    if (opt->delimiter) {
        TRY(set_delimiter(t, opt->delimiter, err));
    } else if (csv) {
        TRY(table_find_delimiter(t, err));
    }
    if (!csv) {
        TRY(table_find_quotes(t, err));
    }
    TRY(table_rewind(t, err));
    TRY(table_find_columns(t, opt, err));
    TRY(table_restart(t, err));
    t->grouping = opt->grouping;
    return t->grouping == SOURCE_GROUP_NEVER ? STATUS_OK : table_groups_create(&t->groups, err);
}

/* A text is CSV when less than half of its first lines have a TAB, and the first one has a
 * delimiter of CSV; otherwise it is TSV. */
static bool csv_detect(const struct source_head *h) {
    bool whole = h->size_bytes == h->file_bytes;
    unsigned lines = 0;
    unsigned tabs = 0;
    bool delimiter = false;
    for (size_t at = 0; at < h->text_bytes && lines < LOOK_LINES;) {
        const char *line = h->text + at;
        const char *end = memchr(line, '\n', h->text_bytes - at);
        size_t n = end ? (size_t)(end - line) : h->text_bytes - at;
        if (!end && lines > 0 && !whole) {
            break; /* the head ends within this line */
        }
        tabs += memchr(line, '\t', n) != NULL;
        for (size_t i = 0; i < n && lines == 0; i++) {
            delimiter |= line[i] == ',' || line[i] == ';' || line[i] == '|';
        }
        lines += n > 0;
        at += n + 1;
    }
    return tabs * 2 < lines && delimiter;
}

static bool tsv_detect(const struct source_head *h) {
    return h->text != NULL;
}

const struct source_type source_type_csv = {
    .options = TABLE_OPTIONS,
    .struct_bytes = sizeof(struct source_table),
    .detect = csv_detect,
    .open = table_open,
    .next = table_next,
    .close = table_close,
};

const struct source_type source_type_tsv = {
    .options = TABLE_OPTIONS,
    .struct_bytes = sizeof(struct source_table),
    .detect = tsv_detect,
    .open = table_open,
    .next = table_next,
    .close = table_close,
};
