/*
 * VOCABULARY NUL TEXT: if the vocabulary opens, it splits every word of the text into the pieces
 * that a search through all lines finds. Without a NUL everything is text for a small vocabulary. A
 * shorter limit gives the same pieces, truncated.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_words_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { MAX_TOKENS = 256 };

static const char small[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nab\n##a\n##b\n##ab\n!\n#\n[\n]\n"
    "\xCE\xB1\n##\xCE\xB1\n\xE6\xBC\xA2\n\xE1\x84\x80\n##\xE1\x85\xA1\n1\n##1\n";

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static int32_t last_line(const struct tokenizer *t, const char *text) {
    int32_t found = -1;
    for (uint32_t i = 0; i < tokenizer_vocab_count(t); i++) {
        if (strcmp(tokenizer_piece(t, (int32_t)i), text) == 0) {
            found = (int32_t)i;
        }
    }
    return found;
}

/* The longest line that the rest of the word begins with: its id, and its bytes without "##". */
static int32_t
longest(const struct tokenizer *t, const char *word, size_t left, bool first, size_t *bytes) {
    int32_t found = -1;
    *bytes = 0;
    for (uint32_t i = 0; i < tokenizer_vocab_count(t); i++) {
        const char *piece = tokenizer_piece(t, (int32_t)i);
        if (!first) {
            if (strncmp(piece, "##", 2) != 0) {
                continue;
            }
            piece += 2;
        }
        size_t n = strlen(piece);
        if (n > 0 && n >= *bytes && n <= left && memcmp(piece, word, n) == 0) {
            found = (int32_t)i;
            *bytes = n;
        }
    }
    return found;
}

static uint32_t
slow_word(const struct tokenizer *t, int32_t *out, uint32_t room, const struct word *w) {
    uint32_t count = 0;
    size_t n = 0;
    for (size_t at = 0; at < w->size_bytes; at += n) {
        int32_t id = longest(t, w->text + at, w->size_bytes - at, at == 0, &n);
        if (id < 0) {
            out[0] = last_line(t, "[UNK]");
            return 1;
        }
        if (count < room) {
            out[count++] = id;
        }
    }
    return count;
}

static void check_text(const struct tokenizer *t, const char *text, size_t size_bytes) {
    static struct char_map map;
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    struct special_piece specials[WORDS_MAX_SPECIALS];
    size_t special_count = 0;
    int32_t ids[MAX_TOKENS];
    int32_t slow[MAX_TOKENS];
    int32_t short_ids[4];
    uint32_t count = 0;
    uint32_t slow_count = 1;
    struct word_reader r;
    struct word w;
    if (map.direct['A'] == 0) {
        char_map_init(&map);
    }
    for (size_t i = 0; i < WORDS_MAX_SPECIALS; i++) {
        int32_t id = last_line(t, names[i]);
        if (id >= 0) {
            specials[special_count++] = (struct special_piece){names[i], strlen(names[i]), id};
        }
    }
    demand(tokenizer_encode(t, ids, &count, text, size_bytes, MAX_TOKENS, NULL) == STATUS_OK);
    word_reader_init(&r, &map, specials, special_count, text, size_bytes);
    slow[0] = last_line(t, "[CLS]");
    while (slow_count < MAX_TOKENS - 1 && word_reader_next(&r, &w)) {
        if (w.special >= 0 || w.too_long) {
            slow[slow_count++] = w.too_long ? last_line(t, "[UNK]") : w.special;
        } else {
            slow_count += slow_word(t, slow + slow_count, MAX_TOKENS - 1 - slow_count, &w);
        }
    }
    slow[slow_count++] = last_line(t, "[SEP]");
    demand(count == slow_count && memcmp(ids, slow, count * sizeof(ids[0])) == 0);
    demand(tokenizer_encode(t, short_ids, &count, text, size_bytes, 4, NULL) == STATUS_OK);
    demand(count == (slow_count < 4 ? slow_count : 4));
    demand(memcmp(short_ids, ids, (count - 1) * sizeof(short_ids[0])) == 0);
    demand(short_ids[count - 1] == slow[slow_count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct tokenizer *fixed;
    struct tokenizer *t = NULL;
    if (!fixed) {
        demand(tokenizer_open(&fixed, small, sizeof(small) - 1, NULL) == STATUS_OK);
    }
    const uint8_t *end = size_bytes > 0 ? memchr(data, '\0', size_bytes) : NULL;
    if (!end) {
        check_text(fixed, (const char *)data, size_bytes);
    } else if (tokenizer_open(&t, data, (size_t)(end - data), NULL) == STATUS_OK) {
        if (tokenizer_kind(t) == TOKENIZER_WORDPIECE) {
            check_text(t, (const char *)end + 1, size_bytes - (size_t)(end - data) - 1);
        }
        tokenizer_close(t);
    }
    return 0;
}
