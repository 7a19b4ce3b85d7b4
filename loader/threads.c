/*
 * threads: their start and their end. Shutdown: flag, wake all, wait until all have left, join, let
 * the engines cancel and reap what the kernel still has. A thread whose read or write never returns
 * is abandoned instead: it finds `abandoned` when it does return, and the last one out frees what
 * is left.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "formats/base/clock.h"
#include "loader/loader_internal.h"

enum { STOP_MIN_MS = 2000 };

/* The last thing a thread does. */
static void leave(struct loader_thread *t) {
    struct loader *l = t->loader;
    struct pipeline *p = &l->p;
    pthread_mutex_lock(&p->lock);
    p->running_count--;
    p->running_decoders_count -= t->work != NULL;
    bool frees = p->abandoned && p->running_count == 0;
    pthread_cond_signal(&p->for_exit);
    pthread_cond_signal(&p->for_record);
    pthread_mutex_unlock(&p->lock);
    if (frees) {
        loader_free(l);
    }
}

static void *thread_main(void *arg) {
    struct loader_thread *t = arg;
    if (t->reader != NULL) {
        reader_run(t->reader);
    } else if (t->work != NULL) {
        decode_run(&t->loader->p, t->work);
    } else {
        quarantine_run(&t->loader->p);
    }
    leave(t);
    return NULL;
}

static int64_t stop_wait_ms(const struct loader *l) {
    int64_t ms = l->p.opt.wait_timeout_ms;
    return ms > STOP_MIN_MS ? ms : STOP_MIN_MS;
}

void threads_release_batches(struct pipeline *p) {
    for (uint32_t i = 0; p->batch_slots != NULL && i < p->batch_slot_count; i++) {
        p->opt.host_memory.release(p->opt.host_memory.cookie, p->batch_slots[i].block);
        p->batch_slots[i].block = NULL;
    }
}

/* Requires the lock, and threads that do not return: once the lock is released they may free the
 * loader at any moment. The memory of the batches is released unless a decoder may still write to
 * it. */
static void abandon(struct loader *l) {
    struct pipeline *p = &l->p;
    log_write(p->opt.log, LOG_LEVEL_WARN,
              "%u threads hang in reads or writes that do not finish: they are abandoned",
              p->running_count);
    if (p->running_decoders_count == 0) {
        threads_release_batches(p);
    }
    for (uint32_t i = 0; i < l->thread_count; i++) {
        if (l->threads[i].started) {
            pthread_detach(l->threads[i].thread);
        }
    }
    p->abandoned = true;
}

bool threads_stop(struct loader *l, bool for_good) {
    struct pipeline *p = &l->p;
    if (l->threads == NULL || !l->has_sync) {
        return true;
    }
    int64_t end_ns = clock_now_ns() + stop_wait_ms(l) * 1000000;
    struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    pipeline_stop(p);
    pthread_mutex_lock(&p->lock);
    int waited = 0;
    while (p->running_count > 0 && waited == 0) {
        waited = pthread_cond_clockwait(&p->for_exit, &p->lock, CLOCK_MONOTONIC, &end);
    }
    bool all_left = p->running_count == 0;
    if (!all_left && for_good) {
        abandon(l);
    }
    pthread_mutex_unlock(&p->lock);
    if (!all_left) {
        return false;
    }
    for (uint32_t i = 0; i < l->thread_count; i++) {
        if (l->threads[i].started) {
            pthread_join(l->threads[i].thread, NULL);
            l->threads[i].started = false;
        }
    }
    for (uint32_t i = 0; i < p->reader_count; i++) {
        int64_t left_ms = (end_ns - clock_now_ns()) / 1000000;
        if (l->threads[i].reader != NULL &&
            !reader_stop(l->threads[i].reader, left_ms > 0 ? left_ms : 0)) {
            l->is_noisy = true;
        }
    }
    if (p->quarantine != NULL && p->quarantined_count < p->corrupt_listed_count) {
        log_write(p->opt.log, LOG_LEVEL_WARN,
                  "%u damaged samples are missing in the quarantine file: %s",
                  p->corrupt_listed_count - p->quarantined_count, p->failure.text);
    }
    if (p->files != NULL) {
        shard_files_release_all(p->files);
    }
    return true;
}

/* Discards all work in progress; the next batch to make and to acquire is number take_step.
 * Requires that no thread runs and no batch is held. */
static void reset_pipeline(struct pipeline *p) {
    p->stopping = false;
    p->failed = false;
    p->failure_reported = false;
    p->failure = (struct error){0};
    p->free_count = 0;
    for (uint32_t i = p->read_slot_count; i-- > 0;) {
        p->read_slots[i].state = READ_SLOT_FREE;
        p->free_slots[p->free_count++] = i;
    }
    p->ready_first = 0;
    p->ready_count = 0;
    for (uint32_t i = 0; i < p->batch_slot_count; i++) {
        p->batch_slots[i].state = BATCH_FREE;
    }
    p->claim_open = false;
    p->claim_step = p->take_step;
    p->held_count = 0;
    p->stats = (struct loader_stats){.corrupt_count = p->stats.corrupt_count};
    p->start_ns = clock_now_ns();
}

static enum status start_thread(struct loader *l, uint32_t i, struct error *err) {
    struct pipeline *p = &l->p;
    struct loader_thread *t = &l->threads[i];
    t->loader = l;
    if (t->reader != NULL) {
        TRY(reader_start(t->reader, err));
    }
    pthread_mutex_lock(&p->lock);
    p->running_count++;
    p->running_decoders_count += t->work != NULL;
    pthread_mutex_unlock(&p->lock);
    int e = pthread_create(&t->thread, NULL, thread_main, t);
    if (e == 0) {
        t->started = true;
        return STATUS_OK;
    }
    pthread_mutex_lock(&p->lock);
    p->running_count--;
    p->running_decoders_count -= t->work != NULL;
    pthread_mutex_unlock(&p->lock);
    return error_set(err, STATUS_NOMEM, "cannot start a thread: %s", strerror(e));
}

enum status threads_start(struct loader *l, struct error *err) {
    struct pipeline *p = &l->p;
    enum status s = STATUS_OK;
    reset_pipeline(p);
    /* Signals are delivered to the program's own threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a mapped index that was truncated: its handler names the file */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; i < l->thread_count && s == STATUS_OK; i++) {
        s = start_thread(l, i, err);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s < STATUS_OK) {
        pipeline_fail(p, s, err);
    }
    return s;
}
