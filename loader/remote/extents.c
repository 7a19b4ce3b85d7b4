#include "loader/remote/remote_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"

enum {
    MAX_OPEN = 256, /* pieces that nobody uses and whose files stay open */
    MAX_FETCHES = 8,
    CONNECTIONS = MAX_FETCHES,
    BUCKETS = 256,
    RUN_MS = 1000,
};

enum extent_state {
    EXTENT_WANTED,
    EXTENT_FETCHING,
    EXTENT_READY,
    EXTENT_FAILED,
};

struct extent {
    struct extents *owner;
    struct remote_object *object;
    struct cache_key key;
    uint32_t number;
    uint64_t size_bytes;
    struct extent *next; /* of the same bucket */

    /* Guarded by the lock. */
    enum extent_state state;
    uint32_t users;
    uint64_t last_use;
    bool awaited;     /* by a thread, and not only planned */
    bool out_of_date; /* not found any more; goes with its last user */
    uint64_t order;   /* of wanted ones: first come, first served */
    int fd;           /* READY; -1: in memory */
    uint8_t *bytes;   /* FETCHING: the thread's; READY and in memory */
    uint32_t retried_count;
    struct error why; /* FAILED */

    /* The thread's. */
    struct cache_file *file; /* NULL: it is fetched into memory */
    bool refused;            /* the disk did not take it */
    struct remote_read read;
};

struct extents {
    struct cache *cache;
    struct remote_client *client; /* the thread's, but for waking it */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a piece arrived or failed */
    struct extent *buckets[BUCKETS];
    uint64_t clock;
    uint64_t arrivals;
    uint32_t idle_count; /* READY without users */
    uint32_t wanted_count;
    uint32_t fetching_count;
    bool stopping;
    pthread_t thread;
};

/* --- the table; requires the lock --- */

static struct extent **
bucket_of(struct extents *x, const struct remote_object *o, uint32_t number) {
    return &x->buckets[((uintptr_t)o / 64 + number) % BUCKETS];
}

static struct extent *
find(struct extents *x, const struct remote_object *o, struct cache_key key, uint32_t number) {
    struct extent *e = *bucket_of(x, o, number);
    while (e != NULL &&
           (e->object != o || e->number != number || e->key.own != key.own || e->out_of_date)) {
        e = e->next;
    }
    return e;
}

static void drop(struct extents *x, struct extent *e) {
    struct extent **at = bucket_of(x, e->object, e->number);
    while (*at != e) {
        at = &(*at)->next;
    }
    *at = e->next;
    if (e->fd >= 0) {
        close(e->fd);
    }
    free(e->bytes);
    free(e);
}

static void drop_oldest(struct extents *x) {
    struct extent *oldest = NULL;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct extent *e = x->buckets[i]; e != NULL; e = e->next) {
            if (e->state == EXTENT_READY && e->users == 0 &&
                (oldest == NULL || e->last_use < oldest->last_use)) {
                oldest = e;
            }
        }
    }
    x->idle_count--;
    drop(x, oldest);
}

/* A piece has lost its last user, or arrived without one. */
static void rest(struct extents *x, struct extent *e) {
    if (e->state == EXTENT_FAILED || e->out_of_date || e->fd < 0) {
        drop(x, e);
        return;
    }
    e->last_use = ++x->clock;
    if (++x->idle_count > MAX_OPEN) {
        drop_oldest(x);
    }
}

static struct cache_key
key_of(const struct extents *x, const struct remote_object *o, bool checked) {
    const struct cache_key key = cache_key_of(o->url, o->etag, o->size_bytes);
    return checked ? key : cache_key_own(x->cache, key);
}

static struct extent *
add(struct extents *x, struct remote_object *o, struct cache_key key, uint32_t number) {
    struct extent *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return NULL;
    }
    const uint64_t first = (uint64_t)number * REMOTE_PIECE_BYTES;
    const uint64_t left = o->size_bytes - first;
    *e = (struct extent){.owner = x,
                         .object = o,
                         .key = key,
                         .number = number,
                         .size_bytes = left < REMOTE_PIECE_BYTES ? left : REMOTE_PIECE_BYTES,
                         .state = EXTENT_WANTED,
                         .order = ++x->clock,
                         .fd = -1};
    struct extent **bucket = bucket_of(x, o, number);
    e->next = *bucket;
    *bucket = e;
    return e;
}

static void want(struct extents *x, struct extent *e) {
    e->state = EXTENT_WANTED;
    x->wanted_count++;
    remote_client_wake(x->client);
}

/* --- the thread --- */

static void fetch(struct extent *e, bool into_memory);

static bool take(void *cookie, const void *bytes, size_t size_bytes, struct error *err) {
    struct extent *e = cookie;
    if (e->file == NULL) {
        memcpy(e->bytes + e->read.got_bytes, bytes, size_bytes);
        return true;
    }
    e->refused = !cache_append(e->file, bytes, size_bytes);
    if (e->refused) {
        (void)error_set(err, STATUS_IO, "the cache cannot be written");
    }
    return !e->refused;
}

static void arrive(struct extent *e, int fd, enum status s, const struct error *err) {
    struct extents *x = e->owner;
    pthread_mutex_lock(&x->lock);
    x->fetching_count--;
    e->retried_count = e->read.retried_count;
    e->fd = fd;
    e->state = s == STATUS_OK ? EXTENT_READY : EXTENT_FAILED;
    if (s < STATUS_OK) {
        e->why = *err;
    }
    if (e->users == 0) {
        rest(x, e);
    }
    x->arrivals++;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void done(void *cookie, enum status s, const struct error *err) {
    struct extent *e = cookie;
    int fd = -1;
    if (e->file != NULL) {
        fd = cache_end(e->file, s == STATUS_OK);
        e->file = NULL;
        if (e->refused || (s == STATUS_OK && fd < 0)) {
            fetch(e, true);
            return;
        }
    }
    arrive(e, fd, s, err);
}

static void fetch(struct extent *e, bool into_memory) {
    struct extents *x = e->owner;
    struct error err = {0};
    e->read = (struct remote_read){.object = e->object,
                                   .offset = (uint64_t)e->number * REMOTE_PIECE_BYTES,
                                   .size_bytes = e->size_bytes,
                                   .cookie = e,
                                   .take = take,
                                   .done = done};
    e->refused = false;
    if (!into_memory) {
        e->file = cache_begin(x->cache, e->key, e->number, e->size_bytes);
    }
    if (e->file == NULL && (e->bytes = malloc(e->size_bytes)) == NULL) {
        arrive(e, -1, error_set(&err, STATUS_NOMEM, "out of memory for a chunk of a remote file"),
               &err);
        return;
    }
    remote_client_start(x->client, &e->read);
}

/* Requires the lock. */
static struct extent *next_wanted(struct extents *x) {
    struct extent *best = NULL;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct extent *e = x->buckets[i]; e != NULL; e = e->next) {
            if (e->state == EXTENT_WANTED &&
                (best == NULL || (e->awaited && !best->awaited) ||
                 (e->awaited == best->awaited && e->order < best->order))) {
                best = e;
            }
        }
    }
    return best;
}

static void *run(void *cookie) {
    struct extents *x = cookie;
    pthread_mutex_lock(&x->lock);
    while (!x->stopping) {
        while (x->wanted_count > 0 && x->fetching_count < MAX_FETCHES) {
            struct extent *e = next_wanted(x);
            e->state = EXTENT_FETCHING;
            x->wanted_count--;
            x->fetching_count++;
            pthread_mutex_unlock(&x->lock);
            fetch(e, false);
            pthread_mutex_lock(&x->lock);
        }
        pthread_mutex_unlock(&x->lock);
        remote_client_run(x->client, RUN_MS);
        pthread_mutex_lock(&x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* --- life --- */

/* Starts the thread. Returns OK, NOMEM or UNSUPPORTED (no libcurl). */
static enum status extents_create(struct extents **out, struct cache *cache, struct error *err) {
    struct extents *x = calloc(1, sizeof *x);
    *out = NULL;
    TRY_MEMORY(x != NULL, err, "out of memory for remote files");
    x->cache = cache;
    enum status s = remote_client_create(&x->client, CONNECTIONS, err);
    if (s < STATUS_OK) {
        free(x);
        return s;
    }
    pthread_cond_init(&x->changed, NULL);
    pthread_mutex_init(&x->lock, NULL);
    const int e = pthread_create(&x->thread, NULL, run, x);
    if (e != 0) {
        remote_client_destroy(x->client);
        pthread_cond_destroy(&x->changed);
        pthread_mutex_destroy(&x->lock);
        free(x);
        return error_set(err, STATUS_NOMEM, "cannot start a thread: %s", strerror(e));
    }
    *out = x;
    return STATUS_OK;
}

/* Every piece must have been put back. */
static void extents_destroy(struct extents *x) {
    pthread_mutex_lock(&x->lock);
    x->stopping = true;
    pthread_mutex_unlock(&x->lock);
    remote_client_wake(x->client);
    pthread_join(x->thread, NULL);
    remote_client_destroy(x->client); /* ends what is being fetched */
    for (size_t i = 0; i < BUCKETS; i++) {
        while (x->buckets[i] != NULL) {
            drop(x, x->buckets[i]);
        }
    }
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* --- for readers --- */

struct extent *
extents_get(struct extents *x, struct remote_object *o, uint64_t offset, bool checked) {
    const uint32_t number = (uint32_t)(offset / REMOTE_PIECE_BYTES);
    const struct cache_key key = key_of(x, o, checked);
    pthread_mutex_lock(&x->lock);
    struct extent *e = find(x, o, key, number);
    if (e == NULL) {
        e = add(x, o, key, number);
        if (e != NULL &&
            cache_get(x->cache, &e->fd, key, number, e->size_bytes, !checked, NULL) == STATUS_OK) {
            e->state = EXTENT_READY;
        } else if (e != NULL) {
            e->awaited = true;
            want(x, e);
        }
    } else if (e->users == 0 && e->state == EXTENT_READY) {
        x->idle_count--;
    }
    if (e != NULL) {
        e->awaited = true;
        e->users++;
    }
    pthread_mutex_unlock(&x->lock);
    return e;
}

void extents_put(struct extents *x, struct extent *e) {
    pthread_mutex_lock(&x->lock);
    if (--e->users == 0 && (e->state == EXTENT_READY || e->state == EXTENT_FAILED)) {
        rest(x, e);
    }
    pthread_mutex_unlock(&x->lock);
}

uint64_t extents_arrivals(struct extents *x) {
    pthread_mutex_lock(&x->lock);
    const uint64_t arrivals = x->arrivals;
    pthread_mutex_unlock(&x->lock);
    return arrivals;
}

void extents_wait(struct extents *x, uint64_t seen, int64_t timeout_ms) {
    pthread_mutex_lock(&x->lock);
    if (x->arrivals == seen) {
        clock_wait_ms(&x->changed, &x->lock, timeout_ms);
    }
    pthread_mutex_unlock(&x->lock);
}

enum status extent_read(struct extents *x,
                        struct extent *e,
                        void *out,
                        size_t *got,
                        size_t size_bytes,
                        uint64_t offset,
                        uint32_t *retried_count,
                        struct error *err) {
    *got = 0;
    pthread_mutex_lock(&x->lock);
    const enum extent_state state = e->state;
    if (state == EXTENT_READY || state == EXTENT_FAILED) {
        *retried_count += e->retried_count;
        e->retried_count = 0; /* counted once */
    }
    pthread_mutex_unlock(&x->lock);
    FAIL_IF(state == EXTENT_FAILED, err, e->why.status, "%s", e->why.text);
    if (state != EXTENT_READY) {
        return STATUS_AGAIN;
    }
    const uint64_t at = offset - (uint64_t)e->number * REMOTE_PIECE_BYTES;
    const uint64_t left = e->size_bytes - at;
    size_bytes = size_bytes < left ? size_bytes : (size_t)left;
    if (e->fd >= 0) {
        FAIL_ERRNO_IF(!remote_read_fd(e->fd, out, size_bytes, at), err,
                      "%.300s: cannot read it from the cache", e->object->path);
    } else {
        memcpy(out, e->bytes + at, size_bytes);
    }
    *got = size_bytes;
    return STATUS_OK;
}

bool extents_plan(struct extents *x, struct remote_object *o, uint64_t offset) {
    const uint32_t number = (uint32_t)(offset / REMOTE_PIECE_BYTES);
    const struct cache_key key = key_of(x, o, true);
    bool planned = false;
    pthread_mutex_lock(&x->lock);
    if (find(x, o, key, number) == NULL && !cache_has(x->cache, key, number)) {
        struct extent *e = add(x, o, key, number);
        planned = e != NULL;
        if (planned) {
            want(x, e);
        }
    }
    pthread_mutex_unlock(&x->lock);
    return planned;
}

void extents_forget(struct extents *x,
                    struct remote_object *o,
                    uint64_t offset,
                    uint64_t size_bytes) {
    const struct cache_key key = key_of(x, o, true);
    pthread_mutex_lock(&x->lock);
    for (uint64_t at = offset / REMOTE_PIECE_BYTES; at * REMOTE_PIECE_BYTES < offset + size_bytes;
         at++) {
        struct extent *e = find(x, o, key, (uint32_t)at);
        cache_remove(x->cache, key, (uint32_t)at);
        if (e != NULL && e->state == EXTENT_READY) {
            e->out_of_date = true;
            if (e->users == 0) {
                x->idle_count--;
                drop(x, e);
            }
        }
    }
    pthread_mutex_unlock(&x->lock);
}

/* --- those of the process --- */

static struct {
    pthread_mutex_t lock;
    struct extents *extents; /* guarded; made when the first piece is needed */
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum status remote_extents(struct extents **out, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&own.lock);
    if (remote_view.cache != NULL && own.extents == NULL) {
        s = extents_create(&own.extents, remote_view.cache, err);
    }
    *out = own.extents;
    pthread_mutex_unlock(&own.lock);
    return s;
}

void extents_before_fork(void) {
    pthread_mutex_lock(&own.lock);
}

void extents_after_fork(void) {
    pthread_mutex_unlock(&own.lock);
}

void extents_abandon(void) {
    own.extents = NULL;
}

void extents_stop(void) {
    if (own.extents != NULL) {
        extents_destroy(own.extents);
        own.extents = NULL;
    }
}
