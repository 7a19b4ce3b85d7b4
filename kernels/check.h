/*
 * check: the shape rules of kernels/ops.h, written once and asked by every backend.
 *
 * Each check_NAME takes the tensors of the op of that name and returns OK, INVALID with a message
 * that names op, argument, found and expected shape, or UNSUPPORTED for a type no table knows.
 * `real` is the element type of the call (that of its main input).
 */
#ifndef KERNELS_CHECK_H
#define KERNELS_CHECK_H

#include "kernels/ops.h"

/* Type of a parameter's vector or gradient in a call of type `real`: F32 for BF16, else
 * the same. */
enum dtype param_dtype(enum dtype real);

/* A shape entry that may be anything. */
enum { ANY_SIZE = -1 };

bool tensor_wanted(const struct tensor *t);

/* One argument: type, dimensions, and each size unless ANY_SIZE. Unused sizes are ignored. */
enum status check_tensor(const char *op,
                         const char *argument,
                         const struct tensor *t,
                         enum dtype dtype,
                         int32_t ndim,
                         int64_t a,
                         int64_t b,
                         int64_t c,
                         int64_t d,
                         struct error *err);
/* Same, for arguments that may be not wanted. */
enum status check_optional(const char *op,
                           const char *argument,
                           const struct tensor *t,
                           enum dtype dtype,
                           int32_t ndim,
                           int64_t a,
                           int64_t b,
                           int64_t c,
                           int64_t d,
                           struct error *err);
/* Any shape equal to that of `like`. */
enum status check_like(const char *op,
                       const char *argument,
                       const struct tensor *t,
                       const struct tensor *like,
                       struct error *err);

int64_t conv_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad);    /* floor form */
int64_t avgpool_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad); /* ceil form */

enum status check_conv_bn(const struct tensor *out,
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
                          const struct conv_bn_params *p,
                          struct error *err);
enum status check_conv_bn_bwd(const struct tensor *din,
                              const struct tensor *dresidual,
                              const struct tensor *dweight,
                              const struct tensor *dgamma,
                              const struct tensor *dbeta,
                              const struct tensor *dpre,
                              const struct tensor *dout,
                              const struct tensor *out,
                              const struct tensor *pre,
                              const struct tensor *mean,
                              const struct tensor *rstd,
                              const struct tensor *in,
                              const struct tensor *weight,
                              const struct tensor *gamma,
                              const struct conv_bn_params *p,
                              struct error *err);
/* `ceil` for avgpool, floor for maxpool; argmax NULL for avgpool. */
enum status check_pool(const char *op,
                       const struct tensor *out,
                       const struct tensor *argmax,
                       const struct tensor *in,
                       const struct pool_params *p,
                       bool ceil_form,
                       struct error *err);
enum status
check_global_avgpool(const struct tensor *out, const struct tensor *in, struct error *err);
enum status check_linear(const struct tensor *out,
                         const struct tensor *pre,
                         const struct tensor *in,
                         const struct tensor *weight,
                         const struct tensor *bias,
                         enum activation act,
                         struct error *err);
enum status check_linear_bwd(const struct tensor *din,
                             const struct tensor *dweight,
                             const struct tensor *dbias,
                             const struct tensor *dpre,
                             const struct tensor *dout,
                             const struct tensor *in,
                             const struct tensor *weight,
                             const struct tensor *pre,
                             enum activation act,
                             struct error *err);
enum status check_matmul(const struct tensor *out,
                         const struct tensor *a,
                         bool transpose_a,
                         const struct tensor *b,
                         bool transpose_b,
                         struct error *err);
/* Shapes of segments; `count` captions or ANY_SIZE. */
enum status
check_segments(const char *op, const struct segments *seg, int64_t count, struct error *err);
/* Values, for arrays in host memory: every length in [1, longest], captions in order within `rows`.
 */
enum status check_segment_values(const char *op,
                                 const struct segments *seg,
                                 int64_t rows,
                                 int64_t longest,
                                 struct error *err);
enum status check_embedding(const struct tensor *out,
                            const struct tensor *tokens,
                            const struct segments *seg,
                            const struct tensor *table,
                            const struct tensor *positions,
                            struct error *err);
enum status check_embedding_bwd(const struct tensor *dtable,
                                const struct tensor *dpositions,
                                const struct tensor *dout,
                                const struct tensor *tokens,
                                const struct segments *seg,
                                struct error *err);
/* check_segment_values, and every token of a caption in [0, vocab_count). */
enum status check_token_values(const char *op,
                               const struct tensor *tokens,
                               const struct segments *seg,
                               int64_t vocab_count,
                               int64_t position_count,
                               struct error *err);
enum status check_layernorm(const struct tensor *out,
                            const struct tensor *sum,
                            const struct tensor *mean,
                            const struct tensor *rstd,
                            const struct tensor *a,
                            const struct tensor *b,
                            const struct tensor *gamma,
                            const struct tensor *beta,
                            struct error *err);
enum status check_layernorm_bwd(const struct tensor *dsum,
                                const struct tensor *dgamma,
                                const struct tensor *dbeta,
                                const struct tensor *dout,
                                const struct tensor *sum,
                                const struct tensor *mean,
                                const struct tensor *rstd,
                                const struct tensor *gamma,
                                struct error *err);
enum status check_attention(const struct tensor *out,
                            const struct tensor *probs,
                            const struct tensor *qkv,
                            const struct segments *seg,
                            const struct attention_params *p,
                            struct error *err);
enum status check_dropout_params(const char *op, const struct dropout_params *p, struct error *err);
/* seg may be NULL. */
enum status check_dropout(const struct tensor *out,
                          const struct tensor *in,
                          const struct segments *seg,
                          const struct dropout_params *p,
                          struct error *err);
enum status check_segment_mean(const struct tensor *out,
                               const struct tensor *in,
                               const struct segments *seg,
                               struct error *err);
/* rows in [0, M), arrays in host memory. */
enum status check_rows(const char *op,
                       const struct tensor *narrow,
                       const struct tensor *wide,
                       const struct tensor *rows,
                       struct error *err);
enum status check_l2_normalize(const struct tensor *out,
                               const struct tensor *norm,
                               const struct tensor *in,
                               struct error *err);
enum status check_l2_normalize_bwd(const struct tensor *din,
                                   const struct tensor *dout,
                                   const struct tensor *out,
                                   const struct tensor *norm,
                                   struct error *err);
enum status check_cast(const struct tensor *out, const struct tensor *in, struct error *err);
enum status check_adamw(const struct tensor *value,
                        const struct tensor *working,
                        const struct tensor *grad,
                        const struct tensor *m,
                        const struct tensor *v,
                        const struct adamw_params *p,
                        struct error *err);
enum status check_sgdm(const struct tensor *value,
                       const struct tensor *working,
                       const struct tensor *grad,
                       const struct tensor *m,
                       const struct sgdm_params *p,
                       struct error *err);
enum status check_grad_scale(const struct step_values *values,
                             int32_t count,
                             double clip_norm,
                             struct error *err);

#endif
