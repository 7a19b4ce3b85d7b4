/*
 * sampler: see the header. The samples of an epoch are numbered source by source:
 *
 *   number     0 .......... | ............... | ...... n      shares of the sources
 *   source     0            | 1               | 2
 *
 * The order of the epoch maps positions to numbers. Global batches divide the positions into pieces
 * of B, and ranks divide each piece into W consecutive slices:
 *
 *   position   p0 p1 p2 p3 p4 p5 p6 p7 | p8 ...               B = 8, W = 2
 *              '-- rank 0 --''-- rank 1 --'
 *
 * Number j of source d in epoch e is draw e * share + j of that source in the run. Each round of
 * draws delivers every live sample of the source once, in an order of its own.
 *
 * Block order, with whole blocks of 4, a remainder of 2 and windows of 2 blocks:
 *
 *   position   0 1 2 3  4 5 6 7 | 8 9 10 11  12 13
 *   window     '----- 0 ------'   '------ 1 -----'   a permutation inside each
 *   slot          0        1          2        3     3 is the remainder, 0..2 are permuted blocks
 *   number     (block * 4 + position in it + phase) mod n
 */
#include "loader/sampler.h"

#include "formats/base/checked.h"
#include "loader/classes_internal.h"

/* Streams of RNG_ORDER; stream 0 is the permutation of a single source. */
enum { STREAM_KIND_BITS = 56 };
#define STREAM_INTERLEAVE (UINT64_C(1) << STREAM_KIND_BITS)
#define STREAM_SOURCE     (UINT64_C(2) << STREAM_KIND_BITS) /* + source */
#define STREAM_BLOCKS     (UINT64_C(3) << STREAM_KIND_BITS)
#define STREAM_WINDOW     (UINT64_C(4) << STREAM_KIND_BITS) /* + window */
#define STREAM_PHASE      (UINT64_C(5) << STREAM_KIND_BITS)
#define STREAM_CLASS      (UINT64_C(6) << STREAM_KIND_BITS) /* + class */

/* --- shares --- */

/* Whole samples by weight: rounded down, then one more for each of the largest remainders. */
static void share_by_weight(struct sampler *s, const double *weights) {
    double total = 0;
    double rest[LOADER_MAX_SOURCES];
    uint64_t given = 0;
    for (uint32_t i = 0; i < s->source_count; i++) {
        total += weights[i];
    }
    for (uint32_t i = 0; i < s->source_count; i++) {
        double exact = (double)s->sample_count * (weights[i] / total);
        s->sources[i].share_count = (uint64_t)exact;
        rest[i] = exact - (double)s->sources[i].share_count;
        given += s->sources[i].share_count;
    }
    while (given < s->sample_count) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < s->source_count; i++) {
            most = rest[i] > rest[most] ? i : most;
        }
        s->sources[most].share_count++;
        rest[most] = -1;
        given++;
    }
}

static enum status make_shares(struct sampler *s,
                               const uint64_t *live_counts,
                               const double *weights,
                               struct error *err) {
    bool weighted = false;
    for (uint32_t i = 0; i < s->source_count; i++) {
        s->sources[i].live_count = live_counts[i];
        s->sources[i].share_count = live_counts[i];
        weighted = weighted || weights[i] > 0;
        FAIL_IF(live_counts[i] > SAMPLER_MAX_SAMPLES, err, STATUS_LIMIT, "more than 2^40 samples");
        s->sample_count += live_counts[i];
    }
    FAIL_IF(s->sample_count > SAMPLER_MAX_SAMPLES, err, STATUS_LIMIT, "more than 2^40 samples");
    if (weighted) {
        share_by_weight(s, weights);
    }
    uint64_t first = 0;
    for (uint32_t i = 0; i < s->source_count; i++) {
        struct sampler_source *d = &s->sources[i];
        FAIL_IF(weighted && (d->share_count == 0 || d->live_count == 0), err, STATUS_USAGE,
                "dataset %u of the mix has %llu samples but only %llu of the %llu positions in an "
                "epoch: raise its weight or remove it from the mix",
                i + 1, (unsigned long long)d->live_count, (unsigned long long)d->share_count,
                (unsigned long long)s->sample_count);
        d->first = first;
        first += d->share_count;
    }
    return STATUS_OK;
}

static enum status
count_steps(struct sampler *s, const struct loader_options *opt, struct error *err) {
    const uint64_t batch = opt->batch_count;
    const uint64_t rows = s->sample_count * s->positives;
    s->steps_per_epoch = rows / batch;
    if (!opt->drop_last && rows % batch != 0) {
        s->steps_per_epoch++;
    }
    FAIL_IF(s->sample_count == 0, err, STATUS_USAGE, "there are no samples to load");
    FAIL_IF(s->steps_per_epoch == 0, err, STATUS_USAGE,
            "the data has %llu sample%s, fewer than one batch of %llu: use a smaller batch",
            (unsigned long long)s->sample_count, s->sample_count == 1 ? "" : "s",
            (unsigned long long)(batch / s->positives));
    FAIL_IF(opt->epochs != 0 && !checked_mul_u64(opt->epochs, s->steps_per_epoch, &s->steps_total),
            err, STATUS_LIMIT, "%llu epochs of %llu steps cannot be counted",
            (unsigned long long)opt->epochs, (unsigned long long)s->steps_per_epoch);
    return STATUS_OK;
}

enum status sampler_init(struct sampler *s,
                         const uint64_t *live_counts,
                         const double *weights,
                         uint32_t source_count,
                         const struct loader_options *opt,
                         struct error *err) {
    REQUIRE(source_count >= 1 && source_count <= LOADER_MAX_SOURCES);
    *s = (struct sampler){
        .steps_total = UINT64_MAX,
        .seed = opt->seed,
        .batch_count = opt->batch_count,
        .positives = opt->positives,
        .rank = opt->rank,
        .world = opt->world,
        .order = opt->order,
        .block_count = opt->block_count,
        .block_window = opt->block_window,
        .source_count = source_count,
    };
    TRY(make_shares(s, live_counts, weights, err));
    return count_steps(s, opt, err);
}

enum status sampler_use_classes(struct sampler *s,
                                const struct classes *classes,
                                const struct loader_options *opt,
                                struct error *err) {
    REQUIRE(s->order == LOADER_ORDER_CLASSES && s->source_count == 1);
    REQUIRE(classes->block_count == s->block_count);
    s->classes = classes;
    s->sample_count = classes->blocks[classes->class_count] * s->block_count;
    return count_steps(s, opt, err);
}

/* --- batches --- */

/* Order and phase of the epoch. */
static void begin_epoch(const struct sampler *s, struct sampler_batch *b) {
    if (s->order == LOADER_ORDER_GLOBAL) {
        permutation_init_stream(&b->order, s->sample_count, s->seed, b->epoch,
                                s->source_count > 1 ? STREAM_INTERLEAVE : 0);
    } else if (s->order == LOADER_ORDER_BLOCK) {
        struct rng r;
        rng_init(&r, s->seed, RNG_ORDER, b->epoch, STREAM_PHASE);
        b->phase = rng_u64(&r) % s->sample_count; /* biased by less than n / 2^64 */
        uint64_t blocks = s->sample_count / s->block_count;
        permutation_init_stream(&b->order, blocks > 0 ? blocks : 1, s->seed, b->epoch,
                                STREAM_BLOCKS);
    } else if (s->order == LOADER_ORDER_CLASSES) {
        permutation_init_stream(&b->order, s->sample_count / s->block_count, s->seed, b->epoch,
                                STREAM_BLOCKS);
    }
}

enum status
sampler_batch_at(const struct sampler *s, uint64_t global_step, struct sampler_batch *out) {
    if (global_step >= s->steps_total) {
        return STATUS_END;
    }
    out->global_step = global_step;
    out->epoch = global_step / s->steps_per_epoch;
    out->step = global_step % s->steps_per_epoch;

    uint64_t begin = out->step * s->batch_count;
    uint64_t left = s->sample_count * s->positives - begin;
    uint64_t whole = left < s->batch_count ? left : s->batch_count;
    uint64_t from = s->rank * whole / s->world;
    uint64_t to = ((uint64_t)s->rank + 1) * whole / s->world;
    out->first = begin + from;
    out->count = (uint32_t)(to - from);
    begin_epoch(s, out);
    return STATUS_OK;
}

/* The permutation of the places of one window; the last window has fewer. */
static void begin_window(const struct sampler *s,
                         const struct sampler_batch *b,
                         uint64_t window,
                         struct permutation *inside) {
    uint64_t window_places = (uint64_t)s->block_count * s->block_window;
    uint64_t left = s->sample_count - window * window_places;
    permutation_init_stream(inside, left < window_places ? left : window_places, s->seed, b->epoch,
                            STREAM_WINDOW + window);
}

/* The number at a position of the epoch, in block order. */
static uint64_t
block_number(const struct sampler *s, const struct sampler_batch *b, uint64_t place) {
    uint64_t window_places = (uint64_t)s->block_count * s->block_window;
    uint64_t window = place / window_places;
    uint64_t blocks = s->sample_count / s->block_count;
    struct permutation inside;
    begin_window(s, b, window, &inside);
    uint64_t at = permutation_at(&inside, place % window_places);
    uint64_t slot = window * s->block_window + at / s->block_count;
    uint64_t block = slot < blocks ? permutation_at(&b->order, slot) : slot;
    return (block * s->block_count + at % s->block_count + b->phase) % s->sample_count;
}

/* The inverse of block_number. */
static uint64_t
block_place(const struct sampler *s, const struct sampler_batch *b, uint64_t number) {
    uint64_t from_phase = (number + s->sample_count - b->phase) % s->sample_count;
    uint64_t blocks = s->sample_count / s->block_count;
    uint64_t block = from_phase / s->block_count;
    uint64_t slot = block < blocks ? permutation_inverse(&b->order, block) : block;
    uint64_t window = slot / s->block_window;
    struct permutation inside;
    begin_window(s, b, window, &inside);
    uint64_t at = slot % s->block_window * s->block_count + from_phase % s->block_count;
    return window * s->block_count * s->block_window + permutation_inverse(&inside, at);
}

/* The ordinal at a position of the epoch, in the order of classes. */
static uint64_t
class_ordinal(const struct sampler *s, const struct sampler_batch *b, uint64_t place) {
    const struct classes *c = s->classes;
    const uint64_t block = permutation_at(&b->order, place / s->block_count);
    uint64_t low = 0; /* the last class with no more than `block` blocks before it */
    uint64_t high = c->class_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (c->blocks[middle] <= block) {
            low = middle;
        } else {
            high = middle;
        }
    }
    struct permutation inside;
    permutation_init_stream(&inside, c->starts[low + 1] - c->starts[low], s->seed, b->epoch,
                            STREAM_CLASS + low);
    const uint64_t at = (block - c->blocks[low]) * s->block_count + place % s->block_count;
    return c->members[c->starts[low] + permutation_at(&inside, at)];
}

struct sampler_place
sampler_place_at(const struct sampler *s, const struct sampler_batch *b, uint32_t index) {
    uint64_t number = (b->first + index) / s->positives;
    if (s->order == LOADER_ORDER_CLASSES) {
        return (struct sampler_place){0, class_ordinal(s, b, number)};
    }
    if (s->order == LOADER_ORDER_GLOBAL) {
        number = permutation_at(&b->order, number);
    } else if (s->order == LOADER_ORDER_BLOCK) {
        number = block_number(s, b, number);
    }
    uint32_t source = s->source_count - 1;
    while (number < s->sources[source].first) {
        source--;
    }
    const struct sampler_source *d = &s->sources[source];
    /* Cannot overflow: seeking checks the position, and no run lasts long enough to reach it. */
    uint64_t draw = b->epoch * d->share_count + (number - d->first);
    struct sampler_place place = {source, draw % d->live_count};
    if (s->order == LOADER_ORDER_GLOBAL && s->source_count > 1) {
        struct permutation own;
        permutation_init_stream(&own, d->live_count, s->seed, draw / d->live_count,
                                STREAM_SOURCE + source);
        place.ordinal = permutation_at(&own, place.ordinal);
    }
    return place;
}

/* Index of `ordinal` in members[first..end), which ascend; `end` if it is not there. */
static uint64_t
find_member(const uint64_t *members, uint64_t first, uint64_t end, uint64_t ordinal) {
    uint64_t low = first;
    uint64_t high = end;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (members[middle] < ordinal) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < end && members[low] == ordinal ? low : end;
}

/* The inverse of class_ordinal. Returns OK, or NOTFOUND for one of the rest of its class. */
static enum status class_place(const struct sampler *s,
                               const struct sampler_batch *b,
                               uint64_t ordinal,
                               uint64_t *out) {
    const struct classes *c = s->classes;
    uint64_t class = 0;
    uint64_t member = c->starts[1];
    for (; class < c->class_count; class ++) {
        member = find_member(c->members, c->starts[class], c->starts[class + 1], ordinal);
        if (member < c->starts[class + 1]) {
            break;
        }
    }
    REQUIRE(class < c->class_count);
    struct permutation inside;
    permutation_init_stream(&inside, c->starts[class + 1] - c->starts[class], s->seed, b->epoch,
                            STREAM_CLASS + class);
    const uint64_t at = permutation_inverse(&inside, member - c->starts[class]);
    const uint64_t block = c->blocks[class] + at / s->block_count;
    if (block >= c->blocks[class + 1]) {
        return STATUS_NOTFOUND;
    }
    *out = permutation_inverse(&b->order, block) * s->block_count + at % s->block_count;
    return STATUS_OK;
}

/* The draw of its source, in the whole run, that gives the ordinal in this round. */
static enum status
draw_of(const struct sampler *s, struct sampler_place place, uint64_t round, uint64_t *out) {
    const uint64_t live = s->sources[place.source].live_count;
    uint64_t at = place.ordinal;
    if (s->order == LOADER_ORDER_GLOBAL && s->source_count > 1) {
        struct permutation own;
        permutation_init_stream(&own, live, s->seed, round, STREAM_SOURCE + place.source);
        at = permutation_inverse(&own, at);
    }
    return checked_mul_u64(round, live, out) && checked_add_u64(*out, at, out) ? STATUS_OK
                                                                               : STATUS_END;
}

enum status sampler_find(const struct sampler *s,
                         struct sampler_place place,
                         uint64_t round,
                         struct sampler_visit *out) {
    REQUIRE(place.source < s->source_count);
    REQUIRE(place.ordinal < s->sources[place.source].live_count);
    struct sampler_batch b = {.epoch = round};
    uint64_t position = 0;
    if (s->order == LOADER_ORDER_CLASSES) {
        begin_epoch(s, &b);
        enum status found = class_place(s, &b, place.ordinal, &position);
        position = found == STATUS_OK ? position : s->sample_count;
    } else {
        const struct sampler_source *d = &s->sources[place.source];
        uint64_t draw = 0;
        if (draw_of(s, place, round, &draw) != STATUS_OK) {
            return STATUS_END;
        }
        b.epoch = draw / d->share_count;
        begin_epoch(s, &b);
        position = d->first + draw % d->share_count;
        if (s->order == LOADER_ORDER_GLOBAL) {
            position = permutation_inverse(&b.order, position);
        } else if (s->order == LOADER_ORDER_BLOCK) {
            position = block_place(s, &b, position);
        }
    }
    const uint64_t row = position * s->positives;
    const uint64_t step = row / s->batch_count;
    uint64_t first_step = 0;
    if (!checked_mul_u64(b.epoch, s->steps_per_epoch, &first_step) ||
        first_step >= s->steps_total) {
        return STATUS_END;
    }
    if (step >= s->steps_per_epoch || position >= s->sample_count) {
        return STATUS_NOTFOUND;
    }
    *out = (struct sampler_visit){.epoch = b.epoch,
                                  .step = step,
                                  .global_step = first_step + step,
                                  .row = (uint32_t)(row % s->batch_count)};
    return out->global_step < s->steps_total ? STATUS_OK : STATUS_END;
}

uint32_t sampler_rank_of(uint32_t row, uint32_t count, uint32_t world) {
    /* The least rank whose slice [r * count / world, (r + 1) * count / world) ends after the row.
     */
    return (uint32_t)((((uint64_t)row + 1) * world + count - 1) / count - 1);
}

uint64_t sampler_replacement(const struct sampler *s,
                             uint32_t source,
                             uint64_t epoch,
                             uint64_t key,
                             uint32_t attempt) {
    struct rng r;
    rng_init(&r, s->seed, RNG_REPLACE, epoch, key);
    uint64_t draw = 0;
    for (uint32_t i = 0; i <= attempt; i++) {
        draw = rng_u64(&r);
    }
    /* The bias of the remainder is below n / 2^64. */
    return draw % s->sources[source].live_count;
}

uint32_t
sampler_positive_at(const struct sampler *s, const struct sampler_batch *b, uint32_t index) {
    return (uint32_t)((b->first + index) % s->positives);
}

uint32_t sampler_max_count(const struct sampler *s) {
    return (s->batch_count + s->world - 1) / s->world;
}
