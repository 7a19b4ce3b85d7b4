/*
 * image_dataset: small datasets of real images, for whatever reads pixels. Sample i is a
 * function of i alone: its size, its JPEG bytes, its captions (0 to 3), its
 * label (i % 10, but none where i % 7 is 3).
 *
 * Threading : single-owner.
 */
#ifndef TESTS_SUPPORT_IMAGE_DATASET_H
#define TESTS_SUPPORT_IMAGE_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/shard/shard.h"

struct image_dataset {
    uint64_t samples;               /* 100 */
    uint64_t id_step;               /* ids 0, step, 2 * step, ...; default 3 */
    uint32_t samples_per_shard;     /* 40 */
    bool tokenizer;                 /* true: a trained one lies beside the shards */
    enum shard_container container; /* SHARD_CONTAINER_TAR_ZSTD */
};

void image_dataset_default(struct image_dataset *how);

/* Makes `directory` and fills it. Ends the process on error. */
void image_dataset_make(const char *directory, const struct image_dataset *how);

/* Overwrites some bytes in the middle of a sample's image, in the shard file. */
void image_dataset_damage(const char *directory, uint64_t sample_id);

/* Flips a bit of the index record of sample number `number`, in the sidecar of its shard. */
void image_dataset_damage_record(const char *directory, uint64_t number);

#endif
