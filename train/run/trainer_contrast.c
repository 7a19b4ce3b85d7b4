/*
 * trainer_contrast: from embeddings to the gradients of embeddings, through similarities and loss.
 *
 * Where the device computes losses, similarities, gradients and the samples' state stay there and
 * the host does not wait:
 *
 *   S = X T^T -> loss_device_step -> G -> dX = G T, dT = G^T X
 *
 * Otherwise, and with --state host, S is copied to the host, loss_step does the rest, and G is
 * copied back.
 */
#include "train/run/trainer_internal.h"

#include <stdlib.h>
#include <string.h>

static enum status not_there(const char *state, const struct error *why, struct error *err) {
    return error_set(err, STATUS_USAGE, "--state %s is not possible: %s; use --state auto or host",
                     state, why->text);
}

/* Where the state of samples goes. */
static enum status
choose_place(const struct trainer *t, enum sample_state_place *out, struct error *err) {
    struct error why = {0};
    *out = SAMPLE_STATE_HOST;
    if (t->loss == NULL || t->options.state == TRAINER_STATE_HOST) {
        return STATUS_OK;
    }
    const bool offered = loss_device_offered(t->loss, t->dev, &why);
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

/* Room for similarities and their gradients on the host, and for one of them on the device. */
static enum status open_host_matrices(struct trainer *t, int64_t rows, struct error *err) {
    void *data = NULL;
    const size_t size_bytes = (size_t)(rows * rows) * sizeof(float);
    TRY(t->dev->ops->alloc(t->dev, size_bytes, &data, err));
    t->s = tensor_2d(data, DTYPE_F32, rows, rows);
    for (int i = 0; i < (t->loss != NULL && loss_uses_self(t->loss) ? PAIR_COUNT : 1); i++) {
        struct pair_matrix *p = &t->pairs[i];
        p->similarity = calloc((size_t)(rows * rows), sizeof *p->similarity);
        p->gradient = calloc((size_t)(rows * rows), sizeof *p->gradient);
        if (p->similarity == NULL || p->gradient == NULL) {
            return error_set(err, STATUS_NOMEM,
                             "no memory for a batch of %u; use a smaller --batch",
                             t->options.batch_count);
        }
    }
    return STATUS_OK;
}

size_t trainer_loss_bytes(const struct trainer_options *o, const struct loss *l, bool on_device) {
    const int64_t b = o->batch_count;
    const int64_t rows = trainer_rows(o);
    const bool alone = trainer_local_count(o) == o->batch_count;
    const size_t row = o->embed_dim * sizeof(float);
    /* dx and dt, or dx; of several ranks the gathered ones too, and own_dx of two views */
    const size_t embeddings =
        2 * (size_t)b * row * (alone ? 1 : 2) +
        (alone || o->task == TRAINER_PAIRS ? 0 : 2 * trainer_local_count(o) * row);
    const size_t matrix = (size_t)(rows * rows) * sizeof(float);
    return embeddings + sizeof(struct step_values) +
           (on_device ? loss_device_planned_bytes(l, b) : matrix) +
           (l != NULL && loss_carries(l) ? trainer_carry_bytes(o, l) : 0);
}

enum status trainer_open_contrast(struct trainer *t, struct error *err) {
    const int64_t b = t->options.batch_count;
    enum sample_state_place place;
    TRY(choose_place(t, &place, err));
    if (place == SAMPLE_STATE_HOST) {
        return open_host_matrices(t, trainer_rows(&t->options), err);
    }
    return loss_device_create(&t->loss_device, t->loss, t->state, t->dev, place, b, t->values, err);
}

/* The matrix of similarities on the device, and that of gradients: the same one where the host
 * computes the loss. */
static const struct tensor *similarity_of(const struct trainer *t, enum pair_kind kind) {
    return t->loss_device != NULL
               ? &loss_device_matrix(t->loss_device, (enum loss_device_matrix_kind)kind)->similarity
               : &t->s;
}

static const struct tensor *gradient_of(const struct trainer *t, enum pair_kind kind) {
    return t->loss_device != NULL
               ? &loss_device_matrix(t->loss_device, (enum loss_device_matrix_kind)kind)->gradient
               : &t->s;
}

/* a b^T, to the host too where it computes the loss. */
static enum status multiply(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *a,
                            const struct tensor *b,
                            struct error *err) {
    const struct ops *ops = t->dev->ops;
    const struct tensor *s = similarity_of(t, kind);
    TRY(ops->matmul(
        t->dev, &(struct matmul){.out = *s, .a = *a, .b = *b, .transpose_b = true, .alpha = 1.0f},
        err));
    return t->loss_device != NULL ? STATUS_OK
                                  : ops->download(t->dev, t->pairs[kind].similarity, s->data,
                                                  tensor_size_bytes(s), err);
}

/* The gradient in a matrix, from the host where it was computed there. */
static enum status take_gradient(struct trainer *t, enum pair_kind kind, struct error *err) {
    return t->loss_device != NULL ? STATUS_OK
                                  : t->dev->ops->upload(t->dev, t->s.data, t->pairs[kind].gradient,
                                                        tensor_size_bytes(&t->s), err);
}

static struct loss_input input_of(const struct trainer *t, const struct step_flight *f) {
    return (struct loss_input){.similarity = t->pairs[PAIR_CROSS].similarity,
                               .image_similarity = t->pairs[PAIR_IMAGES].similarity,
                               .text_similarity = t->pairs[PAIR_TEXTS].similarity,
                               .sample_ids = f->ids,
                               .carried_ids = t->carry.ids,
                               .carried_similarity = t->carry.similarity,
                               .batch_count = t->options.batch_count,
                               .step = f->step,
                               .epoch = f->batch.epoch,
                               .lr = f->sent->lr,
                               .zeta_lr_text = f->sent->zeta_lr_text,
                               .zeta_lr_image = f->sent->zeta_lr_image};
}

static enum status step_loss(struct trainer *t, struct step_flight *f, struct error *err) {
    if (t->loss_device != NULL) {
        return loss_device_step(t->loss_device, err);
    }
    if (t->loss == NULL) {
        return trainer_step_blocks(t, f, err);
    }
    const struct loss_input in = input_of(t, f);
    struct loss_output out = {.gradient = t->pairs[PAIR_CROSS].gradient,
                              .image_gradient = t->pairs[PAIR_IMAGES].gradient,
                              .text_gradient = t->pairs[PAIR_TEXTS].gradient,
                              .carried_gradient = t->carry.gradient};
    TRY(loss_step(t->loss, &in, &out, err));
    f->report.loss = out.value;
    f->report.global_loss = out.objective;
    f->report.tau = out.tau;
    f->report.batch = out.batch;
    return STATUS_OK;
}

/* The gradient of the embeddings from that of a matrix between one kind and itself: += 2 G x. */
static enum status add_self(struct trainer *t,
                            enum pair_kind kind,
                            const struct tensor *dx,
                            const struct tensor *x,
                            struct error *err) {
    TRY(take_gradient(t, kind, err));
    return t->dev->ops->matmul(
        t->dev,
        &(struct matmul){
            .out = *dx, .a = *gradient_of(t, kind), .b = *x, .mode = WRITE_ADD, .alpha = 2.0f},
        err);
}

enum status trainer_contrast_pairs(struct trainer *t,
                                   struct step_flight *f,
                                   const struct tensor *x,
                                   const struct tensor *text,
                                   struct error *err) {
    const struct ops *ops = t->dev->ops;
    const struct tensor *g = gradient_of(t, PAIR_CROSS);
    const bool self = loss_uses_self(t->loss);
    TRY(multiply(t, PAIR_CROSS, x, text, err));
    if (self) {
        TRY(multiply(t, PAIR_IMAGES, x, x, err));
        TRY(multiply(t, PAIR_TEXTS, text, text, err));
    }
    TRY(trainer_carry_scores(t, x, text, err));
    TRY(step_loss(t, f, err));
    TRY(take_gradient(t, PAIR_CROSS, err));
    const struct matmul dx = {.out = t->dx, .a = *g, .b = *text, .alpha = 1.0f};
    const struct matmul dt = {.out = t->dt, .a = *g, .b = *x, .transpose_a = true, .alpha = 1.0f};
    TRY(ops->matmul(t->dev, &dx, err));
    TRY(ops->matmul(t->dev, &dt, err));
    if (self) {
        TRY(add_self(t, PAIR_IMAGES, &t->dx, x, err));
        TRY(add_self(t, PAIR_TEXTS, &t->dt, text, err));
    }
    return trainer_carry_gradients(t, x, text, err);
}

enum status trainer_contrast_views(struct trainer *t,
                                   struct step_flight *f,
                                   const struct tensor *x,
                                   struct error *err) {
    const struct ops *ops = t->dev->ops;
    const struct tensor *g = gradient_of(t, PAIR_CROSS);
    TRY(multiply(t, PAIR_CROSS, x, x, err));
    TRY(trainer_carry_scores(t, x, NULL, err));
    TRY(step_loss(t, f, err));
    TRY(take_gradient(t, PAIR_CROSS, err));
    struct matmul dx = {.out = t->dx, .a = *g, .b = *x, .alpha = 1.0f};
    TRY(ops->matmul(t->dev, &dx, err));
    dx.transpose_a = true;
    dx.mode = WRITE_ADD;
    TRY(ops->matmul(t->dev, &dx, err));
    return trainer_carry_gradients(t, x, NULL, err);
}

enum status trainer_read_similarity(const struct trainer *t, float *out, struct error *err) {
    const struct tensor *s = similarity_of(t, PAIR_CROSS);
    if (t->loss_device == NULL) { /* the device's copy may hold a gradient by now */
        memcpy(out, t->pairs[PAIR_CROSS].similarity, tensor_size_bytes(s));
        return STATUS_OK;
    }
    return t->dev->ops->download(t->dev, out, s->data, tensor_size_bytes(s), err);
}
