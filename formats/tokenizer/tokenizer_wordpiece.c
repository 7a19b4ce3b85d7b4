/*
 * BERT's WordPiece as an engine of tokenizer.h. The vocabulary is a text with one piece per line;
 * the line number is the piece's id. A word is split from the left into the longest pieces; those
 * after the first come from the pieces that begin with ##. If no piece fits, the whole word is the
 * unknown piece.
 *
 * One tree holds all pieces: those that continue a word are the branch below "##". Because # is
 * punctuation, no word but "#" itself can reach it. The nodes of the tree lie level
 * by level, so that the children of a node are neighbours, sorted by their byte:
 *
 *     pieces: a  an  at  to         [0] root -> [1] a -> [3] n*  [4] t*      * ends a piece
 *                                             [2] t -> [5] o*
 *
 * Building goes through the sorted pieces: a node stands for a range of them, which its next byte
 * splits into the ranges of its children. A node's children are found by halving; where a node has
 * many, as the two that words begin at, a table of 256 says it at once. Pieces may be any bytes and
 * come in any order; time and memory grow with their bytes (12 bytes a node), whatever they are.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/status.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer_internal.h"
#include "formats/tokenizer/tokenizer_words_internal.h"

/* ---- the tree ---- */

struct trie_piece {
    const char *text;
    uint32_t size_bytes; /* at least 1 */
    int32_t id;
};

enum { TRIE_ROOT = 0 };

enum { TRIE_MAX_BYTES = 1 << 28, TRIE_MAX_TABLES = 64, TRIE_TABLE_CHILDREN = 24 };

struct trie_node {
    uint32_t first_child;
    int32_t id; /* -1: ends no piece */
    uint16_t child_count;
    uint8_t byte;
    uint8_t table; /* 0: none; else index + 1 */
};

struct trie {
    struct trie_node *nodes;
    uint32_t node_count;
    uint32_t table_count;
    uint32_t tables[TRIE_MAX_TABLES][256]; /* child for each byte; 0: none, as the root is none's */
};

/* The pieces that go through a node. */
struct trie_range {
    uint32_t begin, end;
    uint32_t depth;
};

static int compare_pieces(const void *a, const void *b) {
    const struct trie_piece *x = a;
    const struct trie_piece *y = b;
    size_t n = x->size_bytes < y->size_bytes ? x->size_bytes : y->size_bytes;
    int order = memcmp(x->text, y->text, n);
    if (order != 0) {
        return order;
    }
    if (x->size_bytes != y->size_bytes) {
        return x->size_bytes < y->size_bytes ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Each piece adds a node for every byte that it does not share with the one before it. */
static uint64_t count_nodes(const struct trie_piece *pieces, size_t count) {
    uint64_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        uint32_t shared = 0;
        if (i > 0) {
            const struct trie_piece *before = &pieces[i - 1];
            while (shared < before->size_bytes && shared < pieces[i].size_bytes &&
                   before->text[shared] == pieces[i].text[shared]) {
                shared++;
            }
        }
        nodes += pieces[i].size_bytes - shared;
    }
    return nodes;
}

static void make_table(struct trie *t, struct trie_node *node) {
    if (node->child_count >= TRIE_TABLE_CHILDREN && t->table_count < TRIE_MAX_TABLES) {
        uint32_t *table = t->tables[t->table_count++];
        memset(table, 0, sizeof(t->tables[0]));
        node->table = (uint8_t)t->table_count;
        for (uint32_t i = 0; i < node->child_count; i++) {
            table[t->nodes[node->first_child + i].byte] = node->first_child + i;
        }
    }
}

static void build(struct trie *t, struct trie_range *ranges, const struct trie_piece *pieces) {
    for (uint32_t i = 0; i < t->node_count; i++) {
        struct trie_node *node = &t->nodes[i];
        struct trie_range r = ranges[i];
        node->first_child = t->node_count;
        while (r.begin < r.end && pieces[r.begin].size_bytes == r.depth) {
            node->id = pieces[r.begin++].id;
        }
        while (r.begin < r.end) {
            uint8_t byte = (uint8_t)pieces[r.begin].text[r.depth];
            uint32_t begin = r.begin;
            while (r.begin < r.end && (uint8_t)pieces[r.begin].text[r.depth] == byte) {
                r.begin++;
            }
            t->nodes[t->node_count] = (struct trie_node){.id = -1, .byte = byte};
            ranges[t->node_count] = (struct trie_range){begin, r.begin, r.depth + 1};
            t->node_count++;
            node->child_count++;
        }
        make_table(t, node);
    }
}

static void trie_destroy(struct trie *t) {
    if (t) {
        free(t->nodes);
        free(t);
    }
}

/* Sorts `pieces`, which stay the caller's; of equal ones the largest id counts. Returns OK, NOMEM
 * or LIMIT (2^28 bytes in all). */
static enum status
trie_create(struct trie **out, struct trie_piece *pieces, size_t count, struct error *err) {
    *out = NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].size_bytes;
    }
    FAIL_IF(bytes > TRIE_MAX_BYTES || count > TRIE_MAX_BYTES, err, STATUS_LIMIT,
            "tokenizer: the vocabulary's pieces have too many bytes");
    if (count > 0) {
        qsort(pieces, count, sizeof(*pieces), compare_pieces);
    }
    size_t nodes = (size_t)count_nodes(pieces, count);
    struct trie *t = calloc(1, sizeof(*t));
    struct trie_range *ranges = malloc(nodes * sizeof(*ranges));
    if (t) {
        t->nodes = malloc(nodes * sizeof(*t->nodes));
    }
    if (!t || !t->nodes || !ranges) {
        free(ranges);
        trie_destroy(t);
        return error_set(err, STATUS_NOMEM, "tokenizer: out of memory for the vocabulary");
    }
    t->nodes[0] = (struct trie_node){.id = -1};
    ranges[0] = (struct trie_range){0, (uint32_t)count, 0};
    t->node_count = 1;
    build(t, ranges, pieces);
    free(ranges);
    *out = t;
    return STATUS_OK;
}

/* The child of a node for a byte; 0: none. */
static uint32_t child(const struct trie *t, uint32_t parent, uint8_t byte) {
    const struct trie_node *node = &t->nodes[parent];
    if (node->table) {
        return t->tables[node->table - 1][byte];
    }
    uint32_t low = node->first_child;
    uint32_t high = low + node->child_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint8_t here = t->nodes[middle].byte;
        if (here == byte) {
            return middle;
        }
        if (here < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

/* The node of `prefix`, from which a walk can continue; UINT32_MAX: no piece begins with it. */
static uint32_t trie_node(const struct trie *t, const char *prefix, size_t size_bytes) {
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < size_bytes; i++) {
        node = child(t, node, (uint8_t)prefix[i]);
        if (node == 0) {
            return UINT32_MAX;
        }
    }
    return node;
}

/* The id of the longest piece, its prefix aside, that `text` begins with from `node` on, and its
 * bytes, at least 1; -1 when there is none. */
static int32_t trie_longest(const struct trie *t,
                            uint32_t node,
                            const char *text,
                            uint32_t size_bytes,
                            uint32_t *piece_bytes) {
    int32_t id = -1;
    for (uint32_t i = 0; i < size_bytes; i++) {
        node = child(t, node, (uint8_t)text[i]);
        if (node == 0) {
            break;
        }
        if (t->nodes[node].id >= 0) {
            id = t->nodes[node].id;
            *piece_bytes = i + 1;
        }
    }
    return id;
}

/* ---- the engine ---- */

enum {
    MAX_VOCABULARY_BYTES = 4 << 20,
    MAX_PIECE_BYTES = WORDS_MAX_BYTES + 2, /* longer ones cannot be part of a word */
};

static const char *const special_names[WORDS_MAX_SPECIALS] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]",
                                                              "[MASK]"};

struct wordpiece {
    struct trie *trie;
    uint32_t rest; /* node of "##"; UINT32_MAX: no piece continues a word */
    int32_t unk_id;
    struct special_piece specials[WORDS_MAX_SPECIALS];
    size_t special_count;
    struct char_map map;
};

static void close_wordpiece(void *model) {
    struct wordpiece *w = model;
    trie_destroy(w->trie);
    free(w);
}

/* The lines as a tree; t->vocab_count gets their number. */
static enum status make_trie(struct wordpiece *w, struct tokenizer *t, struct error *err) {
    const char *end = (const char *)t->bytes + t->size_bytes;
    uint32_t count = 0;
    for (const char *p = (const char *)t->bytes; p < end; count++) {
        (void)tokenizer_line(&p, end);
    }
    FAIL_IF(count > TOKENIZER_MAX_VOCAB, err, STATUS_LIMIT,
            "tokenizer: vocabulary of %u pieces, the limit is %d", count, TOKENIZER_MAX_VOCAB);
    struct trie_piece *pieces = malloc(count * sizeof(*pieces));
    TRY_MEMORY(pieces, err, "tokenizer: out of memory for the vocabulary");
    size_t used = 0;
    const char *p = (const char *)t->bytes;
    for (uint32_t i = 0; i < count; i++) {
        const char *text = p;
        size_t n = tokenizer_line(&p, end);
        if (n > 0 && n <= MAX_PIECE_BYTES) {
            pieces[used++] = (struct trie_piece){text, (uint32_t)n, (int32_t)i};
        }
    }
    enum status s = trie_create(&w->trie, pieces, used, err);
    free(pieces);
    if (s == STATUS_OK) {
        w->rest = trie_node(w->trie, "##", 2);
        t->vocab_count = count;
    }
    return s;
}

/* The id of a whole piece; -1: not in the vocabulary. */
static int32_t find(const struct wordpiece *w, const char *piece) {
    uint32_t n = 0;
    uint32_t size = (uint32_t)strlen(piece);
    int32_t id = trie_longest(w->trie, TRIE_ROOT, piece, size, &n);
    return n == size ? id : -1;
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
            "tokenizer: the vocabulary is no UTF-8 from byte %zu on", valid);
    struct wordpiece *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "tokenizer: out of memory for the vocabulary");
    enum status s = make_trie(w, t, err);
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
    uint32_t node = TRIE_ROOT;
    for (uint32_t at = 0; at < word->size_bytes;) {
        uint32_t n = 0;
        int32_t id = node == UINT32_MAX
                         ? -1
                         : trie_longest(w->trie, node, word->text + at, word->size_bytes - at, &n);
        if (id < 0) {
            out[0] = w->unk_id;
            return 1;
        }
        if (count < room) {
            out[count++] = id;
        }
        at += n;
        node = w->rest;
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
