/*
 * blocks: the stack of transformer blocks under every tower that is a transformer: multi-head
 * attention and an FFN, each with a skip and a layer norm, forward and backward by hand over the
 * operator table.
 *
 *   post-norm (DistilBERT)   x0 = LN0(in);  h = LN(x + attention(x));  x' = LN(h + FFN(h))
 *   pre-norm (CLIP)          h = x + attention(LN(x));  x' = h + FFN(LN(h));  out = LN(x')
 *
 * Both are one chain of 2L + 1 norms, LN(branch + skip), with attention and FFN in turn between
 * them. They differ in what the next skip is: the norm's output, or the sum that goes into it.
 * The norms are 0 to 2L: before the attention of block i lies norm 2i, before its FFN norm 2i + 1.
 *
 * Sequences lie in a list of rows, packed or padded (struct segments). With `narrow` the last block
 * continues after its attention with one row of each sequence. Dropout is on attention's
 * probabilities, on the FFN's output and, post-norm, on x0; its element numbers count from the
 * start of a sequence, so that the masks of one row are those of the whole.
 *
 * q, k and v lie side by side in memory, so that one product makes all three.
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given at placement.
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

/* Names of the tensors, initial values, and where the norms are. */
enum blocks_style {
    BLOCKS_DISTILBERT, /* post-norm; weights normal with deviation 0.02, biases 0 */
    BLOCKS_CLIP_TEXT,  /* pre-norm; open_clip's transformer.resblocks.N */
    BLOCKS_CLIP_IMAGE, /* the same names, with the initial values of PyTorch's modules */
    BLOCKS_TIMM,       /* pre-norm; timm's blocks.N; weights normal with deviation 0.02, biases 0 */
};

struct blocks_options {
    enum blocks_style style;
    const char *outer_norm; /* module of norm 0 (post-norm) or 2L (pre-norm) */
    int32_t layers;         /* L >= 1 */
    int32_t dim;            /* D, a multiple of heads */
    int32_t heads;          /* >= 1 */
    int32_t ffn_dim;        /* F >= 1 */
    int32_t max_tokens;     /* T at most */
    int32_t max_batch;      /* N at most */
    float eps;              /* of norms */
    float dropout;          /* [0, 1) */
    enum activation act;    /* a GELU */
    bool causal;            /* a row sees itself and the rows before it */
    bool narrow;
    bool training; /* false: no backward, blocks share one set of buffers */
};

struct blocks;

/* Adds the tensors to `p`, which is borrowed until destroy. `what` ("text tower") begins messages;
 * borrowed. Returns OK, NOMEM, LIMIT, EXISTS (from the table) or USAGE (an option out of range). */
enum status blocks_create(struct blocks **out,
                          struct params *p,
                          const struct blocks_options *opt,
                          const char *what,
                          struct error *err);
void blocks_destroy(struct blocks *b); /* accepts NULL */

/* What forward keeps of each block for the backward pass, of M D numbers (F 4 D): all 16; those 10
 * that need no matrix product, where the backward pass makes norms and GELUs again (the device has
 * the operator gelu); or 1 (post-norm and pre-norm alike the input's sum), where it computes the
 * whole block again. The same numbers come of all three. */
enum blocks_keep { BLOCKS_KEEP_ALL, BLOCKS_KEEP_PRODUCTS, BLOCKS_KEEP_SUMS };

/* The default of models: with recompute SUMS; else PRODUCTS in host memory, and ALL on a GPU, where
 * memory passes cost more of a step. */
static inline enum blocks_keep blocks_keep_of(bool recompute, bool host_memory) {
    return recompute ? BLOCKS_KEEP_SUMS : host_memory ? BLOCKS_KEEP_PRODUCTS : BLOCKS_KEEP_ALL;
}

/* frozen 1 + k: nothing before block k has a gradient; 0, the default: all has. keep is ALL by
 * default. Before placement. */
void blocks_set_backward(struct blocks *b, int32_t frozen, enum blocks_keep keep);

/* As resnet_place. */
void blocks_place(struct blocks *b,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *scratch);

/* One pass. */
struct blocks_batch {
    struct segments segments; /* N sequences, N <= max_batch */
    int64_t rows;             /* M, N <= M <= max_batch max_tokens */
    int64_t longest;          /* T <= max_tokens, no shorter than any */
    struct tensor picked;     /* (N) i32 on the device: the rows that a narrow last block keeps */
    /* Keys of dropout, on the device; read where it is active, in the backward pass too. */
    const uint64_t *sample_ids; /* (N) */
    const struct step_values *values;
    uint64_t seed;
};

/* Where the (M, D) input of the next forward goes. */
struct tensor blocks_input(const struct blocks *b, int64_t rows);

/* *out (N, D) where narrow, else (M, D): a view until the next forward. Returns OK or what the
 * device returns. */
enum status blocks_forward(struct blocks *b,
                           struct tensor *out,
                           const struct blocks_batch *batch,
                           bool training,
                           struct error *err);

/* After a training forward of the same batch: gradients of all parameters, set or added by mode,
 * each block reported to `sums` but for norm 0 (gradients_final; may be NULL). With `frozen` of the
 * parameters from block k on, and *din and *spare are of no use. dout is as out, and
 * not written unless it is blocks_gradient(b). *din (M, D) is the input's gradient, *spare (M, D)
 * memory, both until the next call. */
enum status blocks_backward(struct blocks *b,
                            struct tensor *din,
                            struct tensor *spare,
                            const struct tensor *dout,
                            const struct blocks_batch *batch,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err);

/* Memory of the backward pass that a caller may make dout in: (M, D). */
struct tensor blocks_gradient(const struct blocks *b, int64_t rows);

/* LN(in), instead of what b keeps of it: also for norms outside the stack. */
struct norm {
    int32_t gamma, beta;
    struct tensor sum;        /* (R, D) what goes in, kept */
    struct tensor mean, rstd; /* (R) */
};

/* MODULE.weight (D) ones and MODULE.bias (D). */
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

/* dsum (R, D) is set or added to, parameters by mode. */
enum status norm_backward(const struct norm *n,
                          struct device *dev,
                          const struct params *p,
                          struct tensor dsum,
                          enum write_mode dsum_mode,
                          struct tensor dout,
                          enum write_mode mode,
                          struct error *err);

#endif
