/*
 * text: the only conversion of a caption to a row of tokens, so that training, evaluation and
 * prompts treat text alike.
 */
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard.h"
#include "formats/tokenizer/token_cache.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/text_internal.h"

struct text_workspace {
    char clean[CAPTION_CLEAN_BOUND_BYTES(SHARD_MAX_TEXT_BYTES)];
};

enum status text_workspace_create(struct text_workspace **out, struct error *err) {
    *out = malloc(sizeof(**out));
    TRY_MEMORY(*out != NULL, err, "out of memory for captions");
    return STATUS_OK;
}

void text_workspace_destroy(struct text_workspace *s) {
    free(s);
}

enum status text_to_row(struct text_workspace *s,
                        int32_t *out_row,
                        int32_t *out_length,
                        const struct tokenizer *tokenizer,
                        const char *text,
                        size_t size_bytes,
                        uint32_t max_tokens,
                        bool clean,
                        struct error *err) {
    REQUIRE(size_bytes <= SHARD_MAX_TEXT_BYTES);
    *out_length = 0;
    if (tokenizer == NULL) {
        memset(out_row, 0, max_tokens * sizeof(*out_row));
        return STATUS_OK;
    }
    if (clean && !tokenizer_cleans(tokenizer) && size_bytes > 0) {
        size_bytes = caption_clean(s->clean, text, size_bytes);
        text = s->clean;
    }
    const struct tokenizer_text one = {text, size_bytes};
    return tokenizer_encode_rows(tokenizer, out_row, out_length, &one, 1, max_tokens, err);
}

enum status text_cache_init(struct text_cache *out,
                            const struct dataset *dataset,
                            const struct tokenizer *tokenizer,
                            bool clean,
                            struct error *why) {
    *out = (struct text_cache){0};
    const struct token_cache *cache = dataset_token_cache(dataset, why);
    if (cache == NULL) {
        return why->status;
    }
    const struct token_cache_key wanted = {
        .fingerprint = dataset_fingerprint(dataset),
        .text_count = dataset_text_count(dataset),
        .tokenizer_hash = tokenizer_hash(tokenizer),
        .vocab_count = tokenizer_vocab_count(tokenizer),
        .clean = clean && !tokenizer_cleans(tokenizer),
    };
    TRY(token_cache_fits(cache, &wanted, why));
    /* The ids that the tokenizer puts before and after every text. */
    int32_t ids[2];
    uint32_t count = 0;
    TRY(tokenizer_encode(tokenizer, ids, &count, NULL, 0, 2, why));
    *out = (struct text_cache){cache, count > 1 ? ids[0] : -1, ids[count - 1]};
    return STATUS_OK;
}

enum status text_cache_row(const struct text_cache *c,
                           int32_t *out_row,
                           int32_t *out_length,
                           const struct tokenizer *tokenizer,
                           uint64_t text_id,
                           uint32_t max_tokens,
                           struct error *err) {
    const uint32_t begins = c->begin_id >= 0 ? 1 : 0;
    uint32_t count = 0;
    out_row[0] = c->begin_id;
    TRY(token_cache_get(c->cache, out_row + begins, &count, text_id, max_tokens - 1 - begins, err));
    out_row[count + begins] = c->end_id;
    int32_t pad = tokenizer_pad_id(tokenizer);
    for (uint32_t i = count + begins + 1; i < max_tokens; i++) {
        out_row[i] = pad;
    }
    *out_length = (int32_t)(count + begins) + 1;
    return STATUS_OK;
}
