/*
 * attention_pool: q is computed for all rows, because one product computes q, k and v.
 */
#include "train/model/attention_pool.h"

#include <math.h>
#include <string.h>

enum status attention_pool_add(struct attention_pool *a, struct params *p, struct error *err) {
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    const double scale = 1.0 / sqrt((double)a->channels);
    const struct param_spec positions = {.module = "attnpool",
                                         .name = "positional_embedding",
                                         .shape = {1 + a->rows, a->channels},
                                         .init = PARAM_INIT_NORMAL,
                                         .init_scale = scale};
    a->params = p;
    TRY(params_add(p, &a->positions, &positions, err));
    for (int k = 0; k < 3; k++) {
        char module[32] = "attnpool.";
        int32_t unused;
        struct param_spec weight = {.module = strcat(module, names[k]),
                                    .name = "weight",
                                    .shape = {a->channels, a->channels},
                                    .adjacent = k > 0,
                                    .init = PARAM_INIT_NORMAL,
                                    .init_scale = scale};
        TRY(params_add(p, k == 0 ? &a->qkv : &unused, &weight, err));
        weight.name = "bias";
        weight.shape[1] = 0;
        weight.init = PARAM_INIT_UNIFORM;
        TRY(params_add(p, k == 0 ? &a->qkv_bias : &unused, &weight, err));
    }
    return STATUS_OK;
}

void attention_pool_place(struct attention_pool *a,
                          struct device *dev,
                          enum dtype dtype,
                          int64_t max_batch,
                          bool training,
                          struct carve *kept,
                          struct carve *workspace) {
    struct carve *c = training ? kept : workspace;
    const int64_t n = max_batch;
    const int64_t m = n * (1 + a->rows);
    const struct tensor wide = tensor_2d(NULL, dtype, m, a->channels);
    const int64_t lse[] = {n, a->heads, 1 + a->rows};
    a->dev = dev;
    patch_rows_place(&a->at, kept, n, a->rows, n);
    a->table = carve_take(workspace, wide);
    a->sequence = carve_take(c, wide);
    a->qkv_rows = carve_take(c, tensor_2d(NULL, dtype, m, 3 * a->channels));
    a->context = carve_take(c, wide);
    a->lse = carve_take(c, tensor_view(NULL, statistics_dtype(dtype), 3, lse));
    if (training) {
        a->dqkv = carve_take(workspace, tensor_2d(NULL, dtype, m, 3 * a->channels));
        a->dsequence = carve_take(workspace, wide);
    }
}

/* One pass over n images. */
struct pass {
    int64_t n, m; /* images, rows */
    struct segments segments;
    struct tensor x; /* (N P^2, C) */
};

static struct pass pass_of(const struct attention_pool *a, struct tensor x) {
    const int64_t n = x.shape[0];
    return (struct pass){n,
                         n * (1 + a->rows),
                         {first_rows(a->at.starts, n), first_rows(a->at.lengths, n)},
                         tensor_2d(x.data, x.dtype, n * a->rows, a->channels)};
}

/* The weights of q, k and v (or their gradients) as one. */
static struct tensor joined(const struct attention_pool *a, struct tensor q) {
    q.shape[0] = 3 * a->channels;
    return q;
}

enum status attention_pool_forward(struct attention_pool *a,
                                   struct tensor out,
                                   struct tensor x,
                                   struct error *err) {
    const struct ops *ops = a->dev->ops;
    const struct pass p = pass_of(a, x);
    const struct tensor rows = rows_from(a->table, a->at.heads, p.n * a->rows);
    const struct global_avgpool mean = {.out = first_rows(a->table, p.n), .in = x};
    const struct embedding lay = {.out = first_rows(a->sequence, p.m),
                                  .tokens = first_rows(a->at.index, p.m),
                                  .segments = p.segments,
                                  .table = first_rows(a->table, a->at.heads + p.n * a->rows),
                                  .positions = params_tensor(a->params, a->positions)};
    const struct linear qkv = {.out = first_rows(a->qkv_rows, p.m),
                               .in = lay.out,
                               .weight = joined(a, params_tensor(a->params, a->qkv)),
                               .bias = joined(a, params_tensor(a->params, a->qkv_bias))};
    const struct attention attend = {.out = first_rows(a->context, p.m),
                                     .lse = first_rows(a->lse, p.n),
                                     .qkv = qkv.out,
                                     .segments = p.segments,
                                     .heads = a->heads};
    const struct gather_rows pick = {.out = out, .in = attend.out, .rows = p.segments.starts};
    TRY(ops->global_avgpool(a->dev, &mean, err));
    TRY(ops->fill(a->dev, &(struct fill){.out = rows}, err));
    TRY(ops->add(a->dev, &(struct add){.out = rows, .in = p.x, .alpha = 1.0f}, err));
    TRY(ops->embedding(a->dev, &lay, err));
    TRY(ops->linear(a->dev, &qkv, err));
    TRY(ops->attention(a->dev, &attend, err));
    return ops->gather_rows(a->dev, &pick, err);
}

enum status attention_pool_backward(struct attention_pool *a,
                                    struct tensor dx,
                                    struct tensor dout,
                                    enum write_mode mode,
                                    struct error *err) {
    const struct ops *ops = a->dev->ops;
    const struct pass p = pass_of(a, dx);
    const struct tensor wide = first_rows(a->dsequence, p.m);
    const struct tensor rows = first_rows(a->table, p.n * a->rows); /* no longer needed */
    const struct scatter_rows pick = {.out = wide, .in = dout, .rows = p.segments.starts};
    const struct attention_bwd attend = {.dqkv = first_rows(a->dqkv, p.m),
                                         .dout = wide,
                                         .out = first_rows(a->context, p.m),
                                         .lse = first_rows(a->lse, p.n),
                                         .qkv = first_rows(a->qkv_rows, p.m),
                                         .segments = p.segments,
                                         .heads = a->heads};
    const struct linear_bwd qkv = {.din = wide,
                                   .dweight = joined(a, params_grad(a->params, a->qkv)),
                                   .dbias = joined(a, params_grad(a->params, a->qkv_bias)),
                                   .dout = attend.dqkv,
                                   .in = first_rows(a->sequence, p.m),
                                   .weight = joined(a, params_tensor(a->params, a->qkv)),
                                   .param_mode = mode};
    const struct embedding_bwd places = {.dpositions = params_grad(a->params, a->positions),
                                         .dout = wide,
                                         .segments = p.segments,
                                         .mode = mode};
    const struct gather_rows mean = {
        .out = first_rows(a->context, p.n), .in = wide, .rows = p.segments.starts};
    const struct gather_rows own = {
        .out = rows, .in = wide, .rows = first_rows(a->at.patches, p.n * a->rows)};
    TRY(ops->fill(a->dev, &(struct fill){.out = wide}, err));
    TRY(ops->scatter_rows(a->dev, &pick, err));
    TRY(ops->attention_bwd(a->dev, &attend, err));
    TRY(ops->linear_bwd(a->dev, &qkv, err));
    TRY(ops->embedding_bwd(a->dev, &places, err));
    TRY(ops->gather_rows(a->dev, &mean, err));
    TRY(ops->gather_rows(a->dev, &own, err));
    TRY(ops->global_avgpool_bwd(a->dev, &(struct global_avgpool_bwd){.din = dx, .dout = mean.out},
                                err));
    return ops->add(a->dev, &(struct add){.out = p.x, .in = rows, .alpha = 1.0f}, err);
}
