/*
 * sources: the datasets of a run as one: which of their samples pass the filter, and the ids of
 * those samples in the mix.
 *
 * Threading : immutable after open.
 * Ownership : owns its datasets.
 * Untrusted : the datasets.
 */
#ifndef LOADER_SOURCES_H
#define LOADER_SOURCES_H

#include <stdint.h>

#include "formats/base/status.h"
#include "formats/dataset/dataset.h"
#include "loader/loader.h"

/* One dataset. */
struct source {
    struct dataset *dataset;
    char *directory;
    struct live *live; /* positions that pass the filter; NULL: every position */
    uint64_t id_offset;
    uint64_t text_offset;
    uint32_t first_shard;
};

/* Read-only after open. */
struct sources {
    uint32_t count;
    bool weighted;
    struct source items[LOADER_MAX_SOURCES];
    uint64_t live_counts[LOADER_MAX_SOURCES];
    double weights[LOADER_MAX_SOURCES];
    /* Totals over all sources. */
    uint64_t id_space;
    uint64_t text_count;
    uint32_t shard_count;
    struct caption_columns *captions; /* NULL: own captions */
};

/* Returns OK, NOMEM, USAGE (weights for some but not all; a directory twice), LIMIT, what
 * dataset_open returns, or, with a filter, CORRUPT for a damaged index. */
enum status sources_open(struct sources **out,
                         const struct loader_source *list,
                         uint32_t count,
                         const struct loader_filter *filter,
                         struct error *err);
void sources_close(struct sources *s); /* accepts NULL */

uint64_t sources_fingerprint(const struct sources *s); /* see struct loader_info */
uint64_t sources_mix_hash(const struct sources *s);    /* of the weights; 0 without */
uint32_t sources_max_span_bytes(const struct sources *s);

/* Shards of all datasets, one after the other. Requires shard < shard_count. */
const char *sources_shard_path(const struct sources *s, uint32_t shard);

struct source_sample {
    struct dataset_sample sample; /* with ids as delivered; other fields as in its dataset */
    uint64_t position;            /* in its dataset */
    uint64_t text_offset;         /* added to the text ids of its dataset */
    uint32_t source;
    uint32_t shard; /* for sources_shard_path */
};

/* Requires an ordinal below the source's live count. Returns OK, or CORRUPT when the index record
 * is damaged: then source and position are set, and the sample's id is LOADER_NO_SAMPLE. */
enum status sources_sample_at(const struct sources *s,
                              uint32_t source,
                              uint64_t ordinal,
                              struct source_sample *out,
                              struct error *err);

/* The sample with this id, whether or not it passes the filter; its position is not looked up (0).
 * Returns OK, NOTFOUND (no sample had this id yet, or it was removed), or CORRUPT when its index
 * record is damaged. */
enum status sources_find(const struct sources *s,
                         uint64_t sample_id,
                         struct source_sample *out,
                         struct error *err);

/* The sources of a loader; borrowed until its close. */
const struct sources *loader_sources(const struct loader *l);

#endif
