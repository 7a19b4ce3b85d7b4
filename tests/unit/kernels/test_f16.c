/*
 * f16: conversions over all numbers of the type and beside the ties between them, and as the
 * reference does them in cast and in the optimisers' working copies.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/f16.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The value by its definition: (-1)^s 2^(e-15) 1.f, and 2^-14 0.f where e is 0. */
static double defined(uint16_t x) {
    const int exponent = x >> 10 & 31;
    const int fraction = x & 1023;
    const double magnitude = exponent == 0 ? ldexp((double)fraction, -24)
                                           : ldexp((double)(1024 + fraction), exponent - 25);
    return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(every_f16_is_the_number_it_spells_and_comes_back) {
    for (uint32_t x = 0; x <= 0xFFFF; x++) {
        const float f = f16_to_f32((uint16_t)x);
        if ((x & 0x7C00) != 0x7C00) {
            assert_true((double)f == defined((uint16_t)x));
            assert_int_equal(signbit(f) != 0, x >> 15);
        }
        if ((x & 0x7FFF) == 0x7C00) {
            assert_true(isinf(f) && (signbit(f) != 0) == (x >> 15 != 0));
        }
        if ((x & 0x7FFF) > 0x7C00) {
            assert_true(isnan(f) && isnan(f16_to_f32(f16_from_f32(f))));
        } else {
            assert_int_equal(f16_from_f32(f), x);
        }
    }
}

/* Between two neighbours lies one f32 that is as far from both; beside it the nearer one wins, on
 * it the even one. */
TEST(every_tie_between_neighbours_goes_to_even_and_what_lies_beside_it_to_the_nearer) {
    for (uint32_t x = 0; x < 0x7C00; x++) {
        const double low = defined((uint16_t)x);
        const double high = x == 0x7BFF ? 65536.0 : defined((uint16_t)(x + 1));
        const float tie = (float)((low + high) / 2.0);
        assert_true((double)tie == (low + high) / 2.0);
        const uint32_t even = (x & 1) == 0 ? x : x + 1;
        assert_int_equal(f16_from_f32(tie), even);
        assert_int_equal(f16_from_f32(nextafterf(tie, 0.0f)), x);
        assert_int_equal(f16_from_f32(nextafterf(tie, FLT_MAX)), x + 1);
        assert_int_equal(f16_from_f32(-tie), even | 0x8000);
        assert_int_equal(f16_from_f32(nextafterf(-tie, 0.0f)), x | 0x8000);
        assert_int_equal(f16_from_f32(nextafterf(-tie, -FLT_MAX)), (x + 1) | 0x8000);
    }
}

TEST(what_lies_beyond_the_type_becomes_zero_infinity_or_stays_no_number) {
    static const struct {
        uint32_t bits;
        uint16_t expected;
    } cases[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00000001, 0x0000}, {0x80000001, 0x8000},
        {0x007FFFFF, 0x0000}, {0x00800000, 0x0000}, {0x33000000, 0x0000}, {0x33000001, 0x0001},
        {0x33C00000, 0x0002}, {0x387FFFFF, 0x0400}, {0x38800000, 0x0400}, {0x477FE000, 0x7BFF},
        {0x477FEFFF, 0x7BFF}, {0x477FF000, 0x7C00}, {0x47800000, 0x7C00}, {0x7F7FFFFF, 0x7C00},
        {0x7F800000, 0x7C00}, {0xFF800000, 0xFC00}, {0xC77FF000, 0xFC00}, {0xFF7FFFFF, 0xFC00},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(f16_from_f32(from_bits(cases[i].bits)), cases[i].expected);
    }
    /* a NaN whose marks would be cut away stays one, with its sign */
    assert_int_equal(f16_from_f32(from_bits(0x7F800001)) & 0xFC00, 0x7C00);
    assert_true(isnan(f16_to_f32(f16_from_f32(from_bits(0x7F800001)))));
    assert_true(isnan(f16_to_f32(f16_from_f32(from_bits(0xFFFFFFFF)))));
    assert_int_equal(f16_from_f32(from_bits(0xFFC00000)) >> 15, 1);
}

/* A million f32 over all exponents: none of the f16 beside the answer lies nearer. */
TEST(the_answer_is_the_nearest) {
    uint32_t seed = 1;
    for (int i = 0; i < 1000000; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t exponent = 127 - 27 + (seed >> 8) % 45; /* 2^-27 to 2^17 */
        const float f = from_bits((seed >> 1 & 0x7FFFFF) | exponent << 23);
        const uint16_t x = f16_from_f32(f);
        const double value = (double)f;
        if (x == 0x7C00) {
            assert_true(value >= 65520.0);
            continue;
        }
        const double distance = fabs(defined(x) - value);
        assert_true(x == 0 || distance <= fabs(defined((uint16_t)(x - 1)) - value));
        assert_true(x == 0x7BFF || distance <= fabs(defined((uint16_t)(x + 1)) - value));
    }
}

/* A device of threads that flush denormals is open: conversions are the same. */
TEST(flushing_denormals_changes_nothing) {
    struct device *cpu;
    struct error err = {0};
    assert_ok(device_open(&cpu, "cpu", 1, &err), err);
    for (uint32_t x = 0; x < 0x0800; x++) {
        const float f = f16_to_f32((uint16_t)x);
        assert_int_equal(to_bits(f), to_bits((float)defined((uint16_t)x)));
        assert_int_equal(f16_from_f32(f), x);
    }
    device_close(cpu);
}

enum { COUNT = 70001 };

TEST(the_reference_casts_as_the_header_does) {
    static float values[COUNT];
    static float back[COUNT];
    static uint16_t halves[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = from_bits(0x33000000u + i * 40503u % 0x14F00000u); /* 2^-25 and on */
    }
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    const struct tensor wide = tensor_1d(values, DTYPE_F32, COUNT);
    const struct tensor narrow = tensor_1d(halves, DTYPE_F16, COUNT);
    const struct tensor other = tensor_1d(halves, DTYPE_BF16, COUNT);
    const struct tensor again = tensor_1d(back, DTYPE_F32, COUNT);
    assert_ok(dev->ops->cast(dev, &narrow, &wide, &err), err);
    assert_ok(dev->ops->cast(dev, &again, &narrow, &err), err);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(halves[i], f16_from_f32(values[i]));
        assert_true(back[i] == f16_to_f32(halves[i]));
    }
    assert_status(dev->ops->cast(dev, &other, &narrow, &err), STATUS_INVALID, err);
    device_close(dev);
}

TEST(working_copies_are_the_new_values_rounded) {
    enum { N = 1003 };
    static float data[4][N];
    static uint16_t copy[N];
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    struct tensor t[4];
    for (int k = 0; k < 4; k++) {
        t[k] = tensor_1d(data[k], DTYPE_F32, N);
        for (int i = 0; i < N; i++) {
            data[k][i] = k == 2 || k == 3 ? 0.0f : (float)((i * 37 + k) % 101) * 0.02f - 1.0f;
        }
    }
    const struct tensor working = tensor_1d(copy, DTYPE_F16, N);
    const struct step_values values = {.lr = 1e-2, .grad_scale = 1.0, .sound = 1};
    const struct adamw_params adamw = {
        .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f, .values = &values};
    assert_ok(dev->ops->adamw(dev, &t[0], &working, &t[1], &t[2], &t[3], &adamw, &err), err);
    for (int i = 0; i < N; i++) {
        assert_int_equal(copy[i], f16_from_f32(data[0][i]));
    }
    const struct sgdm_params sgdm = {
        .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true, .values = &values};
    assert_ok(dev->ops->sgdm(dev, &t[0], &working, &t[1], &t[2], &sgdm, &err), err);
    for (int i = 0; i < N; i++) {
        assert_int_equal(copy[i], f16_from_f32(data[0][i]));
    }
    /* the master copy is of no half type */
    assert_status(dev->ops->sgdm(dev, &working, &working, &working, &working, &sgdm, &err),
                  STATUS_INVALID, err);
    device_close(dev);
}

TEST(devices_say_whether_they_compute_in_f16) {
    struct device *ref;
    struct device *cpu;
    struct error err = {0};
    assert_ok(device_open(&ref, "cpu-ref", 1, &err), err);
    assert_ok(device_open(&cpu, "cpu", 1, &err), err);
    assert_ok(ref->ops->supports(ref, DTYPE_F16, &err), err);
    assert_status(cpu->ops->supports(cpu, DTYPE_F16, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "fp16 trains on a GPU; use bf16 or f32 here"));
    device_close(ref);
    device_close(cpu);
}
