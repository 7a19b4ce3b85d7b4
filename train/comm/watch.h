/*
 * watch: the threads of a rank that detect the loss of another rank, log it and end this
 * process. Their owner may compute, save or wait for messages meanwhile.
 *
 *   every look (200 ms)   the processes of this host: is the pid there, with its start time?
 *   every beat (1 s)      reads the files of the others; another thread writes RUN/ranks/RANK.json
 *
 * A rank is lost if it is
 *   gone     its process ended without having left the state "ended";
 *   failed   it left the state "failed" (comm_fail), with its error;
 *   silent   its file has not changed for the timeout, whatever its phase (a rank that saves still
 *            beats); or it has ended, and its process was stopped before it was gone;
 *   stuck    this rank waits in a collective, and no message arrives, for longer than the timeout.
 *
 * Of stuck ranks the one in the lowest step and phase is lost, first among those that do not wait.
 * A wait may be ten times as long while this rank or the other saves or evaluates, unless the other
 * has been still for the timeout: it computes nothing, and no read or write of it returns. Where
 * the disk of RUN does not answer this thread for the timeout, a thread without files ends the
 * process. Time in which this thread itself did not run (a suspended job, a frozen host) does not
 * count. Without a folder only "gone" and "stuck" are known.
 *
 * Then the thread logs one line, leaves it in its file with the state "lost-peer" (a rank that
 * reads it ends for the same reason), waits until all others have done so, for answer_ms at most,
 * ends the group with WATCH_EXIT_CODE, and its process at the latest fuse_ms after that.
 *
 * Threading : watch_x are called by the owner of the comm.
 * Ownership : struct comm_watched is borrowed until watch_close.
 * Untrusted : the files, see heartbeat.h.
 */
#ifndef TRAIN_COMM_WATCH_H
#define TRAIN_COMM_WATCH_H

#include "train/comm/comm.h"

struct comm_watched; /* comm_internal.h */
struct watch;

enum { WATCH_EXIT_CODE = 75 }; /* EX_TEMPFAIL: the run can be resumed */

/* What tests replace. */
struct watch_times {
    int64_t look_ms;              /* 200 */
    int64_t beat_ms;              /* 1000 */
    int64_t answer_ms;            /* 8000 */
    int64_t fuse_ms;              /* 10000 */
    void (*leave)(int exit_code); /* _exit */
};

void watch_times_default(struct watch_times *t);

/* Starts the thread. `times` NULL: the default. Returns OK or NOMEM. */
enum status watch_open(struct watch **out,
                       struct comm_watched *watched,
                       const struct watch_times *times,
                       struct error *err);

/* Makes `run`/ranks and removes the files of an earlier launch: on one rank, before watch_folder on
 * all. Returns OK, LIMIT or IO. */
enum status watch_prepare(const char *run, struct error *err);

/* Leaves the first heartbeat in `run`/ranks. Once. Returns OK, LIMIT or IO. */
enum status watch_folder(struct watch *w, const char *run, struct error *err);

/* After watch_folder on all ranks: OK once the files of all are there, or IO after answer_ms, with
 * the rank whose file is missing. */
enum status watch_sees_all(struct watch *w, struct error *err);

/* After success on all ranks, before the link is closed: leaves the state "ended". Until
 * watch_close the thread looks for ranks that did not get so far, and does not use abort_group any
 * more. Without a folder an end looks like a loss, so the thread ends. */
void watch_end(struct watch *w);

/* After watch_end, where another rank did not close the link: gives the thread a few seconds to
 * find the one that is lost. Returns when all have left the state "ended". */
void watch_linger(struct watch *w);

/* Accepts NULL. Ends the thread; if it ends the process, does not return. */
void watch_close(struct watch *w);

/* Leaves the state "failed" with the reason, unless a lost rank is the cause: then that is named.
 * Then ends group and process as above, with exit_code. Does not return. */
void watch_fail(struct watch *w, const struct error *why, int exit_code);

#endif
