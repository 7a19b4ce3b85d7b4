/*
 * A safetensors file that opens is within its own bounds: every tensor reads, or is refused for a
 * wrong hash. What was read, written again, opens with the same tensors and the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tensors/safetensors.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void put_file(const struct file_system *fs, const uint8_t *data, size_t size_bytes) {
    struct file *f = NULL;
    demand(fs->open(fs->context, &f, "in", FILE_REPLACE, NULL) == STATUS_OK);
    demand(fs->write(f, data, size_bytes, NULL) == STATUS_OK);
    fs->close(f);
}

struct taken {
    const uint8_t *expected;
    size_t size_bytes;
};

static void take(void *cookie, const void *piece, size_t size_bytes) {
    struct taken *t = cookie;
    demand(memcmp(t->expected + t->size_bytes, piece, size_bytes) == 0);
    t->size_bytes += size_bytes;
}

/* NULL when the tensor's hash says that it is damaged. In pieces it is the same. */
static uint8_t *load(const struct safetensors *r, const struct safetensors_info *t) {
    uint8_t *bytes = malloc((size_t)t->size_bytes + 1);
    demand(bytes != NULL);
    enum status s = safetensors_read(r, t, bytes, (size_t)t->size_bytes, NULL);
    demand(s == STATUS_OK || (s == STATUS_CORRUPT && safetensors_has_hashes(r)));
    struct taken taken = {.expected = bytes};
    demand(safetensors_read_pieces(r, t, take, &taken, NULL) == s);
    demand(taken.size_bytes == t->size_bytes);
    if (s != STATUS_OK) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

static bool all_load(const struct safetensors *r) {
    bool good = true;
    for (size_t i = 0; i < safetensors_count(r) && good; i++) {
        uint8_t *bytes = load(r, safetensors_at(r, i));
        good = bytes != NULL;
        free(bytes);
    }
    return good;
}

static void write_again(const struct file_system *fs, const struct safetensors *r) {
    struct safetensors_writer *w = NULL;
    demand(safetensors_writer_create(&w, fs, "out", NULL) == STATUS_OK);
    for (size_t i = 0; i < safetensors_metadata_count(r); i++) {
        const char *key = safetensors_metadata_key(r, i);
        /* The writer is stricter than the public format: no empty key. */
        demand(safetensors_writer_metadata(w, key, safetensors_metadata(r, key), NULL) ==
                   STATUS_OK ||
               key[0] == '\0');
    }
    for (size_t i = 0; i < safetensors_count(r); i++) {
        const struct safetensors_info *t = safetensors_at(r, i);
        demand(safetensors_writer_declare(w, t->name, t->dtype, t->shape, t->dim_count, NULL) ==
               STATUS_OK);
    }
    for (size_t i = 0; i < safetensors_count(r); i++) {
        const struct safetensors_info *t = safetensors_at(r, i);
        uint8_t *bytes = load(r, t);
        demand(safetensors_writer_data(w, bytes, (size_t)t->size_bytes, NULL) == STATUS_OK);
        free(bytes);
    }
    demand(safetensors_writer_finish(w, NULL) == STATUS_OK);
    safetensors_writer_destroy(w);
}

static void compare(const struct safetensors *a, const struct safetensors *b) {
    demand(safetensors_count(a) == safetensors_count(b));
    for (size_t i = 0; i < safetensors_count(a); i++) {
        const struct safetensors_info *x = safetensors_at(a, i);
        const struct safetensors_info *y = safetensors_find(b, x->name);
        demand(y != NULL && x->dtype == y->dtype && x->dim_count == y->dim_count);
        demand(memcmp(x->shape, y->shape, x->dim_count * sizeof x->shape[0]) == 0);
        uint8_t *p = load(a, x);
        uint8_t *q = load(b, y);
        demand(p && q && memcmp(p, q, (size_t)x->size_bytes) == 0);
        free(p);
        free(q);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    put_file(fs, data, size_bytes);
    struct safetensors *r = NULL;
    if (safetensors_open(&r, fs, "in", NULL) == STATUS_OK) {
        if (all_load(r)) {
            write_again(fs, r);
            struct safetensors *again = NULL;
            demand(safetensors_open(&again, fs, "out", NULL) == STATUS_OK);
            compare(r, again);
            safetensors_close(again);
        }
        safetensors_close(r);
    }
    file_memory_destroy(fs);
    return 0;
}
