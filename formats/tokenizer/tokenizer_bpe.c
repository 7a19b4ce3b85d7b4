/*
 * Byte-level BPE as two engines of tokenizer.h: CLIP's, and the one of GPT-2 and RoBERTa. A text is
 * split into words by classes of characters; the bytes of a word are pieces, of which neighbours
 * merge, the pair of the lowest rank first and the leftmost of equal pairs.
 *
 * Most words of a caption end as a single piece. Opening a model therefore merges the bytes of each
 * piece once and keeps those that become one piece again; such a word is one look-up. Other words
 * merge in a list of pieces, with a heap of the pairs that can merge:
 *
 *     l o w e r</w>     heap: (rank, place) of l-o, o-w, w-e, e-r</w>
 *     lo  w e r</w>     the pairs lo-w joined the heap; the old o-w is skipped when its turn comes
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/lowercase.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"

/* ---- maps ---- */

enum status piece_map_init(struct piece_map *m, size_t max_count, struct error *err) {
    size_t places = 16;
    while (places < 2 * max_count) {
        places *= 2;
    }
    m->mask = places - 1;
    m->pieces = calloc(places, sizeof(*m->pieces));
    TRY_MEMORY(m->pieces, err, "tokenizer: out of memory");
    return STATUS_OK;
}

void piece_map_fini(struct piece_map *m) {
    free(m->pieces);
    m->pieces = NULL;
}

static struct piece *piece_place(const struct piece_map *m, const char *text, size_t size_bytes) {
    size_t i = (size_t)hash64(text, size_bytes) & m->mask;
    while (m->pieces[i].text && (m->pieces[i].size_bytes != size_bytes ||
                                 memcmp(m->pieces[i].text, text, size_bytes) != 0)) {
        i = (i + 1) & m->mask;
    }
    return &m->pieces[i];
}

void piece_map_add(struct piece_map *m, const char *text, size_t size_bytes, int32_t id) {
    *piece_place(m, text, size_bytes) = (struct piece){text, (uint32_t)size_bytes, id};
}

int32_t piece_map_find(const struct piece_map *m, const char *text, size_t size_bytes) {
    const struct piece *p = piece_place(m, text, size_bytes);
    return p->text ? p->id : -1;
}

static struct bpe_merge *merge_place(const struct bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15U;
    size_t i = (size_t)(key >> 32) & b->merge_mask;
    while (b->merges[i].id >= 0 && (b->merges[i].left != left || b->merges[i].right != right)) {
        i = (i + 1) & b->merge_mask;
    }
    return &b->merges[i];
}

enum status bpe_add_merge(struct bpe *b, const struct bpe_merge *merge, struct error *err) {
    struct bpe_merge *place = merge_place(b, merge->left, merge->right);
    FAIL_IF(place->id >= 0, err, STATUS_CORRUPT, "tokenizer: merge %u is the same as merge %u",
            merge->rank + 1, place->rank + 1);
    *place = *merge;
    return STATUS_OK;
}

/* ---- merging ---- */

/* Where a word of `size` bytes merges: as many ids and neighbours, three times as many pairs. */
struct merge_room {
    uint64_t *heap; /* rank << 32 | place */
    int32_t *ids;   /* -1: has become part of the one before */
    uint32_t *next, *before;
    size_t pairs;
};

static void push_pair(struct merge_room *r, uint64_t pair) {
    size_t i = r->pairs++;
    while (i > 0 && r->heap[(i - 1) / 2] > pair) {
        r->heap[i] = r->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    r->heap[i] = pair;
}

static uint64_t pop_pair(struct merge_room *r) {
    const uint64_t top = r->heap[0];
    const uint64_t last = r->heap[--r->pairs];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < r->pairs; i = child) {
        child += child + 1 < r->pairs && r->heap[child + 1] < r->heap[child];
        if (r->heap[child] >= last) {
            break;
        }
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = last;
    return top;
}

static const struct bpe_merge *
merge_at(const struct bpe *b, const struct merge_room *r, uint32_t place, uint32_t size) {
    return r->next[place] < size
               ? merge_place(b, (uint32_t)r->ids[place], (uint32_t)r->ids[r->next[place]])
               : NULL;
}

static void find_pair(const struct bpe *b, struct merge_room *r, uint32_t place, uint32_t size) {
    const struct bpe_merge *m = merge_at(b, r, place, size);
    if (m && m->id >= 0) {
        push_pair(r, (uint64_t)m->rank << 32 | place);
    }
}

/* Merges a word of at least one byte; its pieces are then r->ids from 0 along r->next. */
static void merge_word(const struct bpe *b, struct merge_room *r, const char *word, uint32_t size) {
    r->pairs = 0;
    for (uint32_t i = 0; i < size; i++) {
        r->ids[i] = (i + 1 < size ? b->byte_ids : b->last_ids)[(uint8_t)word[i]];
        r->next[i] = i + 1;
        r->before[i] = i - 1; /* of the first: not a place */
    }
    for (uint32_t i = 0; i + 1 < size; i++) {
        find_pair(b, r, i, size);
    }
    while (r->pairs > 0) {
        const uint64_t pair = pop_pair(r);
        const uint32_t at = (uint32_t)pair;
        const struct bpe_merge *m = r->ids[at] >= 0 ? merge_at(b, r, at, size) : NULL;
        if (!m || m->id < 0 || m->rank != pair >> 32) {
            continue; /* one of the two has merged with another */
        }
        const uint32_t gone = r->next[at];
        r->ids[at] = m->id;
        r->ids[gone] = -1;
        r->next[at] = r->next[gone];
        if (r->next[at] < size) {
            r->before[r->next[at]] = at;
        }
        find_pair(b, r, at, size);
        if (at > 0) {
            find_pair(b, r, r->before[at], size);
        }
    }
}

static uint32_t
copy_pieces(int32_t *out, uint32_t room, const struct merge_room *r, uint32_t size) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < size && count < room; i = r->next[i]) {
        out[count++] = r->ids[i];
    }
    return count;
}

static uint32_t
merge_short_word(const struct bpe *b, int32_t *out, uint32_t room, const char *word, uint32_t n) {
    uint64_t heap[3 * BPE_WORD_BYTES];
    int32_t ids[BPE_WORD_BYTES];
    uint32_t next[BPE_WORD_BYTES];
    uint32_t before[BPE_WORD_BYTES];
    struct merge_room r = {heap, ids, next, before, 0};
    merge_word(b, &r, word, n);
    return copy_pieces(out, room, &r, n);
}

static enum status merge_long_word(const struct bpe *b,
                                   int32_t *out,
                                   uint32_t *count,
                                   uint32_t room,
                                   const char *word,
                                   uint32_t n,
                                   struct error *err) {
    struct merge_room r = {.heap = malloc((3 * sizeof(*r.heap) + 3 * sizeof(*r.ids)) * n)};
    TRY_MEMORY(r.heap, err, "tokenizer: out of memory for a word of %u bytes", n);
    r.next = (uint32_t *)(r.heap + (size_t)3 * n);
    r.before = r.next + n;
    r.ids = (int32_t *)(r.before + n);
    merge_word(b, &r, word, n);
    *count = copy_pieces(out, room, &r, n);
    free(r.heap);
    return STATUS_OK;
}

/* Writes at most room >= 1 pieces of a word; *count is how many. */
static enum status put_word(const struct bpe *b,
                            int32_t *out,
                            uint32_t *count,
                            uint32_t room,
                            const char *word,
                            size_t size_bytes,
                            struct error *err) {
    *count = 1;
    if (size_bytes == 1) {
        out[0] = b->last_ids[(uint8_t)word[0]];
        return STATUS_OK;
    }
    if (size_bytes > BPE_WORD_BYTES) {
        return merge_long_word(b, out, count, room, word, (uint32_t)size_bytes, err);
    }
    const int32_t id = piece_map_find(&b->words, word, size_bytes);
    if (id >= 0) {
        out[0] = id;
    } else {
        *count = merge_short_word(b, out, room, word, (uint32_t)size_bytes);
    }
    return STATUS_OK;
}

/* ---- opening ---- */

static int compare_ranks(const void *a, const void *b) {
    const struct bpe_merge *x = a;
    const struct bpe_merge *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The bytes of the pieces that merges make; longer ones than BPE_WORD_BYTES are left out. */
struct piece_bytes {
    uint32_t at;
    uint8_t size; /* 0: unknown or too long */
};

static size_t add_bytes(char *all, size_t used, struct piece_bytes *of, const struct bpe_merge *m) {
    const struct piece_bytes *left = &of[m->left];
    const struct piece_bytes *right = &of[m->right];
    const size_t n = (size_t)left->size + right->size;
    if (left->size == 0 || right->size == 0 || n > BPE_WORD_BYTES || of[m->id].size > 0) {
        return used;
    }
    memcpy(all + used, all + left->at, left->size);
    memcpy(all + used + left->size, all + right->at, right->size);
    of[m->id] = (struct piece_bytes){(uint32_t)used, (uint8_t)n};
    return used + n;
}

static void
add_words(struct bpe *b, struct piece_bytes *of, const struct bpe_merge *merges, size_t count) {
    size_t used = 256;
    for (int byte = 0; byte < 256; byte++) {
        b->word_bytes[byte] = (char)byte;
        of[b->byte_ids[byte]] = of[b->last_ids[byte]] = (struct piece_bytes){(uint32_t)byte, 1};
    }
    for (size_t i = 0; i < count; i++) {
        const size_t before = used;
        int32_t ids[2];
        used = add_bytes(b->word_bytes, used, of, &merges[i]);
        const char *word = b->word_bytes + before;
        if (used > before && piece_map_find(&b->words, word, used - before) < 0 &&
            merge_short_word(b, ids, 2, word, (uint32_t)(used - before)) == 1) {
            piece_map_add(&b->words, word, used - before, ids[0]);
        }
    }
}

static enum status find_words(struct bpe *b, uint32_t vocab_count, struct error *err) {
    const size_t places = b->merge_mask + 1;
    size_t count = 0;
    struct bpe_merge *merges = malloc(places * sizeof(*merges));
    struct piece_bytes *of = calloc(vocab_count, sizeof(*of));
    for (size_t i = 0; merges && i < places; i++) {
        if (b->merges[i].id >= 0) {
            merges[count++] = b->merges[i];
        }
    }
    b->word_bytes = malloc(256 + count * BPE_WORD_BYTES);
    enum status s = merges && of && b->word_bytes
                        ? piece_map_init(&b->words, count, err)
                        : error_set(err, STATUS_NOMEM, "tokenizer: out of memory");
    if (s == STATUS_OK) {
        qsort(merges, count, sizeof(*merges), compare_ranks);
        add_words(b, of, merges, count);
    }
    free(merges);
    free(of);
    return s;
}

static void set_runs(struct bpe *b, enum unicode_section section, enum unicode_class class) {
    size_t count;
    const uint32_t *runs = unicode_table(section, &count);
    uint32_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t n = 0; i % 2 == 1 && n < runs[i]; n++) {
            unicode_set(b, at + n, class);
        }
        at += runs[i];
    }
}

static void close_bpe(void *model) {
    struct bpe *b = model;
    for (size_t i = 0; i < b->special_count; i++) {
        free(b->specials[i].text);
    }
    piece_map_fini(&b->words);
    piece_map_fini(&b->names);
    free(b->word_bytes);
    free(b->merges);
    free(b);
}

static enum status open_bpe(struct tokenizer *t, struct error *err) {
    struct bpe *b = calloc(1, sizeof(*b));
    TRY_MEMORY(b, err, "tokenizer: out of memory");
    enum status s = bpe_load(b, t, err);
    THEN(s, find_words(b, t->vocab_count, err));
    if (t->engine == &tokenizer_clip_bpe) {
        THEN(s, clip_entities_init(&b->names, err));
    }
    if (s != STATUS_OK) {
        close_bpe(b);
        return s;
    }
    set_runs(b, UNICODE_LETTERS, CLASS_LETTER);
    set_runs(b, UNICODE_NUMBERS, CLASS_NUMBER);
    for (uint32_t c = 0; c <= 0x3000; c++) {
        if (unicode_is_space(c) && !(c >= 0x1C && c < 0x20)) {
            unicode_set(b, c, CLASS_SPACE);
        }
    }
    unicode_mark_changes(b);
    t->model = b;
    return STATUS_OK;
}

/* ---- words ---- */

static enum unicode_class
class_at(const struct bpe *b, const char *text, size_t size_bytes, size_t *n) {
    uint32_t c = (uint8_t)text[0];
    *n = 1;
    if (c >= 0x80) {
        c = utf8_decode(text, size_bytes, n);
    }
    return (enum unicode_class)(unicode_entry(b, c) & UNICODE_CLASS);
}

/* Where the run of a class ends that goes from `at` on. */
static size_t
run_end(const struct bpe *b, const char *text, size_t size, size_t at, enum unicode_class class) {
    size_t n;
    while (at < size && class_at(b, text + at, size - at, &n) == class) {
        at += n;
    }
    return at;
}

/* Bytes of an 's, 't, 're, 've, 'm, 'll or 'd; 0: none. With `long_s`, U+017F counts as s. */
static size_t contraction(const char *text, size_t size, bool long_s) {
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d", "\xc5\xbf"};
    for (size_t i = 0; text[0] == '\'' && i < 7 + (size_t)long_s; i++) {
        const size_t n = strlen(ends[i]);
        if (n < size && memcmp(text + 1, ends[i], n) == 0) {
            return n + 1;
        }
    }
    return 0;
}

/* ---- CLIP ---- */

static bool begins(const char *text, size_t size, const char *with) {
    return strlen(with) <= size && memcmp(text, with, strlen(with)) == 0;
}

/* U+0345, which is of no class in open_clip's pattern: it matches letters without case. */
static bool is_no_class(const char *text, size_t size) {
    return begins(text, size, "\xcd\x85");
}

/* The end of the word of a cleaned text that begins at `at`, where no space is. *id is that of a
 * special text, or -1. */
static size_t
clip_word_end(const struct bpe *b, const char *text, size_t size, size_t at, int32_t *id) {
    static const char *const specials[] = {"<start_of_text>", "<end_of_text>",
                                           "<\xc5\xbftart_of_text>"};
    size_t n;
    *id = -1;
    for (size_t i = 0; text[at] == '<' && i < 3; i++) {
        if (begins(text + at, size - at, specials[i])) {
            *id = i < 2 ? CLIP_BEGIN + (int32_t)i : -1;
            return at + strlen(specials[i]);
        }
    }
    n = contraction(text + at, size - at, true);
    if (n > 0) {
        return at + n;
    }
    const enum unicode_class class = class_at(b, text + at, size - at, &n);
    if (class == CLASS_LETTER) {
        return run_end(b, text, size, at, class);
    }
    if (class == CLASS_NUMBER) {
        return at + n;
    }
    while (at < size && class_at(b, text + at, size - at, &n) == class &&
           !is_no_class(text + at, size - at)) {
        at += n;
    }
    return at;
}

static enum status put_clip_words(const struct bpe *b,
                                  int32_t *out,
                                  uint32_t *out_count,
                                  const char *text,
                                  size_t size,
                                  uint32_t room,
                                  struct error *err) {
    uint32_t count = 0;
    for (size_t at = 0; at < size && count < room;) {
        if (text[at] == ' ' || is_no_class(text + at, size - at)) {
            at += text[at] == ' ' ? 1 : 2;
            continue;
        }
        uint32_t n = 1;
        const size_t end = clip_word_end(b, text, size, at, &out[count]);
        if (out[count] < 0) {
            TRY(put_word(b, out + count, &n, room - count, text + at, end - at, err));
        }
        count += n;
        at = end;
    }
    *out_count = count;
    return STATUS_OK;
}

enum { SHORT_TEXT_BYTES = 1024 };

/* The text in lower case, if it is of ASCII characters that nothing mends: then true. */
static bool lower_plain(char *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const uint8_t c = (uint8_t)text[i];
        if (c < ' ' ? c != '\t' && c != '\n' && c != '\f' && c != '\r' : c >= 0x7F || c == '&') {
            return false;
        }
        out[i] = (char)(c < ' ' ? ' ' : c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    return true;
}

static enum status encode_clip(const struct tokenizer *t,
                               int32_t *out_ids,
                               uint32_t *out_count,
                               const char *text,
                               size_t size_bytes,
                               uint32_t max_pieces,
                               struct error *err) {
    char plain[SHORT_TEXT_BYTES];
    char *cleaned = NULL;
    if (size_bytes <= sizeof(plain) && lower_plain(plain, text, size_bytes)) {
        return put_clip_words(t->model, out_ids, out_count, plain, size_bytes, max_pieces, err);
    }
    const struct bpe *b = t->model;
    TRY(clip_clean(&cleaned, &size_bytes, text, size_bytes, b, false, err));
    enum status s = put_clip_words(b, out_ids, out_count, cleaned, size_bytes, max_pieces, err);
    free(cleaned);
    return s;
}

const struct tokenizer_engine tokenizer_clip_bpe = {
    .kind = TOKENIZER_CLIP_BPE,
    .open = open_bpe,
    .close = close_bpe,
    .encode = encode_clip,
};

/* ---- GPT-2 and RoBERTa ---- */

/* Where the last character of text[from, to) begins. */
static size_t last_character(const char *text, size_t from, size_t to) {
    do {
        to--;
    } while (to > from && ((uint8_t)text[to] & 0xC0) == 0x80);
    return to;
}

/* The end of the word that begins at `at`: a contraction, a run of one class with at most one space
 * before it, or white space without the last one before a word. */
static size_t byte_word_end(const struct bpe *b, const char *text, size_t size, size_t at) {
    size_t n = contraction(text + at, size - at, false);
    if (n > 0) {
        return at + n;
    }
    enum unicode_class class = class_at(b, text + at, size - at, &n);
    size_t from = at;
    if (text[at] == ' ' && at + 1 < size) {
        class = class_at(b, text + at + 1, size - at - 1, &n);
        from += class != CLASS_SPACE;
    }
    const size_t end = run_end(b, text, size, from, class);
    if (class != CLASS_SPACE || end == size) {
        return end;
    }
    const size_t last = last_character(text, at, end);
    return last > at ? last : end;
}

/* The special text at or after `at` that comes first, the longest of several; *where is its place,
 * or `size`. */
static const struct bpe_special *
next_special(const struct bpe *b, const char *text, size_t size, size_t at, size_t *where) {
    const struct bpe_special *found = NULL;
    for (*where = at; *where < size; ++*where) {
        for (size_t i = 0; i < b->special_count; i++) {
            const struct bpe_special *s = &b->specials[i];
            if (text[*where] == s->text[0] && begins(text + *where, size - *where, s->text) &&
                (!found || s->size_bytes > found->size_bytes)) {
                found = s;
            }
        }
        if (found) {
            break;
        }
    }
    return found;
}

/* Encodes text[1, size); the byte before is free. */
static enum status put_byte_words(const struct bpe *b,
                                  int32_t *out,
                                  uint32_t *out_count,
                                  char *text,
                                  size_t size,
                                  uint32_t room,
                                  struct error *err) {
    uint32_t count = 0;
    uint32_t n;
    for (size_t at = 1; at < size && count < room;) {
        size_t where;
        const struct bpe_special *special = next_special(b, text, size, at, &where);
        size_t end = where;
        while (special && special->strips_left && end > at) {
            const size_t last = last_character(text, at, end);
            size_t bytes;
            if (class_at(b, text + last, end - last, &bytes) != CLASS_SPACE) {
                break;
            }
            end = last;
        }
        if (end > at && b->prefix_space && text[at] != ' ') {
            text[--at] = ' '; /* in place of what came before */
        }
        while (at < end && count < room) {
            const size_t word = at;
            at = byte_word_end(b, text, end, at);
            TRY(put_word(b, out + count, &n, room - count, text + word, at - word, err));
            count += n;
        }
        if (!special || count == room) {
            break;
        }
        out[count++] = special->id;
        at = where + special->size_bytes;
        if (special->strips_right) {
            at = run_end(b, text, size, at, CLASS_SPACE);
        }
    }
    *out_count = count;
    return STATUS_OK;
}

static enum status encode_bytes(const struct tokenizer *t,
                                int32_t *out_ids,
                                uint32_t *out_count,
                                const char *text,
                                size_t size_bytes,
                                uint32_t max_pieces,
                                struct error *err) {
    char room[SHORT_TEXT_BYTES];
    const size_t bound = 1 + 3 * size_bytes;
    char *copy = bound <= sizeof(room) ? room : malloc(bound);
    size_t to = 1;
    TRY_MEMORY(copy, err, "tokenizer: out of memory for a text");
    for (size_t at = 0, n; at < size_bytes; at += n) {
        const uint32_t c = utf8_decode(text + at, size_bytes - at, &n);
        to += utf8_encode(copy + to, c == UTF8_NO_CHARACTER ? 0xFFFD : c);
    }
    enum status s = put_byte_words(t->model, out_ids, out_count, copy, to, max_pieces, err);
    if (copy != room) {
        free(copy);
    }
    return s;
}

const struct tokenizer_engine tokenizer_byte_bpe = {
    .kind = TOKENIZER_BYTE_BPE,
    .open = open_bpe,
    .close = close_bpe,
    .encode = encode_bytes,
};
