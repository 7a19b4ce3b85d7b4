/*
 * transformer: the embedding before the blocks and the pool after them.
 */
#include "train/model/transformer.h"

#include <stdlib.h>
#include <string.h>

#include "train/model/blocks.h"

struct transformer {
    struct params *params;
    int32_t frozen; /* of transformer_set_backward */
    struct transformer_options opt;
    struct device *dev; /* NULL before placement */
    int32_t words, positions;
    struct blocks *blocks;
    struct tensor pooled; /* (N, D) means */
};

const char *const TRANSFORMER_POOL_NAMES[] = {"first", "mean", "end", "last", NULL};

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
            opt->act = ACTIVATION_GELU;
            opt->training = true;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE, "unknown text tower '%s' (distil, small, tiny)", name);
}

static enum status check_options(const struct transformer_options *o, struct error *err) {
    FAIL_IF(o->vocab_count < 1, err, STATUS_USAGE, "vocabulary of %d pieces is empty",
            (int)o->vocab_count);
    FAIL_IF(o->position_count != 0 && o->position_count < o->max_tokens, err, STATUS_USAGE,
            "captions of %d tokens need more than %d positions", (int)o->max_tokens,
            (int)o->position_count);
    FAIL_IF(o->max_batch < 1 || o->max_batch > TRANSFORMER_MAX_BATCH, err, STATUS_USAGE,
            "batch of %d captions is not in 1-%d", (int)o->max_batch, TRANSFORMER_MAX_BATCH);
    return STATUS_OK;
}

static enum status build(struct transformer *t, struct error *err) {
    const struct transformer_options *o = &t->opt;
    const bool clip = o->kind == TRANSFORMER_CLIP;
    struct param_spec table = {.name = clip ? "token_embedding.weight"
                                            : "embeddings.word_embeddings.weight",
                               .shape = {o->vocab_count, o->dim},
                               .init = PARAM_INIT_NORMAL,
                               .init_scale = 0.02};
    TRY(params_add(t->params, &t->words, &table, err));
    table.name = clip ? "positional_embedding" : "embeddings.position_embeddings.weight";
    table.shape[0] = o->position_count;
    table.init_scale = clip ? 0.01 : 0.02;
    TRY(params_add(t->params, &t->positions, &table, err));
    const struct blocks_options blocks = {
        .style = clip ? BLOCKS_CLIP_TEXT : BLOCKS_DISTILBERT,
        .outer_norm = clip ? "ln_final" : "embeddings.LayerNorm",
        .layers = o->layers,
        .dim = o->dim,
        .heads = o->heads,
        .ffn_dim = o->ffn_dim,
        .max_tokens = o->max_tokens,
        .max_batch = o->max_batch,
        .eps = o->whole ? 1e-6f
               : clip   ? 1e-5f
                        : 1e-12f,
        .dropout = o->dropout,
        .act = o->act,
        .causal = clip && !o->whole,
        .narrow = o->pool != TRANSFORMER_POOL_MEAN,
        .training = o->training,
    };
    return blocks_create(&t->blocks, t->params, &blocks, "text tower", err);
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
    TRY_OR_FAIL(s, build(t, err));
fail:
    RETURN_CREATED(s, out, t, transformer_destroy);
}

void transformer_destroy(struct transformer *t) {
    if (t == NULL) {
        return;
    }
    blocks_destroy(t->blocks);
    free(t);
}

void transformer_set_backward(struct transformer *t, int32_t frozen, enum blocks_keep keep) {
    t->frozen = frozen;
    blocks_set_backward(t->blocks, frozen, keep);
}

void transformer_place(struct transformer *t,
                       struct device *dev,
                       enum dtype dtype,
                       struct carve *kept,
                       struct carve *workspace) {
    t->dev = dev;
    if (t->opt.pool == TRANSFORMER_POOL_MEAN) {
        t->pooled = carve_take(kept, tensor_2d(NULL, dtype, t->opt.max_batch, t->opt.dim));
    }
    blocks_place(t->blocks, dev, dtype, kept, workspace);
}

/* ---- passes ---- */

static bool batch_fits(const struct transformer *t, const struct transformer_batch *b) {
    const int64_t n = b->starts.shape[0];
    const int64_t rows = b->tokens.shape[0];
    return b->tokens.ndim == 1 && b->starts.ndim == 1 && b->lengths.ndim == 1 && n >= 1 &&
           n <= t->opt.max_batch && b->lengths.shape[0] == n && rows >= n &&
           rows <= (int64_t)t->opt.max_batch * t->opt.max_tokens && b->longest >= 1 &&
           b->longest <= t->opt.max_tokens;
}

static struct blocks_batch rows_of(const struct transformer_batch *b) {
    return (struct blocks_batch){
        .segments = {.starts = b->starts, .lengths = b->lengths},
        .rows = b->tokens.shape[0],
        .longest = b->longest,
        .picked = tensor_present(&b->ends) ? b->ends : b->starts,
        .sample_ids = b->sample_ids,
        .values = b->values,
        .seed = b->seed,
    };
}

enum status transformer_forward(struct transformer *t,
                                struct tensor *features,
                                const struct transformer_batch *batch,
                                bool training,
                                struct error *err) {
    REQUIRE(t->dev != NULL && (!training || t->opt.training) && batch_fits(t, batch));
    const struct ops *ops = t->dev->ops;
    const struct blocks_batch rows = rows_of(batch);
    const struct embedding embedding = {.out = blocks_input(t->blocks, rows.rows), /* (M, D) */
                                        .tokens = batch->tokens,
                                        .segments = rows.segments,
                                        .table = params_tensor(t->params, t->words),
                                        .positions = params_tensor(t->params, t->positions)};
    struct tensor x;
    TRY(ops->embedding(t->dev, &embedding, err));
    TRY(blocks_forward(t->blocks, &x, &rows, training, err));
    if (t->opt.pool != TRANSFORMER_POOL_MEAN) {
        *features = x; /* (N, D) */
        return STATUS_OK;
    }
    *features = first_rows(t->pooled, batch->starts.shape[0]); /* (N, D) */
    const struct segment_mean mean = {.out = *features, .in = x, .segments = rows.segments};
    return ops->segment_mean(t->dev, &mean, err);
}

enum status transformer_backward(struct transformer *t,
                                 const struct tensor *dfeatures,
                                 const struct transformer_batch *batch,
                                 enum write_mode mode,
                                 struct gradients *sums,
                                 struct error *err) {
    REQUIRE(t->dev != NULL && t->opt.training && batch_fits(t, batch));
    const struct ops *ops = t->dev->ops;
    const struct blocks_batch rows = rows_of(batch);
    struct tensor dout = *dfeatures; /* (N, D) */
    struct tensor din, spare;
    if (t->opt.pool == TRANSFORMER_POOL_MEAN) {
        dout = blocks_gradient(t->blocks, rows.rows);
        const struct segment_mean_bwd mean = {
            .din = dout, .dout = *dfeatures, .segments = rows.segments};
        TRY(ops->segment_mean_bwd(t->dev, &mean, err));
    }
    TRY(blocks_backward(t->blocks, &din, &spare, &dout, &rows, mode, sums, err));
    if (t->frozen > 0) {
        return STATUS_OK;
    }
    const struct embedding_bwd embedding = {.dtable = params_grad(t->params, t->words),
                                            .dpositions = params_grad(t->params, t->positions),
                                            .dout = din,
                                            .tokens = batch->tokens,
                                            .segments = rows.segments,
                                            .mode = mode};
    TRY(ops->embedding_bwd(t->dev, &embedding, err));
    return gradients_final(sums, t->words, err);
}
