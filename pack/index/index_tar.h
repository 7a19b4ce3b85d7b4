/*
 * index_tar: WebDataset tars to a dataset where they lie: beside each tar its index, and in their
 * folder dataset.json (container tar-foreign) and rejects.jsonl. The tars are only read.
 *
 *     jobs threads                                          the caller's thread, tars in order
 *     a whole tar each: rows, check, hash ----------------> NAME.cci.tmp, rejects
 *                                                           at the end all get their names
 *
 * Threading : index_tar_run starts its threads and has joined them when it returns. The callbacks
 *             are called on the caller's thread, `interrupted` on all.
 * Ownership : the options are borrowed for the call.
 * Memory    : the index of each tar in work, and of up to 3 for each job that wait for one before
 *             them: about 150 bytes a sample and its captions.
 */
#ifndef PACK_INDEX_INDEX_TAR_H
#define PACK_INDEX_INDEX_TAR_H

#include "pack/pack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The folder that all tars are in. Returns OK; USAGE when they are not all in one; LIMIT. */
enum status index_tar_folder(char *out,
                             size_t out_size_bytes,
                             const char *const *tars,
                             size_t tar_count,
                             struct error *err);

/* Indexes opt->sources, which are in opt->directory as index_tar_folder says. Of the other options
 * it looks at fs, caption_column, ids, check, level, jobs, overwrite (an earlier index is
 * replaced), max_bad, created_by and the callbacks; progress counts bytes that were read. Rows get
 * the ids, captions and reasons that pack_run gives them, so the fingerprint is that of packing the
 * tars.
 *
 * Returns OK; EXISTS (there is an index or a dataset); CORRUPT (too many bad rows, of which
 * rejects.jsonl then tells; no good one; a damaged or compressed tar; an id twice; a tar that
 * changes meanwhile); INTERRUPTED; USAGE, NOTFOUND, IO, LIMIT or NOMEM. After a failure no index
 * has its name. `out` is filled in any case. */
enum status
index_tar_run(const struct pack_options *opt, struct pack_summary *out, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
