/*
 * Two counters with a limit each; see the header for the rule.
 */
#include "pack/run/budget_internal.h"

#include <malloc.h>
#include <string.h>

/* malloc's: a block of this size is a mapping of its own; free bytes at the end of an arena. */
enum { MAPPED_BYTES = 4 << 20, ARENA_FREE_BYTES = 8 << 20 };

void pack_budget_limit_malloc(void) {
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, ARENA_FREE_BYTES);
}

void pack_budget_init(struct pack_budget *b, uint32_t jobs) {
    memset(b, 0, sizeof(*b));
    b->rows_limit_bytes = PACK_ROWS_BYTES + (uint64_t)PACK_ROWS_JOB_BYTES * jobs;
    b->work_limit_bytes = PACK_WORK_BYTES + (uint64_t)PACK_WORK_JOB_BYTES * jobs;
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->rows_changed, NULL);
    pthread_cond_init(&b->work_changed, NULL);
}

void pack_budget_fini(struct pack_budget *b) {
    pthread_mutex_destroy(&b->mutex);
    pthread_cond_destroy(&b->rows_changed);
    pthread_cond_destroy(&b->work_changed);
}

/* ---- rows ---- */

/* Requires the mutex. */
static bool row_may_take(const struct pack_budget *b, uint64_t row, uint64_t bytes) {
    return b->stopped || row == b->first_row || b->rows_bytes + bytes <= b->rows_limit_bytes;
}

bool pack_budget_try_row(struct pack_budget *b, uint64_t row, uint64_t bytes) {
    pthread_mutex_lock(&b->mutex);
    bool may = row_may_take(b, row, bytes);
    b->rows_bytes += may ? bytes : 0;
    pthread_mutex_unlock(&b->mutex);
    return may;
}

void pack_budget_wait_row(struct pack_budget *b, uint64_t row, uint64_t bytes) {
    pthread_mutex_lock(&b->mutex);
    while (!row_may_take(b, row, bytes)) {
        pthread_cond_wait(&b->rows_changed, &b->mutex);
    }
    b->rows_bytes += bytes;
    pthread_mutex_unlock(&b->mutex);
}

void pack_budget_give_rows(struct pack_budget *b, uint64_t first_row, uint64_t bytes) {
    pthread_mutex_lock(&b->mutex);
    b->first_row = first_row;
    b->rows_bytes -= bytes;
    pthread_cond_broadcast(&b->rows_changed);
    pthread_mutex_unlock(&b->mutex);
}

void pack_budget_stop(struct pack_budget *b) {
    pthread_mutex_lock(&b->mutex);
    b->stopped = true;
    pthread_cond_broadcast(&b->rows_changed);
    pthread_mutex_unlock(&b->mutex);
}

/* ---- work ---- */

void pack_budget_take_work(struct pack_budget *b, uint64_t bytes) {
    pthread_mutex_lock(&b->mutex);
    uint64_t ticket = b->next_ticket++;
    while (ticket != b->admitted ||
           (b->work_bytes > 0 && b->work_bytes + bytes > b->work_limit_bytes)) {
        pthread_cond_wait(&b->work_changed, &b->mutex);
    }
    b->admitted++;
    b->work_bytes += bytes;
    pthread_cond_broadcast(&b->work_changed);
    pthread_mutex_unlock(&b->mutex);
}

void pack_budget_give_work(struct pack_budget *b, uint64_t bytes) {
    pthread_mutex_lock(&b->mutex);
    b->work_bytes -= bytes;
    pthread_cond_broadcast(&b->work_changed);
    pthread_mutex_unlock(&b->mutex);
}
