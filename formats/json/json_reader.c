/*
 * A small read-only interface to jansson, and the only file that includes it. A struct json_value
 * is the library's json_t under another name, never dereferenced here.
 *
 * jansson's integers are signed 64-bit, so json_value_u64 ends at 2^63 - 1.
 */
#include "formats/json/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"

#include <jansson.h>

struct json_document {
    json_t *root;
};

static const struct json_value *from_jansson(const json_t *v) {
    return (const struct json_value *)v;
}

static const json_t *to_jansson(const struct json_value *v) {
    return (const json_t *)v;
}

/* LEAST_BYTES: fewer cannot need SMALL_BYTES, at 80 a byte. */
enum { SMALL_BYTES = 64 << 20, MOST_PER_BYTE = 10, LEAST_BYTES = SMALL_BYTES / 128 };

/* What the library needs for the values of a text, from what it was measured to need for each. */
static size_t estimate_bytes(const uint8_t *text, size_t size_bytes) {
    enum { OBJECT = 240, ARRAY = 112, VALUE = 48, MEMBER = 80 };
    size_t sum = 0;
    bool quoted = false;
    for (size_t i = 0; i < size_bytes; i++) {
        const uint8_t c = text[i];
        if (quoted) {
            i += c == '\\' ? 1 : 0;
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        sum += c == '{' ? OBJECT : c == '[' ? ARRAY : c == ',' ? VALUE : c == ':' ? MEMBER : 0;
    }
    return sum;
}

enum status json_document_parse(struct json_document **out,
                                const char *name,
                                const void *text,
                                size_t size_bytes,
                                struct error *err) {
    REQUIRE(out && name && (text || size_bytes == 0));
    *out = NULL;
    struct json_document *d = calloc(1, sizeof *d);
    TRY_MEMORY(d, err, "%s: out of memory", name);
    json_error_t why;
    const size_t needed = size_bytes > LEAST_BYTES ? estimate_bytes(text, size_bytes) : 0;
    if (needed > SMALL_BYTES && needed / MOST_PER_BYTE > size_bytes) {
        json_document_destroy(d);
        return error_set(
            err, STATUS_LIMIT,
            "%s: %zu bytes of JSON hold so many values that they need about %zu MiB of "
            "memory; the limit is %d times the text's size",
            name, size_bytes, needed >> 20, MOST_PER_BYTE);
    }
    d->root = json_loadb(size_bytes ? text : "", size_bytes,
                         JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!d->root) {
        enum status s =
            json_error_code(&why) == json_error_out_of_memory ? STATUS_NOMEM : STATUS_CORRUPT;
        json_document_destroy(d);
        return error_set(err, s, "%s: bad JSON at line %d, column %d: %s", name, why.line,
                         why.column, why.text);
    }
    *out = d;
    return STATUS_OK;
}

void json_document_destroy(struct json_document *d) {
    if (d) {
        json_decref(d->root);
        free(d);
    }
}

const struct json_value *json_document_root(const struct json_document *d) {
    return d ? from_jansson(d->root) : NULL;
}

bool json_value_is_object(const struct json_value *v) {
    return json_is_object(to_jansson(v));
}

bool json_value_is_array(const struct json_value *v) {
    return json_is_array(to_jansson(v));
}

size_t json_value_count(const struct json_value *v) {
    const json_t *j = to_jansson(v);
    return json_is_object(j) ? json_object_size(j) : json_array_size(j);
}

const struct json_value *json_value_get(const struct json_value *v, const char *key) {
    return from_jansson(json_object_get(to_jansson(v), key));
}

const struct json_value *json_value_at(const struct json_value *v, size_t index) {
    return from_jansson(json_array_get(to_jansson(v), index));
}

bool json_value_next_member(const struct json_value *v,
                            void **position,
                            const char **key,
                            const struct json_value **value) {
    /* The iterator calls want a mutable object, though they change nothing. */
    json_t *object = (json_t *)(uintptr_t)to_jansson(v);
    *position = *position ? json_object_iter_next(object, *position) : json_object_iter(object);
    if (!*position) {
        return false;
    }
    *key = json_object_iter_key(*position);
    *value = from_jansson(json_object_iter_value(*position));
    return true;
}

const char *json_value_string(const struct json_value *v, size_t *size_bytes) {
    const json_t *j = to_jansson(v);
    if (!json_is_string(j)) {
        return NULL;
    }
    if (size_bytes) {
        *size_bytes = json_string_length(j);
    }
    return json_string_value(j);
}

bool json_value_i64(const struct json_value *v, int64_t *out) {
    const json_t *j = to_jansson(v);
    if (!json_is_integer(j)) {
        return false;
    }
    *out = json_integer_value(j);
    return true;
}

bool json_value_u64(const struct json_value *v, uint64_t *out) {
    int64_t i = 0;
    if (!json_value_i64(v, &i) || i < 0) {
        return false;
    }
    *out = (uint64_t)i;
    return true;
}

bool json_value_u32(const struct json_value *v, uint32_t *out) {
    uint64_t wide = 0;
    return json_value_u64(v, &wide) && checked_u32(wide, out);
}

bool json_value_hex64(const struct json_value *v, uint64_t *out) {
    size_t size = 0;
    const char *text = json_value_string(v, &size);
    if (!text || size != 16 || strspn(text, "0123456789abcdef") != size) {
        return false;
    }
    *out = strtoull(text, NULL, 16);
    return true;
}

bool json_value_double(const struct json_value *v, double *out) {
    const json_t *j = to_jansson(v);
    if (!json_is_number(j)) {
        return false;
    }
    *out = json_number_value(j);
    return true;
}

bool json_value_bool(const struct json_value *v, bool *out) {
    const json_t *j = to_jansson(v);
    if (!json_is_boolean(j)) {
        return false;
    }
    *out = json_is_true(j);
    return true;
}

char *json_value_text(const struct json_value *v) {
    return v != NULL ? json_dumps(to_jansson(v), JSON_COMPACT | JSON_ENCODE_ANY) : strdup("null");
}
