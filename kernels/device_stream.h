/*
 * device_stream: the interface of devices that compute asynchronously: pinned memory, a second
 * queue that copies the next batch while a step is computed, marks (events) by which queues and
 * host wait for each other, and steps captured as CUDA graphs. NULL for a device
 * whose memory is the host's: there the work of a call is done when it returns.
 *
 * The ops of struct ops go to QUEUE_COMPUTE, in order. wait, ops->sync and ops->download block the
 * host; ops.h lists the calls that may.
 *
 * Threading : as the device; alloc_host and free_host may be called by any thread.
 * Ownership : captured steps belong to the caller, who frees them with captured_free before closing
 * the device. The memory of captured ops must not move while the step is in use. Errors    :
 * functions that list no statuses return OK, INVALID (no such mark) or DEVICE.
 */
#ifndef KERNELS_DEVICE_STREAM_H
#define KERNELS_DEVICE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum device_queue { QUEUE_COMPUTE, QUEUE_COPY };

enum { DEVICE_MARK_COUNT = 16 }; /* marks are numbers below this */

struct captured_step; /* opaque: replayed as one */

struct device_counters {
    size_t memory_bytes;        /* device memory in use, by this process and others */
    size_t workspace_bytes;     /* the part of it that is this device's workspace */
    uint64_t captured_launches; /* kernels, copies and fills in the newest captured step; 0: none */
    uint64_t captures, replays; /* since the device was opened */
};

struct device_stream {
    /* Pinned host memory, which copies read and write asynchronously; 64-byte aligned, contents
     * undefined. Returns OK, NOMEM or DEVICE. */
    enum status (*alloc_host)(struct device *, size_t size_bytes, void **out, struct error *);
    void (*free_host)(struct device *, void *data); /* accepts NULL; no copy may be using it */

    /* dst (on the device) = host (of alloc_host), on QUEUE_COPY. */
    enum status (
        *copy_in)(struct device *, void *dst, const void *host, size_t size_bytes, struct error *);
    /* host (of alloc_host) = src (on the device), on QUEUE_COMPUTE. UNSUPPORTED in a capture. */
    enum status (
        *copy_out)(struct device *, void *host, const void *src, size_t size_bytes, struct error *);

    /* Puts the mark after all work of the queue so far. */
    enum status (*mark)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* Work that the queue receives from now on starts after the mark has been passed. */
    enum status (*follow)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* The host waits until the mark has been passed. INVALID: also a wrong index, as ops->sync. */
    enum status (*wait)(struct device *, int32_t mark, struct error *);
    /* Time from one mark to another; both have been passed. */
    enum status (*seconds)(struct device *, double *out, int32_t from, int32_t to, struct error *);

    /* Between the two calls ops are captured, not executed. All shapes must have been used before:
     * an op that would allocate, wait or copy from or to the host returns UNSUPPORTED, and a new
     * shape of a convolution LIMIT. Collectives (device_ranks.h) divide the step; a replay
     * makes them too, between its parts. capture_end ends the capture in any case; *out is NULL if
     * it failed; out NULL: discards it. Both return OK, NOMEM or DEVICE. */
    enum status (*capture_begin)(struct device *, struct error *);
    enum status (*capture_end)(struct device *, struct captured_step **out, struct error *);
    /* Runs the step in order on QUEUE_COMPUTE. */
    enum status (*replay)(struct device *, struct captured_step *, struct error *);
    void (*captured_free)(struct device *, struct captured_step *); /* accepts NULL */

    struct device_counters (*counters)(struct device *);
    /* Kernels, copies and fills on QUEUE_COMPUTE since the device was opened; those of a captured
     * step count at each replay. Elsewhere a library call (product, convolution) counts as one. */
    uint64_t (*launches)(struct device *);
};

/* Captures the ops of compute(cookie). *out is NULL if an op cannot be captured, with the reason in
 * *why (libraries may refuse with DEVICE); the device then works as before, and the caller computes
 * op by op. Returns OK, or DEVICE if the device itself has failed. */
enum status device_capture(struct device *dev,
                           struct captured_step **out,
                           enum status (*compute)(void *cookie, struct error *err),
                           void *cookie,
                           struct error *why,
                           struct error *err);

#endif
