/*
 * BERT's WordPiece as an engine of tokenizer.h. The vocabulary is a text with one piece per line;
 * the line number is the piece's id. A word is split from the left into the longest pieces; those
 * after the first come from the pieces that begin with ##. If no piece fits, the whole word is the
 * unknown piece.
 *
 * The longest piece is found by looking up ever shorter beginnings of what is left of the word.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/status.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"
#include "formats/tokenizer/tokenizer_internal.h"
#include "formats/tokenizer/tokenizer_words_internal.h"

enum {
    MAX_VOCABULARY_BYTES = 4 << 20,
    MAX_PIECE_BYTES = WORDS_MAX_BYTES + 2, /* longer ones cannot be part of a word */
};

static const char *const special_names[WORDS_MAX_SPECIALS] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]",
                                                              "[MASK]"};

/* Pieces, and the bytes of the longest. */
struct pieces {
    struct piece_map map;
    size_t longest;
};

struct wordpiece {
    struct pieces all, rest; /* rest: those after ##, without it */
    int32_t unk_id;
    struct special_piece specials[WORDS_MAX_SPECIALS];
    size_t special_count;
    struct char_map map;
};

static void close_wordpiece(void *model) {
    struct wordpiece *w = model;
    piece_map_fini(&w->all.map);
    piece_map_fini(&w->rest.map);
    free(w);
}

static void add_piece(struct pieces *p, const char *text, size_t size_bytes, int32_t id) {
    piece_map_add(&p->map, text, size_bytes, id);
    p->longest = size_bytes > p->longest ? size_bytes : p->longest;
}

/* Of equal lines the last counts; t->vocab_count gets their number. */
static enum status read_pieces(struct wordpiece *w, struct tokenizer *t, struct error *err) {
    const char *end = (const char *)t->bytes + t->size_bytes;
    uint32_t count = 0;
    for (const char *p = (const char *)t->bytes; p < end; count++) {
        (void)tokenizer_line(&p, end);
    }
    FAIL_IF(count > TOKENIZER_MAX_VOCAB, err, STATUS_LIMIT,
            "tokenizer: vocabulary of %u pieces, the limit is %d", count, TOKENIZER_MAX_VOCAB);
    TRY(piece_map_init(&w->all.map, count, err));
    TRY(piece_map_init(&w->rest.map, count, err));
    const char *p = (const char *)t->bytes;
    for (uint32_t i = 0; i < count; i++) {
        const char *text = p;
        size_t n = tokenizer_line(&p, end);
        if (n > 0 && n <= MAX_PIECE_BYTES) {
            add_piece(&w->all, text, n, (int32_t)i);
        }
        if (n > 2 && n <= MAX_PIECE_BYTES && memcmp(text, "##", 2) == 0) {
            add_piece(&w->rest, text + 2, n - 2, (int32_t)i);
        }
    }
    t->vocab_count = count;
    return STATUS_OK;
}

/* The id of a whole piece; -1: not in the vocabulary. */
static int32_t find(const struct wordpiece *w, const char *piece) {
    return piece_map_find(&w->all.map, piece, strlen(piece));
}

/* The id of the longest piece that `text` begins with, and its bytes; -1: there is none. */
static int32_t find_longest(const struct pieces *p, const char *text, uint32_t size, uint32_t *n) {
    int32_t id = -1;
    for (*n = size < p->longest ? size : (uint32_t)p->longest; id < 0 && *n > 0;) {
        id = piece_map_find(&p->map, text, *n);
        *n -= id < 0;
    }
    return id;
}

static enum status find_specials(struct wordpiece *w, struct tokenizer *t, struct error *err) {
    for (size_t i = 0; i < WORDS_MAX_SPECIALS; i++) {
        int32_t id = find(w, special_names[i]);
        if (id >= 0) {
            w->specials[w->special_count++] =
                (struct special_piece){special_names[i], strlen(special_names[i]), id};
        }
    }
    w->unk_id = find(w, "[UNK]");
    t->cls_id = find(w, "[CLS]");
    t->sep_id = find(w, "[SEP]");
    t->pad_id = find(w, "[PAD]");
    FAIL_IF(w->unk_id < 0 || t->cls_id < 0 || t->sep_id < 0, err, STATUS_UNSUPPORTED,
            "tokenizer: vocabulary has no line '%s'; BERT's have one",
            w->unk_id < 0   ? "[UNK]"
            : t->cls_id < 0 ? "[CLS]"
                            : "[SEP]");
    if (t->pad_id < 0) {
        t->pad_id = w->unk_id;
    }
    return STATUS_OK;
}

static enum status open_wordpiece(struct tokenizer *t, struct error *err) {
    FAIL_IF(t->size_bytes > MAX_VOCABULARY_BYTES, err, STATUS_LIMIT,
            "tokenizer: vocabulary of %zu bytes, the limit is %d", t->size_bytes,
            MAX_VOCABULARY_BYTES);
    size_t valid = utf8_valid_prefix((const char *)t->bytes, t->size_bytes);
    FAIL_IF(valid < t->size_bytes, err, STATUS_CORRUPT,
            "tokenizer: the vocabulary is not valid UTF-8 at byte %zu", valid);
    struct wordpiece *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "tokenizer: out of memory for the vocabulary");
    enum status s = read_pieces(w, t, err);
    THEN(s, find_specials(w, t, err));
    if (s != STATUS_OK) {
        close_wordpiece(w);
        return s;
    }
    char_map_init(&w->map);
    t->model = w;
    return STATUS_OK;
}

/* Writes the pieces of a word, at most `room`; returns how many. */
static uint32_t
cut_word(const struct wordpiece *w, int32_t *out, uint32_t room, const struct word *word) {
    uint32_t count = 0;
    uint32_t n;
    for (uint32_t at = 0; at < word->size_bytes; at += n) {
        const int32_t id =
            find_longest(at == 0 ? &w->all : &w->rest, word->text + at, word->size_bytes - at, &n);
        if (id < 0) {
            out[0] = w->unk_id;
            return 1;
        }
        if (count < room) {
            out[count++] = id;
        }
    }
    return count;
}

static enum status encode_wordpiece(const struct tokenizer *t,
                                    int32_t *out_ids,
                                    uint32_t *out_count,
                                    const char *text,
                                    size_t size_bytes,
                                    uint32_t max_pieces,
                                    struct error *err) {
    (void)err;
    const struct wordpiece *w = t->model;
    struct word_reader reader;
    struct word word;
    uint32_t count = 0;
    word_reader_init(&reader, &w->map, w->specials, w->special_count, text, size_bytes);
    while (count < max_pieces && word_reader_next(&reader, &word)) {
        if (word.special >= 0) {
            out_ids[count++] = word.special;
        } else if (word.too_long) {
            out_ids[count++] = w->unk_id;
        } else {
            count += cut_word(w, out_ids + count, max_pieces - count, &word);
        }
    }
    *out_count = count;
    return STATUS_OK;
}

const struct tokenizer_engine tokenizer_wordpiece = {
    .kind = TOKENIZER_WORDPIECE,
    .open = open_wordpiece,
    .close = close_wordpiece,
    .encode = encode_wordpiece,
};
