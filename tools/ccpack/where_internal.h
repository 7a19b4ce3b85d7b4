/*
 * where_internal: a parsed condition: nodes in one array; a node's operands stand before it.
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
    NUMBER_META, /* of node.name */
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
    int32_t left, right; /* of OR, AND and NOT (left alone): indices of nodes */
    int32_t fact;        /* NUMBER: of `numbers`, then of columns; TEXT: enum text_fact */
    enum operator op;
    double number; /* to compare with; a percentage until where_rank_end */
    bool ranked;
    uint64_t modulus;
    char *text, *name; /* owned; name: of a member of the metadata, or what hash() is of */
};

struct where {
    struct columns *columns;
    struct node nodes[WHERE_MAX_NODES];
    int32_t count;                             /* the last one is the root */
    struct byte_buffer ranks[WHERE_MAX_NODES]; /* of ranked nodes: doubles */
};

#endif
