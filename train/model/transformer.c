/*
 * What the text tower is made of and where its activations lie; transformer_pass.c computes.
 *
 * In training each block keeps what its backward pass reads. Without it all blocks share one set,
 * and the running activation goes back and forth between two buffers.
 */
#include "train/model/transformer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/model/carve.h"
#include "train/model/transformer_internal.h"

/* Masks number the elements of attention for at most 512 tokens (kernels/dropout_mask.h). */
enum { MAX_TOKENS = 512, MAX_LAYERS = 64, MAX_WIDTH = 1 << 16 };

static const double INIT_STD = 0.02;

/* ---- description ---- */

enum status
transformer_preset(struct transformer_options *opt, const char *name, struct error *err) {
    static const struct {
        const char *name;
        struct transformer_options options;
    } presets[] = {
        {"distil", {.layers = 6, .dim = 768, .heads = 12, .ffn_dim = 3072, .position_count = 512}},
        {"small", {.layers = 4, .dim = 384, .heads = 6, .ffn_dim = 1536}},
        {"tiny", {.layers = 2, .dim = 192, .heads = 3, .ffn_dim = 768}},
    };
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *opt = presets[i].options;
            opt->max_tokens = 30;
            opt->max_batch = 1;
            opt->dropout = 0.1f;
            opt->training = true;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE, "unknown text tower '%s' (distil, small, tiny)", name);
}

static enum status check_options(const struct transformer_options *o, struct error *err) {
    FAIL_IF(o->layers < 1 || o->layers > MAX_LAYERS, err, STATUS_USAGE,
            "text tower of %d layers is not in 1-%d", (int)o->layers, MAX_LAYERS);
    FAIL_IF(o->heads < 1 || o->dim < 1 || o->dim > MAX_WIDTH || o->dim % o->heads != 0 ||
                o->ffn_dim < 1 || o->ffn_dim > MAX_WIDTH,
            err, STATUS_USAGE,
            "text tower width %d, heads %d, FFN %d do not fit (width a multiple of "
            "heads, both widths in 1-%d)",
            (int)o->dim, (int)o->heads, (int)o->ffn_dim, MAX_WIDTH);
    FAIL_IF(o->vocab_count < 1, err, STATUS_USAGE, "vocabulary of %d pieces is empty",
            (int)o->vocab_count);
    FAIL_IF(o->max_tokens < 1 || o->max_tokens > MAX_TOKENS, err, STATUS_USAGE,
            "caption length %d is not in 1-%d tokens", (int)o->max_tokens, MAX_TOKENS);
    FAIL_IF(o->position_count != 0 && o->position_count < o->max_tokens, err, STATUS_USAGE,
            "captions of %d tokens need more than %d positions", (int)o->max_tokens,
            (int)o->position_count);
    FAIL_IF(o->max_batch < 1 || o->max_batch > TRANSFORMER_MAX_BATCH, err, STATUS_USAGE,
            "batch of %d captions is not in 1-%d", (int)o->max_batch, TRANSFORMER_MAX_BATCH);
    FAIL_IF(!(o->dropout >= 0.0f && o->dropout < 1.0f), err, STATUS_USAGE,
            "dropout %g is not in [0, 1)", (double)o->dropout);
    return STATUS_OK;
}

/* MODULE.weight (out, in), or (out) ones where `in` is 0, and MODULE.bias (out). */
static enum status add_pair(struct transformer *t,
                            int32_t *weight,
                            int32_t *bias,
                            const char *module,
                            int64_t out,
                            int64_t in,
                            bool adjacent,
                            struct error *err) {
    const struct param_spec first = {.module = module,
                                     .name = "weight",
                                     .shape = {out, in},
                                     .adjacent = adjacent,
                                     .init = in > 0 ? PARAM_INIT_NORMAL : PARAM_INIT_ONES,
                                     .init_scale = INIT_STD};
    const struct param_spec second = {
        .module = module, .name = "bias", .shape = {out}, .adjacent = adjacent};
    TRY(params_add(t->params, weight, &first, err));
    return params_add(t->params, bias, &second, err);
}

static enum status build_layer(struct transformer *t, int32_t i, struct error *err) {
    struct layer *l = &t->layers[i];
    const int64_t d = t->opt.dim;
    const int64_t f = t->opt.ffn_dim;
    const struct {
        const char *name;
        int32_t *weight, *bias;
        int64_t out, in;
        bool adjacent;
    } parts[] = {
        {"attention.q_lin", &l->q.weight, &l->q.bias, d, d, false},
        {"attention.k_lin", &l->k.weight, &l->k.bias, d, d, true},
        {"attention.v_lin", &l->v.weight, &l->v.bias, d, d, true},
        {"attention.out_lin", &l->out.weight, &l->out.bias, d, d, false},
        {"sa_layer_norm", &l->attention_norm.gamma, &l->attention_norm.beta, d, 0, false},
        {"ffn.lin1", &l->lin1.weight, &l->lin1.bias, f, d, false},
        {"ffn.lin2", &l->lin2.weight, &l->lin2.bias, d, f, false},
        {"output_layer_norm", &l->output_norm.gamma, &l->output_norm.beta, d, 0, false},
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char module[64];
        (void)snprintf(module, sizeof module, "transformer.layer.%d.%s", (int)i, parts[k].name);
        TRY(add_pair(t, parts[k].weight, parts[k].bias, module, parts[k].out, parts[k].in,
                     parts[k].adjacent, err));
    }
    return STATUS_OK;
}

static enum status build(struct transformer *t, struct error *err) {
    const struct transformer_options *o = &t->opt;
    struct norm *n = &t->embedding_norm;
    struct param_spec table = {.name = "embeddings.word_embeddings.weight",
                               .shape = {o->vocab_count, o->dim},
                               .init = PARAM_INIT_NORMAL,
                               .init_scale = INIT_STD};
    TRY(params_add(t->params, &t->words, &table, err));
    table.name = "embeddings.position_embeddings.weight";
    table.shape[0] = o->position_count;
    TRY(params_add(t->params, &t->positions, &table, err));
    TRY(add_pair(t, &n->gamma, &n->beta, "embeddings.LayerNorm", o->dim, 0, false, err));
    for (int32_t i = 0; i < o->layers; i++) {
        TRY(build_layer(t, i, err));
    }
    return STATUS_OK;
}

enum status transformer_create(struct transformer **out,
                               struct params *p,
                               const struct transformer_options *opt,
                               struct error *err) {
    *out = NULL;
    TRY(check_options(opt, err));
    enum status s = STATUS_OK;
    struct transformer *t = calloc(1, sizeof(*t));
    TRY_MEMORY(t != NULL, err, "out of memory for the text tower");
    t->params = p;
    t->opt = *opt;
    if (t->opt.position_count == 0) {
        t->opt.position_count = opt->max_tokens;
    }
    t->layers = calloc((size_t)opt->layers, sizeof(*t->layers));
    if (t->layers == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for the text tower");
        goto fail;
    }
    TRY_OR_FAIL(s, build(t, err));
fail:
    RETURN_CREATED(s, out, t, transformer_destroy);
}

void transformer_destroy(struct transformer *t) {
    if (t == NULL) {
        return;
    }
    free(t->layers);
    free(t);
}

/* ---- memory ---- */

static void place_norm(struct norm *n, struct carve *c, enum dtype dtype, int64_t rows, int64_t d) {
    n->sum = carve_take(c, tensor_2d(NULL, dtype, rows, d));
    n->mean = carve_take(c, tensor_1d(NULL, statistics_dtype(dtype), rows));
    n->rstd = carve_take(c, tensor_1d(NULL, statistics_dtype(dtype), rows));
}

/* All of a layer but its output x. `narrow`: it continues with the first rows alone. */
static void place_layer(const struct transformer *t,
                        struct layer *l,
                        bool narrow,
                        struct carve *c,
                        enum dtype dt) {
    const struct transformer_options *o = &t->opt;
    int64_t m = (int64_t)o->max_batch * o->max_tokens;
    int64_t r = narrow ? o->max_batch : m;
    l->qkv = carve_take(c, tensor_2d(NULL, dt, m, 3 * (int64_t)o->dim));
    l->probs =
        carve_take(c, tensor_4d(NULL, dt, o->max_batch, o->heads, o->max_tokens, o->max_tokens));
    l->context = carve_take(c, tensor_2d(NULL, dt, m, o->dim));
    if (narrow) {
        l->picked = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
        l->skipped = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
    }
    place_norm(&l->attention_norm, c, dt, r, o->dim);
    l->h = carve_take(c, tensor_2d(NULL, dt, r, o->dim));
    l->pre = carve_take(c, tensor_2d(NULL, dt, r, o->ffn_dim));
    l->hidden = carve_take(c, tensor_2d(NULL, dt, r, o->ffn_dim));
    place_norm(&l->output_norm, c, dt, r, o->dim);
}

void transformer_place(struct transformer *t,
                       struct device *dev,
                       enum dtype dtype,
                       struct carve *kept,
                       struct carve *scratch) {
    const struct transformer_options *o = &t->opt;
    int64_t m = (int64_t)o->max_batch * o->max_tokens;
    struct tensor wide = tensor_2d(NULL, dtype, m, o->dim);
    struct carve *c = o->training ? kept : scratch;
    t->dev = dev;
    if (o->pool == TRANSFORMER_POOL_MEAN) {
        t->pooled = carve_take(kept, tensor_2d(NULL, dtype, o->max_batch, o->dim));
    }
    place_norm(&t->embedding_norm, c, dtype, m, o->dim);
    t->x = carve_take(c, wide);
    struct carve shared = *c; /* without training every block starts here */
    struct tensor turn[2] = {t->x, o->training ? t->x : carve_take(&shared, wide)};
    if (!o->training) {
        *c = shared;
    }
    size_t most = c->used_bytes;
    for (int32_t i = 0; i < o->layers; i++) {
        struct layer *l = &t->layers[i];
        bool narrow = i + 1 == o->layers && o->pool == TRANSFORMER_POOL_FIRST;
        if (!o->training) {
            *c = shared;
        }
        place_layer(t, l, narrow, c, dtype);
        if (narrow) {
            l->x = carve_take(kept, tensor_2d(NULL, dtype, o->max_batch, o->dim));
        } else {
            l->x = o->training ? carve_take(c, wide) : turn[(i + 1) % 2];
        }
        most = c->used_bytes > most ? c->used_bytes : most;
    }
    c->used_bytes = most;
    if (o->training) {
        for (int32_t i = 0; i < 3; i++) {
            t->grad[i] = carve_take(scratch, wide);
        }
        t->dffn = carve_take(scratch, tensor_2d(NULL, dtype, m, o->ffn_dim));
        t->dpre = carve_take(scratch, tensor_2d(NULL, dtype, m, o->ffn_dim));
        t->dqkv = carve_take(scratch, tensor_2d(NULL, dtype, m, 3 * (int64_t)o->dim));
    }
}
