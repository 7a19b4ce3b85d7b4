/*
 * trainer_step: one batch through the towers, the loss and the optimizer.
 *
 *   load     batch                = next one of the loader: images, captions, sample ids
 *   launch   lr, zeta_lr          = schedule(step or epoch)
 *            X, T                 = towers(batch)            rows of length 1
 *            S                    = X T^T                    two views: T is X
 *            loss, G, state[ids]  = loss(S, state[ids], zeta_lr)   G = d loss / d S
 *            dX, dT               = G T, G^T X
 *            gradients            = towers backward(dX, dT)
 *            parameters           = optimizer(parameters, gradients, lr)
 *   finish   loss, |gradients|    = read from the device
 *            one line of metrics.jsonl; if a number is not finite: nonfinite.json, end of the run
 *
 * The optimizer changes nothing once a loss or a gradient was not finite.
 *
 * On a device without a stream each call does load, launch and finish of one step. On a device
 * with a stream (trainer_overlap.c) it launches step n, then finishes step n - 1 and loads the
 * batch of step n + 1 while the device computes step n.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "formats/base/clock.h"
#include "kernels/device_stream.h"

/* ---- memory ---- */

enum status trainer_open_steps(struct trainer *t, struct error *err) {
    const size_t ids_count = comm_world(t->comm) > 1 ? t->options.batch_count : 0;
    const size_t keys_count =
        trainer_positives(&t->options) > 1 ? trainer_local_count(&t->options) : 0;
    const size_t size_bytes =
        2 * sizeof(struct step_values) + (ids_count + keys_count) * sizeof(uint64_t);
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        void *data;
        f->slot = trainer_overlaps(t) ? i + 1 : 0;
        if (trainer_overlaps(t)) {
            TRY(t->dev->stream->alloc_host(t->dev, size_bytes, &data, err));
        } else if ((data = calloc(1, size_bytes)) == NULL) {
            return error_set(err, STATUS_NOMEM, "trainer: out of memory");
        }
        f->sent = data;
        f->received = f->sent + 1;
        uint64_t *rows = (uint64_t *)(f->sent + 2);
        f->gathered_ids = ids_count > 0 ? rows : NULL;
        f->dropout_keys = keys_count > 0 ? rows + ids_count : NULL;
    }
    t->records = trainer_overlaps(t) && t->options.record_steps;
    return STATUS_OK;
}

void trainer_close_steps(struct trainer *t) {
    if (t->dev == NULL) {
        return;
    }
    const bool overlaps = trainer_overlaps(t);
    if (overlaps) {
        trainer_overlap_close(t);
    }
    for (int i = 0; i < TRAINER_FLIGHTS; i++) {
        struct step_flight *f = &t->flights[i];
        if (f->held) {
            loader_release(t->loader, &f->batch);
        }
        if (overlaps) {
            t->dev->stream->free_host(t->dev, f->sent);
        } else {
            free(f->sent);
        }
        *f = (struct step_flight){0};
    }
}

/* ---- load ---- */

/* The pairs of a sample drop out apart. */
static void make_dropout_keys(const struct trainer *t, struct step_flight *f) {
    const uint64_t m = trainer_positives(&t->options);
    const uint64_t first = (uint64_t)comm_rank(t->comm) * trainer_local_count(&t->options);
    for (uint32_t i = 0; i < f->batch.count && f->dropout_keys != NULL; i++) {
        f->dropout_keys[i] = f->batch.sample_ids[i] * m + (first + i) % m;
    }
}

static enum status load(struct trainer *t, struct step_flight *f, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    comm_at(t->comm, t->step, COMM_PHASE_LOAD);
    f->place = loader_state(t->loader);
    TRY(loader_acquire(t->loader, &f->batch, err));
    f->held = true;
    f->waited_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    f->step = t->step;
    make_dropout_keys(t, f);
    TRY(trainer_meet(t, f, err));
    return trainer_overlaps(t) ? trainer_overlap_put(t, f, err) : STATUS_OK;
}

/* ---- launch ---- */

/* Learning rates of the step: by steps, or by epochs as the published code has it. */
static void set_rates(const struct trainer *t, struct step_flight *f) {
    const struct trainer_options *o = &t->options;
    struct step_report *r = &f->report;
    if (o->loss.parity == LOSS_PARITY_REFERENCE) {
        r->lr = schedule_reference_lr(&t->schedule, o->epochs, f->batch.epoch, f->batch.step);
        r->zeta_lr = schedule_reference_zeta_lr(o->loss.zeta_lr, o->loss.zeta_freeze_epochs,
                                                o->epochs, f->batch.epoch);
        return;
    }
    r->lr = schedule_lr(&t->schedule, f->step);
    r->zeta_lr =
        schedule_zeta_lr(o->loss.zeta_lr, o->loss.zeta_freeze_epochs * t->data.steps_per_epoch,
                         t->schedule.total_steps, f->step);
}

enum status trainer_send_values(struct trainer *t, const struct step_flight *f, struct error *err) {
    if (t->loss_device != NULL) {
        TRY(loss_device_put_ids(t->loss_device, f->ids, err));
    }
    return t->dev->ops->upload(t->dev, t->values, f->sent, STEP_VALUES_SET_BYTES, err);
}

enum status trainer_compute(struct trainer *t, struct step_flight *f, struct error *err) {
    TRY(trainer_towers_run(t, f, err));
    comm_at(t->comm, f->step, COMM_PHASE_OPTIMIZER);
    return optimizer_step(trainer_params(t), t->dev, t->values, &t->options.optimizer, err);
}

static enum status run(struct trainer *t, struct step_flight *f, struct error *err) {
    TRY(trainer_send_values(t, f, err));
    TRY(trainer_compute(t, f, err));
    return t->dev->ops->download(t->dev, f->received, t->values, sizeof *f->received, err);
}

static enum status launch(struct trainer *t, struct step_flight *f, struct error *err) {
    const double image_ratio = t->options.loss.zeta_lr_image_ratio;
    f->start_ns = clock_now_ns();
    f->report.step = f->step + 1;
    f->report.epoch = f->batch.epoch;
    t->stop = f->stop;
    t->save = f->save;
    set_rates(t, f);
    *f->sent = (struct step_values){.step = f->step,
                                    .epoch = f->batch.epoch,
                                    .lr = f->report.lr,
                                    .zeta_lr_image = f->report.zeta_lr * image_ratio,
                                    .zeta_lr_text = f->report.zeta_lr};
    TRY((trainer_overlaps(t) ? trainer_overlap_run : run)(t, f, err));
    f->launched = true;
    t->step++;
    return STATUS_OK;
}

/* ---- finish ---- */

/* Completes the report with what the device computed. Returns OK, or CORRUPT if a number is not
 * finite. */
static enum status read_values(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct step_values *values = f->received;
    struct step_report *r = &f->report;
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

/* Writes nonfinite.json. The step's error stays as it is, even if that fails. The step is the same
 * on all ranks, and so is its failure. */
static void dump_unsound(struct trainer *t, const struct step_flight *f, const struct error *why) {
    struct error ignored = {0};
    t->failed_together = true;
    if (trainer_is_first(t) &&
        trainer_dump(t, f, why != NULL ? why->text : "", &ignored) == STATUS_OK) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "%s/nonfinite.json describes the step; the last checkpoint is intact",
                  t->options.run);
    }
}

/* The gradients on the device are those of a later step by now: computes those of `f` again for
 * the dump. Its inputs are still in place, and parameters have not changed. */
static void compute_again(struct trainer *t, struct step_flight *f) {
    struct error ignored = {0};
    const struct step_report report = f->report;
    if (t->dev->ops->sync(t->dev, &ignored) == STATUS_OK &&
        trainer_send_values(t, f, &ignored) == STATUS_OK) {
        (void)trainer_compute(t, f, &ignored);
    }
    f->report = report;
}

/* By the host's clock, or by the device's if it went from the step before straight to this one. */
static enum status measure(struct trainer *t, struct step_flight *f, struct error *err) {
    double waited_s = f->waited_s;
    double elapsed_s = (double)(clock_now_ns() - f->start_ns) * 1e-9 + waited_s + f->met_s;
    if (f->follows) {
        TRY(trainer_overlap_times(t, f, &waited_s, &elapsed_s, err));
    }
    t->wait_s = (double)(comm_counters(t->comm).wait_ns - f->rank_wait_ns) * 1e-9;
    t->work_s = elapsed_s > t->wait_s ? elapsed_s - t->wait_s : 0.0;
    t->stages.report.load_s += waited_s;
    t->stages.report.ranks_s += t->wait_s;
    t->stages.report.step_s += t->work_s > waited_s ? t->work_s - waited_s : 0.0;
    f->report.stall_fraction = elapsed_s > 0.0 ? waited_s / elapsed_s : 0.0;
    f->report.pairs_per_s = elapsed_s > 0.0 ? (double)t->options.batch_count / elapsed_s : 0.0;
    return STATUS_OK;
}

/* Asking the driver costs tens of microseconds, and memory grows in the first steps: looks at those
 * and at one of every 64 after them. */
static void watch_memory(struct trainer *t) {
    if (t->dev->stream != NULL && (t->reported_steps < 8 || t->reported_steps % 64 == 0)) {
        const uint64_t now = t->dev->stream->counters(t->dev).memory_bytes;
        t->device_bytes = now > t->device_bytes ? now : t->device_bytes;
    }
    t->reported_steps++;
}

static enum status report(struct trainer *t, struct step_flight *f, struct error *err) {
    watch_memory(t);
    f->report.device_bytes = t->device_bytes;
    TRY(metrics_step(t->metrics, &f->report, err));
    if (t->options.on_step != NULL) {
        t->options.on_step(t->options.cookie, &f->report, trainer_last_step(t));
    }
    return STATUS_OK;
}

static enum status finish(struct trainer *t, struct step_flight *f, struct error *err) {
    if (trainer_overlaps(t)) {
        TRY(trainer_overlap_wait(t, f, err));
    }
    enum status s = read_values(t, f, err);
    if (s == STATUS_CORRUPT) {
        t->step = f->step;
        if (trainer_overlaps(t)) {
            compute_again(t, f);
        }
        dump_unsound(t, f, err);
    }
    if (s == STATUS_OK) {
        s = measure(t, f, err);
    }
    f->launched = false;
    f->held = false;
    loader_release(t->loader, &f->batch);
    return s == STATUS_OK ? report(t, f, err) : s;
}

/* ---- one step after the other, or overlapped ---- */

/* The batch of the next step, early. A loader that fails reports it again when the step is due. */
static enum status load_ahead(struct trainer *t, struct step_flight *f, struct error *err) {
    struct error why = {0};
    const enum status s = load(t, f, &why);
    return s == STATUS_OK || !f->held ? STATUS_OK : error_set(err, s, "%s", why.text);
}

static enum status step(struct trainer *t, bool *epoch_ended, struct error *err) {
    struct step_flight *f = &t->flights[t->flight];
    struct step_flight *other = &t->flights[1 - t->flight]; /* the step before, if they overlap */
    if (!f->held) {
        TRY(load(t, f, err));
    }
    f->follows = other->launched;
    const enum status s = launch(t, f, err);
    if (s == STATUS_CORRUPT) { /* of a loss that the host computes */
        if (other->launched) {
            TRY(finish(t, other, err));
        }
        dump_unsound(t, f, err);
    }
    TRY(s);
    *epoch_ended = f->batch.step + 1 == t->data.steps_per_epoch;
    if (!trainer_overlaps(t)) {
        return finish(t, f, err);
    }
    t->flight = 1 - t->flight;
    if (other->launched) {
        TRY(finish(t, other, err));
    }
    return t->step == trainer_last_step(t) ? STATUS_OK : load_ahead(t, other, err);
}

enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    const enum status s = step(t, epoch_ended, err);
    if (s == STATUS_DEVICE || s == STATUS_NOMEM) { /* nothing can be fetched to be saved */
        log_write(t->options.log, LOG_LEVEL_WARN,
                  t->saved_step == UINT64_MAX
                      ? "the device failed after step %" PRIu64 "; nothing is saved yet"
                      : "the device failed after step %" PRIu64
                        "; the last checkpoint is intact, continue with --resume",
                  t->step);
    }
    return s;
}

enum status trainer_drain(struct trainer *t, struct error *err) {
    struct step_flight *last = &t->flights[1 - t->flight];
    return last->launched ? finish(t, last, err) : STATUS_OK;
}

struct loader_state trainer_place(const struct trainer *t) {
    const struct step_flight *next = &t->flights[t->flight];
    return next->held && !next->launched ? next->place : loader_state(t->loader);
}
