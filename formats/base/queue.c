/*
 * A ring of pointers under one mutex, with a condition for each side.
 *
 *     pop <- [first] ... count items ... [first + count - 1] <- push
 *
 * Waits use the monotonic clock, so a changed wall clock neither shortens nor stretches them.
 */
#include "formats/base/queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct queue {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    size_t capacity_count;
    size_t first;
    size_t count;
    bool closed;
    void *slots[];
};

enum status queue_create(struct queue **out, size_t capacity_count, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    if (capacity_count < 1 || capacity_count > QUEUE_MAX_CAPACITY) {
        return error_set(err, STATUS_INVALID, "queue of %zu slots: must be between 1 and %d",
                         capacity_count, QUEUE_MAX_CAPACITY);
    }
    struct queue *q = calloc(1, sizeof *q + capacity_count * sizeof q->slots[0]);
    if (!q) {
        return error_set(err, STATUS_NOMEM, "out of memory for a queue of %zu slots",
                         capacity_count);
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, &attr);
    pthread_cond_init(&q->not_full, &attr);
    pthread_condattr_destroy(&attr);
    q->capacity_count = capacity_count;
    *out = q;
    return STATUS_OK;
}

void queue_destroy(struct queue *q) {
    if (!q) {
        return;
    }
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static struct timespec deadline_after_ms(int64_t timeout_ms) {
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(timeout_ms / 1000);
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* One wait on `cond`; false when the time is over. */
static bool wait_once(struct queue *q,
                      pthread_cond_t *cond,
                      int64_t timeout_ms,
                      const struct timespec *deadline) {
    if (timeout_ms == 0) {
        return false;
    }
    if (timeout_ms < 0) {
        pthread_cond_wait(cond, &q->lock);
        return true;
    }
    return pthread_cond_timedwait(cond, &q->lock, deadline) == 0;
}

enum status queue_push(struct queue *q, void *item, int64_t timeout_ms) {
    REQUIRE(q);
    struct timespec deadline = {0};
    if (timeout_ms > 0) {
        deadline = deadline_after_ms(timeout_ms);
    }
    enum status s = STATUS_OK;
    bool in_time = true;
    pthread_mutex_lock(&q->lock);
    while (in_time && !q->closed && q->count == q->capacity_count) {
        in_time = wait_once(q, &q->not_full, timeout_ms, &deadline);
    }
    if (q->closed) {
        s = STATUS_END;
    } else if (q->count == q->capacity_count) {
        s = STATUS_AGAIN;
    } else {
        q->slots[(q->first + q->count) % q->capacity_count] = item;
        q->count++;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return s;
}

enum status queue_pop(struct queue *q, void **item, int64_t timeout_ms) {
    REQUIRE(q && item);
    *item = NULL;
    struct timespec deadline = {0};
    if (timeout_ms > 0) {
        deadline = deadline_after_ms(timeout_ms);
    }
    enum status s = STATUS_OK;
    bool in_time = true;
    pthread_mutex_lock(&q->lock);
    while (in_time && !q->closed && q->count == 0) {
        in_time = wait_once(q, &q->not_empty, timeout_ms, &deadline);
    }
    if (q->count > 0) {
        *item = q->slots[q->first];
        q->first = (q->first + 1) % q->capacity_count;
        q->count--;
        pthread_cond_signal(&q->not_full);
    } else {
        s = q->closed ? STATUS_END : STATUS_AGAIN;
    }
    pthread_mutex_unlock(&q->lock);
    return s;
}

void queue_close(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

size_t queue_depth(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    size_t n = q->count;
    pthread_mutex_unlock(&q->lock);
    return n;
}
