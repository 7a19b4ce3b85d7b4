/*
 * trainer_steps: steps of the trainer without a run, to be measured: no directory, no checkpoints,
 * no evaluation.
 */
#include <stdlib.h>

#include "kernels/device_stream.h"
#include "train/run/trainer_internal.h"

static enum status open_parts(struct trainer *t, uint32_t vocab_count, struct error *err) {
    const struct trainer_options *o = &t->options;
    TRY(comm_open_alone(&t->alone, err));
    t->comm = t->alone;
    TRY(trainer_open_loader(t, err));
    if (t->loader == NULL) {
        t->data = (struct loader_info){
            .sample_count = o->batch_count, .id_space = o->batch_count, .steps_per_epoch = 1};
    }
    FAIL_IF(t->data.vocab_count > vocab_count, err, STATUS_USAGE,
            "%s has %u pieces: give --vocab %u or more", o->sources[0].directory,
            (unsigned)t->data.vocab_count, (unsigned)t->data.vocab_count);
    t->data.vocab_count = vocab_count;
    TRY(trainer_open_model(t, err));
    trainer_make_schedule(t);
    return STATUS_OK;
}

enum status trainer_open_steps(struct trainer **out,
                               const struct trainer_options *opt,
                               uint32_t vocab_count,
                               struct error *err) {
    struct trainer *t = calloc(1, sizeof *t);
    TRY_MEMORY(t, err, "trainer: out of memory");
    t->options = *opt;
    t->saved_step = UINT64_MAX;
    const enum status s = open_parts(t, vocab_count, err);
    RETURN_CREATED(s, out, t, trainer_destroy);
}

struct device *trainer_device(const struct trainer *t) {
    return t->dev;
}

enum status
trainer_alloc_host(const struct trainer *t, size_t size_bytes, void **out, struct error *err) {
    if (trainer_overlaps(t)) {
        return t->dev->stream->alloc_host(t->dev, size_bytes, out, err);
    }
    *out = calloc(1, size_bytes);
    TRY_MEMORY(*out, err, "no memory for a batch of %u", t->options.batch_count);
    return STATUS_OK;
}

void trainer_give_batch(struct trainer *t, const struct loader_batch *batch) {
    t->given = *batch;
}

void trainer_free_given(struct trainer *t) {
    const struct loader_batch *b = &t->given;
    const void *const parts[] = {b->images, b->tokens, b->lengths, b->sample_ids};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        void *part = (void *)(uintptr_t)parts[i];
        if (part != NULL && trainer_overlaps(t)) {
            t->dev->stream->free_host(t->dev, part);
        } else {
            free(part);
        }
    }
}

enum status trainer_run_steps(struct trainer *t,
                              uint64_t count,
                              bool op_by_op,
                              bool repeat,
                              struct error *err) {
    const bool captures = t->captures;
    enum status s = STATUS_OK;
    t->repeats = repeat;
    t->captures = captures && !op_by_op;
    for (uint64_t i = 0; i < count && s == STATUS_OK; i++) {
        bool unused;
        s = trainer_stop_asked(t) ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
                                  : trainer_one_step(t, &unused, err);
    }
    t->captures = op_by_op ? captures : t->captures;
    THEN(s, trainer_drain(t, err));
    return s;
}

uint64_t trainer_batch_tokens(const struct trainer *t) {
    const struct step_flight *f = t->flights[0].kept ? &t->flights[0] : &t->flights[1];
    const struct loader_batch *b = t->loader == NULL ? &t->given : &f->batch;
    uint64_t sum = 0;
    for (uint32_t i = 0; (t->loader == NULL || f->kept) && i < b->count; i++) {
        sum += (uint64_t)b->lengths[i];
    }
    return sum;
}

size_t trainer_device_memory(const struct trainer *t) {
    const struct tensor *const parts[] = {&t->s, &t->dx[0], &t->dx[1]};
    size_t sum = dual_encoder_memory_used(t->model).total_bytes + sizeof *t->values;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        sum += parts[i]->data != NULL ? tensor_size_bytes(parts[i]) : 0;
    }
    if (t->loss_device != NULL) {
        sum += loss_device_bytes(t->loss_device);
    }
    if (t->tiled != NULL) {
        const uint32_t tile = t->options.loss_tile > 0 ? t->options.loss_tile : LOSS_TILE;
        sum += loss_tiled_bytes(t->options.batch_count, tile);
    }
    return sum +
           (sample_state_where(t->state) == SAMPLE_STATE_DEVICE ? sample_state_bytes(t->state) : 0);
}
