/*
 * Values that a step reads from device memory: clipping, the check for gradients that are not
 * finite, and optimisers that change nothing after a step that was not sound.
 */
#include <math.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/test.h"

static const char *const names[] = {"cpu-ref", "cpu"};
enum { DEVICES = 2, N = 1003 };

struct update {
    float value[N], grad[N], m[N], v[N];
    uint16_t working[N];
};

static void fill(struct update *u) {
    memset(u, 0, sizeof *u);
    for (int i = 0; i < N; i++) {
        u->value[i] = (float)(i % 17) * 0.1f - 0.8f;
        u->grad[i] = (float)(i % 29) * 0.1f - 1.4f;
    }
}

enum optimiser { ADAMW, SGDM, LARS, OPTIMISERS };

static void
run(struct device *dev, struct update *u, enum optimiser which, const struct step_values *values) {
    struct error err = {0};
    const struct adamw adamw = {.value = tensor_1d(u->value, DTYPE_F32, N),
                                .working = tensor_1d(u->working, DTYPE_BF16, N),
                                .grad = tensor_1d(u->grad, DTYPE_F32, N),
                                .m = tensor_1d(u->m, DTYPE_F32, N),
                                .v = tensor_1d(u->v, DTYPE_F32, N),
                                .beta1 = 0.9f,
                                .lr_scale = 1.0f,
                                .beta2 = 0.999f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .values = values};
    const struct sgdm sgdm = {.value = adamw.value,
                              .working = adamw.working,
                              .grad = adamw.grad,
                              .m = adamw.m,
                              .momentum = 0.9f,
                              .weight_decay = 0.01f,
                              .values = values};
    const struct lars lars = {.value = adamw.value,
                              .working = adamw.working,
                              .grad = adamw.grad,
                              .m = adamw.m,
                              .momentum = 0.9f,
                              .weight_decay = 0.01f,
                              .trust = 0.1f,
                              .values = values};
    assert_ok(which == SGDM   ? dev->ops->sgdm(dev, &sgdm, &err)
              : which == LARS ? dev->ops->lars(dev, &lars, &err)
                              : dev->ops->adamw(dev, &adamw, &err),
              err);
}

static void sum_squares(struct device *dev, double *sum, float *grad, int64_t count) {
    struct error err = {0};
    const struct sum_squares op = {tensor_1d(sum, DTYPE_F64, 1), tensor_1d(grad, DTYPE_F32, count)};
    assert_ok(dev->ops->sum_squares(dev, &op, &err), err);
}

static void
grad_scale(struct device *dev, struct step_values *values, int32_t count, double clip_norm) {
    struct error err = {0};
    const struct grad_scale op = {.values = values, .count = count, .clip_norm = clip_norm};
    assert_ok(dev->ops->grad_scale(dev, &op, &err), err);
}

TEST(an_unsound_step_changes_nothing) {
    static struct update before, after;
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int which = 0; which < OPTIMISERS; which++) {
            struct step_values values = {.lr = 0.1, .grad_scale = 1.0, .sound = 0};
            fill(&before);
            fill(&after);
            run(dev, &after, (enum optimiser)which, &values);
            assert_memory_equal(&before, &after, sizeof before);
            values.sound = 1;
            run(dev, &after, (enum optimiser)which, &values);
            assert_memory_not_equal(before.value, after.value, sizeof before.value);
            assert_memory_not_equal(before.working, after.working, sizeof before.working);
        }
        device_close(dev);
    }
}

TEST(step_rate_and_scale_are_read_from_device_memory) {
    static struct update a, b;
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        const struct step_values first = {.step = 0, .lr = 0.1, .grad_scale = 1.0, .sound = 1};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int which = 0; which < 3; which++) {
            struct step_values other = first;
            other.step += which == 0 ? 1 : 0;
            other.lr *= which == 1 ? 2.0 : 1.0;
            other.grad_scale *= which == 2 ? 0.5 : 1.0;
            fill(&a);
            fill(&b);
            run(dev, &a, ADAMW, &first);
            run(dev, &b, ADAMW, &other);
            assert_memory_not_equal(which == 2 ? a.m : a.value, which == 2 ? b.m : b.value,
                                    sizeof a.m);
        }
        device_close(dev);
    }
}

TEST(gradients_are_clipped_to_the_norm) {
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        float grads[2][2] = {{3.0f, 0.0f}, {0.0f, -4.0f}};
        struct step_values v = {.step = 7, .lr = 0.5, .sound = 1};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int k = 0; k < 2; k++) {
            sum_squares(dev, &v.squares[k], grads[k], 2);
        }
        grad_scale(dev, &v, 2, 1.0);
        assert_true(v.grad_norm == 5.0 && v.grad_scale == 0.2 && v.sound == 1);
        assert_true(v.step == 7 && v.lr == 0.5);
        grad_scale(dev, &v, 2, 6.0);
        assert_true(v.grad_norm == 5.0 && v.grad_scale == 1.0);
        grad_scale(dev, &v, 1, 0.0);
        assert_true(v.grad_norm == 3.0 && v.grad_scale == 1.0 && v.sound == 1);
        device_close(dev);
    }
}

TEST(a_norm_that_is_not_finite_makes_all_later_steps_unsound) {
    static const float bad[] = {NAN, INFINITY, 3e38f};
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int k = 0; k < 3; k++) {
            float g[3] = {1.0f, bad[k], 1.0f};
            const bool finite = isfinite(g[1]); /* its square is, in double */
            struct step_values v = {.sound = 1};
            sum_squares(dev, &v.squares[0], g, 3);
            grad_scale(dev, &v, 1, 1.0);
            assert_int_equal(v.sound, finite ? 1 : 0);
            v.squares[0] = 4.0;
            grad_scale(dev, &v, 1, 1.0);
            assert_int_equal(v.sound, finite ? 1 : 0);
            assert_true(v.grad_norm == 2.0);
        }
        device_close(dev);
    }
}
