/*
 * writer: writes a dataset from samples in memory, one call per sample, by the packer's rules: the
 * same samples with the same keys, ids and options give the same bytes as ccpack.
 *
 *     open --> add ... add --> finish --> close
 *                   \---------------------^       without finish: written files are removed
 *
 * add does all the work for a sample, so that it can refuse it: decoding the image (nearly all of
 * the time), compressing the texts, and writing to the shard. A separate thread syncs full shards.
 *
 * Threading : any number of threads may call add at once. They decode in parallel and store in the
 *             order in which they finish; only a single thread, or threads that take turns, give
 *             the same bytes each time. All other functions have one owner.
 * Ownership : options and samples are borrowed for the call, the file system for the writer's life.
 * Memory    : a decoder per thread that adds at once, and 22 bytes per sample each for given keys
 *             and for ids that do not ascend.
 */
#ifndef PACK_WRITER_WRITER_H
#define PACK_WRITER_WRITER_H

#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "pack/pack.h"

/* The source recorded in dataset.json for samples of a writer. */
#define PACK_WRITER_SOURCE "writer"

#define PACK_WRITER_NEXT_ID UINT64_MAX

struct pack_writer; /* opaque */

/* Creates the directory if it is missing, and locks it until close. Of the options it uses fs,
 * container, level, shard_samples, shard_size_bytes, check, overwrite, append and created_by; the
 * others must be the defaults, with no source. With append, new ids must be above the dataset's.
 * Returns OK; EXISTS (it is not empty, or another process is writing to it); with append NOTFOUND
 * (no dataset) or MISMATCH (an incomplete dataset, or one with resized images or another
 * container); IO, LIMIT, CORRUPT or NOMEM. */
enum status pack_writer_open(struct pack_writer **out,
                             const char *directory,
                             const struct pack_options *opt,
                             struct error *err);

struct pack_writer_sample {
    uint64_t id;       /* PACK_WRITER_NEXT_ID: one more than the largest so far */
    const char *key;   /* shard_key_is_valid; NULL: the id's digits. All samples have one or none */
    const void *image; /* JPEG, PNG, WebP or GIF */
    size_t image_bytes;
    const struct shard_text
        *captions; /* stored without outer white space; empty ones are dropped */
    size_t caption_count;
    int32_t label;          /* SHARD_NO_LABEL, or at least 0 */
    struct shard_text json; /* an object; size 0: none */
};

/* Returns OK and *id. A refused sample leaves the writer unchanged: INVALID (key, a label beyond
 * named classes, or keys for some samples only), CORRUPT (image, text or JSON), UNSUPPORTED (kind
 * of image), EXISTS (id or key), LIMIT, NOMEM. If storing it fails, with IO or NOMEM, the writer is
 * unusable and later calls return the same failure. */
enum status pack_writer_add(struct pack_writer *w,
                            uint64_t *id,
                            const struct pack_writer_sample *sample,
                            struct error *err);

/* Names the classes of labels 0 to count - 1; with append the names begin with the dataset's. At
 * most one call. Returns OK, INVALID (a repeated name, one that differs from the dataset's, or a
 * sample with a label beyond them), LIMIT or NOMEM. */
enum status pack_writer_set_classes(struct pack_writer *w,
                                    const char *const *names,
                                    size_t count,
                                    struct error *err);

/* Publishes the dataset. Returns OK; INVALID (no sample; samples may still be added); IO, LIMIT or
 * NOMEM, after which the writer is unusable. */
enum status pack_writer_finish(struct pack_writer *w, struct error *err);

/* The dataset after finish; lives until close. */
const struct manifest *pack_writer_manifest(const struct pack_writer *w);

/* Accepts NULL. Without finish before it, removes the files that this writer wrote. */
void pack_writer_close(struct pack_writer *w);

#endif
