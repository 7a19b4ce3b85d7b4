/*
 * token_cache_internal: the layout of tokens.cct, for its reader and its writer.
 */
#ifndef FORMATS_TOKENIZER_TOKEN_CACHE_INTERNAL_H
#define FORMATS_TOKENIZER_TOKEN_CACHE_INTERNAL_H

#include "formats/tokenizer/token_cache.h"

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
static inline uint32_t token_cache_id_bytes(uint32_t vocab_count) {
    return vocab_count <= 1 << 16 ? 2 : 4;
}

static inline uint64_t token_cache_groups(uint64_t text_count) {
    return (text_count + TOKEN_CACHE_GROUP - 1) / TOKEN_CACHE_GROUP;
}

/* The check of a row: over what follows it, and tied to the text it belongs to. */
uint32_t token_cache_check(const void *count_and_ids, size_t size_bytes, uint64_t text_id);

#endif
