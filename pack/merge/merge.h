/*
 * merge: the parts of a run (pack_part) to the dataset that a run over everything would have
 * made: the same ids, labels and fingerprint; the shards are the parts' own, numbered anew.
 *
 * Threading : one thread. The callbacks are called on it.
 * Ownership : the options are borrowed for the call. The parts stay as they are; where it can be,
 *             their shards get a second name instead of a copy.
 * Untrusted : the parts' manifests, sizes and indexes; a shard that is copied is checked against
 *             its hash.
 */
#ifndef PACK_MERGE_MERGE_H
#define PACK_MERGE_MERGE_H

#include "pack/pack.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pack_merge_progress {
    uint64_t shards, total_shards;
    uint64_t bytes; /* that had to be copied */
};

struct pack_merge_options {
    const struct file_system *fs; /* file_posix() */
    const char *directory;        /* made when it is not there; its parent must be */
    const char *const *parts;     /* directories, in any order */
    size_t part_count;
    bool overwrite;                    /* as in struct pack_options */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* asked for every shard and while copying; NULL: never */
    void (*progress)(void *cookie, const struct pack_merge_progress *p); /* NULL: none */
    void *cookie;                                                        /* of both */
};

void pack_merge_options_default(struct pack_merge_options *opt);

/* Merges. dataset.json is written last; a merge that ended before is gone on with by calling it
 * again with the same parts. Returns OK; EXISTS (the directory is not empty); MISMATCH (parts that
 * are not of one run, are missing, or come twice); CORRUPT (a part that is damaged or partial); or
 * INTERRUPTED, USAGE, NOTFOUND, VERSION, LIMIT, IO or NOMEM. `out` is filled on OK. */
enum status
pack_merge(const struct pack_merge_options *opt, struct pack_summary *out, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
