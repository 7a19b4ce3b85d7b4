/*
 * decode: a decoding thread. It takes an image that was read, lets sample_work write its pixels and
 * tokens straight into the batch, and frees the read buffer. A damaged image is replaced by other
 * samples, in an order fixed by (seed, epoch, id); their bytes are read here, into the same buffer,
 * since that is rare.
 */
#include <inttypes.h>

#include "loader/pipeline_internal.h"
#include "loader/sample_work.h"

enum { REPLACE_TRIES = 64 };

static bool is_damage(enum status s) {
    return s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT;
}

static enum status make_sample(struct pipeline *p,
                               struct sample_work *work,
                               struct read_slot *slot,
                               struct error *err) {
    struct batch_slot *batch = &p->batch_slots[slot->batch_slot];
    size_t i = slot->index;
    uint64_t epoch = batch->batch.epoch;
    TRY(sample_work_image(work, batch->images + i * p->image_bytes, &slot->sample, slot->buffer,
                          epoch, err));
    batch->sample_ids[i] = slot->sample.sample_id;
    batch->labels[i] = slot->sample.label;
    return sample_work_text(work, batch->tokens + i * p->opt.max_tokens, &batch->lengths[i],
                            &batch->text_ids[i], &slot->sample, epoch, err);
}

/* Requires that sample slot->sample turned out damaged; `why` says how. */
static enum status replace_sample(struct pipeline *p,
                                  struct sample_work *work,
                                  struct read_slot *slot,
                                  struct error *why,
                                  struct error *err) {
    uint64_t epoch = p->batch_slots[slot->batch_slot].batch.epoch;
    uint64_t first_id = slot->sample.sample_id;
    for (uint32_t attempt = 0; attempt < REPLACE_TRIES; attempt++) {
        TRY(pipeline_corrupt(p, slot->sample.sample_id, why, err));
        uint64_t position = sampler_replacement(&p->sampler, epoch, first_id, attempt);
        TRY(dataset_sample_at(p->dataset, position, &slot->sample, err));
        TRY(reader_load(p, slot, err));
        *why = (struct error){0};
        enum status s = make_sample(p, work, slot, why);
        if (s == STATUS_OK) {
            return STATUS_OK;
        }
        if (!is_damage(s)) {
            *err = *why;
            return s;
        }
    }
    return error_set(err, STATUS_CORRUPT,
                     "sample %" PRIu64 " is damaged, and so are %d drawn to replace it: %s",
                     first_id, REPLACE_TRIES, why->text);
}

void decode_run(struct pipeline *p, struct sample_work *work) {
    uint32_t id;
    while (pipeline_take_read(p, &id)) {
        struct read_slot *slot = &p->read_slots[id];
        struct error why = {0};
        struct error err = {0};
        uint64_t bytes = slot->sample.image_span_bytes;
        enum status s = make_sample(p, work, slot, &why);
        bool replaced = is_damage(s);
        if (replaced) {
            s = replace_sample(p, work, slot, &why, &err);
        } else if (s < STATUS_OK) {
            err = why;
        }
        if (s < STATUS_OK) {
            pipeline_fail(p, s, &err);
        } else {
            pipeline_decode_done(p, id, replaced, bytes);
        }
    }
}
