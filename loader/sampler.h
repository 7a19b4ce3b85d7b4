/*
 * sampler: which sample is at which position of a run. Pure arithmetic from (live samples, weights,
 * batch, order, seed, rank, world); nothing is stored, so any step of any epoch can be computed
 * without those before it. loader.h describes the orders and the mix.
 *
 * A sample is named by its source and its ordinal: its number among the live samples of that
 * source in id order.
 *
 * Threading : immutable after sampler_init; a sampler_batch has one owner while it is filled.
 */
#ifndef LOADER_SAMPLER_H
#define LOADER_SAMPLER_H

#include <stdint.h>

#include "formats/base/rng.h"
#include "formats/base/status.h"
#include "loader/loader.h"

#define SAMPLER_MAX_SAMPLES (UINT64_C(1) << 40) /* of an epoch and of a source */

/* The part of an epoch that one source contributes. */
struct sampler_source {
    uint64_t live_count;
    uint64_t share_count; /* its samples per epoch */
    uint64_t first;       /* sum of share_count of the earlier sources */
};

struct classes;

struct sampler {
    uint64_t sample_count; /* of an epoch */
    uint64_t steps_per_epoch;
    uint64_t steps_total; /* UINT64_MAX: endless */
    uint64_t seed;
    uint32_t batch_count; /* rows: `positives` consecutive ones are one sample */
    uint32_t positives;
    uint32_t rank, world;
    enum loader_order order;
    uint32_t block_count, block_window;
    const struct classes *classes; /* CLASSES; borrowed */
    uint32_t source_count;
    struct sampler_source sources[LOADER_MAX_SOURCES];
};

/* Copies the fields of the same name from `opt`. Weights are all 0, or above 0 where there are live
 * samples. Returns OK, USAGE (no full batch with drop_last, no live sample, or a source with less
 * than one sample per epoch) or LIMIT (more steps than can be counted). */
enum status sampler_init(struct sampler *s,
                         const uint64_t *live_counts,
                         const double *weights,
                         uint32_t source_count,
                         const struct loader_options *opt,
                         struct error *err);

/* For LOADER_ORDER_CLASSES, after sampler_init with the same options: the samples of an epoch are
 * those of all whole blocks. Returns as sampler_init. */
enum status sampler_use_classes(struct sampler *s,
                                const struct classes *classes,
                                const struct loader_options *opt,
                                struct error *err);

/* This rank's part of one global batch. */
struct sampler_batch {
    struct permutation order; /* GLOBAL: of the samples of the epoch; BLOCK and
                                 CLASSES: of its whole blocks */
    uint64_t phase;           /* BLOCK: number of the first sample of the first block */
    uint64_t epoch;
    uint64_t step;
    uint64_t global_step;
    uint64_t first; /* number in the epoch of this rank's first row */
    uint32_t count;
};

/* Returns OK, or END when global_step is at least steps_total. */
enum status
sampler_batch_at(const struct sampler *s, uint64_t global_step, struct sampler_batch *out);

struct sampler_place {
    uint32_t source;
    uint64_t ordinal; /* below the source's live_count */
};

/* The sample of row `index` of the batch; index < count. */
struct sampler_place
sampler_place_at(const struct sampler *s, const struct sampler_batch *b, uint32_t index);

/* Where a run delivers a sample: the first of its `positives` consecutive rows. */
struct sampler_visit {
    uint64_t epoch;
    uint64_t step; /* of the epoch */
    uint64_t global_step;
    uint32_t row; /* of the global batch, of all ranks together */
};

/* The inverse of sampler_place_at: where round `round` delivers the sample at `place`. A round
 * delivers every live sample of a source once, from round 0 on. It is an epoch, except in a mix
 * whose weights make a source repeat or omit samples. Takes O(1), in CLASSES a binary search in
 * each class. Rank and world have no effect. Returns OK; NOTFOUND (the sample is not delivered in
 * this round: it is in a last batch that is dropped, or in the omitted rest of its class), or END
 * (the round is after the end of the run). */
enum status sampler_find(const struct sampler *s,
                         struct sampler_place place,
                         uint64_t round,
                         struct sampler_visit *out);

/* The rank of `world` that delivers a row of a global batch of `count` rows; row < count. */
uint32_t sampler_rank_of(uint32_t row, uint32_t count, uint32_t world);

/* The ordinal of the sample that replaces the damaged sample `key` of a source in `epoch`: the one
 * drawn in try number `attempt`, from 0. */
uint64_t sampler_replacement(const struct sampler *s,
                             uint32_t source,
                             uint64_t epoch,
                             uint64_t key,
                             uint32_t attempt);

/* Which of its sample's rows that is, in [0, positives). */
uint32_t
sampler_positive_at(const struct sampler *s, const struct sampler_batch *b, uint32_t index);

/* Largest count of a batch of this rank. */
uint32_t sampler_max_count(const struct sampler *s);

#endif
