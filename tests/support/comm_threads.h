/*
 * comm_threads: a group of ranks in one process, a thread each, for tests of what runs on many
 * ranks. Its messages go through shared memory.
 *
 *     static enum status body(struct comm *c, void *cookie, struct error *err) {
 *         float x = (float)comm_rank(c);
 *         TRY(comm_sum(c, &x, 1, err));
 *         RANK_CHECK(x == 6);
 *         return STATUS_OK;
 *     }
 *     assert_ok(comm_threads_run(4, body, NULL, &err), err);
 *
 * Threading : body runs on all threads at once: assertions of cmocka are not for it, see
 * RANK_CHECK.
 */
#ifndef TESTS_SUPPORT_COMM_THREADS_H
#define TESTS_SUPPORT_COMM_THREADS_H

#include "train/comm/comm.h"

/* The work of one rank. c is the run's own. */
typedef enum status comm_threads_body(struct comm *c, void *cookie, struct error *err);

/* Runs body on `world` ranks and waits for them. When one fails, the collectives of the others fail
 * too. Returns OK if it is OK on all; else the first failure, its text after "rank R: ". A
 * rank that calls another collective than the others, or with other sizes, is a failure. Divides
 * operations into pieces of 4 KiB. */
enum status
comm_threads_run(int32_t world, comm_threads_body *body, void *cookie, struct error *err);

/* The same with pieces of 16 MiB, as over MPI: for bodies that sum millions of numbers. */
enum status
comm_threads_run_large(int32_t world, comm_threads_body *body, void *cookie, struct error *err);

/* In a body: returns a failure that names the condition. */
#define RANK_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return error_set(err, STATUS_MISMATCH, "%s:%d: %s", __FILE__, __LINE__, #condition);   \
        }                                                                                          \
    } while (0)

#endif
