/*
 * watch: the threads of a rank that detect the loss of another rank, log it and end this
 * process. Their owner may compute, save or wait for messages meanwhile.
 *
 *   every look (200 ms)   the processes of this host: is the pid there, with its start time?
 *   every beat (1 s)      reads the files of the others; another thread writes RUN/ranks/RANK.json
 *
 * A rank is lost if it is
 *   gone     its process ended without the state "ended" in its file;
 *   failed   its file has the state "failed" (comm_fail), with its error;
 *   silent   its file has not changed for the timeout, in any phase (a rank that saves still
 *            beats); or it has ended, and its process was stopped before it was gone;
 *   stuck    this rank waits in a collective, and no message arrives, for longer than the timeout.
 *
 * Of several stuck ranks the one in the lowest step and phase is declared lost, preferably one that
 * does not wait. A wait may be ten times as long while this rank or the other saves or evaluates,
 * unless the other has been still for the timeout: it computes nothing, and none of its reads or
 * writes returns. If the disk of RUN does not respond to this thread for the timeout, a thread that
 * uses no files ends the process. Time in which this thread itself did not run (a suspended job, a
 * frozen host) does not count. Without a folder only "gone" and "stuck" are detected.
 *
 * Then the thread logs one line, writes it to its file with the state "lost-peer" (a rank that
 * reads it stops for the same reason), waits up to answer_ms until all others have done so, ends
 * the group with WATCH_EXIT_CODE, and its process at the latest fuse_ms after that.
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

/* Times and exit function, which tests replace. */
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

/* Creates `run`/ranks and removes an earlier launch's files: on one rank, before watch_folder on
 * all. Returns OK, LIMIT or IO. */
enum status watch_prepare(const char *run, struct error *err);

/* Writes the first heartbeat to `run`/ranks. Once. Returns OK, LIMIT or IO. */
enum status watch_folder(struct watch *w, const char *run, struct error *err);

/* After watch_folder on all ranks: returns OK once all files exist, or IO after answer_ms, naming
 * the rank whose file is missing. */
enum status watch_sees_all(struct watch *w, struct error *err);

/* After success on all ranks, before the link is closed: writes the state "ended". Until
 * watch_close the thread watches for ranks that did not get so far, without abort_group. Without a
 * folder an end looks like a loss, so the thread stops. */
void watch_end(struct watch *w);

/* After watch_end, if another rank did not close the link: gives the thread a few seconds to find
 * the lost one. Returns when all files have the state "ended". */
void watch_linger(struct watch *w);

/* Accepts NULL. Stops the thread; does not return if the thread is ending the process. */
void watch_close(struct watch *w);

/* Writes the state "failed" with the reason, or with the lost rank if that is the cause. Then ends
 * group and process as above, with exit_code. Does not return. */
void watch_fail(struct watch *w, const struct error *why, int exit_code);

#endif
