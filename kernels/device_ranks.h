/*
 * device_ranks: collectives between the devices of a group of processes ("ranks"), for devices that
 * have them (`device.ranks`). Every rank makes the same calls in the same order, with the same
 * sizes.
 *
 * A call returns once its work is queued; that work is in order with the ops of the device, but for
 * begin_sum, which overlaps with them until `finish`. Collectives are never a part of a recording:
 * between record_begin and record_end (device_stream.h) they divide it, and a replay calls them
 * again between its parts. So ranks may record, replay or run op by op as they like, each for
 * itself, as long as the order of collectives is the same.
 *
 * A lost rank: no call returns an error for it; what is queued waits for it, as NCCL does. Whoever
 * watches the ranks (train/comm) calls `abort` before it ends the process.
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
    /* A new group's name, made by one rank, which sends it to the others. Returns OK, UNSUPPORTED
     * or DEVICE. */
    enum status (*unique_id)(struct device *,
                             unsigned char id[DEVICE_RANKS_ID_BYTES],
                             struct error *);
    /* Joins the group as `rank` of `world`; once. Waits until all have joined, at most timeout_ms.
     * Returns OK, UNSUPPORTED, NOMEM or DEVICE. */
    enum status (*join)(struct device *,
                        const unsigned char id[DEVICE_RANKS_ID_BYTES],
                        int32_t rank,
                        int32_t world,
                        int64_t timeout_ms,
                        struct error *);

    /* all (world * own_bytes) = own_bytes of every rank, in the order of ranks. `own` may be its
     * own place in `all`. */
    enum status (
        *gather)(struct device *, void *all, const void *own, size_t own_bytes, struct error *);
    /* words (count) = the sum over ranks, modulo 2^32: exact, and so any bits of any type where at
     * most one rank has a word that is not 0. */
    enum status (*merge)(struct device *, uint32_t *words, int64_t count, struct error *);
    /* data (count) = the sum over ranks, the same bits on all of them; the order of additions is
     * the library's. Starts after all work so far; nothing may use the data before `finish`. */
    enum status (*begin_sum)(struct device *, float *data, int64_t count, struct error *);
    /* Work from now on starts after all sums. */
    enum status (*finish)(struct device *, struct error *);

    /* Ends whatever waits for other ranks; returns within seconds, even if that fails. The device
     * is of no use afterwards. Does nothing before join. */
    void (*abort)(struct device *);
};

#endif
