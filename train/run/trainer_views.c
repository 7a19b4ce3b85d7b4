/*
 * trainer_views: one batch of two views: S = X X^T of all 2B of them, the loss, and the embeddings'
 * gradient (G + G^T) X, because every element of S is a variable of its own to the loss.
 */
#include "train/run/trainer_internal.h"

struct view_encoder_batch trainer_views_batch(const struct loader_batch *batch, int32_t slot) {
    return (struct view_encoder_batch){.count = (int32_t)batch->count,
                                       .first = batch->images,
                                       .second = batch->images2,
                                       .slot = slot};
}

enum status trainer_views_pass(struct trainer *t,
                               struct step_report *r,
                               const struct loader_batch *batch,
                               int32_t slot,
                               struct error *err) {
    const struct view_encoder_batch views = trainer_views_batch(batch, slot);
    struct tensor x;
    TRY(view_encoder_forward(t->views, &x, &views, err));
    TRY(trainer_contrast_views(t, r, &x, batch, err));
    return view_encoder_backward(t->views, &t->dx, &views, WRITE_SET, err);
}
