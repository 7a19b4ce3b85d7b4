/*
 * Ordinary memory on cache-line boundaries: as vector code and reads without O_DIRECT require.
 * Large pieces ask for large pages: a batch is written once and read once, far apart, and with
 * small pages every fourth kilobyte of it costs a walk through the page tables on either side.
 */
#include "formats/base/host_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGNMENT_BYTES = 64, LARGE_PAGE_BYTES = 2 << 20 };

static void *default_alloc(void *cookie, size_t size_bytes) {
    (void)cookie;
    const size_t alignment = size_bytes < LARGE_PAGE_BYTES ? ALIGNMENT_BYTES : LARGE_PAGE_BYTES;
    if (size_bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    const size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
    void *data = aligned_alloc(alignment, rounded ? rounded : alignment);
#ifdef MADV_HUGEPAGE
    if (data != NULL && alignment == LARGE_PAGE_BYTES) {
        (void)madvise(data, rounded, MADV_HUGEPAGE); /* a wish: without it only slower */
    }
#endif
    return data;
}

static void default_release(void *cookie, void *data) {
    (void)cookie;
    free(data);
}

struct host_memory host_memory_default(void) {
    return (struct host_memory){.alloc = default_alloc, .release = default_release};
}
