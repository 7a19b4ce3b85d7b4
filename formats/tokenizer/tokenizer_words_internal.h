/*
 * tokenizer_words_internal: splits text into the words to be looked up in a BERT WordPiece
 * vocabulary, as Hugging Face's tokenizers library does for uncased models.
 *
 * In this order: control characters are dropped, white space becomes a space, Chinese characters
 * become words, letters lose their accents (canonical decomposition without marks) and become lower
 * case, punctuation marks become words. The texts of special pieces, such as [SEP], are extracted
 * before that. What each code point becomes was asked of the library.
 *
 * Threading : a character map is immutable once made; a reader has one owner.
 * Ownership : a reader borrows the text, the map and the special pieces.
 * Untrusted : the text may be any bytes; what is no UTF-8 is dropped.
 */
#ifndef FORMATS_TOKENIZER_TOKENIZER_WORDS_INTERNAL_H
#define FORMATS_TOKENIZER_TOKENIZER_WORDS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORDS_MAX_CHARS = 100, /* of a word: longer ones are not looked up */
    WORDS_MAX_BYTES = 4 * WORDS_MAX_CHARS,
    WORDS_MAX_SPECIALS = 5,
    CHAR_MAP_DIRECT = 0x2000, /* code points below are looked up without a search */
};

/* Syllables are composed by arithmetic. */
enum {
    HANGUL_FIRST = 0xAC00,
    HANGUL_COUNT = 11172,
    HANGUL_LEAD = 0x1100,
    HANGUL_VOWEL = 0x1161,
    HANGUL_TAIL = 0x11A7,
    HANGUL_LEADS = 19,
    HANGUL_VOWELS = 21,
    HANGUL_TAILS = 28,
};

enum char_kind {
    CHAR_LETTER,   /* value: the code point that goes to the word */
    CHAR_MARK,     /* a letter that sorts among marks; value: its combining class */
    CHAR_ALONE,    /* value: the code point that is a word of its own */
    CHAR_SPACE,    /* ends a word */
    CHAR_DROP,     /* leaves nothing */
    CHAR_BREAK,    /* leaves nothing, but marks do not sort across it */
    CHAR_SEQUENCE, /* value: index in bert_sequences */
};

/* Of tests/golden/tokenizer/make_chars.py. Runs of code points: (first, what it becomes, kind in
 * the upper 8 bits and value in the lower 24), up to the first of the next; all of a run become the
 * same, or, with the highest bit of `first`, each one more than the one before it. */
extern const uint32_t bert_chars[];
extern const size_t bert_chars_bytes;
/* Three code points each, filled up with zeros. */
extern const uint32_t bert_sequences[];

/* What the first code points become: kind in the upper 8 bits, value in the lower 24. */
struct char_map {
    uint32_t direct[CHAR_MAP_DIRECT];
};

void char_map_init(struct char_map *map);

struct special_piece {
    const char *text; /* "[SEP]" */
    size_t size_bytes;
    int32_t id;
};

struct word_reader {
    const struct char_map *map;
    const struct special_piece *specials;
    size_t special_count;
    const char *text;
    size_t size_bytes;
    size_t at;
    uint32_t alone;      /* read, and the next word; 0: none */
    int32_t special;     /* the same for a special piece's id; -1: none */
    uint32_t word_bytes; /* of the word that is being read */
    uint32_t word_chars;
    uint32_t run; /* where the marks at its end begin to sort */
    char word[WORDS_MAX_BYTES];
};

/* One of: letters in `text`, too_long (more than WORDS_MAX_CHARS), or the id of a special piece. */
struct word {
    const char *text; /* in the reader, until the next call */
    uint32_t size_bytes;
    bool too_long;
    int32_t special; /* -1: none */
};

void word_reader_init(struct word_reader *r,
                      const struct char_map *map,
                      const struct special_piece *specials,
                      size_t special_count,
                      const char *text,
                      size_t size_bytes);

/* False at the end of the text. */
bool word_reader_next(struct word_reader *r, struct word *out);

#endif
