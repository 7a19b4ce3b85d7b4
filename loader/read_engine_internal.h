/*
 * read_engine: the two ways of reading many pieces of many files: io_uring with a deep queue, and
 * plain pread. One reading thread owns one engine.
 *
 * Threading : single-owner: the thread that created it.
 * Ownership : a submitted buffer belongs to the engine until its completion is given back by
 *             reap, or until drain returns.
 */
#ifndef LOADER_READ_ENGINE_INTERNAL_H
#define LOADER_READ_ENGINE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct read_engine; /* opaque, each kind has its own */

struct read_request {
    int fd;
    uint32_t slot; /* comes back in the completion */
    void *buffer;
    size_t size_bytes;
    uint64_t offset;
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
    /* Waits until nothing is in flight, forgets the results, then frees. Accepts NULL. */
    void (*destroy)(struct read_engine *e);
    /* Takes a request; at most `depth` may be outstanding. Cannot fail: what goes wrong comes back
     * as the result of its completion. */
    void (*submit)(struct read_engine *e, const struct read_request *r);
    /* Waits until at least one request is complete and gives back up to `max` of them. Requires one
     * outstanding. Returns how many. */
    uint32_t (*reap)(struct read_engine *e, struct read_completion *out, uint32_t max);
};

const struct read_engine_ops *read_engine_uring(void);
const struct read_engine_ops *read_engine_pread(void);

#endif
