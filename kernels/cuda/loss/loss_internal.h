/*
 * loss: the launcher of a loss's step, callable from C. The rules are those of kernels_internal.h.
 */
#ifndef KERNELS_CUDA_LOSS_LOSS_INTERNAL_H
#define KERNELS_CUDA_LOSS_LOSS_INTERNAL_H

#include <cuda_runtime_api.h>

#include "kernels/device_loss.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t launch_loss_workspace_bytes(const struct device_loss *l);
/* The struct is complete: see device_loss.c. */
cudaError_t launch_loss(cudaStream_t stream, const struct device_loss *l);

/* Put into every device that cuda_open opens. */
extern const struct device_losses cuda_losses;

#ifdef __cplusplus
}
#endif

#endif
