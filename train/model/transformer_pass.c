/*
 * The forward and backward pass of the text tower. Shapes are those of transformer_internal.h.
 *
 * Dropout's element numbers count from the start of a caption, so the masks of the last block,
 * which continues with the first row of each caption alone, are those of the whole one.
 */
#include "train/model/carve.h"
#include "train/model/transformer.h"
#include "train/model/transformer_internal.h"

static const float NORM_EPS = 1e-12f;

/* ---- forward ---- */

/* One pass over one batch. */
struct pass {
    const struct transformer *t;
    struct device *dev;
    const struct ops *ops;
    const struct transformer_batch *batch;
    int64_t n, tokens, rows; /* N, T, M */
    bool training;
    enum write_mode mode; /* of gradients of parameters, backward */
};

static struct pass
begin(const struct transformer *t, const struct transformer_batch *batch, bool training) {
    return (struct pass){.t = t,
                         .dev = t->dev,
                         .ops = t->dev->ops,
                         .batch = batch,
                         .n = batch->starts.shape[0],
                         .tokens = batch->longest,
                         .rows = batch->tokens.shape[0],
                         .training = training};
}

/* Whether the block continues with the first row of each caption alone. */
static bool is_narrow(const struct pass *p, int32_t i) {
    return i + 1 == p->t->opt.layers && p->t->opt.pool == TRANSFORMER_POOL_FIRST;
}

/* Rows of a block after attention: R. */
static int64_t rows_after(const struct pass *p, int32_t i) {
    return is_narrow(p, i) ? p->n : p->rows;
}

static struct segments captions(const struct pass *p) {
    return (struct segments){.starts = p->batch->starts, .lengths = p->batch->lengths};
}

/* Streams of masks: 0 embeddings, 2 i + 1 attention of block i, 2 i + 2 its FFN. */
static struct dropout_params mask(const struct pass *p, int32_t layer) {
    return (struct dropout_params){.p = p->training ? p->t->opt.dropout : 0.0f,
                                   .seed = p->batch->seed,
                                   .values = p->batch->values,
                                   .layer = (uint32_t)layer,
                                   .sample_ids = p->batch->sample_ids};
}

static bool drops(const struct pass *p) {
    return p->training && p->t->opt.dropout > 0.0f;
}

/* out (R, D) = mask(in), in place allowed. Called if drops(p). */
static enum status
drop(const struct pass *p, struct tensor out, struct tensor in, int32_t layer, struct error *err) {
    struct dropout op = {.out = out, .in = in, .dropout = mask(p, layer)};
    if (out.shape[0] != p->n) { /* the last block has the first row of each caption alone */
        op.segments = captions(p);
    }
    return p->ops->dropout(p->dev, &op, err);
}

/* `op` with the layer's parameters. */
static enum status
linear_forward(const struct pass *p, const struct affine *l, struct linear op, struct error *err) {
    op.weight = params_tensor(p->t->params, l->weight);
    op.bias = params_tensor(p->t->params, l->bias);
    return p->ops->linear(p->dev, &op, err);
}

/* out (R, D) = LN(a + b); `a` is the memory of n->sum, so that the sum is made in place. */
static enum status norm_forward(const struct pass *p,
                                const struct norm *n,
                                struct tensor out,
                                struct tensor b,
                                struct error *err) {
    const int64_t rows = out.shape[0];
    const struct tensor sum = first_rows(n->sum, rows);
    return p->ops->layernorm(p->dev,
                             &(struct layernorm){.out = out,
                                                 .sum = sum,
                                                 .mean = first_rows(n->mean, rows),
                                                 .rstd = first_rows(n->rstd, rows),
                                                 .a = sum,
                                                 .b = b,
                                                 .gamma = params_tensor(p->t->params, n->gamma),
                                                 .beta = params_tensor(p->t->params, n->beta),
                                                 .eps = NORM_EPS},
                             err);
}

/* q, k and v as one linear layer. */
struct fused {
    struct tensor weight, bias; /* (3D, D), (3D) */
};

static struct fused fuse(struct tensor q_weight, struct tensor q_bias) {
    int64_t d = q_weight.shape[0];
    return (struct fused){.weight = tensor_2d(q_weight.data, q_weight.dtype, 3 * d, d),
                          .bias = tensor_1d(q_bias.data, q_bias.dtype, 3 * d)};
}

/* (N, H, T, T) */
static struct tensor probs_of(const struct pass *p, const struct layer *l) {
    return tensor_4d(l->probs.data, l->probs.dtype, p->n, p->t->opt.heads, p->tokens, p->tokens);
}

/* x (M, D) -> l->context (M, D) */
static enum status
attention_forward(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    struct fused f =
        fuse(params_tensor(t->params, l->q.weight), params_tensor(t->params, l->q.bias));
    const struct linear linear = {
        .out = first_rows(l->qkv, p->rows), .in = x, .weight = f.weight, .bias = f.bias};
    TRY(p->ops->linear(p->dev, &linear, err));
    return p->ops->attention(p->dev,
                             &(struct attention){.out = first_rows(l->context, p->rows),
                                                 .probs = probs_of(p, l),
                                                 .qkv = linear.out,
                                                 .segments = captions(p),
                                                 .heads = t->opt.heads,
                                                 .dropout = mask(p, 2 * i + 1)},
                             err);
}

/* x (M, D) -> l->x (R, D) */
static enum status
layer_forward(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    int64_t r = rows_after(p, i);
    TRY(attention_forward(p, i, x, err));
    struct tensor context = first_rows(l->context, p->rows); /* (M, D) */
    if (is_narrow(p, i)) {
        const struct gather_rows picked = {
            .out = first_rows(l->picked, r), .in = context, .rows = p->batch->starts}; /* (N, D) */
        const struct gather_rows skipped = {
            .out = first_rows(l->skipped, r), .in = x, .rows = p->batch->starts};
        TRY(p->ops->gather_rows(p->dev, &picked, err));
        TRY(p->ops->gather_rows(p->dev, &skipped, err));
        context = picked.out;
        x = skipped.out;
    }
    struct tensor sum = first_rows(l->attention_norm.sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->out, (struct linear){.out = sum, .in = context}, err));
    struct tensor h = first_rows(l->h, r); /* (R, D) */
    TRY(norm_forward(p, &l->attention_norm, h, x, err));

    struct tensor hidden = first_rows(l->hidden, r); /* (R, F) */
    const struct linear lin1 = {
        .out = hidden, .pre = first_rows(l->pre, r), .in = h, .act = ACTIVATION_GELU};
    TRY(linear_forward(p, &l->lin1, lin1, err));
    sum = first_rows(l->output_norm.sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->lin2, (struct linear){.out = sum, .in = hidden}, err));
    if (drops(p)) {
        TRY(drop(p, sum, sum, 2 * i + 2, err));
    }
    return norm_forward(p, &l->output_norm, first_rows(l->x, r), h, err);
}

static bool batch_fits(const struct transformer *t, const struct transformer_batch *b) {
    const int64_t n = b->starts.shape[0];
    const int64_t rows = b->tokens.shape[0];
    return b->tokens.ndim == 1 && b->starts.ndim == 1 && b->lengths.ndim == 1 && n >= 1 &&
           n <= t->opt.max_batch && b->lengths.shape[0] == n && rows >= n &&
           rows <= (int64_t)t->opt.max_batch * t->opt.max_tokens && b->longest >= 1 &&
           b->longest <= t->opt.max_tokens;
}

enum status transformer_forward(struct transformer *t,
                                struct tensor *features,
                                const struct transformer_batch *batch,
                                bool training,
                                struct error *err) {
    REQUIRE(t->dev != NULL && (!training || t->opt.training) && batch_fits(t, batch));
    struct pass p = begin(t, batch, training);
    TRY(p.ops->embedding(
        p.dev,
        &(struct embedding){.out = first_rows(t->embedding_norm.sum, p.rows), /* (M, D) */
                            .tokens = batch->tokens,
                            .segments = captions(&p),
                            .table = params_tensor(t->params, t->words),          /* (V, D) */
                            .positions = params_tensor(t->params, t->positions)}, /* (P, D) */
        err));
    struct tensor x = first_rows(t->x, p.rows); /* (M, D) */
    TRY(norm_forward(&p, &t->embedding_norm, x, NOT_WANTED, err));
    if (drops(&p)) {
        TRY(drop(&p, x, x, 0, err));
    }
    for (int32_t i = 0; i < t->opt.layers; i++) {
        TRY(layer_forward(&p, i, x, err));
        x = first_rows(t->layers[i].x, rows_after(&p, i));
    }
    if (t->opt.pool == TRANSFORMER_POOL_FIRST) {
        *features = x; /* (N, D) */
        return STATUS_OK;
    }
    *features = first_rows(t->pooled, p.n); /* (N, D) */
    const struct segment_mean mean = {.out = *features, .in = x, .segments = captions(&p)};
    return p.ops->segment_mean(p.dev, &mean, err);
}

/* ---- backward ---- */

/* `op` with the layer's parameters and their gradients. */
static enum status linear_backward(const struct pass *p,
                                   const struct affine *l,
                                   struct linear_bwd op,
                                   struct error *err) {
    op.weight = params_tensor(p->t->params, l->weight);
    op.dweight = params_grad(p->t->params, l->weight);
    op.dbias = params_grad(p->t->params, l->bias);
    op.param_mode = p->mode;
    return p->ops->linear_bwd(p->dev, &op, err);
}

/* dsum (R, D) is set. */
static enum status norm_backward(const struct pass *p,
                                 const struct norm *n,
                                 struct tensor dsum,
                                 struct tensor dout,
                                 struct error *err) {
    const int64_t rows = dout.shape[0];
    return p->ops->layernorm_bwd(
        p->dev,
        &(struct layernorm_bwd){.dsum = dsum,
                                .dgamma = params_grad(p->t->params, n->gamma),
                                .dbeta = params_grad(p->t->params, n->beta),
                                .dout = dout,
                                .sum = first_rows(n->sum, rows),
                                .mean = first_rows(n->mean, rows),
                                .rstd = first_rows(n->rstd, rows),
                                .gamma = params_tensor(p->t->params, n->gamma),
                                .param_mode = p->mode},
        err);
}

/* FFN and its norm. dout (R, D) = dL/dx -> dh (R, D), set; spare (R, D) is scratch. */
static enum status ffn_backward(const struct pass *p,
                                int32_t i,
                                struct tensor dh,
                                struct tensor dout,
                                struct tensor spare,
                                struct error *err) {
    const struct layer *l = &p->t->layers[i];
    int64_t r = dout.shape[0];
    /* LN(drop(f) + h): dh gets the sum's gradient, and so does drop(f). */
    TRY(norm_backward(p, &l->output_norm, dh, dout, err));
    struct tensor df = dh;
    if (drops(p)) {
        TRY(drop(p, spare, dh, 2 * i + 2, err));
        df = spare;
    }
    struct tensor dhidden = first_rows(p->t->dffn, r); /* (R, F) */
    const struct linear_bwd lin2 = {.din = dhidden, .dout = df, .in = first_rows(l->hidden, r)};
    TRY(linear_backward(p, &l->lin2, lin2, err));
    const struct linear_bwd lin1 = {.din = dh,
                                    .din_mode = WRITE_ADD,
                                    .dpre = first_rows(p->t->dpre, r),
                                    .dout = dhidden,
                                    .in = first_rows(l->h, r),
                                    .pre = first_rows(l->pre, r),
                                    .act = ACTIVATION_GELU};
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
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    const struct attention_bwd attention = {.dqkv = first_rows(t->dqkv, p->rows), /* (M, 3D) */
                                            .dout = dcontext,
                                            .probs = probs_of(p, l),
                                            .qkv = first_rows(l->qkv, p->rows),
                                            .segments = captions(p),
                                            .heads = t->opt.heads,
                                            .dropout = mask(p, 2 * i + 1)};
    TRY(p->ops->attention_bwd(p->dev, &attention, err));
    const struct fused f =
        fuse(params_tensor(t->params, l->q.weight), params_tensor(t->params, l->q.bias));
    const struct fused df =
        fuse(params_grad(t->params, l->q.weight), params_grad(t->params, l->q.bias));
    return p->ops->linear_bwd(p->dev,
                              &(struct linear_bwd){.din = dx,
                                                   .dweight = df.weight,
                                                   .dbias = df.bias,
                                                   .dout = attention.dqkv,
                                                   .in = x,
                                                   .weight = f.weight,
                                                   .din_mode = dx_mode,
                                                   .param_mode = p->mode},
                              err);
}

/* x (M, D) is the block's input, dout (R, D) = dL/d(its output). The three scratch buffers take
 * turns: a holds dh, then the gradient of context; b the gradient of the first sum, which is also
 * that of the input along the skip; *dx becomes dL/dx (M, D). */
static enum status layer_backward(const struct pass *p,
                                  int32_t i,
                                  struct tensor x,
                                  struct tensor dout,
                                  const struct tensor *a,
                                  const struct tensor *b,
                                  struct tensor *dx,
                                  struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    int64_t r = dout.shape[0];
    struct tensor dh = first_rows(*a, r);
    struct tensor dsum = first_rows(*b, r);
    TRY(ffn_backward(p, i, dh, dout, dsum, err));
    TRY(norm_backward(p, &l->attention_norm, dsum, dh, err));
    struct tensor dcontext = first_rows(*a, r); /* dh is used up */
    struct tensor context = first_rows(is_narrow(p, i) ? l->picked : l->context, r);
    const struct linear_bwd out = {.din = dcontext, .dout = dsum, .in = context};
    TRY(linear_backward(p, &l->out, out, err));
    if (!is_narrow(p, i)) {
        *dx = dsum; /* (M, D) along the skip; attention adds to it */
        return attention_backward(p, i, x, *dx, WRITE_ADD, dcontext, err);
    }
    /* Only the first rows came this way: widen dcontext, and add the skip to these rows at the end.
     * The third buffer is free, because the last block's dout comes from outside. */
    const struct scatter_rows widen = {
        .out = first_rows(t->grad[2], p->rows), .in = dcontext, .rows = p->batch->starts};
    TRY(p->ops->fill(p->dev, &(struct fill){.out = widen.out}, err));
    TRY(p->ops->scatter_rows(p->dev, &widen, err));
    *dx = first_rows(*a, p->rows);
    TRY(attention_backward(p, i, x, *dx, WRITE_SET, widen.out, err));
    const struct scatter_rows skip = {
        .out = *dx, .in = dsum, .rows = p->batch->starts, .mode = WRITE_ADD};
    return p->ops->scatter_rows(p->dev, &skip, err);
}

enum status transformer_backward(struct transformer *t,
                                 const struct tensor *dfeatures,
                                 const struct transformer_batch *batch,
                                 enum write_mode mode,
                                 struct gradients *sums,
                                 struct error *err) {
    REQUIRE(t->dev != NULL && t->opt.training && batch_fits(t, batch));
    struct pass p = begin(t, batch, true);
    p.mode = mode;
    struct tensor dx = *dfeatures; /* (N, D) */
    if (t->opt.pool == TRANSFORMER_POOL_MEAN) {
        dx = first_rows(t->grad[0], p.rows);
        const struct segment_mean_bwd mean = {
            .din = dx, .dout = *dfeatures, .segments = captions(&p)};
        TRY(p.ops->segment_mean_bwd(p.dev, &mean, err));
    }
    for (int32_t i = t->opt.layers - 1; i >= 0; i--) {
        struct tensor x = first_rows(i > 0 ? t->layers[i - 1].x : t->x, p.rows);
        /* the two buffers that dx is not in */
        int32_t at = dx.data == t->grad[0].data ? 0 : dx.data == t->grad[1].data ? 1 : 2;
        TRY(layer_backward(&p, i, x, dx, &t->grad[(at + 1) % 3], &t->grad[(at + 2) % 3], &dx, err));
        TRY(gradients_final(sums, t->layers[i].q.weight, err));
    }
    /* drop, norm, embeddings; dx (M, D) */
    if (drops(&p)) {
        TRY(drop(&p, dx, dx, 0, err));
    }
    struct tensor dsum = first_rows(dx.data == t->grad[0].data ? t->grad[1] : t->grad[0], p.rows);
    TRY(norm_backward(&p, &t->embedding_norm, dsum, dx, err));
    const struct embedding_bwd embedding = {.dtable = params_grad(t->params, t->words),
                                            .dpositions = params_grad(t->params, t->positions),
                                            .dout = dsum,
                                            .tokens = batch->tokens,
                                            .segments = captions(&p),
                                            .mode = mode};
    TRY(p.ops->embedding_bwd(p.dev, &embedding, err));
    return gradients_final(sums, t->words, err);
}
