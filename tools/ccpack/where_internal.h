/*
 * where_internal: a parsed condition: an array of nodes; a node's operands precede it.
 */
#ifndef TOOLS_CCPACK_WHERE_INTERNAL_H
#define TOOLS_CCPACK_WHERE_INTERNAL_H

#include "formats/base/bytes.h"
#include "tools/ccpack/where.h"

#define META "meta."

enum { MAX_WORD_BYTES = 512 };

enum node_kind { NODE_OR, NODE_AND, NODE_NOT, NODE_NUMBER, NODE_TEXT };
enum operator{ OP_LESS, OP_AT_MOST, OP_MORE, OP_AT_LEAST, OP_EQUAL, OP_OTHER, OP_LIKE, OP_COUNT };

enum number_fact {
    NUMBER_ID,
    NUMBER_WIDTH,
    NUMBER_HEIGHT,
    NUMBER_SHORTER,
    NUMBER_LONGER,
    NUMBER_ASPECT,
    NUMBER_CAPTIONS,
    NUMBER_IMAGE_BYTES,
    NUMBER_LABEL,
    NUMBER_CAPTION_BYTES,
    NUMBER_CAPTION_CHARS,
    NUMBER_META, /* field node.name */
    NUMBER_HASH, /* likewise, modulo node.modulus */
    NUMBER_COUNT
};

enum text_fact {
    TEXT_FORMAT,
    TEXT_CLASS,
    TEXT_KEY,
    TEXT_CAPTION,
    TEXT_HASH,
    TEXT_META,
    TEXT_COUNT
};

struct node {
    enum node_kind kind;
    int32_t left, right; /* of OR, AND and NOT (only left): indices of nodes */
    int32_t fact;        /* NUMBER: enum number_fact, then columns; TEXT: enum text_fact */
    enum operator op;
    double number; /* operand; a percentage until where_rank_end */
    bool ranked;
    uint64_t modulus;
    char *text, *name; /* owned; name: a metadata field, or hash()'s operand */
};

struct where {
    struct columns *columns;
    struct node nodes[WHERE_MAX_NODES];
    int32_t count;                             /* the last one is the root */
    struct byte_buffer ranks[WHERE_MAX_NODES]; /* ranked nodes: doubles */
};

#endif
