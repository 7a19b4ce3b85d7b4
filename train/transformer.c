/*
 * Shapes in comments: N captions of T tokens (M = N T rows), D the model's width, F the FFN's,
 * H heads. In the last block only row 0 of each caption goes on after attention, so there R = N;
 * everywhere else R = M. Dropout's element numbers count from the start of a caption, so the mask
 * of those rows is the same either way.
 *
 * Memory. In training each block keeps what its backward pass reads. Without it all blocks share
 * one set, and the running activation goes back and forth between two buffers.
 */
#include "train/transformer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/carve_internal.h"

/* Masks number the elements of attention for at most 512 tokens (kernels/dropout_mask.h). */
enum { MAX_TOKENS = 512, MAX_LAYERS = 64 };

static const float NORM_EPS = 1e-12f;
static const double INIT_STD = 0.02;

struct linear {
    int32_t weight, bias; /* indices in the table */
};

struct norm {
    int32_t gamma, beta;
    struct tensor sum;        /* (R, D) what goes in, kept */
    struct tensor mean, rstd; /* (R) */
};

struct layer {
    struct linear q, k, v; /* side by side: one (3D, D) weight, one (3D) bias */
    struct linear out, lin1, lin2;
    struct norm attention_norm, output_norm;

    struct tensor qkv;     /* (M, 3D) */
    struct tensor probs;   /* (N, H, T, T) */
    struct tensor context; /* (M, D) */
    struct tensor picked;  /* (R, D) rows of context; only in the last block */
    struct tensor skipped; /* (R, D) rows of x; only in the last block */
    struct tensor h;       /* (R, D) after the first norm */
    struct tensor pre;     /* (R, F) before GELU */
    struct tensor hidden;  /* (R, F) after it */
    struct tensor x;       /* (R, D) after the second norm */
};

struct transformer {
    struct params *params;
    struct transformer_options opt;
    struct device *dev; /* NULL before attach */
    int32_t words, positions;
    struct norm embedding_norm;
    struct layer *layers;

    struct tensor x; /* (M, D) into the first block */
    struct tensor rows;
    int32_t *host_rows;       /* first row of each caption, on the host and on the device */
    int64_t rows_tokens;      /* T they were made for */
    struct tensor grad[3];    /* (M, D) scratch of the backward pass */
    struct tensor dffn, dpre; /* (M, F) */
    struct tensor dqkv;       /* (M, 3D) */
};

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
    if (o->layers < 1 || o->layers > MAX_LAYERS) {
        return error_set(err, STATUS_USAGE, "text tower of %d layers is not in 1-%d",
                         (int)o->layers, MAX_LAYERS);
    }
    if (o->dim < 1 || o->heads < 1 || o->dim % o->heads != 0 || o->ffn_dim < 1) {
        return error_set(err, STATUS_USAGE, "text tower width %d, heads %d, FFN %d do not fit",
                         (int)o->dim, (int)o->heads, (int)o->ffn_dim);
    }
    if (o->vocab_count < 1) {
        return error_set(err, STATUS_USAGE, "vocabulary of %d pieces is empty",
                         (int)o->vocab_count);
    }
    if (o->max_tokens < 1 || o->max_tokens > MAX_TOKENS) {
        return error_set(err, STATUS_USAGE, "caption length %d is not in 1-%d tokens",
                         (int)o->max_tokens, MAX_TOKENS);
    }
    if (o->position_count != 0 && o->position_count < o->max_tokens) {
        return error_set(err, STATUS_USAGE, "captions of %d tokens need more than %d positions",
                         (int)o->max_tokens, (int)o->position_count);
    }
    if (o->max_batch < 1) {
        return error_set(err, STATUS_USAGE, "batch of %d captions is not at least 1",
                         (int)o->max_batch);
    }
    if (!(o->dropout >= 0.0f && o->dropout < 1.0f)) {
        return error_set(err, STATUS_USAGE, "dropout %g is not in [0, 1)", (double)o->dropout);
    }
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
                              struct linear *l,
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
    if (t == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for the text tower");
    }
    t->params = p;
    t->opt = *opt;
    if (t->opt.position_count == 0) {
        t->opt.position_count = opt->max_tokens;
    }
    t->layers = calloc((size_t)opt->layers, sizeof(*t->layers));
    t->host_rows = calloc((size_t)opt->max_batch, sizeof(*t->host_rows));
    if (t->layers == NULL || t->host_rows == NULL) {
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
    free(t->host_rows);
    free(t);
}

/* ---- memory ---- */

static void place_norm(struct norm *n, struct carve *c, enum dtype dtype, int64_t rows, int64_t d) {
    n->sum = carve_take(c, tensor_2d(NULL, dtype, rows, d));
    n->mean = carve_take(c, tensor_1d(NULL, dtype, rows));
    n->rstd = carve_take(c, tensor_1d(NULL, dtype, rows));
}

/* All of a layer but its output x. */
static void place_layer(const struct transformer *t,
                        struct layer *l,
                        bool last,
                        struct carve *c,
                        enum dtype dt) {
    const struct transformer_options *o = &t->opt;
    int64_t m = (int64_t)o->max_batch * o->max_tokens;
    int64_t r = last ? o->max_batch : m;
    l->qkv = carve_take(c, tensor_2d(NULL, dt, m, 3 * (int64_t)o->dim));
    l->probs =
        carve_take(c, tensor_4d(NULL, dt, o->max_batch, o->heads, o->max_tokens, o->max_tokens));
    l->context = carve_take(c, tensor_2d(NULL, dt, m, o->dim));
    if (last) {
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
    t->rows = carve_take(kept, tensor_1d(NULL, DTYPE_I32, o->max_batch));
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
        bool last = i + 1 == o->layers;
        if (!o->training) {
            *c = shared;
        }
        place_layer(t, l, last, c, dtype);
        if (last) {
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

/* ---- forward ---- */

/* One pass over one batch. */
struct pass {
    const struct transformer *t;
    struct device *dev;
    const struct ops *ops;
    const struct transformer_batch *batch;
    int64_t n, tokens, rows; /* N, T, N T */
    bool training;
};

static struct pass
begin(const struct transformer *t, const struct transformer_batch *batch, bool training) {
    int64_t n = batch->tokens.shape[0];
    int64_t tokens = batch->tokens.shape[1];
    return (struct pass){t, t->dev, t->dev->ops, batch, n, tokens, n * tokens, training};
}

static bool is_last(const struct pass *p, int32_t i) {
    return i + 1 == p->t->opt.layers;
}

/* Rows of a block after attention: R. */
static int64_t rows_after(const struct pass *p, int32_t i) {
    return is_last(p, i) ? p->n : p->rows;
}

/* (M, C) as (N, T, C), the form of ops that know captions; (R, C) of the last block as (N, 1, C).
 */
static struct tensor by_caption(const struct pass *p, struct tensor flat) {
    return tensor_3d(flat.data, flat.dtype, p->n, flat.shape[0] / p->n, flat.shape[1]);
}

/* Streams of masks: 0 embeddings, 2 i + 1 attention of block i, 2 i + 2 its FFN. */
static struct dropout_params mask(const struct pass *p, int32_t layer) {
    return (struct dropout_params){.p = p->training ? p->t->opt.dropout : 0.0f,
                                   .seed = p->batch->seed,
                                   .step = p->batch->step,
                                   .layer = (uint32_t)layer,
                                   .sample_ids = p->batch->sample_ids};
}

static bool drops(const struct pass *p) {
    return p->training && p->t->opt.dropout > 0.0f;
}

/* out (R, D) = mask(in), in place allowed. Called where drops(p) says so. */
static enum status
drop(const struct pass *p, struct tensor out, struct tensor in, int32_t layer, struct error *err) {
    struct dropout_params m = mask(p, layer);
    struct tensor out3 = by_caption(p, out);
    struct tensor in3 = by_caption(p, in);
    return p->ops->dropout(p->dev, &out3, &in3, &m, err);
}

static enum status linear_forward(const struct pass *p,
                                  const struct linear *l,
                                  struct tensor out,
                                  struct tensor pre,
                                  struct tensor in,
                                  enum activation act,
                                  struct error *err) {
    struct tensor weight = params_tensor(p->t->params, l->weight);
    struct tensor bias = params_tensor(p->t->params, l->bias);
    return p->ops->linear(p->dev, &out, &pre, &in, &weight, &bias, act, err);
}

/* out (R, D) = LN(a + b); `a` is the memory of n->sum, so that the sum is made in place. */
static enum status norm_forward(const struct pass *p,
                                const struct norm *n,
                                struct tensor out,
                                struct tensor b,
                                struct error *err) {
    int64_t rows = out.shape[0];
    struct tensor sum = first_rows(n->sum, rows);
    struct tensor mean = first_rows(n->mean, rows);
    struct tensor rstd = first_rows(n->rstd, rows);
    struct tensor gamma = params_tensor(p->t->params, n->gamma);
    struct tensor beta = params_tensor(p->t->params, n->beta);
    return p->ops->layernorm(p->dev, &out, &sum, &mean, &rstd, &sum, &b, &gamma, &beta, NORM_EPS,
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

/* x (M, D) -> l->context (M, D) */
static enum status
attention_forward(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    struct fused f =
        fuse(params_tensor(t->params, l->q.weight), params_tensor(t->params, l->q.bias));
    struct tensor qkv = first_rows(l->qkv, p->rows); /* (M, 3D) */
    TRY(p->ops->linear(p->dev, &qkv, &NOT_WANTED, &x, &f.weight, &f.bias, ACTIVATION_NONE, err));
    struct dropout_params m = mask(p, 2 * i + 1);
    struct attention_params a = {.heads = t->opt.heads, .dropout = drops(p) ? &m : NULL};
    struct tensor probs = tensor_4d(l->probs.data, l->probs.dtype, p->n, t->opt.heads, p->tokens,
                                    p->tokens);                             /* (N, H, T, T) */
    qkv = by_caption(p, qkv);                                               /* (N, T, 3D) */
    struct tensor context = by_caption(p, first_rows(l->context, p->rows)); /* (N, T, D) */
    return p->ops->attention(p->dev, &context, &probs, &qkv, &p->batch->lengths, &a, err);
}

/* x (M, D) -> l->x (R, D) */
static enum status
layer_forward(const struct pass *p, int32_t i, struct tensor x, struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    int64_t r = rows_after(p, i);
    TRY(attention_forward(p, i, x, err));
    struct tensor context = first_rows(l->context, p->rows); /* (M, D) */
    if (is_last(p, i)) {
        struct tensor rows = first_rows(t->rows, p->n);
        struct tensor picked = first_rows(l->picked, r); /* (N, D) */
        struct tensor skipped = first_rows(l->skipped, r);
        TRY(p->ops->gather_rows(p->dev, &picked, &context, &rows, err));
        TRY(p->ops->gather_rows(p->dev, &skipped, &x, &rows, err));
        context = picked;
        x = skipped;
    }
    struct tensor sum = first_rows(l->attention_norm.sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->out, sum, NOT_WANTED, context, ACTIVATION_NONE, err));
    struct tensor h = first_rows(l->h, r); /* (R, D) */
    TRY(norm_forward(p, &l->attention_norm, h, x, err));

    struct tensor hidden = first_rows(l->hidden, r); /* (R, F) */
    TRY(linear_forward(p, &l->lin1, hidden, first_rows(l->pre, r), h, ACTIVATION_GELU, err));
    sum = first_rows(l->output_norm.sum, r); /* (R, D) */
    TRY(linear_forward(p, &l->lin2, sum, NOT_WANTED, hidden, ACTIVATION_NONE, err));
    if (drops(p)) {
        TRY(drop(p, sum, sum, 2 * i + 2, err));
    }
    return norm_forward(p, &l->output_norm, first_rows(l->x, r), h, err);
}

/* The first row of each caption, for captions of T tokens. */
static enum status place_rows(struct transformer *t, int64_t tokens, struct error *err) {
    if (t->rows_tokens == tokens) {
        return STATUS_OK;
    }
    for (int32_t i = 0; i < t->opt.max_batch; i++) {
        t->host_rows[i] = (int32_t)(i * tokens);
    }
    t->rows_tokens = 0;
    TRY(t->dev->ops->upload(t->dev, t->rows.data, t->host_rows, tensor_size_bytes(&t->rows), err));
    TRY(t->dev->ops->sync(t->dev, err)); /* host_rows may change at the next call */
    t->rows_tokens = tokens;
    return STATUS_OK;
}

static bool batch_fits(const struct transformer *t, const struct transformer_batch *b) {
    return b->tokens.ndim == 2 && b->tokens.shape[0] >= 1 &&
           b->tokens.shape[0] <= t->opt.max_batch && b->tokens.shape[1] >= 1 &&
           b->tokens.shape[1] <= t->opt.max_tokens;
}

enum status transformer_forward(struct transformer *t,
                                struct tensor *features,
                                const struct transformer_batch *batch,
                                bool training,
                                struct error *err) {
    REQUIRE(t->dev != NULL && (!training || t->opt.training) && batch_fits(t, batch));
    struct pass p = begin(t, batch, training);
    TRY(place_rows(t, p.tokens, err));
    struct tensor words = params_tensor(t->params, t->words);                      /* (V, D) */
    struct tensor positions = params_tensor(t->params, t->positions);              /* (P, D) */
    struct tensor sum = by_caption(&p, first_rows(t->embedding_norm.sum, p.rows)); /* (N, T, D) */
    TRY(p.ops->embedding(p.dev, &sum, &batch->tokens, &words, &positions, err));
    struct tensor x = first_rows(t->x, p.rows); /* (M, D) */
    TRY(norm_forward(&p, &t->embedding_norm, x, NOT_WANTED, err));
    if (drops(&p)) {
        TRY(drop(&p, x, x, 0, err));
    }
    for (int32_t i = 0; i < t->opt.layers; i++) {
        TRY(layer_forward(&p, i, x, err));
        x = first_rows(t->layers[i].x, rows_after(&p, i));
    }
    *features = x; /* (N, D) */
    return STATUS_OK;
}

/* ---- backward ---- */

static enum status linear_backward(const struct pass *p,
                                   const struct linear *l,
                                   struct tensor din,
                                   enum write_mode din_mode,
                                   enum write_mode mode,
                                   struct tensor dpre,
                                   struct tensor dout,
                                   struct tensor in,
                                   struct tensor pre,
                                   enum activation act,
                                   struct error *err) {
    struct tensor weight = params_tensor(p->t->params, l->weight);
    struct tensor dweight = params_grad(p->t->params, l->weight);
    struct tensor dbias = params_grad(p->t->params, l->bias);
    return p->ops->linear_bwd(p->dev, &din, din_mode, &dweight, &dbias, mode, &dpre, &dout, &in,
                              &weight, &pre, act, err);
}

/* dsum (R, D) is set. */
static enum status norm_backward(const struct pass *p,
                                 const struct norm *n,
                                 struct tensor dsum,
                                 struct tensor dout,
                                 enum write_mode mode,
                                 struct error *err) {
    int64_t rows = dout.shape[0];
    struct tensor sum = first_rows(n->sum, rows);
    struct tensor mean = first_rows(n->mean, rows);
    struct tensor rstd = first_rows(n->rstd, rows);
    struct tensor gamma = params_tensor(p->t->params, n->gamma);
    struct tensor dgamma = params_grad(p->t->params, n->gamma);
    struct tensor dbeta = params_grad(p->t->params, n->beta);
    return p->ops->layernorm_bwd(p->dev, &dsum, WRITE_SET, &dgamma, &dbeta, mode, &dout, &sum,
                                 &mean, &rstd, &gamma, err);
}

/* FFN and its norm. dout (R, D) = dL/dx -> dh (R, D), set; spare (R, D) is scratch. */
static enum status ffn_backward(const struct pass *p,
                                int32_t i,
                                struct tensor dh,
                                struct tensor dout,
                                struct tensor spare,
                                enum write_mode mode,
                                struct error *err) {
    const struct layer *l = &p->t->layers[i];
    int64_t r = dout.shape[0];
    /* LN(drop(f) + h): dh gets the sum's gradient, and so does drop(f). */
    TRY(norm_backward(p, &l->output_norm, dh, dout, mode, err));
    struct tensor df = dh;
    if (drops(p)) {
        TRY(drop(p, spare, dh, 2 * i + 2, err));
        df = spare;
    }
    struct tensor dhidden = first_rows(p->t->dffn, r); /* (R, F) */
    TRY(linear_backward(p, &l->lin2, dhidden, WRITE_SET, mode, NOT_WANTED, df,
                        first_rows(l->hidden, r), NOT_WANTED, ACTIVATION_NONE, err));
    return linear_backward(p, &l->lin1, dh, WRITE_ADD, mode, first_rows(p->t->dpre, r), dhidden,
                           first_rows(l->h, r), first_rows(l->pre, r), ACTIVATION_GELU, err);
}

/* Attention proper and q, k, v. dcontext (M, D) -> dx (M, D), set or added. */
static enum status attention_backward(const struct pass *p,
                                      int32_t i,
                                      struct tensor x,
                                      struct tensor dx,
                                      enum write_mode dx_mode,
                                      struct tensor dcontext,
                                      enum write_mode mode,
                                      struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    struct dropout_params m = mask(p, 2 * i + 1);
    struct attention_params a = {.heads = t->opt.heads, .dropout = drops(p) ? &m : NULL};
    struct tensor probs = tensor_4d(l->probs.data, l->probs.dtype, p->n, t->opt.heads, p->tokens,
                                    p->tokens);                     /* (N, H, T, T) */
    struct tensor qkv = by_caption(p, first_rows(l->qkv, p->rows)); /* (N, T, 3D) */
    struct tensor dqkv = first_rows(t->dqkv, p->rows);              /* (M, 3D) */
    struct tensor dqkv3 = by_caption(p, dqkv);
    struct tensor dcontext3 = by_caption(p, dcontext);
    TRY(p->ops->attention_bwd(p->dev, &dqkv3, &dcontext3, &probs, &qkv, &p->batch->lengths, &a,
                              err));
    struct fused f =
        fuse(params_tensor(t->params, l->q.weight), params_tensor(t->params, l->q.bias));
    struct fused df = fuse(params_grad(t->params, l->q.weight), params_grad(t->params, l->q.bias));
    return p->ops->linear_bwd(p->dev, &dx, dx_mode, &df.weight, &df.bias, mode, &NOT_WANTED, &dqkv,
                              &x, &f.weight, &NOT_WANTED, ACTIVATION_NONE, err);
}

/* x (M, D) is the block's input, dout (R, D) = dL/d(its output). The three scratch buffers take
 * turns: a holds dh, then the gradient of context; b the gradient of the first sum, which is also
 * that of the input along the skip; *dx says where dL/dx (M, D) lies in the end. */
static enum status layer_backward(const struct pass *p,
                                  int32_t i,
                                  struct tensor x,
                                  struct tensor dout,
                                  const struct tensor *a,
                                  const struct tensor *b,
                                  struct tensor *dx,
                                  enum write_mode mode,
                                  struct error *err) {
    const struct transformer *t = p->t;
    const struct layer *l = &t->layers[i];
    int64_t r = dout.shape[0];
    struct tensor dh = first_rows(*a, r);
    struct tensor dsum = first_rows(*b, r);
    TRY(ffn_backward(p, i, dh, dout, dsum, mode, err));
    TRY(norm_backward(p, &l->attention_norm, dsum, dh, mode, err));
    struct tensor dcontext = first_rows(*a, r); /* dh is used up */
    struct tensor context = first_rows(is_last(p, i) ? l->picked : l->context, r);
    TRY(linear_backward(p, &l->out, dcontext, WRITE_SET, mode, NOT_WANTED, dsum, context,
                        NOT_WANTED, ACTIVATION_NONE, err));
    if (!is_last(p, i)) {
        *dx = dsum; /* (M, D) along the skip; attention adds to it */
        return attention_backward(p, i, x, *dx, WRITE_ADD, dcontext, mode, err);
    }
    /* Only the first rows came this way: widen dcontext, and add the skip to these rows at the end.
     * The third buffer is free, because the last block's dout comes from outside. */
    struct tensor rows = first_rows(t->rows, p->n);
    struct tensor wide = first_rows(t->grad[2], p->rows);
    TRY(p->ops->fill(p->dev, &wide, 0.0, err));
    TRY(p->ops->scatter_rows(p->dev, &wide, WRITE_SET, &dcontext, &rows, err));
    *dx = first_rows(*a, p->rows);
    TRY(attention_backward(p, i, x, *dx, WRITE_SET, wide, mode, err));
    return p->ops->scatter_rows(p->dev, dx, WRITE_ADD, &dsum, &rows, err);
}

enum status transformer_backward(struct transformer *t,
                                 const struct tensor *dfeatures,
                                 const struct transformer_batch *batch,
                                 enum write_mode mode,
                                 struct error *err) {
    REQUIRE(t->dev != NULL && t->opt.training && batch_fits(t, batch));
    REQUIRE(t->rows_tokens == batch->tokens.shape[1]);
    struct pass p = begin(t, batch, true);
    struct tensor dx = *dfeatures; /* (N, D) */
    for (int32_t i = t->opt.layers - 1; i >= 0; i--) {
        struct tensor x = first_rows(i > 0 ? t->layers[i - 1].x : t->x, p.rows);
        /* the two buffers that dx is not in */
        int32_t at = dx.data == t->grad[0].data ? 0 : dx.data == t->grad[1].data ? 1 : 2;
        TRY(layer_backward(&p, i, x, dx, &t->grad[(at + 1) % 3], &t->grad[(at + 2) % 3], &dx, mode,
                           err));
    }
    /* drop, norm, embeddings; dx (M, D) */
    if (drops(&p)) {
        TRY(drop(&p, dx, dx, 0, err));
    }
    struct tensor dsum = first_rows(dx.data == t->grad[0].data ? t->grad[1] : t->grad[0], p.rows);
    TRY(norm_backward(&p, &t->embedding_norm, dsum, dx, mode, err));
    struct tensor dwords = params_grad(t->params, t->words);
    struct tensor dpositions = params_grad(t->params, t->positions);
    struct tensor dsum3 = by_caption(&p, dsum); /* (N, T, D) */
    return p.ops->embedding_bwd(p.dev, &dwords, &dpositions, mode, &dsum3, &batch->tokens,
                                &batch->lengths, err);
}
