/*
 * state: the position of a run, and whether a saved position belongs to this run. A position means
 * nothing in another order, so everything that the order depends on is compared, and the message
 * names what differs.
 */
#include <inttypes.h>
#include <stdio.h>

#include "formats/base/checked.h"
#include "loader/caption_columns_internal.h"
#include "loader/filter_internal.h"
#include "loader/pipeline_internal.h"
#include "loader/state_internal.h"

/* From the top: order (8 bits), positives less 1 (4), window (20, of blocks), block (32); 0 for the
 * global order of single rows. */
static uint64_t order_code(const struct loader_options *opt) {
    uint64_t code = (uint64_t)opt->order << 56 | (uint64_t)(opt->positives - 1) << 52;
    return opt->order == LOADER_ORDER_BLOCK
               ? code | (uint64_t)opt->block_window << 32 | opt->block_count
           : opt->order == LOADER_ORDER_CLASSES ? code | opt->block_count
                                                : code;
}

struct loader_state state_make(const struct pipeline *p, uint64_t global_step) {
    struct loader_state s = {
        .fingerprint = sources_fingerprint(p->sources),
        .seed = p->sampler.seed,
        .epoch = global_step / p->sampler.steps_per_epoch,
        .step = global_step % p->sampler.steps_per_epoch,
        .filter = filter_hash(&p->opt.filter) ^ caption_columns_hash(p->sources->captions),
        .order = order_code(&p->opt),
        .mix = sources_mix_hash(p->sources),
        .pair_noise = p->opt.pair_noise,
        .batch_count = p->opt.batch_count,
        .source_count = p->sources->count,
    };
    for (uint32_t i = 0; i < s.source_count; i++) {
        s.sources[i].fingerprint = dataset_fingerprint(p->sources->items[i].dataset);
        s.sources[i].id_offset = p->sources->items[i].id_offset;
    }
    return s;
}

/* Names the dataset that differs, as far as the state holds it. */
static enum status
other_data(const struct pipeline *p, const struct loader_state *state, struct error *err) {
    uint32_t count = p->sources->count;
    FAIL_IF(state->source_count != 0 && state->source_count != count, err, STATUS_MISMATCH,
            "the saved position belongs to %u datasets, the loader has %u", state->source_count,
            count);
    for (uint32_t i = 0; i < state->source_count && i < LOADER_MAX_SOURCES; i++) {
        uint64_t fingerprint = dataset_fingerprint(p->sources->items[i].dataset);
        uint64_t offset = p->sources->items[i].id_offset;
        FAIL_IF(state->sources[i].fingerprint != fingerprint, err, STATUS_MISMATCH,
                "%s: the saved position belongs to a dataset with fingerprint "
                "%016" PRIx64 ", this one has %016" PRIx64 ": other samples, captions or ids",
                p->sources->items[i].directory, state->sources[i].fingerprint, fingerprint);
        FAIL_IF(state->sources[i].id_offset != offset, err, STATUS_MISMATCH,
                "%s: its ids began at %" PRIu64 " in the saved run, now at %" PRIu64
                ": a dataset before it has grown",
                p->sources->items[i].directory, state->sources[i].id_offset, offset);
    }
    return error_set(err, STATUS_MISMATCH,
                     "the saved position belongs to data with fingerprint %016" PRIx64
                     ", this has %016" PRIx64 ": other samples, captions or ids",
                     state->fingerprint, sources_fingerprint(p->sources));
}

/* "the global order", "blocks of 1024 in windows of 16" */
static void order_text(char *out, size_t size, uint64_t code) {
    uint64_t order = code >> 56;
    unsigned positives = (unsigned)(code >> 52 & 0xF) + 1;
    int used;
    if (order == LOADER_ORDER_BLOCK) {
        used = snprintf(out, size, "blocks of %" PRIu32 " in windows of %u", (uint32_t)code,
                        (uint32_t)(code >> 32 & 0xFFFFF));
    } else if (order == LOADER_ORDER_CLASSES) {
        used = snprintf(out, size, "blocks of %" PRIu32 " of one class", (uint32_t)code);
    } else {
        used = snprintf(out, size, "%s",
                        order == LOADER_ORDER_GLOBAL ? "the global order" : "the sequential order");
    }
    if (positives > 1) {
        snprintf(out + used, size - (size_t)used, " with %u rows a sample", positives);
    }
}

static enum status
other_plan(const struct loader_state *state, const struct loader_state *own, struct error *err) {
    char saved[80];
    char now[80];
    FAIL_IF(state->seed != own->seed, err, STATUS_MISMATCH,
            "the saved position belongs to seed %" PRIu64 ", the loader has seed "
            "%" PRIu64 ": the order would differ",
            state->seed, own->seed);
    FAIL_IF(state->filter != own->filter, err, STATUS_MISMATCH,
            "the saved position belongs to another filter or other caption columns (%016" PRIx64
            ", these %016" PRIx64 ", 0 is none): other samples or captions take part",
            state->filter, own->filter);
    FAIL_IF(state->mix != own->mix, err, STATUS_MISMATCH,
            "the saved position belongs to other weights of the datasets");
    FAIL_IF(state->pair_noise != own->pair_noise, err, STATUS_MISMATCH,
            "the saved position belongs to pairs with noise %g, the loader has %g",
            state->pair_noise, own->pair_noise);
    if (state->order != own->order) {
        order_text(saved, sizeof(saved), state->order);
        order_text(now, sizeof(now), own->order);
        return error_set(err, STATUS_MISMATCH,
                         "the saved position belongs to %s, the loader has %s", saved, now);
    }
    FAIL_IF(state->batch_count != 0 && state->batch_count != own->batch_count, err, STATUS_MISMATCH,
            "the saved position counts batches of %u, the loader has %u", state->batch_count,
            own->batch_count);
    return STATUS_OK;
}

enum status state_to_step(const struct pipeline *p,
                          uint64_t *out_step,
                          const struct loader_state *state,
                          struct error *err) {
    struct loader_state own = state_make(p, 0);
    uint64_t samples = 0;
    uint64_t step = 0;
    RETURN_IF(state->fingerprint != own.fingerprint, other_data(p, state, err));
    TRY(other_plan(state, &own, err));
    FAIL_IF(state->step > p->sampler.steps_per_epoch, err, STATUS_MISMATCH,
            "the saved position is step %" PRIu64 " of an epoch, which has only "
            "%" PRIu64 " steps here: was it saved with another batch size?",
            state->step, p->sampler.steps_per_epoch);
    FAIL_IF(state->epoch >= UINT64_MAX - 1 ||
                !checked_mul_u64(state->epoch + 2, p->sampler.sample_count, &samples) ||
                !checked_mul_u64(state->epoch, p->sampler.steps_per_epoch, &step) ||
                !checked_add_u64(step, state->step, &step),
            err, STATUS_MISMATCH,
            "the saved position is epoch %" PRIu64 ", which is too far to count", state->epoch);
    *out_step = step;
    return STATUS_OK;
}
