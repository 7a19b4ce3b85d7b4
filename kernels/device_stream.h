/*
 * device_stream: what a device offers that computes while the host goes on: memory that copies
 * reach by themselves, a second queue that brings the next batch while a step is computed, marks by
 * which queues and host wait for each other, and recordings of whole steps. Devices whose memory is
 * the host's have none (`device.stream` is NULL): there everything is done when its call returns.
 *
 * The ops of struct ops go to QUEUE_COMPUTE, in order. Only wait, and ops->sync and ops->download,
 * make the host wait.
 *
 * Threading : as the device; alloc_host and free_host may be called by any thread.
 * Ownership : recordings belong to the caller and go back through record_free before the device is
 *             closed; what a recorded op was given must stay where it is as long as that is
 * repeated.
 */
#ifndef KERNELS_DEVICE_STREAM_H
#define KERNELS_DEVICE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum device_queue { QUEUE_COMPUTE, QUEUE_COPY };

enum { DEVICE_MARK_COUNT = 16 }; /* marks are numbers below this */

struct recording; /* opaque: ops, as one thing to start */

struct device_counters {
    size_t memory_bytes;          /* of the device in use, by this process and others */
    size_t scratch_bytes;         /* of it what the device took for its own work, beside alloc */
    uint64_t recorded_launches;   /* kernels, copies and fills in the newest recording; 0: none */
    uint64_t recordings, replays; /* since the device was opened */
};

struct device_stream {
    /* Memory of the host that copies read and write while the host goes on; 64-byte aligned,
     * contents undefined. Returns OK, NOMEM or DEVICE. */
    enum status (*alloc_host)(struct device *, size_t size_bytes, void **out, struct error *);
    void (*free_host)(struct device *, void *data); /* accepts NULL; nothing may be using it */

    /* dst (on the device) = host (of alloc_host), on QUEUE_COPY. */
    enum status (
        *copy_in)(struct device *, void *dst, const void *host, size_t size_bytes, struct error *);
    /* host (of alloc_host) = src (on the device), on QUEUE_COMPUTE. */
    enum status (
        *copy_out)(struct device *, void *host, const void *src, size_t size_bytes, struct error *);

    /* Puts the mark behind all that the queue was given so far. */
    enum status (*mark)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* What the queue is given from now on begins when the mark has been passed. */
    enum status (*follow)(struct device *, enum device_queue, int32_t mark, struct error *);
    /* The host waits until the mark has been passed. Returns OK, INVALID (what ops->sync says of
     * indices) or DEVICE. */
    enum status (*wait)(struct device *, int32_t mark, struct error *);
    /* Time from one passed mark to another. */
    enum status (*seconds)(struct device *, double *out, int32_t from, int32_t to, struct error *);

    /* Between the two, ops are noted instead of done. All of their shapes must have been met
     * before: an op that would allocate, wait or copy from or to the host answers UNSUPPORTED.
     * record_end ends it in any case; *out is NULL where it failed or where `out` is NULL. Returns
     * OK, UNSUPPORTED, NOMEM or DEVICE. */
    enum status (*record_begin)(struct device *, struct error *);
    enum status (*record_end)(struct device *, struct recording **out, struct error *);
    /* Everything of the recording, in order, on QUEUE_COMPUTE. */
    enum status (*replay)(struct device *, struct recording *, struct error *);
    void (*record_free)(struct device *, struct recording *); /* accepts NULL */

    struct device_counters (*counters)(struct device *);
    /* Kernels, copies and fills that QUEUE_COMPUTE was given since the device was opened, those of
     * a recording each time that it is repeated. What a library is asked for, a product or a
     * convolution, counts as one where it is not part of a recording. */
    uint64_t (*launches)(struct device *);
};

/* Records what compute(cookie) asks of the device. *out is NULL where anything refuses to be
 * recorded, with the reason in *why, and the device works as before: the caller then computes op by
 * op. A library may refuse with DEVICE. Returns OK, or DEVICE where the device itself has failed.
 */
enum status device_record(struct device *dev,
                          struct recording **out,
                          enum status (*compute)(void *cookie, struct error *err),
                          void *cookie,
                          struct error *why,
                          struct error *err);

#ifdef __cplusplus
}
#endif

#endif
