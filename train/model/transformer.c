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

#include "train/model/carve_internal.h"
#include "train/model/transformer_internal.h"

/* Masks number the elements of attention for at most 512 tokens (kernels/dropout_mask.h). */
enum { MAX_TOKENS = 512, MAX_LAYERS = 64, MAX_WIDTH = 1 << 16 };

static const double INIT_STD = 0.02;

/* ---- description ---- */

enum status
transformer_preset(struct transformer_options *opt, const char *name, struct error *err) {
    static const struct {
        const char *name;
        int32_t layers, dim, heads, ffn_dim, position_count;
    } presets[] = {
        {"distil", 6, 768, 12, 3072, 512},
        {"small", 4, 384, 6, 1536, 0},
        {"tiny", 2, 192, 3, 768, 0},
    };
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *opt = (struct transformer_options){.layers = presets[i].layers,
                                                .dim = presets[i].dim,
                                                .heads = presets[i].heads,
                                                .ffn_dim = presets[i].ffn_dim,
                                                .position_count = presets[i].position_count,
                                                .max_tokens = 30,
                                                .max_batch = 1,
                                                .dropout = 0.1f,
                                                .training = true};
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

static enum status add_matrix(struct transformer *t,
                              int32_t *index,
                              const char *name,
                              int64_t rows,
                              int64_t columns,
                              bool adjacent,
                              struct error *err) {
    struct param_spec spec = {.name = name,
                              .ndim = 2,
                              .shape = {rows, columns},
                              .adjacent = adjacent,
                              .init = PARAM_INIT_NORMAL,
                              .init_scale = INIT_STD};
    return params_add(t->params, index, &spec, err);
}

static enum status add_vector(struct transformer *t,
                              int32_t *index,
                              const char *name,
                              int64_t count,
                              bool adjacent,
                              enum param_init init,
                              struct error *err) {
    struct param_spec spec = {
        .name = name, .ndim = 1, .shape = {count}, .adjacent = adjacent, .init = init};
    return params_add(t->params, index, &spec, err);
}

static enum status add_linear(struct transformer *t,
                              struct affine *l,
                              int32_t layer,
                              const char *name,
                              int64_t out,
                              int64_t in,
                              bool adjacent,
                              struct error *err) {
    char full[PARAM_MAX_NAME_BYTES];
    snprintf(full, sizeof(full), "transformer.layer.%d.%s.weight", (int)layer, name);
    TRY(add_matrix(t, &l->weight, full, out, in, adjacent, err));
    snprintf(full, sizeof(full), "transformer.layer.%d.%s.bias", (int)layer, name);
    return add_vector(t, &l->bias, full, out, adjacent, PARAM_INIT_ZEROS, err);
}

static enum status
add_norm(struct transformer *t, struct norm *n, const char *name, struct error *err) {
    char full[PARAM_MAX_NAME_BYTES];
    snprintf(full, sizeof(full), "%s.weight", name);
    TRY(add_vector(t, &n->gamma, full, t->opt.dim, false, PARAM_INIT_ONES, err));
    snprintf(full, sizeof(full), "%s.bias", name);
    return add_vector(t, &n->beta, full, t->opt.dim, false, PARAM_INIT_ZEROS, err);
}

static enum status build_layer(struct transformer *t, int32_t i, struct error *err) {
    struct layer *l = &t->layers[i];
    int64_t d = t->opt.dim;
    int64_t f = t->opt.ffn_dim;
    char name[64];
    TRY(add_linear(t, &l->q, i, "attention.q_lin", d, d, false, err));
    TRY(add_linear(t, &l->k, i, "attention.k_lin", d, d, true, err));
    TRY(add_linear(t, &l->v, i, "attention.v_lin", d, d, true, err));
    TRY(add_linear(t, &l->out, i, "attention.out_lin", d, d, false, err));
    snprintf(name, sizeof(name), "transformer.layer.%d.sa_layer_norm", (int)i);
    TRY(add_norm(t, &l->attention_norm, name, err));
    TRY(add_linear(t, &l->lin1, i, "ffn.lin1", f, d, false, err));
    TRY(add_linear(t, &l->lin2, i, "ffn.lin2", d, f, false, err));
    snprintf(name, sizeof(name), "transformer.layer.%d.output_layer_norm", (int)i);
    return add_norm(t, &l->output_norm, name, err);
}

static enum status build(struct transformer *t, struct error *err) {
    const struct transformer_options *o = &t->opt;
    TRY(add_matrix(t, &t->words, "embeddings.word_embeddings.weight", o->vocab_count, o->dim, false,
                   err));
    TRY(add_matrix(t, &t->positions, "embeddings.position_embeddings.weight", o->position_count,
                   o->dim, false, err));
    TRY(add_norm(t, &t->embedding_norm, "embeddings.LayerNorm", err));
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
    *out = t;
    return STATUS_OK;
fail:
    transformer_destroy(t);
    return s;
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

static void
lay_out(struct transformer *t, enum dtype dtype, struct carve *kept, struct carve *scratch) {
    const struct transformer_options *o = &t->opt;
    int64_t m = (int64_t)o->max_batch * o->max_tokens;
    struct tensor wide = tensor_2d(NULL, dtype, m, o->dim);
    struct carve *c = o->training ? kept : scratch;
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

void transformer_memory(struct transformer *t,
                        enum dtype dtype,
                        size_t *kept_bytes,
                        size_t *scratch_bytes) {
    struct carve kept = {0};
    struct carve scratch = {0};
    lay_out(t, dtype, &kept, &scratch);
    *kept_bytes = kept.used_bytes;
    *scratch_bytes = scratch.used_bytes;
}

void transformer_attach(struct transformer *t,
                        struct device *dev,
                        enum dtype dtype,
                        void *kept,
                        void *scratch) {
    t->dev = dev;
    struct carve k = {.base = kept};
    struct carve s = {.base = scratch};
    lay_out(t, dtype, &k, &s);
}
