/*
 * merge: joins the parts of a run (pack_part) to the dataset that one run over all rows would make,
 * with the same ids, labels and fingerprint. Its shards are the parts' shards, renumbered.
 *
 * Threading : one thread. The callbacks are called on it.
 * Ownership : the options are borrowed for the call. The parts stay unchanged; their shards are
 *             hard-linked if possible, else copied.
 * Untrusted : the parts' manifests, sizes and indexes; the hash of a copied shard is checked.
 */
#ifndef PACK_MERGE_MERGE_H
#define PACK_MERGE_MERGE_H

#include "pack/pack.h"

struct pack_merge_progress {
    uint64_t shards, total_shards;
    uint64_t bytes; /* copied so far */
};

enum pack_merge_fault {
    PACK_MERGE_NO_PART,    /* a directory holds no part */
    PACK_MERGE_MISSING,    /* no directory has these numbers */
    PACK_MERGE_UNFINISHED, /* its run ended early or has not ended yet */
    PACK_MERGE_REPEATED,   /* two directories have this number */
    PACK_MERGE_FOREIGN,    /* of other options or sources than the first part */
};

/* Why parts cannot be merged. */
struct pack_merge_problem {
    enum pack_merge_fault fault;
    uint32_t first, last;  /* numbers of parts; differ only for MISSING; 0 with NO_PART */
    uint32_t count;        /* of parts; 0 with NO_PART */
    const char *directory; /* NULL with MISSING */
    const char *text;      /* one line, which names the directory */
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
    /* Called for everything that is wrong with the parts, by fault and then by number; pack_merge
     * then returns MISMATCH and has changed nothing. NULL: none. */
    void (*problem)(void *cookie, const struct pack_merge_problem *p);
    void *cookie; /* of all three */
};

void pack_merge_options_default(struct pack_merge_options *opt);

/* Merges. dataset.json is written last; the same call resumes an interrupted merge, and does
 * nothing after a complete one. Returns OK; EXISTS (the directory is not empty); MISMATCH (parts
 * are missing or belong to different runs); CORRUPT (a part is damaged); or INTERRUPTED, USAGE,
 * VERSION, LIMIT, IO or NOMEM. `out` is filled on OK; after a failure `has_journal` says that the
 * merge can be resumed. */
enum status
pack_merge(const struct pack_merge_options *opt, struct pack_summary *out, struct error *err);

#endif
