/*
 * tokenizer_bpe_internal: what the parts of the byte-level BPE share: how its files are read
 * (tokenizer_bpe_load.c), how words are found and merged (tokenizer_bpe.c), and how CLIP's texts
 * are cleaned first (tokenizer_clip_text.c).
 *
 * Threading : as tokenizer.h says; a struct bpe is immutable once made.
 */
#ifndef FORMATS_TOKENIZER_TOKENIZER_BPE_INTERNAL_H
#define FORMATS_TOKENIZER_TOKENIZER_BPE_INTERNAL_H

#include "formats/tokenizer/tokenizer_internal.h"

enum {
    CLIP_MERGES = 48894,
    CLIP_BEGIN = 512 + CLIP_MERGES,
    CLIP_END = CLIP_BEGIN + 1,
    BPE_MAX_SPECIALS = 64,
    BPE_WORD_BYTES = 64, /* longer words are not looked up whole, but merged */
    CLIP_TABLE_MAGIC_BYTES = 8,
};

/* A map from strings, which it borrows, to ids. */
struct piece_map {
    struct piece {
        const char *text; /* NULL: a free place */
        uint32_t size_bytes;
        int32_t id;
    } * pieces;
    size_t mask;
};

enum status piece_map_init(struct piece_map *m, size_t max_count, struct error *err);
void piece_map_fini(struct piece_map *m);
void piece_map_add(struct piece_map *m, const char *text, size_t size_bytes, int32_t id);
int32_t piece_map_find(const struct piece_map *m, const char *text, size_t size_bytes); /* or -1 */

/* Two neighbouring pieces that become one. Lower ranks merge first. */
struct bpe_merge {
    uint32_t left, right, rank;
    int32_t id; /* -1 in a free place of the table */
};

struct bpe_special {
    char *text;
    size_t size_bytes;
    int32_t id;
    bool strips_left, strips_right; /* white space beside it */
};

struct bpe {
    int32_t byte_ids[256];
    int32_t last_ids[256]; /* of a word's last byte */
    struct bpe_merge *merges;
    size_t merge_mask;
    struct piece_map words; /* words that become one piece */
    char *word_bytes;       /* what `words` borrows */
    struct piece_map names; /* of HTML's characters: CLIP alone */
    bool prefix_space;
    struct bpe_special specials[BPE_MAX_SPECIALS];
    size_t special_count;
    uint8_t unicode[0x110000 / 2]; /* four bits of each code point */
};

enum unicode_class { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE };

/* Beside the class: a normal form may change it or what is before it. */
enum { UNICODE_CLASS = 3, UNICODE_MAY_CHANGE = 4 };

static inline unsigned unicode_entry(const struct bpe *b, uint32_t c) {
    return (unsigned)b->unicode[c / 2] >> c % 2 * 4 & 15U;
}

static inline void unicode_set(struct bpe *b, uint32_t c, unsigned bits) {
    b->unicode[c / 2] = (uint8_t)(b->unicode[c / 2] | bits << c % 2 * 4);
}

void unicode_mark_changes(struct bpe *b);

/* Whether these bytes are one of the forms that bpe_load reads. */
bool bpe_is_file(const uint8_t *bytes, size_t size_bytes);

/* Reads t->bytes in any of the forms and adds every merge; fills the ids. The engine becomes that
 * of the kind. Of CLIP's, t->bytes becomes the table. Returns as tokenizer_open. */
enum status bpe_load(struct bpe *b, struct tokenizer *t, struct error *err);

/* One of the merges in ascending rank, from the loader. Returns OK or CORRUPT (the pair is not
 * new). */
enum status bpe_add_merge(struct bpe *b, const struct bpe_merge *merge, struct error *err);

/* The places of the texts of HTML's names of characters in clip_entities. */
enum status clip_entities_init(struct piece_map *names, struct error *err);

/* The text as open_clip cleans it, in lower case, canonical: as for SigLIP, in *out, which the
 * caller frees. Returns OK or NOMEM. */
enum status clip_clean(char **out,
                       size_t *out_size,
                       const char *text,
                       size_t size_bytes,
                       const struct bpe *bpe,
                       bool canonical,
                       struct error *err);

/* clip/ of this folder, made by tests/golden/tokenizer/make_clip.py. */
extern const unsigned char clip_merges[], clip_entities[];
extern const size_t clip_merges_bytes, clip_entities_bytes;
extern const uint32_t clip_unicode[];
extern const size_t clip_unicode_bytes;

/* A section of clip_unicode, and how many numbers it has. */
enum unicode_section {
    UNICODE_LETTERS, /* how many code points are not, are, are not ... letters */
    UNICODE_NUMBERS,
    UNICODE_COMBINING,  /* code points until the combining class changes, the new class */
    UNICODE_DECOMPOSED, /* code point, first, second or 0; sorted */
    UNICODE_COMPOSED,   /* first, second, code point; sorted */
    UNICODE_WIDTH,      /* U+FF5F to U+FFEE in their usual width */
};
const uint32_t *unicode_table(enum unicode_section section, size_t *count);

#endif
