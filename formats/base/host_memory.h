/*
 * host_memory: where large host buffers come from. The trainer fills the pair with pinned
 * allocations; the default is ordinary memory with 64-byte alignment.
 *
 * Threading : both functions may be called from any thread.
 */
#ifndef FORMATS_BASE_HOST_MEMORY_H
#define FORMATS_BASE_HOST_MEMORY_H

#include <stddef.h>

struct host_memory {
    /* At least 64-byte aligned, content undefined; NULL on failure. */
    void *(*alloc)(void *cookie, size_t size_bytes);
    void (*release)(void *cookie, void *data); /* accepts NULL */
    void *cookie;
};

struct host_memory host_memory_default(void);

#endif
