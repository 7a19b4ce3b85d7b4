/*
 * io_uring: the reading engine of Linux. One ring, touched by its reading thread alone; requests
 * are filled into the submission queue by submit and go to the kernel together when reap enters
 * it, so that many reads cost one system call. user_data is the slot number.
 *
 *   submit submit submit reap ----> kernel:  read read read
 *                          <------  one or more completions, any order
 *
 * When the kernel takes no more requests for good, the engine is broken: what was not yet sent, and
 * all that is submitted later, completes with that errno, so the caller sees one kind of failure.
 */
#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loader/read_engine_internal.h"

enum {
    URING_MAX_DEPTH = 1024,
    BUSY_TRIES = 100, /* ten milliseconds each, when the kernel is short of memory */
};

struct read_engine {
    struct io_uring ring;
    uint32_t *unsent; /* (depth) slots in the submission queue, oldest first */
    uint32_t unsent_count;
    uint32_t sent_count; /* at the kernel, not yet reaped */
    int broken_errno;    /* 0: works */
};

static bool has_read(struct io_uring *ring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool ok = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ);
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
    if (r == 0 && !has_read(&e->ring)) {
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

static void uring_destroy(struct read_engine *e) {
    if (e == NULL) {
        return;
    }
    while (e->sent_count > 0) {
        struct io_uring_cqe *cqe;
        int r = io_uring_wait_cqe(&e->ring, &cqe);
        if (r == 0) {
            io_uring_cqe_seen(&e->ring, cqe);
            e->sent_count--;
        } else if (r != -EINTR && r != -EAGAIN) {
            break;
        }
    }
    io_uring_queue_exit(&e->ring);
    free(e->unsent);
    free(e);
}

static void uring_submit(struct read_engine *e, const struct read_request *r) {
    if (e->broken_errno == 0) {
        /* Never NULL: the queue has at least `depth` entries and reap empties it. */
        struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
        io_uring_prep_read(sqe, r->fd, r->buffer, (unsigned)r->size_bytes, r->offset);
        io_uring_sqe_set_data64(sqe, r->slot);
    }
    e->unsent[e->unsent_count++] = r->slot;
}

/* Hands the queue to the kernel and waits for one completion. */
static void uring_enter(struct read_engine *e) {
    int busy = 0;
    for (;;) {
        int r = io_uring_submit_and_wait(&e->ring, 1);
        if (r >= 0) {
            uint32_t sent = (uint32_t)r < e->unsent_count ? (uint32_t)r : e->unsent_count;
            e->unsent_count -= sent;
            e->sent_count += sent;
            memmove(e->unsent, e->unsent + sent, e->unsent_count * sizeof(*e->unsent));
            if (e->sent_count > 0) {
                return;
            }
        } else if (r == -EAGAIN || r == -EBUSY) {
            /* Short of memory, or completions must be taken first. */
            if (e->sent_count > 0) {
                return;
            }
        } else if (r != -EINTR) {
            e->broken_errno = -r;
            return;
        } else {
            continue;
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
        uring_enter(e);
    }
    while (n < max && e->sent_count > 0) {
        struct io_uring_cqe *cqe;
        int r = n == 0 ? io_uring_wait_cqe(&e->ring, &cqe) : io_uring_peek_cqe(&e->ring, &cqe);
        if (r == -EINTR) {
            continue;
        }
        if (r != 0) {
            break;
        }
        out[n].slot = (uint32_t)io_uring_cqe_get_data64(cqe);
        out[n].result = cqe->res;
        io_uring_cqe_seen(&e->ring, cqe);
        e->sent_count--;
        n++;
    }
    while (n < max && e->broken_errno != 0 && e->unsent_count > 0) {
        out[n].slot = e->unsent[--e->unsent_count];
        out[n].result = -e->broken_errno;
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
