/*
 * JSON reader against JSON writer: a text that the reader accepts, written value by value, is
 * accepted again, and writing that again gives the same bytes. The reader accepts every text that
 * json_text_is_plain accepts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/json_writer.h"
#include "formats/json/json_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void copy_value(struct json_writer *w, const char *key, const struct json_value *v) {
    size_t size_bytes = 0;
    const char *text = json_value_string(v, &size_bytes);
    int64_t integer = 0;
    double real = 0;
    bool truth = false;
    if (text) {
        json_string_n(w, key, text, size_bytes);
    } else if (json_value_is_object(v)) {
        json_open_object(w, key);
        void *position = NULL;
        const char *name = NULL;
        const struct json_value *member = NULL;
        while (json_value_next_member(v, &position, &name, &member)) {
            copy_value(w, name, member);
        }
        json_close_object(w);
    } else if (json_value_is_array(v)) {
        json_open_array(w, key);
        for (size_t i = 0; i < json_value_count(v); i++) {
            copy_value(w, NULL, json_value_at(v, i));
        }
        json_close_array(w);
    } else if (json_value_i64(v, &integer)) {
        json_i64(w, key, integer);
    } else if (json_value_double(v, &real)) {
        json_double(w, key, real);
    } else if (json_value_bool(v, &truth)) {
        json_bool(w, key, truth);
    } else {
        json_null(w, key);
    }
}

/* Parses `text` into `w`; false when the reader refuses it. */
static bool rewrite(struct json_writer *w, const void *text, size_t size_bytes) {
    struct json_document *d = NULL;
    struct error err;
    json_writer_init(w, 0);
    if (json_document_parse(&d, "fuzz", text, size_bytes, &err) != STATUS_OK) {
        return false;
    }
    copy_value(w, NULL, json_document_root(d));
    json_document_destroy(d);
    return json_writer_status(w, &err) == STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct json_writer once;
    struct json_writer twice;
    struct json_writer thrice;
    bool parses = rewrite(&once, data, size_bytes);
    if (json_text_is_plain(data, size_bytes) && !parses) {
        abort();
    }
    if (parses) {
        /* Once is not enough: -0.0 becomes the integer 0 only when it is read as "-0". */
        if (!rewrite(&twice, once.out.data, once.out.size_bytes) ||
            !rewrite(&thrice, twice.out.data, twice.out.size_bytes) ||
            twice.out.size_bytes != thrice.out.size_bytes ||
            memcmp(twice.out.data, thrice.out.data, twice.out.size_bytes) != 0) {
            abort();
        }
        json_writer_fini(&twice);
        json_writer_fini(&thrice);
    }
    json_writer_fini(&once);
    return 0;
}
