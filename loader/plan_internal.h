/*
 * plan: walks the order ahead of a reading thread and has the pieces of remote shards fetched into
 * the cache before they are needed. The order is arithmetic, so this costs a look-up for each
 * sample.
 *
 * Threading : single-owner: the reading thread.
 */
#ifndef LOADER_PLAN_INTERNAL_H
#define LOADER_PLAN_INTERNAL_H

#include "loader/pipeline_internal.h"

enum {
    PLAN_MAX_PIECES = 64,       /* fetched and not used yet */
    PLAN_MAX_SAMPLES = 1 << 16, /* walked ahead */
    PLAN_RECENT = 1 << 12,
};

struct plan {
    const struct pipeline *p;
    uint64_t step; /* of the batch after `batch` */
    struct sampler_batch batch;
    uint32_t index;
    uint64_t walked_count;
    uint64_t uses[PLAN_MAX_PIECES]; /* a ring: the samples for which pieces were planned */
    uint32_t use_first, use_count;
    struct { /* pieces of the last samples, by hash */
        const struct remote_object *object;
        uint64_t number, seen;
    } recent[PLAN_RECENT];
};

/* Begins at the batch that is claimed next. */
void plan_init(struct plan *plan, const struct pipeline *p);
/* Goes on, when so many samples were claimed since the beginning. */
void plan_ahead(struct plan *plan, uint64_t claimed_count);

#endif
