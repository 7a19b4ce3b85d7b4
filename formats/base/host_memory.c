/* Ordinary memory on cache-line boundaries: what vector code and O_DIRECT-free reads want. */
#include "formats/base/host_memory.h"

#include <stdint.h>
#include <stdlib.h>

enum { ALIGNMENT_BYTES = 64 };

static void *default_alloc(void *cookie, size_t size_bytes) {
    (void)cookie;
    if (size_bytes > SIZE_MAX - ALIGNMENT_BYTES) {
        return NULL;
    }
    size_t rounded = (size_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    return aligned_alloc(ALIGNMENT_BYTES, rounded ? rounded : ALIGNMENT_BYTES);
}

static void default_release(void *cookie, void *data) {
    (void)cookie;
    free(data);
}

struct host_memory host_memory_default(void) {
    return (struct host_memory){.alloc = default_alloc, .release = default_release};
}
