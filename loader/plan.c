#include "loader/plan_internal.h"

#include <string.h>

#include "loader/remote/remote_internal.h"

enum { WALK_AT_ONCE = 1024 };

void plan_init(struct plan *plan, const struct pipeline *p) {
    memset(plan, 0, sizeof *plan);
    plan->p = p;
    plan->step = p->claim_step;
}

static bool next_place(struct plan *plan, struct sampler_place *out) {
    const struct sampler *sampler = &plan->p->sampler;
    while (plan->index == plan->batch.count) {
        if (sampler_batch_at(sampler, plan->step, &plan->batch) != STATUS_OK) {
            plan->batch.count = plan->index = 0;
            return false;
        }
        plan->step++;
        plan->index = 0;
    }
    *out = sampler_place_at(sampler, &plan->batch, plan->index++);
    plan->walked_count++;
    return true;
}

/* Whether samples shortly before needed the same piece. */
static bool is_recent(struct plan *plan, const struct remote_object *o, uint64_t number) {
    const size_t i = ((uintptr_t)o / 64 + number) % PLAN_RECENT;
    const bool recent = plan->recent[i].object == o && plan->recent[i].number == number &&
                        plan->walked_count - plan->recent[i].seen < PLAN_MAX_SAMPLES / 2;
    plan->recent[i].object = o;
    plan->recent[i].number = number;
    plan->recent[i].seen = plan->walked_count;
    return recent;
}

static void plan_sample(struct plan *plan, const struct source_sample *s) {
    struct remote_object *o = shard_files_remote(plan->p->files, s->shard);
    if (o == NULL) {
        return;
    }
    const uint64_t first = s->sample.image_offset / REMOTE_PIECE_BYTES;
    const uint64_t last =
        (s->sample.image_offset + s->sample.image_span_bytes - 1) / REMOTE_PIECE_BYTES;
    bool planned = false;
    for (uint64_t number = first; number <= last; number++) {
        planned =
            (!is_recent(plan, o, number) && remote_object_plan(o, number * REMOTE_PIECE_BYTES)) ||
            planned;
    }
    if (planned) {
        plan->uses[(plan->use_first + plan->use_count++) % PLAN_MAX_PIECES] = plan->walked_count;
    }
}

void plan_ahead(struct plan *plan, uint64_t claimed_count) {
    const uint32_t limit = remote_plan_limit(PLAN_MAX_PIECES);
    struct sampler_place place;
    while (plan->use_count > 0 && plan->uses[plan->use_first] <= claimed_count) {
        plan->use_first = (plan->use_first + 1) % PLAN_MAX_PIECES;
        plan->use_count--;
    }
    for (int i = 0;
         i < WALK_AT_ONCE && plan->use_count < limit &&
         plan->walked_count < claimed_count + PLAN_MAX_SAMPLES && next_place(plan, &place);
         i++) {
        struct source_sample s;
        if (sources_sample_at(plan->p->sources, place.source, place.ordinal, &s, NULL) ==
            STATUS_OK) {
            plan_sample(plan, &s);
        }
    }
}
