/*
 * What a step reads from device memory: clipping, the check for gradients that are not finite, loss
 * scaling, and optimisers that change nothing in a skipped step or once one was not sound.
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

static void run(struct device *dev, struct update *u, bool sgd, const struct step_values *values) {
    struct error err = {0};
    const struct tensor value = tensor_1d(u->value, DTYPE_F32, N);
    const struct tensor working = tensor_1d(u->working, DTYPE_BF16, N);
    const struct tensor grad = tensor_1d(u->grad, DTYPE_F32, N);
    const struct tensor m = tensor_1d(u->m, DTYPE_F32, N);
    const struct tensor v = tensor_1d(u->v, DTYPE_F32, N);
    const struct adamw_params adamw = {0.9f, 0.999f, 1e-8f, 0.1f, values};
    const struct sgdm_params sgdm = {0.9f, 0.01f, false, values};
    assert_ok(sgd ? dev->ops->sgdm(dev, &value, &working, &grad, &m, &sgdm, &err)
                  : dev->ops->adamw(dev, &value, &working, &grad, &m, &v, &adamw, &err),
              err);
}

TEST(an_unsound_step_changes_nothing) {
    static struct update before, after;
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int sgd = 0; sgd < 2; sgd++) {
            struct step_values values = {.lr = 0.1, .grad_scale = 1.0, .sound = 0};
            fill(&before);
            fill(&after);
            run(dev, &after, sgd != 0, &values);
            assert_memory_equal(&before, &after, sizeof before);
            values.sound = 1;
            run(dev, &after, sgd != 0, &values);
            assert_memory_not_equal(before.value, after.value, sizeof before.value);
            assert_memory_not_equal(before.working, after.working, sizeof before.working);
        }
        device_close(dev);
    }
}

TEST(the_step_the_rate_and_the_scale_are_read_where_they_lie) {
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
            run(dev, &a, false, &first);
            run(dev, &b, false, &other);
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
            const struct tensor grad = tensor_1d(grads[k], DTYPE_F32, 2);
            assert_ok(dev->ops->sum_squares(dev, &v.squares[k], &grad, &err), err);
        }
        assert_ok(dev->ops->grad_scale(dev, &v, 2, 1.0, &err), err);
        assert_true(v.grad_norm == 5.0 && v.grad_scale == 0.2 && v.sound == 1);
        assert_true(v.step == 7 && v.lr == 0.5);
        assert_ok(dev->ops->grad_scale(dev, &v, 2, 6.0, &err), err);
        assert_true(v.grad_norm == 5.0 && v.grad_scale == 1.0);
        assert_ok(dev->ops->grad_scale(dev, &v, 1, 0.0, &err), err);
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
            const struct tensor grad = tensor_1d(g, DTYPE_F32, 3);
            struct step_values v = {.sound = 1};
            assert_ok(dev->ops->sum_squares(dev, &v.squares[0], &grad, &err), err);
            assert_ok(dev->ops->grad_scale(dev, &v, 1, 1.0, &err), err);
            assert_int_equal(v.sound, finite ? 1 : 0);
            v.squares[0] = 4.0;
            assert_ok(dev->ops->grad_scale(dev, &v, 1, 1.0, &err), err);
            assert_int_equal(v.sound, finite ? 1 : 0);
            assert_true(v.grad_norm == 2.0);
        }
        device_close(dev);
    }
}

/* grad_scale with one gradient, loss scaling on. */
static void judge(struct device *dev, struct step_values *v, float gradient, double clip_norm) {
    struct error err = {0};
    const struct tensor grad = tensor_1d(&gradient, DTYPE_F32, 1);
    assert_ok(dev->ops->sum_squares(dev, &v->squares[0], &grad, &err), err);
    assert_ok(dev->ops->grad_scale(dev, v, 1, clip_norm, &err), err);
}

TEST(gradients_lose_the_loss_scale_again) {
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        float x[3] = {0.25f, -3.0f, 1e-7f};
        const struct tensor grad = tensor_1d(x, DTYPE_F32, 3);
        struct step_values v = {.sound = 1, .loss_scale = 1024.0, .scale_growth = 2000};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        assert_ok(dev->ops->scale_gradient(dev, &grad, &v, &err), err);
        assert_true(x[0] == 256.0f && x[1] == -3072.0f && x[2] == 1e-7f * 1024.0f);
        judge(dev, &v, 4096.0f, 0.0);
        assert_true(v.grad_norm == 4.0 && v.grad_scale == 1.0 / 1024.0 && v.sound == 1);
        judge(dev, &v, 4096.0f, 1.0);
        assert_true(v.grad_norm == 4.0 && v.grad_scale == 0.25 / 1024.0);
        assert_true(v.loss_scale == 1024.0 && v.scale_good == 2 && v.skipped == 0);
        device_close(dev);
    }
}

TEST(a_loss_scale_that_is_too_large_is_halved_and_grows_again) {
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        struct step_values v = {.sound = 1, .loss_scale = 64.0, .scale_growth = 3};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        judge(dev, &v, 1.0f, 0.0);
        judge(dev, &v, 1.0f, 0.0);
        judge(dev, &v, INFINITY, 0.0);
        assert_true(v.loss_scale == 32.0 && v.skipped == 1 && v.skipped_in_row == 1);
        judge(dev, &v, NAN, 0.0);
        assert_true(v.loss_scale == 16.0 && v.skipped == 2 && v.skipped_in_row == 2);
        assert_true(v.scale_good == 0 && v.sound == 1);
        judge(dev, &v, 1.0f, 0.0);
        judge(dev, &v, 1.0f, 0.0);
        assert_true(v.loss_scale == 16.0 && v.scale_good == 2 && v.skipped_in_row == 0);
        judge(dev, &v, 1.0f, 0.0); /* the third good one, divided by what it was multiplied by */
        assert_true(v.loss_scale == 32.0 && v.scale_good == 0 && v.grad_norm == 1.0 / 16.0);
        assert_true(v.skipped == 2 && v.sound == 1);
        v.loss_scale = LOSS_SCALE_MAX;
        v.scale_growth = 1;
        judge(dev, &v, 1.0f, 0.0);
        assert_true(v.loss_scale == LOSS_SCALE_MAX);
        device_close(dev);
    }
}

TEST(a_skipped_step_changes_nothing_and_does_not_count_as_an_update) {
    static struct update before, skipped, after, other;
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (int sgd = 0; sgd < 2; sgd++) {
            struct step_values v = {.lr = 0.1, .sound = 1, .loss_scale = 8.0, .scale_growth = 100};
            fill(&before);
            fill(&skipped);
            judge(dev, &v, INFINITY, 0.0);
            run(dev, &skipped, sgd != 0, &v);
            assert_memory_equal(&before, &skipped, sizeof before);
            fill(&after);
            v.step = 1;
            judge(dev, &v, 1.0f, 0.0);
            run(dev, &after, sgd != 0, &v);
            /* The same as a first step with the scale that is left. */
            v = (struct step_values){.lr = 0.1, .sound = 1, .loss_scale = 4.0};
            fill(&other);
            judge(dev, &v, 1.0f, 0.0);
            run(dev, &other, sgd != 0, &v);
            assert_memory_equal(&other, &after, sizeof other);
            assert_memory_not_equal(before.value, after.value, sizeof before.value);
        }
        device_close(dev);
    }
}

TEST(a_run_whose_steps_are_all_skipped_is_not_sound) {
    for (int d = 0; d < DEVICES; d++) {
        struct device *dev;
        struct error err = {0};
        struct step_values v = {.sound = 1, .loss_scale = 1000.0}; /* fixed */
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        for (uint64_t i = 0; i < LOSS_SCALE_MAX_SKIPS; i++) {
            assert_true(v.sound == 1 && v.skipped == i);
            judge(dev, &v, NAN, 0.0);
            assert_true(v.loss_scale == 1000.0);
        }
        assert_true(v.sound == 0 && v.skipped == LOSS_SCALE_MAX_SKIPS);
        struct step_values still = v;
        judge(dev, &v, 1.0f, 0.0); /* what is not sound stays so, and counts no further */
        still.grad_norm = v.grad_norm;
        still.grad_scale = v.grad_scale;
        still.squares[0] = v.squares[0];
        assert_memory_equal(&still, &v, sizeof v);
        v = (struct step_values){.sound = 1, .loss_scale = LOSS_SCALE_MIN, .scale_growth = 9};
        judge(dev, &v, 1.0f, 0.0);
        assert_true(v.sound == 1);
        judge(dev, &v, NAN, 0.0);
        assert_true(v.sound == 0);
        device_close(dev);
    }
}
