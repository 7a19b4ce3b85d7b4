/*
 * io_uring: the reading engine of Linux. One ring, used by one thread at a time. submit adds
 * requests to the submission queue, and reap passes all of them to the kernel, so that many reads
 * cost one system call. user_data is the slot number.
 *
 *   submit submit submit reap ----> kernel:  read read read
 *                          <------  one or more completions, any order
 *
 * Reads of cached data complete while they are submitted, so the wait, which is a second call, is
 * only for the disk.
 *
 * When the kernel refuses requests permanently, the engine is broken: requests that were not sent
 * and all later ones complete with that errno, so the caller sees one kind of failure.
 *
 * Neither buffers nor files are registered. With O_DIRECT that would save 2 us of CPU time for a
 * read of 16 KiB and 4 us for one of 128 KiB (300 MB file, depth 32), and half a microsecond
 * without: below one percent of the decoding that follows. But registered buffers are locked into
 * memory whole, including the part that only the largest image needs.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/clock.h"
#include "loader/read_engine_internal.h"

enum {
    URING_MAX_DEPTH = 1024,
    BUSY_TRIES = 100,  /* of ten milliseconds each, when the kernel is short of memory */
    REAP_WAIT_MS = 50, /* longest time until a stop is noticed */
};

#define CANCEL_DATA UINT64_MAX /* user_data of the request that cancels all others */

struct read_engine {
    struct io_uring ring;
    uint32_t *unsent; /* (depth) slots in the submission queue, oldest first */
    uint32_t unsent_count;
    uint32_t sent_count; /* accepted by the kernel, not yet reaped */
    int broken_errno;    /* 0: not broken */
};

/* Waits with a timeout need a kernel that accepts one as an argument (5.11). */
static bool is_supported(struct io_uring *ring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool ok = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
              io_uring_opcode_supported(probe, IORING_OP_READV) &&
              (ring->features & IORING_FEAT_EXT_ARG) != 0;
    io_uring_free_probe(probe);
    return ok;
}

static enum status uring_create(struct read_engine **out, uint32_t depth, struct error *err) {
    struct read_engine *e = calloc(1, sizeof(*e));
    uint32_t *unsent = calloc(depth, sizeof(*unsent));
    if (e == NULL || unsent == NULL) {
        free(e);
        free(unsent);
        return error_set(err, STATUS_NOMEM, "out of memory for the io_uring engine");
    }
    e->unsent = unsent;
    int r = io_uring_queue_init(depth, &e->ring, 0);
    if (r == 0 && !is_supported(&e->ring)) {
        io_uring_queue_exit(&e->ring);
        r = -EOPNOTSUPP;
    }
    if (r < 0) {
        free(unsent);
        free(e);
        return error_set(err, STATUS_UNSUPPORTED, "io_uring is not available here (%s)",
                         strerror(-r));
    }
    *out = e;
    return STATUS_OK;
}

/* 0, -ETIME or another failure. */
static int wait_one(struct read_engine *e, struct io_uring_cqe **cqe, int64_t ms) {
    struct __kernel_timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    int r = io_uring_peek_cqe(&e->ring, cqe);
    return r == 0 ? 0 : io_uring_wait_cqe_timeout(&e->ring, cqe, &t);
}

/* Also sends, and cancels, the requests that are still in the queue. */
static void cancel_all(struct read_engine *e) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
    if (sqe == NULL) {
        (void)io_uring_submit(&e->ring);
        sqe = io_uring_get_sqe(&e->ring);
    }
    if (sqe != NULL) {
        io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
        io_uring_sqe_set_data64(sqe, CANCEL_DATA);
    }
    (void)io_uring_submit(&e->ring);
    e->sent_count += e->unsent_count;
    e->unsent_count = 0;
}

static bool uring_destroy(struct read_engine *e, int64_t timeout_ms) {
    if (e == NULL) {
        return true;
    }
    int64_t end_ns = clock_now_ns() + timeout_ms * 1000000;
    if (e->broken_errno != 0) {
        e->unsent_count = 0; /* never reached the kernel */
    } else if (e->sent_count + e->unsent_count > 0) {
        cancel_all(e);
    }
    while (e->sent_count > 0) {
        struct io_uring_cqe *cqe;
        int64_t left_ms = (end_ns - clock_now_ns()) / 1000000;
        int r = wait_one(e, &cqe, left_ms > 0 ? left_ms : 0);
        if (r == 0) {
            e->sent_count -= io_uring_cqe_get_data64(cqe) != CANCEL_DATA;
            io_uring_cqe_seen(&e->ring, cqe);
        } else if (left_ms <= 0 || (r != -EINTR && r != -EAGAIN && r != -ETIME)) {
            break;
        }
    }
    bool quiet = e->sent_count == 0;
    io_uring_queue_exit(&e->ring);
    free(e->unsent);
    free(e);
    return quiet;
}

static void uring_submit(struct read_engine *e, const struct read_request *r) {
    if (e->broken_errno == 0) {
        /* Never NULL: the queue has at least `depth` entries and reap empties it. */
        struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
        if (r->part_count == 1) {
            io_uring_prep_read(sqe, r->fd, r->parts[0].iov_base, (unsigned)r->parts[0].iov_len,
                               r->offset);
        } else {
            io_uring_prep_readv(sqe, r->fd, r->parts, r->part_count, r->offset);
        }
        io_uring_sqe_set_data64(sqe, r->slot);
    }
    e->unsent[e->unsent_count++] = r->slot;
}

/* Passes the queue to the kernel; may keep some requests while others are in flight. */
static void flush_queue(struct read_engine *e) {
    int busy = 0;
    while (e->unsent_count > 0) {
        int r = io_uring_submit(&e->ring);
        if (r > 0) {
            uint32_t sent = (uint32_t)r < e->unsent_count ? (uint32_t)r : e->unsent_count;
            e->unsent_count -= sent;
            e->sent_count += sent;
            memmove(e->unsent, e->unsent + sent, e->unsent_count * sizeof(*e->unsent));
            continue;
        }
        if (r == -EINTR) {
            continue;
        }
        if (r < 0 && r != -EAGAIN && r != -EBUSY) {
            e->broken_errno = -r;
            return;
        }
        /* The kernel is short of memory, or completions must be reaped first. */
        if (e->sent_count > 0) {
            return;
        }
        if (++busy > BUSY_TRIES) {
            e->broken_errno = EAGAIN;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
}

static uint32_t uring_reap(struct read_engine *e, struct read_completion *out, uint32_t max) {
    uint32_t n = 0;
    if (e->unsent_count > 0 && e->broken_errno == 0) {
        flush_queue(e);
    }
    while (n < max && e->sent_count > 0) {
        struct io_uring_cqe *cqe;
        int r = n == 0 ? wait_one(e, &cqe, REAP_WAIT_MS) : io_uring_peek_cqe(&e->ring, &cqe);
        if (r == -EINTR) {
            continue;
        }
        if (r != 0) {
            break;
        }
        out[n] = (struct read_completion){.slot = (uint32_t)io_uring_cqe_get_data64(cqe),
                                          .result = cqe->res};
        io_uring_cqe_seen(&e->ring, cqe);
        e->sent_count--;
        n++;
    }
    while (n < max && e->broken_errno != 0 && e->unsent_count > 0) {
        out[n] = (struct read_completion){.slot = e->unsent[--e->unsent_count],
                                          .result = -e->broken_errno};
        n++;
    }
    return n;
}

const struct read_engine_ops *read_engine_uring(void) {
    static const struct read_engine_ops ops = {
        .name = "io_uring",
        .max_threads = 1,
        .max_depth = URING_MAX_DEPTH,
        .create = uring_create,
        .destroy = uring_destroy,
        .submit = uring_submit,
        .reap = uring_reap,
    };
    return &ops;
}
