/*
 * json_writer: JSON text, written value by value into memory; one line, no spaces.
 *
 * Threading : single-owner.
 * Ownership : the writer owns its buffer from init to fini; text given to it is copied.
 * Untrusted : strings. Bytes that are not UTF-8 become U+FFFD, so that the output always parses.
 *
 * Errors are sticky: check json_writer_status once, at the end. `key` is NULL inside an array and
 * at the top, a name inside an object.
 *
 *     struct json_writer w;
 *     json_writer_init(&w, 0);
 *     json_open_object(&w, NULL);
 *     json_u64(&w, "samples", 3600);
 *     json_close_object(&w);                  {"samples":3600}
 */
#ifndef FORMATS_BASE_JSON_WRITER_H
#define FORMATS_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/status.h"

struct json_writer {
    struct byte_buffer out; /* the text so far; not NUL-terminated */
    bool comma;             /* the next value needs one before it */
    enum status status;
    struct error error;
};

/* max_bytes 0 means byte_buffer's own limit. */
void json_writer_init(struct json_writer *w, size_t max_bytes);
void json_writer_fini(struct json_writer *w);

/* Empties the buffer and forgets an error; keeps the memory. */
void json_writer_reset(struct json_writer *w);

/* OK, NOMEM or LIMIT: the first failure since init or reset. */
enum status json_writer_status(const struct json_writer *w, struct error *err);

void json_open_object(struct json_writer *w, const char *key);
void json_close_object(struct json_writer *w);
void json_open_array(struct json_writer *w, const char *key);
void json_close_array(struct json_writer *w);

/* text NULL: null. */
void json_string(struct json_writer *w, const char *key, const char *text);
/* A text that may be or hold a location, without its secrets (redact.h). */
void json_location(struct json_writer *w, const char *key, const char *text);
void json_string_n(struct json_writer *w, const char *key, const char *text, size_t size_bytes);
void json_u64(struct json_writer *w, const char *key, uint64_t v);
void json_i64(struct json_writer *w, const char *key, int64_t v);
void json_bool(struct json_writer *w, const char *key, bool v);
void json_null(struct json_writer *w, const char *key);

/* Arrays. */
void json_u64s(struct json_writer *w, const char *key, const uint64_t *values, size_t count);
void json_strings(struct json_writer *w, const char *key, const char *const *texts, size_t count);

/* The shortest decimal that reads back as the same double; null for NaN and infinity. */
void json_double(struct json_writer *w, const char *key, double v);

/* The same for computed numbers such as percentages: rounded to 12 digits. */
void json_rounded(struct json_writer *w, const char *key, double v);

/* A u64 as 16 hexadecimal digits in quotes, for fingerprints and hashes. */
void json_hex64(struct json_writer *w, const char *key, uint64_t v);

/* Text that is JSON already. */
void json_raw(struct json_writer *w, const char *key, const char *text, size_t size_bytes);

/* A line feed between values of a JSON-lines file. */
void json_newline(struct json_writer *w);

#endif
