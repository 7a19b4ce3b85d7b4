/*
 * comm: one process ("rank") of the W that train together: collectives over host memory, and an
 * orderly end of all ranks when one is lost.
 *
 *   comm_open --> comm_watch (when RUN exists) --> collectives ... --> comm_close, or comm_fail
 *
 * Every rank makes the same calls in the same order. One rank is a group too: its collectives do
 * nothing. Larger groups use MPI or Gloo, from modules loaded at run time (libccstream_mpi.so,
 * libccstream_gloo.so), so that no program depends on them.
 *
 * Order of additions: comm_sum adds in a fixed binary tree over the ranks, ((0 + 1) + (2 + 3)) +
 * ..., in any order of arrival. a + b = b + a holds for floats, so results are bit-identical on all
 * ranks, and 2^k ranks equal one process that adds its 2^k parts in that tree. In other groups the
 * ranks beyond the largest power of two, P, are first added to rank - P.
 *
 * Lost ranks: no call returns an error for one. While a rank waits in a collective, or computes, a
 * thread watches the others (train/comm/watch.h). If one is gone, silent or stuck beyond the
 * timeout, the thread logs it (rank, host, pid, step, phase) and ends this process.
 *
 * Threading : one owner calls; a separate thread of the group transfers the messages.
 * Ownership : buffers are borrowed until the call returns; those of comm_begin_sum until
 *             comm_finish.
 */
#ifndef TRAIN_COMM_COMM_H
#define TRAIN_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/log.h"
#include "formats/base/status.h"

struct comm;

enum { COMM_MAX_WORLD = 4096, COMM_HOST_BYTES = 64 };

enum comm_ranks {
    COMM_RANKS_AUTO, /* as many as a launcher started */
    COMM_RANKS_OFF   /* one; refused if a launcher started several */
};

enum comm_transport {
    COMM_TRANSPORT_AUTO, /* the launcher's: MPI, or Gloo without one */
    COMM_TRANSPORT_MPI,  /* also for one rank */
    COMM_TRANSPORT_GLOO  /* needs a launcher that sets rank and world size */
};

struct comm_options {
    enum comm_ranks ranks;         /* default COMM_RANKS_AUTO */
    enum comm_transport transport; /* default COMM_TRANSPORT_AUTO */
    const char *run; /* a folder shared by all ranks, where Gloo's ranks meet; created if missing.
                        NULL: no Gloo */
    int64_t timeout_ms; /* longest silence of another rank and wait for it, > 0; default 60000. Ten
                           times as long to wait for a rank that saves or evaluates, while it
                           computes or its disk responds */
    const struct log_sink *log; /* receives the line about a lost rank; NULL: none */
    bool (*should_stop)(void);  /* true: comm_open gives up while ranks are missing; called by any
                                   thread; NULL: never */
};

void comm_options_default(struct comm_options *opt);

/* Rank and world size from a launcher's environment: OpenMPI's mpirun, PMI, torchrun or another one
 * that sets RANK, WORLD_SIZE and MASTER_ADDR, a Slurm step, or PMIx, which does not set the world
 * size: *world is then 0. Without a launcher rank 0 of 1; also if its variables are set but not the
 * evidence that it started this process (a PMIx server, a PMI descriptor or port, a parent task of
 * srun). *launcher: its name for messages; NULL: none. Call before MPI is loaded. */
void comm_launched(int32_t *rank, int32_t *world, const char **launcher);

/* Once per process with MPI. Returns OK, NOMEM, USAGE (COMM_RANKS_OFF under a launcher; Gloo
 * without one, or without `run`), UNSUPPORTED (no such module, or another build's), EXISTS (another
 * launch is joining in `run`), NOTFOUND, IO (of `run`; MPI or Gloo failed; or MPI has other ranks
 * than the launcher started), LIMIT or TIMEOUT (not all ranks called it). If others do not join
 * within the timeout, this process logs that, with their ranks if known, and exits with code 75. */
enum status comm_open(struct comm **out, const struct comm_options *opt, struct error *err);

/* A group of one, independent of launcher and MPI. Returns OK or NOMEM. */
enum status comm_open_alone(struct comm **out, struct error *err);

/* Before comm_close, after this rank's last work: waits until all others have finished theirs.
 * Returns OK, or IO if one was lost before: then call comm_fail. */
enum status comm_end(struct comm *c, struct error *err);

/* Accepts NULL. After success on all ranks: waits for them. */
void comm_close(struct comm *c);

/* Instead of comm_close on a rank that failed by itself: publishes `why`, gives the others a few
 * seconds to log it, and ends the whole group. With more than one rank it does not return: the
 * process exits with `exit_code`. With one rank: as comm_close. */
void comm_fail(struct comm *c, const struct error *why, int exit_code);

int32_t comm_rank(const struct comm *c);        /* [0, world) */
int32_t comm_world(const struct comm *c);       /* [1, COMM_MAX_WORLD] */
int32_t comm_local_rank(const struct comm *c);  /* among this host's, from 0 */
int32_t comm_local_world(const struct comm *c); /* ranks on this host */

/* ---- what this rank publishes ---- */

enum comm_phase {
    COMM_PHASE_OPEN,
    COMM_PHASE_LOAD,
    COMM_PHASE_FORWARD,
    COMM_PHASE_LOSS,
    COMM_PHASE_BACKWARD,
    COMM_PHASE_OPTIMIZER,
    COMM_PHASE_SAVE,
    COMM_PHASE_EVALUATE,
    COMM_PHASE_END, /* comm_close */
    COMM_PHASE_COUNT
};

/* Publishes this rank's step and phase; costs nanoseconds. */
void comm_at(struct comm *c, uint64_t step, enum comm_phase phase);

/* Starts to write a heartbeat to `run`/ranks/RANK.json once per second (format in
 * train/comm/heartbeat.h), and to watch the others'. `run` is a folder shared by all ranks.
 * Collective. Returns OK, LIMIT or IO. */
enum status comm_watch(struct comm *c, const char *run, struct error *err);

/* ---- collectives ----
 * Return OK, INVALID, NOMEM or IO (MPI or Gloo reports an error). */

/* Gathers own_bytes of every rank, in rank order, to all (world * own_bytes). `own` may be this
 * rank's part of `all`. */
enum status
comm_gather(struct comm *c, void *all, const void *own, size_t own_bytes, struct error *err);

/* Copies data of rank `root` to all ranks. */
enum status
comm_broadcast(struct comm *c, void *data, size_t size_bytes, int32_t root, struct error *err);

/* words (count) = the sum over ranks, modulo 2^32. If at most one rank has a word that is not 0,
 * the sum is that word: it carries data of any type. */
enum status comm_merge(struct comm *c, uint32_t *words, int64_t count, struct error *err);

enum status comm_barrier(struct comm *c, struct error *err);

/* Combines the ranks' statuses of a step that some may have failed in: OK if it is OK on all;
 * else on every rank the status and message of the first that failed, after "rank R on HOST: "
 * unless all failed with the same message. */
enum status comm_agree(struct comm *c, enum status own, struct error *err);

/* Whether the transport has reported an error, for example because a rank is gone: then a failure
 * is this rank's alone, even one that comm_agree returned. */
bool comm_is_broken(const struct comm *c);

/* data (count) = the sum over ranks, in the fixed tree. */
enum status comm_sum(struct comm *c, float *data, int64_t count, struct error *err);

/* The same, but returns at once: ranges are summed one after another in the order of these calls,
 * while the caller computes. comm_finish waits for all of them. */
enum status comm_begin_sum(struct comm *c, float *data, int64_t count, struct error *err);
enum status comm_finish(struct comm *c, struct error *err);

/* This rank's since comm_open: what it sent, and how long its owner waited for others. With W
 * ranks, P the largest power of two <= W, for one piece (16 MiB):
 *
 *                           messages                 bytes
 *   gather of n bytes each  1                        n (W - 1)
 *   broadcast of n bytes    1 of the root            n of the root
 *   merge of n words        1                        8 n (W - 1) / W
 *   sum of n floats         2 log2 P                 8 n (P - 1) / P    n divisible by P
 *     ranks below W - P     and 1                    and 4 n
 *     ranks from P on       1                        4 n
 *
 * The first three are MPI's or Gloo's, counted as one message with the bytes that a ring sends. */
struct comm_counters {
    uint64_t messages_count;
    uint64_t sent_bytes;
    int64_t wait_ns; /* inside collectives and comm_finish */
};
struct comm_counters comm_counters(const struct comm *c);

#endif
