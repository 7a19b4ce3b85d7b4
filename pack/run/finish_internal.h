/*
 * finish: makes full shards durable on a thread of its own, one after the other, while the next one
 * is filled: index, fsync, the journal's line.
 *
 * Threading : all functions are called by the committing thread.
 */
#ifndef PACK_RUN_FINISH_INTERNAL_H
#define PACK_RUN_FINISH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "pack/journal/journal_internal.h"
#include "pack/run/rejects_internal.h"

struct pack_finisher {
    struct pack_rejects *rejects;
    struct pack_journal *journal;
    pthread_t thread;
    bool started;
    atomic_bool failed; /* the last shard failed; no other data depends on it, so relaxed */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex; while `busy`, writer, point, shard, status and error are the thread's */
    bool busy, stop, has_result;
    struct shard_writer *writer;
    struct json_writer point;
    struct shard_summary shard;
    enum status status;
    struct error error;
};

enum status pack_finisher_start(struct pack_finisher *f,
                                struct pack_rejects *rejects,
                                struct pack_journal *journal,
                                struct error *err);

/* Waits for the shard that was given last. Returns OK and *shard; END when there is none, or its
 * result was taken before; or why it failed. */
enum status
pack_finisher_take(struct pack_finisher *f, struct shard_summary *shard, struct error *err);

/* Gives it a shard to own, whose point is in f->point. Requires that the result of the shard before
 * was taken. */
void pack_finisher_give(struct pack_finisher *f, struct shard_writer *writer);

void pack_finisher_stop(struct pack_finisher *f); /* accepts an all-zero one */

#endif
