/*
 * budget: limits the memory of the images and captions of a run, whatever they are. It has two
 * shares:
 *
 *     share  limit            who takes bytes, and when            who gives them back, and when
 *     rows   4 MiB + 8 a job  a row: its image, captions and     the committing thread, once the
 *                             JSON, once it is read; an image in  row is in its shard or rejected
 *                             a file of its own before it is read
 *     work   112 MiB + 16     an image: what decoding and         the same worker, once it has
 *            a job            resizing it takes, before that       trimmed its buffers
 *
 * A request that would exceed the limit of its share waits, with two exceptions: the first row that
 * is not committed never waits for rows, and an image never waits when no other is in work.
 * Images are admitted in the order of their requests, so small ones do not overtake a large one
 * forever.
 *
 * Why it cannot deadlock: a thread that has work waits for nothing until it gives it back, so every
 * request for work is served. Rows are committed in order, and the next one to be committed never
 * waits for rows; so it is built and committed, and then the same holds for the one after it.
 *
 * Memory that is given back must leave the process, because another thread takes it next. So
 * pack_budget_limit_malloc sets thresholds of malloc, for the whole process: a block of 4 MiB or
 * more returns to the system when it is freed, and an arena keeps at most 8 MiB free at its end. By
 * default glibc raises these to 32 and 64 MiB, and each thread's arena keeps what its last large
 * image needed. Peak memory with 8 jobs, 96 images of 24 sizes from 1200 x 900 to 3040 x 2280,
 * resized to 1600: 255 to 269 MiB, without the thresholds 644 to 678 MiB (three runs each). The
 * decoding libraries allocate most of it, so mapping our own buffers would not do.
 *
 * Threading : internally synchronised.
 */
#ifndef PACK_RUN_BUDGET_INTERNAL_H
#define PACK_RUN_BUDGET_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PACK_ROWS_BYTES = 4 << 20,
    PACK_ROWS_JOB_BYTES = 8 << 20,
    PACK_WORK_BYTES = 112 << 20,
    PACK_WORK_JOB_BYTES = 16 << 20,
    PACK_IMAGE_MEMORY_BYTES = 128 << 20, /* of work, that one image may take */
};

struct pack_budget {
    pthread_mutex_t mutex;
    pthread_cond_t rows_changed, work_changed;
    uint64_t rows_limit_bytes, work_limit_bytes;
    /* guarded by mutex */
    uint64_t first_row; /* the first that is not committed */
    uint64_t rows_bytes, work_bytes;
    uint64_t next_ticket, admitted; /* of requests for work */
    bool stopped;
};

/* For the whole process, so only a program that packs and ends may call it. */
void pack_budget_limit_malloc(void);

void pack_budget_init(struct pack_budget *b, uint32_t jobs);
void pack_budget_fini(struct pack_budget *b);

/* Takes bytes for a row. False: it would have to wait, and nothing is taken. */
bool pack_budget_try_row(struct pack_budget *b, uint64_t row, uint64_t bytes);
/* The same, but waits if necessary; not after pack_budget_stop. */
void pack_budget_wait_row(struct pack_budget *b, uint64_t row, uint64_t bytes);

/* All rows before `first_row` are committed; those since the last call held so many bytes. */
void pack_budget_give_rows(struct pack_budget *b, uint64_t first_row, uint64_t bytes);

/* The run ends: all requests for rows are granted. */
void pack_budget_stop(struct pack_budget *b);

void pack_budget_take_work(struct pack_budget *b, uint64_t bytes);
void pack_budget_give_work(struct pack_budget *b, uint64_t bytes);

#endif
