/*
 * comm_threads: links of one process.
 *
 * A collective is done by the last rank that begins it, with the buffers that all left; a message
 * by its receiver, which copies out of the sender's buffer. All of it under one mutex.
 */
#include "tests/support/comm_threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/comm/comm_internal.h"

enum { WORLD_MAX = 16, SMALL_PIECE_BYTES = 4096, LARGE_PIECE_BYTES = 16 << 20 };

enum call { CALL_NONE, CALL_EXCHANGE, CALL_GATHER, CALL_BROADCAST, CALL_MERGE };

struct message {
    const void *data; /* NULL: none, or received */
    size_t size_bytes;
};

struct thread_link {
    struct comm_link link;
    struct group *group;
    enum call call;
    void *data; /* of a collective */
    size_t size_bytes;
    int32_t root;
    int32_t peer; /* of an exchange */
    void *received;
    size_t received_bytes;
};

struct group {
    pthread_mutex_t mutex;
    /* guarded by mutex */
    int32_t world, begun_count;
    bool failed;
    struct thread_link *links[WORLD_MAX];
    struct message messages[WORLD_MAX][WORLD_MAX]; /* [from][to] */
};

static void do_collective(struct group *g, const struct thread_link *last) {
    const size_t n = last->size_bytes;
    for (int32_t r = 0; r < g->world; r++) {
        const struct thread_link *from = g->links[r];
        for (int32_t q = 0; q < g->world && last->call == CALL_GATHER; q++) {
            char *all = g->links[q]->data;
            if (q != r) {
                memcpy(all + (size_t)r * n, (const char *)from->data + (size_t)r * n, n);
            }
        }
        if (last->call == CALL_BROADCAST && r != last->root) {
            memcpy(from->data, g->links[last->root]->data, n);
        }
    }
    for (size_t i = 0; i < n / 4 && last->call == CALL_MERGE; i++) {
        uint32_t sum = 0;
        for (int32_t r = 0; r < g->world; r++) {
            sum += ((uint32_t *)g->links[r]->data)[i];
        }
        for (int32_t r = 0; r < g->world; r++) {
            ((uint32_t *)g->links[r]->data)[i] = sum;
        }
    }
    for (int32_t r = 0; r < g->world; r++) {
        g->links[r]->call = CALL_NONE;
    }
    g->begun_count = 0;
}

static enum status begin(struct comm_link *base,
                         enum call call,
                         void *data,
                         size_t size_bytes,
                         int32_t root,
                         struct error *err) {
    struct thread_link *l = (struct thread_link *)base;
    struct group *g = l->group;
    enum status s = STATUS_OK;
    (void)pthread_mutex_lock(&g->mutex);
    l->data = data;
    l->size_bytes = size_bytes;
    l->root = root;
    l->call = call;
    for (int32_t r = 0; r < g->world; r++) {
        const struct thread_link *other = g->links[r];
        /* Others may still be in an exchange that came before. */
        if (other->call != CALL_NONE && other->call != CALL_EXCHANGE &&
            (other->call != call || other->size_bytes != size_bytes || other->root != root)) {
            g->failed = true;
            s = error_set(err, STATUS_IO, "the ranks call different collectives, or other sizes");
        }
    }
    if (g->failed && s == STATUS_OK) { /* buffers of ranks that failed may be gone */
        s = error_set(err, STATUS_IO, "another rank failed");
    } else if (s == STATUS_OK && ++g->begun_count == g->world) {
        do_collective(g, l);
    }
    (void)pthread_mutex_unlock(&g->mutex);
    return s;
}

static enum status
begin_gather(struct comm_link *l, void *all, size_t own_bytes, struct error *err) {
    return begin(l, CALL_GATHER, all, own_bytes, 0, err);
}

static enum status begin_broadcast(struct comm_link *l,
                                   void *data,
                                   size_t size_bytes,
                                   int32_t root,
                                   struct error *err) {
    return begin(l, CALL_BROADCAST, data, size_bytes, root, err);
}

static enum status
begin_merge(struct comm_link *l, uint32_t *words, size_t count, struct error *err) {
    return begin(l, CALL_MERGE, words, count * sizeof *words, 0, err);
}

static enum status begin_exchange(struct comm_link *base,
                                  int32_t peer,
                                  void *received,
                                  size_t received_bytes,
                                  const void *sent,
                                  size_t sent_bytes,
                                  struct error *err) {
    struct thread_link *l = (struct thread_link *)base;
    (void)err;
    (void)pthread_mutex_lock(&l->group->mutex);
    l->call = CALL_EXCHANGE;
    l->peer = peer;
    l->received = received;
    l->received_bytes = received_bytes;
    l->group->messages[base->rank][peer] =
        (struct message){sent_bytes > 0 ? sent : NULL, sent_bytes};
    (void)pthread_mutex_unlock(&l->group->mutex);
    return STATUS_OK;
}

static enum status poll_exchange(struct thread_link *l, struct error *err) {
    struct message *in = &l->group->messages[l->peer][l->link.rank];
    const struct message *out = &l->group->messages[l->link.rank][l->peer];
    if (l->received_bytes > 0 && in->data != NULL) {
        if (in->size_bytes != l->received_bytes) {
            l->group->failed = true;
            return error_set(err, STATUS_IO, "a message of %zu bytes, expected %zu", in->size_bytes,
                             l->received_bytes);
        }
        memcpy(l->received, in->data, in->size_bytes);
        in->data = NULL;
        l->received_bytes = 0;
    }
    return l->received_bytes > 0 || out->data != NULL ? STATUS_AGAIN : STATUS_OK;
}

static enum status poll_link(struct comm_link *base, struct error *err) {
    struct thread_link *l = (struct thread_link *)base;
    struct group *g = l->group;
    enum status s = STATUS_OK;
    (void)pthread_mutex_lock(&g->mutex);
    if (g->failed) {
        s = error_set(err, STATUS_IO, "another rank failed");
    } else if (l->call == CALL_EXCHANGE) {
        s = poll_exchange(l, err);
        l->call = s == STATUS_OK ? CALL_NONE : CALL_EXCHANGE;
    } else if (l->call != CALL_NONE) {
        s = STATUS_AGAIN;
    }
    (void)pthread_mutex_unlock(&g->mutex);
    return s;
}

static void abort_group(struct comm_link *l, int exit_code) {
    (void)l;
    _exit(exit_code);
}

static void fail_group(struct group *g) {
    (void)pthread_mutex_lock(&g->mutex);
    g->failed = true;
    (void)pthread_mutex_unlock(&g->mutex);
}

/* Links are freed after all threads ended: the last collective may still read them. */
static bool close_link(struct comm_link *base, bool complete) {
    if (!complete) {
        fail_group(((struct thread_link *)base)->group);
    }
    return true;
}

struct rank_thread {
    pthread_t thread;
    struct thread_link link;
    comm_threads_body *body;
    void *cookie;
    enum status status;
    struct error err;
};

static void *run_rank(void *cookie) {
    struct rank_thread *t = cookie;
    struct comm_options opt;
    struct comm *c;
    comm_options_default(&opt);
    t->status = comm_create(&c, &t->link.link, &opt, &t->err);
    if (t->status == STATUS_OK) {
        t->status = t->body(c, t->cookie, &t->err);
        if (t->status != STATUS_OK) {
            fail_group(t->link.group);
        }
        comm_close(c);
    }
    return NULL;
}

/* A rank that failed by itself rather than with another. */
static bool is_first_failure(const struct rank_thread *t) {
    return t->status != STATUS_OK && strcmp(t->err.text, "another rank failed") != 0;
}

static enum status join(struct rank_thread *threads, int32_t world, struct error *err) {
    const struct rank_thread *failed = NULL;
    for (int32_t r = 0; r < world; r++) {
        const struct rank_thread *t = &threads[r];
        (void)pthread_join(t->thread, NULL);
        if (t->status != STATUS_OK && (failed == NULL || !is_first_failure(failed))) {
            failed = t;
        }
    }
    return failed == NULL ? STATUS_OK
                          : error_set(err, failed->status, "rank %d: %s", failed->link.link.rank,
                                      failed->err.text);
}

static enum status
run(int32_t world, size_t piece_bytes, comm_threads_body *body, void *cookie, struct error *err) {
    REQUIRE(world >= 1 && world <= WORLD_MAX);
    struct rank_thread *threads = calloc((size_t)world, sizeof *threads);
    struct group *g = calloc(1, sizeof *g);
    if (threads == NULL || g == NULL) {
        free(threads);
        free(g);
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    g->world = world;
    (void)pthread_mutex_init(&g->mutex, NULL);
    for (int32_t r = 0; r < world; r++) {
        struct rank_thread *t = &threads[r];
        *t = (struct rank_thread){.body = body, .cookie = cookie};
        t->link = (struct thread_link){
            .group = g,
            .link = {.rank = r,
                     .world = world,
                     .piece_bytes = piece_bytes,
                     .begin_exchange = begin_exchange,
                     .begin_gather = begin_gather,
                     .begin_broadcast = begin_broadcast,
                     .begin_merge = begin_merge,
                     .poll = poll_link,
                     .abort_group = abort_group,
                     .close = close_link},
        };
        g->links[r] = &t->link;
    }
    for (int32_t r = 0; r < world; r++) {
        if (pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]) != 0) {
            (void)fprintf(stderr, "comm_threads: cannot start a thread\n");
            abort();
        }
    }
    const enum status s = join(threads, world, err);
    (void)pthread_mutex_destroy(&g->mutex);
    free(threads);
    free(g);
    return s;
}

enum status
comm_threads_run(int32_t world, comm_threads_body *body, void *cookie, struct error *err) {
    return run(world, SMALL_PIECE_BYTES, body, cookie, err);
}

enum status
comm_threads_run_large(int32_t world, comm_threads_body *body, void *cookie, struct error *err) {
    return run(world, LARGE_PIECE_BYTES, body, cookie, err);
}
