/*
 * tokens.cct of any bytes, with the trailer's check recomputed so that the parser after it is
 * reached. The file is refused, or each row is read or refused. If all rows can be read, they are
 * written again and read back the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/tokenizer/token_cache.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { TRAILER_BYTES = 128, HASHED_BYTES = 120, MAX_BYTES = 1 << 16 };

static int32_t first[TOKEN_CACHE_MAX_PIECES];
static int32_t second[TOKEN_CACHE_MAX_PIECES];

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_copy(const struct token_cache *c, struct file_system *fs) {
    const struct token_cache_key *key = token_cache_key(c);
    struct token_cache_writer *w = NULL;
    struct token_cache *copy = NULL;
    uint32_t n = 0;
    uint32_t m = 0;
    demand(token_cache_writer_create(&w, "./copy", fs, key, NULL) == STATUS_OK);
    for (uint64_t t = 0; t < key->text_count; t++) {
        demand(token_cache_get(c, first, &n, t, TOKEN_CACHE_MAX_PIECES, NULL) == STATUS_OK);
        demand(token_cache_writer_add(w, first, n, NULL) == STATUS_OK);
    }
    demand(token_cache_writer_finish(w, NULL) == STATUS_OK);
    token_cache_writer_destroy(w);
    demand(token_cache_open(&copy, "./copy", fs, NULL) == STATUS_OK);
    demand(token_cache_fits(copy, key, NULL) == STATUS_OK);
    for (uint64_t t = 0; t < key->text_count; t++) {
        demand(token_cache_get(c, first, &n, t, TOKEN_CACHE_MAX_PIECES, NULL) == STATUS_OK);
        demand(token_cache_get(copy, second, &m, t, TOKEN_CACHE_MAX_PIECES, NULL) == STATUS_OK);
        demand(n == m && memcmp(first, second, n * sizeof(first[0])) == 0);
    }
    token_cache_close(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static uint8_t bytes[MAX_BYTES];
    struct file_system *fs = NULL;
    struct token_cache *c = NULL;
    if (size_bytes > MAX_BYTES) {
        return 0;
    }
    memcpy(bytes, data, size_bytes);
    if (size_bytes >= TRAILER_BYTES) {
        uint8_t *t = bytes + size_bytes - TRAILER_BYTES;
        store_u64(t + HASHED_BYTES, hash64(t, HASHED_BYTES));
    }
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(file_write_atomic(fs, "./x", bytes, size_bytes, NULL) == STATUS_OK);
    if (token_cache_open(&c, "./x", fs, NULL) == STATUS_OK) {
        uint64_t bad = 0;
        for (uint64_t t = 0; t < token_cache_key(c)->text_count; t++) {
            uint32_t n = 0;
            enum status s = token_cache_get(c, first, &n, t, TOKEN_CACHE_MAX_PIECES, NULL);
            demand(s == STATUS_OK || (s == STATUS_CORRUPT && n == 0));
            bad += s != STATUS_OK;
        }
        if (bad == 0) {
            check_copy(c, fs);
        }
        token_cache_close(c);
    }
    file_memory_destroy(fs);
    return 0;
}
