/*
 * trainer_towers: what differs between pairs (dual_encoder), captions alone (likewise) and
 * two views of every image (view_encoder): how a batch is handed to the model, and its way through
 * it.
 */
#include "train/comm/comm_device.h"
#include "train/run/trainer_internal.h"

static struct dual_encoder_batch pairs_of(const struct trainer *t, const struct step_flight *f) {
    return (struct dual_encoder_batch){.count = (int32_t)f->batch.count,
                                       .images = f->batch.images,
                                       .tokens = f->batch.tokens,
                                       .lengths = f->batch.lengths,
                                       .sample_ids = f->dropout_keys != NULL ? f->dropout_keys
                                                                             : f->batch.sample_ids,
                                       .seed = t->options.seed,
                                       .values = t->values,
                                       .slot = f->slot};
}

/* Of blocks, the first half of the images as first views, the rest as second ones: embeddings are
 * in the order of the images. */
static struct view_encoder_batch views_of(const struct trainer *t, const struct step_flight *f) {
    if (t->options.task == TRAINER_BLOCKS) {
        const size_t half = f->batch.count / 2;
        const size_t image_bytes = (size_t)3 * t->options.image_size_px * t->options.image_size_px;
        return (struct view_encoder_batch){.count = (int32_t)half,
                                           .first = f->batch.images,
                                           .second = f->batch.images + half * image_bytes,
                                           .slot = f->slot};
    }
    return (struct view_encoder_batch){.count = (int32_t)f->batch.count,
                                       .first = f->batch.images,
                                       .second = f->batch.images2,
                                       .slot = f->slot};
}

/* What is drawn by the batch's own embeddings needs them before its forward: an earlier one, of the
 * same numbers. */
static enum status
draw_of_pairs(struct trainer *t, const struct step_flight *f, struct error *err) {
    struct dual_encoder_batch pairs = pairs_of(t, f);
    struct tensor x;
    struct tensor text;
    pairs.beside = true;
    TRY(trainer_cache_refresh(t, f, err));
    TRY(dual_encoder_forward(t->model, &x, &text, &pairs, true, err));
    TRY(trainer_gather_rows(t, &x, &t->x, &x, err));
    TRY(trainer_gather_rows(t, &text, &t->text, &text, err));
    return trainer_cache_draw(t, f, &x, &text, err);
}

static enum status
draw_of_views(struct trainer *t, const struct step_flight *f, struct error *err) {
    struct view_encoder_batch views = views_of(t, f);
    struct tensor x;
    views.beside = true;
    TRY(trainer_cache_refresh(t, f, err));
    TRY(view_encoder_forward(t->views, &x, &views, err));
    TRY(trainer_gather_views(t, &x, &t->x, &x, err));
    return trainer_cache_draw(t, f, &x, NULL, err);
}

static enum status run_pairs(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct dual_encoder_batch pairs = pairs_of(t, f);
    const struct gradient_ready ready = {trainer_sum_range, t};
    const struct tensor dx = trainer_own_rows(t, &t->dx);
    const struct tensor dt = trainer_own_rows(t, &t->dt);
    struct tensor x;
    struct tensor text;
    comm_at(t->comm, f->step, COMM_PHASE_FORWARD);
    TRY(t->carry.sides[0].cache != NULL ? draw_of_pairs(t, f, err) : STATUS_OK);
    TRY(trainer_carry_forward(t, f, err));
    TRY(dual_encoder_forward(t->model, &x, &text, &pairs, true, err));
    comm_at(t->comm, f->step, COMM_PHASE_LOSS);
    TRY(trainer_gather_rows(t, &x, &t->x, &x, err));
    TRY(trainer_gather_rows(t, &text, &t->text, &text, err));
    TRY(trainer_contrast_pairs(t, f, &x, &text, err));
    comm_at(t->comm, f->step, COMM_PHASE_BACKWARD);
    TRY(dual_encoder_backward(t->model, &dx, &dt, &pairs, WRITE_SET, &ready, err));
    TRY(trainer_carry_backward(t, &ready, err));
    return comm_device_finish(t->comm, t->dev, err);
}

static enum status run_texts(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct dual_encoder_batch texts = pairs_of(t, f);
    const struct gradient_ready ready = {trainer_sum_range, t};
    struct tensor x;
    comm_at(t->comm, f->step, COMM_PHASE_FORWARD);
    TRY(dual_encoder_forward(t->model, NULL, &x, &texts, true, err));
    comm_at(t->comm, f->step, COMM_PHASE_LOSS);
    TRY(trainer_contrast_views(t, f, &x, err));
    comm_at(t->comm, f->step, COMM_PHASE_BACKWARD);
    TRY(dual_encoder_backward(t->model, NULL, &t->dx, &texts, WRITE_SET, &ready, err));
    return comm_device_finish(t->comm, t->dev, err);
}

static enum status run_views(struct trainer *t, struct step_flight *f, struct error *err) {
    const struct view_encoder_batch views = views_of(t, f);
    const struct gradient_ready ready = {trainer_sum_range, t};
    struct tensor x;
    struct tensor dx;
    comm_at(t->comm, f->step, COMM_PHASE_FORWARD);
    TRY(t->carry.sides[0].cache != NULL ? draw_of_views(t, f, err) : STATUS_OK);
    TRY(trainer_carry_forward(t, f, err));
    TRY(view_encoder_forward(t->views, &x, &views, err));
    comm_at(t->comm, f->step, COMM_PHASE_LOSS);
    TRY(trainer_gather_views(t, &x, &t->x, &x, err));
    TRY(trainer_contrast_views(t, f, &x, err));
    comm_at(t->comm, f->step, COMM_PHASE_BACKWARD);
    TRY(trainer_own_views(t, &dx, &t->own_dx, &t->dx, err));
    TRY(view_encoder_backward(t->views, &dx, &views, WRITE_SET, &ready, err));
    TRY(trainer_carry_backward(t, &ready, err));
    return comm_device_finish(t->comm, t->dev, err);
}

enum status trainer_towers_run(struct trainer *t, struct step_flight *f, struct error *err) {
    return t->views != NULL                       ? run_views(t, f, err)
           : trainer_has_texts_alone(&t->options) ? run_texts(t, f, err)
                                                  : run_pairs(t, f, err);
}

enum status trainer_towers_put(struct trainer *t, const struct step_flight *f, struct error *err) {
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t, f);
        return view_encoder_put(t->views, &views, err);
    }
    const struct dual_encoder_batch pairs = pairs_of(t, f);
    return dual_encoder_put(t->model, &pairs, err);
}

uint64_t trainer_towers_shape(const struct trainer *t, int32_t slot) {
    return t->views != NULL ? view_encoder_shape(t->views, slot)
                            : dual_encoder_shape(t->model, slot);
}
