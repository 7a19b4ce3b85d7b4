/*
 * trainer_loss: where the loss of a step is computed, and its matrices there.
 *
 * If the device computes the loss, similarities, gradients and per-sample state stay there and the
 * host does not wait:
 *
 *   S = X T^T -> loss_device_step -> G -> dX = G T, dT = G^T X
 *
 * Otherwise, and with --state-memory host, S is copied to the host, loss_step does the rest, and G
 * is copied back. With tiles (trainer_tile) there is no S, and train/loss/loss_tiled.c does all of
 * it.
 */
#include "train/run/trainer_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static enum status not_there(const char *state, const struct error *why, struct error *err) {
    return error_set(err, STATUS_USAGE,
                     "--state-memory %s is not possible: %s; use --state-memory auto or host",
                     state, why->text);
}

enum status trainer_tile(int64_t *out,
                         const struct trainer_options *o,
                         const struct loss *l,
                         uint32_t largest_whole,
                         struct error *err) {
    struct error why = {0};
    *out = 0;
    if (l == NULL || o->reference != NULL || o->teacher_image != NULL || largest_whole == 0) {
        (void)error_set(&why, STATUS_UNSUPPORTED,
                        "--task blocks, --reference, --teacher-image and --device cpu-ref require "
                        "the whole matrix of similarities, of at most %d samples",
                        LOSS_MAX_WHOLE);
    } else if (loss_has_tiles(l, &why)) {
        const bool large = o->batch_count > largest_whole;
        *out = o->loss_tile > 0 ? o->loss_tile : large ? LOSS_TILE : 0;
        return STATUS_OK;
    }
    FAIL_IF(o->loss_tile > 0, err, STATUS_USAGE, "--loss-tile is not possible: %s", why.text);
    FAIL_IF(o->batch_count > LOSS_MAX_WHOLE, err, STATUS_USAGE,
            "--batch-size %u is not possible: %s", (unsigned)o->batch_count, why.text);
    return STATUS_OK;
}

/* Chooses where per-sample state is stored. */
static enum status choose_place(const struct trainer *t,
                                int64_t tile,
                                enum sample_state_place *out,
                                struct error *err) {
    struct error why = {0};
    *out = SAMPLE_STATE_HOST;
    if (t->loss == NULL || t->options.state == TRAINER_STATE_HOST) {
        return STATUS_OK;
    }
    const bool host = trainer_has_columns(&t->options) || t->options.loss.recover_epochs > 0 ||
                      (tile > 0 && t->dev->losses != NULL);
    const bool offered = !host && loss_device_offered(t->loss, t->dev, &why);
    if (host) {
        (void)error_set(&why, STATUS_UNSUPPORTED,
                        "--weight, --reference, --teacher-image, --recover-state and losses by "
                        "tiles keep it on the host");
    }
    switch (t->options.state) {
    case TRAINER_STATE_DEVICE:
        *out = SAMPLE_STATE_DEVICE;
        return offered ? STATUS_OK : not_there("device", &why, err);
    case TRAINER_STATE_PINNED:
        *out = SAMPLE_STATE_PINNED;
        return offered ? STATUS_OK : not_there("pinned", &why, err);
    default:
        break;
    }
    if (!offered && t->dev->losses != NULL) {
        log_write(t->options.log, LOG_LEVEL_INFO, "loss and state stay on the host: %s", why.text);
    }
    return offered ? sample_state_choose_place(out, t->state, t->dev, err) : STATUS_OK;
}

/* Memory for similarities and gradients on the host, and for one matrix on the device. */
static enum status open_host_matrices(struct trainer *t, int64_t rows, struct error *err) {
    TRY(trainer_alloc_matrix(t, &t->s, rows, rows, err));
    for (int i = 0; i < (t->loss != NULL && loss_uses_self(t->loss) ? PAIR_COUNT : 1); i++) {
        struct pair_matrix *p = &t->pairs[i];
        p->similarity = calloc((size_t)(rows * rows), sizeof *p->similarity);
        p->gradient = calloc((size_t)(rows * rows), sizeof *p->gradient);
        FAIL_IF(p->similarity == NULL || p->gradient == NULL, err, STATUS_NOMEM,
                "no memory for a batch of %u; use a smaller --batch-size", t->options.batch_count);
    }
    return STATUS_OK;
}

size_t trainer_loss_bytes(const struct trainer_options *o,
                          const struct loss *l,
                          bool on_device,
                          int64_t tile) {
    const int64_t b = o->batch_count;
    const int64_t rows = trainer_rows(o);
    const bool alone = trainer_local_count(o) == o->batch_count;
    const size_t row = o->embed_dim * sizeof(float);
    /* dx; with several ranks also gathered embeddings, and own_dx of two views */
    const size_t embeddings =
        2 * (size_t)b * row * (alone ? 1 : 2) +
        (alone || o->task == TRAINER_PAIRS ? 0 : 2 * trainer_local_count(o) * row);
    const size_t matrix = (size_t)(rows * rows) * sizeof(float);
    return embeddings + sizeof(struct step_values) +
           (tile > 0    ? loss_tiled_bytes(b, tile)
            : on_device ? loss_device_planned_bytes(l, b)
                        : matrix) +
           (l != NULL && loss_carries(l) ? trainer_offbatch_bytes(o, l) : 0);
}

enum status trainer_open_loss(struct trainer *t, struct error *err) {
    enum sample_state_place place;
    int64_t tile;
    const uint32_t largest = t->dev->losses != NULL ? LOSS_MAX_WHOLE : LOSS_WHOLE;
    TRY(trainer_tile(&tile, &t->options, t->loss, t->dev->contrasts != NULL ? largest : 0, err));
    TRY(choose_place(t, tile, &place, err));
    if (tile > 0) {
        return loss_tiled_create(&t->tiled, t->loss, t->dev, t->options.batch_count, tile, t->comm,
                                 err);
    }
    return place == SAMPLE_STATE_HOST
               ? open_host_matrices(t, trainer_rows(&t->options), err)
               : loss_device_create(&t->loss_device, t->loss, t->state, t->dev, place,
                                    t->options.batch_count, t->values, err);
}

/* ---- matrices ---- */

const struct tensor *trainer_similarity(const struct trainer *t, enum pair_kind kind) {
    return t->loss_device != NULL
               ? &loss_device_matrix(t->loss_device, (enum loss_device_matrix_kind)kind)->similarity
               : &t->s;
}

const struct tensor *trainer_gradient(const struct trainer *t, enum pair_kind kind) {
    return t->loss_device != NULL
               ? &loss_device_matrix(t->loss_device, (enum loss_device_matrix_kind)kind)->gradient
               : &t->s;
}

enum status trainer_hand_similarity(struct trainer *t, enum pair_kind kind, struct error *err) {
    return t->loss_device != NULL ? STATUS_OK
                                  : t->dev->ops->download(t->dev, t->pairs[kind].similarity,
                                                          t->s.data, tensor_size_bytes(&t->s), err);
}

enum status trainer_take_gradient(struct trainer *t, enum pair_kind kind, struct error *err) {
    return t->loss_device != NULL ? STATUS_OK
                                  : t->dev->ops->upload(t->dev, t->s.data, t->pairs[kind].gradient,
                                                        tensor_size_bytes(&t->s), err);
}

enum status trainer_read_similarity(const struct trainer *t, float *out, struct error *err) {
    const struct tensor *s = trainer_similarity(t, PAIR_CROSS);
    if (t->loss_device == NULL) { /* the device's copy may hold a gradient by now */
        memcpy(out, t->pairs[PAIR_CROSS].similarity, tensor_size_bytes(s));
        return STATUS_OK;
    }
    return t->dev->ops->download(t->dev, out, s->data, tensor_size_bytes(s), err);
}

/* ---- the loss ---- */

static enum status step_on_host(struct trainer *t,
                                struct step_flight *f,
                                const struct tensor x[2],
                                struct error *err) {
    const struct pair_matrix *p = t->pairs;
    const struct trainer_rows *rows = t->options.rows;
    TRY(trainer_take_columns(t, f, err));
    const struct loss_input in = {.similarity = t->reference.size > 0 ? t->reference.matrix
                                                                      : p[PAIR_CROSS].similarity,
                                  .weights = t->options.weight != NULL ? t->weights : NULL,
                                  .image_similarity = p[PAIR_IMAGES].similarity,
                                  .text_similarity = p[PAIR_TEXTS].similarity,
                                  .sample_ids = f->ids,
                                  .caption_ids = f->caption_ids,
                                  .carried_ids = t->offbatch.ids,
                                  .carried_similarity = t->offbatch.similarity,
                                  .batch_count = t->options.batch_count,
                                  .step = f->step,
                                  .epoch = f->batch.epoch,
                                  .lr = f->sent->lr,
                                  .zeta_lr_text = f->sent->zeta_lr_text,
                                  .zeta_lr_image = f->sent->zeta_lr_image};
    struct loss_output out = {.gradient = p[PAIR_CROSS].gradient,
                              .image_gradient = p[PAIR_IMAGES].gradient,
                              .text_gradient = p[PAIR_TEXTS].gradient,
                              .row_values = rows != NULL ? rows->losses : NULL,
                              .carried_gradient = t->offbatch.gradient};
    TRY(t->tiled != NULL ? loss_tiled_step(t->tiled, x, t->dx, &in, &out, err)
                         : loss_step(t->loss, &in, &out, err));
    if (t->teacher.size > 0) {
        const struct distill d = {.weight = t->options.distill_weight,
                                  .tau = t->options.distill_tau > 0.0 ? t->options.distill_tau
                                                                      : out.tau,
                                  .teacher_tau = t->options.teacher_tau,
                                  .similarity = p[PAIR_CROSS].similarity,
                                  .teacher = t->teacher.matrix};
        f->report.distill_loss = distill_add(&d, &in, &out);
    }
    for (uint32_t i = 0; rows != NULL && i < t->options.batch_count; i++) {
        rows->ids[i] = f->ids[i];
        rows->weights[i] = in.weights != NULL ? in.weights[i] : 1.0F;
    }
    f->report.loss = out.value;
    f->report.global_loss = out.objective;
    f->report.tau = out.tau;
    f->report.batch = out.batch;
    return STATUS_OK;
}

enum status trainer_step_loss(struct trainer *t,
                              struct step_flight *f,
                              const struct tensor x[2],
                              struct error *err) {
    return t->loss_device != NULL ? loss_device_step(t->loss_device, err)
           : t->loss == NULL      ? trainer_step_blocks(t, f, err)
                                  : step_on_host(t, f, x, err);
}
