/*
 * heartbeat: a rank's status file, RUN/ranks/RANK.json, and whether a process of this host exists.
 *
 * The file is one line of JSON of at most HEARTBEAT_MAX_BYTES, with these fields in this order:
 *
 *   "heartbeat"  version of the file, 1
 *   "rank"       in [0, world)
 *   "world"      ranks of the group
 *   "host"       host name
 *   "pid"        process id there
 *   "start"      field 22 of its /proc/PID/stat
 *   "beat"       number of times it was written
 *   "step"       current step, 0-based
 *   "phase"      "open", "load", "forward", "loss", "backward", "optimizer", "save", "evaluate",
 *                "end"
 *   "wait_ms"    how long it has waited for others; 0: it does not wait
 *   "still_ms"   how long it neither waited nor computed, and no read or write returned
 *   "state"      "running", "failed", "lost-peer", "ended"
 *   "lost"       with "lost-peer": the rank; else -1
 *   "reason"     why it failed, or how a rank was lost
 *
 * Numbers are at most 2^63 - 1. Not used to resume. A file that violates this format is treated as
 * missing.
 *
 * Threading : functions on the caller's storage. One thread at a time writes the file of a rank.
 * Untrusted : the file's bytes.
 */
#ifndef TRAIN_COMM_HEARTBEAT_H
#define TRAIN_COMM_HEARTBEAT_H

#include <stdbool.h>

#include "formats/base/file_io.h"
#include "train/comm/comm.h"

enum { HEARTBEAT_REASON_BYTES = 768, HEARTBEAT_MAX_BYTES = 2048 };

enum heartbeat_state {
    HEARTBEAT_RUNNING,
    HEARTBEAT_FAILED,    /* by itself */
    HEARTBEAT_LOST_PEER, /* stops because another rank is lost */
    HEARTBEAT_ENDED      /* after success */
};

struct heartbeat {
    int32_t rank, world;
    char host[COMM_HOST_BYTES];
    int64_t pid;
    uint64_t start_ticks;
    uint64_t beat, step;
    enum comm_phase phase;
    int64_t wait_ms, still_ms;
    enum heartbeat_state state;
    int32_t lost;
    char reason[HEARTBEAT_REASON_BYTES];
};

/* "open", "load", ... */
const char *comm_phase_name(enum comm_phase phase);

/* Writes the line and returns its size. In host and reason, '?' replaces characters that are not
 * printable UTF-8. */
size_t heartbeat_format(char out[HEARTBEAT_MAX_BYTES], const struct heartbeat *h);

/* False if the text is not what heartbeat_format writes, followed by any number of blanks. */
bool heartbeat_parse(struct heartbeat *out, const void *text, size_t size_bytes);

/* `folder`/RANK.json. Returns OK or LIMIT. */
enum status
heartbeat_path(char out[PATH_MAX_BYTES], const char *folder, int32_t rank, struct error *err);

/* Replaces the file atomically: readers see the old or the new line. If that fails, as on a full
 * disk, the new line overwrites the old one. Allocates nothing. Returns OK or IO.
 */
enum status heartbeat_write(const char *path, const struct heartbeat *h, struct error *err);

/* False if there is no such file, or it cannot be read or parsed. Allocates nothing. */
bool heartbeat_read(struct heartbeat *out, const char *path);

enum process_state {
    PROCESS_GONE,
    PROCESS_RUNS,
    PROCESS_STOPPED,
    PROCESS_UNKNOWN /* /proc cannot be read */
};

/* The state of the process with this pid on this host, and its start time in clock ticks since
 * boot. A zombie is gone. *start_ticks is 0 unless it runs or is stopped. */
enum process_state process_look(int64_t pid, uint64_t *start_ticks);

#endif
