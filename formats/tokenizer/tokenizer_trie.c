/*
 * Nodes lie level by level, so that the children of a node are neighbours, sorted by their byte:
 *
 *     pieces: a  an  at  to         [0] root -> [1] a -> [3] n*  [4] t*      * ends a piece
 *                                             [2] t -> [5] o*
 *
 * Building goes through the sorted pieces: a node stands for a range of them, which its next byte
 * splits into the ranges of its children. A node's children are found by halving; where a node has
 * many, as the two that words begin at, a table of 256 says it at once.
 */
#include "formats/tokenizer/tokenizer_trie_internal.h"

#include <stdlib.h>
#include <string.h>

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

enum status
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

void trie_destroy(struct trie *t) {
    if (t) {
        free(t->nodes);
        free(t);
    }
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

uint32_t trie_node(const struct trie *t, const char *prefix, size_t size_bytes) {
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < size_bytes; i++) {
        node = child(t, node, (uint8_t)prefix[i]);
        if (node == 0) {
            return UINT32_MAX;
        }
    }
    return node;
}

int32_t trie_longest(const struct trie *t,
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
