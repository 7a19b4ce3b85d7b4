/*
 * index_tar: makes a dataset of WebDataset tars in place: an index next to each tar, and
 * dataset.json (container tar-foreign) and rejects.jsonl in their folder. The tars are only read.
 * For remote tars these files are in a local folder, and dataset.json records the location, ETag
 * and size of the tars.
 *
 *     jobs threads                                          the caller's thread, tars in order
 *     a whole tar each: rows, check, hash ----------------> NAME.cci.XXXXXXXX.tmp, rejects
 *                                                           at the end all are renamed
 *
 * Threading : index_tar_run starts its threads and has joined them when it returns. The callbacks
 *             are called on the caller's thread, `interrupted` on all.
 * Ownership : the options are borrowed for the call.
 * Memory    : that of pack_run, and the index of each tar in work and of up to 3 for each job that
 *             wait for an earlier one: about 150 bytes per sample plus its captions.
 */
#ifndef PACK_INDEX_INDEX_TAR_H
#define PACK_INDEX_INDEX_TAR_H

#include "pack/pack.h"

#define INDEX_JOURNAL_NAME "index.journal" /* of a pass over remote tars */

/* The folder of all tars. Returns OK; USAGE when they are not all in one; LIMIT; NOTFOUND or IO. */
enum status index_tar_folder(char *out,
                             size_t out_size_bytes,
                             const char *const *tars,
                             size_t tar_count,
                             struct error *err);

/* Indexes opt->sources, whose folder is opt->directory unless they are remote. Of the other options
 * it uses fs, caption_column, lines, split_names, ids, check, level, jobs, resume (remote tars
 * only), overwrite (replaces an earlier index), max_bad, created_by and the callbacks; progress
 * counts bytes read. Rows get the ids, captions and reasons that pack_run gives them, so the
 * fingerprint is that of packing the tars.
 *
 * Returns OK; EXISTS (an index or a dataset exists); CORRUPT (too many bad rows, listed in
 * rejects.jsonl; no usable row; a damaged or compressed tar; a repeated id; a tar that changes
 * while it is read); INTERRUPTED; USAGE, NOTFOUND, IO, LIMIT or NOMEM. After a failure no new index
 * remains; for remote tars the finished ones stay, and resume continues after them. `out` is filled
 * in any case. */
enum status
index_tar_run(const struct pack_options *opt, struct pack_summary *out, struct error *err);

#endif
