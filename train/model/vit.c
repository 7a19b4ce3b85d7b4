/*
 * vit: everything before the blocks is a table of rows and the operator `embedding`: row 0 of the
 * table is the class token, the others are the patches of all images, and row (n, t) of the
 * sequence is table[t > 0 ? 1 + n G^2 + t - 1 : 0] + positions[t].
 *
 * The class token's gradient equals position 0's, because both are added to the same rows.
 */
#include "train/model/vit.h"

#include <math.h>
#include <stdlib.h>

#include "train/model/blocks.h"
#include "train/model/map_pool.h"

struct vit {
    struct params *params;
    struct vit_options opt;
    struct device *dev; /* NULL before placement */
    float norm_eps;
    int64_t heads;            /* 1: there is a class token; 0 */
    int64_t patches, tokens;  /* G^2; T = heads + G^2 */
    int64_t patch_count;      /* 3 P^2: numbers of a patch */
    int64_t count;            /* N of the last forward */
    int32_t first, positions; /* class_embedding, positional_embedding */
    int32_t conv, conv_bias;  /* the bias only with map */
    int32_t frozen;           /* of vit_set_backward */
    struct norm pre;
    struct blocks *blocks;
    struct map_pool pool; /* with map */

    struct tensor pixels; /* (N G^2, 3 P^2), kept */
    struct tensor table;  /* (heads + N G^2, D) */
    struct tensor dplace; /* (T, D) of one pass */
    struct patch_rows at;
    /* with patch_dropout */
    struct patch_rows few; /* of the kept rows */
    struct tensor all;     /* (N T, D) */
    struct tensor kept;    /* of the last forward */
};

/* ---- description ---- */

static enum status build(struct vit *v, struct error *err) {
    const struct vit_options *o = &v->opt;
    const bool map = o->map;
    const double by_width = 1.0 / sqrt((double)o->dim);
    const struct param_spec first = {.name = "class_embedding",
                                     .shape = {o->dim},
                                     .init = PARAM_INIT_NORMAL,
                                     .init_scale = by_width};
    const struct param_spec positions = {
        .name = map ? "pos_embed" : "positional_embedding",
        .shape = {map ? 1 : v->tokens, map ? v->tokens : o->dim, map ? o->dim : 0},
        .init = PARAM_INIT_NORMAL,
        .init_scale = map ? 0.02 : by_width};
    const struct param_spec conv = {.module = map ? "patch_embed.proj" : "conv1",
                                    .name = "weight",
                                    .shape = {o->dim, o->patch_px, o->patch_px, 3},
                                    .conv = true,
                                    .init = PARAM_INIT_UNIFORM,
                                    .init_scale = 1.0 / sqrt((double)v->patch_count)};
    struct param_spec bias = conv;
    bias.name = "bias";
    bias.shape[1] = 0;
    bias.conv = false;
    const struct blocks_options blocks = {.style = map ? BLOCKS_TIMM : BLOCKS_CLIP_IMAGE,
                                          .outer_norm = map ? "norm" : "ln_post",
                                          .layers = o->layers,
                                          .dim = o->dim,
                                          .heads = o->heads,
                                          .ffn_dim = o->ffn_dim,
                                          .max_tokens = (int32_t)v->tokens,
                                          .max_batch = o->max_batch,
                                          .eps = v->norm_eps,
                                          .act = o->act,
                                          .narrow = !map,
                                          .training = o->training};
    TRY(map ? STATUS_OK : params_add(v->params, &v->first, &first, err));
    TRY(params_add(v->params, &v->positions, &positions, err));
    TRY(params_add(v->params, &v->conv, &conv, err));
    TRY(map ? params_add(v->params, &v->conv_bias, &bias, err)
            : norm_add(&v->pre, v->params, "ln_pre", o->dim, err));
    TRY(blocks_create(&v->blocks, v->params, &blocks, "image tower", err));
    v->pool = (struct map_pool){.rows = v->patches,
                                .dim = o->dim,
                                .ffn_dim = o->ffn_dim,
                                .heads = o->heads,
                                .eps = v->norm_eps,
                                .act = o->act};
    return map ? map_pool_add(&v->pool, v->params, err) : STATUS_OK;
}

enum status
vit_create(struct vit **out, struct params *p, const struct vit_options *opt, struct error *err) {
    enum status s = STATUS_OK;
    *out = NULL;
    FAIL_IF(opt->patch_px < 1 || opt->image_px < opt->patch_px ||
                opt->image_px % opt->patch_px != 0,
            err, STATUS_USAGE, "images of %d px are not whole patches of %d px", (int)opt->image_px,
            (int)opt->patch_px);
    const int64_t side = opt->image_px / opt->patch_px;
    FAIL_IF(side * side >= ATTENTION_MAX_TOKENS, err, STATUS_USAGE,
            "images of %d px have %lld patches of %d px, more than %d", (int)opt->image_px,
            (long long)(side * side), (int)opt->patch_px, (int)ATTENTION_MAX_TOKENS - 1);
    struct vit *v = calloc(1, sizeof *v);
    TRY_MEMORY(v != NULL, err, "out of memory for the image tower");
    v->params = p;
    v->opt = *opt;
    v->patches = side * side;
    v->heads = opt->map ? 0 : 1;
    v->norm_eps = opt->map ? 1e-6f : 1e-5f;
    v->tokens = v->heads + v->patches;
    v->patch_count = 3 * (int64_t)opt->patch_px * opt->patch_px;
    TRY_OR_FAIL(s, build(v, err));
fail:
    RETURN_CREATED(s, out, v, vit_destroy);
}

int32_t vit_feature_count(const struct vit *v) {
    return v->opt.dim;
}

int32_t vit_kept_patches(const struct vit_options *opt) {
    const int32_t side = opt->image_px / opt->patch_px;
    const int32_t kept = (int32_t)(side * side * (1.0 - opt->patch_dropout));
    return kept > 1 ? kept : 1;
}

void vit_destroy(struct vit *v) {
    if (v == NULL) {
        return;
    }
    blocks_destroy(v->blocks);
    free(v);
}

void vit_set_backward(struct vit *v, int32_t frozen, enum blocks_keep keep) {
    v->frozen = frozen;
    blocks_set_backward(v->blocks, frozen, keep);
}

/* ---- memory ---- */

void patch_rows_place(struct patch_rows *r,
                      struct carve *kept,
                      int64_t n,
                      int64_t patches,
                      int64_t heads) {
    r->heads = heads;
    r->index = carve_take(kept, tensor_1d(NULL, DTYPE_I32, n * ((heads > 0) + patches)));
    r->starts = carve_take(kept, tensor_1d(NULL, DTYPE_I32, n));
    r->lengths = carve_take(kept, tensor_1d(NULL, DTYPE_I32, n));
    r->patches = carve_take(kept, tensor_1d(NULL, DTYPE_I32, n * patches));
    r->queries = carve_take(kept, tensor_1d(NULL, DTYPE_I32, n));
}

enum status patch_rows_write(const struct patch_rows *r, struct device *dev, struct error *err) {
    const int64_t n = r->starts.shape[0];
    const int64_t patches = r->patches.shape[0] / n;
    const int64_t first = r->heads > 0 ? 1 : 0;
    const int64_t length = first + patches;
    const struct tensor *to[] = {&r->index, &r->starts, &r->lengths, &r->patches, &r->queries};
    int32_t *rows = malloc((size_t)(n * length) * sizeof *rows);
    TRY_MEMORY(rows != NULL, err, "out of memory for the rows of %lld images", (long long)n);
    enum status s = STATUS_OK;
    for (int k = 0; k < 5 && s == STATUS_OK; k++) {
        for (int64_t i = 0; i < tensor_count(to[k]); i++) {
            const int64_t image = i / length;
            const int64_t t = i % length - first;
            rows[i] =
                (int32_t)(k == 0   ? (t >= 0 ? r->heads + image * patches + t : image % r->heads)
                          : k == 1 ? i * length
                          : k == 2 ? length
                          : k == 3 ? i + (i / patches + 1) * first
                                   : 3 * i * length);
        }
        s = dev->ops->upload(dev, to[k]->data, rows, tensor_size_bytes(to[k]), err);
        THEN(s, dev->ops->sync(dev, err)); /* upload may still read the rows */
    }
    free(rows);
    return s;
}

void vit_place(struct vit *v,
               struct device *dev,
               enum dtype dtype,
               struct carve *kept,
               struct carve *workspace) {
    const int64_t n = v->opt.max_batch;
    const int64_t d = v->opt.dim;
    struct carve *c = v->opt.training ? kept : workspace;
    v->dev = dev;
    patch_rows_place(&v->at, kept, n, v->patches, v->heads);
    v->pixels = carve_take(c, tensor_2d(NULL, dtype, n * v->patches, v->patch_count));
    if (v->opt.map) {
        map_pool_place(&v->pool, dev, dtype, n, v->opt.training, kept, workspace);
    } else {
        norm_place(&v->pre, c, dtype, n * v->tokens, d);
    }
    v->table = carve_take(workspace, tensor_2d(NULL, dtype, v->heads + n * v->patches, d));
    if (v->opt.training && v->opt.patch_dropout > 0.0) {
        patch_rows_place(&v->few, kept, n, vit_kept_patches(&v->opt), 1);
        v->all = carve_take(workspace, tensor_2d(NULL, dtype, n * v->tokens, d));
    }
    if (v->opt.training) {
        v->dplace = carve_take(workspace, tensor_2d(NULL, statistics_dtype(dtype), v->tokens, d));
    }
    blocks_place(v->blocks, dev, dtype, kept, workspace);
}

enum status vit_ready(struct vit *v, struct error *err) {
    TRY(patch_rows_write(&v->at, v->dev, err));
    return tensor_present(&v->all) ? patch_rows_write(&v->few, v->dev, err) : STATUS_OK;
}

/* ---- passes ---- */

static struct blocks_batch batch_of(const struct vit *v, int64_t n) {
    const bool all = !tensor_present(&v->kept);
    const struct patch_rows *at = all ? &v->at : &v->few;
    const struct tensor starts = first_rows(at->starts, n);
    const int64_t length = all ? v->tokens : 1 + vit_kept_patches(&v->opt);
    return (struct blocks_batch){
        .segments = {.starts = starts, .lengths = first_rows(at->lengths, n)},
        .rows = n * length,
        .longest = length,
        .picked = starts};
}

/* The weight of conv1 (or its gradient), as a linear layer's. */
static struct tensor as_matrix(const struct vit *v, struct tensor conv) {
    return tensor_2d(conv.data, conv.dtype, v->opt.dim, v->patch_count);
}

static struct map_pool_batch pool_batch(const struct vit *v, const struct blocks_batch *b) {
    return (struct map_pool_batch){b->segments, first_rows(v->at.queries, v->count)};
}

/* (T, D) of a positions' value or gradient. */
static struct tensor as_rows(const struct vit *v, struct tensor positions) {
    return tensor_2d(positions.data, positions.dtype, v->tokens, v->opt.dim);
}

/* to = or += from, of equal shapes and types */
static enum status accumulate(const struct vit *v,
                              struct tensor to,
                              struct tensor from,
                              enum write_mode mode,
                              struct error *err) {
    const struct ops *ops = v->dev->ops;
    TRY(mode == WRITE_ADD ? STATUS_OK : ops->fill(v->dev, &(struct fill){.out = to}, err));
    return ops->add(v->dev, &(struct add){.out = to, .in = from, .alpha = 1.0f}, err);
}

/* Row 0 of the table: the class token, which is f32 in a BF16 model. */
static enum status copy_class(const struct vit *v, struct error *err) {
    const struct tensor from = params_tensor(v->params, v->first); /* (D) */
    const struct tensor to = tensor_1d(v->table.data, v->table.dtype, v->opt.dim);
    return to.dtype == from.dtype
               ? accumulate(v, to, from, WRITE_SET, err)
               : v->dev->ops->cast(v->dev, &(struct cast){.out = to, .in = from}, err);
}

enum status vit_forward(struct vit *v,
                        struct tensor *features,
                        const struct tensor *images,
                        struct tensor kept,
                        bool training,
                        struct error *err) {
    const struct ops *ops = v->dev->ops;
    const int64_t n = images->shape[0];
    REQUIRE(n >= 1 && n <= v->opt.max_batch && (!training || v->opt.training));
    const bool all = !tensor_present(&kept);
    const int64_t side = v->opt.image_px / v->opt.patch_px;
    v->count = n;
    v->kept = kept;
    const struct blocks_batch batch = batch_of(v, n);
    const struct normalize_u8 normalize = {
        .out = tensor_4d(v->pixels.data, v->pixels.dtype, n, side, side, v->patch_count),
        .in = *images,
        .norm = &IMAGE_NORMS[v->opt.norm],
        .patch = v->opt.patch_px};
    struct linear conv = {.out = rows_from(v->table, v->heads, n * v->patches),
                          .in = first_rows(v->pixels, n * v->patches),
                          .weight = as_matrix(v, params_tensor(v->params, v->conv))};
    const struct tensor input = blocks_input(v->blocks, batch.rows);
    const struct embedding embedding = {
        .out = v->opt.map ? input : first_rows(all ? v->pre.sum : v->all, n * v->tokens),
        .tokens = first_rows(v->at.index, n * v->tokens),
        .segments = {first_rows(v->at.starts, n), first_rows(v->at.lengths, n)},
        .table = first_rows(v->table, v->heads + n * v->patches),
        .positions = as_rows(v, params_tensor(v->params, v->positions))};
    TRY(ops->normalize_u8(v->dev, &normalize, err));
    if (v->opt.map) {
        const struct map_pool_batch pool = pool_batch(v, &batch);
        struct tensor x;
        conv.bias = params_tensor(v->params, v->conv_bias);
        TRY(ops->linear(v->dev, &conv, err));
        TRY(ops->embedding(v->dev, &embedding, err));
        TRY(blocks_forward(v->blocks, &x, &batch, training, err));
        return map_pool_forward(&v->pool, features, x, &pool, err);
    }
    TRY(ops->linear(v->dev, &conv, err));
    TRY(copy_class(v, err));
    TRY(ops->embedding(v->dev, &embedding, err));
    const struct gather_rows few = {
        .out = first_rows(v->pre.sum, batch.rows), .in = embedding.out, .rows = kept};
    TRY(all ? STATUS_OK : ops->gather_rows(v->dev, &few, err));
    TRY(norm_forward(&v->pre, v->dev, v->params, input, NOT_WANTED, v->norm_eps, err));
    return blocks_forward(v->blocks, features, &batch, training, err);
}

enum status vit_backward(struct vit *v,
                         const struct tensor *dfeatures,
                         enum write_mode mode,
                         struct gradients *sums,
                         struct error *err) {
    const struct ops *ops = v->dev->ops;
    const struct blocks_batch batch = batch_of(v, v->count);
    const bool map = v->opt.map;
    struct tensor dx = *dfeatures;
    struct tensor din, dsum; /* (M, D) */
    if (map) {
        const struct map_pool_batch pool = pool_batch(v, &batch);
        TRY(map_pool_backward(&v->pool, &dx, *dfeatures, &pool, mode, err));
    }
    TRY(blocks_backward(v->blocks, &din, &dsum, &dx, &batch, mode, sums, err));
    if (v->frozen > 0) {
        return STATUS_OK;
    }
    if (map) {
        dsum = din;
        din = dx;
    } else {
        TRY(norm_backward(&v->pre, v->dev, v->params, dsum, WRITE_SET, din, mode, err));
    }
    if (tensor_present(&v->kept)) {
        const struct tensor wide = first_rows(v->all, v->count * v->tokens);
        const struct scatter_rows few = {.out = wide, .in = dsum, .rows = v->kept};
        TRY(ops->fill(v->dev, &(struct fill){.out = wide}, err));
        TRY(ops->scatter_rows(v->dev, &few, err));
        dsum = wide;
    }
    const struct embedding_bwd places = {
        .dpositions = v->dplace,
        .dout = dsum,
        .segments = {first_rows(v->at.starts, v->count), first_rows(v->at.lengths, v->count)}};
    TRY(ops->embedding_bwd(v->dev, &places, err));
    TRY(accumulate(v, as_rows(v, params_grad(v->params, v->positions)), v->dplace, mode, err));
    TRY(map ? STATUS_OK
            : accumulate(v, params_grad(v->params, v->first),
                         tensor_1d(v->dplace.data, v->dplace.dtype, v->opt.dim), mode, err));
    const struct gather_rows patches = {.out = first_rows(din, v->count * v->patches),
                                        .in = dsum,
                                        .rows = first_rows(v->at.patches, v->count * v->patches)};
    TRY(ops->gather_rows(v->dev, &patches, err));
    const struct linear_bwd conv = {.dweight = as_matrix(v, params_grad(v->params, v->conv)),
                                    .dbias =
                                        map ? params_grad(v->params, v->conv_bias) : NOT_WANTED,
                                    .dout = patches.out,
                                    .in = first_rows(v->pixels, v->count * v->patches),
                                    .weight = as_matrix(v, params_tensor(v->params, v->conv)),
                                    .param_mode = mode};
    TRY(ops->linear_bwd(v->dev, &conv, err));
    return gradients_final(sums, map ? v->positions : v->first, err);
}
