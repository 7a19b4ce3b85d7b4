/*
 * json_parts: where the values of a JSON text begin and end, found by brackets and quotes alone. So
 * a value that cannot be parsed does not spoil the others.
 *
 * Threading : single-owner.
 * Untrusted : the text, at most SOURCE_MAX_WHOLE_BYTES of it.
 */
#ifndef PACK_SOURCE_JSON_PARTS_INTERNAL_H
#define PACK_SOURCE_JSON_PARTS_INTERNAL_H

#include "formats/base/bytes.h"
#include "formats/json/json_reader.h"

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

#endif
