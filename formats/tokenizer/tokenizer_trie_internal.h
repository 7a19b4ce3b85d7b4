/*
 * tokenizer_trie_internal: the pieces of a vocabulary as a tree of bytes, to find the longest piece
 * that a text begins with in one walk.
 *
 * Threading : immutable after create. Ownership: copies what it needs.
 * Untrusted : pieces may be any bytes and come in any order; time and memory grow with their bytes
 *             (12 bytes a node), whatever the pieces are.
 */
#ifndef FORMATS_TOKENIZER_TOKENIZER_TRIE_INTERNAL_H
#define FORMATS_TOKENIZER_TOKENIZER_TRIE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct trie_piece {
    const char *text;
    uint32_t size_bytes; /* at least 1 */
    int32_t id;
};

struct trie; /* opaque */

enum { TRIE_ROOT = 0 };

/* Sorts `pieces`, which stay the caller's; of equal ones the largest id counts. Returns OK, NOMEM
 * or LIMIT (2^28 bytes in all). */
enum status
trie_create(struct trie **out, struct trie_piece *pieces, size_t count, struct error *err);
void trie_destroy(struct trie *t); /* accepts NULL */

/* The node of `prefix`, from which a walk can continue; UINT32_MAX: no piece begins with it. */
uint32_t trie_node(const struct trie *t, const char *prefix, size_t size_bytes);

/* The id of the longest piece, its prefix aside, that `text` begins with from `node` on, and its
 * bytes, at least 1; -1 when there is none. */
int32_t trie_longest(const struct trie *t,
                     uint32_t node,
                     const char *text,
                     uint32_t size_bytes,
                     uint32_t *piece_bytes);

#endif
