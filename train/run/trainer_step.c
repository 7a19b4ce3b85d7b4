/*
 * trainer_step: one batch through towers, loss, optimiser, one step after the other; steps that
 * overlap with what the host does are in trainer_overlap.
 *
 * A step never changes parameters before it is known to be sound: a similarity or gradient that is
 * not finite ends the run before they are written.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>

#include "formats/base/clock.h"
#include "kernels/device_stream.h"

/* Learning rates of the step: by steps, or by epochs as the published code has it. */
void trainer_rates(const struct trainer *t,
                   struct step_report *r,
                   const struct loader_batch *batch) {
    const struct trainer_options *o = &t->options;
    if (o->loss.parity == LOSS_PARITY_REFERENCE) {
        r->lr = schedule_reference_lr(&t->schedule, o->epochs, batch->epoch, batch->step);
        r->zeta_lr = schedule_reference_zeta_lr(o->loss.zeta_lr, o->loss.zeta_freeze_epochs,
                                                o->epochs, batch->epoch);
        return;
    }
    r->lr = schedule_lr(&t->schedule, t->step);
    r->zeta_lr =
        schedule_zeta_lr(o->loss.zeta_lr, o->loss.zeta_freeze_epochs * t->data.steps_per_epoch,
                         t->schedule.total_steps, t->step);
}

struct dual_encoder_batch
trainer_encoder_batch(const struct trainer *t, const struct loader_batch *batch, int32_t slot) {
    return (struct dual_encoder_batch){.count = (int32_t)batch->count,
                                       .images = batch->images,
                                       .tokens = batch->tokens,
                                       .lengths = batch->lengths,
                                       .sample_ids = batch->sample_ids,
                                       .seed = t->options.seed,
                                       .values = t->values,
                                       .slot = slot};
}

static enum status pairs_pass(struct trainer *t,
                              struct step_report *r,
                              const struct loader_batch *batch,
                              int32_t slot,
                              struct error *err) {
    const struct dual_encoder_batch input = trainer_encoder_batch(t, batch, slot);
    struct tensor x;
    struct tensor text;
    TRY(dual_encoder_forward(t->model, &x, &text, &input, true, err));
    TRY(trainer_contrast_pairs(t, r, &x, &text, batch, err));
    return dual_encoder_backward(t->model, &t->dx, &t->dt, &input, WRITE_SET, err);
}

enum status trainer_compute(struct trainer *t,
                            struct step_report *r,
                            const struct loader_batch *batch,
                            int32_t slot,
                            struct error *err) {
    TRY(t->views != NULL ? trainer_views_pass(t, r, batch, slot, err)
                         : pairs_pass(t, r, batch, slot, err));
    return optimizer_step(trainer_params(t), t->dev, t->values, &t->options.optimizer, err);
}

struct step_values trainer_values(const struct trainer *t,
                                  const struct step_report *r,
                                  const struct loader_batch *batch) {
    return (struct step_values){.step = t->step,
                                .epoch = batch->epoch,
                                .lr = r->lr,
                                .zeta_lr_image = r->zeta_lr * t->options.loss.zeta_lr_image_ratio,
                                .zeta_lr_text = r->zeta_lr};
}

enum status trainer_put_values(struct trainer *t,
                               const struct step_values *values,
                               const struct loader_batch *batch,
                               struct error *err) {
    if (t->loss_device != NULL) {
        TRY(loss_device_put_ids(t->loss_device, batch->sample_ids, err));
    }
    return t->dev->ops->upload(t->dev, t->values, values, STEP_VALUES_SET_BYTES, err);
}

enum status trainer_read_values(struct trainer *t,
                                struct step_report *r,
                                const struct step_values *values,
                                struct error *err) {
    r->grad_norm = values->grad_norm;
    if (t->loss_device != NULL) {
        r->loss = values->loss;
        r->global_loss = values->objective;
        r->tau = values->tau;
        for (int side = 0; side < 2; side++) {
            r->batch.log_u[side] = values->batch_log_u[side];
            r->batch.zeta[side] = values->batch_zeta[side];
        }
    }
    if (values->sound != 0) {
        return STATUS_OK;
    }
    if (t->loss_device != NULL) {
        TRY(loss_device_fault(t->loss_device, err));
    }
    return error_set(err, STATUS_CORRUPT, "gradients are not finite; lower the learning rate");
}

/* The step's error stays what it is, whatever becomes of the dump. */
void trainer_tell_unsound(struct trainer *t,
                          const struct step_report *r,
                          const struct loader_batch *batch,
                          const struct error *why) {
    struct error ignored = {0};
    if (trainer_dump(t, r, batch, why != NULL ? why->text : "", &ignored) == STATUS_OK) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "%s/nonfinite.json says what was there; the last checkpoint is sound",
                  t->options.run);
    }
}

/* Asking the driver takes tens of microseconds and memory grows in the first steps, so those are
 * looked at and one of every 64 behind them. */
static void watch_memory(struct trainer *t) {
    if (t->dev->stream != NULL && (t->told_steps < 8 || t->told_steps % 64 == 0)) {
        const uint64_t now = t->dev->stream->counters(t->dev).memory_bytes;
        t->device_bytes = now > t->device_bytes ? now : t->device_bytes;
    }
    t->told_steps++;
}

enum status trainer_tell_step(struct trainer *t, const struct step_report *r, struct error *err) {
    struct step_report told = *r;
    watch_memory(t);
    told.device_bytes = t->device_bytes;
    TRY(metrics_step(t->metrics, &told, err));
    if (t->options.on_step != NULL) {
        t->options.on_step(t->options.cookie, &told, trainer_last_step(t));
    }
    return STATUS_OK;
}

static enum status train_batch(struct trainer *t,
                               struct step_report *r,
                               const struct loader_batch *batch,
                               struct error *err) {
    trainer_rates(t, r, batch);
    struct step_values values = trainer_values(t, r, batch);
    TRY(trainer_put_values(t, &values, batch, err));
    TRY(trainer_compute(t, r, batch, 0, err));
    TRY(t->dev->ops->download(t->dev, &values, t->values, sizeof values, err));
    TRY(trainer_read_values(t, r, &values, err));
    t->step++;
    r->step = t->step;
    r->epoch = batch->epoch;
    r->replaced_count = batch->replaced_count;
    return STATUS_OK;
}

static enum status single_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    struct step_report r = {0};
    struct loader_batch batch;
    const int64_t start_ns = clock_now_ns();
    TRY(loader_acquire(t->loader, &batch, err));
    const int64_t ready_ns = clock_now_ns();
    const enum status s = train_batch(t, &r, &batch, err);
    if (s == STATUS_CORRUPT) {
        trainer_tell_unsound(t, &r, &batch, err);
    }
    *epoch_ended = batch.step + 1 == t->data.steps_per_epoch;
    loader_release(t->loader, &batch);
    TRY(s);
    const double elapsed_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    r.stall_fraction = (double)(ready_ns - start_ns) * 1e-9 / elapsed_s;
    r.pairs_per_s = (double)t->options.batch_count / elapsed_s;
    return trainer_tell_step(t, &r, err);
}

enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    const enum status s =
        (trainer_overlaps(t) ? trainer_overlapped_step : single_step)(t, epoch_ended, err);
    if (s == STATUS_DEVICE || s == STATUS_NOMEM) { /* nothing can be fetched to be saved */
        log_write(t->options.log, LOG_LEVEL_WARN,
                  t->saved_step == UINT64_MAX
                      ? "the device gave up after step %" PRIu64 "; nothing is saved yet"
                      : "the device gave up after step %" PRIu64
                        "; the last checkpoint is sound, --resume goes on from there",
                  t->step);
    }
    return s;
}
