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

/* The vocabulary with a NUL after each line, in place of LF or CR LF. */
struct lines {
    char text[1 << 16];
    const char *at[1 << 14];
    uint32_t count;
};

/* False: it is too large for this search. */
static bool split(struct lines *l, const void *vocabulary, size_t size_bytes) {
    if (size_bytes >= sizeof(l->text)) {
        return false;
    }
    memcpy(l->text, vocabulary, size_bytes);
    l->text[size_bytes] = '\0';
    l->count = 0;
    for (char *p = l->text; *p != '\0';) {
        if (l->count == sizeof(l->at) / sizeof(l->at[0])) {
            return false;
        }
        l->at[l->count++] = p;
        char *end = strchr(p, '\n');
        if (!end) {
            break;
        }
        end[end > p && end[-1] == '\r' ? -1 : 0] = '\0';
        *end = '\0';
        p = end + 1;
    }
    return true;
}

static int32_t last_line(const struct lines *l, const char *text) {
    int32_t found = -1;
    for (uint32_t i = 0; i < l->count; i++) {
        if (strcmp(l->at[i], text) == 0) {
            found = (int32_t)i;
        }
    }
    return found;
}

/* The longest line that the rest of the word begins with: its id, and its bytes without "##". */
static int32_t
longest(const struct lines *l, const char *word, size_t left, bool first, size_t *bytes) {
    int32_t found = -1;
    *bytes = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const char *piece = l->at[i];
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
slow_word(const struct lines *l, int32_t *out, uint32_t room, const struct word *w) {
    uint32_t count = 0;
    size_t n = 0;
    for (size_t at = 0; at < w->size_bytes; at += n) {
        int32_t id = longest(l, w->text + at, w->size_bytes - at, at == 0, &n);
        if (id < 0) {
            out[0] = last_line(l, "[UNK]");
            return 1;
        }
        if (count < room) {
            out[count++] = id;
        }
    }
    return count;
}

static void
check_text(const struct tokenizer *t, const struct lines *l, const char *text, size_t size_bytes) {
    demand(tokenizer_vocab_count(t) == l->count);
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
        int32_t id = last_line(l, names[i]);
        if (id >= 0) {
            specials[special_count++] = (struct special_piece){names[i], strlen(names[i]), id};
        }
    }
    demand(tokenizer_encode(t, ids, &count, text, size_bytes, MAX_TOKENS, NULL) == STATUS_OK);
    word_reader_init(&r, &map, specials, special_count, text, size_bytes);
    slow[0] = last_line(l, "[CLS]");
    while (slow_count < MAX_TOKENS - 1 && word_reader_next(&r, &w)) {
        if (w.special >= 0 || w.too_long) {
            slow[slow_count++] = w.too_long ? last_line(l, "[UNK]") : w.special;
        } else {
            slow_count += slow_word(l, slow + slow_count, MAX_TOKENS - 1 - slow_count, &w);
        }
    }
    slow[slow_count++] = last_line(l, "[SEP]");
    demand(count == slow_count && memcmp(ids, slow, count * sizeof(ids[0])) == 0);
    demand(tokenizer_encode(t, short_ids, &count, text, size_bytes, 4, NULL) == STATUS_OK);
    demand(count == (slow_count < 4 ? slow_count : 4));
    demand(memcmp(short_ids, ids, (count - 1) * sizeof(short_ids[0])) == 0);
    demand(short_ids[count - 1] == slow[slow_count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static struct tokenizer *fixed;
    static struct lines fixed_lines, lines;
    struct tokenizer *t = NULL;
    if (!fixed) {
        demand(tokenizer_open(&fixed, small, sizeof(small) - 1, NULL) == STATUS_OK);
        demand(split(&fixed_lines, small, sizeof(small) - 1));
    }
    const uint8_t *end = size_bytes > 0 ? memchr(data, '\0', size_bytes) : NULL;
    if (!end) {
        check_text(fixed, &fixed_lines, (const char *)data, size_bytes);
    } else if (tokenizer_open(&t, data, (size_t)(end - data), NULL) == STATUS_OK) {
        if (tokenizer_kind(t) == TOKENIZER_WORDPIECE && split(&lines, data, (size_t)(end - data))) {
            check_text(t, &lines, (const char *)end + 1, size_bytes - (size_t)(end - data) - 1);
        }
        tokenizer_close(t);
    }
    return 0;
}
