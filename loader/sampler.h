/*
 * sampler: which sample stands where. Pure arithmetic from (sample count, batch, order, seed,
 * rank, world); nothing is stored, so any step of any epoch is known without the ones before it.
 *
 * Threading : immutable after sampler_init; a sampler_batch has one owner while it is filled.
 */
#ifndef LOADER_SAMPLER_H
#define LOADER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/rng.h"
#include "formats/base/status.h"
#include "loader/loader.h"

struct sampler {
    uint64_t sample_count;
    uint64_t steps_per_epoch;
    uint64_t steps_total; /* UINT64_MAX: endless */
    uint64_t seed;
    uint32_t batch_count;
    uint32_t rank, world;
    enum loader_order order;
};

/* Takes the fields of the same name from `opt`. Returns OK, USAGE (drop_last would leave nothing)
 * or LIMIT (more steps than can be counted). */
enum status sampler_init(struct sampler *s,
                         uint64_t sample_count,
                         const struct loader_options *opt,
                         struct error *err);

/* This rank's part of one global batch. */
struct sampler_batch {
    struct permutation order; /* of the epoch; not used for LOADER_ORDER_SEQUENTIAL */
    bool is_permuted;
    uint64_t epoch;
    uint64_t step;
    uint64_t global_step;
    uint64_t first; /* index in the epoch's order of this rank's first sample */
    uint32_t count;
};

/* Returns OK, or END when global_step is not below steps_total. */
enum status
sampler_batch_at(const struct sampler *s, uint64_t global_step, struct sampler_batch *out);

/* Position in the dataset of sample `index` of the batch; index < count. */
uint64_t sampler_position(const struct sampler_batch *b, uint32_t index);

/* Try number `attempt` (from 0) to replace damaged sample `sample_id` in `epoch`: a position. */
uint64_t
sampler_replacement(const struct sampler *s, uint64_t epoch, uint64_t sample_id, uint32_t attempt);

/* Largest count a batch of this rank can have. */
uint32_t sampler_max_count(const struct sampler *s);

#endif
