/*
 * Characters come in one by one, and a word is complete where a space, a character that stands
 * alone, a special piece or the end of the text follows it. That one is kept for the next call.
 *
 * Decomposition sorts the marks after a letter by their combining class. Nearly all marks are
 * dropped, so sorting is left to the few that stay: such a mark moves back over marks of a higher
 * class, as far as the run of marks goes.
 */
#include "formats/tokenizer/tokenizer_words_internal.h"

#include <string.h>

#include "formats/base/utf8.h"

static uint32_t search(uint32_t c) {
    const uint32_t increases = UINT32_C(1) << 31;
    size_t low = 0;
    size_t high = bert_chars_bytes / (2 * sizeof bert_chars[0]);
    while (high - low > 1) { /* the last run that begins at c or before it: the first begins at 0 */
        const size_t middle = (low + high) / 2;
        *((bert_chars[2 * middle] & ~increases) <= c ? &low : &high) = middle;
    }
    const uint32_t first = bert_chars[2 * low];
    const uint32_t what = bert_chars[2 * low + 1];
    return (first & increases) != 0 ? what + (c - (first & ~increases)) : what;
}

void char_map_init(struct char_map *map) {
    for (uint32_t c = 0; c < CHAR_MAP_DIRECT; c++) {
        map->direct[c] = search(c);
    }
}

static uint32_t look_up(const struct char_map *map, uint32_t c) {
    return c < CHAR_MAP_DIRECT ? map->direct[c] : search(c);
}

void word_reader_init(struct word_reader *r,
                      const struct char_map *map,
                      const struct special_piece *specials,
                      size_t special_count,
                      const char *text,
                      size_t size_bytes) {
    r->map = map;
    r->specials = specials;
    r->special_count = special_count;
    r->text = text;
    r->size_bytes = size_bytes;
    r->at = 0;
    r->alone = 0;
    r->special = -1;
    r->word_bytes = 0;
    r->word_chars = 0;
    r->run = 0;
}

static void add_letter(struct word_reader *r, uint32_t c) {
    if (r->word_chars < WORDS_MAX_CHARS) {
        r->word_bytes += (uint32_t)utf8_encode(r->word + r->word_bytes, c);
    }
    r->word_chars++;
}

/* Where in the word a mark of this class belongs: before the marks of higher classes. */
static uint32_t place_of_mark(const struct word_reader *r, uint32_t class) {
    uint32_t place = r->word_bytes;
    while (place > r->run) {
        uint32_t begin = place - 1;
        size_t n;
        while (((uint8_t)r->word[begin] & 0xC0U) == 0x80U) {
            begin--;
        }
        uint32_t before = look_up(r->map, utf8_decode(r->word + begin, place - begin, &n));
        if (before >> 24 != CHAR_MARK || (before & 0xFFFFFFU) <= class) {
            break;
        }
        place = begin;
    }
    return place;
}

static void add_mark(struct word_reader *r, uint32_t c, uint32_t class) {
    if (r->word_chars < WORDS_MAX_CHARS) {
        char mark[4];
        uint32_t n = (uint32_t)utf8_encode(mark, c);
        uint32_t place = place_of_mark(r, class);
        memmove(r->word + place + n, r->word + place, r->word_bytes - place);
        memcpy(r->word + place, mark, n);
        r->word_bytes += n;
    }
    r->word_chars++;
}

static void add_hangul(struct word_reader *r, uint32_t index) {
    uint32_t tail = index % HANGUL_TAILS;
    add_letter(r, HANGUL_LEAD + index / (HANGUL_VOWELS * HANGUL_TAILS));
    add_letter(r, HANGUL_VOWEL + index / HANGUL_TAILS % HANGUL_VOWELS);
    if (tail > 0) {
        add_letter(r, HANGUL_TAIL + tail);
    }
}

static void add_sequence(struct word_reader *r, uint32_t index) {
    for (int i = 0; i < 3 && bert_sequences[3 * index + (uint32_t)i] != 0; i++) {
        uint32_t c = bert_sequences[3 * index + (uint32_t)i];
        uint32_t what = look_up(r->map, c);
        if (what >> 24 == CHAR_MARK) {
            add_mark(r, c, what & 0xFFFFFFU);
        } else {
            add_letter(r, c);
        }
    }
}

/* Adds to the word, or ends it: then false, and what follows it is in r->alone. */
static bool take(struct word_reader *r, uint32_t c) {
    uint32_t what = look_up(r->map, c);
    uint32_t value = what & 0xFFFFFFU;
    switch (what >> 24) {
    case CHAR_LETTER:
        if (c - HANGUL_FIRST < HANGUL_COUNT) {
            add_hangul(r, c - HANGUL_FIRST);
        } else {
            add_letter(r, value);
        }
        return true;
    case CHAR_MARK:
        add_mark(r, c, value);
        return true;
    case CHAR_SEQUENCE:
        add_sequence(r, value);
        return true;
    case CHAR_ALONE:
        r->alone = value;
        return false;
    case CHAR_SPACE:
        return false;
    case CHAR_BREAK:
        r->run = r->word_bytes;
        return true;
    default:
        return true;
    }
}

/* The special piece whose text is at the front of the rest. */
static const struct special_piece *special_here(const struct word_reader *r) {
    for (size_t i = 0; i < r->special_count; i++) {
        const struct special_piece *s = &r->specials[i];
        if (s->size_bytes <= r->size_bytes - r->at &&
            memcmp(r->text + r->at, s->text, s->size_bytes) == 0) {
            return s;
        }
    }
    return NULL;
}

/* Reads on until a word is complete, or one that follows it is kept. */
static void read_word(struct word_reader *r) {
    while (r->at < r->size_bytes) {
        if (r->text[r->at] == '[') {
            const struct special_piece *s = special_here(r);
            if (s) {
                r->special = s->id;
                r->at += s->size_bytes;
                return;
            }
        }
        uint8_t first = (uint8_t)r->text[r->at];
        uint32_t what = r->map->direct[first];
        if (first < 0x80 && what >> 24 == CHAR_LETTER) { /* most of all text */
            if (r->word_chars++ < WORDS_MAX_CHARS) {
                r->word[r->word_bytes++] = (char)what;
            }
            r->at++;
            continue;
        }
        size_t n;
        uint32_t c = utf8_decode(r->text + r->at, r->size_bytes - r->at, &n);
        r->at += n;
        if (c != UTF8_NO_CHARACTER && !take(r, c) && (r->word_chars > 0 || r->alone != 0)) {
            return;
        }
    }
}

bool word_reader_next(struct word_reader *r, struct word *out) {
    *out = (struct word){r->word, 0, false, -1};
    r->word_bytes = 0;
    r->word_chars = 0;
    r->run = 0;
    if (r->alone == 0 && r->special < 0) {
        read_word(r);
    }
    if (r->word_chars > 0) {
        out->size_bytes = r->word_bytes;
        out->too_long = r->word_chars > WORDS_MAX_CHARS;
    } else if (r->alone != 0) {
        out->size_bytes = (uint32_t)utf8_encode(r->word, r->alone);
        r->alone = 0;
    } else if (r->special >= 0) {
        out->special = r->special;
        r->special = -1;
    } else {
        return false;
    }
    return true;
}
