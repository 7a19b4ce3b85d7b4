/*
 * conv_fused: a convolution by a plan of cuDNN that takes channel sums while it writes: the forward
 * pass those that the batch norm's statistics are made of, the data gradient those that the unit
 * before needs (struct conv_bn_handoff). In fp16 alone cuDNN has such plans. They spare a pass over
 * what was just written.
 *
 * Threading : one owner.
 */
#ifndef KERNELS_CUDA_CONV_FUSED_INTERNAL_H
#define KERNELS_CUDA_CONV_FUSED_INTERNAL_H

#include "kernels/cuda/conv_plan_internal.h"
#include "kernels/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether cuDNN may have a plan: fp16, channels in multiples of 8. */
bool conv_fused_statistics_fits(const struct conv_problem *p);
/* The same for a data gradient of stride 1 on its way to `give`, which has to have a ReLU and the
 * result `out`. */
bool conv_fused_handover_fits(const struct conv_problem *p,
                              const struct conv_bn_handoff *give,
                              const void *out);

/* y, and in `sums` (2, k) those of y and of its squares. Whether of y before or after it is rounded
 * cuDNN does not say. Returns OK, NOMEM, UNSUPPORTED (there is no plan) or DEVICE. */
enum status conv_fused_statistics(struct cuda_device *dev,
                                  const struct conv_problem *p,
                                  void *x,
                                  void *w,
                                  void *y,
                                  float *sums,
                                  struct error *err);

/* x = or (problem.add) += the gradient, masked where the taker's out is not above zero;
 * SCRATCH_HANDOFF then holds one pair of sums (2, c): of x, and of x (pre - mean) rstd. Returns as
 * above. */
enum status conv_fused_handover(struct cuda_device *dev,
                                const struct conv_problem *p,
                                void *x,
                                void *w,
                                void *y,
                                const struct conv_bn_handoff *give,
                                void *out,
                                struct error *err);

/* What is compared on the device before a fused plan is chosen: vectors (2, channels) that cuDNN's
 * plain plan and a pass of our own come to, those of the fused plan, and those of the pass over
 * what the fused plan stored. */
enum conv_probe { PROBE_PLAIN, PROBE_FUSED, PROBE_STORED };
typedef enum status conv_fused_probe(struct cuda_device *dev,
                                     enum conv_probe what,
                                     const void *cookie,
                                     float *to,
                                     struct error *err);
typedef bool conv_fused_agree(const float *a, const float *b, int64_t channels);
/* Probes all three, in this order. Returns OK, UNSUPPORTED where they do not agree, NOMEM, or what
 * a probe returned. */
enum status conv_fused_check(struct cuda_device *dev,
                             conv_fused_probe *probe,
                             const void *cookie,
                             int64_t channels,
                             conv_fused_agree *agree,
                             struct error *err);

/* Whether vectors (2, channels) in host memory agree. Statistics: mean and rstd, to 2 % of a
 * deviation and what rounding moves a mean far from zero; sums: each of the two by its norm, to
 * 2 %. */
bool conv_fused_statistics_agree(const float *a, const float *b, int64_t channels);
bool conv_fused_sums_agree(const float *a, const float *b, int64_t channels);

/* batch_norm.cu: mean, rstd and running statistics from sums (2, channels) of x and of x^2. Unlike
 * shifted sums these cancel where a mean is many deviations from zero: with 30 deviations some 1e-4
 * of the variance are lost. */
cudaError_t launch_batch_norm_statistics_sums(cudaStream_t stream,
                                              float *mean,
                                              float *rstd,
                                              float *running_mean,
                                              float *running_var,
                                              const float *sums,
                                              int64_t rows,
                                              int64_t channels,
                                              float eps,
                                              float momentum);

#ifdef __cplusplus
}
#endif

#endif
