/*
 * decode: a decoding thread. It takes an image that was read, lets sample_work write its pixels and
 * tokens directly into the batch, and frees the read buffer. A damaged sample is replaced by the
 * first intact one of a sequence that (seed, epoch, id) determine; its bytes are read here, into
 * the same buffer, since that is rare.
 */

#include "loader/pipeline_internal.h"
#include "loader/remote/remote_internal.h"
#include "loader/sample_work.h"

enum { REPLACE_TRIES = 64 };

bool decode_is_damage(enum status s) {
    return s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT;
}

/* What a server sent wrong once may arrive whole. */
static enum status make_image(struct pipeline *p,
                              struct sample_work *work,
                              struct read_slot *slot,
                              uint8_t *const views[AUGMENT_MAX_VIEWS],
                              uint64_t epoch,
                              uint32_t positive,
                              struct error *err) {
    struct remote_object *remote = shard_files_remote(p->files, slot->source.shard);
    enum status s = sample_work_image(work, views, &slot->source, slot->data, epoch, positive, err);
    for (int tries = 1; s == STATUS_CORRUPT && remote != NULL && tries < READ_TRIES; tries++) {
        *err = (struct error){0};
        remote_object_doubt(remote, slot->source.sample.image_offset,
                            slot->source.sample.image_span_bytes);
        TRY(reader_load(p, slot, err));
        s = sample_work_image(work, views, &slot->source, slot->data, epoch, positive, err);
    }
    return s;
}

enum status decode_sample(struct pipeline *p,
                          struct sample_work *work,
                          struct read_slot *slot,
                          struct error *err) {
    struct batch_slot *batch = &p->batch_slots[slot->batch_slot];
    size_t i = slot->index;
    uint64_t epoch = batch->batch.epoch;
    if (slot->damaged) {
        *err = slot->why;
        return STATUS_CORRUPT;
    }
    uint8_t *views[AUGMENT_MAX_VIEWS] = {0};
    for (uint32_t v = 0; v < p->opt.views; v++) {
        views[v] = batch->images[v] + i * p->image_bytes;
    }
    const uint32_t positive = sampler_positive_at(&p->sampler, &batch->batch, slot->index);
    if (pipeline_reads_images(p)) {
        TRY(make_image(p, work, slot, views, epoch, positive, err));
    }
    batch->sample_ids[i] = slot->source.sample.sample_id;
    batch->labels[i] = slot->source.sample.label;
    if (p->columns.count > 0) {
        const uint32_t source = slot->source.source;
        TRY(loader_columns_read(&p->columns, batch->columns + i * p->columns.values,
                                batch->present + i * p->columns.count, source,
                                batch->sample_ids[i] - p->sources->items[source].id_offset, err));
    }
    TRY(sample_work_text(work, batch->tokens + i * p->opt.max_tokens, &batch->lengths[i],
                         &batch->text_ids[i], &batch->captions[i], &slot->source, epoch, positive,
                         err));
    return sample_work_hook(work, slot->batch_slot, slot->index, &slot->source, slot->data, err);
}

/* Puts another sample of the same source into the slot. */
static enum status load_other(struct pipeline *p,
                              struct read_slot *slot,
                              uint64_t epoch,
                              uint64_t key,
                              uint32_t attempt,
                              struct error *err) {
    uint32_t source = slot->source.source;
    uint64_t ordinal = sampler_replacement(&p->sampler, source, epoch, key, attempt);
    slot->why = (struct error){0};
    enum status s = sources_sample_at(p->sources, source, ordinal, &slot->source, &slot->why);
    slot->damaged = s < STATUS_OK;
    return slot->damaged || !pipeline_reads_images(p) ? STATUS_OK : reader_load(p, slot, err);
}

/* Requires that the sample in the slot is damaged; `why` describes the damage. */
static enum status replace_sample(struct pipeline *p,
                                  struct sample_work *work,
                                  struct read_slot *slot,
                                  struct error *why,
                                  struct error *err) {
    uint64_t epoch = p->batch_slots[slot->batch_slot].batch.epoch;
    uint64_t id = slot->source.sample.sample_id;
    uint64_t key = id != LOADER_NO_SAMPLE ? id : ~slot->source.position;
    for (uint32_t attempt = 0; attempt < REPLACE_TRIES; attempt++) {
        if (!slot->damaged) {
            /* The whole file may have been replaced, rather than the sample damaged. */
            TRY(shard_files_check(p->files, slot->source.shard, err));
        }
        TRY(pipeline_corrupt(p, &slot->source, why, err));
        TRY(load_other(p, slot, epoch, key, attempt, err));
        *why = (struct error){0};
        enum status s = decode_sample(p, work, slot, why);
        if (s == STATUS_OK) {
            return STATUS_OK;
        }
        if (!decode_is_damage(s)) {
            *err = *why;
            return s;
        }
    }
    return error_set(err, STATUS_CORRUPT, "a sample and all %d drawn to replace it are damaged: %s",
                     REPLACE_TRIES, why->text);
}

void decode_run(struct pipeline *p, struct sample_work *work) {
    uint32_t id;
    while (pipeline_take_read(p, &id)) {
        struct read_slot *slot = &p->read_slots[id];
        struct error why = {0};
        struct error err = {0};
        uint64_t bytes = slot->damaged ? 0 : slot->source.sample.image_bytes;
        enum status s = decode_sample(p, work, slot, &why);
        bool replaced = decode_is_damage(s);
        if (replaced) {
            s = replace_sample(p, work, slot, &why, &err);
        } else if (s < STATUS_OK) {
            err = why;
        }
        if (s < STATUS_OK) {
            pipeline_fail(p, s, &err);
        } else {
            pipeline_decode_done(p, id, replaced, bytes, sample_work_ignored(work));
        }
    }
}
