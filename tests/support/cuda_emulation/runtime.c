/*
 * runtime: the emulated CUDA runtime: memory is the host's, work is done when it is asked for.
 *
 * Memory comes filled with a pattern that is not a number in any type, as a chip's comes filled
 * with what was there before.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_emulation/emulation.h"

enum { DIRT = 0xFF };

/* What one block may have on every chip of compute capability 8.0 and later. */
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    (void)kernel;
    (void)attribute;
    return value <= 99 << 10 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t code) {
    return code == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaError";
}

const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorInvalidValue ? "invalid argument" : "emulated";
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    return cudaDriverGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index) {
    (void)index;
    *prop = (struct cudaDeviceProp){.name = "emulated on the host",
                                    .totalGlobalMem = (size_t)1 << 30,
                                    .major = 9,
                                    .multiProcessorCount = 1};
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
    (void)index;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t size_bytes) {
    *out = NULL;
    if (posix_memalign(out, 256, size_bytes) != 0) {
        return cudaErrorMemoryAllocation;
    }
    memset(*out, DIRT, size_bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t size_bytes) {
    return cudaMalloc(out, size_bytes);
}

cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned flags) {
    (void)flags;
    return cudaMalloc(out, size_bytes);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned flags) {
    (void)flags;
    *out = host;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
    free(data);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *data) {
    return cudaFree(data);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = (size_t)1 << 30;
    *total_bytes = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *data) {
    (void)data;
    out->type = cudaMemoryTypeUnregistered; /* so that uploads take the way through staging */
    return cudaSuccess;
}

/* A fill or a copy, now or noted. */
struct transfer {
    void *out;
    const void *in; /* NULL: a fill */
    int value;
    size_t size_bytes;
};

static void run_transfer(void *cookie) {
    const struct transfer *t = cookie;
    if (t->in != NULL) {
        memcpy(t->out, t->in, t->size_bytes);
    } else {
        memset(t->out, t->value, t->size_bytes);
    }
}

static cudaError_t transfer(struct transfer t) {
    if (!emulation_is_recording()) {
        run_transfer(&t);
        return cudaSuccess;
    }
    struct transfer *noted = malloc(sizeof *noted);
    if (noted == NULL) {
        return cudaErrorMemoryAllocation;
    }
    *noted = t;
    emulation_note(run_transfer, free, noted);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *out, int value, size_t size_bytes, cudaStream_t stream) {
    (void)stream;
    return transfer((struct transfer){.out = out, .value = value, .size_bytes = size_bytes});
}

cudaError_t cudaMemcpyAsync(void *out,
                            const void *in,
                            size_t size_bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind;
    (void)stream;
    return transfer((struct transfer){.out = out, .in = in, .size_bytes = size_bytes});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return emulation_is_recording() ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, 0);
}

/* Every stretch takes a little less than the one before, so that all that is timed is also chosen.
 */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    static float last = 1e6f;
    (void)begin;
    (void)end;
    last *= 0.999f;
    *ms = last;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

/* ---- graphs: lists of what was noted ---- */

struct emulation_graph {
    struct item {
        void (*run)(void *cookie);
        void (*drop)(void *cookie);
        void *cookie;
        struct item *next;
    } * first, **end;
    size_t count;
    int owners; /* the graph and its executable forms */
};

static struct emulation_graph *recording;

bool emulation_is_recording(void) {
    return recording != NULL;
}

void emulation_note(void (*run)(void *cookie), void (*drop)(void *cookie), void *cookie) {
    struct item *i = malloc(sizeof *i);
    if (i == NULL) {
        abort();
    }
    *i = (struct item){.run = run, .drop = drop, .cookie = cookie};
    *recording->end = i;
    recording->end = &i->next;
    recording->count++;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)stream;
    (void)mode;
    recording = recording == NULL ? calloc(1, sizeof *recording) : NULL;
    if (recording == NULL) {
        return cudaErrorInvalidValue;
    }
    recording->end = &recording->first;
    recording->owners = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    (void)stream;
    *out = recording;
    recording = NULL;
    return *out != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    (void)nodes;
    *count = graph->count;
    return cudaSuccess;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    graph->owners++;
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    (void)stream;
    for (struct item *i = exec->first; i != NULL; i = i->next) {
        i->run(i->cookie);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (--graph->owners > 0) {
        return cudaSuccess;
    }
    while (graph->first != NULL) {
        struct item *i = graph->first;
        graph->first = i->next;
        i->drop(i->cookie);
        free(i);
    }
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return cudaGraphDestroy(exec);
}
