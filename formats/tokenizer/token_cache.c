/*
 * tokens.cct:
 *
 *     rows | u64 base of each 65,536 texts | u32 place of each text | trailer
 *
 * base + place leads to a row. A damaged table leads to a wrong row, whose check does not know the
 * text id; so tables need no checks of their own, and opening reads the trailer alone. A writer
 * writes from the front: rows as they come, while their places are kept in memory (four bytes a
 * caption), then the tables and the trailer.
 */
#include "formats/tokenizer/token_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_map.h"
#include "formats/base/hash.h"

#define TOKEN_CACHE_MAGIC "CCTOKENS"

enum {
    TOKEN_CACHE_GROUP = 1 << 16, /* texts that share a base */
    TOKEN_CACHE_TRAILER_BYTES = 128,
    TOKEN_CACHE_HASHED_BYTES = 120, /* of the trailer */
    TOKEN_CACHE_ROW_BYTES = 6,      /* of a row before its ids: check u32, count u16 */
    TOKEN_CACHE_FLAG_CLEAN = 1,
};

#define TOKEN_CACHE_MAX_TEXTS ((uint64_t)1 << 40)

/* Two bytes an id where all ids fit. */
static uint32_t token_cache_id_bytes(uint32_t vocab_count) {
    return vocab_count <= 1 << 16 ? 2 : 4;
}

static uint64_t token_cache_groups(uint64_t text_count) {
    return (text_count + TOKEN_CACHE_GROUP - 1) / TOKEN_CACHE_GROUP;
}

struct token_cache {
    char *path;
    struct file_map file;
    uint64_t rows_bytes;
    const uint8_t *bases;
    const uint8_t *places;
    uint32_t id_bytes;
    struct token_cache_key key;
};

/* The check of a row: over what follows it, and tied to the text it belongs to. */
static uint32_t token_cache_check(const void *count_and_ids, size_t size_bytes, uint64_t text_id) {
    return (uint32_t)hash64(count_and_ids, size_bytes) ^ (uint32_t)text_id;
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static bool is_zero(const uint8_t *p, size_t size_bytes) {
    while (size_bytes > 0 && *p == 0) {
        p++;
        size_bytes--;
    }
    return size_bytes == 0;
}

static enum status parse_trailer(struct token_cache *c, struct error *err) {
    FAIL_IF(c->file.size_bytes < TOKEN_CACHE_TRAILER_BYTES, err, STATUS_CORRUPT,
            "%s: is not a token cache", c->path);
    const uint8_t *t = c->file.bytes + (c->file.size_bytes - TOKEN_CACHE_TRAILER_BYTES);
    struct cursor at;
    cursor_init(&at, t, TOKEN_CACHE_TRAILER_BYTES);
    const uint8_t *magic = cursor_take(&at, 8);
    uint32_t version = cursor_u32(&at);
    c->id_bytes = cursor_u16(&at);
    uint32_t flags = cursor_u16(&at);
    c->key.text_count = cursor_u64(&at);
    (void)cursor_u64(&at); /* token_count, which no reader needs */
    c->rows_bytes = cursor_u64(&at);
    c->key.fingerprint = cursor_u64(&at);
    c->key.tokenizer_hash = cursor_u64(&at);
    c->key.vocab_count = cursor_u32(&at);
    c->key.clean = flags & TOKEN_CACHE_FLAG_CLEAN;
    FAIL_IF(memcmp(magic, TOKEN_CACHE_MAGIC, 8) != 0, err, STATUS_CORRUPT,
            "%s: is not a token cache, or is truncated", c->path);
    FAIL_IF(version != TOKEN_CACHE_VERSION, err, STATUS_VERSION,
            "%s: version %u, this program reads version %d", c->path, version, TOKEN_CACHE_VERSION);
    FAIL_IF(hash64(t, TOKEN_CACHE_HASHED_BYTES) != load_u64(t + TOKEN_CACHE_HASHED_BYTES), err,
            STATUS_CORRUPT, "%s: the trailer fails its check", c->path);
    uint64_t left = c->file.size_bytes - TOKEN_CACHE_TRAILER_BYTES;
    uint64_t texts = c->key.text_count;
    FAIL_IF((flags & ~(uint32_t)TOKEN_CACHE_FLAG_CLEAN) != 0 || texts > TOKEN_CACHE_MAX_TEXTS ||
                c->key.vocab_count == 0 || c->key.vocab_count > INT32_MAX ||
                c->id_bytes != token_cache_id_bytes(c->key.vocab_count) || c->rows_bytes > left ||
                left - c->rows_bytes != 8 * token_cache_groups(texts) + 4 * texts ||
                !is_zero(t + 60, TOKEN_CACHE_HASHED_BYTES - 60),
            err, STATUS_CORRUPT, "%s: the trailer contradicts the file", c->path);
    c->bases = c->file.bytes + c->rows_bytes;
    c->places = c->bases + 8 * token_cache_groups(texts);
    return STATUS_OK;
}

enum status token_cache_open(struct token_cache **out,
                             const char *path,
                             const struct file_system *fs,
                             struct error *err) {
    REQUIRE(out && path);
    *out = NULL;
    struct token_cache *c = calloc(1, sizeof(*c));
    if (c) {
        c->path = strdup(path);
    }
    if (!c || !c->path) {
        token_cache_close(c);
        return error_set(err, STATUS_NOMEM, "out of memory for the token cache");
    }
    enum status s = file_map_open(&c->file, fs ? fs : file_system_of(path), path, err);
    THEN(s, parse_trailer(c, err));
    RETURN_CREATED(s, out, c, token_cache_close);
}

void token_cache_close(struct token_cache *c) {
    if (c) {
        file_map_close(&c->file);
        free(c->path);
        free(c);
    }
}

/* ---- use ---------------------------------------------------------------------------------------
 */

const struct token_cache_key *token_cache_key(const struct token_cache *c) {
    return &c->key;
}

enum status token_cache_fits(const struct token_cache *c,
                             const struct token_cache_key *wanted,
                             struct error *err) {
    REQUIRE(c && wanted);
    const struct token_cache_key *k = &c->key;
    FAIL_IF(k->fingerprint != wanted->fingerprint || k->text_count != wanted->text_count, err,
            STATUS_MISMATCH, "%s: made for dataset %016" PRIx64 ", which is now %016" PRIx64,
            c->path, k->fingerprint, wanted->fingerprint);
    FAIL_IF(k->tokenizer_hash != wanted->tokenizer_hash || k->vocab_count != wanted->vocab_count,
            err, STATUS_MISMATCH, "%s: made with tokenizer %016" PRIx64 ", in use is %016" PRIx64,
            c->path, k->tokenizer_hash, wanted->tokenizer_hash);
    FAIL_IF(k->clean != wanted->clean, err, STATUS_MISMATCH,
            "%s: made %s the cleaning of captions, in use is %s", c->path,
            k->clean ? "with" : "without", k->clean ? "none" : "one");
    return STATUS_OK;
}

/* The row of a text: its ids, when it lies inside the file, is the text's own, and unchanged. */
static const uint8_t *find_row(const struct token_cache *c, uint64_t text_id, uint32_t *count) {
    uint64_t base = load_u64(c->bases + text_id / TOKEN_CACHE_GROUP * 8);
    uint64_t place = load_u32(c->places + text_id * 4);
    if (base > c->rows_bytes || place > c->rows_bytes - base ||
        c->rows_bytes - base - place < TOKEN_CACHE_ROW_BYTES) {
        return NULL;
    }
    const uint8_t *row = c->file.bytes + base + place;
    uint64_t room = c->rows_bytes - base - place - TOKEN_CACHE_ROW_BYTES;
    *count = (uint32_t)row[4] | (uint32_t)row[5] << 8;
    size_t ids_bytes = (size_t)*count * c->id_bytes;
    if (*count > TOKEN_CACHE_MAX_PIECES || ids_bytes > room ||
        token_cache_check(row + 4, 2 + ids_bytes, text_id) != load_u32(row)) {
        return NULL;
    }
    return row + TOKEN_CACHE_ROW_BYTES;
}

enum status token_cache_get(const struct token_cache *c,
                            int32_t *out_pieces,
                            uint32_t *out_count,
                            uint64_t text_id,
                            uint32_t max_pieces,
                            struct error *err) {
    REQUIRE(c && (out_pieces || max_pieces == 0) && out_count && text_id < c->key.text_count);
    uint32_t count = 0;
    *out_count = 0;
    const uint8_t *ids = find_row(c, text_id, &count);
    bool known = ids != NULL;
    count = count < max_pieces ? count : max_pieces;
    for (uint32_t i = 0; known && i < count; i++) {
        uint32_t id = c->id_bytes == 2 ? (uint32_t)ids[2 * i] | (uint32_t)ids[2 * i + 1] << 8
                                       : load_u32(ids + 4 * (size_t)i);
        known = id < c->key.vocab_count;
        out_pieces[i] = (int32_t)id;
    }
    FAIL_IF(!known, err, STATUS_CORRUPT,
            "%s: the row of text %" PRIu64
            " is damaged; remove the file, or rebuild it with 'ccpack tokenizer --cache'",
            c->path, text_id);
    *out_count = count;
    return STATUS_OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

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
        s = error_set(err, STATUS_NOMEM, "out of memory for the positions of a token cache");
        goto fail;
    }
    TRY_OR_FAIL(s, file_draft_open(&w->out, fs, path, err));
fail:
    RETURN_CREATED(s, out, w, token_cache_writer_destroy);
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
