/*
 * Shared by blocks.c (description and memory) and blocks_pass.c (forward and backward).
 *
 * Shapes in comments: N sequences of at most T tokens in M rows, D the model's width, F the FFN's,
 * H heads. R is N in the last block of a narrow stack, after its attention, else M.
 */
#ifndef TRAIN_MODEL_BLOCKS_INTERNAL_H
#define TRAIN_MODEL_BLOCKS_INTERNAL_H

#include "train/model/blocks.h"

struct affine {
    int32_t weight, bias; /* indices in the table */
};

struct block {
    struct affine qkv; /* (3D, D), (3D); with DistilBERT's names q, followed by k and v */
    struct affine out, lin1, lin2;
    int32_t first; /* index of its first tensor */

    struct tensor qkv_rows; /* (M, 3D) */
    struct tensor lse;      /* (N, H, T), attention's log-sum-exp */
    struct tensor context;  /* (M, D) */
    struct tensor picked;   /* (R, D) rows of context; only in a narrow block */
    struct tensor skipped;  /* (R, D) rows of the skip; only in a narrow block */
    struct tensor h;        /* (R, D) input of the FFN */
    struct tensor pre;      /* (R, F) before the activation */
    struct tensor hidden;   /* (R, F) after it; if recomputed, as h and x may be, dpre's memory */
    struct tensor x;        /* (R, D) output of norm 2i + 2 */
};

struct blocks {
    struct params *params;
    struct blocks_options opt;
    int32_t frozen;        /* of blocks_set_backward */
    enum blocks_keep keep; /* ALL unless training */
    struct device *dev;    /* NULL before placement */
    struct block *list;
    struct norm *norms; /* 2L + 1 */

    struct tensor x;          /* (M, D) output of norm 0 */
    struct tensor grad[3];    /* (M, D) workspace of the backward pass */
    struct tensor dffn, dpre; /* (M, F) */
    struct tensor dqkv;       /* (M, 3D), in the memory of dpre */
};

static inline bool blocks_post_norm(const struct blocks *b) {
    return b->opt.style == BLOCKS_DISTILBERT;
}

/* Whether block i continues with one row per sequence. */
static inline bool blocks_is_narrow(const struct blocks *b, int32_t i) {
    return b->opt.narrow && i + 1 == b->opt.layers;
}

#endif
