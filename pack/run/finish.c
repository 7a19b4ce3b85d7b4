/*
 * Makes shards durable while the committing thread fills the next one: an fsync of a gigabyte takes
 * seconds. One shard at a time and in order, so that every shard in the journal is on the disk, and
 * at most two shards' indexes are in memory.
 */
#include "pack/run/finish_internal.h"

#include <string.h>

/* The shard, the rejects before it, then the journal's line about both. */
static enum status finish(struct pack_finisher *f, struct error *err) {
    TRY(shard_writer_finish(f->writer, &f->shard, err));
    TRY(pack_rejects_sync(f->rejects, err));
    return pack_journal_add(f->journal, &f->shard, &f->point, err);
}

static void *finisher_main(void *cookie) {
    struct pack_finisher *f = cookie;
    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->busy && !f->stop) {
            pthread_cond_wait(&f->changed, &f->mutex);
        }
        if (!f->busy) {
            break;
        }
        pthread_mutex_unlock(&f->mutex);
        memset(&f->error, 0, sizeof(f->error));
        f->status = finish(f, &f->error);
        shard_writer_close(f->writer);
        f->writer = NULL;
        pthread_mutex_lock(&f->mutex);
        f->busy = false;
        f->has_result = true;
        atomic_store_explicit(&f->failed, f->status != STATUS_OK, memory_order_relaxed);
        pthread_cond_signal(&f->changed);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

enum status pack_finisher_start(struct pack_finisher *f,
                                struct pack_rejects *rejects,
                                struct pack_journal *journal,
                                struct error *err) {
    memset(f, 0, sizeof(*f));
    f->rejects = rejects;
    f->journal = journal;
    json_writer_init(&f->point, 0);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->started = pthread_create(&f->thread, NULL, finisher_main, f) == 0;
    return f->started ? STATUS_OK : error_set(err, STATUS_NOMEM, "cannot start a thread");
}

enum status
pack_finisher_take(struct pack_finisher *f, struct shard_summary *shard, struct error *err) {
    pthread_mutex_lock(&f->mutex);
    while (f->busy) {
        pthread_cond_wait(&f->changed, &f->mutex);
    }
    enum status s = f->has_result ? f->status : STATUS_END;
    if (s < STATUS_OK && err) {
        *err = f->error;
    }
    *shard = f->shard;
    f->has_result = false;
    atomic_store_explicit(&f->failed, false, memory_order_relaxed);
    pthread_mutex_unlock(&f->mutex);
    return s;
}

void pack_finisher_give(struct pack_finisher *f, struct shard_writer *writer) {
    pthread_mutex_lock(&f->mutex);
    f->writer = writer;
    f->busy = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

void pack_finisher_stop(struct pack_finisher *f) {
    if (!f->journal) {
        return;
    }
    if (f->started) {
        pthread_mutex_lock(&f->mutex);
        f->stop = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->mutex);
        pthread_join(f->thread, NULL);
    }
    json_writer_fini(&f->point);
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->changed);
    memset(f, 0, sizeof(*f));
}
