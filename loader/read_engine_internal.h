/*
 * read_engine: the two ways of reading many pieces of many files: io_uring with a deep queue, and
 * plain preadv. One reading thread owns one engine.
 *
 * Threading : single-owner: the thread that created it, then the one that uses it, then the one
 *             that destroys it; never two at a time.
 * Ownership : parts and the memory they name belong to the engine from submit until the completion
 *             is given back by reap, or until destroy returned true.
 */
#ifndef LOADER_READ_ENGINE_INTERNAL_H
#define LOADER_READ_ENGINE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "formats/base/status.h"

struct read_engine; /* opaque, each kind has its own */

enum { READ_MAX_PARTS = 31 };

/* One read of neighbouring bytes of a file into several pieces of memory. */
struct read_request {
    int fd;
    uint32_t slot; /* comes back in the completion */
    uint64_t offset;
    const struct iovec *parts; /* (part_count) */
    uint32_t part_count;       /* [1, READ_MAX_PARTS] */
};

struct read_completion {
    uint32_t slot;
    int32_t result; /* bytes read, 0 at the end of the file, or -errno */
};

struct read_engine_ops {
    const char *name;
    uint32_t max_threads; /* reading threads that make sense with this kind */
    uint32_t max_depth;   /* requests that one engine takes at a time */

    /* depth in [1, max_depth]. Returns OK, NOMEM or UNSUPPORTED (the kernel refuses). */
    enum status (*create)(struct read_engine **out, uint32_t depth, struct error *err);
    /* Asks the kernel to cancel what is in flight, waits up to timeout_ms for it, frees the engine.
     * False when something is still in flight: its memory may be written to at any time. Accepts
     * NULL. */
    bool (*destroy)(struct read_engine *e, int64_t timeout_ms);
    /* Takes a request; at most `depth` may be outstanding. Cannot fail: what goes wrong comes back
     * as the result of its completion. */
    void (*submit)(struct read_engine *e, const struct read_request *r);
    /* Waits for a completion and gives back up to `max` of them. Requires one outstanding and max
     * >= 1. Returns how many: 0 when a while has passed without one. */
    uint32_t (*reap)(struct read_engine *e, struct read_completion *out, uint32_t max);
};

const struct read_engine_ops *read_engine_uring(void);
const struct read_engine_ops *read_engine_pread(void);

#endif
