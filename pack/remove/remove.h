/*
 * remove: removes samples from a dataset, and reclaims their space in its shards.
 *
 *     ids --> remove --> dataset.json: a generation without them   shards are as they were
 *             compact --> shards without them, under new names, then dataset.json, then the old
 *                         shards are deleted
 *
 * Ids stay what they are and are never used again. dataset.json is replaced atomically, so a killed
 * process leaves the dataset before or after the step; compact deletes its left-over files.
 *
 * Threading : a function runs on the caller's thread, with the directory's lock.
 * Ownership : the caller's storage.
 */
#ifndef PACK_REMOVE_REMOVE_H
#define PACK_REMOVE_REMOVE_H

#include "formats/base/file_io.h"

struct pack_remove_options {
    const struct file_system *fs;
    const char *directory;
    const uint64_t *ids; /* of pack_remove_samples, in any order */
    size_t id_count;
    bool dry_run;                      /* nothing is written */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* NULL: never */
    void (*progress)(void *cookie, uint64_t shards, uint64_t total_shards); /* NULL: none */
    void *cookie;                                                           /* of both */
};

struct pack_remove_summary {
    uint64_t removed;     /* by this call; compact: removed from shards */
    uint64_t before;      /* of the given ids, removed by an earlier call */
    uint64_t image_bytes; /* of the removed samples */
    uint64_t samples;     /* that the dataset has now */
    uint64_t shards;      /* compact: rewritten or dropped */
    uint64_t deleted;     /* compact: files that were deleted */
    uint64_t fingerprint, old_fingerprint;
};

/* Removes samples from the dataset. Returns OK; NOTFOUND (an id that the dataset never had; nothing
 * is removed then); EXISTS (another process writes, or a run is unfinished); MISMATCH (a part of a
 * run); CORRUPT, LIMIT, IO or NOMEM. */
enum status pack_remove_samples(const struct pack_remove_options *opt,
                                struct pack_remove_summary *out,
                                struct error *err);

/* Rewrites every shard that has removed samples without them, and deletes left-over files of an
 * interrupted call and an outdated token cache. Ids, order and fingerprint stay. Returns OK;
 * UNSUPPORTED (tars indexed in place are never written); INTERRUPTED (the dataset is unchanged); or
 * as above. */
enum status pack_compact(const struct pack_remove_options *opt,
                         struct pack_remove_summary *out,
                         struct error *err);

#endif
