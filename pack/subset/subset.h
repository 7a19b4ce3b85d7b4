/*
 * subset: copies selected samples of a dataset to a new dataset, with their ids. The source stays
 * unchanged.
 *
 *     ids --> plan: which shard each sample goes to --> shards --> dataset.json
 *
 * The new dataset has the sources, classes, options, tokenizer and id space of the old one, and its
 * generations, followed by one with the selected samples only: per-sample state of a run on the old
 * dataset stays valid, by id, and the ids of the other samples are never reused.
 *
 * Threading : one thread. The callbacks are called on it.
 * Ownership : the options are borrowed for the call.
 * Untrusted : the source; every sample is checked against its hashes when it is read.
 */
#ifndef PACK_SUBSET_SUBSET_H
#define PACK_SUBSET_SUBSET_H

#include "pack/pack.h"

struct pack_subset_progress {
    uint64_t samples, total_samples;
    uint64_t bytes; /* of images copied so far */
};

struct pack_subset_options {
    const struct file_system *fs;      /* file_posix() */
    const char *source;                /* a dataset's directory, or a location that can be read */
    const char *directory;             /* created if needed; its parent must exist */
    const uint64_t *ids;               /* ascending, each once, all in the source */
    uint64_t id_count;                 /* at least 1 */
    uint32_t shard_samples;            /* as in struct pack_options; default 10000 */
    uint64_t shard_size_bytes;         /* of a shard's images, unless one alone is larger; 1 GiB */
    bool overwrite;                    /* as in struct pack_options */
    const char *created_by;            /* for the manifest, "ccpack 0.1.0" */
    bool (*interrupted)(void *cookie); /* NULL: never */
    void (*progress)(void *cookie, const struct pack_subset_progress *p); /* NULL: none */
    void *cookie;                                                         /* of both */
};

void pack_subset_options_default(struct pack_subset_options *opt);

/* Copies. dataset.json is written last; the same call resumes an interrupted copy, and does nothing
 * after a complete one. Images keep their bytes; tars indexed in place become shards. Returns OK;
 * EXISTS (the directory is not empty); NOTFOUND (the source has no such id); CORRUPT (a damaged
 * sample, named); USAGE (both directories are the same); INTERRUPTED, VERSION, LIMIT, IO or NOMEM.
 * `out` is filled on OK; after a failure `has_journal` says that it can be resumed. */
enum status
pack_subset(const struct pack_subset_options *opt, struct pack_summary *out, struct error *err);

#endif
