/*
 * writer: makes a dataset from samples in memory, one call for each, by the packer's rules: the
 * same samples with the same keys, ids and options give the bytes that ccpack gives.
 *
 *     open --> add ... add --> finish --> close
 *                   \---------------------^       without finish: what was written is removed
 *
 * add does the whole work of a sample, so that it can refuse it: decoding the image (nearly all
 * of the time), compressing the texts, and handing the bytes to the shard's file. Full shards are
 * made durable by a thread of the writer's own.
 *
 * Threading : add may be called by any number of threads at once. They decode at the same time and
 *             store one after the other, in the order in which they have decoded; one thread, or
 *             threads that take turns, give the same bytes each time. Everything else has one
 * owner. Ownership : options and samples are borrowed for the call, the file system for the
 * writer's life. Memory    : a decoder for each thread that adds at once, and 22 bytes a sample
 * each for keys that are given and for ids that do not ascend.
 */
#ifndef PACK_WRITER_WRITER_H
#define PACK_WRITER_WRITER_H

#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "pack/pack.h"

/* The source that dataset.json names for samples of a writer. */
#define PACK_WRITER_SOURCE "writer"

#define PACK_WRITER_NEXT_ID UINT64_MAX

struct pack_writer; /* opaque */

/* Makes the directory where needed, and locks it until close. Of the options it uses fs, container,
 * level, shard_samples, shard_size_bytes, check, overwrite, append and created_by; the others must
 * be the defaults, with no source. Of a dataset that append adds to, new ids follow those that it
 * has. Returns OK; EXISTS (it is not empty,
 * or another process writes to it); NOTFOUND or MISMATCH (append: there is no dataset, or one that
 * is incomplete, resized or in another container); IO, LIMIT, CORRUPT or NOMEM. */
enum status pack_writer_open(struct pack_writer **out,
                             const char *directory,
                             const struct pack_options *opt,
                             struct error *err);

struct pack_writer_sample {
    uint64_t id;       /* PACK_WRITER_NEXT_ID: one more than the largest so far */
    const char *key;   /* shard_key_is_valid; NULL: the id's digits. All samples have one or none */
    const void *image; /* JPEG, PNG, WebP or GIF */
    size_t image_bytes;
    const struct shard_text *captions; /* stored without white space around; empty ones are not */
    size_t caption_count;
    int32_t label;          /* SHARD_NO_LABEL, or at least 0 */
    struct shard_text json; /* an object; size 0: none */
};

/* Returns OK and *id. A refused sample leaves the writer as it was: INVALID (key, a label beyond
 * the classes where there are any, or keys for some samples only), CORRUPT (image, text or JSON),
 * UNSUPPORTED (kind of image), EXISTS (id or key), LIMIT, NOMEM. A failure to store it, IO or
 * NOMEM, ends the writer: later calls repeat it. */
enum status pack_writer_add(struct pack_writer *w,
                            uint64_t *id,
                            const struct pack_writer_sample *sample,
                            struct error *err);

/* Names of the labels from 0 on; with append first those of the dataset. Once. Returns OK, INVALID
 * (a name comes twice, or is not the dataset's, or a sample has a label beyond them), LIMIT or
 * NOMEM. */
enum status pack_writer_set_classes(struct pack_writer *w,
                                    const char *const *names,
                                    size_t count,
                                    struct error *err);

/* Publishes the dataset. Returns OK; INVALID (no sample), after which more may be added; IO, LIMIT
 * or NOMEM, which end the writer. */
enum status pack_writer_finish(struct pack_writer *w, struct error *err);

/* The dataset after finish; lives until close. */
const struct manifest *pack_writer_manifest(const struct pack_writer *w);

/* Accepts NULL. Without finish before it, removes the files that this writer wrote. */
void pack_writer_close(struct pack_writer *w);

#endif
