/*
 * comm_internal: the parts of a comm for this folder and the tests: what carries its messages, and
 * what a watching thread reads.
 *
 *   owner --> comm.c --(queue)--> worker thread --> struct comm_link (comm_link.h)
 *                |                     '--> tree_sum.c
 *                '--> struct comm_watched <-- watching thread (watch.h)
 */
#ifndef TRAIN_COMM_COMM_INTERNAL_H
#define TRAIN_COMM_COMM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "train/comm/comm.h"
#include "train/comm/comm_link.h"

/* stop(cookie) is called, by any thread, before the group's processes are ended, to end waits for
 * other ranks outside of comm. NULL: none. */
void comm_set_stop(struct comm *c, void (*stop)(void *cookie), void *cookie);

int64_t comm_timeout_ms(const struct comm *c);

/* One process of the group. */
struct comm_peer {
    char host[COMM_HOST_BYTES]; /* host name */
    char boot_id[40];           /* of its kernel; "": unknown */
    int64_t pid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat, which differs if the pid was reused */
};

/* What a watching thread reads of its comm. The atomics are independent of each other (relaxed):
 * written by the owner (the wait also by the worker), read by the watching thread. */
struct comm_watched {
    int32_t rank, world;
    const struct comm_peer *peers; /* (world) */
    int64_t timeout_ms;
    const struct log_sink *log; /* NULL: silent */
    _Atomic uint64_t step;
    _Atomic int32_t phase;           /* enum comm_phase */
    _Atomic int64_t wait_started_ns; /* clock_now_ns() when the owner began to wait, or when the
                                        last message arrived since; 0: it does not wait */
    /* Ends all processes of the group, from any thread; may return before they ended. */
    void (*abort_group)(struct comm_watched *w, int exit_code);
};

/* Describes this process for the other ranks. */
void comm_this_process(struct comm_peer *p);

/* A comm over a link, which it owns from now on, even after a failure. Collective. Returns OK,
 * NOMEM, IO or TIMEOUT. */
enum status comm_create(struct comm **out,
                        struct comm_link *link,
                        const struct comm_options *opt,
                        struct error *err);

/* The number of `rank` among its host's ranks, and how many those are. A host is identified by name
 * and boot id, as names may repeat. */
void comm_find_local(int32_t *local_rank,
                     int32_t *local_world,
                     const struct comm_peer *peers,
                     int32_t world,
                     int32_t rank);

/* For tree_sum, on the worker thread: begin_exchange and its completion. */
enum status comm_exchange(struct comm *c,
                          int32_t peer,
                          void *received,
                          size_t received_bytes,
                          const void *sent,
                          size_t sent_bytes,
                          struct error *err);

/* data (count) = the sum over ranks in the fixed tree. workspace: count values. */
enum status
tree_sum(struct comm *c, float *data, float *workspace, int64_t count, struct error *err);

#endif
