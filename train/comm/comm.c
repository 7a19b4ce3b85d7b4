/*
 * comm: collectives of a group of ranks.
 *
 * The owner's calls become operations in a bounded queue, which a worker thread executes in order.
 * A call waits for its operation, except comm_begin_sum. Operations larger than the link's piece
 * are divided here. After the first failure, which is kept, nothing is executed.
 *
 *   owner:  comm_gather -> submit -> await ------------------------------> result
 *                             |                                    ^
 *   worker:                   '--> queue --> begin, poll, poll ... '
 *
 * Polling spins briefly, then sleeps for up to 200 us, because ranks may share cores. It does not
 * yield: the scheduler returns from a yield after all others ran, from a sleep at once.
 */
#include "train/comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "train/comm/comm_internal.h"
#include "train/comm/heartbeat.h"
#include "train/comm/watch.h"

enum { QUEUE_COUNT = 64, POLL_SPINS = 50, POLL_SLEEP_FIRST_NS = 10000, POLL_SLEEP_MAX_NS = 200000 };

enum operation_kind { OPERATION_GATHER, OPERATION_BROADCAST, OPERATION_MERGE, OPERATION_SUM };

struct operation {
    enum operation_kind kind;
    void *data;
    size_t size_bytes; /* gather: of one rank */
    int32_t root;
};

struct comm {
    struct comm_watched watched;
    struct comm_options options;
    struct comm_link *link; /* NULL: one rank without MPI */
    struct watch *watch;    /* NULL: one rank */
    struct comm_peer *peers;
    int32_t local_rank, local_world;
    float *workspace;    /* (link->piece_bytes) */
    bool broken;         /* the transport has reported an error */
    bool ended;          /* comm_end has succeeded */
    uint32_t *statuses;  /* (world), for comm_agree */
    int64_t deadline_ns; /* of operations while opening; 0: none, the watching thread has one */
    int64_t wait_ns;     /* the owner's */
    pthread_t worker;
    bool worker_runs;

    pthread_mutex_t mutex;
    pthread_cond_t submitted_one, completed_one;
    /* guarded by mutex */
    struct operation queue[QUEUE_COUNT];
    uint64_t submitted_count, completed_count;
    bool stopping;
    struct error failed; /* status OK: nothing failed */
    uint64_t messages_count, sent_bytes;
    void (*stop)(void *cookie); /* of comm_set_stop */
    void *stop_cookie;
};

/* ---- the worker ---- */

static void count_sent(struct comm *c, uint64_t size_bytes) {
    (void)pthread_mutex_lock(&c->mutex);
    c->messages_count++;
    c->sent_bytes += size_bytes;
    (void)pthread_mutex_unlock(&c->mutex);
}

/* Restarts the owner's wait, if it waits: messages arrive, so no rank is stuck. The owner may end
 * its wait meanwhile. */
static void note_progress(struct comm *c) {
    int64_t started_ns = atomic_load_explicit(&c->watched.wait_started_ns, memory_order_relaxed);
    if (started_ns != 0) {
        (void)atomic_compare_exchange_strong_explicit(&c->watched.wait_started_ns, &started_ns,
                                                      clock_now_ns(), memory_order_relaxed,
                                                      memory_order_relaxed);
    }
}

/* An error of the transport is only this rank's: the others have not agreed to it. */
static enum status of_link(struct comm *c, enum status s) {
    c->broken |= s != STATUS_OK;
    return s;
}

/* Polls until the begun operation is complete. */
static enum status complete(struct comm *c, struct error *err) {
    struct timespec sleep = {.tv_nsec = POLL_SLEEP_FIRST_NS};
    for (int32_t polls = 0;; polls++) {
        const enum status s = c->link->poll(c->link, err);
        if (s != STATUS_AGAIN) {
            note_progress(c);
            return of_link(c, s);
        }
        if (polls < POLL_SPINS) {
            continue;
        }
        polls = POLL_SPINS;
        (void)nanosleep(&sleep, NULL);
        sleep.tv_nsec =
            sleep.tv_nsec * 2 < POLL_SLEEP_MAX_NS ? sleep.tv_nsec * 2 : POLL_SLEEP_MAX_NS;
        FAIL_IF(c->deadline_ns != 0 && clock_now_ns() > c->deadline_ns, err, STATUS_TIMEOUT,
                "not all of %d ranks answered within %lld s of the start", c->link->world,
                (long long)(c->options.timeout_ms / 1000));
    }
}

enum status comm_exchange(struct comm *c,
                          int32_t peer,
                          void *received,
                          size_t received_bytes,
                          const void *sent,
                          size_t sent_bytes,
                          struct error *err) {
    if (received_bytes == 0 && sent_bytes == 0) {
        return STATUS_OK;
    }
    TRY(of_link(c, c->link->begin_exchange(c->link, peer, received, received_bytes, sent,
                                           sent_bytes, err)));
    if (sent_bytes > 0) {
        count_sent(c, sent_bytes);
    }
    return complete(c, err);
}

/* All operations except OPERATION_GATHER, one piece of the link at a time. */
static enum status carry_pieces(struct comm *c, const struct operation *o, struct error *err) {
    const uint64_t world = (uint64_t)c->link->world;
    for (size_t at = 0; at < o->size_bytes;) {
        const size_t left = o->size_bytes - at;
        const size_t n = left < c->link->piece_bytes ? left : c->link->piece_bytes;
        char *data = (char *)o->data + at;
        if (o->kind == OPERATION_SUM) {
            TRY(tree_sum(c, (float *)(void *)data, c->workspace, (int64_t)(n / sizeof(float)),
                         err));
        } else if (o->kind == OPERATION_MERGE) {
            uint32_t *words = (uint32_t *)(void *)data;
            TRY(of_link(c, c->link->begin_merge(c->link, words, n / sizeof *words, err)));
            count_sent(c, 2 * n * (world - 1) / world);
            TRY(complete(c, err));
        } else {
            TRY(of_link(c, c->link->begin_broadcast(c->link, data, n, o->root, err)));
            if (c->link->rank == o->root) {
                count_sent(c, n);
            }
            TRY(complete(c, err));
        }
        at += n;
    }
    return STATUS_OK;
}

/* Parts larger than a piece are broadcast by one rank after another; also if MPI's offsets, which
 * some libraries compute as int, would overflow. */
static enum status carry(struct comm *c, const struct operation *o, struct error *err) {
    const size_t world = (size_t)c->link->world;
    if (o->kind != OPERATION_GATHER) {
        return carry_pieces(c, o, err);
    }
    if (o->size_bytes > c->link->piece_bytes || o->size_bytes > (size_t)INT32_MAX / world) {
        for (int32_t r = 0; r < c->link->world; r++) {
            char *of_rank = (char *)o->data + (size_t)r * o->size_bytes;
            const struct operation part = {OPERATION_BROADCAST, of_rank, o->size_bytes, r};
            TRY(carry_pieces(c, &part, err));
        }
        return STATUS_OK;
    }
    TRY(of_link(c, c->link->begin_gather(c->link, o->data, o->size_bytes, err)));
    count_sent(c, o->size_bytes * (world - 1));
    return complete(c, err);
}

static void *work(void *cookie) {
    struct comm *c = cookie;
    (void)pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (c->completed_count == c->submitted_count && !c->stopping) {
            (void)pthread_cond_wait(&c->submitted_one, &c->mutex);
        }
        if (c->completed_count == c->submitted_count) {
            break;
        }
        if (c->failed.status == STATUS_OK) {
            const struct operation o = c->queue[c->completed_count % QUEUE_COUNT];
            struct error err = {0};
            (void)pthread_mutex_unlock(&c->mutex);
            const enum status s = carry(c, &o, &err);
            (void)pthread_mutex_lock(&c->mutex);
            if (s != STATUS_OK) {
                c->failed = err;
                c->failed.status = s;
            }
        }
        c->completed_count++;
        (void)pthread_cond_signal(&c->completed_one);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- the owner ---- */

/* Waits until that many operations are complete. Requires the mutex. */
static void await(struct comm *c, uint64_t completed_count) {
    if (c->completed_count >= completed_count) {
        return;
    }
    const int64_t start_ns = clock_now_ns();
    atomic_store_explicit(&c->watched.wait_started_ns, start_ns, memory_order_relaxed);
    while (c->completed_count < completed_count) {
        (void)pthread_cond_wait(&c->completed_one, &c->mutex);
    }
    atomic_store_explicit(&c->watched.wait_started_ns, 0, memory_order_relaxed);
    c->wait_ns += clock_now_ns() - start_ns;
}

static void submit(struct comm *c, const struct operation *o) {
    (void)pthread_mutex_lock(&c->mutex);
    if (c->submitted_count >= QUEUE_COUNT) {
        await(c, c->submitted_count - QUEUE_COUNT + 1);
    }
    c->queue[c->submitted_count++ % QUEUE_COUNT] = *o;
    (void)pthread_cond_signal(&c->submitted_one);
    (void)pthread_mutex_unlock(&c->mutex);
}

/* Waits for all submitted operations. */
static enum status await_all(struct comm *c, struct error *err) {
    (void)pthread_mutex_lock(&c->mutex);
    await(c, c->submitted_count);
    if (c->failed.status != STATUS_OK && err != NULL) {
        *err = c->failed;
    }
    const enum status s = c->failed.status;
    (void)pthread_mutex_unlock(&c->mutex);
    return s;
}

static enum status run(struct comm *c, const struct operation *o, struct error *err) {
    if (c->watched.world == 1 || o->size_bytes == 0) {
        return STATUS_OK;
    }
    submit(c, o);
    return await_all(c, err);
}

enum status
comm_gather(struct comm *c, void *all, const void *own, size_t own_bytes, struct error *err) {
    REQUIRE(c != NULL && ((all != NULL && own != NULL) || own_bytes == 0));
    char *place = own_bytes > 0 ? (char *)all + (size_t)c->watched.rank * own_bytes : NULL;
    if (place != own && own_bytes > 0) {
        memmove(place, own, own_bytes);
    }
    return run(c, &(struct operation){OPERATION_GATHER, all, own_bytes, 0}, err);
}

enum status
comm_broadcast(struct comm *c, void *data, size_t size_bytes, int32_t root, struct error *err) {
    REQUIRE(c != NULL && (data != NULL || size_bytes == 0) && root >= 0 && root < comm_world(c));
    return run(c, &(struct operation){OPERATION_BROADCAST, data, size_bytes, root}, err);
}

enum status comm_merge(struct comm *c, uint32_t *words, int64_t count, struct error *err) {
    REQUIRE(c != NULL && (words != NULL || count == 0) && count >= 0);
    const size_t size_bytes = (size_t)count * sizeof *words;
    return run(c, &(struct operation){OPERATION_MERGE, words, size_bytes, 0}, err);
}

enum status comm_barrier(struct comm *c, struct error *err) {
    uint32_t word = 0;
    return comm_merge(c, &word, 1, err);
}

enum status comm_begin_sum(struct comm *c, float *data, int64_t count, struct error *err) {
    REQUIRE(c != NULL && (data != NULL || count == 0) && count >= 0);
    (void)err;
    if (c->watched.world > 1 && count > 0) {
        submit(c, &(struct operation){OPERATION_SUM, data, (size_t)count * sizeof *data, 0});
    }
    return STATUS_OK;
}

enum status comm_finish(struct comm *c, struct error *err) {
    REQUIRE(c != NULL);
    return c->watched.world > 1 ? await_all(c, err) : STATUS_OK;
}

enum status comm_sum(struct comm *c, float *data, int64_t count, struct error *err) {
    TRY(comm_begin_sum(c, data, count, err));
    return comm_finish(c, err);
}

enum status comm_agree(struct comm *c, enum status own, struct error *err) {
    REQUIRE(c != NULL && own <= STATUS_OK);
    const int32_t world = c->watched.world;
    if (world == 1) {
        return own;
    }
    struct error failure = {.status = own};
    if (err != NULL && own != STATUS_OK) {
        failure = *err;
        failure.status = own;
    }
    const uint32_t word = (uint32_t)own;
    TRY(comm_gather(c, c->statuses, &word, sizeof word, err));
    int32_t failed_count = 0, first = 0;
    for (int32_t r = world - 1; r >= 0; r--) {
        if (c->statuses[r] != (uint32_t)STATUS_OK) {
            failed_count++;
            first = r;
        }
    }
    if (failed_count == 0) {
        return STATUS_OK;
    }
    /* Bytes after the text's end may differ: they are not part of the message. */
    struct error theirs = failure;
    TRY(comm_broadcast(c, &theirs, sizeof theirs, first, err));
    theirs.text[sizeof theirs.text - 1] = '\0';
    uint32_t differ = theirs.status != own || strcmp(theirs.text, failure.text) != 0;
    TRY(comm_merge(c, &differ, 1, err));
    FAIL_IF(differ == 0, err, theirs.status, "%s", theirs.text);
    return error_set(err, theirs.status, "rank %d on %s: %s", first, c->peers[first].host,
                     theirs.text);
}

bool comm_is_broken(const struct comm *c) {
    return c->broken;
}

void comm_at(struct comm *c, uint64_t step, enum comm_phase phase) {
    atomic_store_explicit(&c->watched.step, step, memory_order_relaxed);
    atomic_store_explicit(&c->watched.phase, (int32_t)phase, memory_order_relaxed);
}

struct comm_counters comm_counters(const struct comm *c) {
    struct comm *guarded = (struct comm *)(uintptr_t)c; /* only its mutex changes */
    (void)pthread_mutex_lock(&guarded->mutex);
    const struct comm_counters counters = {
        .messages_count = c->messages_count, .sent_bytes = c->sent_bytes, .wait_ns = c->wait_ns};
    (void)pthread_mutex_unlock(&guarded->mutex);
    return counters;
}

int32_t comm_rank(const struct comm *c) {
    return c->watched.rank;
}

int32_t comm_world(const struct comm *c) {
    return c->watched.world;
}

int32_t comm_local_rank(const struct comm *c) {
    return c->local_rank;
}

int32_t comm_local_world(const struct comm *c) {
    return c->local_world;
}

/* ---- open and close ---- */

void comm_options_default(struct comm_options *opt) {
    *opt = (struct comm_options){.ranks = COMM_RANKS_AUTO, .timeout_ms = 60000};
}

/* The first line of a file of /proc; "" if it cannot be read. */
static void read_line(const char *path, char *line, size_t line_size) {
    FILE *f = fopen(path, "r");
    if (f == NULL || fgets(line, (int)line_size, f) == NULL) {
        line[0] = '\0';
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    line[strcspn(line, "\n")] = '\0';
}

void comm_this_process(struct comm_peer *p) {
    memset(p, 0, sizeof *p);
    if (gethostname(p->host, sizeof p->host - 1) != 0 || p->host[0] == '\0') {
        (void)snprintf(p->host, sizeof p->host, "localhost");
    }
    read_line("/proc/sys/kernel/random/boot_id", p->boot_id, sizeof p->boot_id);
    p->pid = getpid();
    (void)process_look(p->pid, &p->start_ticks);
}

void comm_find_local(int32_t *local_rank,
                     int32_t *local_world,
                     const struct comm_peer *peers,
                     int32_t world,
                     int32_t rank) {
    *local_rank = *local_world = 0;
    for (int32_t r = 0; r < world; r++) {
        if (strcmp(peers[r].host, peers[rank].host) == 0 &&
            strcmp(peers[r].boot_id, peers[rank].boot_id) == 0) {
            *local_rank += r < rank ? 1 : 0;
            ++*local_world;
        }
    }
}

/* Exchanges every rank's host and process; computes this rank's number among its host's. */
static enum status meet(struct comm *c, struct error *err) {
    struct comm_peer own;
    comm_this_process(&own);
    TRY(comm_gather(c, c->peers, &own, sizeof own, err));
    comm_find_local(&c->local_rank, &c->local_world, c->peers, c->watched.world, c->watched.rank);
    return STATUS_OK;
}

int64_t comm_timeout_ms(const struct comm *c) {
    return c->options.timeout_ms;
}

void comm_set_stop(struct comm *c, void (*stop)(void *cookie), void *cookie) {
    (void)pthread_mutex_lock(&c->mutex);
    c->stop = stop;
    c->stop_cookie = cookie;
    (void)pthread_mutex_unlock(&c->mutex);
}

static void abort_group(struct comm_watched *w, int exit_code) {
    struct comm *c = (struct comm *)((char *)w - offsetof(struct comm, watched));
    (void)pthread_mutex_lock(&c->mutex); /* the device is not closed before it has stopped */
    if (c->stop != NULL) {
        c->stop(c->stop_cookie);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    if (c->link != NULL) {
        c->link->abort_group(c->link, exit_code);
    }
}

/* The worker executes what is in the queue, then stops. */
static void stop_worker(struct comm *c) {
    if (!c->worker_runs) {
        return;
    }
    (void)pthread_mutex_lock(&c->mutex);
    c->stopping = true;
    (void)pthread_cond_signal(&c->submitted_one);
    (void)pthread_mutex_unlock(&c->mutex);
    (void)pthread_join(c->worker, NULL);
    c->worker_runs = false;
}

static void destroy(struct comm *c, bool complete) {
    if (c == NULL) {
        return;
    }
    /* These also wait for others. */
    atomic_store_explicit(&c->watched.wait_started_ns, clock_now_ns(), memory_order_relaxed);
    stop_worker(c);
    if (complete && c->watch != NULL) {
        watch_end(c->watch);
    } else {
        watch_close(c->watch);
        c->watch = NULL;
    }
    if (c->link != NULL && !c->link->close(c->link, complete) && c->watch != NULL) {
        watch_linger(c->watch);
    }
    watch_close(c->watch);
    (void)pthread_cond_destroy(&c->completed_one);
    (void)pthread_cond_destroy(&c->submitted_one);
    (void)pthread_mutex_destroy(&c->mutex);
    free(c->peers);
    free(c->workspace);
    free(c->statuses);
    free(c);
}

static enum status allocate(struct comm *c, struct error *err) {
    const size_t world = (size_t)c->watched.world;
    c->peers = calloc(world, sizeof *c->peers);
    c->statuses = calloc(world, sizeof *c->statuses);
    c->workspace = world > 1 ? malloc(c->link->piece_bytes) : NULL;
    FAIL_IF(c->peers == NULL || c->statuses == NULL || (world > 1 && c->workspace == NULL), err,
            STATUS_NOMEM, "out of memory for the tables of %d ranks", c->watched.world);
    c->watched.peers = c->peers;
    return STATUS_OK;
}

static enum status start_worker(struct comm *c, struct error *err) {
    FAIL_IF(pthread_create(&c->worker, NULL, work, c) != 0, err, STATUS_NOMEM,
            "cannot start the thread that carries messages");
    c->worker_runs = true;
    return STATUS_OK;
}

enum status comm_create(struct comm **out,
                        struct comm_link *link,
                        const struct comm_options *opt,
                        struct error *err) {
    *out = NULL;
    struct comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        if (link != NULL) {
            (void)link->close(link, false);
        }
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    c->options = *opt;
    c->link = link;
    c->watched.rank = link != NULL ? link->rank : 0;
    c->watched.world = link != NULL ? link->world : 1;
    c->watched.timeout_ms = opt->timeout_ms;
    c->watched.log = opt->log;
    c->watched.abort_group = abort_group;
    (void)pthread_mutex_init(&c->mutex, NULL);
    (void)pthread_cond_init(&c->submitted_one, NULL);
    (void)pthread_cond_init(&c->completed_one, NULL);

    enum status s;
    TRY_OR_FAIL(s, allocate(c, err));
    if (c->watched.world > 1) {
        c->deadline_ns = clock_now_ns() + opt->timeout_ms * 1000000;
        TRY_OR_FAIL(s, start_worker(c, err));
    }
    TRY_OR_FAIL(s, meet(c, err));
    c->deadline_ns = 0;
    if (c->watched.world > 1) {
        TRY_OR_FAIL(s, watch_open(&c->watch, &c->watched, NULL, err));
    }
    *out = c;
    return STATUS_OK;
fail:
    destroy(c, false);
    return s;
}

enum status comm_open_alone(struct comm **out, struct error *err) {
    REQUIRE(out != NULL);
    struct comm_options opt;
    comm_options_default(&opt);
    return comm_create(out, NULL, &opt, err);
}

enum status comm_end(struct comm *c, struct error *err) {
    atomic_store_explicit(&c->watched.phase, COMM_PHASE_END, memory_order_relaxed);
    TRY(c->ended ? STATUS_OK : comm_barrier(c, err));
    c->ended = true;
    return STATUS_OK;
}

void comm_close(struct comm *c) {
    if (c != NULL) {
        destroy(c, comm_end(c, NULL) == STATUS_OK);
    }
}

void comm_fail(struct comm *c, const struct error *why, int exit_code) {
    if (c->watched.world == 1) {
        comm_close(c);
        return;
    }
    (void)fflush(NULL);
    watch_fail(c->watch, why, exit_code);
    _exit(exit_code);
}

enum status comm_watch(struct comm *c, const char *run, struct error *err) {
    REQUIRE(c != NULL && run != NULL);
    if (c->watched.world == 1) {
        return STATUS_OK;
    }
    TRY(comm_agree(c, c->watched.rank == 0 ? watch_prepare(run, err) : STATUS_OK, err));
    TRY(comm_agree(c, watch_folder(c->watch, run, err), err));
    return comm_agree(c, watch_sees_all(c->watch, err), err);
}
