/*
 * Random bytes as text for a small vocabulary that is trained first, and random bytes as a model.
 * Encoding gives begin, pieces of the vocabulary, end; a shorter limit gives the same pieces,
 * truncated; a model is refused or encodes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { MAX_TOKENS = 512 };

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static enum status
next_caption(void *cookie, const char **text, size_t *size_bytes, struct error *err) {
    static const char *const captions[] = {"a red dog near the old house",
                                           "two birds on the grass, caf\xc3\xa9 in the street",
                                           "the photo of a blue cat (1999)"};
    uint32_t *at = cookie;
    (void)err;
    if (*at == 3) {
        return STATUS_END;
    }
    *text = captions[(*at)++];
    *size_bytes = strlen(*text);
    return STATUS_OK;
}

static struct tokenizer *small_vocabulary(void) {
    uint32_t at = 0;
    uint32_t piece_count = 0;
    struct tokenizer *t = NULL;
    struct byte_buffer model;
    struct tokenizer_train_options opt;
    const struct tokenizer_source source = {.next = next_caption, .cookie = &at};
    tokenizer_train_options_default(&opt);
    byte_buffer_init(&model, 0);
    demand(tokenizer_train(&model, &piece_count, &source, &opt, NULL) == STATUS_OK);
    demand(tokenizer_open(&t, model.data, model.size_bytes, NULL) == STATUS_OK);
    byte_buffer_fini(&model);
    return t;
}

static void check_text(const struct tokenizer *t, const char *text, size_t size_bytes) {
    int32_t ids[MAX_TOKENS];
    int32_t short_ids[4];
    uint32_t count = 0;
    uint32_t short_count = 0;
    demand(tokenizer_encode(t, ids, &count, text, size_bytes, MAX_TOKENS, NULL) == STATUS_OK);
    demand(count >= 2 && count <= MAX_TOKENS);
    for (uint32_t i = 0; i < count; i++) {
        demand(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocab_count(t));
    }
    demand(tokenizer_encode(t, short_ids, &short_count, text, size_bytes, 4, NULL) == STATUS_OK);
    demand(short_count == (count < 4 ? count : 4));
    demand(memcmp(short_ids, ids, (short_count - 1) * sizeof short_ids[0]) == 0);
    demand(short_ids[short_count - 1] == ids[count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct tokenizer *vocabulary;
    if (!vocabulary) {
        vocabulary = small_vocabulary();
    }
    check_text(vocabulary, (const char *)data, size_bytes);
    struct tokenizer *t = NULL;
    if (tokenizer_open(&t, data, size_bytes, NULL) == STATUS_OK) {
        int32_t ids[MAX_TOKENS];
        uint32_t count = 0;
        (void)tokenizer_encode(t, ids, &count, "a caf\xc3\xa9 near", 12, MAX_TOKENS, NULL);
        tokenizer_close(t);
    }
    return 0;
}
