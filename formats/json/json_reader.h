/*
 * json_reader: parses JSON text into a read-only tree. Only json_reader.c includes the JSON
 * library.
 *
 * Threading : a document is immutable once parsed; any thread may read it.
 * Ownership : the document owns its values and strings until json_document_destroy; a
 *             struct json_value is a borrowed place in it.
 * Untrusted : the text. Duplicate keys, NUL inside strings, wrong UTF-8, nesting beyond 2048 and
 *             anything after the value are refused. Memory is at most 10 times the text's size, or
 *             64 MiB for a shorter one: the caller bounds the size.
 */
#ifndef FORMATS_JSON_JSON_READER_H
#define FORMATS_JSON_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct json_document;
struct json_value;

/* `name` is for the message: the file that the text is from. Returns OK, NOMEM, CORRUPT (with
 * line and column) or LIMIT (it would need more memory). */
enum status json_document_parse(struct json_document **out,
                                const char *name,
                                const void *text,
                                size_t size_bytes,
                                struct error *err);
void json_document_destroy(struct json_document *d); /* accepts NULL */

/* Recognises plain JSON that json_document_parse accepts, several times faster and without memory.
 * False: not known, the text must be parsed. */
bool json_text_is_plain(const void *text, size_t size_bytes);
const struct json_value *json_document_root(const struct json_document *d); /* accepts NULL */

/* All accept NULL for a missing value, so that a chain of lookups needs one check at its end. */
bool json_value_is_object(const struct json_value *v);
bool json_value_is_array(const struct json_value *v);

/* Members of an object or elements of an array; 0 for everything else. */
size_t json_value_count(const struct json_value *v);

/* The value of field `key` of an object; NULL if there is none or v is not an object. */
const struct json_value *json_value_get(const struct json_value *v, const char *key);

/* Element `index` of an array; NULL outside it or when v is no array. */
const struct json_value *json_value_at(const struct json_value *v, size_t index);

/* Iterates over the fields of an object in the order of the text, from *position NULL; false at the
 * end.
 */
bool json_value_next_member(const struct json_value *v,
                            void **position,
                            const char **key,
                            const struct json_value **value);

/* The string, which ends with a NUL, and its size; size_bytes may be NULL. NULL: v is no string. */
const char *json_value_string(const struct json_value *v, size_t *size_bytes);

/* False, with *out unchanged, if v is not of this kind: an integer in range, or any number. */
bool json_value_u64(const struct json_value *v, uint64_t *out);
bool json_value_u32(const struct json_value *v, uint32_t *out);
bool json_value_i64(const struct json_value *v, int64_t *out);
bool json_value_double(const struct json_value *v, double *out);
bool json_value_bool(const struct json_value *v, bool *out);

/* Sixteen lower-case hexadecimal digits, as json_hex64 writes them; false, with *out unchanged, if
 * v is anything else. */
bool json_value_hex64(const struct json_value *v, uint64_t *out);

/* The value as compact JSON, "null" for NULL; the caller frees it. NULL: out of memory. */
char *json_value_text(const struct json_value *v);

#endif
