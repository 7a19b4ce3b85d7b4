/*
 * The gradient of every tensor against central differences, in double on cpu-ref; what both views
 * are; evaluation by running statistics. Micro-batches against batch norm groups by hand, bf16
 * against f32.
 */
#include "train/model/view_encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

/* Micro-batches of 2 and 1 images. */
enum { COUNT = 3, MICRO = 2, PX = 12, HIDDEN = 7, EMBED = 5, IMAGE_BYTES = PX * PX * 3 };
enum { EMBEDDINGS = 2 * COUNT * EMBED };

struct fixture {
    struct device *dev;
    struct view_encoder *model;
    struct params *params;
    struct rng rng;
    uint8_t views[2][COUNT * IMAGE_BYTES];
    double weights[EMBEDDINGS]; /* the loss is the sum of embeddings times these */
    bool beside;                /* of the batches that follow */
};

static struct view_encoder_options options(int32_t count, int32_t micro, enum dtype dtype) {
    struct error err;
    struct view_encoder_options o = {.hidden_dim = HIDDEN,
                                     .embed_dim = EMBED,
                                     .max_batch = 2 * count,
                                     .micro_batch = micro,
                                     .training = true,
                                     .moments = 2,
                                     .dtype = dtype};
    assert_ok(resnet_preset(&o.image, "resnet10t", &err), err);
    o.image.width = 8;
    o.image.image_px = PX;
    o.image.stem = RESNET_STEM_SMALL;
    return o;
}

/* A vision transformer of nine patches instead. */
static struct view_encoder_options vit_options(int32_t count, int32_t micro, enum dtype dtype) {
    struct view_encoder_options o = options(count, micro, dtype);
    o.vit = (struct vit_options){.patch_px = 4,
                                 .layers = 2,
                                 .dim = 8,
                                 .heads = 2,
                                 .ffn_dim = 12,
                                 .act = ACTIVATION_QUICK_GELU};
    return o;
}

static void set_up_with(struct fixture *f, const struct view_encoder_options *o) {
    struct error err;
    memset(f, 0, sizeof *f);
    rng_init(&f->rng, test_seed(), RNG_INIT, 1000, 0);
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    assert_ok(view_encoder_create(&f->model, f->dev, o, &err), err);
    f->params = view_encoder_params(f->model);
    assert_ok(params_init(f->params, 7, &err), err);
    for (size_t i = 0; i < sizeof f->views; i++) {
        f->views[i / sizeof f->views[0]][i % sizeof f->views[0]] = (uint8_t)rng_below(&f->rng, 256);
    }
    for (int i = 0; i < EMBEDDINGS; i++) {
        f->weights[i] = rng_normal(&f->rng);
    }
}

static void set_up(struct fixture *f) {
    const struct view_encoder_options o = options(COUNT, 0, DTYPE_F64);
    set_up_with(f, &o);
}

static void tear_down(struct fixture *f) {
    view_encoder_destroy(f->model);
    device_close(f->dev);
}

/* Initial values plus noise: gammas that start at 0 would hide the convolutions before them. */
static void shake(struct fixture *f) {
    struct error err;
    for (int32_t i = 0; i < params_count(f->params); i++) {
        const struct param_info info = params_info(f->params, i);
        const bool wide = params_dtype(f->params) == DTYPE_F64;
        const size_t size = (size_t)info.count * (wide ? sizeof(double) : sizeof(float));
        void *v = malloc(size);
        assert_non_null(v);
        assert_ok(params_read(f->params, i, PARAM_VALUE, v, size, &err), err);
        for (int64_t k = 0; k < info.count && info.kind == PARAM_TRAINED; k++) {
            const double noise = 0.1 * rng_normal(&f->rng);
            if (wide) {
                ((double *)v)[k] += noise;
            } else {
                ((float *)v)[k] += (float)noise;
            }
        }
        assert_ok(params_write(f->params, i, PARAM_VALUE, v, size, &err), err);
        free(v);
    }
}

static struct view_encoder_batch batch_of(const struct fixture *f, int start, int count) {
    return (struct view_encoder_batch){.count = count,
                                       .first = f->views[0] + (size_t)start * IMAGE_BYTES,
                                       .second = f->views[1] + (size_t)start * IMAGE_BYTES,
                                       .beside = f->beside};
}

static double loss(struct fixture *f) {
    struct error err;
    struct tensor x;
    double host[EMBEDDINGS];
    double sum = 0.0;
    const struct view_encoder_batch batch = batch_of(f, 0, COUNT);
    assert_ok(view_encoder_forward(f->model, &x, &batch, &err), err);
    assert_int_equal(tensor_size_bytes(&x), sizeof host);
    assert_ok(f->dev->ops->download(f->dev, host, x.data, sizeof host, &err), err);
    for (int i = 0; i < EMBEDDINGS; i++) {
        sum += f->weights[i] * host[i];
    }
    return sum;
}

/* One tensor along one random direction. */
static void check_tensor(struct fixture *f, int32_t index) {
    struct error err;
    const struct param_info info = params_info(f->params, index);
    const size_t size = (size_t)info.count * sizeof(double);
    const double step = 1e-7;
    double *value = malloc(size);
    double *moved = malloc(size);
    double *grad = malloc(size);
    double *direction = malloc(size);
    double slope = 0.0;
    double squares = 0.0;
    double side[2];
    assert_ok(params_read(f->params, index, PARAM_VALUE, value, size, &err), err);
    assert_ok(params_read(f->params, index, PARAM_GRAD, grad, size, &err), err);
    for (int64_t k = 0; k < info.count; k++) {
        direction[k] = rng_normal(&f->rng);
        slope += direction[k] * grad[k];
        squares += grad[k] * grad[k];
    }
    for (int s = 0; s < 2; s++) {
        for (int64_t k = 0; k < info.count; k++) {
            moved[k] = value[k] + (s == 0 ? step : -step) * direction[k];
        }
        assert_ok(params_write(f->params, index, PARAM_VALUE, moved, size, &err), err);
        side[s] = loss(f);
    }
    assert_ok(params_write(f->params, index, PARAM_VALUE, value, size, &err), err);
    const double measured = (side[0] - side[1]) / (2.0 * step);
    if (fabs(measured - slope) > 1e-6 * fmax(fabs(slope), 0.3 * sqrt(squares)) + 1e-13 / step) {
        fail_msg("%s: gradient along a direction %.12g, differences give %.12g", info.name, slope,
                 measured);
    }
    free(value);
    free(moved);
    free(grad);
    free(direction);
}

static void check_gradients(const struct view_encoder_options *o, int tensors) {
    struct error err;
    struct fixture f;
    void *dx = NULL;
    set_up_with(&f, o);
    shake(&f);
    assert_ok(f.dev->ops->alloc(f.dev, sizeof f.weights, &dx, &err), err);
    assert_ok(f.dev->ops->upload(f.dev, dx, f.weights, sizeof f.weights, &err), err);
    const struct tensor t = tensor_2d(dx, DTYPE_F64, 2 * COUNT, EMBED);
    const struct view_encoder_batch batch = batch_of(&f, 0, COUNT);
    loss(&f);
    assert_ok(view_encoder_backward(f.model, &t, &batch, WRITE_SET, NULL, &err), err);
    int trained = 0;
    for (int32_t i = 0; i < params_count(f.params); i++) {
        if (params_info(f.params, i).kind == PARAM_TRAINED) {
            check_tensor(&f, i);
            trained++;
        }
    }
    assert_int_equal(trained, tensors);
    assert_true(params_find(f.params, "proj.0.weight") >= 0);
    assert_true(params_info(f.params, params_find(f.params, "proj.1.weight")).count == HIDDEN);
    f.dev->ops->free(f.dev, dx);
    tear_down(&f);
}

/* 3 units of the stem, 4 blocks of 2, 3 shortcuts, each a convolution with batch norm; head */
enum { RESNET_TENSORS = 3 * (3 + 4 * 2 + 3) + 5 };

TEST(gradients_are_those_of_differences) {
    const struct view_encoder_options o = options(COUNT, 0, DTYPE_F64);
    check_gradients(&o, RESNET_TENSORS);
}

TEST(gradients_of_raw_embeddings_are_those_of_differences) {
    struct view_encoder_options o = options(COUNT, 0, DTYPE_F64);
    o.raw = true;
    check_gradients(&o, RESNET_TENSORS);
}

/* Class token, positions, patches; 2 norms and 2 blocks; head */
TEST(gradients_of_a_vision_transformer_are_those_of_differences) {
    struct view_encoder_options o = vit_options(COUNT, 0, DTYPE_F64);
    check_gradients(&o, 3 + 2 * 2 + 2 * 12 + 5);
    o.recompute = true;
    check_gradients(&o, 3 + 2 * 2 + 2 * 12 + 5);
}

/* Length is all that `raw` changes. */
TEST(raw_embeddings_have_the_direction_of_the_others) {
    struct error err;
    double x[2][EMBEDDINGS];
    for (int raw = 0; raw < 2; raw++) {
        struct fixture f;
        struct tensor t;
        struct view_encoder_options o = options(COUNT, 0, DTYPE_F64);
        o.raw = raw == 1;
        set_up_with(&f, &o);
        const struct view_encoder_batch batch = batch_of(&f, 0, COUNT);
        assert_ok(view_encoder_forward(f.model, &t, &batch, &err), err);
        assert_ok(f.dev->ops->download(f.dev, x[raw], t.data, sizeof x[raw], &err), err);
        tear_down(&f);
    }
    bool longer = false;
    for (int i = 0; i < EMBEDDINGS; i += EMBED) {
        double squares = 0.0;
        for (int k = 0; k < EMBED; k++) {
            squares += x[1][i + k] * x[1][i + k];
        }
        for (int k = 0; k < EMBED; k++) {
            assert_true(fabs(x[1][i + k] - sqrt(squares) * x[0][i + k]) < 1e-12);
        }
        longer = longer || fabs(squares - 1.0) > 0.01;
    }
    assert_true(longer);
}

TEST(views_follow_each_other) {
    struct error err;
    struct fixture f;
    struct tensor x;
    double a[EMBEDDINGS];
    double b[EMBEDDINGS];
    set_up(&f);
    shake(&f);
    const struct view_encoder_batch there = batch_of(&f, 0, COUNT);
    const struct view_encoder_batch back = {
        .count = COUNT, .first = there.second, .second = there.first};
    assert_ok(view_encoder_forward(f.model, &x, &there, &err), err);
    assert_ok(f.dev->ops->download(f.dev, a, x.data, sizeof a, &err), err);
    assert_ok(view_encoder_forward(f.model, &x, &back, &err), err);
    assert_ok(f.dev->ops->download(f.dev, b, x.data, sizeof b, &err), err);
    for (int i = 0; i < COUNT * EMBED; i++) {
        assert_true(fabs(a[i] - b[COUNT * EMBED + i]) < 1e-12);
        assert_true(fabs(b[i] - a[COUNT * EMBED + i]) < 1e-12);
    }
    tear_down(&f);
}

/* Evaluation treats each image alone: the rest of the batch changes nothing. */
TEST(evaluation_treats_each_image_alone) {
    struct error err;
    struct fixture f;
    struct tensor x;
    struct tensor features;
    double all[COUNT * EMBED];
    double one[EMBED];
    set_up(&f);
    shake(&f);
    loss(&f); /* fills the running statistics */
    assert_ok(view_encoder_encode(f.model, &x, &features, f.views[0], COUNT, &err), err);
    assert_int_equal(features.shape[1], view_encoder_feature_count(f.model));
    assert_ok(f.dev->ops->download(f.dev, all, x.data, sizeof all, &err), err);
    assert_ok(view_encoder_encode(f.model, &x, NULL, f.views[0] + IMAGE_BYTES, 1, &err), err);
    assert_ok(f.dev->ops->download(f.dev, one, x.data, sizeof one, &err), err);
    double length = 0.0;
    for (int i = 0; i < EMBED; i++) {
        assert_true(fabs(one[i] - all[EMBED + i]) < 1e-12);
        length += one[i] * one[i];
    }
    assert_true(fabs(length - 1.0) < 1e-12);
    tear_down(&f);
}

TEST(the_plan_is_what_is_allocated) {
    struct error err;
    struct dual_encoder_memory plan;
    struct fixture f;
    set_up(&f);
    assert_ok(view_encoder_plan(&plan, view_encoder_get_options(f.model), &err), err);
    const struct dual_encoder_memory used = view_encoder_memory_used(f.model);
    assert_memory_equal(&plan, &used, sizeof plan);
    struct view_encoder_options wrong = *view_encoder_get_options(f.model);
    wrong.hidden_dim = 0;
    assert_status(view_encoder_plan(&plan, &wrong, &err), STATUS_USAGE, err);
    wrong = options(COUNT, COUNT + 1, DTYPE_F32);
    assert_status(view_encoder_plan(&plan, &wrong, &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "--micro-batch 4 is larger than --batch-size 3"));
    tear_down(&f);
}

/* ---- micro-batches ---- */

/* All gradients, or all running statistics, as numbers of the table's own type. */
static void *gather(const struct fixture *f, enum param_kind kind, size_t *size_bytes) {
    struct error err;
    const size_t real = dtype_size_bytes(params_dtype(f->params));
    *size_bytes = (size_t)params_element_count(f->params, kind) * real;
    uint8_t *all = malloc(*size_bytes);
    size_t at = 0;
    assert_non_null(all);
    for (int32_t i = 0; i < params_count(f->params); i++) {
        const struct param_info info = params_info(f->params, i);
        const size_t size = (size_t)info.count * real;
        if (info.kind == kind) {
            assert_ok(params_read(f->params, i, kind == PARAM_TRAINED ? PARAM_GRAD : PARAM_VALUE,
                                  all + at, size, &err),
                      err);
            at += size;
        }
    }
    return all;
}

static void assert_same(const struct fixture *a, const struct fixture *b, enum param_kind kind) {
    size_t size;
    size_t other;
    void *x = gather(a, kind, &size);
    void *y = gather(b, kind, &other);
    assert_int_equal(size, other);
    assert_memory_equal(x, y, size);
    free(x);
    free(y);
}

/* Rows of images [start, start + count) of both views, in a matrix (2 COUNT, EMBED). */
static void group_forward(struct fixture *f, double *all, int start, int count) {
    struct error err;
    struct tensor x;
    double host[EMBEDDINGS];
    const struct view_encoder_batch batch = batch_of(f, start, count);
    const size_t half = (size_t)count * EMBED;
    assert_ok(view_encoder_forward(f->model, &x, &batch, &err), err);
    assert_ok(f->dev->ops->download(f->dev, host, x.data, 2 * half * sizeof *host, &err), err);
    memcpy(all + start * EMBED, host, half * sizeof *host);
    memcpy(all + (COUNT + start) * EMBED, host + half, half * sizeof *host);
}

static void
group_backward(struct fixture *f, const double *dx, int start, int count, enum write_mode mode) {
    struct error err;
    double host[EMBEDDINGS];
    const struct view_encoder_batch batch = batch_of(f, start, count);
    const size_t half = (size_t)count * EMBED;
    memcpy(host, dx + start * EMBED, half * sizeof *host);
    memcpy(host + half, dx + (COUNT + start) * EMBED, half * sizeof *host);
    const struct tensor t = tensor_2d(host, DTYPE_F64, 2 * count, EMBED);
    assert_ok(view_encoder_backward(f->model, &t, &batch, mode, NULL, &err), err);
}

/* The last part's backward comes first, because its forward was the last. */
static void check_groups(const struct view_encoder_options *in_parts,
                         const struct view_encoder_options *alone) {
    static struct fixture whole, groups, once;
    double x[EMBEDDINGS];
    double y[EMBEDDINGS];
    set_up_with(&whole, in_parts);
    set_up_with(&groups, alone);
    set_up_with(&once, alone);
    shake(&whole);
    shake(&groups);
    shake(&once);
    for (int k = 0; k < 2; k++) { /* twice: a step is not the first one only */
        group_forward(&whole, x, 0, COUNT);
        group_backward(&whole, whole.weights, 0, COUNT, WRITE_SET);
        group_forward(&once, y, 0, MICRO);
        group_forward(&once, y, MICRO, COUNT - MICRO);
        assert_memory_equal(x, y, sizeof x);
        group_forward(&groups, y, MICRO, COUNT - MICRO);
        group_backward(&groups, whole.weights, MICRO, COUNT - MICRO, WRITE_SET);
        group_forward(&groups, y, 0, MICRO);
        group_backward(&groups, whole.weights, 0, MICRO, WRITE_ADD);
        assert_same(&whole, &groups, PARAM_TRAINED);
        assert_same(&whole, &once, PARAM_BUFFER);
    }
    tear_down(&whole);
    tear_down(&groups);
    tear_down(&once);
}

TEST(micro_batches_equal_batch_norm_groups_by_hand) {
    const struct view_encoder_options in_parts = options(COUNT, MICRO, DTYPE_F64);
    const struct view_encoder_options alone = options(MICRO, 0, DTYPE_F64);
    check_groups(&in_parts, &alone);
    const struct view_encoder_options vit_in_parts = vit_options(COUNT, MICRO, DTYPE_F64);
    const struct view_encoder_options vit_alone = vit_options(MICRO, 0, DTYPE_F64);
    check_groups(&vit_in_parts, &vit_alone);
}

/* As in test_encoder_modes.c. */
TEST(a_batch_beside_another_adds_its_gradients) {
    enum { FIRST = MICRO };
    static struct fixture turns, beside;
    double x[EMBEDDINGS];
    double y[EMBEDDINGS];
    for (int32_t micro = 0; micro < 2; micro++) {
        const struct view_encoder_options o = options(FIRST, micro, DTYPE_F64);
        set_up_with(&turns, &o);
        set_up_with(&beside, &o);
        shake(&turns);
        shake(&beside);
        group_forward(&turns, x, 0, FIRST);
        group_backward(&turns, turns.weights, 0, FIRST, WRITE_SET);
        beside.beside = true;
        group_forward(&beside, y, FIRST, COUNT - FIRST);
        beside.beside = false;
        group_forward(&beside, y, 0, FIRST);
        group_backward(&beside, turns.weights, 0, FIRST, WRITE_SET);
        beside.beside = true;
        group_backward(&beside, turns.weights, FIRST, COUNT - FIRST, WRITE_ADD);
        beside.beside = false;
        assert_same(&turns, &beside, PARAM_BUFFER);
        group_forward(&turns, x, FIRST, COUNT - FIRST);
        group_backward(&turns, turns.weights, FIRST, COUNT - FIRST, WRITE_ADD);
        assert_memory_equal(x, y, sizeof x);
        assert_same(&turns, &beside, PARAM_TRAINED);
        tear_down(&turns);
        tear_down(&beside);
    }
}

TEST(memory_is_that_of_the_micro_batch) {
    struct error err;
    struct dual_encoder_memory m[3];
    const struct view_encoder_options o[3] = {options(64, 2, DTYPE_F64), options(2, 0, DTYPE_F64),
                                              options(64, 0, DTYPE_F64)};
    for (int i = 0; i < 3; i++) {
        assert_ok(view_encoder_plan(&m[i], &o[i], &err), err);
    }
    /* only the embeddings are kept for all */
    const size_t embeddings = (size_t)128 * EMBED * sizeof(double) - 192; /* 160 take 192 */
    assert_int_equal(m[0].activations_bytes, m[1].activations_bytes + embeddings);
    assert_int_equal(m[0].workspace_bytes, m[1].workspace_bytes);
    assert_int_equal(m[0].input_bytes, m[1].input_bytes);
    assert_int_equal(m[0].gradients_bytes, (1 + 5) * m[1].gradients_bytes); /* 32 of them */
    assert_true(m[2].activations_bytes > 20 * m[0].activations_bytes);
}

/* ---- bf16 ---- */

/* Embeddings and all gradients of one step, in f32, with the loss's gradients drawn by set_up. */
static float *f32_step(struct fixture *f, float *x, int64_t *count) {
    struct error err;
    struct tensor t;
    float dx[EMBEDDINGS];
    size_t size;
    const struct view_encoder_batch batch = batch_of(f, 0, COUNT);
    shake(f);
    assert_ok(view_encoder_forward(f->model, &t, &batch, &err), err);
    assert_int_equal(t.dtype, DTYPE_F32);
    assert_ok(f->dev->ops->download(f->dev, x, t.data, sizeof dx, &err), err);
    for (int i = 0; i < EMBEDDINGS; i++) {
        dx[i] = (float)f->weights[i];
    }
    const struct tensor given = tensor_2d(dx, DTYPE_F32, 2 * COUNT, EMBED);
    assert_ok(view_encoder_backward(f->model, &given, &batch, WRITE_SET, NULL, &err), err);
    float *gradients = gather(f, PARAM_TRAINED, &size);
    *count = (int64_t)(size / sizeof *gradients);
    return gradients;
}

/* Norm of a - b relative to that of a. */
static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0.0;
    double all = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        difference += d * d;
        all += (double)a[i] * (double)a[i];
    }
    return sqrt(difference / all);
}

/* Embeddings and all gradients together, relative to f32's (bf16 has 8 bits), from the same
 * weights; and the same bits again, in micro-batches too. */
TEST(bf16_follows_f32_and_repeats_to_the_bit) {
    for (int32_t micro = 0; micro <= MICRO; micro += MICRO) {
        static float x[3][EMBEDDINGS];
        float *g[3];
        int64_t count = 0;
        for (int k = 0; k < 3; k++) {
            static struct fixture f;
            const struct view_encoder_options o =
                options(COUNT, micro, k == 0 ? DTYPE_F32 : DTYPE_BF16);
            set_up_with(&f, &o);
            assert_int_equal(params_dtype(f.params), DTYPE_F32);
            g[k] = f32_step(&f, x[k], &count);
            tear_down(&f);
        }
        assert_memory_equal(x[1], x[2], sizeof x[1]);
        assert_memory_equal(g[1], g[2], (size_t)count * sizeof **g);
        const double embeddings = distance(x[0], x[1], EMBEDDINGS);
        const double gradients = distance(g[0], g[1], count);
        if (!(embeddings > 1e-5 && embeddings < 0.05 && gradients < 0.15)) {
            fail_msg("micro-batch %d: %.4g of embeddings differ, %.4g of gradients", (int)micro,
                     embeddings, gradients);
        }
        for (int k = 0; k < 3; k++) {
            free(g[k]);
        }
    }
}
