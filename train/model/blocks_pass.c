/*
 * The forward and backward pass of the blocks. Shapes are those of blocks_internal.h.
 */
#include "train/model/blocks.h"
#include "train/model/blocks_internal.h"

/* ---- forward ---- */

/* One pass over one batch. */
struct pass {
    const struct blocks *b;
    struct device *dev;
    const struct ops *ops;
    const struct blocks_batch *batch;
    int64_t n; /* N */
    bool training;
    enum write_mode mode; /* of gradients of parameters, backward */
};

static struct pass begin(const struct blocks *b, const struct blocks_batch *batch, bool training) {
    return (struct pass){.b = b,
                         .dev = b->dev,
                         .ops = b->dev->ops,
                         .batch = batch,
                         .n = batch->segments.starts.shape[0],
                         .training = training};
}

/* Rows of block i after attention: R. */
static int64_t rows_after(const struct pass *p, int32_t i) {
    return blocks_is_narrow(p->b, i) ? p->n : p->batch->rows;
}

/* Mask streams: 0 the input, 2 i + 1 attention of block i, 2 i + 2 its FFN. */
static struct dropout_params mask(const struct pass *p, int32_t layer) {
    return (struct dropout_params){.p = p->training ? p->b->opt.dropout : 0.0f,
                                   .seed = p->batch->seed,
                                   .values = p->batch->values,
                                   .layer = (uint32_t)layer,
                                   .sample_ids = p->batch->sample_ids};
}

static bool drops(const struct pass *p) {
    return p->training && p->b->opt.dropout > 0.0f;
}

/* out (R, D) = mask(in), in place allowed. Called if drops(p). A narrow block has only one row per
 * sequence, numbered as its first one. */
static enum status
drop(const struct pass *p, struct tensor out, struct tensor in, int32_t layer, struct error *err) {
    struct dropout op = {.out = out, .in = in, .dropout = mask(p, layer)};
    if (out.shape[0] != p->n) {
        op.segments = p->batch->segments;
    }
    return p->ops->dropout(p->dev, &op, err);
}

/* `op` with the layer's parameters; q, k and v have three times as many as the tensor. */
static enum status
linear_forward(const struct pass *p, const struct affine *l, struct linear op, struct error *err) {
    op.weight = params_tensor(p->b->params, l->weight);
    op.bias = params_tensor(p->b->params, l->bias);
    op.weight.shape[0] = op.bias.shape[0] = op.out.shape[1];
    return p->ops->linear(p->dev, &op, err);
}

enum status norm_forward(const struct norm *n,
                         struct device *dev,
                         const struct params *p,
                         struct tensor out,
                         struct tensor b,
                         float eps,
                         struct error *err) {
    const int64_t rows = out.shape[0];
    const struct tensor sum = first_rows(n->sum, rows);
    return dev->ops->layernorm(dev,
                               &(struct layernorm){.out = out,
                                                   .sum = sum,
                                                   .mean = first_rows(n->mean, rows),
                                                   .rstd = first_rows(n->rstd, rows),
                                                   .a = sum,
                                                   .b = b,
                                                   .gamma = params_tensor(p, n->gamma),
                                                   .beta = params_tensor(p, n->beta),
                                                   .eps = eps},
                               err);
}

/* Norm k of branch + *skip, which becomes the next skip. */
static enum status
norm(const struct pass *p, int32_t k, struct tensor out, struct tensor *skip, struct error *err) {
    const struct norm *n = &p->b->norms[k];
    TRY(norm_forward(n, p->dev, p->b->params, out, *skip, p->b->opt.eps, err));
    *skip = blocks_post_norm(p->b) ? out : first_rows(n->sum, out.shape[0]);
    return STATUS_OK;
}

/* (N, H, T) */
static struct tensor lse_of(const struct pass *p, const struct block *l) {
    return tensor_3d(l->lse.data, l->lse.dtype, p->n, p->b->opt.heads, p->batch->longest);
}

/* x (M, D) -> l->context (M, D) */
static enum status
attention_forward(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    const struct block *l = &p->b->list[i];
    const int64_t m = p->batch->rows;
    const struct linear linear = {.out = first_rows(l->qkv_rows, m), .in = x};
    TRY(linear_forward(p, &l->qkv, linear, err));
    return p->ops->attention(p->dev,
                             &(struct attention){.out = first_rows(l->context, m),
                                                 .lse = lse_of(p, l),
                                                 .qkv = linear.out,
                                                 .segments = p->batch->segments,
                                                 .heads = p->b->opt.heads,
                                                 .causal = p->b->opt.causal,
                                                 .dropout = mask(p, 2 * i + 1)},
                             err);
}

/* x (M, D), out of norm 2i, and *skip (M, D) -> l->x (R, D) and the next skip */
static enum status block_forward(const struct pass *p,
                                 int32_t i,
                                 struct tensor x,
                                 struct tensor *skip,
                                 struct error *err) {
    const struct block *l = &p->b->list[i];
    const struct norm *norms = p->b->norms;
    const int64_t r = rows_after(p, i);
    TRY(attention_forward(p, i, x, err));
    struct tensor context = first_rows(l->context, p->batch->rows); /* (M, D) */
    if (blocks_is_narrow(p->b, i)) {
        const struct gather_rows picked = {
            .out = first_rows(l->picked, r), .in = context, .rows = p->batch->picked}; /* (N, D) */
        const struct gather_rows skipped = {
            .out = first_rows(l->skipped, r), .in = *skip, .rows = p->batch->picked};
        TRY(p->ops->gather_rows(p->dev, &picked, err));
        TRY(p->ops->gather_rows(p->dev, &skipped, err));
        context = picked.out;
        *skip = skipped.out;
    }
    struct tensor sum = first_rows(norms[2 * i + 1].sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->out, (struct linear){.out = sum, .in = context}, err));
    const struct tensor h = first_rows(l->h, r); /* (R, D) */
    TRY(norm(p, 2 * i + 1, h, skip, err));

    const struct linear lin1 = {.out = first_rows(l->hidden, r), /* (R, F) */
                                .pre = first_rows(l->pre, r),
                                .in = h,
                                .act = p->b->opt.act};
    TRY(linear_forward(p, &l->lin1, lin1, err));
    sum = first_rows(norms[2 * i + 2].sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->lin2, (struct linear){.out = sum, .in = lin1.out}, err));
    if (drops(p)) {
        TRY(drop(p, sum, sum, 2 * i + 2, err));
    }
    return norm(p, 2 * i + 2, first_rows(l->x, r), skip, err);
}

/* Recomputes norm k. */
static enum status
norm_again(const struct pass *p, int32_t k, struct tensor out, struct error *err) {
    return norm_forward(&p->b->norms[k], p->dev, p->b->params, out, NOT_WANTED, p->b->opt.eps, err);
}

/* Recomputes x (M, D), the input of block i's attention, unless it was kept. */
static enum status
input_again(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    if (p->b->keep == BLOCKS_KEEP_ALL) {
        return STATUS_OK;
    }
    TRY(norm_again(p, 2 * i, x, err));
    return i == 0 && drops(p) && blocks_post_norm(p->b) ? drop(p, x, x, 0, err) : STATUS_OK;
}

enum status blocks_forward(struct blocks *b,
                           struct tensor *out,
                           const struct blocks_batch *batch,
                           bool training,
                           struct error *err) {
    const struct pass p = begin(b, batch, training);
    struct tensor x = first_rows(b->x, batch->rows); /* (M, D) */
    struct tensor skip = NOT_WANTED;
    TRY(norm(&p, 0, x, &skip, err));
    if (drops(&p) && blocks_post_norm(b)) {
        TRY(drop(&p, x, x, 0, err));
    }
    for (int32_t i = 0; i < b->opt.layers; i++) {
        TRY(block_forward(&p, i, x, &skip, err));
        x = first_rows(b->list[i].x, rows_after(&p, i));
    }
    *out = x;
    return STATUS_OK;
}

/* ---- backward ----
 *
 * `branch` is the gradient of a norm's output along the branch that reads it, `skip` that of its
 * skip. Post-norm the skip is the output, so one buffer holds the sum of both; pre-norm it is the
 * norm's sum, to whose gradient the norm's backward pass adds. */

struct chain {
    struct tensor branch; /* post-norm: with the skip's added */
    struct tensor skip;   /* pre-norm; not present before the last norm */
};

/* A workspace buffer that is neither x nor y. */
static struct tensor other(const struct pass *p, struct tensor x, struct tensor y, int64_t rows) {
    int32_t k = 0;
    while (p->b->grad[k].data == x.data || p->b->grad[k].data == y.data) {
        k++;
    }
    return first_rows(p->b->grad[k], rows);
}

enum status norm_backward(const struct norm *n,
                          struct device *dev,
                          const struct params *p,
                          struct tensor dsum,
                          enum write_mode dsum_mode,
                          struct tensor dout,
                          enum write_mode mode,
                          struct error *err) {
    const int64_t rows = dout.shape[0];
    return dev->ops->layernorm_bwd(dev,
                                   &(struct layernorm_bwd){.dsum = dsum,
                                                           .dgamma = params_grad(p, n->gamma),
                                                           .dbeta = params_grad(p, n->beta),
                                                           .dout = dout,
                                                           .sum = first_rows(n->sum, rows),
                                                           .mean = first_rows(n->mean, rows),
                                                           .rstd = first_rows(n->rstd, rows),
                                                           .gamma = params_tensor(p, n->gamma),
                                                           .dsum_mode = dsum_mode,
                                                           .param_mode = mode},
                                   err);
}

/* Norm k. *dsum (R, D), the gradient of its input sum, is the gradient of the branch before it and
 * of the skip; pre-norm it is c->skip from now on. c->branch is consumed. */
static enum status norm_back(const struct pass *p,
                             int32_t k,
                             struct tensor *dsum,
                             struct chain *c,
                             struct error *err) {
    const bool adds = tensor_present(&c->skip);
    *dsum = adds ? c->skip : other(p, c->branch, NOT_WANTED, c->branch.shape[0]);
    TRY(norm_backward(&p->b->norms[k], p->dev, p->b->params, *dsum, adds ? WRITE_ADD : WRITE_SET,
                      c->branch, p->mode, err));
    if (!blocks_post_norm(p->b)) {
        c->skip = *dsum;
    }
    return STATUS_OK;
}

/* `op` with the layer's parameters and their gradients. */
static enum status linear_backward(const struct pass *p,
                                   const struct affine *l,
                                   struct linear_bwd op,
                                   struct error *err) {
    op.weight = params_tensor(p->b->params, l->weight);
    op.dweight = params_grad(p->b->params, l->weight);
    op.dbias = params_grad(p->b->params, l->bias);
    op.weight.shape[0] = op.dweight.shape[0] = op.dbias.shape[0] = op.dout.shape[1];
    op.param_mode = p->mode;
    return p->ops->linear_bwd(p->dev, &op, err);
}

/* Block i's FFN: from c->branch at norm 2i + 2 to c->branch at norm 2i + 1. */
static enum status
ffn_backward(const struct pass *p, int32_t i, struct chain *c, struct error *err) {
    const struct block *l = &p->b->list[i];
    const int64_t r = c->branch.shape[0];
    struct tensor dsum;
    TRY(norm_back(p, 2 * i + 2, &dsum, c, err));
    const struct tensor spare = other(p, dsum, NOT_WANTED, r);
    struct tensor df = dsum;
    if (drops(p)) {
        TRY(drop(p, spare, dsum, 2 * i + 2, err));
        df = spare;
    }
    const struct linear_bwd lin2 = {
        .din = first_rows(p->b->dffn, r), .dout = df, .in = first_rows(l->hidden, r)};
    if (p->b->keep == BLOCKS_KEEP_PRODUCTS) {
        const struct gelu gelu = {lin2.in, first_rows(l->pre, r), p->b->opt.act};
        TRY(p->ops->gelu(p->dev, &gelu, err));
        TRY(norm_again(p, 2 * i + 1, first_rows(l->h, r), err));
    }
    TRY(linear_backward(p, &l->lin2, lin2, err));
    const bool post = blocks_post_norm(p->b);
    c->branch = post ? dsum : spare;
    const struct linear_bwd lin1 = {.din = c->branch,
                                    .din_mode = post ? WRITE_ADD : WRITE_SET,
                                    .dpre = first_rows(p->b->dpre, r),
                                    .dout = lin2.din,
                                    .in = first_rows(l->h, r),
                                    .pre = first_rows(l->pre, r),
                                    .act = p->b->opt.act};
    return linear_backward(p, &l->lin1, lin1, err);
}

/* Attention proper and q, k, v. dcontext (M, D) -> dx (M, D), set or added. */
static enum status attention_backward(const struct pass *p,
                                      int32_t i,
                                      struct tensor x,
                                      struct tensor dx,
                                      enum write_mode dx_mode,
                                      struct tensor dcontext,
                                      struct error *err) {
    const struct block *l = &p->b->list[i];
    const int64_t m = p->batch->rows;
    const struct attention_bwd attention = {.dqkv = first_rows(p->b->dqkv, m), /* (M, 3D) */
                                            .dout = dcontext,
                                            .out = first_rows(l->context, m),
                                            .lse = lse_of(p, l),
                                            .qkv = first_rows(l->qkv_rows, m),
                                            .segments = p->batch->segments,
                                            .heads = p->b->opt.heads,
                                            .causal = p->b->opt.causal,
                                            .dropout = mask(p, 2 * i + 1)};
    TRY(p->ops->attention_bwd(p->dev, &attention, err));
    const struct linear_bwd qkv = {.din = dx, .din_mode = dx_mode, .dout = attention.dqkv, .in = x};
    return linear_backward(p, &l->qkv, qkv, err);
}

/* to (M, D) = rows (N, D) in the picked rows, 0 in the others */
static enum status
widen(const struct pass *p, struct tensor to, struct tensor rows, struct error *err) {
    const struct scatter_rows scatter = {.out = to, .in = rows, .rows = p->batch->picked};
    TRY(p->ops->fill(p->dev, &(struct fill){.out = to}, err));
    return p->ops->scatter_rows(p->dev, &scatter, err);
}

/* Block i's attention: from c->branch at norm 2i + 1 to norm 2i, whose output is x (M, D).
 */
static enum status
mix_backward(const struct pass *p, int32_t i, struct tensor x, struct chain *c, struct error *err) {
    const struct block *l = &p->b->list[i];
    const bool narrow = blocks_is_narrow(p->b, i);
    const bool post = blocks_post_norm(p->b);
    const int64_t r = c->branch.shape[0];
    const int64_t m = p->batch->rows;
    struct tensor dsum;
    TRY(norm_back(p, 2 * i + 1, &dsum, c, err));
    const struct tensor dcontext = other(p, dsum, NOT_WANTED, r);
    const struct linear_bwd out = {
        .din = dcontext, .dout = dsum, .in = first_rows(narrow ? l->picked : l->context, r)};
    TRY(linear_backward(p, &l->out, out, err));
    if (!narrow) {
        c->branch = post ? dsum : dcontext; /* pre-norm: attention has read it by then */
        return attention_backward(p, i, x, c->branch, post ? WRITE_ADD : WRITE_SET, dcontext, err);
    }
    const struct tensor wide = other(p, dsum, dcontext, m);
    TRY(widen(p, wide, dcontext, err));
    c->branch = first_rows(dcontext, m);
    TRY(attention_backward(p, i, x, c->branch, WRITE_SET, wide, err));
    if (!post) {
        c->skip = wide;
        return widen(p, wide, dsum, err);
    }
    const struct scatter_rows skip = {
        .out = c->branch, .in = dsum, .rows = p->batch->picked, .mode = WRITE_ADD};
    return p->ops->scatter_rows(p->dev, &skip, err);
}

enum status blocks_backward(struct blocks *b,
                            struct tensor *din,
                            struct tensor *spare,
                            const struct tensor *dout,
                            const struct blocks_batch *batch,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err) {
    struct pass p = begin(b, batch, true);
    struct chain c = {.branch = *dout};
    const bool post = blocks_post_norm(b);
    const int32_t first = b->frozen > 0 ? b->frozen - 1 : 0;
    p.mode = mode;
    for (int32_t i = b->opt.layers - 1; i >= first; i--) {
        const struct tensor x = first_rows(i > 0 ? b->list[i - 1].x : b->x, batch->rows);
        struct tensor skip = post ? x : first_rows(b->norms[2 * i].sum, batch->rows);
        if (b->keep == BLOCKS_KEEP_SUMS) {
            TRY(input_again(&p, i, x, err));
            TRY(block_forward(&p, i, x, &skip, err));
        }
        TRY(ffn_backward(&p, i, &c, err));
        /* Pre-norm: the norm before it is block i + 1's first tensor. */
        const int32_t done =
            i + 1 < b->opt.layers ? b->list[i + 1].first : b->norms[2 * i + 2].gamma;
        TRY(post ? STATUS_OK : gradients_final(sums, done, err));
        TRY(input_again(&p, i, x, err));
        TRY(mix_backward(&p, i, x, &c, err));
        TRY(post ? gradients_final(sums, b->list[i].first, err) : STATUS_OK);
    }
    if (post && b->frozen > 0) { /* norm 0 is before block 0, so it is frozen */
        return STATUS_OK;
    }
    if (drops(&p) && post) {
        TRY(drop(&p, c.branch, c.branch, 0, err));
    }
    TRY(norm_back(&p, 2 * first, din, &c, err));
    *spare = other(&p, *din, NOT_WANTED, batch->rows);
    return STATUS_OK;
}
