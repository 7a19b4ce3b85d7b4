/*
 * io_pread: the portable reading engine. A request waits in a small ring until reap is called,
 * which then reads the oldest one. Several reading threads, each with its own engine, keep several
 * reads in flight.
 */
#include <errno.h>
#include <stdlib.h>

#include "loader/read_engine_internal.h"

enum { PREAD_MAX_DEPTH = 16 };

struct read_engine {
    uint32_t depth;
    uint32_t first;
    uint32_t count;
    struct read_request ring[PREAD_MAX_DEPTH];
};

static enum status pread_create(struct read_engine **out, uint32_t depth, struct error *err) {
    struct read_engine *e = calloc(1, sizeof(*e));
    TRY_MEMORY(e != NULL, err, "out of memory for the pread engine");
    e->depth = depth;
    *out = e;
    return STATUS_OK;
}

/* Nothing is in flight between two calls. */
static bool pread_destroy(struct read_engine *e, int64_t timeout_ms) {
    (void)timeout_ms;
    free(e);
    return true;
}

static void pread_submit(struct read_engine *e, const struct read_request *r) {
    e->ring[(e->first + e->count) % PREAD_MAX_DEPTH] = *r;
    e->count++;
}

static uint32_t pread_reap(struct read_engine *e, struct read_completion *out, uint32_t max) {
    if (e->count == 0 || max == 0) {
        return 0;
    }
    const struct read_request *r = &e->ring[e->first];
    /* The kernel limits one read to 2^31 bytes less a page; requests are far smaller. */
    ssize_t got = preadv(r->fd, r->parts, (int)r->part_count, (off_t)r->offset);
    *out = (struct read_completion){.slot = r->slot, .result = got < 0 ? -errno : (int32_t)got};
    e->first = (e->first + 1) % PREAD_MAX_DEPTH;
    e->count--;
    return 1;
}

const struct read_engine_ops *read_engine_pread(void) {
    static const struct read_engine_ops ops = {
        .name = "pread",
        .max_threads = 4,
        .max_depth = PREAD_MAX_DEPTH,
        .create = pread_create,
        .destroy = pread_destroy,
        .submit = pread_submit,
        .reap = pread_reap,
    };
    return &ops;
}
