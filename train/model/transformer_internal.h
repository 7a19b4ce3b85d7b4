/*
 * What transformer.c (description and memory) and transformer_pass.c (forward and backward) share.
 *
 * Shapes in comments: N captions of at most T tokens in M rows, D the model's width, F the FFN's,
 * H heads. Where the first token is all that is asked for, only row 0 of each caption continues
 * after the last block's attention, so there R = N; everywhere else R = M.
 */
#ifndef TRAIN_MODEL_TRANSFORMER_INTERNAL_H
#define TRAIN_MODEL_TRANSFORMER_INTERNAL_H

#include "train/model/carve.h"
#include "train/model/transformer.h"

struct affine {
    int32_t weight, bias; /* indices in the table */
};

struct norm {
    int32_t gamma, beta;
    struct tensor sum;        /* (R, D) what goes in, kept */
    struct tensor mean, rstd; /* (R) */
};

struct layer {
    struct affine q, k, v; /* side by side: one (3D, D) weight, one (3D) bias */
    struct affine out, lin1, lin2;
    struct norm attention_norm, output_norm;

    struct tensor qkv;     /* (M, 3D) */
    struct tensor probs;   /* (N, H, T, T) */
    struct tensor context; /* (M, D) */
    struct tensor picked;  /* (R, D) rows of context; only in the last block */
    struct tensor skipped; /* (R, D) rows of x; only in the last block */
    struct tensor h;       /* (R, D) after the first norm */
    struct tensor pre;     /* (R, F) before GELU */
    struct tensor hidden;  /* (R, F) after it */
    struct tensor x;       /* (R, D) after the second norm */
};

struct transformer {
    struct params *params;
    struct transformer_options opt;
    struct device *dev; /* NULL before attach */
    int32_t words, positions;
    struct norm embedding_norm;
    struct layer *layers;

    struct tensor x;          /* (M, D) into the first block */
    struct tensor pooled;     /* (N, D) means; not for the first token */
    struct tensor grad[3];    /* (M, D) scratch of the backward pass */
    struct tensor dffn, dpre; /* (M, F) */
    struct tensor dqkv;       /* (M, 3D) */
};

#endif
