/*
 * index_tar: makes a dataset of WebDataset tars in place: an index next to each tar, and
 * dataset.json (container tar-foreign) and rejects.jsonl in their folder. The tars are only read.
 * Of tars at a server these files are in a folder of their own, and dataset.json says where the
 * tars are and, by ETag and size, which ones.
 *
 *     jobs threads                                          the caller's thread, tars in order
 *     a whole tar each: rows, check, hash ----------------> NAME.cci.XXXXXXXX.tmp, rejects
 *                                                           at the end all are renamed
 *
 * Threading : index_tar_run starts its threads and has joined them when it returns. The callbacks
 *             are called on the caller's thread, `interrupted` on all.
 * Ownership : the options are borrowed for the call.
 * Memory    : that of pack_run, and the index of each tar in work and of up to 3 for each job that
 *             wait for an earlier one: about 150 bytes a sample plus its captions.
 */
#ifndef PACK_INDEX_INDEX_TAR_H
#define PACK_INDEX_INDEX_TAR_H

#include "pack/pack.h"

#define INDEX_JOURNAL_NAME "index.journal" /* of a pass over tars at a server */

/* The folder of all tars. Returns OK; USAGE when they are not all in one; LIMIT; NOTFOUND or IO. */
enum status index_tar_folder(char *out,
                             size_t out_size_bytes,
                             const char *const *tars,
                             size_t tar_count,
                             struct error *err);

/* Indexes opt->sources, whose folder is opt->directory unless they are at a server. Of the other
 * options it uses fs, caption_column, lines, split_names, ids, check, level, jobs, resume (of tars
 * at a server), overwrite (replaces an earlier index), max_bad, created_by and the callbacks;
 * progress counts bytes read. Rows get the ids, captions and reasons that pack_run gives them, so
 * the fingerprint is that of packing the tars.
 *
 * Returns OK; EXISTS (there is an index or a dataset); CORRUPT (too many bad rows, then listed in
 * rejects.jsonl; no usable row; a damaged or compressed tar; a repeated id; a tar that changes
 * while it is read); INTERRUPTED; USAGE, NOTFOUND, IO, LIMIT or NOMEM. After a failure there is no
 * new index; of tars at a server those that are done stay, and resume continues after them. `out`
 * is filled in any case. */
enum status
index_tar_run(const struct pack_options *opt, struct pack_summary *out, struct error *err);

#endif
