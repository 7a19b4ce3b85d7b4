/*
 * meet: processes that only know their rank and world size find each other, in a shared folder.
 *
 *   RUN/ranks/join              rank 0: its process, the launch, and the name of a new folder
 *   RUN/ranks/meet-XXXXXXXX/R   rank R has read it; its process
 *   RUN/ranks/meet-XXXXXXXX/W   rank 0: all W are here, with their processes; or why they are not
 *
 * The folder's name is a random number, so that files of an earlier launch, which may have been
 * killed at any moment, do not affect a later one: a rank that reads an old join waits in the old
 * folder until there is a new join. Rank 0 removes all files when the ranks are connected.
 *
 * Threading : one thread.
 * Untrusted : nothing; everyone with write access to RUN can end a job (see README.md).
 */
#ifndef TRAIN_COMM_MEET_H
#define TRAIN_COMM_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file_io.h"

struct comm_peer; /* comm_internal.h */

struct meet {
    int32_t rank, world;
    uint64_t launch; /* equal on all ranks of a launch; differs between launches, if known */
    char join[PATH_MAX_BYTES];   /* the file */
    char folder[PATH_MAX_BYTES]; /* of this launch; "": none yet */
    bool one_host;               /* all ranks are on one host */
    int made_count;              /* of RUN and RUN/ranks: folders created */
    struct comm_peer *peers;     /* (world); pid 0: its process is not visible from here */
};

/* Waits for the others, until should_stop (NULL: never) returns true. Returns OK, TIMEOUT naming
 * the missing ranks or one that is gone, EXISTS (a running process has this rank already), NOTFOUND
 * or IO (of RUN), LIMIT, NOMEM. */
enum status meet_all(struct meet *m,
                     const char *run,
                     int32_t rank,
                     int32_t world,
                     uint64_t launch,
                     int64_t timeout_ms,
                     bool (*should_stop)(void),
                     struct error *err);

/* After meet_all, from any thread: finds a rank whose process is gone, or with `stopped` stopped;
 * out: "rank 2 (host h, pid 123) is gone: ...". */
bool meet_find_lost(const struct meet *m, bool stopped, char *out, size_t out_bytes);

/* When all are connected, or after a failure: rank 0 removes the files. */
void meet_end(struct meet *m);

#endif
