/*
 * remote_pread: reads of remote files by threads that wait for them: from a copy, through the
 * cache, or by a request of their own over a connection that is kept for the next one.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "loader/remote/remote_internal.h"

enum { RUN_MS = 100 };

struct idle_client {
    struct remote_client *client;
    struct idle_client *next;
};

static struct {
    pthread_mutex_t lock;
    struct idle_client *first;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct single {
    uint8_t *at;
    bool done;
    enum status status;
    struct error *err;
};

static bool take(void *cookie, const void *bytes, size_t size_bytes, struct error *err) {
    struct single *s = cookie;
    (void)err;
    memcpy(s->at, bytes, size_bytes);
    s->at += size_bytes;
    return true;
}

static void done(void *cookie, enum status status, const struct error *err) {
    struct single *s = cookie;
    s->done = true;
    s->status = status;
    if (status < STATUS_OK && s->err != NULL) {
        *s->err = *err;
    }
}

static enum status borrow(struct idle_client **out, struct error *err) {
    pthread_mutex_lock(&idle.lock);
    struct idle_client *c = idle.first;
    if (c != NULL) {
        idle.first = c->next;
    }
    pthread_mutex_unlock(&idle.lock);
    if (c == NULL) {
        c = calloc(1, sizeof(*c));
        TRY_MEMORY(c != NULL, err, "out of memory for remote reads");
        enum status s = remote_client_create(&c->client, 1, err);
        if (s < STATUS_OK) {
            free(c);
            return s;
        }
    }
    *out = c;
    return STATUS_OK;
}

static void give_back(struct idle_client *c) {
    pthread_mutex_lock(&idle.lock);
    c->next = idle.first;
    idle.first = c;
    pthread_mutex_unlock(&idle.lock);
}

static enum status
request(struct remote_object *o, void *out, size_t size_bytes, uint64_t offset, struct error *err) {
    struct idle_client *c = NULL;
    struct single single = {.at = out, .err = err};
    TRY(borrow(&c, err));
    struct remote_read read = {.object = o,
                               .offset = offset,
                               .size_bytes = size_bytes,
                               .cookie = &single,
                               .take = take,
                               .done = done};
    remote_client_start(c->client, &read);
    while (!single.done) {
        remote_client_run(c->client, RUN_MS);
    }
    give_back(c);
    return single.status;
}

static enum status read_pieces(struct extents *x,
                               struct remote_object *o,
                               uint8_t *out,
                               size_t size_bytes,
                               uint64_t offset,
                               struct error *err) {
    uint32_t retried_count = 0;
    enum status s = STATUS_OK;
    while (size_bytes > 0 && s == STATUS_OK) {
        struct extent *e = extents_get(x, o, offset, false);
        TRY_MEMORY(e != NULL, err, "out of memory for a chunk of a remote file");
        size_t got = 0;
        uint64_t seen = extents_arrivals(x);
        while ((s = extent_read(x, e, out, &got, size_bytes, offset, &retried_count, err)) ==
               STATUS_AGAIN) {
            extents_wait(x, seen, RUN_MS);
            seen = extents_arrivals(x);
        }
        extents_put(x, e);
        out += got;
        offset += got;
        size_bytes -= got;
    }
    return s;
}

enum status remote_object_pread(struct remote_object *o,
                                void *out,
                                size_t *got,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err) {
    const struct copy copy = remote_object_copy(o);
    struct extents *x = NULL;
    *got = 0;
    if (offset >= o->size_bytes || size_bytes == 0) {
        return STATUS_OK;
    }
    if (size_bytes > o->size_bytes - offset) {
        size_bytes = (size_t)(o->size_bytes - offset);
    }
    if (copy.fd >= 0) {
        FAIL_ERRNO_IF(!remote_read_fd(copy.fd, out, size_bytes, copy.offset + offset), err,
                      "cannot read a copy of a remote file");
    } else {
        TRY(remote_extents(&x, err));
        TRY(x != NULL ? read_pieces(x, o, out, size_bytes, offset, err)
                      : request(o, out, size_bytes, offset, err));
    }
    *got = size_bytes;
    return STATUS_OK;
}

void remote_object_doubt(struct remote_object *o, uint64_t offset, uint64_t size_bytes) {
    struct extents *x = NULL;
    if (remote_extents(&x, NULL) == STATUS_OK && x != NULL) {
        extents_forget(x, o, offset, size_bytes);
    }
}

bool remote_object_plan(struct remote_object *o, uint64_t offset) {
    struct extents *x = NULL;
    return remote_extents(&x, NULL) == STATUS_OK && x != NULL && extents_plan(x, o, offset);
}

uint32_t remote_plan_limit(uint32_t max_count) {
    /* A quarter of the cache: what was used just now stays too. */
    const uint64_t share = remote_view.options.cache_bytes / 4 / REMOTE_PIECE_BYTES;
    return remote_view.cache == NULL ? 0 : share < max_count ? (uint32_t)share : max_count;
}

void remote_pread_after_fork(void) {
    idle.first = NULL;
    pthread_mutex_init(&idle.lock, NULL); /* a thread of the parent may have held it */
}

void remote_pread_stop(void) {
    while (idle.first != NULL) {
        struct idle_client *c = idle.first;
        idle.first = c->next;
        remote_client_destroy(c->client);
        free(c);
    }
}
