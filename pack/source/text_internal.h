/*
 * source_text: how sources read text: a file of any size from front to back in blocks, and the
 * places where the values of a JSON text begin and end, which are found by brackets and quotes
 * alone, so a value that cannot be parsed does not spoil the others.
 *
 * Threading : single-owner.
 * Ownership : a struct source_blocks owns its file and block until source_blocks_close.
 * Untrusted : the text; of JSON that is read whole at most SOURCE_MAX_WHOLE_BYTES.
 */
#ifndef PACK_SOURCE_TEXT_INTERNAL_H
#define PACK_SOURCE_TEXT_INTERNAL_H

#include "formats/base/file_io.h"
#include "pack/source/source_internal.h"

struct source_blocks {
    struct file *file;
    uint8_t *block; /* the last `got` bytes read, from `offset` in the file */
    size_t got, at; /* at: the next byte to take */
    uint64_t offset;
    uint64_t size_bytes; /* of the file */
};

/* Opens the file and skips a byte order mark. Returns OK, NOTFOUND, IO or NOMEM. */
enum status source_blocks_open(struct source_blocks *b, const char *path, struct error *err);
void source_blocks_close(struct source_blocks *b); /* accepts a zeroed one */

/* Returns to the start, after a byte order mark. Returns OK or IO. */
enum status source_blocks_rewind(struct source_blocks *b, struct error *err);

/* Reads the next block if all bytes are taken, so that block[at] is valid. Returns OK, END or IO.
 */
enum status source_blocks_fill(struct source_blocks *b, struct error *err);

/* Moves to a byte that was taken before. */
void source_blocks_seek(struct source_blocks *b, uint64_t offset);

/* Bytes taken so far. */
uint64_t source_blocks_position(const struct source_blocks *b);

/* ---- JSON ---- */

/* The state after the bytes of a value so far. */
struct json_scan {
    uint64_t depth;
    bool in_string, escaped;
    bool scalar; /* no string, object or list: ends before a delimiter */
};

/* The state before a value that begins with this byte. */
struct json_scan json_scan_begin(uint8_t first);

/* How many of the bytes belong to the value; *ended: it is complete. */
size_t json_scan_bytes(struct json_scan *s, const uint8_t *p, size_t n, bool *ended);

/* A value's place in its text. */
struct json_part {
    uint32_t offset, size_bytes;
};

/* The elements of a list. Zero-initialise. */
struct json_parts {
    struct json_part *items;
    size_t count;
};

void json_parts_fini(struct json_parts *p);

/* Finds the elements of the list `member` of the object in `text`, after a byte order mark. Returns
 * OK; NOTFOUND (no object, or no such list in it); CORRUPT (the syntax between values is wrong, or
 * the member is repeated); or NOMEM. `name` is for messages. */
enum status json_parts_find(struct json_parts *out,
                            const char *name,
                            const struct byte_buffer *text,
                            const char *member,
                            struct error *err);

/* Parses one of them. Returns OK, NOMEM or CORRUPT. */
enum status json_part_parse(struct json_document **out,
                            const struct byte_buffer *text,
                            const struct json_part *part,
                            struct error *err);

/* Parses element i of the list "images". One that is not valid JSON rejects the row, and *out is
 * NULL. Returns OK or NOMEM. */
enum status json_parts_parse_row(struct json_document **out,
                                 struct source_row *row,
                                 const struct byte_buffer *text,
                                 const struct json_parts *images,
                                 size_t i,
                                 struct error *err);

#endif
