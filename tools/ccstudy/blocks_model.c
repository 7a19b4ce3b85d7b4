/*
 * blocks_model: rows of a batch are the N anchors, then the N b points of their blocks.
 */
#include "tools/ccstudy/blocks_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/ops.h"
#include "train/model/params.h"
#include "train/optim/optimizer.h"

enum {
    HIDDEN = BLOCKS_HIDDEN,
    EMBED = 32,
    DRAWS = 10,
    MEASURED_BATCHES = 64,
    MEASURED_BLOCKS = 32
};

const int32_t BLOCKS_SIZE[BLOCKS_SIZES] = {1, 2, 5, BLOCKS_LARGEST};

enum weight { WEIGHT_1, BIAS_1, WEIGHT_2, BIAS_2, WEIGHTS };

struct model {
    const struct blocks_data *data;
    struct device *dev;
    struct params *params;
    struct optimizer_options optimizer;
    struct step_values values;
    int64_t max_rows;
    int64_t *chosen;          /* (max_rows): points of the batch */
    struct tensor in;         /* (max_rows, D) */
    struct tensor pre, h, dh; /* (max_rows, H) */
    struct tensor dpre;
    struct tensor z, dz; /* (max_rows, E) */
    struct tensor s, ds; /* (N, N b) as vectors of the largest size */
};

/* ---- life ---- */

static enum status add_weights(struct model *m, uint64_t seed, struct error *err) {
    const int64_t d = m->data->dim;
    const struct param_spec specs[WEIGHTS] = {
        [WEIGHT_1] = {.name = "1.weight",
                      .ndim = 2,
                      .shape = {HIDDEN, d},
                      .init = PARAM_INIT_NORMAL,
                      .init_scale = 1.0 / sqrt((double)d)},
        [BIAS_1] = {.name = "1.bias", .ndim = 1, .shape = {HIDDEN}},
        [WEIGHT_2] = {.name = "2.weight",
                      .ndim = 2,
                      .shape = {EMBED, HIDDEN},
                      .init = PARAM_INIT_NORMAL,
                      .init_scale = 1.0 / sqrt((double)HIDDEN)},
        [BIAS_2] = {.name = "2.bias", .ndim = 1, .shape = {EMBED}},
    };
    TRY(params_create(&m->params, err));
    for (int i = 0; i < WEIGHTS; i++) {
        int32_t index;
        TRY(params_add(m->params, &index, &specs[i], err));
    }
    TRY(params_alloc(m->params, m->dev, DTYPE_F32, true, err));
    return params_init(m->params, seed, err);
}

static enum status
model_open(struct model *m, int64_t max_rows, int64_t elements, uint64_t seed, struct error *err) {
    struct tensor *const all[] = {&m->in, &m->pre, &m->h, &m->dh, &m->dpre,
                                  &m->z,  &m->dz,  &m->s, &m->ds};
    TRY(device_open(&m->dev, "cpu", 1, err));
    TRY(add_weights(m, seed, err));
    optimizer_options_default(&m->optimizer);
    m->optimizer.weight_decay = 0.0;
    m->values.sound = 1;
    m->max_rows = max_rows;
    m->in = tensor_2d(NULL, DTYPE_F32, max_rows, m->data->dim);
    m->pre = m->h = m->dh = m->dpre = tensor_2d(NULL, DTYPE_F32, max_rows, HIDDEN);
    m->z = m->dz = tensor_2d(NULL, DTYPE_F32, max_rows, EMBED);
    m->s = m->ds = tensor_1d(NULL, DTYPE_F32, elements);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        TRY(m->dev->ops->alloc(m->dev, tensor_size_bytes(all[i]), &all[i]->data, err));
    }
    m->chosen = calloc((size_t)max_rows, sizeof *m->chosen);
    return m->chosen != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
}

static void model_close(struct model *m) {
    struct tensor *const all[] = {&m->in, &m->pre, &m->h, &m->dh, &m->dpre,
                                  &m->z,  &m->dz,  &m->s, &m->ds};
    for (size_t i = 0; i < sizeof all / sizeof all[0] && m->dev != NULL; i++) {
        m->dev->ops->free(m->dev, all[i]->data);
    }
    params_destroy(m->params);
    device_close(m->dev);
    free(m->chosen);
}

/* ---- the tower ---- */

/* Rows [from, from + count) of a tensor with two dimensions. */
static struct tensor rows_of(const struct tensor *t, int64_t from, int64_t count) {
    struct tensor out = *t;
    out.data = (float *)t->data + from * t->shape[1];
    out.shape[0] = count;
    return out;
}

static enum status forward(struct model *m, int64_t rows, struct error *err) {
    const struct linear first = {.out = rows_of(&m->h, 0, rows),
                                 .pre = rows_of(&m->pre, 0, rows),
                                 .in = rows_of(&m->in, 0, rows),
                                 .weight = params_tensor(m->params, WEIGHT_1),
                                 .bias = params_tensor(m->params, BIAS_1),
                                 .act = ACTIVATION_GELU};
    const struct linear second = {.out = rows_of(&m->z, 0, rows),
                                  .in = first.out,
                                  .weight = params_tensor(m->params, WEIGHT_2),
                                  .bias = params_tensor(m->params, BIAS_2)};
    TRY(m->dev->ops->linear(m->dev, &first, err));
    return m->dev->ops->linear(m->dev, &second, err);
}

static enum status backward(struct model *m, int64_t rows, struct error *err) {
    const struct linear_bwd second = {.din = rows_of(&m->dh, 0, rows),
                                      .dweight = params_grad(m->params, WEIGHT_2),
                                      .dbias = params_grad(m->params, BIAS_2),
                                      .dout = rows_of(&m->dz, 0, rows),
                                      .in = rows_of(&m->h, 0, rows),
                                      .weight = params_tensor(m->params, WEIGHT_2)};
    const struct linear_bwd first = {.dweight = params_grad(m->params, WEIGHT_1),
                                     .dbias = params_grad(m->params, BIAS_1),
                                     .dpre = rows_of(&m->dpre, 0, rows),
                                     .dout = second.din,
                                     .in = rows_of(&m->in, 0, rows),
                                     .weight = params_tensor(m->params, WEIGHT_1),
                                     .pre = rows_of(&m->pre, 0, rows),
                                     .act = ACTIVATION_GELU};
    TRY(m->dev->ops->linear_bwd(m->dev, &second, err));
    return m->dev->ops->linear_bwd(m->dev, &first, err);
}

/* ---- a batch ---- */

/* Different points of one class: `count` places `stride` apart from `out` on. */
static void draw_points(int64_t *out, int64_t first, int64_t left, int64_t count, struct rng *r) {
    for (int64_t l = 0; l < count; l++) {
        int64_t place = (int64_t)rng_below(r, (uint32_t)(left - l));
        int64_t at = 0;
        /* The place among those not drawn yet: `out` is kept in ascending order. */
        while (at < l && out[at] <= first + place) {
            place++;
            at++;
        }
        memmove(out + at + 1, out + at, (size_t)(l - at) * sizeof *out);
        out[at] = first + place;
    }
}

/* Anchors and blocks of a step, and their rows as input. */
static enum status draw_batch(struct model *m,
                              const struct blocks_part *part,
                              const struct block_options *o,
                              uint64_t seed,
                              uint64_t step,
                              struct error *err) {
    const int64_t rows = o->blocks * (o->size + 1);
    const int64_t dim = m->data->dim;
    float *in = m->in.data;
    for (int64_t i = 0; i < o->blocks; i++) {
        int64_t points[BLOCKS_LARGEST + 1];
        struct rng r;
        rng_init(&r, seed, RNG_STUDY, step + 1, (uint64_t)i);
        const int64_t c = (int64_t)rng_below(&r, (uint32_t)m->data->classes);
        const int64_t first = part->first[c];
        draw_points(points, first, part->first[c + 1] - first, o->size + 1, &r);
        /* In ascending order: any of them is the anchor. */
        const int64_t anchor = (int64_t)rng_below(&r, (uint32_t)o->size + 1);
        int64_t *block = m->chosen + o->blocks + i * o->size;
        m->chosen[i] = points[anchor];
        for (int64_t l = 0; l <= o->size; l++) {
            if (l != anchor) {
                *block++ = points[l];
            }
        }
        /* `pairs` compares the l-th points of blocks: their order is drawn too. */
        block = m->chosen + o->blocks + i * o->size;
        for (int64_t l = o->size - 1; l > 0; l--) {
            const int64_t other = (int64_t)rng_below(&r, (uint32_t)l + 1);
            const int64_t kept = block[l];
            block[l] = block[other];
            block[other] = kept;
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        TRY(m->dev->ops->upload(m->dev, in + i * dim, part->rows + m->chosen[i] * dim,
                                (size_t)dim * sizeof *in, err));
    }
    return STATUS_OK;
}

/* The loss of the batch, and with `learn` dL/dz. */
static enum status contrast(struct model *m,
                            double *value,
                            const struct block_options *o,
                            bool learn,
                            struct error *err) {
    const struct ops *ops = m->dev->ops;
    const int64_t n = o->blocks;
    const struct tensor anchors = rows_of(&m->z, 0, n);
    const struct tensor points = rows_of(&m->z, n, n * o->size);
    const struct tensor s = tensor_2d(m->s.data, DTYPE_F32, n, n * o->size);
    const struct tensor ds = tensor_2d(m->ds.data, DTYPE_F32, n, n * o->size);
    TRY(ops->matmul(
        m->dev,
        &(struct matmul){.out = s, .a = anchors, .b = points, .transpose_b = true, .alpha = 1.0f},
        err));
    TRY(block_loss(value, ds.data, s.data, o, err)); /* a CPU: its memory is the host's */
    if (!learn) {
        return STATUS_OK;
    }
    TRY(ops->matmul(
        m->dev, &(struct matmul){.out = rows_of(&m->dz, 0, n), .a = ds, .b = points, .alpha = 1.0f},
        err));
    return ops->matmul(m->dev,
                       &(struct matmul){.out = rows_of(&m->dz, n, n * o->size),
                                        .a = ds,
                                        .b = anchors,
                                        .transpose_a = true,
                                        .alpha = 1.0f},
                       err);
}

static enum status
train(struct model *m, const struct blocks_setting *setting, uint64_t step, struct error *err) {
    const struct block_options *o = &setting->loss;
    const int64_t rows = o->blocks * (o->size + 1);
    double value;
    TRY(draw_batch(m, &m->data->train, o, setting->seed, step, err));
    TRY(forward(m, rows, err));
    TRY(contrast(m, &value, o, true, err));
    TRY(backward(m, rows, err));
    m->values.step = step;
    /* To zero along half a cosine. */
    m->values.lr =
        0.5 * setting->lr * (1.0 + cos(acos(-1.0) * (double)step / (double)setting->steps));
    return optimizer_step(m->params, m->dev, &m->values, &m->optimizer, err);
}

/* ---- measures ---- */

/* A layer of all points of a part, in rows of `layer`: its hidden units or the embeddings. */
static enum status layer_of(struct model *m,
                            float *out,
                            const struct tensor *layer,
                            const struct blocks_part *part,
                            struct error *err) {
    for (int64_t from = 0; from < part->count; from += m->max_rows) {
        const int64_t left = part->count - from;
        const int64_t rows = left < m->max_rows ? left : m->max_rows;
        const struct tensor in = rows_of(&m->in, 0, rows);
        const struct tensor at = rows_of(layer, 0, rows);
        TRY(m->dev->ops->upload(m->dev, in.data, part->rows + from * m->data->dim,
                                tensor_size_bytes(&in), err));
        TRY(forward(m, rows, err));
        TRY(m->dev->ops->download(m->dev, out + from * layer->shape[1], at.data,
                                  tensor_size_bytes(&at), err));
    }
    return STATUS_OK;
}

/* Mean over test points and the other classes of log2(1 + e^-(g_c - g_c')), g = W^mu f. */
static double mean_loss(const struct classify_set *test, const float *means, int32_t classes) {
    double sum = 0.0;
    for (int64_t i = 0; i < test->count; i++) {
        const float *f = test->rows + i * EMBED;
        const float *own = means + (int64_t)test->labels[i] * EMBED;
        for (int32_t c = 0; c < classes; c++) {
            double v = 0.0;
            for (int d = 0; d < EMBED; d++) {
                v += (double)f[d] * ((double)own[d] - (double)means[(int64_t)c * EMBED + d]);
            }
            if (c != test->labels[i]) {
                sum += (fmax(0.0, -v) + log1p(exp(-fabs(v)))) / log(2.0);
            }
        }
    }
    return sum / ((double)test->count * (double)(classes - 1));
}

static enum status classify(struct blocks_result *out,
                            struct model *m,
                            const struct classify_set *test,
                            const struct classify_set *learned,
                            float *means,
                            uint64_t seed,
                            struct error *err) {
    const int32_t classes = m->data->classes;
    struct classify_result all = {0};
    struct classify_result few = {0};
    struct classify_result deviation = {0};
    classify_means(means, learned, classes);
    enum status s = classify_by_vectors(&all, m->dev, test, means, NULL, classes, err);
    if (s == STATUS_OK) {
        s = classify_by_few(&few, &deviation, m->dev, test, learned, classes, BLOCKS_SHOTS, DRAWS,
                            seed, err);
    }
    out->avg2 = all.avg2;
    out->top1 = all.top1;
    out->avg2_few = few.avg2;
    out->top1_few = few.top1;
    classify_means(means, test, classes);
    out->mean_loss = mean_loss(test, means, classes);
    classify_result_fini(&all);
    classify_result_fini(&few);
    classify_result_fini(&deviation);
    return s;
}

static enum status
measure_losses(struct blocks_result *out, struct model *m, uint64_t seed, struct error *err) {
    for (int k = 0; k < BLOCKS_SIZES; k++) {
        const struct block_options o = {
            .blocks = MEASURED_BLOCKS, .size = BLOCKS_SIZE[k], .negatives = 1};
        out->block_loss[k] = 0.0;
        for (uint64_t batch = 0; batch < MEASURED_BATCHES; batch++) {
            double value;
            TRY(draw_batch(m, &m->data->test, &o, ~seed, batch, err));
            TRY(forward(m, o.blocks * (o.size + 1), err));
            TRY(contrast(m, &value, &o, false, err));
            out->block_loss[k] += value / MEASURED_BATCHES;
        }
    }
    return STATUS_OK;
}

static enum status
measure(struct blocks_result *out, struct model *m, uint64_t seed, struct error *err) {
    const struct blocks_data *d = m->data;
    float *test = calloc((size_t)d->test.count, EMBED * sizeof *test);
    float *learned = calloc((size_t)d->train.count, EMBED * sizeof *learned);
    float *means = calloc((size_t)d->classes, EMBED * sizeof *means);
    enum status s = test != NULL && learned != NULL && means != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK) {
        s = layer_of(m, test, &m->z, &d->test, err);
    }
    if (s == STATUS_OK) {
        s = layer_of(m, learned, &m->z, &d->train, err);
    }
    if (s == STATUS_OK) {
        struct classify_set test_set = blocks_set(d, &d->test);
        struct classify_set train_set = blocks_set(d, &d->train);
        test_set.dim = train_set.dim = EMBED;
        test_set.rows = test;
        train_set.rows = learned;
        s = classify(out, m, &test_set, &train_set, means, seed, err);
    }
    if (s == STATUS_OK) {
        s = measure_losses(out, m, seed, err);
    }
    free(test);
    free(learned);
    free(means);
    return s;
}

static enum status train_all(struct model *m,
                             const struct blocks_setting *setting,
                             enum status (*advance)(void *, double, struct error *),
                             void *cookie,
                             struct error *err) {
    const struct block_options *o = &setting->loss;
    const int64_t n = o->blocks > MEASURED_BLOCKS ? o->blocks : MEASURED_BLOCKS;
    TRY(model_open(m, n * (BLOCKS_LARGEST + 1), n * n * BLOCKS_LARGEST, setting->seed, err));
    for (int64_t step = 0; step < setting->steps; step++) {
        TRY(train(m, setting, (uint64_t)step, err));
        if (advance != NULL) {
            TRY(advance(cookie, (double)(o->blocks * (o->size + 1)), err));
        }
    }
    return STATUS_OK;
}

enum status blocks_run(struct blocks_result *out,
                       const struct blocks_data *data,
                       const struct blocks_setting *setting,
                       enum status (*advance)(void *cookie, double points, struct error *err),
                       void *cookie,
                       struct error *err) {
    REQUIRE(setting->loss.size >= 1 && setting->loss.size <= BLOCKS_LARGEST);
    struct model m = {.data = data};
    enum status s = train_all(&m, setting, advance, cookie, err);
    if (s == STATUS_OK) {
        s = measure(out, &m, setting->seed, err);
    }
    model_close(&m);
    return s;
}
