/*
 * index_tar_internal: one tar, which one thread indexes, what all threads share, and the files.
 */
#ifndef PACK_INDEX_INDEX_TAR_INTERNAL_H
#define PACK_INDEX_INDEX_TAR_INTERNAL_H

#include <stdatomic.h>

#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard_foreign.h"
#include "pack/index/index_tar.h"
#include "pack/run/rejects_internal.h"
#include "pack/run/worker_internal.h"

enum { INDEX_TAR_MAX_REJECTS_BYTES = 256 << 20 }; /* of one tar */

/* Counts for the line of progress; no other data depends on them, so relaxed. */
struct index_tar_counts {
    atomic_uint_fast64_t bytes, rows, samples, rejected;
};

/* The result for a tar. All zero: none yet. */
struct index_tar_result {
    struct shard_foreign *index;
    uint64_t file_bytes, file_hash;
    char etag[SHARD_MAX_ETAG_BYTES + 1]; /* of a remote tar; else "" */
    uint64_t rows;
    struct source_ignored ignored;
    char note[240]; /* source_note */
    uint64_t rejected_by[REASON_COUNT];
    struct byte_buffer rejects; /* lines of rejects.jsonl */
    enum status status;
    struct error error;
    bool done; /* guarded by the run's mutex */
};

void index_tar_result_fini(struct index_tar_result *r);

/* The state of one thread. */
struct index_tar_worker {
    const struct pack_options *opt;
    struct index_tar_counts *counts;
    bool (*stop)(void *cookie);
    void *stop_cookie;
    struct pack_worker *packer;
    struct pack_item item;
    struct byte_buffer members; /* of the row being read, as the tar has them, and what follows */
    struct json_writer line;
};

/* `opt` are those of index_tar_run, with container tar. Returns OK or NOMEM. */
enum status index_tar_worker_init(struct index_tar_worker *w,
                                  const struct pack_options *opt,
                                  struct pack_budget *budget,
                                  struct error *err);
void index_tar_worker_fini(struct index_tar_worker *w);

/* The file name in a path. */
const char *index_tar_name(const char *path);

/* Returns OK, or USAGE for a name that an index cannot have. */
enum status index_tar_check_name(const char *path, struct error *err);

/* Opens the tar and checks whether it can be indexed; adds names of classes that the manifest
 * lacks. Returns OK, USAGE (its name), CORRUPT (compressed, or no tar), or as source_open. */
enum status index_tar_look(struct manifest *classes,
                           const struct pack_options *opt,
                           const char *path,
                           struct error *err);

/* Indexes a tar: fills all of `out` but status, error and done. Ids are rows of this tar, or keys.
 * Returns OK or a failure that ends the run. */
enum status index_tar_one(struct index_tar_worker *w,
                          struct index_tar_result *out,
                          const char *path,
                          struct error *err);

/* A run. What stands after `stop` is of the threads. */
struct index_run {
    struct pack_options opt; /* the caller's, with container tar */
    struct pack_summary *summary;
    struct manifest manifest;
    struct pack_rejects rejects;
    struct file *lock;                    /* of the tars' folder; NULL: it cannot be locked */
    bool remote;                          /* the tars are at a server */
    struct file *journal;                 /* then index.journal */
    uint64_t journal_bytes;               /* of it, from an earlier process */
    size_t written;                       /* tars that may have a temporary index */
    char temporary[FILE_TEMPORARY_BYTES]; /* its ending; if remote not random: it is found again */
    uint64_t total_bytes;
    struct pack_budget budget;
    struct index_tar_counts counts;
    atomic_bool stop; /* no other data depends on it, so relaxed */

    pthread_mutex_t mutex;
    pthread_cond_t done, room;        /* what the caller and the threads wait for */
    struct index_tar_result *results; /* (source_count), each owned by its thread until done */
    size_t taken, committed;          /* guarded by mutex */
};

/* Adds a tar to the manifest and the summary. `shard` NULL: it has no sample. */
enum status index_account(struct index_run *r,
                          size_t tar,
                          const struct index_tar_result *result,
                          const struct shard_summary *shard,
                          struct error *err);

/* ---- the files ---- */

/* Checks tars and folder, and opens rejects.jsonl and the journal; takes what an interrupted run
 * did. Returns OK, with was_finished where nothing is left to do, or as index_tar_run. */
enum status index_prepare(struct index_run *r, struct error *err);
/* Writes the index of a tar to the disk under a temporary name. */
enum status
index_write(struct index_run *r, size_t tar, const struct byte_buffer *index, struct error *err);
/* Names the indexes and writes dataset.json. After a failure there is no dataset. */
enum status index_publish(struct index_run *r, struct error *err);
/* After a failure, `s`, only the list that the message names is kept; of remote tars also what
 * the journal has. */
void index_withdraw(struct index_run *r, enum status s);
/* Returns `s`, but CORRUPT for EXISTS: the same id twice. */
enum status index_explain(enum status s, const struct error *why, struct error *err);

/* ---- index.journal, of remote tars ---- */

/* Takes over what it has. Returns OK, also if it is missing; MISMATCH (other options), IO, LIMIT or
 * NOMEM. */
enum status index_journal_take(struct index_run *r, struct error *err);
/* Opens it after the lines that were taken; without any it begins a new one. */
enum status index_journal_open(struct index_run *r, struct error *err);
/* The line is on the disk when this returns OK. `shard` NULL: the tar has no sample. */
enum status index_journal_add(struct index_run *r,
                              const struct index_tar_result *result,
                              const struct shard_summary *shard,
                              struct error *err);
enum status index_journal_remove(struct index_run *r, struct error *err);

#endif
