/*
 * sampler: see the header. An epoch is the positions 0..n-1 in some order; global batches cut that
 * order into pieces of B, ranks cut each piece into W neighbouring slices:
 *
 *   order   p0 p1 p2 p3 p4 p5 p6 p7 | p8 ...          B = 8, W = 2
 *           '-- rank 0 --''-- rank 1 --'
 */
#include "loader/sampler.h"

#include "formats/base/checked.h"

enum status sampler_init(struct sampler *s,
                         uint64_t sample_count,
                         const struct loader_options *opt,
                         struct error *err) {
    uint64_t batch = opt->batch_count;
    *s = (struct sampler){
        .sample_count = sample_count,
        .steps_per_epoch = sample_count / batch,
        .steps_total = UINT64_MAX,
        .seed = opt->seed,
        .batch_count = opt->batch_count,
        .rank = opt->rank,
        .world = opt->world,
        .order = opt->order,
    };
    if (!opt->drop_last && sample_count % batch != 0) {
        s->steps_per_epoch++;
    }
    if (s->steps_per_epoch == 0) {
        if (sample_count == 0) {
            return error_set(err, STATUS_USAGE, "the dataset holds no sample");
        }
        return error_set(err, STATUS_USAGE,
                         "the dataset holds %llu samples, fewer than one batch of %llu: lower the "
                         "batch",
                         (unsigned long long)sample_count, (unsigned long long)batch);
    }
    if (opt->epochs != 0 && !checked_mul_u64(opt->epochs, s->steps_per_epoch, &s->steps_total)) {
        return error_set(err, STATUS_LIMIT, "%llu epochs of %llu steps cannot be counted",
                         (unsigned long long)opt->epochs, (unsigned long long)s->steps_per_epoch);
    }
    return STATUS_OK;
}

enum status
sampler_batch_at(const struct sampler *s, uint64_t global_step, struct sampler_batch *out) {
    if (global_step >= s->steps_total) {
        return STATUS_END;
    }
    out->global_step = global_step;
    out->epoch = global_step / s->steps_per_epoch;
    out->step = global_step % s->steps_per_epoch;
    out->is_permuted = s->order == LOADER_ORDER_GLOBAL;

    uint64_t begin = out->step * s->batch_count;
    uint64_t left = s->sample_count - begin;
    uint64_t whole = left < s->batch_count ? left : s->batch_count;
    uint64_t from = s->rank * whole / s->world;
    uint64_t to = ((uint64_t)s->rank + 1) * whole / s->world;
    out->first = begin + from;
    out->count = (uint32_t)(to - from);
    if (out->is_permuted) {
        permutation_init(&out->order, s->sample_count, s->seed, out->epoch);
    }
    return STATUS_OK;
}

uint64_t sampler_position(const struct sampler_batch *b, uint32_t index) {
    uint64_t at = b->first + index;
    return b->is_permuted ? permutation_at(&b->order, at) : at;
}

uint64_t
sampler_replacement(const struct sampler *s, uint64_t epoch, uint64_t sample_id, uint32_t attempt) {
    struct rng r;
    rng_init(&r, s->seed, RNG_REPLACE, epoch, sample_id);
    uint64_t draw = 0;
    for (uint32_t i = 0; i <= attempt; i++) {
        draw = rng_u64(&r);
    }
    /* The bias of the remainder is below n / 2^64. */
    return draw % s->sample_count;
}

uint32_t sampler_max_count(const struct sampler *s) {
    return (s->batch_count + s->world - 1) / s->world;
}
