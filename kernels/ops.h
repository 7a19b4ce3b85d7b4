/*
 * ops: the interface between models and devices: a flat table of operators, each backward pass next
 * to its forward pass. No graph, no autograd. `cpu-ref` is the specification, `cpu` and `cuda` are
 * the fast backends.
 *
 * An operator has one struct of arguments of the same name:
 *
 *     ops->linear(dev, &(struct linear){.out = out, .in = in, .weight = weight}, err)
 *
 * OPS_LIST names the operators; operands.h describes the tensors of each.
 *
 * Threading : a struct device has one owner; distinct devices are independent.
 * Ownership : tensors are views. Memory comes from alloc and goes back through free. An argument
 *             struct is read during the call only, its tensors' memory until the work is done.
 * Order     : calls on one device run in order. download and sync wait for them, and calls with a
 *             batch_norm_group for the other ranks; on a GPU alloc, free, an upload from memory
 *             that is not pinned and an operator whose workspace grows may wait too.
 * Layout    : dense row-major. Images are (N,H,W,C); convolution weights (O,KH,KW,I); linear
 *             weights (OUT,IN).
 * Optional  : operands marked OPTIONAL may be omitted: a zero field.
 * Types     : one real type per call, that of its first REAL operand that is not optional (mostly
 *             `out`), or of an optimiser's `value`: F32, BF16, or F64 (only cpu-ref, for finite
 *             differences). In a BF16 call activations and their gradients (in, out, pre, residual,
 *             sum, qkv, din, dout, ...) have that type, and so have weight, table and positions,
 *             which are working copies; vectors of parameters and statistics (gamma, beta, bias,
 *             mean, rstd, running_*, norm) and all gradients of parameters are F32. Sums are taken
 *             in f32 or wider; a result is rounded once, to nearest even, when it is stored; later
 *             stages read the stored values (pre, sum, dpre). Exceptions are stated at the
 *             operator. A device returns UNSUPPORTED for a type it lacks, as does `supports`.
 * Checks    : types, shapes, numbers and, in host memory, indices and captions are checked before
 *             anything is written: INVALID, with a message that names the operand and both shapes.
 *             On a GPU kernels find wrong indices and captions, and stay within bounds; the next
 *             sync, download or wait (device_stream.h) returns INVALID.
 * Gradients : WRITE_SET overwrites, WRITE_ADD adds to what is there. Reductions have a fixed order:
 *             a repeated call is bit-identical, unless `deterministic` below is off.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum dtype { DTYPE_F32 = 1, DTYPE_F64, DTYPE_I32, DTYPE_U64, DTYPE_U8, DTYPE_BF16 };

size_t dtype_size_bytes(enum dtype t);
const char *dtype_name(enum dtype t);
/* The type of parameter vectors and gradients in a call of type `real`: F32 for BF16, else that. */
enum dtype param_dtype(enum dtype real);

enum write_mode { WRITE_SET, WRITE_ADD };

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_GELU,       /* x/2 (1 + erf(x/sqrt 2)) */
    ACTIVATION_QUICK_GELU, /* x / (1 + exp(-1.702 x)) */
    ACTIVATION_TANH_GELU   /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
};

enum { TENSOR_MAX_DIMS = 4 };

/* A view: address, type and shape. data == NULL: omitted. */
struct tensor {
    void *data;
    enum dtype dtype;
    int32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS]; /* elements per dimension */
};

bool tensor_present(const struct tensor *t);  /* not omitted */
int64_t tensor_count(const struct tensor *t); /* product of the shape; 1 for ndim 0 */
size_t tensor_size_bytes(const struct tensor *t);
struct tensor tensor_view(void *data, enum dtype dtype, int32_t ndim, const int64_t *shape);
struct tensor tensor_1d(void *data, enum dtype dtype, int64_t a);
struct tensor tensor_2d(void *data, enum dtype dtype, int64_t a, int64_t b);
struct tensor tensor_3d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c);
struct tensor tensor_4d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

/* ---- parts that several operators share ---- */

/* Captions in a flat list of R token rows. Caption n has rows [starts[n], starts[n] +
 * lengths[n]), and a row's position is its distance from starts[n]. Padded: starts[n] = n T, R = N
 * T. Packed: each caption starts where the previous one ends. starts ascend, captions do not
 * overlap, lengths are at least 1. Rows outside captions are not read; an operator that writes such
 * rows writes zeros. So its results for packed and padded captions are equal. */
struct segments {
    struct tensor starts, lengths; /* (N) i32 */
};

/* What changes from one training step to the next, in device memory: a step is a function of these
 * values and of its batch, so it can be captured once and replayed. The host sets the fields before
 * `grad_norm` (STEP_VALUES_SET_BYTES) for every step, and the whole struct once, with sound = 1;
 * the device sets the others. Multiples of 8 bytes, no padding. */
struct step_values {
    uint64_t step;  /* steps done before, from 0; keys dropout, counts Adam's bias correction */
    uint64_t epoch; /* from 0 */
    double lr;      /* learning rate of the parameters */
    double zeta_lr_image, zeta_lr_text; /* learning rates of zeta (nuclr) */
    double grad_norm;                   /* by grad_scale: norm of the gradients before clipping */
    double grad_scale;                  /* by grad_scale: the factor of all gradients */
    double squares[2];                  /* read by grad_scale: sums of squares */
    /* Set if the device computes the loss. batch_log_u and batch_zeta are means over the batch's
     * samples after the step, by side; NaN if the loss has no such column. */
    double loss, objective, tau;
    double batch_log_u[2], batch_zeta[2];
    uint64_t sound; /* 1; 0 from the first step on with a loss, gradient or id that is not usable:
                       optimisers then change nothing */
};
#define STEP_VALUES_SET_BYTES offsetof(struct step_values, grad_norm)

/* Element e of a sample is kept if the counter-based generator, keyed by (seed, step, sample id,
 * layer, e), yields at least p; kept values are scaled by 1/(1 - p). So ranks, micro-batches and
 * resumed runs drop the same elements. Exact mapping: kernels/dropout_mask.h. */
struct dropout_params {
    float p; /* [0, 1) */
    uint32_t layer;
    uint64_t seed;
    const struct step_values *values; /* on the device; `step` is read */
    const uint64_t *sample_ids;       /* (N), on the device */
};

struct conv_params {
    int32_t stride;      /* >= 1, both directions */
    int32_t pad;         /* >= 0, zeros on every side */
    enum activation act; /* NONE or RELU, after the residual */
};

struct pool_params {
    int32_t kernel, stride, pad;
};

/* The ranks whose rows share the batch statistics of conv_bn. In training all make the same calls
 * in the same order, each with any number of images. */
struct batch_norm_group {
    int32_t ranks_count; /* >= 1 */
    /* Collective: all (ranks_count * own_bytes) = own_bytes of every rank, by rank; host memory. */
    enum status (
        *gather)(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err);
    void *cookie;
};

/* ---- operators: their arguments, outputs first ---- */

/* NAME_TENSORS lists the tensors of an operator as T(field, role, type, shape), or W with more:
 * OPTIONAL, SPARSE, MODE(field of its write_mode), BELOW(limit of its indices). The checks of every
 * call are made from these lists; operands.h describes roles and types. A shape has one letter per
 * dimension, and equal letters of one operator are equal sizes: "NHWI" and "OKLI". A digit before a
 * letter multiplies it, a digit at the end is a size: "R3D", "NHW3". "*" is any shape, the same for
 * all tensors of the operator that have it. */
#define OPS_TENSOR(field, ...) struct tensor field;

/* out = value, of any shape */
#define FILL_TENSORS(T, W) T(out, OUT, REAL, "*")
struct fill {
    FILL_TENSORS(OPS_TENSOR, OPS_TENSOR)
    double value;
};

/* out = in, of any shape, rounded to nearest even: from F32 to BF16 or back, also on a device that
 * does not compute in BF16. */
#define CAST_TENSORS(T, W)                                                                         \
    T(out, OUT, CAST, "*")                                                                         \
    T(in, IN, CAST, "*")
struct cast {
    CAST_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

struct image_norm; /* formats/base/image_norm.h */

/* out = (in / 255 - mean[c]) / deviation[c], in square patches of side `patch`, each the row of its
 * pixels: C = 3 patch^2, P = H / patch, Q = W / patch, without remainder. patch 1: out is NHW3. */
#define NORMALIZE_U8_TENSORS(T, W)                                                                 \
    T(out, OUT, REAL, "NPQC")                                                                      \
    T(in, IN, U8, "NHW3")
struct normalize_u8 {
    NORMALIZE_U8_TENSORS(OPS_TENSOR, OPS_TENSOR)
    const struct image_norm *norm; /* in host memory */
    int32_t patch;                 /* >= 1 */
};

/* Convolution, batch norm (Ioffe and Szegedy, 2015, algorithm 1), residual and activation:
 *
 *     pre = conv(in, weight)
 *     out = act((pre - mean) rstd gamma + beta + residual)
 *
 * OH = (H + 2 pad - KH)/stride + 1. pre, mean and rstd are kept for the backward pass. In training
 * mean and rstd are over (N,OH,OW) of pre as stored, with the biased variance, and running =
 * (1 - momentum) running + momentum batch (running_var takes the unbiased variance, as PyTorch).
 * Without training they are the running ones. In training running_mean and running_var may both be
 * omitted: then no running statistics change, as in a second pass over a batch.
 *
 * With a group the batch is that of all its ranks: mean, rstd and the running statistics are
 * bit-identical on all ranks. dgamma and dbeta remain sums over the rank's own rows, as dweight
 * does: for every parameter the gradient is the sum over ranks. GPUs return UNSUPPORTED for a
 * group. */
#define CONV_BN_TENSORS(T, W)                                                                      \
    T(out, OUT, REAL, "NPQO")                                                                      \
    T(pre, OUT, REAL, "NPQO")                                                                      \
    T(mean, OUT, PARAM, "O")                                                                       \
    T(rstd, OUT, PARAM, "O")                                                                       \
    W(running_mean, BOTH, PARAM, "O", OPTIONAL)                                                    \
    W(running_var, BOTH, PARAM, "O", OPTIONAL)                                                     \
    T(in, IN, REAL, "NHWI")                                                                        \
    T(weight, IN, REAL, "OKLI")                                                                    \
    T(gamma, IN, PARAM, "O")                                                                       \
    T(beta, IN, PARAM, "O")                                                                        \
    W(residual, IN, REAL, "NPQO", OPTIONAL)
struct conv_bn {
    CONV_BN_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct conv_params conv;
    const struct batch_norm_group *group; /* of the batch statistics; NULL: only this call */
    bool training;
    float eps;      /* > 0, usually 1e-5 */
    float momentum; /* weight of the batch in the running statistics, usually 0.1 */
};

/* Gradients of the training form. The ReLU's mask is computed from `out`, or from pre and beta:
 * exactly one of out and beta is given, and beta only if the forward call had no residual. */
#define CONV_BN_BWD_TENSORS(T, W)                                                                  \
    W(din, OUT, REAL, "NHWI", OPTIONAL, MODE(din_mode))                                            \
    W(dresidual, OUT, REAL, "NPQO", OPTIONAL) /* may alias dout */                                 \
    W(dweight, OUT, PARAM, "OKLI", MODE(param_mode))                                               \
    W(dgamma, OUT, PARAM, "O", MODE(param_mode))                                                   \
    W(dbeta, OUT, PARAM, "O", MODE(param_mode))                                                    \
    T(dpre, WORKSPACE, REAL, "NPQO")                                                               \
    T(dout, IN, REAL, "NPQO")                                                                      \
    W(out, IN, REAL, "NPQO", OPTIONAL)                                                             \
    T(pre, IN, REAL, "NPQO")                                                                       \
    T(mean, IN, PARAM, "O")                                                                        \
    T(rstd, IN, PARAM, "O")                                                                        \
    T(in, IN, REAL, "NHWI")                                                                        \
    T(weight, IN, REAL, "OKLI")                                                                    \
    T(gamma, IN, PARAM, "O")                                                                       \
    W(beta, IN, PARAM, "O", OPTIONAL)
struct conv_bn_bwd {
    CONV_BN_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode din_mode;
    enum write_mode param_mode; /* of dweight, dgamma, dbeta */
    struct conv_params conv;
    const struct batch_norm_group *group; /* as in the forward call */
};

/* Convolution, group norm or none, residual and activation (Wu and He, "Group normalization",
 * 2018):
 *
 *     pre = conv(in, weight)
 *     out = act((pre - mean) rstd gamma + beta + residual)
 *
 * mean and rstd are over (OH,OW) and the O / groups channels of a group of one image of pre as
 * stored, with the biased variance; they are kept for the backward pass. groups 0: no norm, out =
 * act(pre + residual); pre, mean, rstd, gamma and beta are omitted, and `out` holds pre meanwhile.
 * Training and inference do not differ. */
#define CONV_GN_TENSORS(T, W)                                                                      \
    T(out, OUT, REAL, "NPQO")                                                                      \
    W(pre, OUT, REAL, "NPQO", OPTIONAL)                                                            \
    W(mean, OUT, PARAM, "NG", OPTIONAL)                                                            \
    W(rstd, OUT, PARAM, "NG", OPTIONAL)                                                            \
    T(in, IN, REAL, "NHWI")                                                                        \
    T(weight, IN, REAL, "OKLI")                                                                    \
    W(gamma, IN, PARAM, "O", OPTIONAL)                                                             \
    W(beta, IN, PARAM, "O", OPTIONAL)                                                              \
    W(residual, IN, REAL, "NPQO", OPTIONAL)
struct conv_gn {
    CONV_GN_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct conv_params conv;
    int32_t groups; /* G: a divisor of O, or 0 */
    float eps;      /* > 0, usually 1e-5 */
};

/* The ReLU's mask is computed from `out`. */
#define CONV_GN_BWD_TENSORS(T, W)                                                                  \
    W(din, OUT, REAL, "NHWI", OPTIONAL, MODE(din_mode))                                            \
    W(dresidual, OUT, REAL, "NPQO", OPTIONAL) /* may alias dout */                                 \
    W(dweight, OUT, PARAM, "OKLI", MODE(param_mode))                                               \
    W(dgamma, OUT, PARAM, "O", OPTIONAL, MODE(param_mode))                                         \
    W(dbeta, OUT, PARAM, "O", OPTIONAL, MODE(param_mode))                                          \
    T(dpre, WORKSPACE, REAL, "NPQO")                                                               \
    T(dout, IN, REAL, "NPQO")                                                                      \
    T(out, IN, REAL, "NPQO")                                                                       \
    W(pre, IN, REAL, "NPQO", OPTIONAL)                                                             \
    W(mean, IN, PARAM, "NG", OPTIONAL)                                                             \
    W(rstd, IN, PARAM, "NG", OPTIONAL)                                                             \
    T(in, IN, REAL, "NHWI")                                                                        \
    T(weight, IN, REAL, "OKLI")                                                                    \
    W(gamma, IN, PARAM, "O", OPTIONAL)
struct conv_gn_bwd {
    CONV_GN_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode din_mode;
    enum write_mode param_mode; /* of dweight, dgamma, dbeta */
    struct conv_params conv;
    int32_t groups;
};

/* argmax: offset ky kernel + kx inside the window, of the first maximum. Windows are inside the
 * padded plane: OH = (H + 2 pad - kernel)/stride + 1. */
#define MAXPOOL_TENSORS(T, W)                                                                      \
    T(out, OUT, REAL, "NPQC")                                                                      \
    T(argmax, OUT, I32, "NPQC")                                                                    \
    T(in, IN, REAL, "NHWC")
struct maxpool {
    MAXPOOL_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct pool_params pool;
};

#define MAXPOOL_BWD_TENSORS(T, W)                                                                  \
    W(din, OUT, REAL, "NHWC", MODE(mode))                                                          \
    T(dout, IN, REAL, "NPQC")                                                                      \
    T(argmax, IN, I32, "NPQC")
struct maxpool_bwd {
    MAXPOOL_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode mode;
    struct pool_params pool;
};

/* A window that crosses the border is truncated, and its sum is divided by the number of elements
 * inside. OH = ceil((H + 2 pad - kernel)/stride) + 1; the last window starts inside. */
#define AVGPOOL_TENSORS(T, W)                                                                      \
    T(out, OUT, REAL, "NPQC")                                                                      \
    T(in, IN, REAL, "NHWC")
struct avgpool {
    AVGPOOL_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct pool_params pool;
};

#define AVGPOOL_BWD_TENSORS(T, W)                                                                  \
    W(din, OUT, REAL, "NHWC", MODE(mode))                                                          \
    T(dout, IN, REAL, "NPQC")
struct avgpool_bwd {
    AVGPOOL_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode mode;
    struct pool_params pool;
};

/* out (N,C) = mean over H, W of in (N,H,W,C) */
#define GLOBAL_AVGPOOL_TENSORS(T, W)                                                               \
    T(out, OUT, REAL, "NC")                                                                        \
    T(in, IN, REAL, "NHWC")
struct global_avgpool {
    GLOBAL_AVGPOOL_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

#define GLOBAL_AVGPOOL_BWD_TENSORS(T, W)                                                           \
    W(din, OUT, REAL, "NHWC", MODE(mode))                                                          \
    T(dout, IN, REAL, "NC")
struct global_avgpool_bwd {
    GLOBAL_AVGPOOL_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode mode;
};

/* pre = in weight^T + bias; out = act(pre) */
#define LINEAR_TENSORS(T, W)                                                                       \
    T(out, OUT, REAL, "MO")                                                                        \
    W(pre, OUT, REAL, "MO", OPTIONAL) /* kept for a GELU, omitted with NONE */                     \
    T(in, IN, REAL, "MI")                                                                          \
    T(weight, IN, REAL, "OI")                                                                      \
    W(bias, IN, PARAM, "O", OPTIONAL)
struct linear {
    LINEAR_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum activation act; /* NONE, or a GELU */
};

/* out = act(pre): the activation of a linear alone, bit-identical to it. CPU devices only. */
#define GELU_TENSORS(T, W)                                                                         \
    T(out, OUT, REAL, "MO")                                                                        \
    T(pre, IN, REAL, "MO")
struct gelu {
    GELU_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum activation act; /* a GELU */
};

#define LINEAR_BWD_TENSORS(T, W)                                                                   \
    W(din, OUT, REAL, "MI", OPTIONAL, MODE(din_mode))                                              \
    W(dweight, OUT, PARAM, "OI", MODE(param_mode))                                                 \
    W(dbias, OUT, PARAM, "O", OPTIONAL, MODE(param_mode))                                          \
    W(dpre, WORKSPACE, REAL, "MO", OPTIONAL) /* required with a GELU */                            \
    T(dout, IN, REAL, "MO")                                                                        \
    T(in, IN, REAL, "MI")                                                                          \
    T(weight, IN, REAL, "OI")                                                                      \
    W(pre, IN, REAL, "MO", OPTIONAL)
struct linear_bwd {
    LINEAR_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode din_mode;
    enum write_mode param_mode; /* of dweight, dbias */
    enum activation act;
};

/* out = alpha op(a) op(b) (+ out with ADD); op transposes if its flag is set. */
#define MATMUL_TENSORS(T, W)                                                                       \
    W(out, OUT, REAL_OR_PARAM, "MN", MODE(mode)) /* BF16 or F32 in a BF16 call */                  \
    T(a, IN, REAL, "AB")                         /* op(a) is (M,K), op(b) (K,N) */                 \
    T(b, IN, REAL, "CD")
struct matmul {
    MATMUL_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode mode;
    bool transpose_a, transpose_b;
    float alpha; /* not 0 */
};

/* out = table[tokens] + positions[position of the row] */
#define EMBEDDING_TENSORS(T, W)                                                                    \
    T(out, OUT, REAL, "RD")                                                                        \
    W(tokens, IN, I32, "R", BELOW('V'))                                                            \
    W(table, IN, REAL, "VD", SPARSE)                                                               \
    T(positions, IN, REAL, "PD") /* no caption is longer than P */
struct embedding {
    EMBEDDING_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
};

/* Contributions of equal tokens are added in row order. dtable and tokens may both be omitted: then
 * only dpositions is computed. */
#define EMBEDDING_BWD_TENSORS(T, W)                                                                \
    W(dtable, OUT, PARAM, "VD", OPTIONAL, MODE(mode))                                              \
    W(dpositions, OUT, PARAM, "PD", MODE(mode))                                                    \
    T(dout, IN, REAL, "RD")                                                                        \
    W(tokens, IN, I32, "R", OPTIONAL, BELOW('V'))
struct embedding_bwd {
    EMBEDDING_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
    enum write_mode mode;
};

/* sum = a + b; out = (sum - mean) rstd gamma + beta, with statistics per row and biased variance */
#define LAYERNORM_TENSORS(T, W)                                                                    \
    T(out, OUT, REAL, "MD")                                                                        \
    T(sum, OUT, REAL, "MD") /* may alias a */                                                      \
    T(mean, OUT, PARAM, "M")                                                                       \
    T(rstd, OUT, PARAM, "M")                                                                       \
    T(a, IN, REAL, "MD")                                                                           \
    W(b, IN, REAL, "MD", OPTIONAL) /* omitted: sum is a copy of a */                               \
    T(gamma, IN, PARAM, "D")                                                                       \
    T(beta, IN, PARAM, "D")
struct layernorm {
    LAYERNORM_TENSORS(OPS_TENSOR, OPS_TENSOR)
    float eps; /* > 0 */
};

#define LAYERNORM_BWD_TENSORS(T, W)                                                                \
    W(dsum, OUT, REAL, "MD", MODE(dsum_mode))                                                      \
    W(dgamma, OUT, PARAM, "D", MODE(param_mode))                                                   \
    W(dbeta, OUT, PARAM, "D", MODE(param_mode))                                                    \
    T(dout, IN, REAL, "MD")                                                                        \
    T(sum, IN, REAL, "MD")                                                                         \
    T(mean, IN, PARAM, "M")                                                                        \
    T(rstd, IN, PARAM, "M")                                                                        \
    T(gamma, IN, PARAM, "D")
struct layernorm_bwd {
    LAYERNORM_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode dsum_mode;
    enum write_mode param_mode; /* of dgamma, dbeta */
};

/* Multi-head attention within each caption (Vaswani et al., 2017, equation 1): out =
 * dropout(softmax(q k^T / sqrt Dh)) v, with q, k and v of D = heads Dh side by side in qkv. Causal:
 * a row attends only to itself and earlier rows. Kept is only lse, per row the log of the sum of
 * e^(q k / sqrt Dh) over its keys, 0 beyond a caption's length: the backward pass recomputes the
 * probabilities, so memory grows with T, not with its square. T: length of the longest caption, at
 * most ATTENTION_MAX_TOKENS, with dropout DROPOUT_MAX_TOKENS. */
enum { ATTENTION_MAX_TOKENS = 4096 };

#define ATTENTION_TENSORS(T, W)                                                                    \
    T(out, OUT, REAL, "RD")                                                                        \
    T(lse, OUT, PARAM, "NHT")                                                                      \
    T(qkv, IN, REAL, "R3D")
struct attention {
    ATTENTION_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
    int32_t heads;
    bool causal;
    struct dropout_params dropout; /* on the probabilities; p 0: none */
};

/* out, lse: from the forward pass, which had the same heads, causal and dropout. */
#define ATTENTION_BWD_TENSORS(T, W)                                                                \
    T(dqkv, OUT, REAL, "R3D")                                                                      \
    T(dout, IN, REAL, "RD")                                                                        \
    T(out, IN, REAL, "RD")                                                                         \
    T(lse, IN, PARAM, "NHT")                                                                       \
    T(qkv, IN, REAL, "R3D")
struct attention_bwd {
    ATTENTION_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
    int32_t heads;
    bool causal;
    struct dropout_params dropout;
};

/* out = mask(in); the element number is (row's position) * D + column. Applied to a gradient it is
 * its own backward pass. */
#define DROPOUT_TENSORS(T, W)                                                                      \
    T(out, OUT, REAL, "RD") /* may alias in */                                                     \
    T(in, IN, REAL, "RD")
struct dropout {
    DROPOUT_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments; /* optional: row n is position 0 of sample n (N = R) */
    struct dropout_params dropout;
};

/* out (N,D): row n = mean over the rows of caption n in `in` (R,D) */
#define SEGMENT_MEAN_TENSORS(T, W)                                                                 \
    T(out, OUT, REAL, "ND")                                                                        \
    T(in, IN, REAL, "RD")
struct segment_mean {
    SEGMENT_MEAN_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
};

#define SEGMENT_MEAN_BWD_TENSORS(T, W)                                                             \
    W(din, OUT, REAL, "RD", MODE(mode))                                                            \
    T(dout, IN, REAL, "ND")
struct segment_mean_bwd {
    SEGMENT_MEAN_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    struct segments segments;
    enum write_mode mode;
};

/* out (N,D) = in (M,D)[rows] */
#define GATHER_ROWS_TENSORS(T, W)                                                                  \
    T(out, OUT, REAL, "ND")                                                                        \
    W(in, IN, REAL, "MD", SPARSE)                                                                  \
    W(rows, IN, I32, "N", BELOW('M'))
struct gather_rows {
    GATHER_ROWS_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

/* out (M,D)[rows] = or += in (N,D). Other rows are unchanged. */
#define SCATTER_ROWS_TENSORS(T, W)                                                                 \
    W(out, OUT, REAL, "MD", SPARSE, MODE(mode))                                                    \
    T(in, IN, REAL, "ND")                                                                          \
    W(rows, IN, I32, "N", BELOW('M')) /* distinct */
struct scatter_rows {
    SCATTER_ROWS_TENSORS(OPS_TENSOR, OPS_TENSOR)
    enum write_mode mode;
};

/* out = in / max(|in|_2, 1e-12), row by row */
#define L2_NORMALIZE_TENSORS(T, W)                                                                 \
    T(out, OUT, PARAM, "ND") /* F32 in a BF16 call: the loss reads it */                           \
    T(norm, OUT, PARAM, "N") /* kept */                                                            \
    T(in, IN, REAL, "ND")
struct l2_normalize {
    L2_NORMALIZE_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

/* din = (dout - <dout,out> out) / max(norm, 1e-12); in a BF16 call only din is BF16. */
#define L2_NORMALIZE_BWD_TENSORS(T, W)                                                             \
    T(din, OUT, REAL, "ND")                                                                        \
    T(dout, IN, PARAM, "ND")                                                                       \
    T(out, IN, PARAM, "ND")                                                                        \
    T(norm, IN, PARAM, "N")
struct l2_normalize_bwd {
    L2_NORMALIZE_BWD_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

/* out += alpha in, of any shape; in may be out */
#define ADD_TENSORS(T, W)                                                                          \
    T(out, BOTH, REAL, "*")                                                                        \
    T(in, IN, REAL, "*")
struct add {
    ADD_TENSORS(OPS_TENSOR, OPS_TENSOR)
    float alpha; /* not 0 */
};

/* sum = sum of the squares of in, of any shape, accumulated in double */
#define SUM_SQUARES_TENSORS(T, W)                                                                  \
    T(sum, OUT, F64, "1")                                                                          \
    T(in, IN, REAL, "*")
struct sum_squares {
    SUM_SQUARES_TENSORS(OPS_TENSOR, OPS_TENSOR)
};

/* grad_norm = sqrt of the sum of the first `count` squares of values; grad_scale = clip_norm /
 * grad_norm if that is below 1 and clip_norm > 0, else 1; sound = 0 if grad_norm is not finite. */
struct grad_scale {
    struct step_values *values; /* on the device */
    int32_t count;              /* 1 or 2 */
    double clip_norm;           /* >= 0 */
};

/* Optimisers, over ranges of equal shape. If sound is 0 they change nothing. lr and grad_scale of
 * the values are rounded to f32 where they meet f32.
 *
 * AdamW (Loshchilov and Hutter, 2019, algorithm 2): value *= 1 - lr weight_decay, then the Adam
 * step; bias correction is that of step + 1. Coupled, it is Adam (Kingma and Ba, 2015, algorithm 1)
 * with L2, as PyTorch's Adam with weight_decay: g = grad_scale grad + weight_decay value, then the
 * Adam step; only on CPU devices. */
#define ADAMW_TENSORS(T, W)                                                                        \
    T(value, BOTH, PARAM, "*")                                                                     \
    W(working, OUT, BF16, "*", OPTIONAL) /* receives the new value, rounded: bf16 calls read it */ \
    T(grad, IN, PARAM, "*")                                                                        \
    T(m, BOTH, PARAM, "*")                                                                         \
    T(v, BOTH, PARAM, "*")
struct adamw {
    ADAMW_TENSORS(OPS_TENSOR, OPS_TENSOR)
    float beta1, beta2, eps, weight_decay;
    float lr_scale; /* > 0; a factor of values->lr */
    bool coupled;
    const struct step_values *values; /* on the device */
};

/* PyTorch's SGD without dampening: g = grad_scale grad + weight_decay value; m = momentum m + g;
 * value -= lr (nesterov ? g + momentum m : m). m starts at zero. */
#define SGDM_TENSORS(T, W)                                                                         \
    T(value, BOTH, PARAM, "*")                                                                     \
    W(working, OUT, BF16, "*", OPTIONAL) /* as adamw's */                                          \
    T(grad, IN, PARAM, "*")                                                                        \
    T(m, BOTH, PARAM, "*")
struct sgdm {
    SGDM_TENSORS(OPS_TENSOR, OPS_TENSOR)
    float momentum;
    float weight_decay; /* L2: added to the gradient */
    bool nesterov;
    const struct step_values *values; /* on the device */
};

/* LARS (You, Gitman and Ginsburg, 2017, algorithm 1) for one tensor of parameters, in the form of
 * MoCo v3 and EMC2's published code: the learning rate is outside the momentum, the decay inside
 * the norm:
 *
 *     g = grad_scale grad + weight_decay value
 *     m = momentum m + q g,  q = trust |value| / |g|, or 1 if either norm is 0
 *     value -= lr m
 *
 * Norms are Euclidean, of the whole tensor, in double. m starts at zero. */
#define LARS_TENSORS(T, W)                                                                         \
    T(value, BOTH, PARAM, "*")                                                                     \
    W(working, OUT, BF16, "*", OPTIONAL) /* as adamw's */                                          \
    T(grad, IN, PARAM, "*")                                                                        \
    T(m, BOTH, PARAM, "*")
struct lars {
    LARS_TENSORS(OPS_TENSOR, OPS_TENSOR)
    float momentum, weight_decay;
    float trust; /* > 0 */
    const struct step_values *values;
};

/* ---- the table ---- */

/* Every operator, as X(name): those of every device, and those of CPU devices only. On other
 * devices the members of the latter are NULL (op_available in operands.h). */
#define OPS_LIST(X) OPS_EVERYWHERE_LIST(X) OPS_CPU_LIST(X)
#define OPS_CPU_LIST(X)                                                                            \
    X(lars)                                                                                        \
    X(gelu)                                                                                        \
    X(conv_gn)                                                                                     \
    X(conv_gn_bwd)
#define OPS_EVERYWHERE_LIST(X)                                                                     \
    X(fill)                                                                                        \
    X(cast)                                                                                        \
    X(normalize_u8)                                                                                \
    X(conv_bn)                                                                                     \
    X(conv_bn_bwd)                                                                                 \
    X(maxpool)                                                                                     \
    X(maxpool_bwd)                                                                                 \
    X(avgpool)                                                                                     \
    X(avgpool_bwd)                                                                                 \
    X(global_avgpool)                                                                              \
    X(global_avgpool_bwd)                                                                          \
    X(linear)                                                                                      \
    X(linear_bwd)                                                                                  \
    X(matmul)                                                                                      \
    X(embedding)                                                                                   \
    X(embedding_bwd)                                                                               \
    X(layernorm)                                                                                   \
    X(layernorm_bwd)                                                                               \
    X(attention)                                                                                   \
    X(attention_bwd)                                                                               \
    X(dropout)                                                                                     \
    X(segment_mean)                                                                                \
    X(segment_mean_bwd)                                                                            \
    X(gather_rows)                                                                                 \
    X(scatter_rows)                                                                                \
    X(l2_normalize)                                                                                \
    X(l2_normalize_bwd)                                                                            \
    X(add)                                                                                         \
    X(sum_squares)                                                                                 \
    X(grad_scale)                                                                                  \
    X(adamw)                                                                                       \
    X(sgdm)

struct device;

struct ops {
    const char *name; /* "cpu-ref", "cpu", "cuda" */

    /* ---- memory and order: OK or NOMEM; GPUs also DEVICE, or UNSUPPORTED in a capture ---- */
    enum status (*alloc)(struct device *,
                         size_t size_bytes,
                         void **out,
                         struct error *);      /* 64-byte aligned, zeroed */
    void (*free)(struct device *, void *data); /* accepts NULL */
    enum status (
        *upload)(struct device *, void *dst, const void *host, size_t size_bytes, struct error *);
    enum status (
        *download)(struct device *, void *host, const void *src, size_t size_bytes, struct error *);
    enum status (*sync)(struct device *, struct error *);
    /* Whether the device computes in a real type. Returns OK, or UNSUPPORTED with the reason in one
     * line, such as what the processor lacks. */
    enum status (*supports)(struct device *, enum dtype, struct error *);

/* ---- operators ---- */
#define OPS_MEMBER(name) enum status (*name)(struct device *, const struct name *, struct error *);
    OPS_LIST(OPS_MEMBER)
#undef OPS_MEMBER
};

struct device_contrasts; /* contrast.h */
struct device_losses;    /* device_loss.h */
struct device_ranks;     /* device_ranks.h */
struct device_stream;    /* device_stream.h */

/* The first member of every backend's device. */
struct device {
    const struct ops *ops;
    const struct device_losses *losses;       /* NULL: losses run on the host */
    const struct device_contrasts *contrasts; /* NULL: losses need the whole matrix */
    const struct device_stream *stream;       /* NULL: its memory is the host's, nothing overlaps */
    const struct device_ranks *ranks;         /* NULL: ranks exchange host memory */
    void (*close)(struct device *);
    unsigned char uuid[16]; /* of a GPU; zeros: not a GPU, or unknown */
    size_t free_bytes;      /* free memory of a GPU when it was opened; 0: not a GPU */
    char note[512];         /* one line for the user if "auto" did not open a GPU, else "" */
};

struct log_sink; /* formats/base/log.h */

struct device_options {
    int32_t threads_count; /* CPU devices; default 0: all CPUs of the process */
    int32_t local_rank; /* "cuda" and "auto" open GPU local_rank modulo the number of visible GPUs,
                           since a rank may see only its own; default 0 */
    bool deterministic; /* cuda: only deterministic library kernels; default true */
    bool tf32;     /* cuda: f32 products on tensor cores with 10-bit mantissas; default false */
    bool autotune; /* cuda: time the kernels of each shape once and use the fastest; default false
                    */
    const char *plan_cache; /* cuda: folder of conv-plans.txt, cuDNN's chosen plans; NULL: none */
    /* cuda: at DEBUG the cuDNN engine of every shape, at WARN engines that fail; NULL: no log.
     * Borrowed while the device is open. */
    const struct log_sink *log;
};

void device_options_default(struct device_options *opt);

/* Opens a device by name: "cpu" (oneDNN), "cpu-ref", "cuda" or "cuda:N" (the module of
 * kernels/cuda), or "auto": cuda if it works, else cpu with the reason in `note`. A rank above 0
 * whose GPU cannot be opened fails instead: the others have opened theirs. threads_count applies to
 * the whole process. Returns OK, INVALID (a negative option), NOMEM, UNSUPPORTED (no such device or
 * no CUDA, with the reason), LIMIT (plan_cache is too long), IO (plan_cache cannot be read) or
 * DEVICE. */
enum status device_open_with(struct device **out,
                             const char *name,
                             const struct device_options *opt,
                             struct error *err);
/* The same with default options. */
enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err);
void device_close(struct device *dev); /* accepts NULL */

/* Calls `line` once per device: its name, whether it works, and one line about it, or about what is
 * missing. */
void device_list(void (*line)(const char *name, bool works, const char *text, void *cookie),
                 void *cookie);

const struct ops *ops_cpu_ref(void);
const struct ops *ops_cpu(void);

#endif
