/*
 * stream: the copy queue, marks, and steps recorded as CUDA graphs.
 *
 * A recording contains the addresses of its ops, including scratch. So after the first recording,
 * scratch that grows keeps the old memory until the device is closed.
 */
#include <stdlib.h>

#include "kernels/cuda/device/cuda_internal.h"

struct recording {
    cudaGraphExec_t exec;
    uint64_t launches_count;
};

enum status cuda_not_recorded(const struct cuda_device *dev, const char *what, struct error *err) {
    return !dev->recording ? STATUS_OK
                           : error_set(err, STATUS_UNSUPPORTED,
                                       "cuda: a step that has to %s cannot be recorded", what);
}

static enum status
alloc_host(struct device *device, size_t size_bytes, void **out, struct error *err) {
    *out = NULL;
    TRY_CUDA(cudaSetDevice(cuda_of(device)->index)); /* a thread of the caller's */
    TRY_CUDA(cudaHostAlloc(out, size_bytes > 0 ? size_bytes : 1, cudaHostAllocDefault));
    return STATUS_OK;
}

static void free_host(struct device *device, void *data) {
    if (data != NULL) {
        (void)cudaSetDevice(
            cuda_of(device)->index); /* as above: otherwise it would open device 0 */
        (void)cudaFreeHost(data);
    }
}

static cudaStream_t queue_of(const struct cuda_device *dev, enum device_queue queue) {
    return queue == QUEUE_COPY ? dev->copies : dev->stream;
}

static enum status
copy_in(struct device *device, void *dst, const void *host, size_t size_bytes, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    if (size_bytes > 0) {
        TRY_CUDA(cudaMemcpyAsync(dst, host, size_bytes, cudaMemcpyHostToDevice, dev->copies));
    }
    return STATUS_OK;
}

static enum status
copy_out(struct device *device, void *host, const void *src, size_t size_bytes, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_not_recorded(dev, "copy to the host", err));
    if (size_bytes > 0) {
        TRY_CUDA(cudaMemcpyAsync(host, src, size_bytes, cudaMemcpyDeviceToHost, dev->stream));
        cuda_counted(dev);
    }
    return STATUS_OK;
}

static enum status check_mark(int32_t mark, struct error *err) {
    return mark >= 0 && mark < DEVICE_MARK_COUNT
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "cuda: there is no mark %d", (int)mark);
}

static enum status
put_mark(struct device *device, enum device_queue queue, int32_t mark, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_mark(mark, err));
    TRY_CUDA(cudaEventRecord(dev->marks[mark], queue_of(dev, queue)));
    return STATUS_OK;
}

static enum status
follow(struct device *device, enum device_queue queue, int32_t mark, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_mark(mark, err));
    TRY_CUDA(cudaStreamWaitEvent(queue_of(dev, queue), dev->marks[mark], 0));
    return STATUS_OK;
}

static enum status wait_for(struct device *device, int32_t mark, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_mark(mark, err));
    TRY_CUDA(cudaEventSynchronize(dev->marks[mark]));
    return cuda_check_fault(dev, err);
}

static enum status
seconds(struct device *device, double *out, int32_t from, int32_t to, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    float ms = 0.0f;
    TRY(check_mark(from, err));
    TRY(check_mark(to, err));
    TRY_CUDA(cudaEventElapsedTime(&ms, dev->marks[from], dev->marks[to]));
    *out = (double)ms * 1e-3;
    return STATUS_OK;
}

/* ---- recordings ---- */

/* Calls of other threads do not affect the recording. */
static enum status record_begin(struct device *device, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY_CUDA(cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal));
    dev->recording = true;
    dev->keeps_scratch = true;
    return STATUS_OK;
}

static enum status make_recording(struct cuda_device *dev,
                                  cudaGraph_t graph,
                                  struct recording **out,
                                  struct error *err) {
    struct recording *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_set(err, STATUS_NOMEM, "cuda: out of memory for a recording");
    }
    size_t nodes = 0;
    cudaError_t code = cudaGraphGetNodes(graph, NULL, &nodes);
    if (code == cudaSuccess) {
        code = cudaGraphInstantiate(&r->exec, graph, 0);
    }
    if (code != cudaSuccess) {
        free(r);
        return cuda_failed(code, "cudaGraphInstantiate", err);
    }
    r->launches_count = nodes;
    dev->counters.recorded_launches = nodes;
    dev->counters.recordings++;
    *out = r;
    return STATUS_OK;
}

static enum status record_end(struct device *device, struct recording **out, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    cudaGraph_t graph = NULL;
    if (out != NULL) {
        *out = NULL;
    }
    dev->recording = false;
    const cudaError_t code = cudaStreamEndCapture(dev->stream, &graph);
    enum status s = STATUS_OK;
    if (code != cudaSuccess) {
        s = cuda_failed(code, "cudaStreamEndCapture", err);
    } else if (out != NULL) {
        s = make_recording(dev, graph, out, err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return s;
}

static enum status replay(struct device *device, struct recording *r, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY_CUDA(cudaGraphLaunch(r->exec, dev->stream));
    dev->counters.replays++;
    dev->launches_count += r->launches_count;
    return STATUS_OK;
}

static void record_free(struct device *device, struct recording *r) {
    (void)device;
    if (r != NULL) {
        (void)cudaGraphExecDestroy(r->exec);
        free(r);
    }
}

static struct device_counters counters(struct device *device) {
    struct cuda_device *dev = cuda_of(device);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
        dev->counters.memory_bytes = total_bytes - free_bytes;
    }
    dev->counters.scratch_bytes = cuda_scratch_bytes(dev);
    return dev->counters;
}

static uint64_t launches(struct device *device) {
    return cuda_of(device)->launches_count;
}

enum status cuda_stream_open(struct cuda_device *dev, struct error *err) {
    TRY_CUDA(cudaStreamCreateWithFlags(&dev->copies, cudaStreamNonBlocking));
    for (int32_t i = 0; i < DEVICE_MARK_COUNT; i++) {
        /* A blocking wait leaves the CPU to the loader. */
        TRY_CUDA(cudaEventCreateWithFlags(&dev->marks[i], cudaEventBlockingSync));
    }
    return STATUS_OK;
}

void cuda_stream_close(struct cuda_device *dev) {
    for (int32_t i = 0; i < DEVICE_MARK_COUNT; i++) {
        if (dev->marks[i] != NULL) {
            (void)cudaEventDestroy(dev->marks[i]);
        }
    }
    if (dev->copies != NULL) {
        (void)cudaStreamSynchronize(dev->copies);
        (void)cudaStreamDestroy(dev->copies);
    }
    while (dev->old_scratch_count > 0) {
        (void)cudaFree(dev->old_scratch[--dev->old_scratch_count]);
    }
}

const struct device_stream cuda_device_stream = {
    .alloc_host = alloc_host,
    .free_host = free_host,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .mark = put_mark,
    .follow = follow,
    .wait = wait_for,
    .seconds = seconds,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .record_free = record_free,
    .counters = counters,
    .launches = launches,
};
