/*
 * The records of a table and their cells. SOURCES.md has the rules.
 *
 * A quote that is never closed would make one record of the rest of the file, and two of them one
 * record of all lines between. So a record over several lines is accepted only if each quote that
 * closes such a cell is followed by a delimiter or the end of the line, and not all of its lines
 * look like rows. Otherwise its first line alone is a bad record, and reading continues with the
 * next line. Each search that fails halves the limit of those that begin in the lines it has seen,
 * so the time is linear in the size of the file.
 */
#include <string.h>

#include "pack/source/rows_stream_internal.h"

enum { LOOK_RECORDS = 20, LOOK_CELLS = 1000 };

enum status table_rewind(struct source_table *t, struct error *err) {
    t->lines = 0;
    t->search_end = 0;
    if (t->rows) {
        t->rows->next_row = 0;
        return STATUS_OK;
    }
    return source_blocks_rewind(&t->blocks, err);
}

struct table_place table_place_of(const struct source_table *t) {
    return (struct table_place){t->rows ? t->rows->next_row : source_blocks_position(&t->blocks),
                                t->lines, t->search_end, t->search_bytes};
}

void table_return(struct source_table *t, const struct table_place *place) {
    if (t->rows) {
        t->rows->next_row = place->offset;
        return;
    }
    source_blocks_seek(&t->blocks, place->offset);
    t->lines = place->lines;
    t->search_end = place->search_end;
    t->search_bytes = place->search_bytes;
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

static void trim_line_end(struct byte_buffer *text) {
    while (text->size_bytes > 0 && text->data[text->size_bytes - 1] == '\r') {
        text->size_bytes--;
    }
}

/* ---- quotes ---- */

/* The state of the record's text after some of its bytes. */
struct quoting {
    bool open;  /* a quoted cell is */
    bool fresh; /* a cell begins here */
    bool wrong; /* a cell over several lines is closed within a word */
};

/* Whether a quoted cell may end before this byte. */
static bool ends_cell(const struct source_table *t, size_t at) {
    while (at < t->text.size_bytes && t->text.data[at] == ' ') {
        at++;
    }
    return at == t->text.size_bytes || t->text.data[at] == (uint8_t)t->delimiter ||
           t->text.data[at] == '\r';
}

/* Continues the state over the line that begins at `from`. */
static void scan_quotes(const struct source_table *t, size_t from, struct quoting *q) {
    const uint8_t *p = t->text.data;
    bool continued = q->open; /* the open cell began on an earlier line */
    for (size_t i = from; i < t->text.size_bytes; i++) {
        if (q->open) {
            const uint8_t *quote = memchr(p + i, '"', t->text.size_bytes - i);
            if (!quote) {
                return;
            }
            i = (size_t)(quote - p);
            if (i + 1 < t->text.size_bytes && p[i + 1] == '"') { /* written twice */
                i++;
                continue;
            }
            q->open = false;
            q->fresh = false;
            q->wrong |= continued && !ends_cell(t, i + 1);
            continued = false;
        } else {
            q->open = p[i] == '"' && q->fresh;
            q->fresh = p[i] == (uint8_t)t->delimiter;
        }
    }
}

static bool cell_names_image(const char *p, size_t n) {
    while (n > 0 && (p[n - 1] == '"' || source_is_space(p[n - 1]))) {
        n--;
    }
    return table_names_image(&(struct table_cell){.data = p, .size_bytes = n});
}

/* The number of cells of a line, quotes ignored, if one of them ends like an image's file; else 0.
 */
static size_t count_if_row(const struct source_table *t, const char *p, const char *end) {
    bool image = false;
    for (size_t count = 1;; count++) {
        const char *stop = memchr(p, t->delimiter, (size_t)(end - p));
        image |= cell_names_image(p, (size_t)((stop ? stop : end) - p));
        if (!stop) {
            return image ? count : 0;
        }
        p = stop + 1;
    }
}

/* Whether each line of the record has as many cells as the first one and names an image. */
static bool all_lines_are_rows(const struct source_table *t) {
    const char *p = (const char *)t->text.data;
    const char *end = p + t->text.size_bytes;
    size_t first = 0;
    for (;;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t count = count_if_row(t, p, stop ? stop : end);
        first = first == 0 ? count : first;
        if (count == 0 || count != first) {
            return false;
        }
        if (!stop) {
            return true;
        }
        p = stop + 1;
    }
}

/* Appends the lines over which a quoted cell extends that is open at the end of the first line. */
static enum status append_quoted(struct source_table *t, struct error *err) {
    const size_t first_bytes = t->text.size_bytes;
    const uint64_t first_end = source_blocks_position(&t->blocks);
    const bool again = first_end < t->search_end;
    const size_t limit = again ? t->search_bytes : SOURCE_MAX_LINE_BYTES;
    struct quoting q = {.fresh = true};
    scan_quotes(t, 0, &q);
    if (!q.open) {
        return STATUS_OK;
    }
    while (q.open && !q.wrong && t->text.size_bytes < limit) {
        TRY(byte_buffer_append(&t->text, "\n", 1, err));
        size_t from = t->text.size_bytes;
        enum status s = append_line(t, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        scan_quotes(t, from, &q);
    }
    if (q.open || q.wrong || t->too_long || all_lines_are_rows(t)) {
        t->search_end = again ? t->search_end : source_blocks_position(&t->blocks);
        t->search_bytes = limit / 2;
        t->unclosed = true;
        t->too_long = false;
        t->text.size_bytes = first_bytes;
        t->lines = t->line;
        source_blocks_seek(&t->blocks, first_end);
    }
    return STATUS_OK;
}

enum status table_read(struct source_table *t, struct error *err) {
    if (t->rows) {
        return parquet_read(t, err);
    }
    do {
        t->text.size_bytes = 0;
        t->too_long = false;
        t->unclosed = false;
        enum status s = append_line(t, err);
        if (s != STATUS_OK) {
            return s;
        }
        t->line = t->lines;
        if (t->quotes && !t->too_long && t->text.size_bytes > 0 &&
            memchr(t->text.data, '"', t->text.size_bytes)) {
            TRY(append_quoted(t, err));
        }
        trim_line_end(&t->text);
    } while (t->text.size_bytes == 0);
    return STATUS_OK;
}

/* ---- cells ---- */

/* Removes the quotes of the cell at *p in place; *p moves to the delimiter or the end. Bytes
 * between the closing quote and the delimiter belong to the cell. */
static struct table_cell take_quoted(char **p, const char *end, char delimiter) {
    char *to = *p;
    struct table_cell cell = {.data = to};
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
    if (t->rows) {
        return parquet_split(t, cells);
    }
    for (size_t count = 1;; count++) {
        struct table_cell cell;
        if (t->quotes && p < end && *p == '"') {
            cell = take_quoted(&p, end, t->delimiter);
        } else {
            char *stop = p < end ? memchr(p, t->delimiter, (size_t)(end - p)) : NULL;
            stop = stop ? stop : end;
            cell = (struct table_cell){.data = p, .size_bytes = (size_t)(stop - p)};
            p = stop;
        }
        if (count <= TABLE_MAX_COLUMNS) {
            cells[count - 1] = cell;
        }
        if (p == end) {
            return count;
        }
        p++;
    }
}

/* ---- the form of a table ---- */

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

enum status table_find_delimiter(struct source_table *t, struct error *err) {
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

/* Of the record's cells with a quote, counts those that are quoted as they should be, and those
 * that are not. */
static void count_quoted(const struct source_table *t, unsigned *good, unsigned *bad) {
    const char *p = (const char *)t->text.data;
    const char *end = p + t->text.size_bytes;
    while (p < end) {
        if (*p == '"') {
            const char *q = p + 1;
            while (q < end && (*q != '"' || (q + 1 < end && q[1] == '"'))) {
                q += *q == '"' ? 2 : 1;
            }
            bool closed = q < end && ends_cell(t, (size_t)(q + 1 - (const char *)t->text.data));
            *good += closed;
            *bad += !closed;
            p = q < end ? q + 1 : end;
        } else {
            const char *stop = memchr(p, t->delimiter, (size_t)(end - p));
            *bad += memchr(p, '"', (size_t)((stop ? stop : end) - p)) != NULL;
            p = stop ? stop : end;
        }
        const char *next = p < end ? memchr(p, t->delimiter, (size_t)(end - p)) : NULL;
        p = next ? next + 1 : end;
    }
}

enum status table_find_quotes(struct source_table *t, struct error *err) {
    unsigned good = 0;
    unsigned bad = 0;
    t->quotes = true;
    TRY(table_rewind(t, err));
    while (good + bad < LOOK_CELLS) {
        enum status s = table_read(t, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        if (t->unclosed) {
            bad++;
        } else if (memchr(t->text.data, '"', t->text.size_bytes)) {
            count_quoted(t, &good, &bad);
        }
    }
    t->quotes = good > bad;
    return STATUS_OK;
}
