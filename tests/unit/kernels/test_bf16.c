/*
 * bf16: rounding, alone and by every device in cast and in the working copies of optimisers.
 */
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

TEST(every_bf16_survives_a_round_trip) {
    for (uint32_t x = 0; x <= 0xFFFF; x++) {
        const float f = bf16_to_f32((uint16_t)x);
        if (isnan(f)) {
            assert_true(isnan(bf16_to_f32(bf16_from_f32(f))));
        } else {
            assert_int_equal(bf16_from_f32(f), x);
        }
    }
}

TEST(rounding_is_to_nearest_and_ties_go_to_even) {
    static const struct {
        uint32_t bits;
        uint16_t expected;
    } cases[] = {
        {0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81},
        {0x3F818000, 0x3F82}, {0x3F817FFF, 0x3F81}, {0xBF808001, 0xBF81}, {0x7F7FFFFF, 0x7F80},
        {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x80000000, 0x8000}, {0x00000000, 0x0000},
        {0x3FFFFFFF, 0x4000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(bf16_from_f32(from_bits(cases[i].bits)), cases[i].expected);
    }
    /* a NaN whose mark would be rounded away stays one */
    assert_true(isnan(bf16_to_f32(bf16_from_f32(from_bits(0x7F800001)))));
    assert_true(isnan(bf16_to_f32(bf16_from_f32(from_bits(0xFFFFFFFF)))));
}

enum { COUNT = 70001 }; /* more than one piece, and no whole vector at the end */

TEST(devices_cast_as_the_header_does) {
    static const char *const names[] = {"cpu-ref", "cpu"};
    static float values[COUNT];
    static float back[COUNT];
    static uint16_t halves[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = from_bits(0x3F000000u + i * 40503u % 0x1000000u);
    }
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        const struct tensor wide = tensor_1d(values, DTYPE_F32, COUNT);
        const struct tensor narrow = tensor_1d(halves, DTYPE_BF16, COUNT);
        const struct tensor again = tensor_1d(back, DTYPE_F32, COUNT);
        assert_ok(dev->ops->cast(dev, &(struct cast){.out = narrow, .in = wide}, &err), err);
        assert_ok(dev->ops->cast(dev, &(struct cast){.out = again, .in = narrow}, &err), err);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(halves[i], bf16_from_f32(values[i]));
            assert_true(back[i] == bf16_to_f32(halves[i]));
        }
        const struct cast to_itself = {.out = wide, .in = wide};
        assert_status(dev->ops->cast(dev, &to_itself, &err), STATUS_INVALID, err);
        const struct cast integers = {.out = narrow, .in = tensor_1d(values, DTYPE_I32, COUNT)};
        assert_status(dev->ops->cast(dev, &integers, &err), STATUS_INVALID, err);
        device_close(dev);
    }
}

TEST(working_copies_are_the_new_values_rounded) {
    static const char *const names[] = {"cpu-ref", "cpu"};
    enum { N = 1003 };
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        static float data[4][N];
        static uint16_t copy[N];
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 2, &err), err);
        struct tensor t[4];
        for (int k = 0; k < 4; k++) {
            t[k] = tensor_1d(data[k], DTYPE_F32, N);
            for (int i = 0; i < N; i++) {
                data[k][i] = k == 2 || k == 3 ? 0.0f : (float)((i * 37 + k) % 101) * 0.02f - 1.0f;
            }
        }
        const struct tensor working = tensor_1d(copy, DTYPE_BF16, N);
        struct step_values values = {.lr = 1e-2, .grad_scale = 1.0, .sound = 1};
        const struct adamw adamw = {.value = t[0],
                                    .working = working,
                                    .grad = t[1],
                                    .m = t[2],
                                    .v = t[3],
                                    .beta1 = 0.9f,
                                    .lr_scale = 1.0f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.1f,
                                    .values = &values};
        assert_ok(dev->ops->adamw(dev, &adamw, &err), err);
        for (int i = 0; i < N; i++) {
            assert_int_equal(copy[i], bf16_from_f32(data[0][i]));
        }
        values.lr = 0.1;
        struct sgdm sgdm = {.value = t[0],
                            .working = working,
                            .grad = t[1],
                            .m = t[2],
                            .momentum = 0.9f,
                            .weight_decay = 0.01f,
                            .nesterov = true,
                            .values = &values};
        assert_ok(dev->ops->sgdm(dev, &sgdm, &err), err);
        for (int i = 0; i < N; i++) {
            assert_int_equal(copy[i], bf16_from_f32(data[0][i]));
        }
        /* the master copy is never bf16; a device without bf16 refuses for that reason first */
        const bool computes = dev->ops->supports(dev, DTYPE_BF16, NULL) == STATUS_OK;
        sgdm.value = sgdm.grad = sgdm.m = working;
        assert_status(dev->ops->sgdm(dev, &sgdm, &err),
                      computes ? STATUS_INVALID : STATUS_UNSUPPORTED, err);
        device_close(dev);
    }
}

TEST(devices_report_the_types_they_support) {
    struct device *ref;
    struct device *cpu;
    struct error err = {0};
    assert_ok(device_open(&ref, "cpu-ref", 1, &err), err);
    assert_ok(device_open(&cpu, "cpu", 1, &err), err);
    assert_ok(ref->ops->supports(ref, DTYPE_F64, &err), err);
    assert_ok(ref->ops->supports(ref, DTYPE_BF16, &err), err);
    assert_ok(cpu->ops->supports(cpu, DTYPE_F32, &err), err);
    assert_status(cpu->ops->supports(cpu, DTYPE_F64, &err), STATUS_UNSUPPORTED, err);
    assert_status(ref->ops->supports(ref, DTYPE_U8, &err), STATUS_UNSUPPORTED, err);
    const enum status s = cpu->ops->supports(cpu, DTYPE_BF16, &err);
    if (s != STATUS_OK) { /* then every op refuses too */
        static uint16_t x[4];
        const struct fill op = {.out = tensor_1d(x, DTYPE_BF16, 4), .value = 1.0};
        assert_non_null(strstr(err.text, "avx512_bf16"));
        assert_status(cpu->ops->fill(cpu, &op, &err), STATUS_UNSUPPORTED, err);
    }
    device_close(ref);
    device_close(cpu);
}
