/*
 * batch_model: two heads, their loss, their recall, and how well they fit.
 *
 *   features (B, width) -> linear [-> GELU -> linear] -> z (B, E) -> / norm -> X, T;  S = X T^T
 */
#include "tools/ccstudy/batch_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/batch_labels.h"
#include "train/eval/objective.h"
#include "train/eval/retrieval.h"
#include "train/optim/optimizer.h"
#include "train/optim/schedule.h"

enum { SIDES = 2, MAX_LAYERS = 2, ADVANCE_STEPS = 64, FREEZE_PART = 6, WARMUP_PART = 20 };

static const struct {
    const char *loss;
    double zeta_lr;
} methods[BATCH_METHODS] = {
    [BATCH_CLIP] = {"clip", 0.0},
    [BATCH_SOGCLR] = {"sogclr", 0.0},
    [BATCH_SOGCLR_FORGETS] = {"sogclr", 0.0},
    [BATCH_NUCLR_FROZEN] = {"nuclr-frozen", 0.0},
    [BATCH_NUCLR_FIXED] = {"nuclr", 5e-6},
    [BATCH_NUCLR_AUTO] = {"nuclr", LOSS_AUTO},
};

struct head {
    int32_t layer_count;
    int64_t width[MAX_LAYERS + 1]; /* of the features, the hidden layer, the shared space */
    int32_t weight[MAX_LAYERS], bias[MAX_LAYERS];
    float *at[MAX_LAYERS + 1];  /* (R, width) what goes into layer k; the last: z */
    float *dat[MAX_LAYERS + 1]; /* gradients, but of the features */
    float *pre, *dpre;          /* (R, hidden) */
    float *norm, *out, *dout;   /* (R), (R, E), (R, E) */
};

struct model {
    const struct batch_features *f;
    const struct batch_training *how;
    int64_t *text_image; /* (train_count): the image whose texts each training image has; or */
    struct batch_partners partners; /* of labelled images */
    struct device *dev;
    struct params *params;
    struct head heads[SIDES];
    float *similarity, *gradient; /* (B, B) */
    struct step_values *values;
    uint64_t ids[BATCH_LARGEST];
    struct sample_state *state;
    struct loss *loss;
};

static struct tensor matrix(float *data, int64_t rows, int64_t columns) {
    return tensor_2d(data, DTYPE_F32, rows, columns);
}

/* ---- passes ---- */

static enum status head_forward(struct model *m, struct head *h, int64_t rows, struct error *err) {
    const struct ops *ops = m->dev->ops;
    const int64_t dim = h->width[h->layer_count];
    for (int32_t k = 0; k < h->layer_count; k++) {
        const bool gelu = k + 1 < h->layer_count;
        struct linear op = {.out = matrix(h->at[k + 1], rows, h->width[k + 1]),
                            .in = matrix(h->at[k], rows, h->width[k]),
                            .weight = params_tensor(m->params, h->weight[k]),
                            .bias = params_tensor(m->params, h->bias[k]),
                            .act = gelu ? ACTIVATION_GELU : ACTIVATION_NONE};
        if (gelu) {
            op.pre = matrix(h->pre, rows, h->width[k + 1]);
        }
        TRY(ops->linear(m->dev, &op, err));
    }
    const struct l2_normalize op = {.out = matrix(h->out, rows, dim),
                                    .norm = tensor_1d(h->norm, DTYPE_F32, rows),
                                    .in = matrix(h->at[h->layer_count], rows, dim)};
    return ops->l2_normalize(m->dev, &op, err);
}

/* mode: of the gradients of its parameters. */
static enum status head_backward(struct model *m,
                                 struct head *h,
                                 int64_t rows,
                                 enum write_mode mode,
                                 struct error *err) {
    const struct ops *ops = m->dev->ops;
    const int64_t dim = h->width[h->layer_count];
    const struct l2_normalize_bwd norm = {.din = matrix(h->dat[h->layer_count], rows, dim),
                                          .dout = matrix(h->dout, rows, dim),
                                          .out = matrix(h->out, rows, dim),
                                          .norm = tensor_1d(h->norm, DTYPE_F32, rows)};
    TRY(ops->l2_normalize_bwd(m->dev, &norm, err));
    for (int32_t k = h->layer_count - 1; k >= 0; k--) {
        const bool gelu = k + 1 < h->layer_count;
        struct linear_bwd op = {.dweight = params_grad(m->params, h->weight[k]),
                                .dbias = params_grad(m->params, h->bias[k]),
                                .dout = matrix(h->dat[k + 1], rows, h->width[k + 1]),
                                .in = matrix(h->at[k], rows, h->width[k]),
                                .weight = params_tensor(m->params, h->weight[k]),
                                .param_mode = mode,
                                .act = gelu ? ACTIVATION_GELU : ACTIVATION_NONE};
        if (k > 0) {
            op.din = matrix(h->dat[k], rows, h->width[k]);
        }
        if (gelu) {
            op.pre = matrix(h->pre, rows, h->width[k + 1]);
            op.dpre = matrix(h->dpre, rows, h->width[k + 1]);
        }
        TRY(ops->linear_bwd(m->dev, &op, err));
    }
    return STATUS_OK;
}

/* S and, once the loss has filled the gradient, those of both embeddings. */
static enum status multiply(struct model *m, int64_t rows, bool backward, struct error *err) {
    struct head *h = m->heads;
    const int64_t dim = m->how->dim;
    const struct tensor s = matrix(m->similarity, rows, rows);
    const struct tensor g = matrix(m->gradient, rows, rows);
    const struct tensor x = matrix(h[0].out, rows, dim);
    const struct tensor t = matrix(h[1].out, rows, dim);
    if (!backward) {
        const struct matmul op = {.out = s, .a = x, .b = t, .transpose_b = true, .alpha = 1.0f};
        return m->dev->ops->matmul(m->dev, &op, err);
    }
    const struct matmul dx = {.out = matrix(h[0].dout, rows, dim), .a = g, .b = t, .alpha = 1.0f};
    const struct matmul dt = {
        .out = matrix(h[1].dout, rows, dim), .a = g, .b = x, .transpose_a = true, .alpha = 1.0f};
    TRY(m->dev->ops->matmul(m->dev, &dx, err));
    return m->dev->ops->matmul(m->dev, &dt, err);
}

/* ---- steps ---- */

static void put_row(float *to, const float *from, int64_t row, int64_t at, int64_t width) {
    memcpy(to + at * width, from + row * width, (size_t)width * sizeof *to);
}

/* The batch at `place` of the epoch's order. */
static void fill_batch(struct model *m,
                       const struct permutation *order,
                       uint64_t epoch,
                       uint64_t place,
                       uint32_t batch) {
    const struct batch_features *f = m->f;
    for (uint32_t i = 0; i < batch; i++) {
        const uint64_t id = permutation_at(order, place + i);
        const int64_t *images = f->order + 2 * f->held_out_count;
        m->ids[i] = id;
        put_row(m->heads[0].at[0], f->images, images[id], i, f->image_width);
        if (f->labels != NULL) {
            const int64_t other = images[batch_partner(&m->partners, m->how->seed, epoch, id)];
            put_row(m->heads[1].at[0], f->images, other, i, f->image_width);
            continue;
        }
        const int64_t owner = m->text_image[id];
        const int64_t first = f->first_text[owner];
        const uint64_t texts = (uint64_t)(f->first_text[owner + 1] - first);
        const int64_t text = first + (int64_t)((epoch + id) % texts);
        put_row(m->heads[1].at[0], f->texts, text, i, f->text_width);
    }
}

struct rates {
    struct schedule model;
    double zeta;
    uint64_t frozen_steps;
};

static enum status one_step(struct model *m,
                            const struct rates *r,
                            uint64_t step,
                            uint64_t epoch,
                            uint32_t batch,
                            struct error *err) {
    const double zeta = schedule_zeta_lr(r->zeta, r->frozen_steps, r->model.total_steps, step);
    struct optimizer_options adamw;
    optimizer_options_default(&adamw);
    struct loss_input in = {.similarity = m->similarity,
                            .sample_ids = m->ids,
                            .batch_count = batch,
                            .step = step,
                            .epoch = epoch,
                            .lr = schedule_lr(&r->model, step),
                            .zeta_lr_text = zeta,
                            .zeta_lr_image = 0.1 * zeta};
    struct loss_output out = {.gradient = m->gradient};
    for (int side = 0; side < SIDES; side++) {
        TRY(head_forward(m, &m->heads[side], batch, err));
    }
    TRY(multiply(m, batch, false, err));
    TRY(loss_step(m->loss, &in, &out, err));
    TRY(multiply(m, batch, true, err));
    for (int side = 0; side < SIDES; side++) {
        const bool again = side == 1 && m->f->labels != NULL; /* the head of the first side */
        TRY(head_backward(m, &m->heads[side], batch, again ? WRITE_ADD : WRITE_SET, err));
    }
    *m->values = (struct step_values){.step = step, .lr = in.lr, .grad_scale = 1.0, .sound = 1};
    return optimizer_step(m->params, m->dev, m->values, &adamw, err);
}

static enum status run_epochs(struct model *m,
                              uint32_t batch,
                              const struct rates *r,
                              enum status (*advance)(void *, double, struct error *),
                              void *cookie,
                              struct error *err) {
    const uint64_t per_epoch = (uint64_t)m->f->train_count / batch;
    struct permutation order;
    for (uint64_t step = 0; step < r->model.total_steps; step++) {
        const uint64_t epoch = step / per_epoch;
        if (step % per_epoch == 0) {
            permutation_init(&order, (uint64_t)m->f->train_count, m->how->seed, epoch);
        }
        fill_batch(m, &order, epoch, step % per_epoch * batch, batch);
        TRY(one_step(m, r, step, epoch, batch, err));
        if ((step + 1) % ADVANCE_STEPS == 0 || step + 1 == r->model.total_steps) {
            TRY(advance(cookie, (double)(step % ADVANCE_STEPS + 1) * batch, err));
        }
    }
    return STATUS_OK;
}

/* ---- recall ---- */

/* Rows of one side through its head, in pieces of the head's capacity, into `to`. */
static enum status
embed(float *to, struct model *m, int side, const int64_t *rows, int64_t count, struct error *err) {
    struct head *h = &m->heads[side];
    const float *from = side == 0 ? m->f->images : m->f->texts;
    for (int64_t at = 0; at < count; at += BATCH_LARGEST) {
        const int64_t part = count - at < BATCH_LARGEST ? count - at : BATCH_LARGEST;
        for (int64_t i = 0; i < part; i++) {
            put_row(h->at[0], from, rows[at + i], i, h->width[0]);
        }
        TRY(head_forward(m, h, part, err));
        memcpy(to + at * m->how->dim, h->out, (size_t)(part * m->how->dim) * sizeof *to);
    }
    return STATUS_OK;
}

static enum status
measure(struct batch_recall *out, struct model *m, const int64_t *images, struct error *err) {
    const struct batch_features *f = m->f;
    const int64_t count = f->held_out_count;
    const int64_t dim = m->how->dim;
    struct retrieval_result found = {0};
    int64_t text_count = 0;
    enum status s = STATUS_OK;
    float *x = calloc((size_t)(count * dim), sizeof *x);
    float *t = calloc((size_t)(f->texts_count * dim), sizeof *t);
    int64_t *rows = calloc((size_t)f->texts_count, sizeof *rows);
    int32_t *owner = calloc((size_t)f->texts_count, sizeof *owner);
    if (x == NULL || t == NULL || rows == NULL || owner == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for %lld texts", (long long)f->texts_count);
        goto fail;
    }
    for (int64_t i = 0; i < count; i++) {
        for (int64_t r = f->first_text[images[i]]; r < f->first_text[images[i] + 1]; r++) {
            rows[text_count] = r;
            owner[text_count++] = (int32_t)i;
        }
    }
    TRY_OR_FAIL(s, embed(x, m, 0, images, count, err));
    TRY_OR_FAIL(s, embed(t, m, 1, rows, text_count, err));
    TRY_OR_FAIL(s, retrieval_ranks(&found, m->dev, x, count, t, text_count, owner, dim, err));
    for (int k = 0; k < BATCH_RECALLS; k++) {
        out->at[k] = found.value[RETRIEVAL_MEAN][RETRIEVAL_R1 + k];
    }
fail:
    free(x);
    free(t);
    free(rows);
    free(owner);
    return s;
}

/* The global loss over the training pairs, with the first text of each image. */
static enum status measure_gcl(double *out, struct model *m, double tau, struct error *err) {
    const struct batch_features *f = m->f;
    const int64_t count = f->train_count;
    const int64_t *images = f->order + 2 * f->held_out_count;
    struct objective_result found = {0};
    enum status s = STATUS_OK;
    float *x = calloc((size_t)(2 * count * m->how->dim), sizeof *x);
    int64_t *texts = calloc((size_t)count, sizeof *texts);
    if (x == NULL || texts == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for %lld pairs", (long long)count);
        goto fail;
    }
    float *t = x + count * m->how->dim;
    for (int64_t i = 0; i < count; i++) {
        texts[i] = f->first_text[images[i]];
    }
    TRY_OR_FAIL(s, embed(x, m, 0, images, count, err));
    TRY_OR_FAIL(s, embed(t, m, 1, texts, count, err));
    s = objective_compute(&found, m->dev, x, t, count, m->how->dim, tau, NULL, NULL, err);
    *out = found.gcl;
fail:
    free(x);
    free(texts);
    return s;
}

/* Labelled images: the accuracy of a classifier of their embeddings. */
static enum status measure_labels(struct batch_outcome *out, struct model *m, struct error *err) {
    const struct batch_features *f = m->f;
    float *x = calloc((size_t)(f->images_count * m->how->dim), sizeof *x);
    if (x == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %lld images",
                         (long long)f->images_count);
    }
    enum status s = embed(x, m, 0, f->order, f->images_count, err);
    if (s == STATUS_OK) {
        s = batch_labels_probe(&out->validation_score, &out->test_score, f, x, m->how->dim, m->dev,
                               m->how->seed, err);
    }
    free(x);
    return s;
}

static enum status measure_all(struct batch_outcome *out,
                               struct model *m,
                               const struct batch_setting *setting,
                               struct error *err) {
    *out = (struct batch_outcome){0};
    if (m->f->labels != NULL) {
        return measure_labels(out, m, err);
    }
    TRY(measure(&out->test, m, m->f->order, err));
    TRY(measure(&out->validation, m, m->f->order + m->f->held_out_count, err));
    out->test_score = batch_recall_mean(&out->test);
    out->validation_score = batch_recall_mean(&out->validation);
    return measure_gcl(&out->gcl, m, setting->loss.tau, err);
}

/* ---- life ---- */

static enum status
take(struct model *m, float **out, int64_t rows, int64_t columns, struct error *err) {
    void *data;
    TRY(m->dev->ops->alloc(m->dev, (size_t)(rows * columns) * sizeof **out, &data, err));
    *out = data;
    return STATUS_OK;
}

/* shared: has the parameters of another head of these widths, which were added before; NULL: its
 * own. */
static enum status head_add(struct model *m,
                            struct head *h,
                            int64_t width,
                            const struct head *shared,
                            struct error *err) {
    int32_t n = 0;
    h->width[0] = width;
    if (m->how->hidden > 0) {
        h->width[++n] = m->how->hidden;
    }
    h->width[++n] = m->how->dim;
    h->layer_count = n;
    for (int32_t k = 0; k < n && shared != NULL; k++) {
        h->weight[k] = shared->weight[k];
        h->bias[k] = shared->bias[k];
    }
    for (int32_t k = 0; k < n && shared == NULL; k++) {
        const char *const names[MAX_LAYERS][2] = {{"0.weight", "0.bias"}, {"1.weight", "1.bias"}};
        const double scale = 1.0 / sqrt((double)h->width[k]);
        const struct param_spec weight = {.name = names[k][0],
                                          .ndim = 2,
                                          .shape = {h->width[k + 1], h->width[k]},
                                          .init = PARAM_INIT_UNIFORM,
                                          .init_scale = scale};
        const struct param_spec bias = {.name = names[k][1],
                                        .ndim = 1,
                                        .shape = {h->width[k + 1]},
                                        .init = PARAM_INIT_UNIFORM,
                                        .init_scale = scale};
        TRY(params_add(m->params, &h->weight[k], &weight, err));
        TRY(params_add(m->params, &h->bias[k], &bias, err));
    }
    for (int32_t k = 0; k <= n; k++) {
        TRY(take(m, &h->at[k], BATCH_LARGEST, h->width[k], err));
        TRY(take(m, &h->dat[k], BATCH_LARGEST, h->width[k], err));
    }
    TRY(take(m, &h->pre, BATCH_LARGEST, h->width[1], err));
    TRY(take(m, &h->dpre, BATCH_LARGEST, h->width[1], err));
    TRY(take(m, &h->norm, BATCH_LARGEST, 1, err));
    TRY(take(m, &h->out, BATCH_LARGEST, m->how->dim, err));
    return take(m, &h->dout, BATCH_LARGEST, m->how->dim, err);
}

/* As the loader's: by (seed, id) alone. */
static enum status draw_texts(struct model *m, double noise, struct error *err) {
    const uint64_t count = (uint64_t)m->f->train_count;
    const int64_t *images = m->f->order + 2 * m->f->held_out_count;
    m->text_image = calloc(count, sizeof *m->text_image);
    if (m->text_image == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %llu pairs",
                         (unsigned long long)count);
    }
    for (uint64_t id = 0; id < count; id++) {
        uint64_t from = id;
        struct rng r;
        rng_init(&r, m->how->seed, RNG_PAIR_NOISE, 0, id);
        if (rng_uniform(&r) < noise) {
            do {
                from = rng_below(&r, (uint32_t)count);
            } while (from == id);
        }
        m->text_image[id] = images[from];
    }
    return STATUS_OK;
}

static enum status open(struct model *m, const struct batch_setting *s, struct error *err) {
    const bool labelled = m->f->labels != NULL;
    void *values;
    TRY(labelled ? batch_partners_init(&m->partners, m->f, s->noise, m->how->seed, err)
                 : draw_texts(m, s->noise, err));
    TRY(params_create(&m->params, err));
    TRY(params_set_prefix(m->params, "image.", err));
    TRY(head_add(m, &m->heads[0], m->f->image_width, NULL, err));
    TRY(params_set_prefix(m->params, "text.", err));
    TRY(labelled ? head_add(m, &m->heads[1], m->f->image_width, &m->heads[0], err)
                 : head_add(m, &m->heads[1], m->f->text_width, NULL, err));
    TRY(params_alloc(m->params, m->dev, DTYPE_F32, true, err));
    TRY(params_init(m->params, m->how->seed, err));
    TRY(take(m, &m->similarity, BATCH_LARGEST, BATCH_LARGEST, err));
    TRY(take(m, &m->gradient, BATCH_LARGEST, BATCH_LARGEST, err));
    TRY(m->dev->ops->alloc(m->dev, sizeof *m->values, &values, err));
    m->values = values;
    TRY(sample_state_create(&m->state, (uint64_t)m->f->train_count, NULL, err));
    return loss_create(&m->loss, &s->loss, m->state, (uint64_t)m->f->train_count, s->batch, err);
}

static void fini(struct model *m) {
    const struct ops *ops = m->dev->ops;
    for (int side = 0; side < SIDES; side++) {
        struct head *h = &m->heads[side];
        for (int32_t k = 0; k <= MAX_LAYERS; k++) {
            ops->free(m->dev, h->at[k]);
            ops->free(m->dev, h->dat[k]);
        }
        ops->free(m->dev, h->pre);
        ops->free(m->dev, h->dpre);
        ops->free(m->dev, h->norm);
        ops->free(m->dev, h->out);
        ops->free(m->dev, h->dout);
    }
    ops->free(m->dev, m->similarity);
    ops->free(m->dev, m->gradient);
    ops->free(m->dev, m->values);
    loss_destroy(m->loss);
    sample_state_destroy(m->state);
    params_destroy(m->params);
    free(m->text_image);
    batch_partners_fini(&m->partners);
}

enum status batch_train(struct batch_outcome *out,
                        const struct batch_setting *setting,
                        const struct batch_features *f,
                        const struct batch_training *how,
                        struct device *dev,
                        enum status (*advance)(void *cookie, double pairs, struct error *err),
                        void *cookie,
                        struct error *err) {
    REQUIRE(setting->batch >= 2 && setting->batch <= BATCH_LARGEST && how->epochs >= 1);
    struct model m = {.f = f, .how = how, .dev = dev};
    const uint64_t steps = how->epochs * ((uint64_t)f->train_count / setting->batch);
    struct rates r = {.model = {.peak_lr = setting->rate,
                                .warmup_steps = steps / WARMUP_PART,
                                .total_steps = steps},
                      .zeta = setting->zeta_lr,
                      .frozen_steps = steps / FREEZE_PART};
    if (r.zeta == LOSS_AUTO) {
        r.zeta = schedule_zeta_auto_lr(r.frozen_steps, steps);
    }
    enum status s;
    TRY_OR_FAIL(s, open(&m, setting, err));
    TRY_OR_FAIL(s, run_epochs(&m, setting->batch, &r, advance, cookie, err));
    s = measure_all(out, &m, setting, err);
fail:
    fini(&m);
    return s;
}

enum status batch_train_cell(struct batch_cell *cell,
                             const struct batch_features *f,
                             const struct batch_training *how,
                             struct device *dev,
                             enum status (*advance)(void *cookie, double pairs, struct error *err),
                             void *cookie,
                             struct error *err) {
    struct batch_outcome out = {0};
    struct batch_setting setting = {
        .zeta_lr = methods[cell->method].zeta_lr, .batch = cell->batch, .rate = cell->rate};
    loss_options_default(&setting.loss);
    setting.loss.name = methods[cell->method].loss;
    setting.loss.tau = cell->tau;
    setting.loss.gamma = cell->gamma;
    TRY(batch_train(&out, &setting, f, how, dev, advance, cookie, err));
    cell->validation = out.validation;
    cell->test = out.test;
    cell->gcl = out.gcl;
    return STATUS_OK;
}
