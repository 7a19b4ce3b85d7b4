/*
 * The gradient of every tensor of the projection head, and of the tower's first one (its others are
 * tested with dual_encoder), against central differences, in double on cpu-ref; what both views
 * are; and evaluation by running statistics.
 *
 * test-timeout: 120
 */
#include "train/view_encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

enum { COUNT = 3, PX = 12, HIDDEN = 7, EMBED = 5, IMAGE_BYTES = PX * PX * 3 };

struct fixture {
    struct device *dev;
    struct view_encoder *model;
    struct params *params;
    struct rng rng;
    uint8_t views[2][COUNT * IMAGE_BYTES];
    double weights[2 * COUNT * EMBED]; /* the loss is the sum of embeddings times these */
};

static void set_up(struct fixture *f) {
    struct error err;
    struct view_encoder_options o = {.hidden_dim = HIDDEN,
                                     .embed_dim = EMBED,
                                     .max_batch = 2 * COUNT,
                                     .training = true,
                                     .moments = 2,
                                     .dtype = DTYPE_F64};
    memset(f, 0, sizeof *f);
    rng_init(&f->rng, test_seed(), RNG_INIT, 1000, 0);
    assert_ok(resnet_preset(&o.image, "resnet10t", &err), err);
    o.image.width = 8;
    o.image.image_px = PX;
    o.image.stem = RESNET_STEM_SMALL;
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    assert_ok(view_encoder_create(&f->model, f->dev, &o, &err), err);
    f->params = view_encoder_params(f->model);
    assert_ok(params_init(f->params, 7, &err), err);
    for (size_t i = 0; i < sizeof f->views; i++) {
        f->views[i / sizeof f->views[0]][i % sizeof f->views[0]] = (uint8_t)rng_below(&f->rng, 256);
    }
    for (int i = 0; i < 2 * COUNT * EMBED; i++) {
        f->weights[i] = rng_normal(&f->rng);
    }
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
        const size_t size = (size_t)info.count * sizeof(double);
        double *v = malloc(size);
        assert_non_null(v);
        assert_ok(params_read(f->params, i, PARAM_VALUE, v, size, &err), err);
        for (int64_t k = 0; k < info.count && info.kind == PARAM_TRAINED; k++) {
            v[k] += 0.1 * rng_normal(&f->rng);
        }
        assert_ok(params_write(f->params, i, PARAM_VALUE, v, size, &err), err);
        free(v);
    }
}

static double loss(struct fixture *f) {
    struct error err;
    struct tensor x;
    double host[2 * COUNT * EMBED];
    double sum = 0.0;
    assert_ok(view_encoder_forward(f->model, &x, f->views[0], f->views[1], COUNT, &err), err);
    assert_int_equal(tensor_size_bytes(&x), sizeof host);
    assert_ok(f->dev->ops->download(f->dev, host, x.data, sizeof host, &err), err);
    for (int i = 0; i < 2 * COUNT * EMBED; i++) {
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

TEST(gradients_are_those_of_differences) {
    struct error err;
    struct fixture f;
    void *dx = NULL;
    set_up(&f);
    shake(&f);
    assert_ok(f.dev->ops->alloc(f.dev, sizeof f.weights, &dx, &err), err);
    assert_ok(f.dev->ops->upload(f.dev, dx, f.weights, sizeof f.weights, &err), err);
    const struct tensor t = tensor_2d(dx, DTYPE_F64, 2 * COUNT, EMBED);
    loss(&f);
    assert_ok(view_encoder_backward(f.model, &t, WRITE_SET, &err), err);
    int trained = 0;
    for (int32_t i = 0; i < params_count(f.params); i++) {
        const struct param_info info = params_info(f.params, i);
        if (info.kind == PARAM_TRAINED && (i == 0 || strncmp(info.name, "proj.", 5) == 0)) {
            check_tensor(&f, i);
            trained++;
        }
    }
    assert_int_equal(trained, 1 + 5);
    assert_true(params_find(f.params, "proj.0.weight") >= 0);
    assert_true(params_info(f.params, params_find(f.params, "proj.1.weight")).count == HIDDEN);
    f.dev->ops->free(f.dev, dx);
    tear_down(&f);
}

TEST(views_stand_one_behind_the_other) {
    struct error err;
    struct fixture f;
    struct tensor x;
    double a[2 * COUNT * EMBED];
    double b[2 * COUNT * EMBED];
    set_up(&f);
    shake(&f);
    assert_ok(view_encoder_forward(f.model, &x, f.views[0], f.views[1], COUNT, &err), err);
    assert_ok(f.dev->ops->download(f.dev, a, x.data, sizeof a, &err), err);
    assert_ok(view_encoder_forward(f.model, &x, f.views[1], f.views[0], COUNT, &err), err);
    assert_ok(f.dev->ops->download(f.dev, b, x.data, sizeof b, &err), err);
    for (int i = 0; i < COUNT * EMBED; i++) {
        assert_true(fabs(a[i] - b[COUNT * EMBED + i]) < 1e-12);
        assert_true(fabs(b[i] - a[COUNT * EMBED + i]) < 1e-12);
    }
    tear_down(&f);
}

/* Evaluation looks at each picture alone, so its company changes nothing. */
TEST(evaluation_looks_at_each_picture_alone) {
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

TEST(the_plan_is_what_is_taken) {
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
    tear_down(&f);
}
