/*
 * map_pool: one product computes q, k and v of all rows; the query then replaces q in the first row
 * of each image, and that row of the result is the image's. Sums over images are products with
 * ones.
 */
#include "train/model/map_pool.h"

#include <math.h>

enum status map_pool_add(struct map_pool *a, struct params *p, struct error *err) {
    const int64_t d = a->dim;
    const int64_t f = a->ffn_dim;
    int32_t unused;
    const struct {
        const char *module;
        int32_t *to;
        int64_t out, in;
        bool adjacent;
    } list[] = {
        {"attn_pool.q", &a->q, d, d, false},         {"attn_pool.kv", NULL, 2 * d, d, true},
        {"attn_pool.proj", &a->proj, d, d, false},   {NULL, NULL, 0, 0, false}, /* the norm */
        {"attn_pool.mlp.fc1", &a->fc1, f, d, false}, {"attn_pool.mlp.fc2", &a->fc2, d, f, false}};
    const struct param_spec latent = {.name = "attn_pool.latent",
                                      .shape = {1, 1, d},
                                      .init = PARAM_INIT_NORMAL,
                                      .init_scale = 1.0 / sqrt((double)d)};
    a->params = p;
    TRY(params_add(p, &a->latent, &latent, err));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct param_spec spec = {.module = list[i].module,
                                  .name = "weight",
                                  .shape = {list[i].out, list[i].in},
                                  .adjacent = list[i].adjacent,
                                  .init = PARAM_INIT_NORMAL,
                                  .init_scale = 0.02};
        if (spec.module == NULL) {
            TRY(norm_add(&a->norm, p, "attn_pool.norm", d, err));
            continue;
        }
        TRY(params_add(p, list[i].to != NULL ? list[i].to : &unused, &spec, err));
        spec.name = "bias";
        spec.shape[1] = 0;
        spec.init = PARAM_INIT_ZEROS;
        TRY(params_add(p, &unused, &spec, err));
    }
    return STATUS_OK;
}

void map_pool_place(struct map_pool *a,
                    struct device *dev,
                    enum dtype dtype,
                    int64_t max_batch,
                    bool training,
                    struct carve *kept,
                    struct carve *workspace) {
    struct carve *c = training ? kept : workspace;
    const int64_t n = max_batch;
    const int64_t d = a->dim;
    const struct tensor row = tensor_2d(NULL, dtype, n, d);
    const struct tensor wide = tensor_2d(NULL, dtype, n * a->rows, d);
    const struct tensor qkv = tensor_2d(NULL, dtype, n * a->rows, 3 * d);
    const struct tensor ffn = tensor_2d(NULL, dtype, n, a->ffn_dim);
    a->dev = dev;
    a->ones = carve_take(workspace, tensor_2d(NULL, dtype, n, 1));
    a->queries = carve_take(workspace, tensor_2d(NULL, dtype, n + 1, d)); /* the last: the query */
    a->qkv_rows = carve_take(c, qkv);
    a->context = carve_take(c, wide);
    a->lse = carve_take(c, tensor_3d(NULL, statistics_dtype(dtype), n, a->heads, a->rows));
    a->picked = carve_take(c, row);
    norm_place(&a->norm, c, dtype, n, d);
    a->h = carve_take(c, row);
    a->pre = carve_take(c, ffn);
    a->hidden = carve_take(c, ffn);
    a->out = carve_take(kept, row);
    if (training) {
        a->dqkv = carve_take(workspace, qkv);
        a->dx = carve_take(workspace, wide);
        a->drow = carve_take(workspace, row);
        a->dy = carve_take(workspace, row);
        a->dhidden = carve_take(workspace, ffn);
        a->dpre = carve_take(workspace, ffn);
    }
}

static struct tensor value(const struct map_pool *a, int32_t k) {
    return params_tensor(a->params, k);
}

static struct tensor gradient(const struct map_pool *a, int32_t k) {
    return params_grad(a->params, k);
}

/* q's weight or bias, or its gradient, with those of k and v. */
static struct tensor joined(const struct map_pool *a, struct tensor q) {
    q.shape[0] = 3 * a->dim;
    return q;
}

/* The rows of q, k and v as separate rows: (3 N P, D). */
static struct tensor apart(const struct map_pool *a, struct tensor qkv, int64_t m) {
    return tensor_2d(qkv.data, qkv.dtype, 3 * m, a->dim);
}

static struct tensor as_row(const struct map_pool *a, struct tensor latent) {
    return tensor_2d(latent.data, latent.dtype, 1, a->dim);
}

enum status map_pool_forward(struct map_pool *a,
                             struct tensor *out,
                             struct tensor x,
                             const struct map_pool_batch *batch,
                             struct error *err) {
    const struct ops *ops = a->dev->ops;
    const int64_t n = batch->queries.shape[0];
    const int64_t m = n * a->rows;
    const struct tensor rows = first_rows(a->queries, n);
    a->x = x;
    *out = first_rows(a->out, n);
    const struct linear qkv = {.out = first_rows(a->qkv_rows, m),
                               .in = x,
                               .weight = joined(a, value(a, a->q)),
                               .bias = joined(a, value(a, a->q + 1))};
    const struct linear query = {.out = rows_from(a->queries, n, 1),
                                 .in = as_row(a, value(a, a->latent)),
                                 .weight = value(a, a->q),
                                 .bias = value(a, a->q + 1)};
    const struct matmul spread = {
        .out = rows, .a = first_rows(a->ones, n), .b = query.out, .alpha = 1.0f};
    const struct scatter_rows put = {
        .out = apart(a, a->qkv_rows, m), .in = rows, .rows = batch->queries};
    const struct attention attend = {.out = first_rows(a->context, m),
                                     .lse = first_rows(a->lse, n),
                                     .qkv = qkv.out,
                                     .segments = batch->segments,
                                     .heads = a->heads};
    const struct gather_rows pick = {
        .out = first_rows(a->picked, n), .in = attend.out, .rows = batch->segments.starts};
    const struct linear proj = {.out = first_rows(a->norm.sum, n),
                                .in = pick.out,
                                .weight = value(a, a->proj),
                                .bias = value(a, a->proj + 1)};
    const struct linear fc1 = {.out = first_rows(a->hidden, n),
                               .pre = first_rows(a->pre, n),
                               .in = first_rows(a->h, n),
                               .weight = value(a, a->fc1),
                               .bias = value(a, a->fc1 + 1),
                               .act = a->act};
    const struct linear fc2 = {
        .out = *out, .in = fc1.out, .weight = value(a, a->fc2), .bias = value(a, a->fc2 + 1)};
    TRY(ops->linear(a->dev, &qkv, err));
    TRY(ops->linear(a->dev, &query, err));
    TRY(ops->fill(a->dev, &(struct fill){.out = first_rows(a->ones, n), .value = 1.0}, err));
    TRY(ops->matmul(a->dev, &spread, err));
    TRY(ops->scatter_rows(a->dev, &put, err));
    TRY(ops->attention(a->dev, &attend, err));
    TRY(ops->gather_rows(a->dev, &pick, err));
    TRY(ops->linear(a->dev, &proj, err));
    TRY(norm_forward(&a->norm, a->dev, a->params, fc1.in, NOT_WANTED, a->eps, err));
    TRY(ops->linear(a->dev, &fc1, err));
    TRY(ops->linear(a->dev, &fc2, err));
    return ops->add(a->dev, &(struct add){.out = *out, .in = proj.out, .alpha = 1.0f}, err);
}

/* `op` with a layer's weight and gradients. */
static enum status
layer_backward(const struct map_pool *a, int32_t k, struct linear_bwd op, struct error *err) {
    op.weight = value(a, k);
    op.dweight = gradient(a, k);
    op.dbias = gradient(a, k + 1);
    return a->dev->ops->linear_bwd(a->dev, &op, err);
}

/* The query's gradient, which zeros then replace among the rows' q. */
static enum status query_backward(const struct map_pool *a,
                                  const struct map_pool_batch *batch,
                                  enum write_mode mode,
                                  struct error *err) {
    const struct ops *ops = a->dev->ops;
    const int64_t n = batch->queries.shape[0];
    const struct tensor rows = first_rows(a->queries, n);
    const struct tensor all = apart(a, a->dqkv, n * a->rows);
    const struct matmul sum = {.out = first_rows(a->drow, 1),
                               .a = first_rows(a->ones, n),
                               .b = rows,
                               .transpose_a = true,
                               .alpha = 1.0f};
    const struct matmul latent = {.out = as_row(a, gradient(a, a->latent)),
                                  .a = sum.out,
                                  .b = value(a, a->q),
                                  .mode = mode,
                                  .alpha = 1.0f};
    const struct linear_bwd query = {
        .dout = sum.out, .in = as_row(a, value(a, a->latent)), .param_mode = WRITE_ADD};
    TRY(ops->gather_rows(
        a->dev, &(struct gather_rows){.out = rows, .in = all, .rows = batch->queries}, err));
    TRY(ops->fill(a->dev, &(struct fill){.out = first_rows(a->ones, n), .value = 1.0}, err));
    TRY(ops->matmul(a->dev, &sum, err));
    TRY(ops->matmul(a->dev, &latent, err));
    TRY(layer_backward(a, a->q, query, err));
    TRY(ops->fill(a->dev, &(struct fill){.out = rows}, err));
    return ops->scatter_rows(
        a->dev, &(struct scatter_rows){.out = all, .in = rows, .rows = batch->queries}, err);
}

enum status map_pool_backward(struct map_pool *a,
                              struct tensor *dx,
                              struct tensor dout,
                              const struct map_pool_batch *batch,
                              enum write_mode mode,
                              struct error *err) {
    const struct ops *ops = a->dev->ops;
    const int64_t n = batch->queries.shape[0];
    const int64_t m = n * a->rows;
    const struct tensor dy = first_rows(a->dy, n);
    const struct tensor drow = first_rows(a->drow, n);
    *dx = first_rows(a->dx, m);
    const struct linear_bwd fc2 = {.din = first_rows(a->dhidden, n),
                                   .dout = dout,
                                   .in = first_rows(a->hidden, n),
                                   .param_mode = mode};
    const struct linear_bwd fc1 = {.din = drow,
                                   .dpre = first_rows(a->dpre, n),
                                   .dout = fc2.din,
                                   .in = first_rows(a->h, n),
                                   .pre = first_rows(a->pre, n),
                                   .act = a->act,
                                   .param_mode = mode};
    const struct linear_bwd proj = {
        .din = drow, .dout = dy, .in = first_rows(a->picked, n), .param_mode = mode};
    const struct scatter_rows put = {.out = *dx, .in = drow, .rows = batch->segments.starts};
    const struct attention_bwd attend = {.dqkv = first_rows(a->dqkv, m),
                                         .dout = *dx,
                                         .out = first_rows(a->context, m),
                                         .lse = first_rows(a->lse, n),
                                         .qkv = first_rows(a->qkv_rows, m),
                                         .segments = batch->segments,
                                         .heads = a->heads};
    const struct linear_bwd qkv = {.din = *dx,
                                   .dweight = joined(a, gradient(a, a->q)),
                                   .dbias = joined(a, gradient(a, a->q + 1)),
                                   .dout = attend.dqkv,
                                   .in = a->x,
                                   .weight = joined(a, value(a, a->q)),
                                   .param_mode = WRITE_ADD};
    TRY(layer_backward(a, a->fc2, fc2, err));
    TRY(layer_backward(a, a->fc1, fc1, err));
    TRY(norm_backward(&a->norm, a->dev, a->params, dy, WRITE_SET, drow, mode, err));
    TRY(ops->add(a->dev, &(struct add){.out = dy, .in = dout, .alpha = 1.0f}, err));
    TRY(layer_backward(a, a->proj, proj, err));
    TRY(ops->fill(a->dev, &(struct fill){.out = *dx}, err));
    TRY(ops->scatter_rows(a->dev, &put, err));
    TRY(ops->attention_bwd(a->dev, &attend, err));
    if (mode == WRITE_SET) {
        TRY(ops->fill(a->dev, &(struct fill){.out = qkv.dweight}, err));
        TRY(ops->fill(a->dev, &(struct fill){.out = qkv.dbias}, err));
    }
    TRY(query_backward(a, batch, mode, err));
    return ops->linear_bwd(a->dev, &qkv, err);
}
