/*
 * ref_internal: how the reference reads and writes elements: every value is a double, whatever the
 * tensor stores, so each op is written once for all of them and accumulates in double.
 */
#ifndef KERNELS_CPU_REF_REF_INTERNAL_H
#define KERNELS_CPU_REF_REF_INTERNAL_H

#include "kernels/bf16.h"
#include "kernels/check.h"
#include "kernels/ops.h"

static inline double get(const struct tensor *t, int64_t i) {
    switch (t->dtype) {
    case DTYPE_F64:
        return ((const double *)t->data)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)t->data)[i]);
    default:
        return (double)((const float *)t->data)[i];
    }
}

static inline void put(const struct tensor *t, int64_t i, double value) {
    switch (t->dtype) {
    case DTYPE_F64:
        ((double *)t->data)[i] = value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->data)[i] = bf16_from_f32((float)value);
        break;
    default:
        ((float *)t->data)[i] = (float)value;
        break;
    }
}

/* Once per element: a sum that lives in a bf16 tensor would be rounded at every step. */
static inline void put_mode(const struct tensor *t, int64_t i, double value, enum write_mode mode) {
    put(t, i, mode == WRITE_ADD ? get(t, i) + value : value);
}

/* Index of (a, b, c, d) in a dense tensor of four dimensions. */
static inline int64_t at4(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * t->shape[1] + b) * t->shape[2] + c) * t->shape[3] + d;
}

/* Answers UNSUPPORTED unless `t` holds floating-point numbers. */
enum status ref_real(const char *op, const struct tensor *t, struct error *err);

enum status ref_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err);
void ref_free(struct device *dev, void *data);
enum status
ref_upload(struct device *dev, void *dst, const void *host, size_t size_bytes, struct error *err);
enum status
ref_download(struct device *dev, void *host, const void *src, size_t size_bytes, struct error *err);
enum status ref_sync(struct device *dev, struct error *err);
enum status ref_supports(struct device *dev, enum dtype dtype, struct error *err);
enum status ref_fill(struct device *dev, const struct tensor *out, double value, struct error *err);
enum status
ref_cast(struct device *dev, const struct tensor *out, const struct tensor *in, struct error *err);
enum status ref_normalize_u8(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const float mean[3],
                             const float std[3],
                             struct error *err);
enum status ref_conv_bn(struct device *dev,
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
                        const struct conv_bn_params *p,
                        struct error *err);
enum status ref_conv_bn_bwd(struct device *dev,
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
                            const struct conv_bn_params *p,
                            struct error *err);
enum status ref_maxpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *argmax,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err);
enum status ref_maxpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct tensor *argmax,
                            const struct pool_params *p,
                            struct error *err);
enum status ref_avgpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err);
enum status ref_avgpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct pool_params *p,
                            struct error *err);
enum status ref_global_avgpool(struct device *dev,
                               const struct tensor *out,
                               const struct tensor *in,
                               struct error *err);
enum status ref_global_avgpool_bwd(struct device *dev,
                                   const struct tensor *din,
                                   enum write_mode mode,
                                   const struct tensor *dout,
                                   struct error *err);
enum status ref_linear(struct device *dev,
                       const struct tensor *out,
                       const struct tensor *pre,
                       const struct tensor *in,
                       const struct tensor *weight,
                       const struct tensor *bias,
                       enum activation act,
                       struct error *err);
enum status ref_linear_bwd(struct device *dev,
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
                           struct error *err);
enum status ref_matmul(struct device *dev,
                       const struct tensor *out,
                       enum write_mode mode,
                       const struct tensor *a,
                       bool transpose_a,
                       const struct tensor *b,
                       bool transpose_b,
                       float alpha,
                       struct error *err);
enum status ref_embedding(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *tokens,
                          const struct segments *seg,
                          const struct tensor *table,
                          const struct tensor *positions,
                          struct error *err);
enum status ref_embedding_bwd(struct device *dev,
                              const struct tensor *dtable,
                              const struct tensor *dpositions,
                              enum write_mode mode,
                              const struct tensor *dout,
                              const struct tensor *tokens,
                              const struct segments *seg,
                              struct error *err);
enum status ref_layernorm(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *sum,
                          const struct tensor *mean,
                          const struct tensor *rstd,
                          const struct tensor *a,
                          const struct tensor *b,
                          const struct tensor *gamma,
                          const struct tensor *beta,
                          float eps,
                          struct error *err);
enum status ref_layernorm_bwd(struct device *dev,
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
                              struct error *err);
enum status ref_attention(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *probs,
                          const struct tensor *qkv,
                          const struct segments *seg,
                          const struct attention_params *p,
                          struct error *err);
enum status ref_attention_bwd(struct device *dev,
                              const struct tensor *dqkv,
                              const struct tensor *dout,
                              const struct tensor *probs,
                              const struct tensor *qkv,
                              const struct segments *seg,
                              const struct attention_params *p,
                              struct error *err);
enum status ref_dropout(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct segments *seg,
                        const struct dropout_params *p,
                        struct error *err);
enum status ref_segment_mean(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const struct segments *seg,
                             struct error *err);
enum status ref_segment_mean_bwd(struct device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dout,
                                 const struct segments *seg,
                                 struct error *err);
enum status ref_gather_rows(struct device *dev,
                            const struct tensor *out,
                            const struct tensor *in,
                            const struct tensor *rows,
                            struct error *err);
enum status ref_scatter_rows(struct device *dev,
                             const struct tensor *out,
                             enum write_mode mode,
                             const struct tensor *in,
                             const struct tensor *rows,
                             struct error *err);
enum status ref_l2_normalize(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *norm,
                             const struct tensor *in,
                             struct error *err);
enum status ref_l2_normalize_bwd(struct device *dev,
                                 const struct tensor *din,
                                 const struct tensor *dout,
                                 const struct tensor *out,
                                 const struct tensor *norm,
                                 struct error *err);
enum status ref_add(struct device *dev,
                    const struct tensor *out,
                    const struct tensor *in,
                    float alpha,
                    struct error *err);
enum status
ref_sum_squares(struct device *dev, double *out, const struct tensor *in, struct error *err);
enum status ref_grad_scale(struct device *dev,
                           struct step_values *values,
                           int32_t count,
                           double clip_norm,
                           struct error *err);
enum status ref_adamw(struct device *dev,
                      const struct tensor *value,
                      const struct tensor *working,
                      const struct tensor *grad,
                      const struct tensor *m,
                      const struct tensor *v,
                      const struct adamw_params *p,
                      struct error *err);
enum status ref_sgdm(struct device *dev,
                     const struct tensor *value,
                     const struct tensor *working,
                     const struct tensor *grad,
                     const struct tensor *m,
                     const struct sgdm_params *p,
                     struct error *err);

#endif
