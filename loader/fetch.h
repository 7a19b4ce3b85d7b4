/*
 * fetch: the samples of given ids as a batch, while the loader delivers its own: through the same
 * files, decoder, augmentation and tokenizer.
 *
 * A row is a function of (options of the loader, fetch_options, epoch, sample id). With the
 * loader's own augment, views and captions it has the bytes that the loader delivers for this
 * sample in this epoch; with an evaluation augment, the pixels of a loader for evaluation. Of
 * several captions it has the one sampled for the epoch.
 *
 * Threading : a fetcher has one owner; distinct fetchers are independent, and may be used while
 *             other threads acquire and release batches, but not during loader_seek. The work is
 *             done on the calling thread.
 * Ownership : a fetcher borrows its loader and must be closed first. A batch is borrowed until the
 *             next fetch or close.
 * Untrusted : every byte of the dataset. Damaged samples are not replaced and not counted by the
 *             loader: the status of the row reports them.
 * Memory    : open allocates everything; a batch, and a buffer for the largest stored image.
 */
#ifndef LOADER_FETCH_H
#define LOADER_FETCH_H

#include <stdint.h>

#include "formats/base/status.h"
#include "loader/loader.h"

struct fetcher; /* opaque */

struct fetch_options {
    uint32_t max_count;        /* rows of a batch at most, [1, LOADER_MAX_BATCH] */
    enum augment_kind augment; /* as in loader_options */
    uint32_t views; /* of each image, [0, AUGMENT_MAX_VIEWS]; 0: captions alone, no image is read */
    enum loader_captions captions; /* LOADER_CAPTIONS_NONE also where the loader has none */
};

/* Returns OK, INVALID or NOMEM. */
enum status fetcher_open(struct fetcher **out,
                         struct loader *l,
                         const struct fetch_options *opt,
                         struct error *err);
void fetcher_close(struct fetcher *f); /* accepts NULL */

/* Row i of *out is sample ids[i], in [0, max_count] of them, in any order; an id may occur more
 * than once. Fields of *out about the order of an epoch are 0. views (count; NULL: all views of
 * `epoch`): row i is of epoch views[i] / 2, and views[i] % 2, below fetch_options.views, is the
 * view that out->images has.
 *
 * statuses (count) receives the status of each row: OK, NOTFOUND (no sample has this id, or it was
 * removed), or CORRUPT, UNSUPPORTED or LIMIT for one that cannot be used; the contents of a row
 * that is not OK are undefined. If statuses is NULL, the first such row fails the call, with a
 * message that names its sample. The loader's filter is not applied.
 *
 * Returns OK, INVALID, NOMEM, what `statuses` would hold, or IO, NOTFOUND or CORRUPT for a shard
 * that cannot be read, is missing, or was replaced since the loader was opened. */
enum status loader_fetch(struct fetcher *f,
                         struct loader_batch *out,
                         enum status *statuses,
                         const uint64_t *ids,
                         const uint64_t *views,
                         uint32_t count,
                         uint64_t epoch,
                         struct error *err);

#endif
