/*
 * io_remote: the reading engine of remote shards. Without a cache each request is one range
 * request, many are in flight over pooled connections, and retries happen inside. With a cache a
 * request waits for the pieces that it lies in. Requests for local shards, which a mix may have
 * beside remote ones, are read at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loader/read_engine_internal.h"
#include "loader/remote/remote_internal.h"

enum { REMOTE_MAX_DEPTH = 256, CONNECTIONS = 64, REAP_WAIT_MS = 100 };

struct pending {
    struct read_engine *engine;
    struct remote_read read; /* of the cache: the fields of a request, and how much it has */
    struct extent *extent;   /* with a cache: the piece that it waits for */
    struct read_request request;
    uint32_t part;     /* the one that is being filled */
    size_t part_bytes; /* that it has */
    struct pending *next_free;
    struct pending *next_waiting;
};

struct read_engine {
    struct remote_client *client; /* without a cache */
    struct extents *extents;      /* with one */
    struct pending *waiting;      /* for pieces */
    struct pending *pending;      /* (depth) */
    struct pending *free;
    uint32_t depth;
    struct read_completion *ready; /* (depth) a ring */
    uint32_t ready_first, ready_count;
    struct error *failures; /* (depth) one for each pending */
    bool stopping;
};

static bool remote_destroy(struct read_engine *e, int64_t timeout_ms) {
    (void)timeout_ms;
    if (e != NULL) {
        e->stopping = true;
        remote_client_destroy(e->client);
        for (struct pending *p = e->waiting; p != NULL; p = p->next_waiting) {
            extents_put(e->extents, p->extent);
        }
        free(e->pending);
        free(e->ready);
        free(e->failures);
        free(e);
    }
    return true;
}

static enum status remote_create(struct read_engine **out, uint32_t depth, struct error *err) {
    struct read_engine *e = calloc(1, sizeof(*e));
    if (e != NULL) {
        e->depth = depth;
        e->pending = calloc(depth, sizeof(*e->pending));
        e->ready = calloc(depth, sizeof(*e->ready));
        e->failures = calloc(depth, sizeof(*e->failures));
    }
    if (e == NULL || e->pending == NULL || e->ready == NULL || e->failures == NULL) {
        remote_destroy(e, 0);
        return error_set(err, STATUS_NOMEM, "out of memory for the remote engine");
    }
    for (uint32_t i = 0; i < depth; i++) {
        e->pending[i].next_free = e->free;
        e->free = &e->pending[i];
    }
    enum status s = remote_extents(&e->extents, err);
    if (s == STATUS_OK && e->extents == NULL) {
        s = remote_client_create(&e->client, CONNECTIONS, err);
    }
    if (s < STATUS_OK) {
        remote_destroy(e, 0);
        return s;
    }
    *out = e;
    return STATUS_OK;
}

static void complete(struct read_engine *e, const struct read_completion *c) {
    e->ready[(e->ready_first + e->ready_count) % e->depth] = *c;
    e->ready_count++;
}

/* --- one request --- */

/* So many bytes were copied to the current part, which they do not exceed. */
static void advance(struct pending *p, size_t size_bytes) {
    p->part_bytes += size_bytes;
    if (p->part_bytes == p->request.parts[p->part].iov_len) {
        p->part++;
        p->part_bytes = 0;
    }
}

static bool take(void *cookie, const void *bytes, size_t size_bytes, struct error *err) {
    struct pending *p = cookie;
    const uint8_t *at = bytes;
    (void)err;
    while (size_bytes > 0) {
        const struct iovec *part = &p->request.parts[p->part];
        const size_t left = part->iov_len - p->part_bytes;
        const size_t step = size_bytes < left ? size_bytes : left;
        memcpy((uint8_t *)part->iov_base + p->part_bytes, at, step);
        at += step;
        size_bytes -= step;
        advance(p, step);
    }
    return true;
}

static void done(void *cookie, enum status s, const struct error *err) {
    struct pending *p = cookie;
    struct read_engine *e = p->engine;
    struct read_completion c = {.slot = p->request.slot,
                                .result = (int32_t)p->read.size_bytes,
                                .retried_count = p->read.retried_count};
    if (e->stopping) {
        return;
    }
    if (s < STATUS_OK) {
        struct error *kept = &e->failures[p - e->pending];
        *kept = *err;
        c.result = -EIO;
        c.failure = kept;
    }
    complete(e, &c);
    p->next_free = e->free;
    e->free = p;
}

/* --- with a cache --- */

/* The piece with the next byte of the request. */
static bool next_extent(struct pending *p, struct error *err) {
    p->extent =
        extents_get(p->engine->extents, p->read.object, p->read.offset + p->read.got_bytes, true);
    if (p->extent == NULL) {
        (void)error_set(err, STATUS_NOMEM, "out of memory for a chunk of a remote file");
    }
    return p->extent != NULL;
}

/* Copies what is there. Returns AGAIN while the rest has to be fetched, or how the request ended:
 * then it has no piece any more. */
static enum status fill(struct pending *p, struct error *err) {
    struct remote_read *r = &p->read;
    struct extents *x = p->engine->extents;
    while (r->got_bytes < r->size_bytes) {
        const struct iovec *part = &p->request.parts[p->part];
        const size_t room = part->iov_len - p->part_bytes;
        const uint64_t left = r->size_bytes - r->got_bytes;
        const uint64_t offset = r->offset + r->got_bytes;
        size_t got;
        enum status s =
            extent_read(x, p->extent, (uint8_t *)part->iov_base + p->part_bytes, &got,
                        left < room ? (size_t)left : room, offset, &r->retried_count, err);
        if (s != STATUS_OK) {
            if (s != STATUS_AGAIN) {
                extents_put(x, p->extent);
            }
            return s;
        }
        r->got_bytes += got;
        advance(p, got);
        if ((offset + got) % REMOTE_PIECE_BYTES == 0 && r->got_bytes < r->size_bytes) {
            extents_put(x, p->extent);
            if (!next_extent(p, err)) {
                return STATUS_NOMEM;
            }
        }
    }
    extents_put(x, p->extent);
    return STATUS_OK;
}

static void begin_cached(struct pending *p) {
    struct read_engine *e = p->engine;
    struct error err = {0};
    enum status s = next_extent(p, &err) ? fill(p, &err) : STATUS_NOMEM;
    if (s == STATUS_AGAIN) {
        p->next_waiting = e->waiting;
        e->waiting = p;
    } else {
        done(p, s, &err);
    }
}

/* Whether a request ended. */
static bool continue_waiting(struct read_engine *e) {
    bool ended = false;
    struct pending **at = &e->waiting;
    while (*at != NULL) {
        struct pending *p = *at;
        struct error err = {0};
        const enum status s = fill(p, &err);
        if (s == STATUS_AGAIN) {
            at = &p->next_waiting;
            continue;
        }
        *at = p->next_waiting;
        done(p, s, &err);
        ended = true;
    }
    return ended;
}

/* --- the engine --- */

static size_t size_of(const struct read_request *r) {
    size_t size = 0;
    for (uint32_t i = 0; i < r->part_count; i++) {
        size += r->parts[i].iov_len;
    }
    return size;
}

static void remote_submit(struct read_engine *e, const struct read_request *r) {
    struct read_completion now = {.slot = r->slot};
    if (r->remote == NULL) {
        const ssize_t got = preadv(r->fd, r->parts, (int)r->part_count, (off_t)r->offset);
        now.result = got < 0 ? -errno : (int32_t)got;
        complete(e, &now);
        return;
    }
    if (r->offset >= r->remote->size_bytes) {
        complete(e, &now); /* the end of the file */
        return;
    }
    size_t size = size_of(r);
    const uint64_t left = r->remote->size_bytes - r->offset;
    struct pending *p = e->free;
    e->free = p->next_free;
    *p = (struct pending){.engine = e,
                          .request = *r,
                          .read = {.object = r->remote,
                                   .offset = r->offset,
                                   .size_bytes = size < left ? size : left,
                                   .cookie = p,
                                   .take = take,
                                   .done = done}};
    if (e->extents != NULL) {
        begin_cached(p);
    } else {
        remote_client_start(e->client, &p->read);
    }
}

static uint32_t remote_reap(struct read_engine *e, struct read_completion *out, uint32_t max) {
    uint32_t n = 0;
    if (e->extents == NULL) {
        /* Also when something is ready: answers that arrived are taken, and requests go out. */
        remote_client_run(e->client, e->ready_count > 0 ? 0 : REAP_WAIT_MS);
    } else if (e->waiting != NULL) {
        const uint64_t seen = extents_arrivals(e->extents);
        if (!continue_waiting(e) && e->ready_count == 0) {
            extents_wait(e->extents, seen, REAP_WAIT_MS);
            (void)continue_waiting(e);
        }
    }
    while (n < max && e->ready_count > 0) {
        out[n++] = e->ready[e->ready_first];
        e->ready_first = (e->ready_first + 1) % e->depth;
        e->ready_count--;
    }
    return n;
}

const struct read_engine_ops *read_engine_remote(void) {
    static const struct read_engine_ops ops = {
        .name = "remote",
        .max_threads = 1,
        .max_depth = REMOTE_MAX_DEPTH,
        .create = remote_create,
        .destroy = remote_destroy,
        .submit = remote_submit,
        .reap = remote_reap,
    };
    return &ops;
}
