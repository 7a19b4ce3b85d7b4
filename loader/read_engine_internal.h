/*
 * read_engine: three ways to read many pieces of many files: io_uring with a deep queue, preadv,
 * and range requests to servers. One reading thread owns one engine.
 *
 * Threading : single-owner: the thread that created it, then the one that uses it, then the one
 *             that destroys it; never two at a time.
 * Ownership : parts and the memory they point to belong to the engine from submit until reap
 *             returns the completion, or destroy returns true.
 */
#ifndef LOADER_READ_ENGINE_INTERNAL_H
#define LOADER_READ_ENGINE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "formats/base/status.h"

struct read_engine;   /* opaque, one definition per engine */
struct remote_object; /* loader/remote/remote_internal.h */

enum { READ_MAX_PARTS = 31 };

/* One read of consecutive bytes of a file into several pieces of memory. */
struct read_request {
    int fd;        /* of a local file */
    uint32_t slot; /* returned in the completion */
    uint64_t offset;
    const struct iovec *parts;    /* (part_count) */
    uint32_t part_count;          /* [1, READ_MAX_PARTS] */
    struct remote_object *remote; /* instead of fd: a remote file, for read_engine_remote */
};

struct read_completion {
    uint32_t slot;
    int32_t result;              /* bytes read, 0 at the end of the file, or -errno */
    uint32_t retried_count;      /* attempts that the engine repeated by itself */
    const struct error *failure; /* not NULL: the read failed for good, and this says why; valid
                                    until the next call of submit */
};

struct read_engine_ops {
    const char *name;
    uint32_t max_threads; /* reading threads that are useful with this engine */
    uint32_t max_depth;   /* requests that one engine accepts at a time */

    /* depth in [1, max_depth]. Returns OK, NOMEM or UNSUPPORTED (the kernel refuses). */
    enum status (*create)(struct read_engine **out, uint32_t depth, struct error *err);
    /* Cancels the reads in flight, waits up to timeout_ms for them, frees the engine. False when
     * some are still in flight: their memory may be written to at any time. Accepts NULL. */
    bool (*destroy)(struct read_engine *e, int64_t timeout_ms);
    /* Adds a request; at most `depth` may be outstanding. Cannot fail: an error is the result of
     * the completion. */
    void (*submit)(struct read_engine *e, const struct read_request *r);
    /* Waits for a completion and returns up to `max` of them. Requires an outstanding request and
     * max >= 1. Returns how many: 0 after a short time without one. */
    uint32_t (*reap)(struct read_engine *e, struct read_completion *out, uint32_t max);
};

const struct read_engine_ops *read_engine_uring(void);
const struct read_engine_ops *read_engine_pread(void);
const struct read_engine_ops *read_engine_remote(void); /* of any files, remote or not */

#endif
