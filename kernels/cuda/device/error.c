/*
 * error: translates the codes of CUDA, cuBLASLt and cuDNN to a status and one line; counts
 * launches.
 */
#include <stdatomic.h>

#include "kernels/cuda/device/cuda_internal.h"

enum status cuda_failed(cudaError_t code, const char *call, struct error *err) {
    (void)cudaGetLastError(); /* clears it, if it can be cleared */
    const enum status s = code == cudaErrorMemoryAllocation ? STATUS_NOMEM : STATUS_DEVICE;
    return error_set(err, s, "%s: %s (%s); %s", cudaGetErrorName(code), cudaGetErrorString(code),
                     call,
                     s == STATUS_NOMEM ? "use a smaller batch or micro-batch"
                                       : "restarting the program may be necessary");
}

enum status blas_failed(cublasStatus_t code, const char *call, struct error *err) {
    (void)cudaGetLastError();
    const enum status s = code == CUBLAS_STATUS_ALLOC_FAILED ? STATUS_NOMEM : STATUS_DEVICE;
    return error_set(err, s, "cuBLASLt: %s (%s)", cublasLtGetStatusString(code), call);
}

enum status dnn_failed(cudnnStatus_t code, const char *call, struct error *err) {
    char why[256] = "";
    cudnnGetLastErrorString(why, sizeof why);
    for (char *p = why; *p != '\0'; p++) { /* messages are one line */
        *p = *p == '\n' ? ' ' : *p;
    }
    (void)cudaGetLastError();
    return error_set(err, STATUS_DEVICE, "cuDNN: %s (%s)%s%s", cudnnGetErrorString(code), call,
                     why[0] != '\0' ? ": " : "", why);
}

/* Launchers do not know the device: threads that launch on several devices at once mix their
 * counts. */
static _Atomic uint64_t started_count;

void cuda_count_launch(void) {
    (void)atomic_fetch_add_explicit(&started_count, 1, memory_order_relaxed);
}

enum status launched(struct cuda_device *dev, cudaError_t code, const char *op, struct error *err) {
    const uint64_t count = atomic_exchange_explicit(&started_count, 0, memory_order_relaxed);
    dev->launches_count += dev->capture != NULL ? 0 : count;
#ifndef NDEBUG
    if (code == cudaSuccess && dev->capture == NULL) {
        code = cudaStreamSynchronize(dev->stream);
    }
#endif
    return code == cudaSuccess ? STATUS_OK : cuda_failed(code, op, err);
}

enum status cuda_aligned(const char *op, const void *data, struct error *err) {
    FAIL_IF((uintptr_t)data % ALIGNMENT_BYTES != 0, err, STATUS_INVALID,
            "%s: a tensor is not at a multiple of %d bytes, as cuDNN requires", op,
            ALIGNMENT_BYTES);
    return STATUS_OK;
}
