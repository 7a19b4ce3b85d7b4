/*
 * trainer_step: one batch through the towers, the loss and the optimizer.
 *
 *   load     batch                = next one of the loader: images, captions, sample ids
 *   launch   lr, zeta_lr          = schedule(step or epoch)
 *   compute  X, T                 = towers(batch)            rows of length 1
 *            S                    = X T^T                    one tower: X X^T
 *            loss, G, state[ids]  = loss(S, state[ids], zeta_lr)   G = d loss / d S
 *            dX, dT               = G T, G^T X               one tower: dX = G X + G^T X
 *                                   (by tiles the loss does these three lines)
 *            gradients            = towers backward(dX, dT)
 *            parameters           = optimizer(parameters, gradients, lr)
 *   finish   loss, |gradients|    = read from the device
 *            one line of metrics.jsonl; if a number is not finite: nonfinite.json, end of the run
 *
 * The optimizer changes nothing once a loss or a gradient was not finite. What is loaded, encoded
 * and compared for pairs, views and blocks is in the table in trainer_task.c.
 *
 * Three kinds of calls do nothing in most runs: trainer_offbatch_* unless the loss needs off-batch
 * samples, trainer_meet and trainer_gather with one rank, and those of trainer_overlap.c on a CPU.
 * There a call does load, launch and finish of one step. On a device with a stream it launches step
 * n, then finishes step n - 1 and loads the batch of step n + 1 while the device computes step n.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <math.h>

#include "formats/base/clock.h"

/* ---- load ---- */

/* Each pair of a sample has its own dropout key. */
static void make_dropout_keys(const struct trainer *t, struct step_flight *f) {
    const uint64_t m = trainer_positives(&t->options);
    const uint64_t first = (uint64_t)comm_rank(t->comm) * trainer_local_count(&t->options);
    for (uint32_t i = 0; i < f->batch.count && f->dropout_keys != NULL; i++) {
        f->dropout_keys[i] = f->batch.sample_ids[i] * m + (first + i) % m;
    }
}

/* The next batch; when measuring steps an earlier one, or the given one. */
static enum status acquire(struct trainer *t, struct step_flight *f, struct error *err) {
    if (t->loader == NULL) {
        f->batch = t->given;
        return STATUS_OK;
    }
    f->place = loader_state(t->loader);
    TRY(f->kept ? STATUS_OK : loader_acquire(t->loader, &f->batch, err));
    f->kept = t->repeats;
    return STATUS_OK;
}

static enum status load(struct trainer *t, struct step_flight *f, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    comm_at(t->comm, t->step, COMM_PHASE_LOAD);
    TRY(acquire(t, f, err));
    f->held = true;
    f->waited_s = (double)(clock_now_ns() - start_ns) * 1e-9;
    f->step = t->step;
    make_dropout_keys(t, f);
    TRY(trainer_meet(t, f, err));
    return trainer_send_batch(t, f, err);
}

struct tower_input trainer_input(const struct step_flight *f) {
    return (struct tower_input){.count = f->batch.count,
                                .images = f->batch.images,
                                .images2 = f->batch.images2,
                                .tokens = f->batch.tokens,
                                .lengths = f->batch.lengths,
                                .dropout_keys =
                                    f->dropout_keys != NULL ? f->dropout_keys : f->batch.sample_ids,
                                .slot = f->slot,
                                .step = f->step};
}

/* ---- launch ---- */

/* Learning rates of the step: by step, or by epoch as in the published code. */
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
    if (o->loss.zeta_by_visit) {
        const uint64_t freeze = o->loss.zeta_freeze_epochs;
        const uint64_t epoch = f->batch.epoch;
        r->zeta_lr =
            epoch < freeze ? 0.0 : schedule_zeta_visit_rate(o->loss.zeta_lr, epoch - freeze);
        return;
    }
    r->zeta_lr =
        schedule_zeta_lr(o->loss.zeta_lr, o->loss.zeta_freeze_epochs * t->data.steps_per_epoch,
                         t->schedule.total_steps, f->step);
}

static enum status launch(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct loss_options *loss = &t->options.loss;
    f->start_ns = clock_now_ns();
    f->report.step = f->step + 1;
    f->report.epoch = f->batch.epoch;
    t->stop = f->stop;
    t->save = f->save;
    set_rates(t, f);
    const double zeta_lr =
        loss->zeta_by_visit && f->report.zeta_lr > 0.0 ? loss->zeta_lr : f->report.zeta_lr;
    *f->sent = (struct step_values){.step = f->step,
                                    .epoch = f->batch.epoch,
                                    .lr = f->report.lr,
                                    .zeta_lr_image = zeta_lr * loss->zeta_lr_image_ratio,
                                    .zeta_lr_text = zeta_lr};
    TRY(trainer_run_flight(t, f, err)); /* runs trainer_compute, now or queued */
    t->step++;
    return STATUS_OK;
}

/* ---- compute ---- */

/* S of one kind = a b^T, if the loss reads it. */
static enum status multiply(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *a,
                            const struct tensor *b,
                            struct error *err) {
    const struct matmul s = {
        .out = *trainer_similarity(t, kind), .a = *a, .b = *b, .transpose_b = true, .alpha = 1.0f};
    TRY(t->dev->ops->matmul(t->dev, &s, err));
    return trainer_hand_similarity(t, kind, err);
}

static bool uses_self(const struct trainer *t) {
    return trainer_task(&t->options)->sides == 2 && loss_uses_self(t->loss);
}

static enum status similarities(struct trainer *t, const struct tensor x[2], struct error *err) {
    if (t->tiled != NULL) {
        return STATUS_OK;
    }
    TRY(multiply(t, PAIR_CROSS, &x[0], &x[trainer_task(&t->options)->sides - 1], err));
    if (uses_self(t)) {
        TRY(multiply(t, PAIR_IMAGES, &x[0], &x[0], err));
        TRY(multiply(t, PAIR_TEXTS, &x[1], &x[1], err));
    }
    return trainer_offbatch_similarities(t, x, err);
}

/* Adds the embeddings' gradient from a matrix of one kind with itself: += 2 G x. */
static enum status add_self(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *dx,
                            const struct tensor *x,
                            struct error *err) {
    TRY(trainer_take_gradient(t, kind, err));
    const struct matmul m = {
        .out = *dx, .a = *trainer_gradient(t, kind), .b = *x, .mode = WRITE_ADD, .alpha = 2.0f};
    return t->dev->ops->matmul(t->dev, &m, err);
}

/* The loss treats every element of S as a variable: so, with one tower, dX = (G + G^T) X. */
static enum status
embedding_gradients(struct trainer *t, const struct tensor x[2], struct error *err) {
    const struct ops *ops = t->dev->ops;
    const int last = trainer_task(&t->options)->sides - 1;
    if (t->tiled != NULL) {
        return STATUS_OK;
    }
    TRY(trainer_take_gradient(t, PAIR_CROSS, err));
    const struct tensor *g = trainer_gradient(t, PAIR_CROSS);
    const struct matmul by_rows = {.out = t->dx[0], .a = *g, .b = x[last], .alpha = 1.0f};
    const struct matmul by_columns = {.out = t->dx[last],
                                      .a = *g,
                                      .b = x[0],
                                      .transpose_a = true,
                                      .mode = last == 0 ? WRITE_ADD : WRITE_SET,
                                      .alpha = 1.0f};
    TRY(ops->matmul(t->dev, &by_rows, err));
    TRY(ops->matmul(t->dev, &by_columns, err));
    if (uses_self(t)) {
        TRY(add_self(t, PAIR_IMAGES, &t->dx[0], &x[0], err));
        TRY(add_self(t, PAIR_TEXTS, &t->dx[1], &x[1], err));
    }
    return trainer_offbatch_gradients(t, x, err);
}

enum status trainer_compute(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct tower_input in = trainer_input(f);
    struct tensor x[2]; /* X, T */
    comm_at(t->comm, f->step, COMM_PHASE_FORWARD);
    TRY(trainer_offbatch_forward(t, f, &in, err));
    TRY(trainer_forward(t, x, &in, err));
    comm_at(t->comm, f->step, COMM_PHASE_LOSS);
    TRY(trainer_gather(t, x, err));
    TRY(similarities(t, x, err));
    TRY(trainer_step_loss(t, f, x, err));
    TRY(embedding_gradients(t, x, err));
    comm_at(t->comm, f->step, COMM_PHASE_BACKWARD);
    TRY(trainer_backward(t, t->dx, &t->own_dx, &in, err));
    TRY(trainer_offbatch_backward(t, err));
    comm_at(t->comm, f->step, COMM_PHASE_OPTIMIZER);
    TRY(optimizer_step(trainer_params(t), t->dev, t->values, &t->options.optimizer, err));
    return params_average(trainer_params(t), t->options.ema, err);
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
    if (t->loss == NULL || !loss_estimates_global(t->loss)) {
        r->global_loss = (double)NAN;
    }
    if (values->sound != 0) {
        return STATUS_OK;
    }
    if (t->loss_device != NULL) {
        TRY(loss_device_fault(t->loss_device, err));
    }
    return error_set(err, STATUS_CORRUPT, "gradients are not finite; lower the learning rate");
}

/* Writes nonfinite.json. The step's error stays as it is, even if that fails. The step, and its
 * failure, is the same on all ranks. */
static void dump_unsound(struct trainer *t, const struct step_flight *f, const struct error *why) {
    struct error ignored = {0};
    t->failed_together = true;
    if (trainer_is_first(t) && t->options.run != NULL &&
        trainer_dump(t, f, why != NULL ? why->text : "", &ignored) == STATUS_OK) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  t->saved_step == UINT64_MAX
                      ? "%s/nonfinite.json describes the step; no checkpoint is saved yet"
                      : "%s/nonfinite.json describes the step; the last checkpoint is intact",
                  t->options.run);
    }
}

/* By the host's clock, or by the device's if it ran this step directly after the previous one. */
static enum status measure(struct trainer *t, struct step_flight *f, struct error *err) {
    double waited_s = f->waited_s;
    double elapsed_s = (double)(clock_now_ns() - f->start_ns) * 1e-9 + waited_s + f->met_s;
    TRY(trainer_device_times(t, f, &waited_s, &elapsed_s, err));
    t->wait_s = (double)(comm_counters(t->comm).wait_ns - f->rank_wait_ns) * 1e-9;
    t->work_s = elapsed_s > t->wait_s ? elapsed_s - t->wait_s : 0.0;
    t->stages.report.load_s += waited_s;
    t->stages.report.ranks_s += t->wait_s;
    t->stages.report.step_s += t->work_s > waited_s ? t->work_s - waited_s : 0.0;
    f->report.stall_fraction = elapsed_s > 0.0 ? waited_s / elapsed_s : 0.0;
    f->report.pairs_per_s = elapsed_s > 0.0 ? (double)t->options.batch_count / elapsed_s : 0.0;
    return STATUS_OK;
}

static enum status report(struct trainer *t, struct step_flight *f, struct error *err) {
    f->report.device_bytes = trainer_device_bytes(t);
    TRY(metrics_step(t->metrics, &f->report, err));
    if (t->options.on_step != NULL) {
        t->options.on_step(t->options.cookie, &f->report, trainer_last_step(t));
    }
    return STATUS_OK;
}

static enum status finish(struct trainer *t, struct step_flight *f, struct error *err) {
    TRY(trainer_await(t, f, err));
    enum status s = read_values(t, f, err);
    if (s == STATUS_CORRUPT) {
        t->step = f->step;
        trainer_compute_again(t, f);
        dump_unsound(t, f, err);
    }
    THEN(s, measure(t, f, err));
    f->launched = false;
    f->held = false;
    if (t->loader != NULL && !f->kept) {
        loader_release(t->loader, &f->batch);
    }
    return s == STATUS_OK ? report(t, f, err) : s;
}

/* ---- one step after the other, or overlapped ---- */

/* The batch of the next step, early. A loader that fails reports it again when the step is due. */
static enum status load_ahead(struct trainer *t, struct step_flight *f, struct error *err) {
    struct error why = {0};
    if (!trainer_overlaps(t) || t->step == trainer_last_step(t)) {
        return STATUS_OK;
    }
    const enum status s = load(t, f, &why);
    return s == STATUS_OK || !f->held ? STATUS_OK : error_set(err, s, "%s", why.text);
}

static enum status step(struct trainer *t, bool *epoch_ended, struct error *err) {
    struct step_flight *f = &t->flights[t->flight];
    TRY(f->held ? STATUS_OK : load(t, f, err));
    const enum status s = launch(t, f, err);
    if (s == STATUS_CORRUPT) { /* the host computes the loss */
        TRY(trainer_drain(t, err));
        dump_unsound(t, f, err);
    }
    TRY(s);
    *epoch_ended = f->batch.step + 1 == t->data.steps_per_epoch;
    f = trainer_next_flight(t); /* on a CPU the same one */
    TRY(f->launched ? finish(t, f, err) : STATUS_OK);
    return load_ahead(t, f, err);
}

enum status trainer_one_step(struct trainer *t, bool *epoch_ended, struct error *err) {
    const enum status s = step(t, epoch_ended, err);
    if (s == STATUS_DEVICE || s == STATUS_NOMEM) { /* nothing can be copied to the host and saved */
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
