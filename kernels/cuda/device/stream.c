/*
 * stream: the copy queue, marks, and steps captured as CUDA graphs.
 *
 * A captured step contains the addresses of its ops, including workspaces. So after the first
 * capture, a workspace that grows keeps its old memory until the device is closed.
 *
 * Collectives (kernels/device_ranks.h) divide a step into graphs: a replay starts them one
 * after another, and makes the collectives, which are in no graph, between them.
 *
 *     step: | graph | gather | graph | merge | graph | sum | sum | graph | finish | graph |
 */
#include <stdlib.h>

#include "kernels/cuda/device/cuda_internal.h"

/* The ops up to a collective, and the collective. */
struct part {
    cudaGraphExec_t exec;   /* NULL: no ops */
    bool is_last;           /* no collective follows */
    struct collective call; /* follows the ops */
    struct part *next;
};

struct captured_step {
    struct part *first, **end;
    uint64_t launches_count;
    bool capturing; /* a part is being captured */
};

enum status
cuda_refuse_in_capture(const struct cuda_device *dev, const char *what, struct error *err) {
    return dev->capture == NULL ? STATUS_OK
                                : error_set(err, STATUS_UNSUPPORTED,
                                            "cuda: a step that has to %s cannot be captured", what);
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
    TRY(cuda_refuse_in_capture(dev, "copy to the host", err));
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

/* ---- captured steps ---- */

static void captured_free(struct device *device, struct captured_step *c) {
    (void)device;
    while (c != NULL && c->first != NULL) {
        struct part *p = c->first;
        c->first = p->next;
        if (p->exec != NULL) {
            (void)cudaGraphExecDestroy(p->exec);
        }
        free(p);
    }
    free(c);
}

/* Calls of other threads do not affect the capture. */
static enum status begin_part(struct cuda_device *dev, struct error *err) {
    TRY_CUDA(cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal));
    dev->capture->capturing = true;
    return STATUS_OK;
}

static enum status capture_begin(struct device *device, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct captured_step *c = calloc(1, sizeof *c);
    TRY_MEMORY(c != NULL, err, "cuda: out of memory for a captured step");
    c->end = &c->first;
    dev->capture = c;
    dev->keeps_workspace = true;
    const enum status s = begin_part(dev, err);
    if (s != STATUS_OK) {
        dev->capture = NULL;
        captured_free(device, c);
    }
    return s;
}

static enum status add_part(struct captured_step *c,
                            cudaGraph_t graph,
                            const struct collective *call,
                            struct error *err) {
    size_t nodes = 0;
    TRY_CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    struct part *p = calloc(1, sizeof *p);
    TRY_MEMORY(p != NULL, err, "cuda: out of memory for a captured step");
    *c->end = p;
    c->end = &p->next;
    c->launches_count += nodes;
    p->is_last = call == NULL;
    if (call != NULL) {
        p->call = *call;
    }
    if (nodes > 0) {
        TRY_CUDA(cudaGraphInstantiate(&p->exec, graph, 0));
    }
    return STATUS_OK;
}

/* With `keep` false the part is discarded. */
static enum status
end_part(struct cuda_device *dev, bool keep, const struct collective *call, struct error *err) {
    cudaGraph_t graph = NULL;
    if (!dev->capture->capturing) {
        return STATUS_OK; /* a failure ended it, and was returned */
    }
    dev->capture->capturing = false;
    const cudaError_t code = cudaStreamEndCapture(dev->stream, &graph);
    enum status s = STATUS_OK;
    if (code != cudaSuccess) {
        s = cuda_failed(code, "cudaStreamEndCapture", err);
    } else if (keep) {
        s = add_part(dev->capture, graph, call, err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return s;
}

enum status
cuda_capture_collective(struct cuda_device *dev, const struct collective *call, struct error *err) {
    TRY(end_part(dev, true, call, err));
    return begin_part(dev, err);
}

static enum status
capture_end(struct device *device, struct captured_step **out, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    const enum status s = end_part(dev, out != NULL, NULL, err);
    struct captured_step *c = dev->capture;
    dev->capture = NULL;
    if (out != NULL) {
        *out = s == STATUS_OK ? c : NULL;
    }
    if (s != STATUS_OK || out == NULL) {
        captured_free(device, c);
        return s;
    }
    dev->counters.captured_launches = c->launches_count;
    dev->counters.captures++;
    return s;
}

static enum status replay(struct device *device, struct captured_step *c, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    for (const struct part *p = c->first; p != NULL; p = p->next) {
        if (p->exec != NULL) {
            TRY_CUDA(cudaGraphLaunch(p->exec, dev->stream));
        }
        if (!p->is_last) {
            TRY(cuda_collective(dev, &p->call, err));
        }
    }
    dev->counters.replays++;
    dev->launches_count += c->launches_count;
    return STATUS_OK;
}

static struct device_counters counters(struct device *device) {
    struct cuda_device *dev = cuda_of(device);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
        dev->counters.memory_bytes = total_bytes - free_bytes;
    }
    dev->counters.workspace_bytes = cuda_workspace_bytes(dev);
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
    while (dev->old_workspace_count > 0) {
        (void)cudaFree(dev->old_workspace[--dev->old_workspace_count]);
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
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .captured_free = captured_free,
    .counters = counters,
    .launches = launches,
};
