/*
 * make_shards: small datasets for tests. Sample i is a function of i and the seed; its image is
 * noise, which the format does not mind.
 *
 * Threading : single-owner.
 * Ownership : a made_sample owns its bytes until made_sample_fini.
 */
#ifndef TESTS_SUPPORT_MAKE_SHARDS_H
#define TESTS_SUPPORT_MAKE_SHARDS_H

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_writer.h"

enum { MADE_MAX_CAPTIONS = 5 };

struct made_sample {
    struct shard_sample sample;
    char key[32];
    uint8_t *image;
    char captions[MADE_MAX_CAPTIONS][128];
    struct shard_text texts[MADE_MAX_CAPTIONS];
    char json[256];
};

/* Sizes vary with i: below, at and above the block size, multiples of 512 and odd ones; 0 to 5
 * captions, with and without JSON, all image formats. */
void make_sample(struct made_sample *out, uint64_t id, uint64_t seed);
/* The same with an image of this many bytes. */
void make_sample_sized(struct made_sample *out, uint64_t id, uint64_t seed, size_t image_bytes);
void made_sample_fini(struct made_sample *s);

/* Appends the bytes that stand for the frame in a file. Returns OK or NOMEM. */
enum status
made_frame_bytes(struct byte_buffer *out, const struct shard_frame *f, struct error *err);

struct make_shards {
    const char *name;           /* "made" */
    uint64_t samples;           /* ids 0, step, 2 * step, ... */
    uint64_t step;              /* 1 */
    uint64_t first_id;          /* 0 */
    uint32_t samples_per_shard; /* 100 */
    uint64_t seed;
    size_t image_bytes;             /* 0: as make_sample has it */
    int level;                      /* SHARD_LEVEL_DEFAULT */
    enum shard_container container; /* SHARD_CONTAINER_TAR_ZSTD */
};

void make_shards_default(struct make_shards *how);

/* Writes shards NAME-%06u from `first_number` on into `directory` and adds them to `m`. */
enum status make_shards_into(struct manifest *m,
                             const struct file_system *fs,
                             const char *directory,
                             uint32_t first_number,
                             const struct make_shards *how,
                             struct error *err);

/* A whole dataset: directory, shards, manifest. */
enum status make_dataset(const struct file_system *fs,
                         const char *directory,
                         const struct make_shards *how,
                         struct error *err);

#endif
