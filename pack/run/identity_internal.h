/*
 * identity: whether two sources are the same one. dataset.json and the journal record of a source
 *
 *     bytes, sample_hash   size of its file, and a hash of that size and of samples of the file
 *     content              a hash over its rows (source_content)
 *
 * Rows that a resumed run skips are compared by `content`. Samples identify a file that is not read
 * again. Neither depends on the folder or the machine. What a record lacks is not compared: a
 * standard input has no samples, and earlier versions recorded nothing.
 *
 * Threading : functions of one caller each; files are only read.
 */
#ifndef PACK_RUN_IDENTITY_INTERNAL_H
#define PACK_RUN_IDENTITY_INTERNAL_H

#include "pack/run/plan_internal.h"

/* Sets size and sample hash; both to 0 if `path` is not a regular file. Returns OK, IO, NOTFOUND or
 * NOMEM. */
enum status pack_identity_sample(struct manifest_source *out, const char *path, struct error *err);

/* Reads all rows of source `index` of the run without their images: fills `out`, and adds its
 * classes to p->classes if `classes`. Returns OK, INTERRUPTED, or as the sources. */
enum status pack_identity_scan(struct manifest_source *out,
                               struct pack_plan *p,
                               size_t index,
                               bool classes,
                               struct error *err);

/* Whether source `index` of the run may be the one that was recorded: true without a record. Reads
 * all rows of a source that is no file. */
enum status pack_identity_matches(bool *out,
                                  struct pack_plan *p,
                                  size_t index,
                                  const struct manifest_source *was,
                                  struct error *err);

/* Refuse to append a source that the dataset has. Before it is read, a file is known by its
 * samples and a folder by its rows; after it, any source is known by its content. Returns OK or
 * MISMATCH, or as above. */
enum status pack_identity_check_new(struct pack_plan *p, struct error *err);
enum status pack_identity_check_read(const struct pack_plan *p, struct error *err);

/* Refuse to pack a source twice in a run: before it, one file or folder by two names; when source
 * `index` begins, a file of equal samples. Return OK, MISMATCH or NOMEM. */
enum status pack_identity_check_names(const struct pack_plan *p, struct error *err);
enum status pack_identity_check_file(const struct pack_plan *p, size_t index, struct error *err);

#endif
