/*
 * Writing tokens.cct from the front: rows as they come, while their places are kept in memory (four
 * bytes a caption), then the tables and the trailer.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/tokenizer/token_cache_internal.h"

enum { FLUSH_BYTES = 1 << 20 };

struct token_cache_writer {
    struct file_draft out;
    struct token_cache_key key;
    uint32_t id_bytes;
    uint64_t rows; /* added */
    uint64_t rows_bytes;
    uint64_t token_count;
    struct byte_buffer pending; /* not yet in the file */
    uint64_t *bases;
    uint32_t *places;
    uint8_t row[TOKEN_CACHE_ROW_BYTES + 4 * TOKEN_CACHE_MAX_PIECES];
};

enum status token_cache_writer_create(struct token_cache_writer **out,
                                      const char *path,
                                      const struct file_system *fs,
                                      const struct token_cache_key *key,
                                      struct error *err) {
    REQUIRE(out && path && fs && key && key->vocab_count > 0 && key->vocab_count <= INT32_MAX &&
            key->text_count <= TOKEN_CACHE_MAX_TEXTS);
    *out = NULL;
    struct token_cache_writer *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a token cache");
    w->key = *key;
    w->id_bytes = token_cache_id_bytes(key->vocab_count);
    w->bases = calloc((size_t)token_cache_groups(key->text_count) + 1, sizeof(*w->bases));
    w->places = calloc((size_t)key->text_count + 1, sizeof(*w->places));
    byte_buffer_init(&w->pending, 2 * FLUSH_BYTES);
    enum status s = STATUS_OK;
    if (!w->bases || !w->places) {
        s = error_set(err, STATUS_NOMEM, "out of memory for the places of a token cache");
        goto fail;
    }
    TRY_OR_FAIL(s, file_draft_open(&w->out, fs, path, err));
    *out = w;
    return STATUS_OK;
fail:
    token_cache_writer_destroy(w);
    return s;
}

static enum status flush(struct token_cache_writer *w, size_t least_bytes, struct error *err) {
    if (w->pending.size_bytes > 0 && w->pending.size_bytes >= least_bytes) {
        TRY(w->out.fs->write(w->out.file, w->pending.data, w->pending.size_bytes, err));
        w->pending.size_bytes = 0;
    }
    return STATUS_OK;
}

enum status token_cache_writer_add(struct token_cache_writer *w,
                                   const int32_t *pieces,
                                   uint32_t count,
                                   struct error *err) {
    REQUIRE(w && (pieces || count == 0) && count <= TOKEN_CACHE_MAX_PIECES);
    REQUIRE(w->rows < w->key.text_count);
    uint8_t *row = w->row;
    size_t size = TOKEN_CACHE_ROW_BYTES;
    row[4] = (uint8_t)count;
    row[5] = (uint8_t)(count >> 8);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)pieces[i];
        REQUIRE(id < w->key.vocab_count);
        for (uint32_t b = 0; b < w->id_bytes; b++) {
            row[size++] = (uint8_t)(id >> (8 * b));
        }
    }
    store_u32(row, token_cache_check(row + 4, size - 4, w->rows));
    uint64_t group = w->rows / TOKEN_CACHE_GROUP;
    if (w->rows % TOKEN_CACHE_GROUP == 0) {
        w->bases[group] = w->rows_bytes;
    }
    w->places[w->rows++] = (uint32_t)(w->rows_bytes - w->bases[group]);
    w->rows_bytes += size;
    w->token_count += count;
    TRY(byte_buffer_append(&w->pending, row, size, err));
    return flush(w, FLUSH_BYTES, err);
}

static enum status add_tables(struct token_cache_writer *w, struct error *err) {
    for (uint64_t i = 0; i < token_cache_groups(w->key.text_count); i++) {
        TRY(byte_buffer_u64(&w->pending, w->bases[i], err));
        TRY(flush(w, FLUSH_BYTES, err));
    }
    for (uint64_t i = 0; i < w->key.text_count; i++) {
        TRY(byte_buffer_u32(&w->pending, w->places[i], err));
        TRY(flush(w, FLUSH_BYTES, err));
    }
    return STATUS_OK;
}

static enum status add_trailer(struct token_cache_writer *w, struct error *err) {
    uint8_t t[TOKEN_CACHE_TRAILER_BYTES] = {0};
    memcpy(t, TOKEN_CACHE_MAGIC, 8);
    store_u32(t + 8, TOKEN_CACHE_VERSION);
    t[12] = (uint8_t)w->id_bytes;
    t[14] = w->key.clean ? TOKEN_CACHE_FLAG_CLEAN : 0;
    store_u64(t + 16, w->key.text_count);
    store_u64(t + 24, w->token_count);
    store_u64(t + 32, w->rows_bytes);
    store_u64(t + 40, w->key.fingerprint);
    store_u64(t + 48, w->key.tokenizer_hash);
    store_u32(t + 56, w->key.vocab_count);
    store_u64(t + TOKEN_CACHE_HASHED_BYTES, hash64(t, TOKEN_CACHE_HASHED_BYTES));
    TRY(byte_buffer_append(&w->pending, t, sizeof(t), err));
    return flush(w, 1, err);
}

enum status token_cache_writer_finish(struct token_cache_writer *w, struct error *err) {
    REQUIRE(w && w->out.file && w->rows == w->key.text_count);
    TRY(add_tables(w, err));
    TRY(add_trailer(w, err));
    return file_draft_close(&w->out, STATUS_OK, err);
}

void token_cache_writer_destroy(struct token_cache_writer *w) {
    if (w) {
        file_draft_close(&w->out, STATUS_INTERRUPTED, NULL);
        byte_buffer_fini(&w->pending);
        free(w->bases);
        free(w->places);
        free(w);
    }
}
