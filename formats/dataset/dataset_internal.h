/*
 * dataset_internal: the dataset's inside, shared with its caption reader.
 */
#ifndef FORMATS_DATASET_DATASET_INTERNAL_H
#define FORMATS_DATASET_DATASET_INTERNAL_H

#include "formats/base/file_map.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_internal.h"

struct dataset_shard {
    char *path;
    char *index_path; /* where there is a base; else NULL */
    struct file_map mapping;
    struct shard_index index;
    uint64_t first_position; /* where no ids overlap: of its first sample */
    uint64_t first_text;
};

/* Where a sample is, when ids of shards overlap or samples were removed. */
struct dataset_place {
    uint32_t shard;
    uint32_t index;
};

struct dataset {
    const struct file_system *fs;
    struct manifest manifest;
    struct dataset_shard *shards; /* (shard_count), as in the manifest */
    uint32_t shard_count;
    uint32_t *ranks;              /* (shard_count) shard numbers by first id */
    struct dataset_place *places; /* (samples), or NULL: no ids overlap, none is removed */
    uint64_t *first_texts;        /* (samples), or NULL likewise */
    uint32_t max_image_bytes;
    uint32_t max_chunk_bytes;
    struct token_cache *tokens; /* NULL: see tokens_error */
    struct error tokens_error;
};

/* Fills places and first_texts without removed samples, and sets manifest.samples: reads every
 * record. Returns OK, CORRUPT, EXISTS (an id in two shards) or NOMEM. */
enum status dataset_merge(struct dataset *d, struct error *err);

#endif
