/*
 * cuda_internal: what the files of the CUDA module share: the device, its checks, its workspace.
 *
 * Threading : a device has one owner; ops run in order on its compute stream.
 * Ownership : workspaces and plans are the device's. Workspaces only grow, and are valid until the
 *             next op.
 * Errors    : every call of a library goes through TRY_CUDA, TRY_BLAS or TRY_DNN, every launch
 *             through launched(): the message names the call, the sticky error is cleared.
 */
#ifndef KERNELS_CUDA_DEVICE_CUDA_INTERNAL_H
#define KERNELS_CUDA_DEVICE_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/device/kernels_internal.h"
#include "kernels/cuda/ranks/ranks_internal.h"
#include "kernels/device_stream.h"
#include "kernels/operands.h"

/* The oldest cuDNN whose graphs have all that is used here, as cudnnGetVersion counts; CMake reads
 * it from this line. */
#define CCS_CUDNN_MINIMUM 90800

struct conv_plans;   /* conv_plan.h: cuDNN's plans by shape */
struct matmul_plans; /* matmul.c: cuBLASLt's algorithms by shape */

/* Workspaces by purpose: those in use at the same time have different purposes. */
enum workspace {
    WORKSPACE_WORK, /* the workspace of a launcher */
    WORKSPACE_DNN,  /* cuDNN's workspace */
    WORKSPACE_SUM,  /* a gradient that is added afterwards */
    WORKSPACE_BIAS, /* a bias in bf16, as cuBLASLt requires */
    WORKSPACE_STEM, /* images and weights of a convolution in another form */
    WORKSPACE_COUNT
};

enum {
    BLAS_WORKSPACE_BYTES = 32 << 20, /* required by Hopper's kernels */
    STAGING_BYTES = 8 << 20,         /* per pinned buffer of uploads */
    STAGING_COUNT = 2,
    ALIGNMENT_BYTES = 16,    /* of every tensor: the width of a vector load */
    OLD_WORKSPACE_COUNT = 64 /* replaced workspaces that captured steps may still use */
};

struct staging {
    void *host; /* pinned */
    cudaEvent_t read;
};

struct cuda_device {
    struct device base; /* first: struct device is cast to this */
    int32_t index;
    int32_t sm; /* 90 for compute capability 9.0 */
    char name[128];
    struct device_options options;
    char plan_cache[1024]; /* "" : none */

    cudaStream_t stream, copies;
    cudaEvent_t marks[DEVICE_MARK_COUNT];
    struct captured_step *capture; /* NULL except between capture_begin and capture_end */
    bool keeps_workspace;          /* there may be captured steps: replaced workspaces are kept */
    struct cuda_ranks *ranks;      /* NULL before join */
    struct device_counters counters;
    uint64_t launches_count; /* see device_stream.launches */
    cublasLtHandle_t blas;
    void *blas_workspace;
    cudnnHandle_t dnn;
    struct conv_plans *convs;
    struct matmul_plans *matmuls;

    struct {
        void *data;
        size_t size_bytes;
    } workspace[WORKSPACE_COUNT];
    void *old_workspace[OLD_WORKSPACE_COUNT];
    int32_t old_workspace_count;
    size_t old_workspace_bytes;
    struct staging staging[STAGING_COUNT];
    int32_t next_staging;

    int32_t *fault; /* pinned, mapped: seen by both sides; an enum fault */
    int32_t *fault_on_device;
};

static inline struct cuda_device *cuda_of(struct device *dev) {
    return (struct cuda_device *)dev;
}

/* Clears the sticky error and records which call failed and why. Returns NOMEM or DEVICE. */
enum status cuda_failed(cudaError_t code, const char *call, struct error *err);
enum status blas_failed(cublasStatus_t code, const char *call, struct error *err);
enum status dnn_failed(cudnnStatus_t code, const char *call, struct error *err);

#define TRY_LIBRARY(type, success, failed, call, name)                                             \
    do {                                                                                           \
        const type code_ = (call);                                                                 \
        if (code_ != (success)) {                                                                  \
            return failed(code_, name, err);                                                       \
        }                                                                                          \
    } while (0)
#define TRY_CUDA(call) TRY_LIBRARY(cudaError_t, cudaSuccess, cuda_failed, call, #call)
#define TRY_BLAS(call) TRY_LIBRARY(cublasStatus_t, CUBLAS_STATUS_SUCCESS, blas_failed, call, #call)
#define TRY_DNN(call)  TRY_LIBRARY(cudnnStatus_t, CUDNN_STATUS_SUCCESS, dnn_failed, call, #call)

/* Called after the launch of `op` with its result `code`. Debug builds wait for the kernel, to
 * report its errors here. Returns OK, NOMEM or DEVICE. */
enum status launched(struct cuda_device *dev, cudaError_t code, const char *op, struct error *err);

/* Counts one call that adds work to the stream. */
static inline void cuda_counted(struct cuda_device *dev) {
    dev->launches_count += dev->capture != NULL ? 0 : 1;
}

/* Workspace of at least size_bytes, aligned to 256; contents undefined. Growing waits for the
 * stream. Returns OK, NOMEM, DEVICE, or, if it must grow, UNSUPPORTED (in a capture) or LIMIT. */
enum status cuda_workspace(struct cuda_device *dev,
                           enum workspace which,
                           size_t size_bytes,
                           void **out,
                           struct error *err);

/* Where launchers run on the device, with a workspace of that size. Returns as cuda_workspace. */
enum status cuda_launch_on(struct cuda_device *dev,
                           size_t workspace_bytes,
                           struct launch_on *out,
                           struct error *err);

/* All workspaces, including replaced ones. */
size_t cuda_workspace_bytes(const struct cuda_device *dev);

/* Allocates device memory; the message of a failure has the requested and free memory and a remedy.
 * Returns OK, NOMEM or DEVICE. */
enum status cuda_memory(struct cuda_device *dev, size_t size_bytes, void **out, struct error *err);

/* ---- stream.c ---- */

extern const struct device_stream cuda_device_stream;
enum status cuda_stream_open(struct cuda_device *dev, struct error *err);
void cuda_stream_close(struct cuda_device *dev); /* also half-opened ones */
/* Returns UNSUPPORTED while a step is captured, else OK; `what` names the operation. */
enum status
cuda_refuse_in_capture(const struct cuda_device *dev, const char *what, struct error *err);
/* Ends the part of the step that is being captured; `call` follows it, then the next part. Returns
 * OK, NOMEM or DEVICE. */
enum status
cuda_capture_collective(struct cuda_device *dev, const struct collective *call, struct error *err);
/* Reports a wrong index that kernels found since the last call: OK, INVALID or DEVICE. */
enum status cuda_check_fault(struct cuda_device *dev, struct error *err);

/* cuDNN requires addresses that are multiples of 16 bytes: INVALID for others. */
enum status cuda_aligned(const char *op, const void *data, struct error *err);

/* ---- the functions of the table, see ops.h ---- */

enum status cuda_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err);
void cuda_free(struct device *dev, void *data);
enum status
cuda_upload(struct device *dev, void *dst, const void *host, size_t size_bytes, struct error *err);
enum status cuda_download(struct device *dev,
                          void *host,
                          const void *src,
                          size_t size_bytes,
                          struct error *err);
enum status cuda_sync(struct device *dev, struct error *err);
enum status cuda_supports(struct device *dev, enum dtype dtype, struct error *err);

#define CUDA_DECLARE(name) OPS_DECLARE(cuda, name)
OPS_EVERYWHERE_LIST(CUDA_DECLARE)
#undef CUDA_DECLARE

const struct ops *ops_cuda(void);

/* The functions of struct backend_module (module_internal.h). */
enum status cuda_count(int32_t *out, struct error *err);
enum status cuda_describe(int32_t index, char *out, size_t out_size, struct error *err);
enum status
cuda_open(struct device **out, int32_t index, const struct device_options *opt, struct error *err);

#endif
