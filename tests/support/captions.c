#include "tests/support/captions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/json/json_reader.h"
#include "formats/tokenizer/tokenizer.h"
#include "tests/support/tar.h"
#include "tests/support/test.h"

struct walk {
    void (*each)(void *cookie, const char *text, size_t size_bytes);
    void *cookie;
    uint64_t count;
};

static void give(struct walk *w, const char *text, size_t size_bytes) {
    w->each(w->cookie, text, size_bytes);
    w->count++;
}

/* Strings of "captions", and "caption" of each of "annotations". */
static void walk_json(struct walk *w, const char *name, const void *text, size_t size_bytes) {
    struct error err;
    struct json_document *d = NULL;
    assert_ok(json_document_parse(&d, name, text, size_bytes, &err), err);
    const struct json_value *root = json_document_root(d);
    const struct json_value *strings = json_value_get(root, "captions");
    const struct json_value *objects = json_value_get(root, "annotations");
    size_t n = 0;
    for (size_t i = 0; i < json_value_count(strings); i++) {
        const char *caption = json_value_string(json_value_at(strings, i), &n);
        assert_non_null(caption);
        give(w, caption, n);
    }
    for (size_t i = 0; i < json_value_count(objects); i++) {
        const char *caption =
            json_value_string(json_value_get(json_value_at(objects, i), "caption"), &n);
        assert_non_null(caption);
        give(w, caption, n);
    }
    json_document_destroy(d);
}

static void walk_tar(struct walk *w, const void *data, size_t size_bytes) {
    struct test_tar tar;
    struct test_tar_file f;
    test_tar_init(&tar, data, size_bytes);
    while (test_tar_next(&tar, &f)) {
        if (test_tar_ends(f.name, ".json")) {
            walk_json(w, f.name, f.data, f.size_bytes);
        }
    }
}

static void walk_table(struct walk *w, const char *text, size_t size_bytes) {
    const char *end = text + size_bytes;
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        line_end = line_end ? line_end : end;
        const char *tab = memchr(text, '\t', (size_t)(line_end - text));
        if (line_end > text) {
            give(w, text, (size_t)((tab ? tab : line_end) - text));
        }
        text = line_end + 1;
    }
}

uint64_t test_captions(const char *name,
                       void (*each)(void *cookie, const char *text, size_t size_bytes),
                       void *cookie) {
    struct walk w = {each, cookie, 0};
    size_t size_bytes = 0;
    uint8_t *data = test_read_file(test_data_path(name), &size_bytes);
    if (test_tar_ends(name, ".tar")) {
        walk_tar(&w, data, size_bytes);
    } else if (test_tar_ends(name, ".json")) {
        walk_json(&w, name, data, size_bytes);
    } else {
        walk_table(&w, (const char *)data, size_bytes);
    }
    free(data);
    return w.count;
}

struct row_hash {
    const struct tokenizer *tokenizer;
    struct hasher *hasher;
};

static void hash_row(void *cookie, const char *text, size_t size_bytes) {
    struct row_hash *h = cookie;
    struct error err = {0};
    const struct tokenizer_text one = {text, size_bytes};
    int32_t row[30];
    int32_t length = 0;
    assert_ok(tokenizer_encode_rows(h->tokenizer, row, &length, &one, 1, 30, &err), err);
    hasher_update(h->hasher, row, sizeof(row));
}

void test_caption_rows(const struct tokenizer *t, const char *golden) {
    struct row_hash h = {t, NULL};
    struct error err = {0};
    size_t size = 0;
    char *lines = (char *)test_read_file(test_source_path(golden), &size);
    int files = 0;
    assert_ok(hasher_create(&h.hasher, &err), err);
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[64];
        uint64_t count, hash;
        assert_int_equal(sscanf(line, "%63s %" SCNu64 " %" SCNx64, name, &count, &hash), 3);
        if (strcmp(name, "code_points") != 0) {
            hasher_reset(h.hasher);
            assert_int_equal(test_captions(name, hash_row, &h), count);
            assert_true(hasher_value(h.hasher) == hash);
            files++;
        }
    }
    assert_int_equal(files, 9);
    hasher_destroy(h.hasher);
    free(lines);
}
