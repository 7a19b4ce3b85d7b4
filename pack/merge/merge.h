/*
 * merge: the parts of a run (pack_part) become the dataset that one run over all rows would make,
 * with the same ids, labels and fingerprint. Its shards are those of the parts, renumbered.
 *
 * Threading : one thread. The callbacks are called on it.
 * Ownership : the options are borrowed for the call. The parts stay as they are; their shards are
 *             hard-linked where possible, else copied.
 * Untrusted : the parts' manifests, sizes and indexes; the hash of a copied shard is checked.
 */
#ifndef PACK_MERGE_MERGE_H
#define PACK_MERGE_MERGE_H

#include "pack/pack.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pack_merge_progress {
    uint64_t shards, total_shards;
    uint64_t bytes; /* copied so far */
};

struct pack_merge_options {
    const struct file_system *fs; /* file_posix() */
    const char *directory;        /* created if needed; its parent must exist */
    const char *const *parts;     /* directories, in any order */
    size_t part_count;
    bool overwrite;                    /* as in struct pack_options */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* polled for every shard and while copying; NULL: never */
    void (*progress)(void *cookie, const struct pack_merge_progress *p); /* NULL: none */
    void *cookie;                                                        /* of both */
};

void pack_merge_options_default(struct pack_merge_options *opt);

/* Merges. dataset.json is written last; the same call resumes a merge that ended before. Returns
 * OK; EXISTS (the directory is not empty); MISMATCH (the parts are not of one run, or one is
 * missing or repeated); CORRUPT (a part is damaged or partial); or INTERRUPTED, USAGE, NOTFOUND,
 * VERSION, LIMIT, IO or NOMEM. `out` is filled on OK. */
enum status
pack_merge(const struct pack_merge_options *opt, struct pack_summary *out, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
