/*
 * text: converts one caption to one row of token ids: cleaned, encoded, padded. Shared by the
 * loader's decoders and struct texts.
 *
 * Threading : a workspace has one owner; distinct ones are independent.
 * Ownership : rows are the caller's memory.
 * Untrusted : the text may be any bytes.
 */
#ifndef LOADER_TEXT_INTERNAL_H
#define LOADER_TEXT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct dataset;        /* formats/dataset/dataset.h */
struct tokenizer;      /* formats/tokenizer/tokenizer.h */
struct token_cache;    /* formats/tokenizer/token_cache.h */
struct text_workspace; /* opaque: memory for the cleaned form of the longest caption */

enum status text_workspace_create(struct text_workspace **out, struct error *err); /* OK or NOMEM */
void text_workspace_destroy(struct text_workspace *s); /* accepts NULL */

/* Requires size_bytes <= SHARD_MAX_TEXT_BYTES and max_tokens in [2, TOKENIZER_MAX_TOKENS]. Without
 * a tokenizer the row is all zero and its length 0. Returns OK, NOMEM or CORRUPT. */
enum status text_to_row(struct text_workspace *s,
                        int32_t *out_row,
                        int32_t *out_length,
                        const struct tokenizer *tokenizer,
                        const char *text,
                        size_t size_bytes,
                        uint32_t max_tokens,
                        bool clean,
                        struct error *err);

/* Token rows that were computed when the dataset was packed. */
struct text_cache {
    const struct token_cache *cache; /* of the dataset; NULL: none that can be used */
    int32_t begin_id, end_id;        /* begin -1: none */
};

/* Uses the dataset's token cache if its rows equal those of text_to_row. Returns OK, or with *out
 * empty: NOTFOUND (there is no cache), MISMATCH, or what opening it returned. */
enum status text_cache_init(struct text_cache *out,
                            const struct dataset *dataset,
                            const struct tokenizer *tokenizer,
                            bool clean,
                            struct error *why);

/* As text_to_row, for a text id of the dataset itself. Requires a cache. Returns OK or CORRUPT. */
enum status text_cache_row(const struct text_cache *c,
                           int32_t *out_row,
                           int32_t *out_length,
                           const struct tokenizer *tokenizer,
                           uint64_t text_id,
                           uint32_t max_tokens,
                           struct error *err);

#endif
