/*
 * commit: the ordered end of a run: frames to shards, rejected rows to rejects.jsonl, a line of the
 * journal for each shard, dataset.json last.
 *
 * Threading : one owner, the committing thread.
 * Ownership : borrows the plan and the summary, which it fills.
 */
#ifndef PACK_RUN_COMMIT_INTERNAL_H
#define PACK_RUN_COMMIT_INTERNAL_H

#include "pack/run/finish_internal.h"
#include "pack/run/keys_internal.h"

struct pack_commit {
    struct pack_plan *plan;
    const struct pack_options *opt;
    const struct file_system *fs;
    struct pack_summary *summary;
    struct pack_point point;     /* after the last row that was added */
    struct shard_writer *writer; /* NULL between shards */
    struct shard_frame_builder *builder;
    struct hash_map *images; /* hash of an image to its id; NULL: without dedup */
    struct hash_map *ids;    /* id to source and row; NULL: none can come twice */
    struct pack_keys keys;
    bool begun;    /* the directory has been changed */
    bool prepared; /* what is replaced is gone: from now on this run writes files */
    struct pack_rejects rejects;
    struct pack_journal journal;
    struct pack_finisher finisher;
    uint64_t pending_bytes;    /* of the shard that the finisher has */
    uint64_t handed_row;       /* the first row after it */
    uint64_t resumed_bytes;    /* of the shards of earlier processes */
    uint64_t finished_bytes;   /* of the shards that are finished */
    uint64_t finished_samples; /* likewise */
    double done;               /* share of the run up to the next row; negative: unknown */
};

/* Prepares for the rows. A resumed run brings its directory to where it begins, and opens the files
 * that are written. Another one does so when its first row has become a sample: until then it
 * replaces nothing, and it leaves nothing if there is none. */
enum status pack_commit_open(struct pack_commit *c,
                             struct pack_plan *plan,
                             struct pack_summary *summary,
                             struct error *err);

/* Adds the next row in order. Returns OK; CORRUPT when there are too many bad rows or an id comes
 * twice; LIMIT, IO or NOMEM. */
enum status pack_commit_add(struct pack_commit *c, struct pack_item *item, struct error *err);

/* Adds a sample that is no row of a source: its key is new in the shard, its id in the dataset.
 * Returns as pack_commit_add, and leaves sources and rejects alone. */
enum status
pack_commit_add_sample(struct pack_commit *c, struct pack_item *item, struct error *err);

/* Finishes the shard and writes dataset.json. `partial`: not all rows were read; dataset.json
 * records it and the journal stays. */
enum status pack_commit_finish(struct pack_commit *c, bool partial, struct error *err);

/* Closes, and removes what nothing can continue from: the shard that was begun, and the journal and
 * the list where no shard was finished. */
void pack_commit_close(struct pack_commit *c);

#endif
