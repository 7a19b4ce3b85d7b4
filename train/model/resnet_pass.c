/*
 * The forward and backward pass of the image tower. How the four slots of scratch memory take turns
 * is described in resnet.c.
 *
 * Shapes in comments: N images, P pixels of a side before a unit and P' after it, I channels before
 * and O after.
 */
#include "train/model/carve_internal.h"
#include "train/model/resnet.h"
#include "train/model/resnet_internal.h"

/* ---- forward ---- */

/* *x: in, the block's input (N, P, P, I); out, its output (N, P', P', O) */
static enum status block_forward(const struct resnet *r,
                                 const struct block *b,
                                 struct tensor *x,
                                 enum resnet_pass pass,
                                 struct error *err) {
    int64_t n = x->shape[0];
    struct tensor residual = *x;
    if (b->has_shortcut) {
        struct tensor in = *x;
        if (b->has_average) {
            in = first_rows(b->averaged, n);
            const struct avgpool average = {.out = in, .in = *x, .pool = AVERAGE_POOL};
            TRY(r->units.dev->ops->avgpool(r->units.dev, &average, err));
        }
        TRY(unit_forward(&r->units, &b->shortcut, in, NOT_WANTED, pass, err));
        residual = first_rows(b->shortcut.out, n);
    }
    for (int32_t i = 0; i < b->unit_count; i++) {
        bool last = i + 1 == b->unit_count;
        TRY(unit_forward(&r->units, &b->units[i], *x, last ? residual : NOT_WANTED, pass, err));
        *x = first_rows(b->units[i].out, n);
    }
    return STATUS_OK;
}

enum status resnet_forward(struct resnet *r,
                           struct tensor *features,
                           const struct tensor *images,
                           enum resnet_pass pass,
                           struct error *err) {
    REQUIRE(r->units.dev != NULL && (pass == RESNET_INFERENCE || r->opt.training));
    REQUIRE(images->ndim == 4 && images->shape[0] >= 1 && images->shape[0] <= r->opt.max_batch);
    const struct ops *ops = r->units.dev->ops;
    int64_t n = images->shape[0];
    struct tensor x = first_rows(r->input, n); /* (N, S, S, 3) */
    const struct normalize_u8 normalize = {
        .out = x, .in = *images, .norm = &IMAGE_NORMS[r->opt.norm]};
    TRY(ops->normalize_u8(r->units.dev, &normalize, err));
    for (int32_t i = 0; i < r->stem_count; i++) {
        TRY(unit_forward(&r->units, &r->stem[i], x, NOT_WANTED, pass, err));
        x = first_rows(r->stem[i].out, n); /* (N, S/2, S/2, width) after the last */
    }
    if (r->has_pool) {
        const struct maxpool op = {.out = first_rows(r->pooled, n), /* (N, S/4, S/4, width) */
                                   .argmax = first_rows(r->pool_places, n),
                                   .in = x,
                                   .pool = MAX_POOL};
        TRY(ops->maxpool(r->units.dev, &op, err));
        x = op.out;
    }
    for (int32_t k = 0; k < r->block_count; k++) {
        TRY(block_forward(r, &r->blocks[k], &x, pass, err));
    }
    *features = first_rows(r->features, n);
    const struct global_avgpool op = {.out = *features, .in = x}; /* (N, S/32, S/32, F) -> (N, F) */
    return ops->global_avgpool(r->units.dev, &op, err);
}

/* ---- backward ---- */

/* dshortcut (N, P', P', O) -> dx (N, P, P, I), set. `spare` is free memory. */
static enum status shortcut_backward(struct resnet *r,
                                     const struct block *b,
                                     struct tensor x,
                                     struct tensor dx,
                                     struct tensor dshortcut,
                                     const struct tensor *spare,
                                     enum write_mode mode,
                                     struct error *err) {
    if (!b->has_average) {
        return unit_backward(&r->units, &b->shortcut, x, dx, WRITE_SET, NOT_WANTED, dshortcut, mode,
                             err);
    }
    int64_t n = x.shape[0];
    struct tensor averaged = first_rows(b->averaged, n);
    struct tensor daveraged = shaped(spare, n, b->shortcut.in_px, b->shortcut.in_channels);
    TRY(unit_backward(&r->units, &b->shortcut, averaged, daveraged, WRITE_SET, NOT_WANTED,
                      dshortcut, mode, err));
    const struct avgpool_bwd average = {.din = dx, .dout = daveraged, .pool = AVERAGE_POOL};
    return r->units.dev->ops->avgpool_bwd(r->units.dev, &average, err);
}

/* x is the block's input. *at: in, the slot of dL/d(output); out, that of dL/dx. */
static enum status block_backward(struct resnet *r,
                                  const struct block *b,
                                  const struct tensor *x,
                                  int32_t *at,
                                  enum write_mode mode,
                                  struct error *err) {
    const struct tensor *free_slot = &r->slots[*at]; /* free once the last unit is done */
    const struct tensor *inner_slot = &r->slots[(*at + 1) % SLOT_COUNT];
    const struct tensor *residual_slot = &r->slots[(*at + 3) % SLOT_COUNT];
    int32_t x_at = (*at + 2) % SLOT_COUNT;
    int64_t n = x->shape[0];
    const struct unit *last = &b->units[b->unit_count - 1];
    struct tensor dout = shaped(free_slot, n, last->out_px, last->out_channels);
    struct tensor dx = shaped(&r->slots[x_at], n, (int64_t)b->units[0].in_px, x->shape[3]);
    struct tensor dshortcut = shaped(residual_slot, n, last->out_px, last->out_channels);
    struct tensor inner = shaped(inner_slot, n, last->in_px, last->in_channels);

    /* The last unit: into the one before it, and into the shortcut (which may be x itself). */
    struct tensor in = first_rows(last[-1].out, n);
    TRY(unit_backward(&r->units, last, in, inner, WRITE_SET, b->has_shortcut ? dshortcut : dx, dout,
                      mode, err));
    if (b->has_shortcut) {
        TRY(shortcut_backward(r, b, *x, dx, dshortcut, free_slot, mode, err));
    }
    if (b->unit_count == 3) {
        const struct unit *middle = &b->units[1];
        struct tensor din = shaped(free_slot, n, middle->in_px, middle->in_channels);
        in = first_rows(b->units[0].out, n);
        TRY(unit_backward(&r->units, middle, in, din, WRITE_SET, NOT_WANTED, inner, mode, err));
        inner = din;
    }
    *at = x_at;
    return unit_backward(&r->units, &b->units[0], *x, dx, WRITE_ADD, NOT_WANTED, inner, mode, err);
}

/* Backward through pool and stem from the slot of dL/d(first block's input). */
static enum status
stem_backward(struct resnet *r, int64_t n, int32_t at, enum write_mode mode, struct error *err) {
    const struct unit *last = &r->stem[r->stem_count - 1];
    struct tensor dout = shaped(&r->slots[at], n, last->out_px, last->out_channels);
    if (r->has_pool) {
        struct maxpool_bwd op = {.dout = shaped(&r->slots[at], n, r->pool_px, r->opt.width),
                                 .argmax = first_rows(r->pool_places, n),
                                 .pool = MAX_POOL};
        at = (at + 1) % SLOT_COUNT;
        dout = shaped(&r->slots[at], n, last->out_px, last->out_channels);
        op.din = dout;
        TRY(r->units.dev->ops->maxpool_bwd(r->units.dev, &op, err));
    }
    for (int32_t i = r->stem_count - 1; i > 0; i--) {
        const struct unit *u = &r->stem[i];
        struct tensor in = first_rows(r->stem[i - 1].out, n);
        at = (at + 1) % SLOT_COUNT;
        struct tensor din = shaped(&r->slots[at], n, u->in_px, u->in_channels);
        TRY(unit_backward(&r->units, u, in, din, WRITE_SET, NOT_WANTED, dout, mode, err));
        dout = din;
    }
    struct tensor input = first_rows(r->input, n);
    return unit_backward(&r->units, &r->stem[0], input, NOT_WANTED, WRITE_SET, NOT_WANTED, dout,
                         mode, err);
}

enum status resnet_backward(struct resnet *r,
                            const struct tensor *dfeatures,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err) {
    REQUIRE(r->units.dev != NULL && r->opt.training && dfeatures->ndim == 2);
    REQUIRE(dfeatures->shape[0] >= 1 && dfeatures->shape[0] <= r->opt.max_batch);
    int64_t n = dfeatures->shape[0];
    const struct block *b = &r->blocks[r->block_count - 1];
    const struct unit *end = &b->units[b->unit_count - 1];
    int32_t at = 0;
    struct tensor dx = shaped(&r->slots[at], n, end->out_px, end->out_channels);
    TRY(r->units.dev->ops->global_avgpool_bwd(
        r->units.dev, &(struct global_avgpool_bwd){.din = dx, .dout = *dfeatures}, err));
    for (int32_t k = r->block_count - 1; k >= 0; k--) {
        struct tensor x; /* the block's input */
        if (k > 0) {
            const struct block *up = &r->blocks[k - 1];
            x = first_rows(up->units[up->unit_count - 1].out, n);
        } else {
            x = first_rows(r->has_pool ? r->pooled : r->stem[r->stem_count - 1].out, n);
        }
        TRY(block_backward(r, &r->blocks[k], &x, &at, mode, err));
        TRY(gradients_final(sums, r->blocks[k].units[0].weight, err));
    }
    TRY(stem_backward(r, n, at, mode, err));
    return gradients_final(sums, r->stem[0].weight, err);
}
