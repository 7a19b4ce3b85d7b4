/*
 * trainer_views: one batch of two views: S = X X^T of all 2B of them, the loss on the host, and the
 * embeddings' gradient (G + G^T) X, because every element of S is a variable of its own to the
 * loss.
 */
#include "train/trainer_internal.h"

enum status trainer_views_pass(struct trainer *t,
                               struct step_report *r,
                               const struct loader_batch *batch,
                               struct error *err) {
    const struct ops *ops = t->dev->ops;
    struct pair_matrix *p = &t->pairs[PAIR_CROSS];
    const size_t size_bytes = tensor_size_bytes(&t->s);
    const struct view_encoder_batch views = {
        .count = (int32_t)batch->count, .first = batch->images, .second = batch->images2};
    struct tensor x;
    TRY(view_encoder_forward(t->views, &x, &views, err));
    TRY(ops->matmul(t->dev, &t->s, WRITE_SET, &x, false, &x, true, 1.0f, err));
    TRY(ops->download(t->dev, p->similarity, t->s.data, size_bytes, err));
    const struct loss_input in = trainer_loss_input(t, r, batch);
    struct loss_output out = {.gradient = p->gradient};
    TRY(loss_step(t->loss, &in, &out, err));
    r->loss = out.value;
    r->global_loss = out.objective;
    r->tau = out.tau;
    TRY(ops->upload(t->dev, t->s.data, out.gradient, size_bytes, err));
    TRY(ops->matmul(t->dev, &t->dx, WRITE_SET, &t->s, false, &x, false, 1.0f, err));
    TRY(ops->matmul(t->dev, &t->dx, WRITE_ADD, &t->s, true, &x, false, 1.0f, err));
    return view_encoder_backward(t->views, &t->dx, &views, WRITE_SET, err);
}
