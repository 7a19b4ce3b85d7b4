/*
 * gradients of convolutions in bf16 against the reference, at sizes that use the different fast
 * methods: sums per thread or in place, more pixels than one chunk, stretches that end at borders;
 * each result is set, then added to.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

struct size {
    int64_t n, side, in, out, kernel, stride, pad;
    bool data; /* the gradient of the input too */
};

static void *numbers(enum dtype dtype, int64_t count, uint32_t seed) {
    void *data = calloc((size_t)count, dtype_size_bytes(dtype));
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t draw = ((uint32_t)i + seed) * 2654435761u >> 16;
        const float value = (float)draw * (1.0f / 65536.0f) - 0.45f;
        if (dtype == DTYPE_F32) {
            ((float *)data)[i] = value;
        } else {
            ((uint16_t *)data)[i] = bf16_from_f32(value);
        }
    }
    return data;
}

static struct tensor plane(int64_t n, int64_t side, int64_t channels, uint32_t seed) {
    return tensor_4d(numbers(DTYPE_BF16, n * side * side * channels, seed), DTYPE_BF16, n, side,
                     side, channels);
}

static struct tensor vector(int64_t count, uint32_t seed) {
    return tensor_1d(numbers(DTYPE_F32, count, seed), DTYPE_F32, count);
}

/* Each device gets the same numbers. */
static void open_call(struct conv_bn_bwd *c, const struct size *s) {
    const int64_t side = (s->side + 2 * s->pad - s->kernel) / s->stride + 1;
    const int64_t weights = s->out * s->kernel * s->kernel * s->in;
    memset(c, 0, sizeof *c);
    c->conv = (struct conv_params){(int32_t)s->stride, (int32_t)s->pad, ACTIVATION_RELU};
    if (s->data) {
        c->din = plane(s->n, s->side, s->in, 1);
    }
    c->dweight =
        tensor_4d(numbers(DTYPE_F32, weights, 2), DTYPE_F32, s->out, s->kernel, s->kernel, s->in);
    c->weight =
        tensor_4d(numbers(DTYPE_BF16, weights, 3), DTYPE_BF16, s->out, s->kernel, s->kernel, s->in);
    c->dgamma = vector(s->out, 4);
    c->dbeta = vector(s->out, 5);
    c->mean = vector(s->out, 6);
    c->rstd = vector(s->out, 7);
    c->gamma = vector(s->out, 8);
    c->dpre = plane(s->n, side, s->out, 9);
    c->dout = plane(s->n, side, s->out, 10);
    c->out = plane(s->n, side, s->out, 11);
    c->pre = plane(s->n, side, s->out, 12);
    c->in = plane(s->n, s->side, s->in, 13);
}

static void close_call(struct conv_bn_bwd *c) {
    const struct tensor *all[] = {&c->din,  &c->dweight, &c->dgamma, &c->dbeta, &c->dpre,
                                  &c->dout, &c->out,     &c->pre,    &c->mean,  &c->rstd,
                                  &c->in,   &c->weight,  &c->gamma};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]->data);
    }
}

static void run(struct device *dev, struct conv_bn_bwd *c, enum write_mode mode) {
    struct error err = {0};
    c->din_mode = c->param_mode = mode;
    assert_ok(dev->ops->conv_bn_bwd(dev, c, &err), err);
}

static double value_at(const struct tensor *t, int64_t i) {
    return (double)(t->dtype == DTYPE_F32 ? ((const float *)t->data)[i]
                                          : bf16_to_f32(((const uint16_t *)t->data)[i]));
}

/* |got - times want| / |times want| */
static void check_near(const struct tensor *got, const struct tensor *want, double times) {
    double off = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double w = times * value_at(want, i);
        off += (value_at(got, i) - w) * (value_at(got, i) - w);
        norm += w * w;
    }
    assert_true(norm > 0.0);
    if (sqrt(off / norm) > 4e-3) {
        fail_msg("off by %g of the norm", sqrt(off / norm));
    }
}

TEST(gradients_in_bf16_agree_with_the_reference_by_every_method) {
    static const struct size sizes[] = {
        {1, 17, 96, 320, 3, 1, 1, false}, /* sums in place, two chunks */
        {3, 20, 3, 40, 7, 2, 3, true},    /* stretches of 21 values, a part of a block of o */
        {2, 13, 64, 64, 1, 1, 0, true},   /* sums of two threads */
        {2, 9, 32, 24, 3, 1, 1, true},    /* the kernel reversed */
        {2, 9, 40, 33, 3, 2, 1, true},
    };
    struct device *devices[2];
    struct error err = {0};
    assert_ok(device_open(&devices[0], "cpu-ref", 1, &err), err);
    assert_ok(device_open(&devices[1], "cpu", 2, &err), err);
    if (devices[1]->ops->supports(devices[1], DTYPE_BF16, &err) != STATUS_OK) {
        device_close(devices[0]);
        device_close(devices[1]);
        test_skip("this processor has no bf16 instructions");
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct conv_bn_bwd want;
        struct conv_bn_bwd got;
        open_call(&want, &sizes[i]);
        open_call(&got, &sizes[i]);
        run(devices[0], &want, WRITE_SET);
        for (int times = 1; times <= 2; times++) {
            run(devices[1], &got, times == 1 ? WRITE_SET : WRITE_ADD);
            check_near(&got.dweight, &want.dweight, times);
            if (sizes[i].data) {
                check_near(&got.din, &want.din, times);
            }
        }
        close_call(&want);
        close_call(&got);
    }
    device_close(devices[0]);
    device_close(devices[1]);
}
