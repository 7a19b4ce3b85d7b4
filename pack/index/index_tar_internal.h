/*
 * index_tar_internal: one tar, which one thread indexes, and what all threads share.
 */
#ifndef PACK_INDEX_INDEX_TAR_INTERNAL_H
#define PACK_INDEX_INDEX_TAR_INTERNAL_H

#include <stdatomic.h>

#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard_foreign.h"
#include "pack/index/index_tar.h"
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
    char etag[SHARD_MAX_ETAG_BYTES + 1]; /* of a tar at a server; else "" */
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

/* ---- index.journal, of tars at a server ---- */

/* A tar that is done. */
struct index_journal_line {
    struct index_tar_result result; /* its counts */
    struct shard_summary shard;
    bool has_shard;         /* it has samples */
    uint64_t rejects_bytes; /* of rejects.jsonl up to it */
};

/* Reads the journal, and compares its head with the options: *at is the first line. Returns OK,
 * NOTFOUND, MISMATCH, IO, LIMIT or NOMEM. `text` is initialised by the call. */
enum status index_journal_read(struct byte_buffer *text,
                               size_t *at,
                               const struct pack_options *o,
                               struct error *err);
/* The line at *at, which moves to the next. False: there is no undamaged one. */
bool index_journal_next(const struct byte_buffer *text, size_t *at, struct index_journal_line *out);
/* Opens it after its first size_bytes; 0: begins a new one. */
enum status index_journal_open(struct file **out,
                               const struct pack_options *o,
                               uint64_t size_bytes,
                               struct error *err);
/* The line is on the disk when this returns OK. `shard` NULL: the tar has no sample. */
enum status index_journal_add(struct file *f,
                              const struct pack_options *o,
                              const struct index_tar_result *result,
                              const struct shard_summary *shard,
                              uint64_t rejects_bytes,
                              struct error *err);

#endif
