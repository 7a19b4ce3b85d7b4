/*
 * device_ranks: collectives between the devices of a group of processes ("ranks"), for devices that
 * have them (`device.ranks`). Every rank makes the same calls in the same order, with the same
 * sizes.
 *
 * A call returns once its work is queued. That work is in order with the ops of the device, except
 * begin_sum, which overlaps with them until `finish`. Collectives are never captured: between
 * capture_begin and capture_end (device_stream.h) they divide the step, and a replay calls them
 * again between its parts. So each rank may capture, replay or run op by op independently, as long
 * as the order of collectives is the same. Collectives return OK, NOMEM (in a capture) or DEVICE.
 *
 * If a rank fails, queued work waits for it, as NCCL does; the next calls may return DEVICE. The
 * thread that watches the ranks (train/comm) calls `abort` before it exits the process.
 *
 * Threading : as the device; `abort` by any thread.
 * Ownership : memory is borrowed until the work is done. The device's close leaves the group.
 */
#ifndef KERNELS_DEVICE_RANKS_H
#define KERNELS_DEVICE_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum { DEVICE_RANKS_ID_BYTES = 128 };

struct device_ranks {
    /* Whether this rank can join a group. Returns OK, or UNSUPPORTED (the library of collectives is
     * missing or too old, with the reason). */
    enum status (*check)(struct device *, struct error *);
    /* Makes the id of a new group: one rank calls this and sends the id to the others. Returns OK,
     * UNSUPPORTED or DEVICE. */
    enum status (*unique_id)(struct device *,
                             unsigned char id[DEVICE_RANKS_ID_BYTES],
                             struct error *);
    /* Joins the group as `rank` of `world`, once per device. Waits until all have joined, at most
     * timeout_ms. Returns OK, INVALID (already joined), UNSUPPORTED, NOMEM or DEVICE. */
    enum status (*join)(struct device *,
                        const unsigned char id[DEVICE_RANKS_ID_BYTES],
                        int32_t rank,
                        int32_t world,
                        int64_t timeout_ms,
                        struct error *);

    /* all (world * own_bytes) = own_bytes of every rank, by rank. `own` may be this rank's part of
     * `all`. */
    enum status (
        *gather)(struct device *, void *all, const void *own, size_t own_bytes, struct error *);
    /* words (count) = the sum over ranks, modulo 2^32: exact. So it merges values of any type if at
     * most one rank has a word that is not 0. */
    enum status (*merge)(struct device *, uint32_t *words, int64_t count, struct error *);
    /* data (count) = the sum over ranks, bit-identical on all of them; the order of additions is
     * the library's. Starts after all work so far; nothing may use the data before `finish`. */
    enum status (*begin_sum)(struct device *, float *data, int64_t count, struct error *);
    /* Work from now on starts after all sums. */
    enum status (*finish)(struct device *, struct error *);

    /* Cancels all work that waits for other ranks; returns within seconds, even if that fails. The
     * device cannot be used afterwards. Does nothing before join. */
    void (*abort)(struct device *);
};

#endif
