/*
 * normalize_u8: what every byte becomes.
 */
#include <math.h>

#include "formats/base/image_norm.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

TEST(none_brings_bytes_to_0_to_1) {
    static const char *const names[] = {"cpu-ref", "cpu"};
    uint8_t in[16 * 16 * 3];
    float out[16 * 16 * 3];
    for (int i = 0; i < 16 * 16 * 3; i++) {
        in[i] = (uint8_t)(i / 3); /* every byte in every channel */
    }
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, names[d], 1, &err), err);
        const struct normalize_u8 op = {.out = tensor_4d(out, DTYPE_F32, 1, 16, 16, 3),
                                        .patch = 1,
                                        .in = tensor_4d(in, DTYPE_U8, 1, 16, 16, 3),
                                        .norm = &IMAGE_NORMS[IMAGE_NORM_NONE]};
        assert_ok(dev->ops->normalize_u8(dev, &op, &err), err);
        for (int i = 0; i < 16 * 16 * 3; i++) {
            assert_true(fabsf(out[i] - (float)in[i] / 255.0f) <= 6e-8f);
        }
        device_close(dev);
    }
}
