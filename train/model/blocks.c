/*
 * The blocks' tensors and the memory of their activations; blocks_pass.c computes.
 *
 * In training each block keeps what its backward pass reads and does not recompute (enum
 * blocks_keep). Recomputed tensors use workspace of the backward pass: outputs of norms before
 * attention dffn, hidden activations dpre. Without training all blocks share one set of buffers,
 * and activations alternate between two of them.
 */
#include "train/model/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dropout_mask.h"
#include "train/model/blocks_internal.h"

/* ---- description ---- */

static enum status
check_options(const struct blocks_options *o, const char *what, struct error *err) {
    FAIL_IF(o->layers < 1 || o->layers > BLOCKS_MAX_LAYERS, err, STATUS_USAGE,
            "%s of %d layers is not in 1-%d", what, (int)o->layers, BLOCKS_MAX_LAYERS);
    FAIL_IF(o->heads < 1 || o->dim < 1 || o->dim > BLOCKS_MAX_WIDTH || o->dim % o->heads != 0 ||
                o->ffn_dim < 1 || o->ffn_dim > BLOCKS_MAX_WIDTH,
            err, STATUS_USAGE,
            "%s width %d, heads %d, FFN %d do not fit (width a multiple of "
            "heads, both widths in 1-%d)",
            what, (int)o->dim, (int)o->heads, (int)o->ffn_dim, BLOCKS_MAX_WIDTH);
    FAIL_IF(!(o->dropout >= 0.0f && o->dropout < 1.0f), err, STATUS_USAGE,
            "dropout %g is not in [0, 1)", (double)o->dropout);
    const int most = o->dropout > 0.0f ? (int)DROPOUT_MAX_TOKENS : (int)ATTENTION_MAX_TOKENS;
    FAIL_IF(o->max_tokens < 1 || o->max_tokens > most, err, STATUS_USAGE,
            "%s: sequences of %d tokens are not in 1-%d", what, (int)o->max_tokens, most);
    return STATUS_OK;
}

/* A weight (OUT, IN) and its bias (OUT), with their initial values. */
struct part {
    const char *weight, *bias; /* names in the block */
    struct affine *at;
    int64_t out, in;
    enum param_init init;
    double scale, bias_scale; /* the bias is uniform, or 0 */
    bool adjacent;
};

/* In the order of the table; norms are those with in 0. */
enum { MAX_PARTS = 8 };

static int distilbert_parts(struct part parts[MAX_PARTS], struct block *l, int64_t d, int64_t f) {
    static struct affine unused[2]; /* k and v are found through q */
    const enum param_init normal = PARAM_INIT_NORMAL;
    const struct part list[] = {
        {"attention.q_lin.weight", "attention.q_lin.bias", &l->qkv, d, d, normal, 0.02, 0, false},
        {"attention.k_lin.weight", "attention.k_lin.bias", unused, d, d, normal, 0.02, 0, true},
        {"attention.v_lin.weight", "attention.v_lin.bias", unused + 1, d, d, normal, 0.02, 0, true},
        {"attention.out_lin.weight", "attention.out_lin.bias", &l->out, d, d, normal, 0.02, 0,
         false},
        {.weight = "sa_layer_norm"},
        {"ffn.lin1.weight", "ffn.lin1.bias", &l->lin1, f, d, normal, 0.02, 0, false},
        {"ffn.lin2.weight", "ffn.lin2.bias", &l->lin2, d, f, normal, 0.02, 0, false},
        {.weight = "output_layer_norm"}};
    memcpy(parts, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

/* Text: normal, scaled by the width, and out_proj and c_proj, which end in the residual stream,
 * also by the depth. Image: Xavier's for in_proj, the rest uniform in +-1/sqrt(fan_in). */
static int
clip_parts(struct part parts[MAX_PARTS], struct block *l, const struct blocks_options *o) {
    const bool text = o->style == BLOCKS_CLIP_TEXT;
    const int64_t d = o->dim;
    const int64_t f = o->ffn_dim;
    const double by_width = 1.0 / sqrt((double)d);
    const double by_ffn = 1.0 / sqrt((double)f);
    const double by_depth = by_width / sqrt(2.0 * (double)o->layers);
    const enum param_init init = text ? PARAM_INIT_NORMAL : PARAM_INIT_UNIFORM;
    const struct part list[] = {{.weight = "ln_1"},
                                {"attn.in_proj_weight", "attn.in_proj_bias", &l->qkv, 3 * d, d,
                                 init, text ? by_width : sqrt(6.0 / (4.0 * (double)d)), 0, false},
                                {"attn.out_proj.weight", "attn.out_proj.bias", &l->out, d, d, init,
                                 text ? by_depth : by_width, 0, false},
                                {.weight = "ln_2"},
                                {"mlp.c_fc.weight", "mlp.c_fc.bias", &l->lin1, f, d, init,
                                 text ? by_width / sqrt(2.0) : by_width, by_width, false},
                                {"mlp.c_proj.weight", "mlp.c_proj.bias", &l->lin2, d, f, init,
                                 text ? by_depth : by_ffn, by_ffn, false}};
    memcpy(parts, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

static int timm_parts(struct part parts[MAX_PARTS], struct block *l, int64_t d, int64_t f) {
    const enum param_init normal = PARAM_INIT_NORMAL;
    const struct part list[] = {
        {.weight = "norm1"},
        {"attn.qkv.weight", "attn.qkv.bias", &l->qkv, 3 * d, d, normal, 0.02, 0, false},
        {"attn.proj.weight", "attn.proj.bias", &l->out, d, d, normal, 0.02, 0, false},
        {.weight = "norm2"},
        {"mlp.fc1.weight", "mlp.fc1.bias", &l->lin1, f, d, normal, 0.02, 0, false},
        {"mlp.fc2.weight", "mlp.fc2.bias", &l->lin2, d, f, normal, 0.02, 0, false}};
    memcpy(parts, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

static enum status
add_part(struct params *p, const char *block, const struct part *part, struct error *err) {
    const struct param_spec weight = {.module = block,
                                      .name = part->weight,
                                      .shape = {part->out, part->in},
                                      .adjacent = part->adjacent,
                                      .init = part->init,
                                      .init_scale = part->scale};
    const struct param_spec bias = {.module = block,
                                    .name = part->bias,
                                    .shape = {part->out},
                                    .adjacent = part->adjacent,
                                    .init = PARAM_INIT_UNIFORM,
                                    .init_scale = part->bias_scale};
    TRY(params_add(p, &part->at->weight, &weight, err));
    return params_add(p, &part->at->bias, &bias, err);
}

static enum status add_block(struct blocks *b, int32_t i, struct error *err) {
    struct part parts[MAX_PARTS];
    struct block *l = &b->list[i];
    char block[64];
    char module[96];
    const bool post = blocks_post_norm(b);
    const bool timm = b->opt.style == BLOCKS_TIMM;
    struct norm *norm = &b->norms[post ? 2 * i + 1 : 2 * i];
    const int count = post   ? distilbert_parts(parts, l, b->opt.dim, b->opt.ffn_dim)
                      : timm ? timm_parts(parts, l, b->opt.dim, b->opt.ffn_dim)
                             : clip_parts(parts, l, &b->opt);
    (void)snprintf(block, sizeof block, "%s.%d",
                   post   ? "transformer.layer"
                   : timm ? "blocks"
                          : "transformer.resblocks",
                   (int)i);
    l->first = params_count(b->params);
    for (int k = 0; k < count; k++) {
        if (parts[k].at != NULL) {
            TRY(add_part(b->params, block, &parts[k], err));
        } else {
            (void)snprintf(module, sizeof module, "%s.%s", block, parts[k].weight);
            TRY(norm_add(norm++, b->params, module, b->opt.dim, err));
        }
    }
    return STATUS_OK;
}

static enum status build(struct blocks *b, struct error *err) {
    const struct blocks_options *o = &b->opt;
    const bool post = blocks_post_norm(b);
    TRY(post ? norm_add(&b->norms[0], b->params, o->outer_norm, o->dim, err) : STATUS_OK);
    for (int32_t i = 0; i < o->layers; i++) {
        TRY(add_block(b, i, err));
    }
    return post ? STATUS_OK
                : norm_add(&b->norms[2 * o->layers], b->params, o->outer_norm, o->dim, err);
}

enum status blocks_create(struct blocks **out,
                          struct params *p,
                          const struct blocks_options *opt,
                          const char *what,
                          struct error *err) {
    *out = NULL;
    TRY(check_options(opt, what, err));
    enum status s = STATUS_OK;
    struct blocks *b = calloc(1, sizeof(*b));
    TRY_MEMORY(b != NULL, err, "out of memory for the %s", what);
    b->params = p;
    b->opt = *opt;
    b->list = calloc((size_t)opt->layers, sizeof(*b->list));
    b->norms = calloc(2 * (size_t)opt->layers + 1, sizeof(*b->norms));
    if (b->list == NULL || b->norms == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for the %s", what);
        goto fail;
    }
    TRY_OR_FAIL(s, build(b, err));
fail:
    RETURN_CREATED(s, out, b, blocks_destroy);
}

void blocks_set_backward(struct blocks *b, int32_t frozen, enum blocks_keep keep) {
    b->frozen = frozen;
    b->keep = b->opt.training ? keep : BLOCKS_KEEP_ALL;
}

void blocks_destroy(struct blocks *b) {
    if (b == NULL) {
        return;
    }
    free(b->list);
    free(b->norms);
    free(b);
}

enum status
norm_add(struct norm *n, struct params *p, const char *module, int64_t d, struct error *err) {
    const struct param_spec gamma = {
        .module = module, .name = "weight", .shape = {d}, .init = PARAM_INIT_ONES};
    const struct param_spec beta = {.module = module, .name = "bias", .shape = {d}};
    TRY(params_add(p, &n->gamma, &gamma, err));
    return params_add(p, &n->beta, &beta, err);
}

/* ---- memory ---- */

static void place_statistics(struct norm *n, struct carve *c, enum dtype dtype, int64_t rows) {
    n->mean = carve_take(c, tensor_1d(NULL, statistics_dtype(dtype), rows));
    n->rstd = carve_take(c, tensor_1d(NULL, statistics_dtype(dtype), rows));
}

void norm_place(struct norm *n, struct carve *c, enum dtype dtype, int64_t rows, int64_t d) {
    n->sum = carve_take(c, tensor_2d(NULL, dtype, rows, d));
    place_statistics(n, c, dtype, rows);
}

/* Places all of block i except its output x; in `lasting` what is read after it. Without training
 * norm k has its sum in sums[k % 2], which outlives the block, because the next one's skip may be
 * one of them. */
static void place_block(struct blocks *b,
                        int32_t i,
                        const struct tensor sums[2],
                        struct carve *c,
                        struct carve *lasting,
                        enum dtype dt) {
    const struct blocks_options *o = &b->opt;
    struct block *l = &b->list[i];
    const bool narrow = blocks_is_narrow(b, i);
    const int64_t m = (int64_t)o->max_batch * o->max_tokens;
    const int64_t r = narrow ? o->max_batch : m;
    l->qkv_rows = carve_take(c, tensor_2d(NULL, dt, m, 3 * (int64_t)o->dim));
    l->lse = carve_take(c, tensor_3d(NULL, param_dtype(dt), o->max_batch, o->heads, o->max_tokens));
    l->context = carve_take(c, tensor_2d(NULL, dt, m, o->dim));
    if (narrow) {
        l->picked = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
        l->skipped = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
    }
    for (int32_t k = 2 * i + 1; k <= 2 * i + 2; k++) {
        if (o->training) {
            norm_place(&b->norms[k], k == 2 * i + 2 ? lasting : c, dt, r, o->dim);
        } else {
            b->norms[k].sum = sums[k % 2];
            place_statistics(&b->norms[k], c, dt, r);
        }
    }
    l->pre = carve_take(c, tensor_2d(NULL, dt, r, o->ffn_dim));
    if (b->keep == BLOCKS_KEEP_ALL) {
        l->h = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
        l->hidden = carve_take(c, tensor_2d(NULL, dt, r, o->ffn_dim));
    } else {
        l->h = first_rows(b->list[0].h, r);
        l->hidden = first_rows(b->dpre, r);
    }
}

static void place_backward(struct blocks *b, struct carve *workspace, enum dtype dt, int64_t m) {
    const int64_t d = b->opt.dim;
    const int64_t f = b->opt.ffn_dim;
    for (int32_t i = 0; i < 3; i++) {
        b->grad[i] = carve_take(workspace, tensor_2d(NULL, dt, m, d));
    }
    b->dffn = carve_take(workspace, tensor_2d(NULL, dt, m, f > d ? f : d));
    b->dffn.shape[1] = f;
    b->dpre = carve_take(workspace, tensor_2d(NULL, dt, m, f > 3 * d ? f : 3 * d));
    b->dqkv = tensor_2d(b->dpre.data, dt, m, 3 * d);
    b->dpre.shape[1] = f;
    if (b->keep != BLOCKS_KEEP_ALL) {
        b->list[0].h = carve_take(workspace, tensor_2d(NULL, dt, m, d));
    }
}

void blocks_place(struct blocks *b,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *workspace) {
    const struct blocks_options *o = &b->opt;
    const int64_t m = (int64_t)o->max_batch * o->max_tokens;
    const struct tensor wide = tensor_2d(NULL, dtype, m, o->dim);
    struct carve *c = o->training ? kept : workspace;
    b->dev = dev;
    if (o->training) {
        place_backward(b, workspace, dtype, m);
    }
    const bool again = b->keep != BLOCKS_KEEP_ALL;
    const struct tensor shared_x = tensor_2d(b->dffn.data, dtype, m, o->dim);
    norm_place(&b->norms[0], c, dtype, m, o->dim);
    b->x = again ? shared_x : carve_take(c, wide);
    struct tensor turn[2] = {b->x, b->x};
    struct tensor sums[2] = {b->norms[0].sum, b->norms[0].sum};
    if (!o->training) {
        turn[1] = carve_take(c, wide);
        sums[1] = carve_take(c, wide);
    }
    struct carve *inner = b->keep == BLOCKS_KEEP_SUMS ? workspace : c;
    const struct carve shared = *inner; /* start of every block that keeps nothing */
    size_t most = inner->used_bytes;
    for (int32_t i = 0; i < o->layers; i++) {
        struct block *l = &b->list[i];
        if (!o->training || b->keep == BLOCKS_KEEP_SUMS) {
            *inner = shared;
        }
        place_block(b, i, sums, inner, c, dtype);
        if (blocks_is_narrow(b, i)) {
            l->x = carve_take(kept, tensor_2d(NULL, dtype, o->max_batch, o->dim));
        } else if (again && i + 1 < o->layers) {
            l->x = shared_x;
        } else {
            l->x = o->training ? carve_take(c, wide) : turn[(i + 1) % 2];
        }
        most = inner->used_bytes > most ? inner->used_bytes : most;
    }
    inner->used_bytes = most;
}

struct tensor blocks_input(const struct blocks *b, int64_t rows) {
    return first_rows(b->norms[0].sum, rows);
}

struct tensor blocks_gradient(const struct blocks *b, int64_t rows) {
    return first_rows(b->grad[0], rows);
}
