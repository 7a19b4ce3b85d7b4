/*
 * memory of the CUDA device: zeroed allocations, uploads, workspaces that grow.
 *
 *     host memory --memcpy--> staging[0..1] (pinned) --copy engine--> device
 *
 * An upload from ordinary memory returns once that memory has been copied to staging: the caller
 * may change it at once. A staging buffer is refilled after the event of its last copy.
 *
 * An upload from pinned memory (alloc_host) returns as soon as the copy is queued: the GPU reads
 * the memory later. The caller may change or free it only after a wait for the compute queue: sync,
 * download, or a mark that was put after the upload.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda_internal.h"

static const double gib = 1024.0 * 1024.0 * 1024.0;

enum status cuda_memory(struct cuda_device *dev, size_t size_bytes, void **out, struct error *err) {
    *out = NULL;
    const cudaError_t code = cudaMalloc(out, size_bytes > 0 ? size_bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0;
        size_t total_bytes = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return error_set(err, STATUS_NOMEM,
                         "cuda:%d: %.2f GiB requested, %.2f of %.2f GiB are free; use a smaller "
                         "batch or micro-batch",
                         dev->index, (double)size_bytes / gib, (double)free_bytes / gib,
                         (double)total_bytes / gib);
    }
    return code == cudaSuccess ? STATUS_OK : cuda_failed(code, "cudaMalloc", err);
}

enum status cuda_alloc(struct device *device, size_t size_bytes, void **out, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    *out = NULL;
    TRY(cuda_refuse_in_capture(dev, "allocate", err));
    TRY(cuda_memory(dev, size_bytes, out, err));
    cudaError_t code = cudaMemsetAsync(*out, 0, size_bytes, dev->stream);
    if (code == cudaSuccess) { /* the copy queue does not wait for this one and may write first */
        code = cudaStreamSynchronize(dev->stream);
    }
    if (code != cudaSuccess) {
        (void)cudaFree(*out);
        *out = NULL;
        return cuda_failed(code, "zeros for new memory", err);
    }
    cuda_counted(dev);
    return STATUS_OK;
}

void cuda_free(struct device *device, void *data) {
    (void)device;
    (void)cudaFree(data); /* waits for the device; accepts NULL */
}

/* Captured steps continue to use the workspace with which they were captured. */
static enum status
leave_workspace(struct cuda_device *dev, void *data, size_t size_bytes, struct error *err) {
    if (data != NULL && dev->keeps_workspace && dev->old_workspace_count < OLD_WORKSPACE_COUNT) {
        dev->old_workspace[dev->old_workspace_count++] = data;
        dev->old_workspace_bytes += size_bytes;
        return STATUS_OK;
    }
    if (data != NULL && dev->keeps_workspace) {
        return error_set(err, STATUS_LIMIT,
                         "cuda: the workspace has grown %d times; use --cuda-graph off",
                         OLD_WORKSPACE_COUNT);
    }
    TRY_CUDA(cudaStreamSynchronize(dev->stream)); /* it may still be read */
    TRY_CUDA(cudaFree(data));
    return STATUS_OK;
}

enum status cuda_workspace(struct cuda_device *dev,
                           enum workspace which,
                           size_t size_bytes,
                           void **out,
                           struct error *err) {
    *out = dev->workspace[which].data;
    if (dev->workspace[which].size_bytes >= size_bytes) {
        return STATUS_OK;
    }
    TRY(cuda_refuse_in_capture(dev, "allocate", err));
    if (dev->keeps_workspace) { /* replaced memory is not freed: grow by at least a quarter */
        const size_t more = dev->workspace[which].size_bytes / 4 + dev->workspace[which].size_bytes;
        size_bytes = size_bytes > more ? size_bytes : more;
    }
    TRY(leave_workspace(dev, dev->workspace[which].data, dev->workspace[which].size_bytes, err));
    dev->workspace[which].data = NULL;
    dev->workspace[which].size_bytes = 0;
    TRY(cuda_memory(dev, size_bytes, &dev->workspace[which].data, err));
    dev->workspace[which].size_bytes = size_bytes;
    *out = dev->workspace[which].data;
    return STATUS_OK;
}

size_t cuda_workspace_bytes(const struct cuda_device *dev) {
    size_t sum = BLAS_WORKSPACE_BYTES + dev->old_workspace_bytes;
    for (int32_t i = 0; i < WORKSPACE_COUNT; i++) {
        sum += dev->workspace[i].size_bytes;
    }
    return sum;
}

static bool is_pinned(const void *host) {
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, host) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeHost;
}

static enum status
upload_part(struct cuda_device *dev, void *dst, const void *host, size_t size, struct error *err) {
    struct staging *s = &dev->staging[dev->next_staging];
    dev->next_staging = (dev->next_staging + 1) % STAGING_COUNT;
    TRY_CUDA(cudaEventSynchronize(s->read));
    memcpy(s->host, host, size);
    TRY_CUDA(cudaMemcpyAsync(dst, s->host, size, cudaMemcpyHostToDevice, dev->stream));
    cuda_counted(dev);
    TRY_CUDA(cudaEventRecord(s->read, dev->stream));
    return STATUS_OK;
}

enum status cuda_upload(struct device *device,
                        void *dst,
                        const void *host,
                        size_t size_bytes,
                        struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_refuse_in_capture(dev, "copy from the host", err));
    if (size_bytes == 0) {
        return STATUS_OK;
    }
    if (is_pinned(host)) {
        TRY_CUDA(cudaMemcpyAsync(dst, host, size_bytes, cudaMemcpyHostToDevice, dev->stream));
        cuda_counted(dev);
        return STATUS_OK;
    }
    for (size_t done = 0; done < size_bytes;) {
        const size_t rest = size_bytes - done;
        const size_t size = rest < STAGING_BYTES ? rest : STAGING_BYTES;
        TRY(upload_part(dev, (char *)dst + done, (const char *)host + done, size, err));
        done += size;
    }
    return STATUS_OK;
}

/* Reports a wrong index that kernels found since the last call. */
enum status cuda_check_fault(struct cuda_device *dev, struct error *err) {
    /* At once: kernels of a later step may be writing one. */
    const int32_t fault = __atomic_exchange_n(dev->fault, FAULT_NONE, __ATOMIC_ACQ_REL);
    switch ((enum fault)fault) {
    case FAULT_NONE:
        return STATUS_OK;
    case FAULT_TOKEN:
        return error_set(err, STATUS_INVALID,
                         "embedding: a token is outside the vocabulary, or a caption is longer "
                         "than there are positions");
    case FAULT_ROW:
        return error_set(err, STATUS_INVALID, "gather_rows or scatter_rows: a row is out of range");
    case FAULT_SEGMENT:
        return error_set(err, STATUS_INVALID,
                         "attention, embedding or pooling: a caption's rows are out of range");
    }
    return error_set(err, STATUS_DEVICE, "a kernel reported fault %d", fault);
}

enum status cuda_sync(struct device *device, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_refuse_in_capture(dev, "wait for the device", err));
    TRY_CUDA(cudaStreamSynchronize(dev->stream));
    return cuda_check_fault(dev, err);
}

enum status cuda_download(struct device *device,
                          void *host,
                          const void *src,
                          size_t size_bytes,
                          struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_refuse_in_capture(dev, "copy to the host", err));
    if (size_bytes > 0) {
        TRY_CUDA(cudaMemcpyAsync(host, src, size_bytes, cudaMemcpyDeviceToHost, dev->stream));
        cuda_counted(dev);
    }
    return cuda_sync(device, err);
}

enum status cuda_launch_on(struct cuda_device *dev,
                           size_t workspace_bytes,
                           struct launch_on *out,
                           struct error *err) {
    *out = (struct launch_on){.stream = dev->stream, .fault = dev->fault_on_device};
    return workspace_bytes == 0
               ? STATUS_OK
               : cuda_workspace(dev, WORKSPACE_WORK, workspace_bytes, &out->workspace, err);
}

enum status cuda_supports(struct device *device, enum dtype dtype, struct error *err) {
    (void)device; /* every GPU that open accepts has bf16 */
    FAIL_IF(dtype != DTYPE_F32 && dtype != DTYPE_BF16, err, STATUS_UNSUPPORTED,
            "cuda computes in f32 and bf16");
    return STATUS_OK;
}
