/*
 * blocks: the transformer blocks of every transformer tower: multi-head attention and an FFN, each
 * with a skip connection and a layer norm, forward and backward on the operator table.
 *
 *   post-norm (DistilBERT)   x0 = LN0(in);  h = LN(x + attention(x));  x' = LN(h + FFN(h))
 *   pre-norm (CLIP)          h = x + attention(LN(x));  x' = h + FFN(LN(h));  out = LN(x')
 *
 * Both are a chain of 2L + 1 norms, LN(branch + skip), with attention and FFN alternating between
 * them. They differ in the next skip: the norm's output, or its input sum. Norms are numbered 0 to
 * 2L: norm 2i precedes the attention of block i, norm 2i + 1 its FFN.
 *
 * Sequences are a list of rows, packed or padded (struct segments). With `narrow` the last block
 * continues after its attention with one row per sequence. Dropout applies to attention's
 * probabilities, the FFN's output and, post-norm, x0; its element numbers count from the start of a
 * sequence, so that a single row has the same mask as in the whole.
 *
 * q, k and v are adjacent in memory, so that one product computes all three.
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given to blocks_place.
 */
#ifndef TRAIN_MODEL_BLOCKS_H
#define TRAIN_MODEL_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/carve.h"
#include "train/model/gradients.h"
#include "train/model/params.h"

enum { BLOCKS_MAX_LAYERS = 64, BLOCKS_MAX_WIDTH = 1 << 16 };

/* Tensor names, initial values and position of the norms. */
enum blocks_style {
    BLOCKS_DISTILBERT, /* post-norm; weights normal with std 0.02, biases 0 */
    BLOCKS_CLIP_TEXT,  /* pre-norm; open_clip's transformer.resblocks.N */
    BLOCKS_CLIP_IMAGE, /* the same names, with the initial values of PyTorch's modules */
    BLOCKS_TIMM,       /* pre-norm; timm's blocks.N; weights normal with std 0.02, biases 0 */
};

struct blocks_options {
    enum blocks_style style;
    const char *outer_norm; /* module of norm 0 (post-norm) or 2L (pre-norm) */
    int32_t layers;         /* L >= 1 */
    int32_t dim;            /* D, a multiple of heads */
    int32_t heads;          /* >= 1 */
    int32_t ffn_dim;        /* F >= 1 */
    int32_t max_tokens;     /* largest T */
    int32_t max_batch;      /* largest N */
    float eps;              /* of norms */
    float dropout;          /* [0, 1) */
    enum activation act;    /* a GELU */
    bool causal;            /* a row attends to itself and the rows before it */
    bool narrow;
    bool training; /* false: no backward, blocks share one set of buffers */
};

struct blocks;

/* Adds the tensors to `p`, borrowed until destroy. `what` ("text tower") begins messages; borrowed.
 * Returns OK, NOMEM, LIMIT, EXISTS (from the table) or USAGE (an option out of range). */
enum status blocks_create(struct blocks **out,
                          struct params *p,
                          const struct blocks_options *opt,
                          const char *what,
                          struct error *err);
void blocks_destroy(struct blocks *b); /* accepts NULL */

/* What forward keeps per block for the backward pass, in units of M D numbers if F = 4 D. ALL: 16;
 * PRODUCTS: 10, and norms and GELUs are recomputed, without matrix products (requires the operator
 * gelu); SUMS: 1, the sum at the block's input, and the whole block is recomputed. Results are
 * bit-identical. */
enum blocks_keep { BLOCKS_KEEP_ALL, BLOCKS_KEEP_PRODUCTS, BLOCKS_KEEP_SUMS };

/* The models' choice: with recompute SUMS; else PRODUCTS in host memory, and ALL on a GPU, where
 * recomputing norms and GELUs costs a larger part of a step. */
static inline enum blocks_keep blocks_keep_of(bool recompute, bool host_memory) {
    return recompute ? BLOCKS_KEEP_SUMS : host_memory ? BLOCKS_KEEP_PRODUCTS : BLOCKS_KEEP_ALL;
}

/* frozen 1 + k: only block k and later ones have gradients; default 0: all. keep: default ALL.
 * Before placement. */
void blocks_set_backward(struct blocks *b, int32_t frozen, enum blocks_keep keep);

/* As resnet_place. */
void blocks_place(struct blocks *b,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *workspace);

/* One pass. */
struct blocks_batch {
    struct segments segments; /* N sequences, N <= max_batch */
    int64_t rows;             /* M, N <= M <= max_batch max_tokens */
    int64_t longest;          /* T <= max_tokens, the longest sequence */
    struct tensor picked;     /* (N) i32 on the device: rows kept by a narrow last block */
    /* Keys of dropout, on the device; read if it is active, also in the backward pass. */
    const uint64_t *sample_ids; /* (N) */
    const struct step_values *values;
    uint64_t seed;
};

/* Memory for the (M, D) input of the next forward. */
struct tensor blocks_input(const struct blocks *b, int64_t rows);

/* *out (N, D) if narrow, else (M, D): a view until the next forward. Returns OK or what the device
 * returns. */
enum status blocks_forward(struct blocks *b,
                           struct tensor *out,
                           const struct blocks_batch *batch,
                           bool training,
                           struct error *err);

/* After a training forward of the same batch: gradients of all parameters, set or added by mode;
 * each block, except norm 0, is reported to `sums` (gradients_final; may be NULL). With `frozen`
 * only from block k on, and *din and *spare are undefined. dout is shaped as out, and not written
 * unless it is blocks_gradient(b). *din (M, D) is the input's gradient, *spare (M, D) free memory,
 * both until the next call. */
enum status blocks_backward(struct blocks *b,
                            struct tensor *din,
                            struct tensor *spare,
                            const struct tensor *dout,
                            const struct blocks_batch *batch,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err);

/* Memory of the backward pass in which the caller may compute dout: (M, D). */
struct tensor blocks_gradient(const struct blocks *b, int64_t rows);

/* A layer norm, also outside the blocks. */
struct norm {
    int32_t gamma, beta;
    struct tensor sum;        /* (R, D) its input, kept */
    struct tensor mean, rstd; /* (R) */
};

/* Adds MODULE.weight (D), ones, and MODULE.bias (D), zeros. */
enum status
norm_add(struct norm *n, struct params *p, const char *module, int64_t d, struct error *err);
void norm_place(struct norm *n, struct carve *c, enum dtype dtype, int64_t rows, int64_t d);

/* out (R, D) = LN(sum), sum = n->sum + b; b may be omitted. */
enum status norm_forward(const struct norm *n,
                         struct device *dev,
                         const struct params *p,
                         struct tensor out,
                         struct tensor b,
                         float eps,
                         struct error *err);

/* dsum (R, D) is set or added by dsum_mode, parameters' gradients by mode. */
enum status norm_backward(const struct norm *n,
                          struct device *dev,
                          const struct params *p,
                          struct tensor dsum,
                          enum write_mode dsum_mode,
                          struct tensor dout,
                          enum write_mode mode,
                          struct error *err);

#endif
