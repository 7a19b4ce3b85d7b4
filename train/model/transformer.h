/*
 * transformer: text towers: token and position embeddings, the blocks of blocks.h, and a pool.
 *
 *   TRANSFORMER_DISTILBERT  post-norm, eps 1e-12, GELU, not causal; Hugging Face's names
 *                           (embeddings.word_embeddings.weight, transformer.layer.0...); normal
 *                           initial values with std 0.02
 *   TRANSFORMER_CLIP        pre-norm, eps 1e-5, causal; open_clip's names (token_embedding.weight,
 *                           transformer.resblocks.0..., ln_final) and initial values; SigLIP's
 *                           (`whole`): not causal, eps 1e-6
 *
 * Position embeddings are learned; keys beyond a caption's length are masked. The features are one
 * row of each caption, for which alone the last block then computes its FFN, or the mean over the
 * caption's rows (enum transformer_pool). Captions are a list of rows, packed or padded; the
 * results are the same.
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given at placement.
 */
#ifndef TRAIN_MODEL_TRANSFORMER_H
#define TRAIN_MODEL_TRANSFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/blocks.h"
#include "train/model/carve.h"
#include "train/model/gradients.h"
#include "train/model/params.h"

enum { TRANSFORMER_MAX_BATCH = 1 << 20 };

enum transformer_kind { TRANSFORMER_DISTILBERT, TRANSFORMER_CLIP };

enum transformer_pool {
    TRANSFORMER_POOL_FIRST, /* the first token's row */
    TRANSFORMER_POOL_MEAN,  /* the mean of the caption's rows */
    TRANSFORMER_POOL_END,   /* the row of the end token */
    TRANSFORMER_POOL_LAST,  /* the last row, even if padding */
    TRANSFORMER_POOL_COUNT
};

/* "first", "mean", "end", "last"; then NULL. */
extern const char *const TRANSFORMER_POOL_NAMES[TRANSFORMER_POOL_COUNT + 1];

struct transformer_options {
    enum transformer_kind kind;
    int32_t layers;         /* >= 1 */
    int32_t dim;            /* D, a multiple of heads */
    int32_t heads;          /* >= 1 */
    int32_t ffn_dim;        /* >= 1 */
    int32_t vocab_count;    /* V; must be set */
    int32_t position_count; /* rows of the position table, >= max_tokens; 0: max_tokens */
    int32_t max_tokens;     /* largest T; default 30 */
    int32_t max_batch;      /* largest N */
    float dropout;          /* [0, 1); default 0.1 */
    enum activation act;    /* a GELU */
    enum transformer_pool pool;
    bool whole; /* SigLIP's: every caption has max_tokens rows, including padding, without mask */
    bool training; /* false: no backward, blocks share one set of buffers */
};

/* Fills *opt for "distil" (6 layers of 768, 12 heads, FFN 3072, 512 positions), "small" (4 x 384, 6
 * heads) or "tiny" (2 x 192, 3 heads): DistilBERT's kind, dropout 0.1, 30 tokens, batch 1,
 * training; vocab_count is 0. Returns OK or USAGE (unknown name; the message lists the names). */
enum status
transformer_preset(struct transformer_options *opt, const char *name, struct error *err);

struct transformer;

/* Adds the tower's tensors to `p`, which is borrowed until destroy. Returns OK, NOMEM, LIMIT,
 * EXISTS (from the table) or USAGE (an option out of range). */
enum status transformer_create(struct transformer **out,
                               struct params *p,
                               const struct transformer_options *opt,
                               struct error *err);
void transformer_destroy(struct transformer *t); /* accepts NULL */

/* As vit_set_backward. */
void transformer_set_backward(struct transformer *t, int32_t frozen, enum blocks_keep keep);

/* As resnet_place. */
void transformer_place(struct transformer *t,
                       struct device *dev,
                       enum dtype dtype,
                       struct carve *kept,
                       struct carve *workspace);

/* A batch of captions. */
struct transformer_batch {
    struct tensor tokens;  /* (R) i32 on the device, N <= R <= max_batch max_tokens */
    struct tensor starts;  /* (N) i32 on the device, first row of each, N <= max_batch */
    struct tensor lengths; /* (N) i32 on the device, each in [1, T]; see struct segments */
    struct tensor ends;    /* (N) i32 on the device, row of each end token; for POOL_END, _LAST */
    int64_t longest;       /* T <= max_tokens, the longest caption */
    /* Keys of dropout, on the device; read if it is active, also in the backward pass. */
    const uint64_t *sample_ids; /* (N) */
    const struct step_values *values;
    uint64_t seed;
};

/* training: dropout is active; requires options.training. *features (N, D) is a view until the next
 * forward. Returns OK or what the device returns. */
enum status transformer_forward(struct transformer *t,
                                struct tensor *features,
                                const struct transformer_batch *batch,
                                bool training,
                                struct error *err);

/* After a training forward of the same batch: gradients of all parameters, set or added by mode,
 * each layer reported to `sums` (gradients_final; may be NULL). dfeatures (N, D). */
enum status transformer_backward(struct transformer *t,
                                 const struct tensor *dfeatures,
                                 const struct transformer_batch *batch,
                                 enum write_mode mode,
                                 struct gradients *sums,
                                 struct error *err);

#endif
