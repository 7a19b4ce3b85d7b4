/*
 * kernels: the launchers of ccstream's CUDA kernels, callable from C. A launcher takes the argument
 * struct of its operator; kernels/ops.h defines shapes, types and rounding.
 *
 * Threading : pure functions; work goes to the stream in order. Nothing waits, nothing is
 *             allocated.
 * Ownership : every pointer is borrowed device memory (or host memory that the device reads at the
 *             same address). A workspace is the caller's, aligned to 16 bytes, needed until the
 *             work is done; the launcher's _workspace_bytes function returns its size; its contents
 *             are not kept.
 *
 * Types: real types other than F32 and BF16 return cudaErrorInvalidValue.
 *
 * Alignment: of an element. Rows of multiples of 16 bytes at addresses of multiples of 16
 * bytes are moved 16 bytes at a time, others element by element.
 *
 * Arguments: checked by the caller (op_check).
 *
 * Order: the order of every sum depends only on the shape, never on the GPU or on which block came
 * first: equal inputs give bit-identical results. No atomics on numbers.
 *
 * Faults: kernels that read indices stay within bounds for any value, and write a fault that they
 * find to *fault.
 *
 * Returns: cudaSuccess or the error of cudaLaunchKernelExC.
 */
#ifndef KERNELS_CUDA_DEVICE_KERNELS_INTERNAL_H
#define KERNELS_CUDA_DEVICE_KERNELS_INTERNAL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/ops.h"

/* Called by every launcher for each kernel, copy or fill that it starts; see launched(). */
void cuda_count_launch(void);

enum fault { FAULT_NONE, FAULT_TOKEN, FAULT_ROW, FAULT_SEGMENT };

/* Where a launcher's kernels run. */
struct launch_on {
    cudaStream_t stream;
    int32_t
        *fault; /* an enum fault that the caller zeroes and reads; NULL: faults are not reported */
    void *workspace;
};

/* Operators that are one launcher without a workspace, and with one: X(name). The other operators
 * are in ops_conv.c and ops_linear.c. */
#define PLAIN_LAUNCHERS(X)                                                                         \
    X(fill)                                                                                        \
    X(cast)                                                                                        \
    X(normalize_u8)                                                                                \
    X(maxpool)                                                                                     \
    X(maxpool_bwd)                                                                                 \
    X(avgpool)                                                                                     \
    X(avgpool_bwd)                                                                                 \
    X(global_avgpool)                                                                              \
    X(global_avgpool_bwd)                                                                          \
    X(embedding)                                                                                   \
    X(layernorm)                                                                                   \
    X(attention)                                                                                   \
    X(dropout)                                                                                     \
    X(segment_mean)                                                                                \
    X(segment_mean_bwd)                                                                            \
    X(gather_rows)                                                                                 \
    X(scatter_rows)                                                                                \
    X(l2_normalize)                                                                                \
    X(l2_normalize_bwd)                                                                            \
    X(add)                                                                                         \
    X(grad_scale)                                                                                  \
    X(adamw)                                                                                       \
    X(sgdm)
#define WORKSPACE_LAUNCHERS(X)                                                                     \
    X(embedding_bwd)                                                                               \
    X(layernorm_bwd)                                                                               \
    X(attention_bwd)                                                                               \
    X(sum_squares)

#define DECLARE_LAUNCHER(name)                                                                     \
    cudaError_t launch_##name(const struct launch_on *on, const struct name *op);
#define DECLARE_WORKSPACE(name) size_t name##_workspace_bytes(const struct name *op);
PLAIN_LAUNCHERS(DECLARE_LAUNCHER)
WORKSPACE_LAUNCHERS(DECLARE_LAUNCHER)
WORKSPACE_LAUNCHERS(DECLARE_WORKSPACE)
#undef DECLARE_LAUNCHER
#undef DECLARE_WORKSPACE

/* ---- batch_norm.cu: conv_bn and its backward pass without the convolutions ---- */

/* mean, rstd from pre, and the running statistics unless omitted. Two stages: shifted sums of
 * pieces of the rows in f32, merged in double. */
size_t batch_norm_statistics_workspace_bytes(const struct conv_bn *op);
cudaError_t launch_batch_norm_statistics(const struct launch_on *on, const struct conv_bn *op);
/* mean, rstd from the running statistics: the inference form. */
cudaError_t launch_batch_norm_running(const struct launch_on *on, const struct conv_bn *op);
/* out from pre; one pass, from the last row to the first: what the statistics read last is still in
 * the cache. */
cudaError_t launch_batch_norm_apply(const struct launch_on *on, const struct conv_bn *op);
/* dgamma and dbeta from one pass over dout, pre and, with RELU and without beta, out; it also
 * writes dresidual if that is set. Then dpre in a second pass from the last row to the first, over
 * dresidual and pre, or over the operands of the first pass. */
size_t batch_norm_bwd_workspace_bytes(const struct conv_bn_bwd *op);
cudaError_t launch_batch_norm_bwd(const struct launch_on *on, const struct conv_bn_bwd *op);

/* ---- gelu.cu, columns.cu: linear and its backward pass without the products ---- */

/* out = gelu(pre) */
cudaError_t launch_gelu(const struct launch_on *on, const struct linear *op);
/* dpre, and dbias unless omitted */
size_t gelu_bwd_workspace_bytes(const struct linear_bwd *op);
cudaError_t launch_gelu_bwd(const struct launch_on *on, const struct linear_bwd *op);
/* dbias, without an activation */
size_t bias_bwd_workspace_bytes(const struct linear_bwd *op);
cudaError_t launch_bias_bwd(const struct launch_on *on, const struct linear_bwd *op);

/* ---- input.cu ---- */

/* A kernel that does nothing for `cycles` of the GPU's clock. Later launches are queued meanwhile,
 * so their time does not include the host's. */
cudaError_t launch_delay(cudaStream_t stream, int64_t cycles);

#ifdef __cplusplus
}
#endif

#endif
