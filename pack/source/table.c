/*
 * Tables, one row per record. Cells of a TSV are separated by TABs; those of a CSV by the one of
 * , ; | by which the first records agree best. Cells of a CSV may be quoted, and then contain
 * delimiters, line feeds, and quotes written twice. Lines end with LF or CRLF; blank lines are
 * skipped.
 *
 * A quote that is never closed would make one record of the rest of the file. Its record ends with
 * the line on which it exceeds the limit, so that the lines after it are read again.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/source/table_internal.h"

enum { LOOK_RECORDS = 20, LOOK_LINES = 100 };

enum status table_rewind(struct source_table *t, struct error *err) {
    t->lines = 0;
    return source_blocks_rewind(&t->blocks, err);
}

/* Appends the next line without its LF. Returns END where the file has ended. */
static enum status append_line(struct source_table *t, struct error *err) {
    struct source_blocks *b = &t->blocks;
    bool ended = false;
    bool any = false;
    while (!ended) {
        enum status s = source_blocks_fill(b, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        any = true;
        const uint8_t *from = b->block + b->at;
        const uint8_t *end = memchr(from, '\n', b->got - b->at);
        size_t n = end ? (size_t)(end - from) : b->got - b->at;
        b->at += n + (end ? 1 : 0);
        ended = end != NULL;
        if (n > SOURCE_MAX_LINE_BYTES - t->text.size_bytes) {
            n = SOURCE_MAX_LINE_BYTES - t->text.size_bytes;
            t->too_long = true;
        }
        TRY(byte_buffer_append(&t->text, from, n, err));
    }
    t->lines += any;
    return any ? STATUS_OK : STATUS_END;
}

/* Whether a quoted cell is open after these bytes. *fresh: a cell begins here. */
static bool scan_quotes(const struct source_table *t, size_t from, bool open, bool *fresh) {
    const uint8_t *p = t->text.data;
    for (size_t i = from; i < t->text.size_bytes; i++) {
        if (open) {
            const uint8_t *quote = memchr(p + i, '"', t->text.size_bytes - i);
            if (!quote) {
                return true;
            }
            i = (size_t)(quote - p);
            open = false; /* one that is written twice opens it again at once */
            *fresh = i + 1 < t->text.size_bytes && p[i + 1] == '"';
        } else {
            open = p[i] == '"' && *fresh;
            *fresh = p[i] == (uint8_t)t->delimiter;
        }
    }
    return open;
}

static void trim_line_end(struct byte_buffer *text) {
    while (text->size_bytes > 0 && text->data[text->size_bytes - 1] == '\r') {
        text->size_bytes--;
    }
}

/* Appends the lines over which a quoted cell extends that is open at the end of the first line. */
static enum status append_quoted(struct source_table *t, struct error *err) {
    bool fresh = true;
    bool open = scan_quotes(t, 0, false, &fresh);
    while (open && !t->too_long) {
        size_t from = t->text.size_bytes;
        if (from == SOURCE_MAX_LINE_BYTES) {
            t->too_long = true;
            break;
        }
        TRY(byte_buffer_append(&t->text, "\n", 1, err));
        enum status s = append_line(t, err);
        TRY(s);
        if (s == STATUS_END) {
            t->unclosed = true;
            break;
        }
        open = scan_quotes(t, from, true, &fresh);
    }
    return STATUS_OK;
}

enum status table_read(struct source_table *t, struct error *err) {
    do {
        t->text.size_bytes = 0;
        t->too_long = false;
        t->unclosed = false;
        enum status s = append_line(t, err);
        if (s != STATUS_OK) {
            return s;
        }
        t->line = t->lines;
        if (t->quotes && t->text.size_bytes > 0 && memchr(t->text.data, '"', t->text.size_bytes)) {
            TRY(append_quoted(t, err));
        }
        trim_line_end(&t->text);
    } while (t->text.size_bytes == 0);
    return STATUS_OK;
}

/* Removes the quotes of the cell at *p in place; *p moves to the delimiter or the end. Bytes
 * between the closing quote and the delimiter belong to the cell. */
static struct table_cell take_quoted(char **p, const char *end, char delimiter) {
    char *to = *p;
    struct table_cell cell = {to, 0};
    const char *from = *p + 1;
    bool open = true;
    while (from < end && (open || *from != delimiter)) {
        if (open && *from == '"') {
            open = from + 1 < end && from[1] == '"';
            from += open ? 1 : 0;
            if (!open) {
                from++;
                continue;
            }
        }
        *to++ = *from++;
    }
    cell.size_bytes = (size_t)(to - cell.data);
    *p += from - *p;
    return cell;
}

size_t table_split(struct source_table *t, struct table_cell cells[TABLE_MAX_COLUMNS]) {
    char *p = (char *)t->text.data;
    char *end = p + t->text.size_bytes;
    size_t count = 0;
    for (;;) {
        if (t->quotes && p < end && *p == '"') {
            cells[count++] = take_quoted(&p, end, t->delimiter);
        } else {
            char *stop = p < end ? memchr(p, t->delimiter, (size_t)(end - p)) : NULL;
            stop = stop ? stop : end;
            cells[count++] = (struct table_cell){p, (size_t)(stop - p)};
            p = stop;
        }
        if (p == end || count == TABLE_MAX_COLUMNS) {
            return count;
        }
        p++;
    }
}

static enum status table_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    enum status status = table_read(t, err);
    if (status != STATUS_OK) {
        return status;
    }
    s->position_bytes = source_blocks_position(&t->blocks);
    if (t->too_long || t->unclosed) {
        source_row_reject(row, REASON_ROW_BAD,
                          t->too_long ? "line %" PRIu64 " has more than %d bytes"
                                      : "line %" PRIu64 ": a quote is opened and never closed",
                          t->line, SOURCE_MAX_LINE_BYTES);
        return STATUS_OK;
    }
    struct table_cell cells[TABLE_MAX_COLUMNS];
    size_t count = table_split(t, cells);
    if (count <= t->path_column || count <= t->caption_column ||
        (t->column_count > 0 && count != t->column_count)) {
        source_row_reject(row, REASON_ROW_BAD, "line %" PRIu64 " has %zu column%s", t->line, count,
                          count == 1 ? "" : "s");
        return STATUS_OK;
    }
    const struct table_cell *caption = &cells[t->caption_column];
    struct table_cell path = table_path(&cells[t->path_column]);
    source_row_set_stem(row, path.data, path.size_bytes);
    source_row_set_path(row, s, path.data, path.size_bytes);
    return source_row_add_caption(row, caption->data, caption->size_bytes, err);
}

/* Counts the first records that have as many cells as the first one; 0 if that has only one. */
static enum status count_agreeing(struct source_table *t, unsigned *out, struct error *err) {
    size_t first = 0;
    *out = 0;
    TRY(table_rewind(t, err));
    for (int i = 0; i < LOOK_RECORDS; i++) {
        struct table_cell cells[TABLE_MAX_COLUMNS];
        enum status s = table_read(t, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        size_t count = table_split(t, cells);
        first = i == 0 ? count : first;
        *out += count == first && first > 1;
    }
    return STATUS_OK;
}

/* Of a CSV: the one of , ; | with which most of the first records have as many cells as the first.
 */
static enum status find_delimiter(struct source_table *t, struct error *err) {
    static const char candidates[] = {',', ';', '|'};
    char best = candidates[0];
    unsigned best_count = 0;
    for (size_t i = 0; i < sizeof(candidates); i++) {
        unsigned count;
        t->delimiter = candidates[i];
        TRY(count_agreeing(t, &count, err));
        best = count > best_count ? candidates[i] : best;
        best_count = count > best_count ? count : best_count;
    }
    t->delimiter = best;
    return STATUS_OK;
}

static void table_close(struct source *s) {
    struct source_table *t = (struct source_table *)s;
    source_blocks_close(&t->blocks);
    byte_buffer_fini(&t->text);
}

static enum status
table_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    t->quotes = s->type == &source_type_csv;
    t->delimiter = '\t';
    byte_buffer_init(&t->text, SOURCE_MAX_LINE_BYTES);
    TRY(source_blocks_open(&t->blocks, s->path, err));
    s->size_bytes = t->blocks.size_bytes;
    if (t->quotes) {
        TRY(find_delimiter(t, err));
    }
    TRY(table_rewind(t, err));
    TRY(table_find_columns(t, opt, err));
    TRY(table_rewind(t, err));
    if (t->header) {
        TRY(table_read(t, err));
    }
    return STATUS_OK;
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
    .options = SOURCE_HAS_COLUMNS | SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN,
    .struct_bytes = sizeof(struct source_table),
    .detect = csv_detect,
    .open = table_open,
    .next = table_next,
    .close = table_close,
};

const struct source_type source_type_tsv = {
    .options = SOURCE_HAS_COLUMNS | SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN,
    .struct_bytes = sizeof(struct source_table),
    .detect = tsv_detect,
    .open = table_open,
    .next = table_next,
    .close = table_close,
};
