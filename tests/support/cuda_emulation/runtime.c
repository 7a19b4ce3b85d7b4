/*
 * runtime: the emulated CUDA runtime: properties and memory, which is the host's; streams, events
 * and graphs are in queue.c.
 *
 * New memory is filled with a pattern that is not a number in any type: on a GPU it holds what was
 * there before.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/executor.h"

enum { DIRT = 0xFF };

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t code) {
    return code == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaError";
}

const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorInvalidValue ? "invalid argument" : "emulated";
}

/* CCSTREAM_EMULATED_FAULT=count:CODE: the devices cannot be counted, as with an old driver (35). */
static int count_fault(void) {
    const char *fault = getenv("CCSTREAM_EMULATED_FAULT");
    return fault != NULL && strncmp(fault, "count:", 6) == 0 ? atoi(fault + 6) : 0;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = count_fault() == cudaErrorInsufficientDriver ? 12040 : 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

/* CCSTREAM_EMULATED_GPUS in the environment, else one; none where CUDA_VISIBLE_DEVICES is empty or
 * names another. */
cudaError_t cudaGetDeviceCount(int *count) {
    const char *gpus = getenv("CCSTREAM_EMULATED_GPUS");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const bool none =
        visible != NULL && (visible[0] == '\0' || strncmp(visible, "GPU-0000", 8) == 0);
    *count = none || count_fault() != 0 ? 0 : gpus != NULL ? atoi(gpus) : 1;
    return count_fault() != 0 ? (cudaError_t)count_fault() : none ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index) {
    /* One that was not chosen has no name, so that tests may share it. A process that sees one of
     * the host's GPUs alone has the number of that in CCSTREAM_EMULATED_FIRST_GPU. */
    const char *seen = getenv("CCSTREAM_EMULATED_FIRST_GPU");
    const int number = index + 1 + (seen != NULL ? atoi(seen) : 0);
    const char first = getenv("CCSTREAM_EMULATED_GPUS") != NULL ? (char)number : 0;
    *prop = (struct cudaDeviceProp){.name = "emulated on the host",
                                    .totalGlobalMem = (size_t)1 << 30,
                                    .major = 9,
                                    .uuid = {{first}}};
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
    (void)index;
    return emulation_has_fault("open") ? cudaErrorNoDevice : cudaSuccess;
}

/* Every block begins with its kind. */
struct block {
    size_t size_bytes;
    bool pinned;
    struct block *next, *before; /* of all blocks */
};
enum { HEAD_BYTES = 256, TOTAL_BYTES = 1 << 30 };

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t used_bytes; /* of the device */

static cudaError_t take(void **out, size_t size_bytes, bool pinned) {
    void *data = NULL;
    *out = NULL;
    (void)pthread_mutex_lock(&blocks_lock);
    const bool fits = pinned || size_bytes <= TOTAL_BYTES - used_bytes;
    if (!fits || posix_memalign(&data, HEAD_BYTES, HEAD_BYTES + size_bytes) != 0) {
        (void)pthread_mutex_unlock(&blocks_lock);
        return cudaErrorMemoryAllocation;
    }
    struct block *b = data;
    *b = (struct block){.size_bytes = size_bytes, .pinned = pinned, .next = blocks};
    if (blocks != NULL) {
        blocks->before = b;
    }
    blocks = b;
    used_bytes += pinned ? 0 : size_bytes;
    (void)pthread_mutex_unlock(&blocks_lock);
    *out = (char *)data + HEAD_BYTES;
    memset(*out, DIRT, size_bytes);
    if (executor() != NULL) {
        executor()->appears(*out, size_bytes);
    }
    return cudaSuccess;
}

static cudaError_t give_back(void *data) {
    if (data == NULL) {
        return cudaSuccess;
    }
    struct block *b = (struct block *)(void *)((char *)data - HEAD_BYTES);
    (void)pthread_mutex_lock(&blocks_lock);
    *(b->before != NULL ? &b->before->next : &blocks) = b->next;
    if (b->next != NULL) {
        b->next->before = b->before;
    }
    used_bytes -= b->pinned ? 0 : b->size_bytes;
    (void)pthread_mutex_unlock(&blocks_lock);
    memset(data, DIRT, b->size_bytes); /* so that late readers are noticed */
    if (executor() != NULL) {
        executor()->disappears(data);
    }
    free(b);
    return cudaSuccess;
}

bool emulation_is_pinned(const void *host) {
    const uintptr_t at = (uintptr_t)host;
    bool found = false;
    (void)pthread_mutex_lock(&blocks_lock);
    for (const struct block *b = blocks; b != NULL && !found; b = b->next) {
        const uintptr_t begin = (uintptr_t)b + HEAD_BYTES;
        found = b->pinned && at >= begin && at < begin + b->size_bytes;
    }
    (void)pthread_mutex_unlock(&blocks_lock);
    return found;
}

cudaError_t cudaMalloc(void **out, size_t size_bytes) {
    if (emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return take(out, size_bytes, false);
}

cudaError_t cudaMallocHost(void **out, size_t size_bytes) {
    if (emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return take(out, size_bytes, true);
}

cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned flags) {
    (void)flags;
    if (emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return take(out, size_bytes, true);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned flags) {
    (void)flags;
    *out = host;
    return cudaSuccess;
}

/* As CUDA's, it waits for the device. */
cudaError_t cudaFree(void *data) {
    if (data != NULL && emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (data != NULL) {
        emulation_finish_all();
    }
    return give_back(data);
}

/* This one does not wait: late readers read the pattern. */
cudaError_t cudaFreeHost(void *data) {
    if (emulation_spoils()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return give_back(data);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    (void)pthread_mutex_lock(&blocks_lock);
    *free_bytes = TOTAL_BYTES - used_bytes;
    *total_bytes = TOTAL_BYTES;
    (void)pthread_mutex_unlock(&blocks_lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *data) {
    out->type = emulation_is_pinned(data) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
