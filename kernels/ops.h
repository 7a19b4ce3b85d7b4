/*
 * ops: the one seam between models and machines: a flat table of operators, each backward pass next
 * to its forward. No graph, no autograd. `cpu-ref` is the specification, `cpu` its fast twin.
 *
 * Threading : a struct device has one owner; distinct devices are independent.
 * Ownership : tensors are views. Memory comes from alloc and goes back through free.
 * Order     : calls on one device run in order; only download and sync wait.
 * Layout    : dense row-major. Images are (N, H, W, C); convolution weights (O, KH, KW, I); linear
 *             weights (OUT, IN).
 * Types     : F32 everywhere. cpu-ref takes F64 too (one type per call), which is what makes
 *             finite differences sharp. A table answers UNSUPPORTED to a type it lacks.
 * Shapes    : every entry checks them and answers INVALID with both shapes in the message.
 * Gradients : WRITE_SET overwrites, WRITE_ADD adds to what is there; always said at the call.
 *             Reductions have a fixed order: the same call gives the same bits.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum dtype { DTYPE_F32 = 1, DTYPE_F64, DTYPE_I32, DTYPE_U64, DTYPE_U8 };

size_t dtype_size_bytes(enum dtype t);

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

/* Mask element e of sample n in layer l: keep when the counter generator keyed by (seed, step,
 * sample id, layer, e) draws >= p; kept values are scaled by 1/(1 - p). So ranks, micro-batches and
 * resumed runs drop the same elements (rng.h, RNG_DROPOUT). Exact mapping: kernels/dropout_mask.h.
 */
struct dropout_params {
    float p; /* [0, 1) */
    uint64_t seed, step;
    uint32_t layer;
    const uint64_t *sample_ids; /* (N), HOST memory, borrowed for the call */
};

struct adamw_params {
    float lr, beta1, beta2, eps;
    float weight_decay; /* decoupled: value *= 1 - lr * weight_decay, before the Adam step */
    float grad_scale;   /* gradients are multiplied by this first (clipping); 1 = as they are */
    int64_t step;       /* from 1, for bias correction */
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
    enum status (*fill)(struct device *, const struct tensor *out, double value, struct error *);

    /* ---- input: out (N,H,W,3) = (in (N,H,W,3) u8 / 255 - mean[c]) / std[c] ---- */
    enum status (*normalize_u8)(struct device *,
                                const struct tensor *out,
                                const struct tensor *in,
                                const float mean[3],
                                const float std[3],
                                struct error *);

    /* ---- convolution + batch norm + residual + activation, one op ----
     * pre = conv(in, weight)                                       (N,OH,OW,O)
     * training: mean, rstd over (N,OH,OW) of pre, biased variance; running = (1-m) running + m
     * batch (running variance takes the unbiased one, as PyTorch); else from the running ones out =
     * act((pre - mean) rstd gamma + beta + residual)         (N,OH,OW,O) in (N,H,W,I), weight
     * (O,KH,KW,I); gamma, beta, mean, rstd, running_* (O); residual like out or not wanted. OH = (H
     * + 2 pad - KH)/stride + 1. pre, mean, rstd are kept for the backward pass. */
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

    /* out (M,N) = alpha op(a) op(b) (+ out with ADD); op transposes when asked. */
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
     * embedding: out (N,T,D) = table[tokens] + positions[t]; tokens (N,T) i32 in [0, V) (outside:
     * INVALID); table (V,D); positions (P,D), P >= T. */
    enum status (*embedding)(struct device *,
                             const struct tensor *out,
                             const struct tensor *tokens,
                             const struct tensor *table,
                             const struct tensor *positions,
                             struct error *);
    /* Contributions of equal tokens are added in order of their position in the batch. Rows beyond
     * lengths[n] (i32, (N)) carry no gradient: dout there is not read. */
    enum status (*embedding_bwd)(struct device *,
                                 const struct tensor *dtable,
                                 const struct tensor *dpositions,
                                 enum write_mode,
                                 const struct tensor *dout,
                                 const struct tensor *tokens,
                                 const struct tensor *lengths,
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
    /* Multi-head attention: qkv (N,T,3 D) holds q, k, v of D = heads * Dh side by side; keys beyond
     * lengths[n] (i32 (N), in [1, T]) are masked. probs (N,heads,T,T), after softmax and BEFORE
     * dropout, is kept. out (N,T,D) = dropout(softmax(q k^T / sqrt Dh)) v. Rows of out beyond the
     * length are computed like the others (nobody reads them); backward takes their dout as given.
     */
    enum status (*attention)(struct device *,
                             const struct tensor *out,
                             const struct tensor *probs,
                             const struct tensor *qkv,
                             const struct tensor *lengths,
                             const struct attention_params *,
                             struct error *);
    enum status (*attention_bwd)(struct device *,
                                 const struct tensor *dqkv,
                                 const struct tensor *dout,
                                 const struct tensor *probs,
                                 const struct tensor *qkv,
                                 const struct tensor *lengths,
                                 const struct attention_params *,
                                 struct error *);
    /* out (N,...) = mask(in); in place allowed. Applied to a gradient it is its own backward pass.
     */
    enum status (*dropout)(struct device *,
                           const struct tensor *out,
                           const struct tensor *in,
                           const struct dropout_params *,
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
    /* out (N,D) = in / max(|in|_2, 1e-12); norm (N) is kept. */
    enum status (*l2_normalize)(struct device *,
                                const struct tensor *out,
                                const struct tensor *norm,
                                const struct tensor *in,
                                struct error *);
    /* din = (dout - <dout,out> out) / max(norm, 1e-12) */
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
    /* *out (host) = sum of squares of in, accumulated in double; waits. */
    enum status (*sum_squares)(struct device *,
                               double *out,
                               const struct tensor *in,
                               struct error *);

    /* ---- optimiser, over flat ranges; value, grad, m, v of equal count ---- */
    enum status (*adamw)(struct device *,
                         const struct tensor *value,
                         const struct tensor *grad,
                         const struct tensor *m,
                         const struct tensor *v,
                         const struct adamw_params *,
                         struct error *);
};

/* What every backend's device begins with. */
struct device {
    const struct ops *ops;
    void (*close)(struct device *);
};

/* Opens a device by name: "cpu" (oneDNN) or "cpu-ref". threads_count: 0 = all that the process may
 * use. The count holds for the whole process (oneDNN and OpenMP share it). Returns OK, NOMEM,
 * UNSUPPORTED (unknown name, with the list of names in the message). */
enum status
device_open(struct device **out, const char *name, int32_t threads_count, struct error *err);
void device_close(struct device *dev); /* accepts NULL */

const struct ops *ops_cpu_ref(void);
const struct ops *ops_cpu(void);

#endif
