/*
 * cpu_internal: the fast CPU device and what its files share.
 */
#ifndef KERNELS_CPU_CPU_INTERNAL_H
#define KERNELS_CPU_CPU_INTERNAL_H

#include "kernels/check.h"
#include "kernels/dropout_mask.h"
#include "kernels/ops.h"

struct onednn; /* kernels/cpu/onednn.h */

struct cpu_device {
    struct device base;
    struct onednn *onednn;
    /* Grow-only scratch of the ops: partial sums. */
    void *scratch;
    size_t scratch_bytes;
};

static inline struct cpu_device *cpu_device_of(struct device *dev) {
    return (struct cpu_device *)dev;
}

/* At least size_bytes, 64-byte aligned, content undefined, until the next call. Returns OK or
 * NOMEM. */
enum status cpu_scratch(struct device *dev, size_t size_bytes, void **out, struct error *err);

/* Answers UNSUPPORTED unless `t` is f32, or bf16 where the processor has it. */
enum status cpu_real(const char *op, const struct tensor *t, struct error *err);

/* Loops over many elements are worth threads from here on. */
enum { PARALLEL_MIN_COUNT = 16384 };

/* Compiled for wider vectors too; the right one is picked when the program starts. */
#if defined(__x86_64__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_CLONES
#endif

/* ---- f32 views of F32 and BF16 tensors; `at` and `count` are elements ---- */

enum { CPU_STRETCH = 1024 }; /* floats of a buffer: a few of them fit into the first-level cache */

/* `count` values: the tensor's own memory where it holds f32, else `buffer`, filled. */
const float *cpu_read(const struct tensor *t, int64_t at, int64_t count, float *buffer);
/* Where to compute values that belong at `at`: in place, or `buffer`; cpu_store then rounds what
 * stands in the buffer into its place, and does nothing for f32. */
float *cpu_target(const struct tensor *t, int64_t at, float *buffer);
void cpu_store(const struct tensor *t, int64_t at, int64_t count, const float *values);
/* How many of `count` elements to take at once: all of f32, a buffer of BF16. */
int64_t cpu_stretch(const struct tensor *t, int64_t count);
void cpu_widen(float *out, const uint16_t *in, int64_t count);
void cpu_narrow(uint16_t *out, const float *in, int64_t count);

/* out = or += scale in (F32, of equal count) */
void cpu_scale_into(const struct tensor *out,
                    enum write_mode mode,
                    const struct tensor *in,
                    float scale);

/* out += alpha in */
void cpu_add_to(float *out, const float *in, int64_t count, float alpha);

/* out (columns) = or += column sums of in (rows, columns), in double, in a fixed order. */
enum status cpu_column_sums(struct device *dev,
                            float *out,
                            enum write_mode mode,
                            const struct tensor *in,
                            struct error *err);

/* Zeros in the rows of t (R, ...) that belong to no caption. Values of seg have been checked. */
void cpu_clear_other_rows(const struct tensor *t, const struct segments *seg);

/* factors[i] = 0 where element first_element + i of the sample is dropped, else `kept`.
 * first_element is a multiple of 4. */
void cpu_dropout_factors(float *factors,
                         const struct dropout_stream *s,
                         uint64_t sample_id,
                         uint32_t first_element,
                         int64_t count,
                         uint32_t threshold,
                         float kept);

enum status cpu_supports(struct device *dev, enum dtype dtype, struct error *err);
enum status cpu_fill(struct device *dev, const struct tensor *out, double value, struct error *err);
enum status
cpu_cast(struct device *dev, const struct tensor *out, const struct tensor *in, struct error *err);
enum status cpu_normalize_u8(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const float mean[3],
                             const float std[3],
                             struct error *err);
enum status cpu_conv_bn(struct device *dev,
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
enum status cpu_conv_bn_bwd(struct device *dev,
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
enum status cpu_maxpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *argmax,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err);
enum status cpu_maxpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct tensor *argmax,
                            const struct pool_params *p,
                            struct error *err);
enum status cpu_avgpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err);
enum status cpu_avgpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct pool_params *p,
                            struct error *err);
enum status cpu_global_avgpool(struct device *dev,
                               const struct tensor *out,
                               const struct tensor *in,
                               struct error *err);
enum status cpu_global_avgpool_bwd(struct device *dev,
                                   const struct tensor *din,
                                   enum write_mode mode,
                                   const struct tensor *dout,
                                   struct error *err);
enum status cpu_linear(struct device *dev,
                       const struct tensor *out,
                       const struct tensor *pre,
                       const struct tensor *in,
                       const struct tensor *weight,
                       const struct tensor *bias,
                       enum activation act,
                       struct error *err);
enum status cpu_linear_bwd(struct device *dev,
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
enum status cpu_matmul(struct device *dev,
                       const struct tensor *out,
                       enum write_mode mode,
                       const struct tensor *a,
                       bool transpose_a,
                       const struct tensor *b,
                       bool transpose_b,
                       float alpha,
                       struct error *err);
enum status cpu_embedding(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *tokens,
                          const struct segments *seg,
                          const struct tensor *table,
                          const struct tensor *positions,
                          struct error *err);
enum status cpu_embedding_bwd(struct device *dev,
                              const struct tensor *dtable,
                              const struct tensor *dpositions,
                              enum write_mode mode,
                              const struct tensor *dout,
                              const struct tensor *tokens,
                              const struct segments *seg,
                              struct error *err);
enum status cpu_layernorm(struct device *dev,
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
enum status cpu_layernorm_bwd(struct device *dev,
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
enum status cpu_attention(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *probs,
                          const struct tensor *qkv,
                          const struct segments *seg,
                          const struct attention_params *p,
                          struct error *err);
enum status cpu_attention_bwd(struct device *dev,
                              const struct tensor *dqkv,
                              const struct tensor *dout,
                              const struct tensor *probs,
                              const struct tensor *qkv,
                              const struct segments *seg,
                              const struct attention_params *p,
                              struct error *err);
enum status cpu_dropout(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct segments *seg,
                        const struct dropout_params *p,
                        struct error *err);
enum status cpu_segment_mean(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const struct segments *seg,
                             struct error *err);
enum status cpu_segment_mean_bwd(struct device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dout,
                                 const struct segments *seg,
                                 struct error *err);
enum status cpu_gather_rows(struct device *dev,
                            const struct tensor *out,
                            const struct tensor *in,
                            const struct tensor *rows,
                            struct error *err);
enum status cpu_scatter_rows(struct device *dev,
                             const struct tensor *out,
                             enum write_mode mode,
                             const struct tensor *in,
                             const struct tensor *rows,
                             struct error *err);
enum status cpu_l2_normalize(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *norm,
                             const struct tensor *in,
                             struct error *err);
enum status cpu_l2_normalize_bwd(struct device *dev,
                                 const struct tensor *din,
                                 const struct tensor *dout,
                                 const struct tensor *out,
                                 const struct tensor *norm,
                                 struct error *err);
enum status cpu_add(struct device *dev,
                    const struct tensor *out,
                    const struct tensor *in,
                    float alpha,
                    struct error *err);
enum status
cpu_sum_squares(struct device *dev, double *out, const struct tensor *in, struct error *err);
enum status cpu_adamw(struct device *dev,
                      const struct tensor *value,
                      const struct tensor *working,
                      const struct tensor *grad,
                      const struct tensor *m,
                      const struct tensor *v,
                      const struct adamw_params *p,
                      struct error *err);
enum status cpu_sgdm(struct device *dev,
                     const struct tensor *value,
                     const struct tensor *working,
                     const struct tensor *grad,
                     const struct tensor *m,
                     const struct sgdm_params *p,
                     struct error *err);

#endif
