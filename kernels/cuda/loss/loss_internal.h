/*
 * loss: the launcher of a loss's step, callable from C. The rules of kernels_internal.h apply.
 */
#ifndef KERNELS_CUDA_LOSS_LOSS_INTERNAL_H
#define KERNELS_CUDA_LOSS_LOSS_INTERNAL_H

#include <cuda_runtime_api.h>

#include "kernels/contrast.h"
#include "kernels/device_loss.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t launch_loss_workspace_bytes(const struct device_loss *l);
/* Require a struct checked by device_loss.c. A step is launch_loss_examine, then launch_loss;
 * between them ranks merge the window, which may be empty. */
cudaError_t launch_loss_examine(cudaStream_t stream,
                                const struct device_loss *l,
                                uint32_t **window,
                                int64_t *window_count);
cudaError_t launch_loss(cudaStream_t stream, const struct device_loss *l);

/* The functions of struct device_contrasts. */
cudaError_t launch_contrast_sums(cudaStream_t stream, const struct contrast_tile *t);
cudaError_t launch_contrast_gradient(cudaStream_t stream, const struct contrast_tile *t);

/* Set in every device that cuda_open opens. */
extern const struct device_losses cuda_losses;
extern const struct device_contrasts cuda_contrasts;

#ifdef __cplusplus
}
#endif

#endif
