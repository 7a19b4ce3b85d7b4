/*
 * conv_fused: a convolution by a plan of cuDNN that takes channel sums while it writes: the forward
 * pass those that the batch norm's statistics are made of, the data gradient those that the unit
 * before needs (struct conv_bn_handoff). They spare a pass over what was just written. cuDNN brings
 * such plans in fp16; in bf16 it may compile some of the first kind where there is a driver.
 *
 * Threading : one owner.
 */
#ifndef KERNELS_CUDA_CONV_CONV_FUSED_INTERNAL_H
#define KERNELS_CUDA_CONV_CONV_FUSED_INTERNAL_H

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether cuDNN may have a plan: 16-bit types, channels in multiples of 8. */
bool conv_fused_statistics_fits(const struct conv_problem *p);
/* The same for a data gradient in fp16, of stride 1, on its way to `give`, which has to have a ReLU
 * and the result `out`. */
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
