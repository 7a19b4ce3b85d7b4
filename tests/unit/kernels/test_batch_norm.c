/*
 * batch norm: statistics where the mean is a hundred deviations away from zero, and running
 * statistics that a second pass does not change.
 */
#include <math.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/test.h"

enum { N = 4, SIDE = 17, C = 8, ROWS = N * SIDE * SIDE };

struct result {
    float out[ROWS * C], pre[ROWS * C];
    float mean[C], rstd[C], running_mean[C], running_var[C];
};

/* A convolution that copies its input, in training. */
static void normalise(struct result *r, const char *name, bool running) {
    static float in[ROWS * C];
    static float weight[C * C];
    static float ones[C];
    static float zeros[C];
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, name, 2, &err), err);
    memset(r, 0, sizeof *r);
    for (uint32_t e = 0; e < ROWS * C; e++) {
        in[e] = 100.0f + (float)(e * 2654435761u >> 16) * (3.46f / 65536.0f) - 1.73f;
    }
    for (int c = 0; c < C; c++) {
        weight[c * C + c] = ones[c] = 1.0f;
    }
    struct conv_bn op = {.out = tensor_4d(r->out, DTYPE_F32, N, SIDE, SIDE, C),
                         .pre = tensor_4d(r->pre, DTYPE_F32, N, SIDE, SIDE, C),
                         .mean = tensor_1d(r->mean, DTYPE_F32, C),
                         .rstd = tensor_1d(r->rstd, DTYPE_F32, C),
                         .in = tensor_4d(in, DTYPE_F32, N, SIDE, SIDE, C),
                         .weight = tensor_4d(weight, DTYPE_F32, C, 1, 1, C),
                         .gamma = tensor_1d(ones, DTYPE_F32, C),
                         .beta = tensor_1d(zeros, DTYPE_F32, C),
                         .conv = {.stride = 1},
                         .training = true,
                         .eps = 1e-5f,
                         .momentum = 0.1f};
    if (running) {
        op.running_mean = tensor_1d(r->running_mean, DTYPE_F32, C);
        op.running_var = tensor_1d(r->running_var, DTYPE_F32, C);
    }
    assert_ok(dev->ops->conv_bn(dev, &op, &err), err);
    device_close(dev);
}

TEST(a_mean_far_from_zero_does_not_cancel) {
    static struct result ref;
    static struct result cpu;
    normalise(&ref, "cpu-ref", true);
    normalise(&cpu, "cpu", true);
    for (int c = 0; c < C; c++) {
        assert_true(fabsf(ref.rstd[c] - 1.0f) < 0.1f);
        assert_true(fabsf(cpu.rstd[c] - ref.rstd[c]) < 1e-5f);
        assert_true(fabsf(cpu.running_var[c] - ref.running_var[c]) < 1e-5f);
    }
    for (int e = 0; e < ROWS * C; e++) {
        assert_true(fabsf(cpu.out[e] - ref.out[e]) < 1e-4f);
    }
}

TEST(a_pass_without_running_statistics_is_the_same_otherwise) {
    static const char *const names[] = {"cpu-ref", "cpu"};
    static struct result with;
    static struct result without;
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        normalise(&with, names[d], true);
        normalise(&without, names[d], false);
        assert_memory_equal(with.out, without.out, sizeof with.out);
        assert_memory_equal(with.mean, without.mean, sizeof with.mean);
        assert_memory_equal(with.rstd, without.rstd, sizeof with.rstd);
        for (int c = 0; c < C; c++) {
            assert_true(with.running_mean[c] > 9.0f);
            assert_true(without.running_mean[c] == 0.0f);
        }
    }
}
