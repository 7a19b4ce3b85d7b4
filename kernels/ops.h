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
 *             struct is read during the call only.
 * Order     : calls on one device run in order; only download and sync wait, and calls with a
 *             batch_norm_group, for the other ranks.
 * Layout    : dense row-major. Images are (N,H,W,C); convolution weights (O,KH,KW,I); linear
 *             weights (OUT,IN).
 * Optional  : operands marked optional may be omitted: a zero field.
 * Types     : one real type per call, that of its main input: F32, BF16, or F64 (only cpu-ref;
 *             finite differences require it). In a BF16 call activations and their gradients (in,
 *             out, pre, residual, sum, qkv, probs, din, dout, ...) are of that type, and so are
 *             weight, table and positions, which are working copies; vectors of parameters and
 *             statistics (gamma, beta, bias, mean, rstd, running_*, norm) and all gradients of
 *             parameters are F32. Sums are taken in f32 or wider; a result is rounded once, when it
 *             is stored, to nearest even; what a later stage reads back (pre, sum, probs, dpre) it
 *             reads as stored. Operators that differ say so. A device returns UNSUPPORTED for a
 *             type it lacks; `supports` reports that beforehand.
 * Checks    : every operator checks types, shapes and numbers first and returns INVALID with a
 *             message that names the operand and both shapes. A refused call has written nothing.
 * Gradients : WRITE_SET overwrites, WRITE_ADD adds to what is there. Reductions have a fixed order:
 *             the same call gives the same bits.
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
/* The type of a parameter's vector or gradient in a call of type `real`: F32 for BF16, else `real`.
 */
enum dtype param_dtype(enum dtype real);

enum write_mode { WRITE_SET, WRITE_ADD };

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_GELU /* x/2 (1 + erf(x/sqrt 2)) */
};

enum { TENSOR_MAX_DIMS = 4 };

/* A view: shape and place. data == NULL: omitted. */
struct tensor {
    void *data;
    enum dtype dtype;
    int32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS]; /* counts of elements */
};

bool tensor_present(const struct tensor *t);  /* not omitted */
int64_t tensor_count(const struct tensor *t); /* product of the shape; 1 for ndim 0 */
size_t tensor_size_bytes(const struct tensor *t);
struct tensor tensor_view(void *data, enum dtype dtype, int32_t ndim, const int64_t *shape);
struct tensor tensor_1d(void *data, enum dtype dtype, int64_t a);
struct tensor tensor_2d(void *data, enum dtype dtype, int64_t a, int64_t b);
struct tensor tensor_4d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

/* ---- parts that several operators share ---- */

/* Captions in a flat list of R token rows. Caption n has rows [starts[n], starts[n] +
 * lengths[n]), and a row's position is its distance from starts[n]. Padded: starts[n] = n T, R = N
 * T. Packed: each caption starts where the last one ends. starts ascend, captions do not overlap,
 * lengths are at least 1. Rows of no caption are not read; where an operator writes such rows it
 * writes zeros. So packed and padded captions give the same numbers. Values are checked where the
 * device's memory is the host's; elsewhere an operator stays within bounds. */
struct segments {
    struct tensor starts, lengths; /* (N) i32 */
};

/* What changes from one training step to the next, in device memory: a step is a function of it and
 * of its batch, so it can be recorded once and replayed. The host sets the fields before
 * `grad_norm` for every step (STEP_VALUES_SET_BYTES of them) and the whole once, with sound = 1;
 * the device sets the others. Multiples of 8 bytes, no padding. */
struct step_values {
    uint64_t step;  /* done before this one: 0 in the first; keys dropout, counts bias correction */
    uint64_t epoch; /* from 0 */
    double lr;      /* of the parameters */
    double zeta_lr_image, zeta_lr_text; /* of the losses that learn a temperature per sample */
    double grad_norm;                   /* grad_scale: of the gradients, before clipping */
    double grad_scale;                  /* grad_scale: gradients are multiplied by this */
    double squares[2];                  /* inputs of grad_scale: sums of squares */
    /* Set where the device computes the loss. batch_log_u and batch_zeta are means over the batch's
     * samples after the step, by side; NaN where the loss keeps no such number. */
    double loss, objective, tau;
    double batch_log_u[2], batch_zeta[2];
    uint64_t sound; /* 1; becomes 0 at the first step whose loss or gradient is not finite, and from
                       then on optimisers change nothing */
};
#define STEP_VALUES_SET_BYTES offsetof(struct step_values, grad_norm)

/* Mask element e of sample n in layer l: keep when the counter generator keyed by (seed, step,
 * sample id, layer, e) draws >= p; kept values are scaled by 1/(1 - p). So ranks, micro-batches and
 * resumed runs drop the same elements (rng.h, RNG_DROPOUT). Exact mapping: kernels/dropout_mask.h.
 */
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

/* The ranks whose rows share the batch statistics of conv_bn. All make the same calls in training,
 * in the same order, each with its own images, of any count. */
struct batch_norm_group {
    int32_t ranks_count; /* >= 1 */
    /* Collective, in host memory: own_bytes of every rank, in the order of ranks, to all
     * (ranks_count * own_bytes). */
    enum status (
        *gather)(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err);
    void *cookie;
};

/* ---- operators: their arguments, outputs first ---- */

/* out = value, of any shape */
struct fill {
    struct tensor out;
    double value;
};

/* out = in, of any shape, rounded to nearest even: from F32 to BF16 or back, also on a device that
 * does not compute in BF16. */
struct cast {
    struct tensor out, in;
};

struct image_norm; /* formats/base/image_norm.h */

/* out = (in / 255 - mean[c]) / deviation[c] */
struct normalize_u8 {
    struct tensor out;             /* (N,H,W,3) */
    struct tensor in;              /* like out, u8 */
    const struct image_norm *norm; /* in host memory */
};

/* Convolution, batch norm, residual and activation:
 *
 *     pre = conv(in, weight)
 *     out = act((pre - mean) rstd gamma + beta + residual)
 *
 * OH = (H + 2 pad - KH)/stride + 1. pre, mean and rstd are kept for the backward pass. In training
 * mean and rstd are over (N,OH,OW) of pre as stored, with the biased variance, and running =
 * (1 - momentum) running + momentum batch (running_var takes the unbiased variance, as PyTorch).
 * Without training they are the running ones.
 *
 * With a group the batch is that of all its ranks: mean, rstd and the running statistics become the
 * same bits on each. dgamma and dbeta stay sums over the rank's own rows, as dweight does: a
 * gradient of all ranks is the sum over ranks for every parameter. Devices with memory of their own
 * return UNSUPPORTED. */
struct conv_bn {
    struct tensor out, pre;   /* (N,OH,OW,O) */
    struct tensor mean, rstd; /* (O) */
    /* (O); in training optional, both or none: without them no running statistics change, as in a
     * second pass over a batch */
    struct tensor running_mean, running_var;
    struct tensor in;          /* (N,H,W,I) */
    struct tensor weight;      /* (O,KH,KW,I) */
    struct tensor gamma, beta; /* (O) */
    struct tensor residual;    /* like out; optional */
    struct conv_params conv;
    const struct batch_norm_group *group; /* of the batch statistics; NULL: this call alone */
    bool training;
    float eps;      /* > 0; 1e-5 */
    float momentum; /* weight of the new value in the running statistics, 0.1 */
};

/* Of the training form. `out` carries the mask of the ReLU. */
struct conv_bn_bwd {
    struct tensor din;            /* like in; optional */
    struct tensor dresidual;      /* like out; optional; may alias dout where it is set */
    struct tensor dweight;        /* like weight */
    struct tensor dgamma, dbeta;  /* (O) */
    struct tensor dpre;           /* scratch, like pre */
    struct tensor dout, out, pre; /* (N,OH,OW,O) */
    struct tensor mean, rstd;     /* (O) */
    struct tensor in, weight, gamma;
    enum write_mode din_mode, dresidual_mode;
    enum write_mode param_mode; /* of dweight, dgamma, dbeta */
    struct conv_params conv;
    const struct batch_norm_group *group; /* that of the forward call */
};

/* Convolution, group norm or none, residual and activation (Wu and He, "Group normalization",
 * 2018):
 *
 *     pre = conv(in, weight)
 *     out = act((pre - mean) rstd gamma + beta + residual)
 *
 * mean and rstd are over (OH,OW) and the O / groups channels of a group of one image of pre as
 * stored, with the biased variance; they are kept for the backward pass. groups 0: out = act(pre +
 * residual); what only a norm has is omitted, and `out` holds pre in between. There is no
 * difference between training and inference. */
struct conv_gn {
    struct tensor out;         /* (N,OH,OW,O) */
    struct tensor pre;         /* like out; with groups */
    struct tensor mean, rstd;  /* (N,G); with groups */
    struct tensor in;          /* (N,H,W,I) */
    struct tensor weight;      /* (O,KH,KW,I) */
    struct tensor gamma, beta; /* (O); with groups */
    struct tensor residual;    /* like out; optional */
    struct conv_params conv;
    int32_t groups; /* G: a divisor of O, or 0 */
    float eps;      /* > 0; 1e-5 */
};

/* `out` carries the mask of the ReLU. */
struct conv_gn_bwd {
    struct tensor din;           /* like in; optional */
    struct tensor dresidual;     /* like out; optional; may alias dout where it is set */
    struct tensor dweight;       /* like weight */
    struct tensor dgamma, dbeta; /* (O); with groups */
    struct tensor dpre;          /* scratch, like out */
    struct tensor dout, out;     /* (N,OH,OW,O) */
    struct tensor pre;           /* like out; with groups */
    struct tensor mean, rstd;    /* (N,G); with groups */
    struct tensor in, weight;
    struct tensor gamma; /* (O); with groups */
    enum write_mode din_mode, dresidual_mode;
    enum write_mode param_mode; /* of dweight, dgamma, dbeta */
    struct conv_params conv;
    int32_t groups;
};

/* argmax: offset ky kernel + kx inside the window, the first maximum wins. Windows lie inside the
 * padded plane: OH = (H + 2 pad - kernel)/stride + 1. */
struct maxpool {
    struct tensor out;    /* (N,OH,OW,C) */
    struct tensor argmax; /* like out, i32 */
    struct tensor in;     /* (N,H,W,C) */
    struct pool_params pool;
};

struct maxpool_bwd {
    struct tensor din, dout, argmax;
    enum write_mode mode;
    struct pool_params pool;
};

/* A window that crosses the border is truncated, and its sum is divided by the elements inside. OH
 * = ceil((H + 2 pad - kernel)/stride) + 1; the last window starts inside. */
struct avgpool {
    struct tensor out; /* (N,OH,OW,C) */
    struct tensor in;  /* (N,H,W,C) */
    struct pool_params pool;
};

struct avgpool_bwd {
    struct tensor din, dout;
    enum write_mode mode;
    struct pool_params pool;
};

/* out (N,C) = mean over H, W of in (N,H,W,C) */
struct global_avgpool {
    struct tensor out, in;
};

struct global_avgpool_bwd {
    struct tensor din, dout;
    enum write_mode mode;
};

/* pre = in weight^T + bias; out = act(pre) */
struct linear {
    struct tensor out;    /* (M,OUT) */
    struct tensor pre;    /* like out; kept for the backward pass of GELU, omitted with NONE */
    struct tensor in;     /* (M,IN) */
    struct tensor weight; /* (OUT,IN) */
    struct tensor bias;   /* (OUT); optional */
    enum activation act;  /* NONE or GELU */
};

struct linear_bwd {
    struct tensor din;     /* like in; optional */
    struct tensor dweight; /* like weight */
    struct tensor dbias;   /* (OUT); optional */
    struct tensor dpre;    /* scratch, like pre, with GELU alone */
    struct tensor dout;    /* (M,OUT) */
    struct tensor in, weight, pre;
    enum write_mode din_mode;
    enum write_mode param_mode; /* of dweight, dbias */
    enum activation act;
};

/* out = alpha op(a) op(b) (+ out with ADD); op transposes where asked. */
struct matmul {
    struct tensor out;  /* (M,N); in a BF16 call it may be F32 too */
    struct tensor a, b; /* after op (M,K), (K,N) */
    enum write_mode mode;
    bool transpose_a, transpose_b;
    float alpha; /* not 0 */
};

/* out = table[tokens] + positions[position of the row] */
struct embedding {
    struct tensor out;    /* (R,D) */
    struct tensor tokens; /* (R) i32, in [0, V) */
    struct segments segments;
    struct tensor table;     /* (V,D) */
    struct tensor positions; /* (P,D); no caption is longer than P */
};

/* Contributions of equal tokens are added in order of their rows. */
struct embedding_bwd {
    struct tensor dtable, dpositions; /* (V,D), (P,D), as gradients of parameters */
    struct tensor dout, tokens;
    struct segments segments;
    enum write_mode mode;
};

/* sum = a + b; out = (sum - mean) rstd gamma + beta, statistics along a row, biased variance */
struct layernorm {
    struct tensor out;         /* (M,D) */
    struct tensor sum;         /* like out; may alias a */
    struct tensor mean, rstd;  /* (M) */
    struct tensor a;           /* (M,D) */
    struct tensor b;           /* (M,D); optional: sum is then a copy of a */
    struct tensor gamma, beta; /* (D) */
    float eps;                 /* > 0 */
};

struct layernorm_bwd {
    struct tensor dsum;          /* (M,D) */
    struct tensor dgamma, dbeta; /* (D) */
    struct tensor dout, sum;     /* (M,D) */
    struct tensor mean, rstd;    /* (M) */
    struct tensor gamma;         /* (D) */
    enum write_mode dsum_mode;
    enum write_mode param_mode; /* of dgamma, dbeta */
};

/* Multi-head attention within each caption: out = dropout(softmax(q k^T / sqrt Dh)) v, with q, k
 * and v of D = heads Dh side by side in qkv. */
struct attention {
    struct tensor out;   /* (R,D) */
    struct tensor probs; /* (N,heads,T,T), after softmax and before dropout, kept; zero beyond a
                            caption's length. T: the longest caption, at most DROPOUT_MAX_TOKENS */
    struct tensor qkv;   /* (R,3 D) */
    struct segments segments;
    int32_t heads;
    struct dropout_params dropout; /* on the probabilities; p 0: none */
};

struct attention_bwd {
    struct tensor dqkv, dout, probs, qkv;
    struct segments segments;
    int32_t heads;
    struct dropout_params dropout;
};

/* out = mask(in); the element number is position of the row * D + column. Applied to a gradient it
 * is its own backward pass. */
struct dropout {
    struct tensor out;        /* (R,D); may alias in */
    struct tensor in;         /* (R,D) */
    struct segments segments; /* optional: row n is position 0 of sample n (N = R) */
    struct dropout_params dropout;
};

/* out (N,D) = mean of the rows of caption n of in (R,D) */
struct segment_mean {
    struct tensor out, in;
    struct segments segments;
};

struct segment_mean_bwd {
    struct tensor din, dout;
    struct segments segments;
    enum write_mode mode;
};

/* out (N,D) = in (M,D)[rows] */
struct gather_rows {
    struct tensor out, in;
    struct tensor rows; /* (N) i32, in [0, M) */
};

/* out (M,D)[rows] = or += in (N,D). Other rows keep what they had. */
struct scatter_rows {
    struct tensor out, in;
    struct tensor rows; /* (N) i32, in [0, M), distinct */
    enum write_mode mode;
};

/* out = in / max(|in|_2, 1e-12), row by row */
struct l2_normalize {
    struct tensor out;  /* (N,D); F32 in a BF16 call: the loss reads it */
    struct tensor norm; /* (N), kept */
    struct tensor in;   /* (N,D) */
};

/* din = (dout - <dout,out> out) / max(norm, 1e-12); in a BF16 call din alone is BF16. */
struct l2_normalize_bwd {
    struct tensor din, dout, out; /* (N,D) */
    struct tensor norm;           /* (N) */
};

/* out += alpha in, of any shape */
struct add {
    struct tensor out, in;
    float alpha; /* not 0 */
};

/* sum = sum of the squares of in, of any shape, accumulated in double */
struct sum_squares {
    struct tensor sum; /* (1) f64 */
    struct tensor in;
};

/* grad_norm = sqrt of the sum of the first `count` squares of values; grad_scale = clip_norm /
 * grad_norm where that is below 1 and clip_norm > 0, else 1; sound = 0 where grad_norm is not
 * finite. */
struct grad_scale {
    struct step_values *values; /* on the device */
    int32_t count;              /* 1 or 2 */
    double clip_norm;           /* >= 0 */
};

/* Optimisers, over ranges of equal shape. Nothing is changed where sound is 0. lr, grad_scale and
 * the step of the values are rounded to f32 where they meet f32.
 *
 * AdamW (Loshchilov and Hutter): value *= 1 - lr weight_decay, then the Adam step; bias correction
 * is that of step + 1. Coupled, it is Adam (Kingma and Ba) with L2, as PyTorch's Adam with
 * weight_decay: g = grad_scale grad + weight_decay value, then the Adam step. Only CPU devices
 * have it. */
struct adamw {
    struct tensor value;
    struct tensor working; /* BF16, optional: receives the new value, rounded: bf16 calls read it */
    struct tensor grad, m, v;
    float beta1, beta2, eps, weight_decay;
    bool coupled;
    const struct step_values *values; /* on the device */
};

/* PyTorch's SGD without dampening: g = grad_scale grad + weight_decay value; m = momentum m + g;
 * value -= lr (nesterov ? g + momentum m : m). m starts at zero. */
struct sgdm {
    struct tensor value;
    struct tensor working; /* as adamw's */
    struct tensor grad, m;
    float momentum;
    float weight_decay; /* L2: added to the gradient */
    bool nesterov;
    const struct step_values *values; /* on the device */
};

/* LARS (You, Gitman and Ginsburg, 2017, algorithm 1) for one tensor of parameters, in the form of
 * MoCo v3 and EMC2's published code, where the rate is outside the momentum and the decay inside
 * the norm:
 *
 *     g = grad_scale grad + weight_decay value
 *     m = momentum m + q g,  q = trust |value| / |g|, or 1 where either norm is 0
 *     value -= lr m
 *
 * Norms are Euclidean, of the whole tensor, in double. m starts at zero. */
struct lars {
    struct tensor value;
    struct tensor working; /* as adamw's */
    struct tensor grad, m;
    float momentum, weight_decay;
    float trust; /* > 0 */
    const struct step_values *values;
};

/* ---- the table ---- */

/* Every operator, as X(name): those of every device, and those that only CPU devices have. On
 * other devices the members of the latter are NULL (op_available in operands.h). */
#define OPS_LIST(X) OPS_EVERYWHERE_LIST(X) OPS_CPU_LIST(X)
#define OPS_CPU_LIST(X)                                                                            \
    X(lars)                                                                                        \
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

    /* ---- memory and order ---- */
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
    /* Returns OK if the device computes in a real type, else UNSUPPORTED with the reason in one
     * line, such as what the processor lacks. */
    enum status (*supports)(struct device *, enum dtype, struct error *);

/* ---- operators ---- */
#define OPS_MEMBER(name) enum status (*name)(struct device *, const struct name *, struct error *);
    OPS_LIST(OPS_MEMBER)
#undef OPS_MEMBER
};

struct device_losses; /* device_loss.h */
struct device_ranks;  /* device_ranks.h */
struct device_stream; /* device_stream.h */

/* The first member of every backend's device. */
struct device {
    const struct ops *ops;
    const struct device_losses *losses; /* NULL: losses run on the host */
    const struct device_stream *stream; /* NULL: its memory is the host's and nothing overlaps */
    const struct device_ranks *ranks;   /* NULL: ranks exchange host memory */
    void (*close)(struct device *);
    char note[512]; /* one line for the user if "auto" did not open its first choice, else "" */
};

struct log_sink; /* formats/base/log.h */

struct device_options {
    int32_t threads_count; /* CPU devices; 0: all CPUs of the process */
    int32_t local_rank; /* "cuda" and "auto": the number of the GPU, one for each of the ranks of a
                           machine; 0 */
    bool deterministic; /* cuda: only library kernels that give the same bits again; default true */
    bool tf32;          /* cuda: f32 products on tensor cores with 10-bit mantissas; false */
    bool autotune;      /* cuda: time the kernels of every shape once and use the fastest; false */
    const char *plan_cache; /* cuda: folder that stores found plans; NULL: none */
    /* cuda: at DEBUG the cuDNN engine of every shape, at WARN engines that refuse to run; NULL:
     * silent. Borrowed while the device is open. */
    const struct log_sink *log;
};

void device_options_default(struct device_options *opt);

/* Opens a device by name: "cpu" (oneDNN), "cpu-ref", "cuda" or "cuda:N" (the module of
 * kernels/cuda), or "auto": cuda where it works, else cpu with the reason in `note`. Any other name
 * opens that device or fails; so does "auto" for a rank that has no GPU where others have one.
 * threads_count holds for the whole process (oneDNN and OpenMP share it). Returns OK, NOMEM,
 * UNSUPPORTED (unknown name, with the list of names in the message; or no CUDA here, with the
 * reason) or DEVICE. */
enum status device_open_with(struct device **out,
                             const char *name,
                             const struct device_options *opt,
                             struct error *err);
/* The same with default options. */
enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err);
void device_close(struct device *dev); /* accepts NULL */

/* Calls `line` once for every device that can be named: the name, whether it works, and one line
 * about it or about what is missing. */
void device_list(void (*line)(const char *name, bool works, const char *text, void *cookie),
                 void *cookie);

const struct ops *ops_cpu_ref(void);
const struct ops *ops_cpu(void);

#endif
