/*
 * text: the one place where a caption becomes a row, so that training, evaluation and prompts can
 * never treat text differently.
 */
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "formats/shard.h"
#include "formats/tokenizer.h"
#include "loader/text_internal.h"

struct text_scratch {
    char clean[CAPTION_CLEAN_BOUND_BYTES(SHARD_MAX_TEXT_BYTES)];
};

enum status text_scratch_create(struct text_scratch **out, struct error *err) {
    *out = malloc(sizeof(**out));
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for captions");
    }
    return STATUS_OK;
}

void text_scratch_destroy(struct text_scratch *s) {
    free(s);
}

enum status text_to_row(struct text_scratch *s,
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
    if (clean && size_bytes > 0) {
        size_bytes = caption_clean(s->clean, text, size_bytes);
        text = s->clean;
    }
    const struct tokenizer_text one = {text, size_bytes};
    return tokenizer_encode_rows(tokenizer, out_row, out_length, &one, 1, max_tokens, err);
}
