/*
 * dataset: a directory of shards as one list of samples in id order. Per sample it has the file,
 * offset, size and hash of the image, so that one read suffices, and the captions.
 *
 * Removed samples are not listed. Positions run from 0 to samples - 1 in id order and text ids from
 * 0 to texts - 1 in the same order; a sample id never changes; positions and text ids change when
 * the dataset grows.
 *
 * Threading : immutable after open; any number of threads may read it. A caption_reader has one
 *             owner.
 * Ownership : the dataset owns its mapped indexes until dataset_close, and must outlive its caption
 *             readers.
 * Untrusted : everything. The manifest is checked at open, an index record when it is used, so
 *             opening reads no records unless the ids of shards overlap.
 */
#ifndef FORMATS_DATASET_DATASET_H
#define FORMATS_DATASET_DATASET_H

#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"

struct dataset;        /* opaque */
struct token_cache;    /* formats/tokenizer/token_cache.h */
struct caption_reader; /* opaque */

/* Maps the sidecar index of every shard, or the index inside the shard if there is no sidecar or
 * not the one that the manifest records. All shards must exist with the recorded size. `fs` NULL:
 * file_system_of(directory). Returns OK, NOTFOUND, IO, CORRUPT, EXISTS (an id in two shards),
 * VERSION, LIMIT or NOMEM. */
enum status dataset_open(struct dataset **out,
                         const char *directory,
                         const struct file_system *fs,
                         struct error *err);
void dataset_close(struct dataset *d); /* accepts NULL */

uint64_t dataset_sample_count(const struct dataset *d);
uint64_t dataset_text_count(const struct dataset *d);
uint64_t dataset_id_space(const struct dataset *d);
uint64_t dataset_fingerprint(const struct dataset *d); /* as recorded in the manifest */
uint32_t dataset_shard_count(const struct dataset *d);
uint32_t dataset_max_image_span_bytes(const struct dataset *d);
const struct manifest *dataset_manifest(const struct dataset *d);

/* Requires shard < dataset_shard_count(d); NULL otherwise. */
const char *dataset_shard_path(const struct dataset *d, uint32_t shard);

/* DIRECTORY/tokens.cct, borrowed until close. NULL if it cannot be used; then *why, if not NULL,
 * has the reason, NOTFOUND if there is none. A damaged cache does not prevent opening the dataset.
 * token_cache_fits checks whether the ids are those of the tokenizer in use. */
const struct token_cache *dataset_token_cache(const struct dataset *d, struct error *why);

struct dataset_sample {
    uint64_t sample_id;
    uint64_t position;
    uint64_t image_offset; /* in the shard file */
    uint64_t image_hash;   /* XXH64 of the image */
    uint64_t caption_hash;
    uint64_t first_text_id;
    uint32_t text_count;
    uint32_t shard;
    uint32_t index_in_shard;
    uint32_t image_bytes;
    uint32_t image_span_bytes;    /* to read at image_offset; then shard_image_compact */
    uint32_t width_px, height_px; /* upright; 0: unknown */
    enum image_format format;
    uint32_t flags; /* SHARD_FLAG_... */
    int32_t label;  /* SHARD_NO_LABEL */
};

/* Requires position < dataset_sample_count(d). No allocation, no file access except page faults.
 * Returns OK, or CORRUPT when the record is damaged. */
enum status dataset_sample_at(const struct dataset *d,
                              uint64_t position,
                              struct dataset_sample *out,
                              struct error *err);

/* The sample with this id. Returns OK, NOTFOUND or CORRUPT. */
enum status dataset_find(const struct dataset *d,
                         uint64_t sample_id,
                         struct dataset_sample *out,
                         struct error *err);

/* XXH64 over (id, image hash, caption hash) of all samples in id order: it identifies the content,
 * independent of paths and shard boundaries. Reads every record. Returns OK, CORRUPT or NOMEM. */
enum status dataset_compute_fingerprint(const struct dataset *d, uint64_t *out, struct error *err);

/* For the packer, before the manifest is written: the fingerprint over the shards listed in `m`.
 * Also detects ids that occur in two shards (EXISTS). Returns OK or what dataset_open returns. */
enum status dataset_fingerprint_of(uint64_t *out,
                                   const struct manifest *m,
                                   const char *directory,
                                   const struct file_system *fs,
                                   struct error *err);

/* Reads captions of any sample, a few microseconds each: keeps the last decompressed chunk. */
enum status
caption_reader_create(struct caption_reader **out, const struct dataset *d, struct error *err);
void caption_reader_destroy(struct caption_reader *r); /* accepts NULL */

/* The k-th caption of a sample; *out is borrowed until the next call. Requires k <
 * sample->text_count. Allocates nothing. Returns OK or CORRUPT. */
enum status caption_reader_get(struct caption_reader *r,
                               const struct dataset_sample *sample,
                               uint32_t k,
                               struct shard_text *out,
                               struct error *err);

/* The samples of the generation with this fingerprint: *ids (*count), ascending, freed by the
 * caller, and its id space. Reconstructed from the live samples, the removed ones, and the
 * generation's sample count. Returns OK, NOTFOUND (no such generation), UNSUPPORTED (it had samples
 * that are no longer recorded, as before a subset), CORRUPT, IO or NOMEM.
 */
enum status dataset_past_ids(const struct dataset *d,
                             uint64_t fingerprint,
                             uint64_t **ids,
                             uint64_t *count,
                             uint64_t *id_space,
                             struct error *err);

#endif
