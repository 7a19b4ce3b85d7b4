/*
 * Text in blocks of 1 MiB: large enough that the calls cost nothing, small enough for any number of
 * open sources. Of JSON only the syntax between the members of the object and between the elements
 * of its list is checked.
 */
#include "pack/source/text_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

enum status source_blocks_open(struct source_blocks *b, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    *b = (struct source_blocks){.block = malloc(BLOCK_BYTES)};
    TRY_MEMORY(b->block, err, "%s: out of memory for a block of it", path);
    enum status s = fs->open(fs->context, &b->file, path, FILE_READ, err);
    THEN(s, fs->size(b->file, &b->size_bytes, err));
    THEN(s, source_blocks_rewind(b, err));
    if (s != STATUS_OK) {
        source_blocks_close(b);
    }
    return s;
}

void source_blocks_close(struct source_blocks *b) {
    file_posix()->close(b->file);
    free(b->block);
    *b = (struct source_blocks){0};
}

enum status source_blocks_rewind(struct source_blocks *b, struct error *err) {
    b->offset = 0;
    b->got = 0;
    b->at = 0;
    TRY(source_blocks_fill(b, err));
    if (b->got >= 3 && memcmp(b->block, "\xEF\xBB\xBF", 3) == 0) {
        b->at = 3;
    }
    return STATUS_OK;
}

enum status source_blocks_fill(struct source_blocks *b, struct error *err) {
    if (b->at < b->got) {
        return STATUS_OK;
    }
    b->offset += b->got;
    b->at = 0;
    b->got = 0;
    TRY(file_posix()->pread(b->file, b->block, &b->got, BLOCK_BYTES, b->offset, err));
    return b->got > 0 ? STATUS_OK : STATUS_END;
}

void source_blocks_seek(struct source_blocks *b, uint64_t offset) {
    if (offset < b->offset) { /* read again by the next source_blocks_fill */
        b->offset = offset;
        b->got = 0;
    }
    b->at = (size_t)(offset - b->offset);
}

uint64_t source_blocks_position(const struct source_blocks *b) {
    return b->offset + b->at;
}

/* ---- JSON ---- */

struct json_scan json_scan_begin(uint8_t first) {
    return (struct json_scan){.scalar = first != '{' && first != '[' && first != '"'};
}

size_t json_scan_bytes(struct json_scan *s, const uint8_t *p, size_t n, bool *ended) {
    for (size_t i = 0; i < n; i++) {
        uint8_t c = p[i];
        if (s->in_string) {
            s->in_string = s->escaped || c != '"';
            s->escaped = !s->escaped && c == '\\';
        } else if (c == '"') {
            s->in_string = true;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if ((c == '}' || c == ']') && s->depth > 0) {
            s->depth--;
        } else if (s->depth == 0 && s->scalar &&
                   (source_is_space((char)c) || c == ',' || c == ']' || c == '}')) {
            *ended = true;
            return i;
        }
        if (s->depth == 0 && !s->in_string && !s->scalar) {
            *ended = true;
            return i + 1;
        }
    }
    return n;
}

void json_parts_fini(struct json_parts *p) {
    free(p->items);
    *p = (struct json_parts){0};
}

struct walk {
    const char *name;
    const uint8_t *data;
    size_t size_bytes, at;
};

/* The next byte that is not white space, which is not taken; 0 at the end. */
static uint8_t peek(struct walk *w) {
    while (w->at < w->size_bytes && source_is_space((char)w->data[w->at])) {
        w->at++;
    }
    return w->at < w->size_bytes ? w->data[w->at] : 0;
}

static enum status wrong(const struct walk *w, const char *expected, struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: bad JSON at byte %zu%s: %s is expected", w->name,
                     w->at, w->at == w->size_bytes ? ", where it ends" : "", expected);
}

/* Takes a value. Returns OK or CORRUPT. */
static enum status take_value(struct walk *w, struct json_part *out, struct error *err) {
    uint8_t first = peek(w);
    if (first == 0 || strchr(",:]}", first)) {
        return wrong(w, "a value", err);
    }
    struct json_scan scan = json_scan_begin(first);
    bool ended = false;
    size_t n = json_scan_bytes(&scan, w->data + w->at, w->size_bytes - w->at, &ended);
    *out = (struct json_part){(uint32_t)w->at, (uint32_t)n};
    w->at += n;
    return ended ? STATUS_OK : wrong(w, "the end of a value", err);
}

/* Takes a comma, or `end`. Returns OK, END or CORRUPT. */
static enum status take_comma(struct walk *w, uint8_t end, struct error *err) {
    uint8_t c = peek(w);
    if (c != ',' && c != end) {
        return wrong(w, end == ']' ? "a comma or ]" : "a comma or }", err);
    }
    w->at++;
    return c == end ? STATUS_END : STATUS_OK;
}

/* Takes a list and adds its elements. */
static enum status take_list(struct walk *w, struct json_parts *out, struct error *err) {
    size_t capacity = 0;
    enum status s = STATUS_OK;
    w->at++;
    if (peek(w) == ']') {
        w->at++;
        return STATUS_OK;
    }
    while (s == STATUS_OK) {
        struct json_part part;
        TRY(take_value(w, &part, err));
        if (out->count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 64;
            struct json_part *grown = realloc(out->items, capacity * sizeof(*grown));
            TRY_MEMORY(grown, err, "%s: out of memory for its lists", w->name);
            out->items = grown;
        }
        out->items[out->count++] = part;
        s = take_comma(w, ']', err);
        TRY(s);
    }
    return STATUS_OK;
}

static bool is_member(const struct walk *w, const struct json_part *key, const char *member) {
    size_t n = strlen(member);
    return key->size_bytes == n + 2 && memcmp(w->data + key->offset + 1, member, n) == 0;
}

/* Takes a member of the object; *found: it is the list. */
static enum status take_member(struct walk *w,
                               struct json_parts *out,
                               const char *member,
                               bool *found,
                               struct error *err) {
    struct json_part key, value;
    if (peek(w) != '"') {
        return wrong(w, "a name", err);
    }
    TRY(take_value(w, &key, err));
    if (peek(w) != ':') {
        return wrong(w, "a colon", err);
    }
    w->at++;
    if (peek(w) != '[' || !is_member(w, &key, member)) {
        return take_value(w, &value, err);
    }
    FAIL_IF(*found, err, STATUS_CORRUPT, "%s: the list \"%s\" is repeated", w->name, member);
    *found = true;
    return take_list(w, out, err);
}

enum status json_parts_find(struct json_parts *out,
                            const char *name,
                            const struct byte_buffer *text,
                            const char *member,
                            struct error *err) {
    struct walk w = {name, text->data, text->size_bytes, 0};
    bool found = false;
    if (w.size_bytes >= 3 && memcmp(w.data, "\xEF\xBB\xBF", 3) == 0) {
        w.at = 3;
    }
    if (peek(&w) != '{') {
        return error_set(err, STATUS_NOTFOUND, "%s: no object", name);
    }
    w.at++;
    enum status s = peek(&w) == '}' ? take_comma(&w, '}', err) : STATUS_OK;
    while (s == STATUS_OK) {
        TRY(take_member(&w, out, member, &found, err));
        s = take_comma(&w, '}', err);
        TRY(s);
    }
    TRY(s);
    if (peek(&w) != 0 || w.at < w.size_bytes) {
        return wrong(&w, "the end of the file", err);
    }
    return found ? STATUS_OK : error_set(err, STATUS_NOTFOUND, "%s: no list \"%s\"", name, member);
}

enum status json_part_parse(struct json_document **out,
                            const struct byte_buffer *text,
                            const struct json_part *part,
                            struct error *err) {
    return json_document_parse(out, "entry", text->data + part->offset, part->size_bytes, err);
}

enum status json_parts_parse_row(struct json_document **out,
                                 struct source_row *row,
                                 const struct byte_buffer *text,
                                 const struct json_parts *images,
                                 size_t i,
                                 struct error *err) {
    struct error why = {0};
    *out = NULL;
    enum status s = json_part_parse(out, text, &images->items[i], &why);
    FAIL_IF(s == STATUS_NOMEM, err, s, "%s", why.text);
    if (s != STATUS_OK) {
        source_row_reject(row, REASON_ROW_BAD,
                          "entry %zu of \"images\", at byte %" PRIu32 ": %.150s", i,
                          images->items[i].offset, why.text);
    }
    return STATUS_OK;
}
