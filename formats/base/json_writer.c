/*
 * A comma goes before a value exactly when another value stands before it in the same object or
 * array: one flag is enough, since opening clears it and closing sets it.
 */
#include "formats/base/json_writer.h"
#include "formats/base/redact.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/utf8.h"

void json_writer_init(struct json_writer *w, size_t max_bytes) {
    memset(w, 0, sizeof(*w));
    byte_buffer_init(&w->out, max_bytes);
}

void json_writer_fini(struct json_writer *w) {
    byte_buffer_fini(&w->out);
}

void json_writer_reset(struct json_writer *w) {
    w->out.size_bytes = 0;
    w->comma = false;
    w->status = STATUS_OK;
    memset(&w->error, 0, sizeof(w->error));
}

enum status json_writer_status(const struct json_writer *w, struct error *err) {
    if (w->status != STATUS_OK && err != NULL) {
        *err = w->error;
    }
    return w->status;
}

static void put(struct json_writer *w, const char *text, size_t size_bytes) {
    if (w->status == STATUS_OK) {
        w->status = byte_buffer_append(&w->out, text, size_bytes, &w->error);
    }
}

static void put_text(struct json_writer *w, const char *text) {
    put(w, text, strlen(text));
}

/* Copies runs of plain characters at once; characters that JSON requires to be escaped, and those
 * that a terminal obeys, are written one by one. */
static void put_quoted(struct json_writer *w, const char *text, size_t size_bytes) {
    put_text(w, "\"");
    size_t start = 0;
    size_t at = 0;
    while (at < size_bytes) {
        size_t n = 0;
        const uint32_t c = utf8_decode(text + at, size_bytes - at, &n);
        if (c != UTF8_NO_CHARACTER && !utf8_is_control(c) && c != '"' && c != '\\') {
            at += n;
            continue;
        }
        put(w, text + start, at - start);
        char escaped[12];
        if (c == UTF8_NO_CHARACTER) {
            snprintf(escaped, sizeof(escaped), "\xEF\xBF\xBD");
        } else if (c == '"' || c == '\\') {
            snprintf(escaped, sizeof(escaped), "\\%c", (char)c);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            snprintf(escaped, sizeof(escaped), "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        } else {
            snprintf(escaped, sizeof(escaped), "\\u%04x",
                     (unsigned)c & 0xFFFFU); /* none is larger */
        }
        put_text(w, escaped);
        at += n;
        start = at;
    }
    put(w, text + start, at - start);
    put_text(w, "\"");
}

static void before_value(struct json_writer *w, const char *key) {
    if (w->comma) {
        put_text(w, ",");
    }
    w->comma = true;
    if (key != NULL) {
        put_quoted(w, key, strlen(key));
        put_text(w, ":");
    }
}

void json_open_object(struct json_writer *w, const char *key) {
    before_value(w, key);
    put_text(w, "{");
    w->comma = false;
}

void json_close_object(struct json_writer *w) {
    put_text(w, "}");
    w->comma = true;
}

void json_open_array(struct json_writer *w, const char *key) {
    before_value(w, key);
    put_text(w, "[");
    w->comma = false;
}

void json_close_array(struct json_writer *w) {
    put_text(w, "]");
    w->comma = true;
}

void json_string_n(struct json_writer *w, const char *key, const char *text, size_t size_bytes) {
    before_value(w, key);
    put_quoted(w, text, size_bytes);
}

void json_location(struct json_writer *w, const char *key, const char *text) {
    char *shown = text != NULL ? strdup(text) : NULL;
    if (shown != NULL) {
        (void)redact_locations(shown);
    } else if (text != NULL && w->status == STATUS_OK) {
        w->status = error_set(&w->error, STATUS_NOMEM, "out of memory for a location");
    }
    json_string(w, key, shown);
    free(shown);
}

void json_string(struct json_writer *w, const char *key, const char *text) {
    if (text != NULL) {
        json_string_n(w, key, text, strlen(text));
    } else {
        json_null(w, key);
    }
}

void json_raw(struct json_writer *w, const char *key, const char *text, size_t size_bytes) {
    before_value(w, key);
    put(w, text, size_bytes);
}

void json_u64(struct json_writer *w, const char *key, uint64_t v) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, v);
    json_raw(w, key, text, strlen(text));
}

void json_u64s(struct json_writer *w, const char *key, const uint64_t *values, size_t count) {
    json_open_array(w, key);
    for (size_t i = 0; i < count; i++) {
        json_u64(w, NULL, values[i]);
    }
    json_close_array(w);
}

void json_strings(struct json_writer *w, const char *key, const char *const *texts, size_t count) {
    json_open_array(w, key);
    for (size_t i = 0; i < count; i++) {
        json_string(w, NULL, texts[i]);
    }
    json_close_array(w);
}

void json_i64(struct json_writer *w, const char *key, int64_t v) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, v);
    json_raw(w, key, text, strlen(text));
}

void json_bool(struct json_writer *w, const char *key, bool v) {
    before_value(w, key);
    put_text(w, v ? "true" : "false");
}

void json_null(struct json_writer *w, const char *key) {
    before_value(w, key);
    put_text(w, "null");
}

void json_rounded(struct json_writer *w, const char *key, double v) {
    char text[40];
    snprintf(text, sizeof(text), "%.12g", v);
    json_double(w, key, strtod(text, NULL));
}

void json_double(struct json_writer *w, const char *key, double v) {
    if (!isfinite(v)) {
        json_null(w, key);
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (memcmp(&back, &v, sizeof(v)) == 0) {
            break;
        }
    }
    json_raw(w, key, text, strlen(text));
}

void json_hex64(struct json_writer *w, const char *key, uint64_t v) {
    char text[20];
    snprintf(text, sizeof(text), "%016" PRIx64, v);
    json_string(w, key, text);
}

void json_newline(struct json_writer *w) {
    put_text(w, "\n");
    w->comma = false;
}
