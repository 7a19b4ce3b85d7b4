/*
 * device_stream: the interface of devices that compute asynchronously: pinned memory, a second
 * queue that copies the next batch while a step is computed, marks by which queues and host wait
 * for each other, and recordings of whole steps. Devices whose memory is the host's have none
 * (`device.stream` is NULL): there the work of a call is done when it returns.
 *
 * The ops of struct ops go to QUEUE_COMPUTE, in order. wait, ops->sync and ops->download block the
 * host; ops.h lists the calls that may.
 *
 * Threading : as the device; alloc_host and free_host may be called by any thread.
 * Ownership : recordings belong to the caller, who frees them with record_free before closing the
 * device. Memory that a recorded op uses must stay in place while the recording is in use.
 */
#ifndef KERNELS_DEVICE_STREAM_H
#define KERNELS_DEVICE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum device_queue { QUEUE_COMPUTE, QUEUE_COPY };

enum { DEVICE_MARK_COUNT = 16 }; /* marks are numbers below this */

struct recording; /* opaque: ops that are started as one */

struct device_counters {
    size_t memory_bytes;          /* of the device in use, by this process and others */
    size_t scratch_bytes;         /* the part of it that the device uses as scratch */
    uint64_t recorded_launches;   /* kernels, copies and fills in the newest recording; 0: none */
    uint64_t recordings, replays; /* since the device was opened */
};

struct device_stream {
    /* Pinned host memory, which copies read and write asynchronously; 64-byte aligned, contents
     * undefined. Returns OK, NOMEM or DEVICE. */
    enum status (*alloc_host)(struct device *, size_t size_bytes, void **out, struct error *);
    void (*free_host)(struct device *, void *data); /* accepts NULL; no copy may be using it */

    /* dst (on the device) = host (of alloc_host), on QUEUE_COPY. */
    enum status (
        *copy_in)(struct device *, void *dst, const void *host, size_t size_bytes, struct error *);
    /* host (of alloc_host) = src (on the device), on QUEUE_COMPUTE. */
    enum status (
        *copy_out)(struct device *, void *host, const void *src, size_t size_bytes, struct error *);

    /* Puts the mark after all work of the queue so far. */
    enum status (*mark)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* Work that the queue receives from now on starts after the mark has been passed. */
    enum status (*follow)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* The host waits until the mark has been passed. Returns OK, INVALID (a wrong index, as
     * ops->sync) or DEVICE. */
    enum status (*wait)(struct device *, int32_t mark, struct error *);
    /* Time from one passed mark to another. */
    enum status (*seconds)(struct device *, double *out, int32_t from, int32_t to, struct error *);

    /* Between the two calls ops are recorded, not executed. All of their shapes must have been used
     * before: an op that would allocate, wait or copy from or to the host returns UNSUPPORTED.
     * Collectives (device_ranks.h) divide the recording: a replay makes them too, between its
     * parts. record_end ends the recording in any case; *out is NULL if it failed. `out` may be
     * NULL. Returns OK, UNSUPPORTED, NOMEM or DEVICE. */
    enum status (*record_begin)(struct device *, struct error *);
    enum status (*record_end)(struct device *, struct recording **out, struct error *);
    /* Runs the recording in order on QUEUE_COMPUTE. */
    enum status (*replay)(struct device *, struct recording *, struct error *);
    void (*record_free)(struct device *, struct recording *); /* accepts NULL */

    struct device_counters (*counters)(struct device *);
    /* Kernels, copies and fills on QUEUE_COMPUTE since the device was opened; those of a recording
     * count at each replay. A library call (a product, a convolution) counts as one outside a
     * recording. */
    uint64_t (*launches)(struct device *);
};

/* Records the ops of compute(cookie). *out is NULL if an op cannot be recorded, with the reason in
 * *why; the device then works as before and the caller computes op by op. A library may refuse with
 * DEVICE. Returns OK, or DEVICE where the device itself has failed.
 */
enum status device_record(struct device *dev,
                          struct recording **out,
                          enum status (*compute)(void *cookie, struct error *err),
                          void *cookie,
                          struct error *why,
                          struct error *err);

#endif
