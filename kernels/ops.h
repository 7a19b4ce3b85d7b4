/*
 * ops: the one seam between models and machines: a flat table of operators, each backward pass next
 * to its forward. No graph, no autograd. `cpu-ref` is the specification, `cpu` its fast twin.
 *
 * Threading : a struct device has one owner; distinct devices are independent.
 * Ownership : tensors are views. Memory comes from alloc and goes back through free.
 * Order     : calls on one device run in order; only download and sync wait.
 * Layout    : dense row-major. Images are (N, H, W, C); convolution weights (O, KH, KW, I); linear
 *             weights (OUT, IN).
 * Types     : One real type per call, that of its main input: F32, BF16, or F64 (cpu-ref alone,
 *             which makes finite differences sharp). In a BF16 call activations and their gradients
 *             (in, out, pre, residual, sum, qkv, probs, din, dout, ...) are of that type, and so
 * are weight, table and positions, which are working copies; vectors of parameters and statistics
 * (gamma, beta, bias, mean, rstd, running_*, norm) and all gradients of parameters are F32. Sums
 * are taken in f32 or wider; a result is rounded once, when it is stored, to nearest even; what a
 * later stage reads back (pre, sum, probs, dpre) it reads as stored. Ops that differ say so. A
 * table answers UNSUPPORTED to a type it lacks; `supports` says so beforehand. Shapes    : every
 * entry checks them and answers INVALID with both shapes in the message. Gradients : WRITE_SET
 * overwrites, WRITE_ADD adds to what is there; always said at the call. Reductions have a fixed
 * order: the same call gives the same bits.
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
enum write_mode { WRITE_SET, WRITE_ADD };

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_GELU
}; /* GELU: x/2 (1 + erf(x/sqrt 2)) */

enum { TENSOR_MAX_DIMS = 4 };

/* A view: shape and place. data == NULL with ndim == 0 means "not wanted" where an op says so. */
struct tensor {
    void *data;
    enum dtype dtype;
    int32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS]; /* counts of elements */
};

int64_t tensor_count(const struct tensor *t); /* product of the shape; 1 for ndim 0 */
size_t tensor_size_bytes(const struct tensor *t);
struct tensor tensor_view(void *data, enum dtype dtype, int32_t ndim, const int64_t *shape);
struct tensor tensor_1d(void *data, enum dtype dtype, int64_t a);
struct tensor tensor_2d(void *data, enum dtype dtype, int64_t a, int64_t b);
struct tensor tensor_3d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c);
struct tensor tensor_4d(void *data, enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

/* Captions in a flat list of R token rows: caption n holds rows [starts[n], starts[n] +
 * lengths[n]), and a row's position is its distance from starts[n]. Padded: starts[n] = n T, R = N
 * T. Packed: each caption starts where the last one ends. starts ascend, captions do not overlap,
 * lengths are at least 1. Rows of no caption are not read; where an op writes such rows it writes
 * zeros. So packed and padded captions give the same numbers. Values are checked where the device's
 * memory is the host's; elsewhere an op stays within bounds.
 */
struct segments {
    const struct tensor *starts, *lengths; /* (N) i32, on the device */
};

struct conv_bn_params {
    int32_t stride;      /* >= 1, both directions */
    int32_t pad;         /* zeros on every side */
    enum activation act; /* NONE or RELU, after the residual */
    bool training;  /* true: batch statistics, running ones updated; false: running ones used */
    float eps;      /* 1e-5 */
    float momentum; /* weight of the NEW value in the running statistics, 0.1 */
};

struct pool_params {
    int32_t kernel, stride, pad;
};

struct attention_params {
    int32_t heads;
    const struct dropout_params *dropout; /* on the probabilities; NULL: none */
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
    double squares[2];                  /* room for the sums that grad_scale takes */
    /* Of the step, where the device computes the loss: the batch's are means of what it left of
     * the batch's samples, by side; NaN where the loss keeps no such number. */
    double loss, objective, tau;
    double batch_log_u[2], batch_zeta[2];
    uint64_t sound; /* 1; 0 from the first step on whose loss or gradient is not finite: from then
                       on optimisers change nothing */
};
#define STEP_VALUES_SET_BYTES offsetof(struct step_values, grad_norm)

/* Mask element e of sample n in layer l: keep when the counter generator keyed by (seed, step,
 * sample id, layer, e) draws >= p; kept values are scaled by 1/(1 - p). So ranks, micro-batches and
 * resumed runs drop the same elements (rng.h, RNG_DROPOUT). Exact mapping: kernels/dropout_mask.h.
 */
struct dropout_params {
    float p; /* [0, 1) */
    uint64_t seed;
    uint32_t layer;
    const struct step_values *values; /* on the device; `step` is read */
    const uint64_t *sample_ids;       /* (N), on the device */
};

/* lr, grad_scale and the step of the values are rounded to f32 where they meet f32. Bias correction
 * is that of step + 1. */
struct adamw_params {
    float beta1, beta2, eps;
    float weight_decay; /* decoupled: value *= 1 - lr * weight_decay, before the Adam step */
    const struct step_values *values; /* on the device; nothing is changed where sound is 0 */
};

/* PyTorch's SGD without dampening: g = grad_scale grad + weight_decay value; m = momentum m + g;
 * value -= lr (nesterov ? g + momentum m : m). m starts at zero. */
struct sgdm_params {
    float momentum;
    float weight_decay; /* L2: added to the gradient */
    bool nesterov;
    const struct step_values *values; /* as adamw's */
};

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
    /* Whether the device computes in a real type. Returns OK or UNSUPPORTED with the reason in one
     * line, such as what the processor lacks. */
    enum status (*supports)(struct device *, enum dtype, struct error *);
    enum status (*fill)(struct device *, const struct tensor *out, double value, struct error *);
    /* out = in, rounded to nearest even: from F32 to BF16 or back. */
    enum status (*cast)(struct device *,
                        const struct tensor *out,
                        const struct tensor *in,
                        struct error *);

    /* ---- input: out (N,H,W,3) = (in (N,H,W,3) u8 / 255 - mean[c]) / std[c] ---- */
    enum status (*normalize_u8)(struct device *,
                                const struct tensor *out,
                                const struct tensor *in,
                                const float mean[3],
                                const float std[3],
                                struct error *);

    /* ---- convolution + batch norm + residual + activation, one op ----
     * pre = conv(in, weight)                                       (N,OH,OW,O)
     * out = act((pre - mean) rstd gamma + beta + residual)       (N,OH,OW,O)
     * in (N,H,W,I), weight (O,KH,KW,I); gamma, beta, mean, rstd, running_* (O); residual like out
     * or not wanted. OH = (H + 2 pad - KH)/stride + 1. pre, mean, rstd are kept for the backward
     * pass. training: mean, rstd over (N,OH,OW) of pre as stored, biased variance; running = (1-m)
     * running
     * + m batch (running variance takes the unbiased one, as PyTorch). Both running_* not wanted:
     * no running statistics move, as in a second pass over the same batch. else: mean, rstd from
     * the running ones. */
    enum status (*conv_bn)(struct device *,
                           const struct tensor *out,
                           const struct tensor *pre,
                           const struct tensor *mean,
                           const struct tensor *rstd,
                           const struct tensor *running_mean,
                           const struct tensor *running_var,
                           const struct tensor *in,
                           const struct tensor *weight,
                           const struct tensor *gamma,
                           const struct tensor *beta,
                           const struct tensor *residual,
                           const struct conv_bn_params *,
                           struct error *);
    /* Training form only. `out` is the forward result (it carries the ReLU mask). `dpre` is scratch
     * like pre. din and dresidual may be not wanted; din_mode and dresidual_mode are theirs,
     * param_mode is that of dweight, dgamma, dbeta. dresidual must not alias dout unless SET. */
    enum status (*conv_bn_bwd)(struct device *,
                               const struct tensor *din,
                               enum write_mode din_mode,
                               const struct tensor *dresidual,
                               enum write_mode dresidual_mode,
                               const struct tensor *dweight,
                               const struct tensor *dgamma,
                               const struct tensor *dbeta,
                               enum write_mode param_mode,
                               const struct tensor *dpre,
                               const struct tensor *dout,
                               const struct tensor *out,
                               const struct tensor *pre,
                               const struct tensor *mean,
                               const struct tensor *rstd,
                               const struct tensor *in,
                               const struct tensor *weight,
                               const struct tensor *gamma,
                               const struct conv_bn_params *,
                               struct error *);

    /* ---- pools: in (N,H,W,C) -> out (N,OH,OW,C) ----
     * maxpool: argmax (N,OH,OW,C) i32 = offset ky*kernel+kx inside the window (first maximum wins).
     * avgpool: windows are cut at the border and divided by the elements inside; OH = ceil form
     * (ceil((H + 2 pad - kernel)/stride) + 1, last window starting inside); maxpool: floor form. */
    enum status (*maxpool)(struct device *,
                           const struct tensor *out,
                           const struct tensor *argmax,
                           const struct tensor *in,
                           const struct pool_params *,
                           struct error *);
    enum status (*maxpool_bwd)(struct device *,
                               const struct tensor *din,
                               enum write_mode,
                               const struct tensor *dout,
                               const struct tensor *argmax,
                               const struct pool_params *,
                               struct error *);
    enum status (*avgpool)(struct device *,
                           const struct tensor *out,
                           const struct tensor *in,
                           const struct pool_params *,
                           struct error *);
    enum status (*avgpool_bwd)(struct device *,
                               const struct tensor *din,
                               enum write_mode,
                               const struct tensor *dout,
                               const struct pool_params *,
                               struct error *);
    /* out (N,C) = mean over H,W of in (N,H,W,C) */
    enum status (*global_avgpool)(struct device *,
                                  const struct tensor *out,
                                  const struct tensor *in,
                                  struct error *);
    enum status (*global_avgpool_bwd)(struct device *,
                                      const struct tensor *din,
                                      enum write_mode,
                                      const struct tensor *dout,
                                      struct error *);

    /* ---- linear: pre (M,OUT) = in (M,IN) weight^T + bias; out = act(pre) ----
     * bias may be not wanted. pre is kept for the backward pass when act is GELU; with NONE it must
     * be not wanted. act: NONE or GELU. */
    enum status (*linear)(struct device *,
                          const struct tensor *out,
                          const struct tensor *pre,
                          const struct tensor *in,
                          const struct tensor *weight,
                          const struct tensor *bias,
                          enum activation act,
                          struct error *);
    /* `dpre` is scratch (M,OUT), used (and wanted) only with GELU. din, dbias may be not wanted. */
    enum status (*linear_bwd)(struct device *,
                              const struct tensor *din,
                              enum write_mode din_mode,
                              const struct tensor *dweight,
                              const struct tensor *dbias,
                              enum write_mode param_mode,
                              const struct tensor *dpre,
                              const struct tensor *dout,
                              const struct tensor *in,
                              const struct tensor *weight,
                              const struct tensor *pre,
                              enum activation act,
                              struct error *);

    /* out (M,N) = alpha op(a) op(b) (+ out with ADD); op transposes when asked. In a
     * BF16 call out may be F32 too. */
    enum status (*matmul)(struct device *,
                          const struct tensor *out,
                          enum write_mode,
                          const struct tensor *a,
                          bool transpose_a,
                          const struct tensor *b,
                          bool transpose_b,
                          float alpha,
                          struct error *);

    /* ---- text ----
     * embedding: out (R,D) = table[tokens] + positions[position of the row]; tokens (R) i32 in
     * [0, V) (outside: INVALID); table (V,D); positions (P,D), no caption longer than P. */
    enum status (*embedding)(struct device *,
                             const struct tensor *out,
                             const struct tensor *tokens,
                             const struct segments *,
                             const struct tensor *table,
                             const struct tensor *positions,
                             struct error *);
    /* Contributions of equal tokens are added in order of their rows. dtable and dpositions are F32
     * in a BF16 call. */
    enum status (*embedding_bwd)(struct device *,
                                 const struct tensor *dtable,
                                 const struct tensor *dpositions,
                                 enum write_mode,
                                 const struct tensor *dout,
                                 const struct tensor *tokens,
                                 const struct segments *,
                                 struct error *);
    /* sum = a + b (b may be not wanted: sum is then a copy of a; sum may alias a);
     * out (M,D) = (sum - mean) rstd gamma + beta; mean, rstd (M); biased variance. */
    enum status (*layernorm)(struct device *,
                             const struct tensor *out,
                             const struct tensor *sum,
                             const struct tensor *mean,
                             const struct tensor *rstd,
                             const struct tensor *a,
                             const struct tensor *b,
                             const struct tensor *gamma,
                             const struct tensor *beta,
                             float eps,
                             struct error *);
    enum status (*layernorm_bwd)(struct device *,
                                 const struct tensor *dsum,
                                 enum write_mode dsum_mode,
                                 const struct tensor *dgamma,
                                 const struct tensor *dbeta,
                                 enum write_mode param_mode,
                                 const struct tensor *dout,
                                 const struct tensor *sum,
                                 const struct tensor *mean,
                                 const struct tensor *rstd,
                                 const struct tensor *gamma,
                                 struct error *);
    /* Multi-head attention within each caption: qkv (R,3 D) holds q, k, v of D = heads * Dh side by
     * side. probs (N,heads,T,T), after softmax and BEFORE dropout, is kept; zero beyond a caption's
     * length. T is the longest caption allowed, at most 512 (DROPOUT_MAX_TOKENS).
     * out (R,D) = dropout(softmax(q k^T / sqrt Dh)) v. */
    enum status (*attention)(struct device *,
                             const struct tensor *out,
                             const struct tensor *probs,
                             const struct tensor *qkv,
                             const struct segments *,
                             const struct attention_params *,
                             struct error *);
    enum status (*attention_bwd)(struct device *,
                                 const struct tensor *dqkv,
                                 const struct tensor *dout,
                                 const struct tensor *probs,
                                 const struct tensor *qkv,
                                 const struct segments *,
                                 const struct attention_params *,
                                 struct error *);
    /* out (R,D) = mask(in), element number = position of the row * D + column; in place allowed.
     * Segments NULL: row n is position 0 of sample n (N = R). Applied to a gradient it is its own
     * backward pass. */
    enum status (*dropout)(struct device *,
                           const struct tensor *out,
                           const struct tensor *in,
                           const struct segments *,
                           const struct dropout_params *,
                           struct error *);

    /* out (N,D) = mean of the rows of caption n of in (R,D) */
    enum status (*segment_mean)(struct device *,
                                const struct tensor *out,
                                const struct tensor *in,
                                const struct segments *,
                                struct error *);
    enum status (*segment_mean_bwd)(struct device *,
                                    const struct tensor *din,
                                    enum write_mode,
                                    const struct tensor *dout,
                                    const struct segments *,
                                    struct error *);

    /* ---- rows and vectors ---- */
    /* out (N,D) = in (M,D)[rows]; rows (N) i32 */
    enum status (*gather_rows)(struct device *,
                               const struct tensor *out,
                               const struct tensor *in,
                               const struct tensor *rows,
                               struct error *);
    /* out (M,D)[rows] = or += in (N,D); rows distinct. Other rows keep what they had. */
    enum status (*scatter_rows)(struct device *,
                                const struct tensor *out,
                                enum write_mode,
                                const struct tensor *in,
                                const struct tensor *rows,
                                struct error *);
    /* out (N,D) = in / max(|in|_2, 1e-12); norm (N) is kept. out is F32 in a BF16 call: the loss
     * reads it. */
    enum status (*l2_normalize)(struct device *,
                                const struct tensor *out,
                                const struct tensor *norm,
                                const struct tensor *in,
                                struct error *);
    /* din = (dout - <dout,out> out) / max(norm, 1e-12); din may be BF16, the rest is F32. */
    enum status (*l2_normalize_bwd)(struct device *,
                                    const struct tensor *din,
                                    const struct tensor *dout,
                                    const struct tensor *out,
                                    const struct tensor *norm,
                                    struct error *);
    /* out += alpha in */
    enum status (*add)(struct device *,
                       const struct tensor *out,
                       const struct tensor *in,
                       float alpha,
                       struct error *);
    /* *out (on the device) = sum of squares of in, accumulated in double. */
    enum status (*sum_squares)(struct device *,
                               double *out,
                               const struct tensor *in,
                               struct error *);
    /* grad_norm = sqrt of the sum of the first `count` (1 or 2) squares of values; grad_scale =
     * clip_norm / grad_norm where that is below 1 and clip_norm > 0, else 1; sound = 0 where
     * grad_norm is not finite. values: on the device. */
    enum status (*grad_scale)(struct device *,
                              struct step_values *values,
                              int32_t count,
                              double clip_norm,
                              struct error *);

    /* ---- optimiser, over flat ranges of equal count ----
     * working (BF16, or not wanted) receives the new value, rounded: the copy that bf16 calls read.
     */
    enum status (*adamw)(struct device *,
                         const struct tensor *value,
                         const struct tensor *working,
                         const struct tensor *grad,
                         const struct tensor *m,
                         const struct tensor *v,
                         const struct adamw_params *,
                         struct error *);
    enum status (*sgdm)(struct device *,
                        const struct tensor *value,
                        const struct tensor *working,
                        const struct tensor *grad,
                        const struct tensor *m,
                        const struct sgdm_params *,
                        struct error *);
};

struct device_losses; /* device_loss.h */
struct device_stream; /* device_stream.h */

/* What every backend's device begins with. */
struct device {
    const struct ops *ops;
    const struct device_losses *losses; /* NULL: losses run on the host */
    const struct device_stream *stream; /* NULL: its memory is the host's and nothing overlaps */
    void (*close)(struct device *);
    char note[512]; /* one line for the user where "auto" did not give the first choice, else "" */
};

struct log_sink; /* formats/base/log.h */

struct device_options {
    int32_t threads_count; /* of a CPU device; 0 = all that the process may use */
    bool deterministic;    /* cuda: only library kernels that repeat to the bit; default true */
    bool tf32;             /* cuda: f32 products on tensor cores with 10-bit mantissas; false */
    bool autotune;         /* cuda: time the kernels of every shape once, take the fastest; false */
    const char *plan_cache; /* cuda: folder where found plans are kept; NULL: nowhere */
    /* cuda: at DEBUG the cuDNN engine of every shape, at WARN engines that refuse to run; NULL:
     * silent. Borrowed while the device is open. */
    const struct log_sink *log;
};

void device_options_default(struct device_options *opt);

/* Opens a device by name: "cpu" (oneDNN), "cpu-ref", "cuda" or "cuda:N" (the module of
 * kernels/cuda), or "auto": cuda where it works, else cpu with a note that says why. A device asked
 * for by name never becomes another. threads_count holds for the whole process (oneDNN and OpenMP
 * share it). Returns OK, NOMEM, UNSUPPORTED (unknown name, with the list of names in the message;
 * or no CUDA here, with the reason) or DEVICE. */
enum status device_open_with(struct device **out,
                             const char *name,
                             const struct device_options *opt,
                             struct error *err);
/* The same with default options. */
enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err);
void device_close(struct device *dev); /* accepts NULL */

/* Calls `line` once for every device that a name can be given for, works or not: the name, whether
 * it works, and one line about it or about what is missing. */
void device_list(void (*line)(const char *name, bool works, const char *text, void *cookie),
                 void *cookie);

const struct ops *ops_cpu_ref(void);
const struct ops *ops_cpu(void);

#endif
