/*
 * dataset_reader: random access to complete samples (image, captions, metadata). Training
 * reads images alone, through dataset.h.
 *
 * Threading : one owner at a time; several readers may read one dataset at once.
 * Ownership : the dataset must outlive the reader. A view borrows from the reader until its next
 *             call.
 * Untrusted : every byte of the shards.
 */
#ifndef FORMATS_DATASET_DATASET_READER_H
#define FORMATS_DATASET_DATASET_READER_H

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"

struct dataset_reader; /* opaque */

/* Opens no file yet. Returns OK or NOMEM. */
enum status
dataset_reader_create(struct dataset_reader **out, const struct dataset *d, struct error *err);
void dataset_reader_destroy(struct dataset_reader *r); /* accepts NULL */

/* Reads and checks one sample, as shard_reader_get does. `sample` comes from the reader's dataset.
 * The last few shards stay open, because consecutive ids may lie in different ones. Returns OK, IO,
 * NOTFOUND, CORRUPT (also: a sidecar index that is not the shard's), VERSION, LIMIT or NOMEM. */
enum status dataset_reader_get(struct dataset_reader *r,
                               const struct dataset_sample *sample,
                               struct sample_view *out,
                               struct error *err);

#endif
