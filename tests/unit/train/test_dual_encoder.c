/*
 * The gradient of every tensor of whole models against central differences, in double on cpu-ref;
 * modes, determinism, and the memory plan.
 */
#include "train/model/dual_encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

enum { BATCH = 3, PX = 20, TOKENS = 6, VOCAB = 11, EMBED = 5 };

struct fixture {
    struct device *dev;
    struct dual_encoder *model;
    struct params *params;
    struct rng rng;
    uint8_t images[BATCH * PX * PX * 3];
    int32_t tokens[BATCH * TOKENS];
    int32_t lengths[BATCH];
    uint64_t ids[BATCH];
    struct dual_encoder_batch batch;
    struct step_values values;        /* the host's memory is the device's */
    double weights[2][BATCH * EMBED]; /* the loss is the sum of embeddings times these */
    void *dweights[2];                /* the same on the device */
};

static struct dual_encoder_options small_options(const char *image, const char *text) {
    struct error err;
    struct dual_encoder_options o;
    assert_ok(dual_encoder_preset(&o, image, text, &err), err);
    o.image.width = 8;
    o.image.image_px = PX;
    for (int i = 0; i < 4; i++) {
        o.image.blocks[i] = i == 1 ? 2 : 1;
    }
    o.text.layers = 2;
    o.text.dim = 6;
    o.text.heads = 2;
    o.text.ffn_dim = 10;
    o.text.vocab_count = VOCAB;
    o.text.position_count = TOKENS + 1;
    o.text.max_tokens = TOKENS;
    o.text.dropout = 0.0f;
    o.embed_dim = EMBED;
    o.max_batch = BATCH;
    o.dtype = DTYPE_F64;
    return o;
}

/* Initial values plus noise: gammas that start at 0 would hide the convolutions before them. */
static void shake(struct fixture *f, double amount) {
    struct error err;
    for (int32_t i = 0; i < params_count(f->params); i++) {
        struct param_info info = params_info(f->params, i);
        if (info.kind == PARAM_BUFFER) {
            continue;
        }
        size_t size = (size_t)info.count * dtype_size_bytes(params_dtype(f->params));
        void *v = malloc(size);
        assert_ok(params_read(f->params, i, PARAM_VALUE, v, size, &err), err);
        for (int64_t k = 0; k < info.count; k++) {
            double noise = amount * rng_normal(&f->rng);
            if (params_dtype(f->params) == DTYPE_F64) {
                ((double *)v)[k] += noise;
            } else {
                ((float *)v)[k] += (float)noise;
            }
        }
        assert_ok(params_write(f->params, i, PARAM_VALUE, v, size, &err), err);
        free(v);
    }
}

static void set_up(struct fixture *f, const char *device, const struct dual_encoder_options *o) {
    struct error err;
    memset(f, 0, sizeof(*f));
    rng_init(&f->rng, test_seed(), RNG_INIT, 1000, 0);
    assert_ok(device_open(&f->dev, device, 1, &err), err);
    assert_ok(dual_encoder_create(&f->model, f->dev, o, &err), err);
    f->params = dual_encoder_params(f->model);
    assert_ok(params_init(f->params, 7, &err), err);
    for (size_t i = 0; i < sizeof(f->images); i++) {
        f->images[i] = (uint8_t)rng_below(&f->rng, 256);
    }
    for (int n = 0; n < BATCH; n++) {
        f->lengths[n] = n == 0 ? TOKENS : 2 + n;
        f->ids[n] = 100 + (uint64_t)n;
        for (int t = 0; t < TOKENS; t++) {
            f->tokens[n * TOKENS + t] = (int32_t)rng_below(&f->rng, VOCAB);
        }
    }
    f->batch = (struct dual_encoder_batch){.count = BATCH,
                                           .images = f->images,
                                           .tokens = f->tokens,
                                           .lengths = f->lengths,
                                           .sample_ids = f->ids,
                                           .seed = 3,
                                           .values = &f->values};
    f->values = (struct step_values){.step = 4, .lr = 3e-3, .grad_scale = 1.0, .sound = 1};
}

static void tear_down(struct fixture *f) {
    for (int side = 0; side < 2; side++) {
        f->dev->ops->free(f->dev, f->dweights[side]);
    }
    dual_encoder_destroy(f->model);
    device_close(f->dev);
}

static void draw_loss(struct fixture *f) {
    struct error err;
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < BATCH * EMBED; i++) {
            f->weights[side][i] = rng_normal(&f->rng);
        }
        size_t size = sizeof(f->weights[side]);
        assert_ok(f->dev->ops->alloc(f->dev, size, &f->dweights[side], &err), err);
        assert_ok(f->dev->ops->upload(f->dev, f->dweights[side], f->weights[side], size, &err),
                  err);
    }
}

/* The first side that the model has. */
static int first_side(const struct fixture *f) {
    return dual_encoder_get_options(f->model)->texts_alone ? 1 : 0;
}

static double loss(struct fixture *f) {
    struct error err;
    struct tensor out[2];
    assert_ok(dual_encoder_forward(f->model, first_side(f) == 0 ? &out[0] : NULL, &out[1],
                                   &f->batch, true, &err),
              err);
    double sum = 0.0;
    for (int side = first_side(f); side < 2; side++) {
        double host[BATCH * EMBED];
        assert_ok(f->dev->ops->download(f->dev, host, out[side].data, sizeof(host), &err), err);
        for (int i = 0; i < BATCH * EMBED; i++) {
            sum += f->weights[side][i] * host[i];
        }
    }
    return sum;
}

static void backward(struct fixture *f, enum write_mode mode) {
    struct error err;
    struct tensor d[2];
    for (int side = 0; side < 2; side++) {
        d[side] = tensor_2d(f->dweights[side], DTYPE_F64, BATCH, EMBED);
    }
    loss(f);
    assert_ok(dual_encoder_backward(f->model, first_side(f) == 0 ? &d[0] : NULL, &d[1], &f->batch,
                                    mode, NULL, &err),
              err);
}

/* One tensor along one random direction, with PyTorch's layout on both sides. */
static void check_tensor_gradient(struct fixture *f, int32_t index) {
    struct error err;
    struct param_info info = params_info(f->params, index);
    size_t size = (size_t)info.count * sizeof(double);
    double *value = malloc(size);
    double *moved = malloc(size);
    double *grad = malloc(size);
    double *direction = malloc(size);
    assert_ok(params_read(f->params, index, PARAM_VALUE, value, size, &err), err);
    assert_ok(params_read(f->params, index, PARAM_GRAD, grad, size, &err), err);
    /* A short step where ReLU and max pool have kinks to step over. */
    double step = strncmp(info.name, "image.", 6) == 0 ? 1e-7 : 1e-6;
    double slope = 0.0;
    double squares = 0.0;
    for (int64_t k = 0; k < info.count; k++) {
        direction[k] = rng_normal(&f->rng);
        slope += direction[k] * grad[k];
        squares += grad[k] * grad[k];
    }
    double side[2];
    for (int s = 0; s < 2; s++) {
        for (int64_t k = 0; k < info.count; k++) {
            moved[k] = value[k] + (s == 0 ? step : -step) * direction[k];
        }
        assert_ok(params_write(f->params, index, PARAM_VALUE, moved, size, &err), err);
        side[s] = loss(f);
    }
    assert_ok(params_write(f->params, index, PARAM_VALUE, value, size, &err), err);
    double measured = (side[0] - side[1]) / (2.0 * step);
    double scale = fmax(fabs(slope), 0.3 * sqrt(squares));
    if (fabs(measured - slope) > 1e-6 * scale + 1e-13 / step) {
        fail_msg("%s: gradient along a direction %.12g, differences give %.12g (|g| %.3g)",
                 info.name, slope, measured, sqrt(squares));
    }
    free(value);
    free(moved);
    free(grad);
    free(direction);
}

static void check_gradients(const struct dual_encoder_options *o, const char *only) {
    struct fixture f;
    set_up(&f, "cpu-ref", o);
    shake(&f, 0.1);
    draw_loss(&f);
    backward(&f, WRITE_SET);
    for (int32_t i = 0; i < params_count(f.params); i++) {
        struct param_info info = params_info(f.params, i);
        if (info.kind == PARAM_TRAINED && strncmp(info.name, only, strlen(only)) == 0) {
            check_tensor_gradient(&f, i);
        }
    }
    tear_down(&f);
}

TEST(gradients_of_basic_blocks) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    check_gradients(&o, "image");
}

TEST(gradients_of_bottlenecks) {
    struct dual_encoder_options o = small_options("resnet50", "tiny");
    check_gradients(&o, "image");
}

TEST(gradients_of_deep_stem_and_average_shortcut) {
    struct dual_encoder_options o = small_options("resnet10t", "tiny");
    check_gradients(&o, "image");
}

TEST(gradients_of_small_stems) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.image.stem = RESNET_STEM_SMALL;
    o.image.image_px = 9;
    o.image.blocks[1] = 1;
    check_gradients(&o, "image");
    o.image.deep_stem = true;
    check_gradients(&o, "image.conv1");
}

TEST(gradients_of_text) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    check_gradients(&o, "text");
}

TEST(gradients_of_text_with_dropout) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.text.dropout = 0.3f;
    o.text.layers = 3;
    check_gradients(&o, "text");
}

TEST(gradients_of_one_text_block) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.text.dropout = 0.2f;
    o.text.layers = 1;
    check_gradients(&o, "text");
}

TEST(gradients_of_text_alone_with_raw_embeddings) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.texts_alone = true;
    o.raw = true;
    o.text.dropout = 0.2f;
    check_gradients(&o, "text");
    o.micro_batch = 1; /* parts of the batch, whose forward passes are repeated */
    check_gradients(&o, "text");
    o.texts_alone = false;
    check_gradients(&o, "text_proj");
    check_gradients(&o, "image_proj");
}

/* The same parameters by name, tokens and dropout: the text side of a model of both, before the
 * norm; and images, which are not there, are not read. */
TEST(text_alone_is_the_text_side_of_a_whole_model) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    struct error err;
    struct fixture whole, alone;
    struct tensor image, text[2];
    double embeddings[2][BATCH * EMBED];
    o.text.dropout = 0.2f;
    o.raw = true;
    set_up(&whole, "cpu-ref", &o);
    o.texts_alone = true;
    set_up(&alone, "cpu-ref", &o);
    alone.batch.images = NULL;
    for (int32_t i = 0; i < params_count(alone.params); i++) {
        const struct param_info info = params_info(alone.params, i);
        const size_t size = (size_t)info.count * sizeof(double);
        double *v = malloc(size);
        assert_ok(params_read(alone.params, i, PARAM_VALUE, v, size, &err), err);
        assert_ok(params_write(whole.params, params_find(whole.params, info.name), PARAM_VALUE, v,
                               size, &err),
                  err);
        free(v);
    }
    assert_ok(dual_encoder_forward(whole.model, &image, &text[0], &whole.batch, true, &err), err);
    assert_ok(dual_encoder_forward(alone.model, NULL, &text[1], &alone.batch, true, &err), err);
    for (int k = 0; k < 2; k++) {
        assert_ok(whole.dev->ops->download(whole.dev, embeddings[k], text[k].data,
                                           sizeof embeddings[k], &err),
                  err);
    }
    assert_memory_equal(embeddings[0], embeddings[1], sizeof embeddings[0]);
    assert_true(dual_encoder_memory_used(alone.model).total_bytes <
                dual_encoder_memory_used(whole.model).total_bytes);
    tear_down(&whole);
    tear_down(&alone);
}

TEST(gradients_of_mean_pooling) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.text.pool = TRANSFORMER_POOL_MEAN;
    o.text.dropout = 0.2f;
    check_gradients(&o, "text");
}

static double *all_gradients(struct fixture *f, int64_t *count) {
    struct error err;
    *count = params_element_count(f->params, PARAM_TRAINED);
    double *all = malloc((size_t)*count * sizeof(*all));
    int64_t at = 0;
    for (int32_t i = 0; i < params_count(f->params); i++) {
        struct param_info info = params_info(f->params, i);
        if (info.kind == PARAM_TRAINED) {
            size_t size = (size_t)info.count * sizeof(*all);
            assert_ok(params_read(f->params, i, PARAM_GRAD, all + at, size, &err), err);
            at += info.count;
        }
    }
    return all;
}

TEST(added_gradients_double) {
    struct dual_encoder_options o = small_options("resnet10t", "tiny");
    o.text.dropout = 0.2f;
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    shake(&f, 0.1);
    draw_loss(&f);
    int64_t count;
    backward(&f, WRITE_SET);
    double *once = all_gradients(&f, &count);
    backward(&f, WRITE_ADD);
    double *twice = all_gradients(&f, &count);
    backward(&f, WRITE_SET);
    double *again = all_gradients(&f, &count);
    for (int64_t k = 0; k < count; k++) {
        assert_true(fabs(twice[k] - 2.0 * once[k]) <= 1e-12 * (1.0 + fabs(once[k])));
    }
    assert_memory_equal(once, again, (size_t)count * sizeof(*once));
    free(once);
    free(twice);
    free(again);
    tear_down(&f);
}

static void
embed(struct fixture *f, bool training, double image[BATCH * EMBED], double text[BATCH * EMBED]) {
    struct error err;
    struct tensor x;
    struct tensor t;
    assert_ok(dual_encoder_forward(f->model, &x, &t, &f->batch, training, &err), err);
    size_t size = BATCH * EMBED * sizeof(double);
    assert_ok(f->dev->ops->download(f->dev, image, x.data, size, &err), err);
    assert_ok(f->dev->ops->download(f->dev, text, t.data, size, &err), err);
}

static void assert_near(const double *a, const double *b, int count, double tolerance) {
    for (int i = 0; i < count; i++) {
        if (fabs(a[i] - b[i]) > tolerance) {
            fail_msg("element %d: %.15g and %.15g", i, a[i], b[i]);
        }
    }
}

/* Evaluation must not depend on its neighbours, on training buffers or on dropout. */
TEST(evaluation_is_per_sample_and_leaves_statistics_alone) {
    struct dual_encoder_options o = small_options("resnet10t", "tiny");
    o.text.dropout = 0.5f;
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    shake(&f, 0.1);
    struct error err;
    double x[2][BATCH * EMBED];
    double t[2][BATCH * EMBED];
    embed(&f, true, x[0], t[0]); /* moves the running statistics */
    embed(&f, false, x[0], t[0]);
    embed(&f, false, x[1], t[1]);
    assert_memory_equal(x[0], x[1], sizeof(x[0]));
    assert_memory_equal(t[0], t[1], sizeof(t[0]));
    for (int n = 0; n < BATCH; n++) {
        struct tensor one;
        double row[EMBED];
        assert_ok(
            dual_encoder_encode_images(f.model, &one, NULL, f.images + n * PX * PX * 3, 1, &err),
            err);
        assert_ok(f.dev->ops->download(f.dev, row, one.data, sizeof(row), &err), err);
        assert_near(row, x[0] + n * EMBED, EMBED, 1e-12);
        assert_ok(
            dual_encoder_encode_texts(f.model, &one, f.tokens + n * TOKENS, f.lengths + n, 1, &err),
            err);
        assert_ok(f.dev->ops->download(f.dev, row, one.data, sizeof(row), &err), err);
        assert_near(row, t[0] + n * EMBED, EMBED, 1e-12);
    }
    double squares = 0.0;
    for (int i = 0; i < EMBED; i++) {
        squares += x[0][i] * x[0][i];
    }
    assert_true(fabs(squares - 1.0) < 1e-12);
    tear_down(&f);
}

TEST(training_moves_statistics_and_drops_by_step) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.text.dropout = 0.5f;
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    shake(&f, 0.1);
    double x[3][BATCH * EMBED];
    double t[3][BATCH * EMBED];
    embed(&f, false, x[0], t[0]);
    embed(&f, true, x[1], t[1]);
    embed(&f, true, x[2], t[2]);
    assert_memory_equal(t[1], t[2], sizeof(t[1])); /* same step, same masks */
    assert_memory_equal(x[1], x[2], sizeof(x[1])); /* batch statistics do not depend on running */
    f.values.step++;
    embed(&f, true, x[2], t[2]);
    assert_true(memcmp(t[1], t[2], sizeof(t[1])) != 0);
    embed(&f, false, x[2], t[2]);
    assert_memory_equal(t[0], t[2], sizeof(t[0]));
    assert_true(memcmp(x[0], x[2], sizeof(x[0])) != 0); /* the statistics moved */
    tear_down(&f);
}

/* Tokens after a caption's end are never read, and the longest caption sets the width. */
TEST(padding_does_not_matter) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    o.text.dropout = 0.3f;
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    shake(&f, 0.1);
    double x[2][BATCH * EMBED];
    double t[2][BATCH * EMBED];
    embed(&f, true, x[0], t[0]); /* six columns: the first caption is full */
    for (int n = 1; n < BATCH; n++) {
        for (int k = f.lengths[n]; k < TOKENS; k++) {
            f.tokens[n * TOKENS + k] = -7;
        }
    }
    embed(&f, true, x[1], t[1]);
    assert_memory_equal(t[0], t[1], sizeof(t[0]));
    /* without the first caption four columns are enough: same masks, same numbers */
    f.lengths[0] = 1;
    embed(&f, true, x[1], t[1]);
    assert_near(t[0] + EMBED, t[1] + EMBED, (BATCH - 1) * EMBED, 1e-12);
    tear_down(&f);
}

/* Without training the buffers are shared between blocks: the numbers must be the same. */
TEST(a_model_for_evaluation_gives_the_same_numbers_in_less_memory) {
    static const char *const towers[] = {"resnet10t", "resnet18", "resnet50"};
    for (size_t k = 0; k < 3; k++) {
        struct dual_encoder_options o = small_options(towers[k], "tiny");
        o.text.layers = 3;
        double x[2][BATCH * EMBED];
        double t[2][BATCH * EMBED];
        struct dual_encoder_memory memory[2];
        for (int i = 0; i < 2; i++) {
            o.training = i == 0;
            struct fixture f;
            set_up(&f, "cpu-ref", &o);
            shake(&f, 0.1);
            embed(&f, false, x[i], t[i]);
            memory[i] = dual_encoder_memory_used(f.model);
            struct dual_encoder_memory plan;
            struct error err;
            assert_ok(dual_encoder_plan(&plan, &o, &err), err);
            assert_memory_equal(&plan, &memory[i], sizeof(plan));
            tear_down(&f);
        }
        assert_memory_equal(x[0], x[1], sizeof(x[0]));
        assert_memory_equal(t[0], t[1], sizeof(t[0]));
        assert_int_equal(memory[1].gradients_bytes + memory[1].moments_bytes, 0);
        /* a row of running statistics for the micro-batch, which are few */
        const size_t row_bytes = memory[0].values_bytes - memory[1].values_bytes;
        assert_true(row_bytes > 0 && row_bytes < memory[1].values_bytes / 20);
        assert_true(memory[1].activations_bytes < memory[0].activations_bytes / 4);
    }
}

/* Room for one tensor of an f32 model and of its double twin. */
struct twins {
    float *narrow;
    double *wide;
    size_t count;
};

static struct twins twins_of(int64_t count) {
    struct twins t = {.count = (size_t)count};
    t.narrow = malloc(t.count * sizeof(*t.narrow));
    t.wide = malloc(t.count * sizeof(*t.wide));
    assert_true(t.narrow != NULL && t.wide != NULL);
    return t;
}

static void free_twins(struct twins *t) {
    free(t->narrow);
    free(t->wide);
}

/* The exact model takes the values of the narrow one. */
static void copy_values(struct fixture *exact, struct fixture *f) {
    struct error err;
    for (int32_t i = 0; i < params_count(f->params); i++) {
        struct twins t = twins_of(params_info(f->params, i).count);
        assert_ok(params_read(f->params, i, PARAM_VALUE, t.narrow, t.count * sizeof(float), &err),
                  err);
        for (size_t k = 0; k < t.count; k++) {
            t.wide[k] = (double)t.narrow[k];
        }
        assert_ok(
            params_write(exact->params, i, PARAM_VALUE, t.wide, t.count * sizeof(double), &err),
            err);
        free_twins(&t);
    }
}

/* |g - g exact| / |g exact| over all tensors. */
static double gradient_difference(struct fixture *exact, struct fixture *f) {
    struct error err;
    double difference = 0.0;
    double squares = 0.0;
    for (int32_t i = 0; i < params_count(f->params); i++) {
        struct param_info info = params_info(f->params, i);
        if (info.kind == PARAM_BUFFER) {
            continue;
        }
        struct twins t = twins_of(info.count);
        assert_ok(params_read(f->params, i, PARAM_GRAD, t.narrow, t.count * sizeof(float), &err),
                  err);
        assert_ok(params_read(exact->params, i, PARAM_GRAD, t.wide, t.count * sizeof(double), &err),
                  err);
        for (size_t k = 0; k < t.count; k++) {
            difference += pow((double)t.narrow[k] - t.wide[k], 2.0);
            squares += t.wide[k] * t.wide[k];
        }
        free_twins(&t);
    }
    return sqrt(difference / squares);
}

/* Embeddings and gradients of one training step in f32 on `device`, against double on cpu-ref. */
static void check_f32(const char *device, const char *tower) {
    struct dual_encoder_options o = small_options(tower, "tiny");
    /* Batch norm over three single pixels would magnify rounding: keep the last maps at 3x3. */
    o.image.stem = RESNET_STEM_SMALL;
    o.text.dim = 48;
    o.text.heads = 3;
    o.text.ffn_dim = 80;
    o.text.dropout = 0.1f;
    struct fixture exact;
    struct fixture f;
    set_up(&exact, "cpu-ref", &o);
    o.dtype = DTYPE_F32;
    set_up(&f, device, &o);
    shake(&f, 0.1);
    copy_values(&exact, &f);
    draw_loss(&exact);
    backward(&exact, WRITE_SET);
    double x[2][BATCH * EMBED];
    embed(&exact, true, x[0], x[1]);

    struct error err;
    struct tensor out[2];
    struct tensor d[2];
    assert_ok(dual_encoder_forward(f.model, &out[0], &out[1], &f.batch, true, &err), err);
    for (int side = 0; side < 2; side++) {
        float host[BATCH * EMBED];
        assert_ok(f.dev->ops->download(f.dev, host, out[side].data, sizeof(host), &err), err);
        for (int i = 0; i < BATCH * EMBED; i++) {
            assert_true(fabs((double)host[i] - x[side][i]) < 2e-5);
            host[i] = (float)exact.weights[side][i];
        }
        assert_ok(f.dev->ops->alloc(f.dev, sizeof(host), &f.dweights[side], &err), err);
        assert_ok(f.dev->ops->upload(f.dev, f.dweights[side], host, sizeof(host), &err), err);
        assert_ok(f.dev->ops->sync(f.dev, &err), err);
        d[side] = tensor_2d(f.dweights[side], DTYPE_F32, BATCH, EMBED);
    }
    assert_ok(dual_encoder_backward(f.model, &d[0], &d[1], &f.batch, WRITE_SET, NULL, &err), err);
    double relative = gradient_difference(&exact, &f);
    printf("%s, %s: gradients differ by %.2e of their norm\n", device, tower, relative);
    assert_true(relative < 2e-6);
    tear_down(&f);
    tear_down(&exact);
}

static const char *const image_towers[] = {"resnet10t", "resnet18", "resnet50"};

TEST(f32_agrees_with_double) {
    for (size_t i = 0; i < 3; i++) {
        check_f32("cpu-ref", image_towers[i]);
    }
}

TEST(f32_agrees_with_double_on_the_fast_cpu_device) {
    struct error err;
    struct device *dev;
    enum status s = device_open(&dev, "cpu", 1, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    device_close(dev);
    for (size_t i = 0; i < 3; i++) {
        check_f32("cpu", image_towers[i]);
    }
}

/* Softmax cross-entropy of S = 5 X T^T along its rows; dx and dt are its gradients. */
static double match_loss(const double *x, const double *t, double *dx, double *dt) {
    const double scale = 5.0;
    double loss = 0.0;
    memset(dx, 0, BATCH * EMBED * sizeof(*dx));
    memset(dt, 0, BATCH * EMBED * sizeof(*dt));
    for (int i = 0; i < BATCH; i++) {
        double p[BATCH] = {0};
        double total = 0.0;
        for (int j = 0; j < BATCH; j++) {
            for (int e = 0; e < EMBED; e++) {
                p[j] += scale * x[i * EMBED + e] * t[j * EMBED + e];
            }
            total += exp(p[j]);
        }
        loss += (log(total) - p[i]) / BATCH;
        for (int j = 0; j < BATCH; j++) {
            double g = scale * (exp(p[j]) / total - (i == j ? 1.0 : 0.0)) / BATCH;
            for (int e = 0; e < EMBED; e++) {
                dx[i * EMBED + e] += g * t[j * EMBED + e];
                dt[j * EMBED + e] += g * x[i * EMBED + e];
            }
        }
    }
    return loss;
}

static double train_step(struct fixture *f, int64_t step) {
    struct error err;
    const struct ops *ops = f->dev->ops;
    double out[2][BATCH * EMBED];
    struct tensor d[2];
    f->values.step = (uint64_t)step - 1;
    embed(f, true, out[0], out[1]);
    double value = match_loss(out[0], out[1], f->weights[0], f->weights[1]);
    for (int side = 0; side < 2; side++) {
        d[side] = tensor_2d(f->dweights[side], DTYPE_F64, BATCH, EMBED);
        assert_ok(
            ops->upload(f->dev, d[side].data, f->weights[side], sizeof(f->weights[side]), &err),
            err);
    }
    assert_ok(dual_encoder_backward(f->model, &d[0], &d[1], &f->batch, WRITE_SET, NULL, &err), err);
    for (int decayed = 0; decayed < 2; decayed++) {
        struct tensor range[4];
        for (int slot = 0; slot < 4; slot++) {
            range[slot] = params_range(f->params, (enum param_slot)slot, decayed != 0);
        }
        const struct adamw update = {.value = range[0],
                                     .grad = range[1],
                                     .m = range[2],
                                     .v = range[3],
                                     .beta1 = 0.9f,
                                     .lr_scale = 1.0f,
                                     .beta2 = 0.999f,
                                     .eps = 1e-8f,
                                     .weight_decay = decayed != 0 ? 0.02f : 0.0f,
                                     .values = &f->values};
        assert_ok(ops->adamw(f->dev, &update, &err), err);
    }
    return value;
}

TEST(three_pairs_are_learned) {
    struct dual_encoder_options o = small_options("resnet10t", "tiny");
    o.text.dropout = 0.1f;
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    draw_loss(&f); /* for its device memory */
    double first = train_step(&f, 1);
    double last = first;
    for (int64_t step = 2; step <= 60; step++) {
        last = train_step(&f, step);
    }
    printf("loss %.3f, after 60 steps %.3f\n", first, last);
    assert_true(last < 0.2 * first);
    tear_down(&f);
}

TEST(bad_captions_are_named) {
    struct dual_encoder_options o = small_options("resnet18", "tiny");
    struct fixture f;
    set_up(&f, "cpu-ref", &o);
    struct error err;
    struct tensor x;
    struct tensor t;
    f.tokens[1 * TOKENS + 2] = VOCAB;
    assert_status(dual_encoder_forward(f.model, &x, &t, &f.batch, true, &err), STATUS_INVALID, err);
    assert_non_null(strstr(err.text, "token 2 of caption 1"));
    f.tokens[1 * TOKENS + 2] = 0;
    f.lengths[2] = 0;
    assert_status(dual_encoder_encode_texts(f.model, &t, f.tokens, f.lengths, BATCH, &err),
                  STATUS_INVALID, err);
    assert_non_null(strstr(err.text, "caption 2"));
    tear_down(&f);
}

TEST(options_out_of_range_are_refused) {
    struct error err;
    struct dual_encoder_options o;
    struct dual_encoder_memory memory;
    assert_status(dual_encoder_preset(&o, "resnet11", "tiny", &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "resnet10t, resnet18, resnet34, resnet50"));
    assert_status(dual_encoder_preset(&o, "resnet18", "huge", &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "distil, small, tiny"));
    assert_ok(dual_encoder_preset(&o, "resnet18", "tiny", &err), err);
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err); /* no vocabulary */
    o.text.vocab_count = 10;
    assert_ok(dual_encoder_plan(&memory, &o, &err), err);
    o.text.position_count = 20;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.text.position_count = 0;
    o.text.dropout = 1.0f;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.text.dropout = 0.0f;
    o.image.image_px = 4;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.image.image_px = 32;
    o.embed_dim = 0;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.embed_dim = 256;
    o.max_batch = 0;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.max_batch = INT32_MAX;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
    o.max_batch = 2;
    o.text.heads = 5;
    assert_status(dual_encoder_plan(&memory, &o, &err), STATUS_USAGE, err);
}
