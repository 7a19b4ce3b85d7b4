/*
 * Random bytes as text for a small vocabulary that is trained first, random bytes as a model, and
 * after a byte 0xFE as the normaliser's trie of that small model. Encoding gives begin, pieces of
 * the vocabulary, end; a shorter limit gives the same pieces, truncated; a model is refused or
 * encodes.
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

static struct byte_buffer model; /* of the small vocabulary, without its normaliser's large trie */

static size_t take_varint(const uint8_t **at) {
    size_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        v |= (size_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128)) {
            return v;
        }
    }
}

/* All fields of ModelProto, which are messages, but its NormalizerSpec. */
static void keep_small(const struct byte_buffer *whole) {
    const uint8_t *at = whole->data;
    const uint8_t *end = at + whole->size_bytes;
    byte_buffer_init(&model, 0);
    while (at < end) {
        const uint8_t *field = at;
        const size_t key = take_varint(&at);
        const size_t size = take_varint(&at);
        at += size;
        demand((key & 7) == 2 && at <= end);
        if (key >> 3 != 3) {
            demand(byte_buffer_append(&model, field, (size_t)(at - field), NULL) == STATUS_OK);
        }
    }
}

static struct tokenizer *small_vocabulary(void) {
    uint32_t at = 0;
    uint32_t piece_count = 0;
    struct tokenizer *t = NULL;
    struct tokenizer_train_options opt;
    const struct tokenizer_source source = {.next = next_caption, .cookie = &at};
    tokenizer_train_options_default(&opt);
    struct byte_buffer whole;
    byte_buffer_init(&whole, 0);
    demand(tokenizer_train(&whole, &piece_count, &source, &opt, NULL) == STATUS_OK);
    demand(tokenizer_open(&t, whole.data, whole.size_bytes, NULL) == STATUS_OK);
    keep_small(&whole);
    byte_buffer_fini(&whole);
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

static void check_model(const uint8_t *data, size_t size_bytes) {
    static const char *const texts[] = {"a caf\xc3\xa9 near",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct tokenizer *t = NULL;
    if (tokenizer_open(&t, data, size_bytes, NULL) == STATUS_OK) {
        int32_t ids[MAX_TOKENS];
        uint32_t count = 0;
        for (size_t i = 0; i < 2; i++) {
            (void)tokenizer_encode(t, ids, &count, texts[i], strlen(texts[i]), MAX_TOKENS, NULL);
        }
        tokenizer_close(t);
    }
}

static void put_varint(struct byte_buffer *out, size_t v) {
    for (; v > 127; v >>= 7) {
        demand(byte_buffer_append(out, &(uint8_t){(uint8_t)((v & 127) | 128)}, 1, NULL) ==
               STATUS_OK);
    }
    demand(byte_buffer_append(out, &(uint8_t){(uint8_t)v}, 1, NULL) == STATUS_OK);
}

/* The small model with a normaliser: field 3 { field 2 { u32 size, trie, strings } }. */
static void check_trie(const uint8_t *data, size_t size_bytes) {
    enum { BLOCK = 1024, MOST = 16 * BLOCK };
    static const char strings[] = "x\0yz\0";
    size_bytes = size_bytes < MOST ? size_bytes : MOST;
    const uint32_t trie_bytes = (uint32_t)(size_bytes + BLOCK - 1) / BLOCK * BLOCK;
    const size_t map_bytes = sizeof trie_bytes + trie_bytes + sizeof strings;
    static const uint8_t zeros[BLOCK];
    struct byte_buffer other;
    byte_buffer_init(&other, 0);
    demand(byte_buffer_append(&other, model.data, model.size_bytes, NULL) == STATUS_OK);
    put_varint(&other, 3 << 3 | 2);
    put_varint(&other, map_bytes + (map_bytes > 16383 ? 4 : map_bytes > 127 ? 3 : 2));
    put_varint(&other, 2 << 3 | 2);
    put_varint(&other, map_bytes);
    demand(byte_buffer_append(&other, &trie_bytes, sizeof trie_bytes, NULL) == STATUS_OK);
    demand(byte_buffer_append(&other, data, size_bytes, NULL) == STATUS_OK);
    demand(byte_buffer_append(&other, zeros, trie_bytes - size_bytes, NULL) == STATUS_OK);
    demand(byte_buffer_append(&other, strings, sizeof strings, NULL) == STATUS_OK);
    check_model(other.data, other.size_bytes);
    byte_buffer_fini(&other);
}

/* libFuzzer's own; absent where the corpus is only replayed. */
__attribute__((weak)) size_t
LLVMFuzzerMutate(uint8_t *data, size_t size_bytes, size_t max_size_bytes);
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size_bytes, size_t max_size_bytes, unsigned seed);

/* Of a trie, every other time: a unit of some label, offset, leaf and end instead of some unit. */
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size_bytes, size_t max_size_bytes, unsigned seed) {
    const size_t units = size_bytes > 4 && data[0] == 0xFE ? (size_bytes - 1) / 4 : 0;
    if (units == 0 || seed % 2 == 0) {
        return LLVMFuzzerMutate(data, size_bytes, max_size_bytes);
    }
    const size_t i = (seed >> 1) % units;
    const uint32_t random = seed * 2654435761u;
    const uint32_t label = random % 5 == 0 ? random >> 24 : (uint32_t) "\0a \xc3\xa9"[random % 5];
    const uint32_t target = (uint32_t)(random >> 9) % (uint32_t)(units + 1);
    const bool leaf = random % 7 == 0;
    const uint32_t unit = leaf ? 1u << 31 | target % 8
                               : ((uint32_t)i ^ target) << 10 | (random >> 3 & 1) << 8 | label;
    memcpy(data + 1 + 4 * i, &unit, sizeof unit);
    return size_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct tokenizer *vocabulary;
    if (!vocabulary) {
        vocabulary = small_vocabulary();
    }
    check_text(vocabulary, (const char *)data, size_bytes);
    check_model(data, size_bytes);
    if (size_bytes > 1 && data[0] == 0xFE) {
        check_trie(data + 1, size_bytes - 1);
    }
    return 0;
}
