/*
 * ops_plain: the inner loops of the ops in plain C, the specification of every other set. Where the
 * libraries that they reproduce use floating point, these use the same operations (saturation), or
 * integers whose rounding is exact.
 */
#include "augment/ops_internal.h"

#include "augment/ops_pixel_internal.h"

static void
plain_table(uint8_t *out, const uint8_t *in, size_t count, const struct op_tables *tables) {
    for (size_t i = 0; i < count; i++) {
        for (int c = 0; c < 3; c++) {
            out[3 * i + c] = tables->value[c][in[3 * i + c]];
        }
    }
}

static void plain_range(uint8_t low[3], uint8_t high[3], const uint8_t *in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (int c = 0; c < 3; c++) {
            uint8_t v = in[3 * i + c];
            low[c] = v < low[c] ? v : low[c];
            high[c] = v > high[c] ? v : high[c];
        }
    }
}

static uint64_t plain_gray_sum(const uint8_t *in, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pixel_gray(in + 3 * i);
    }
    return sum;
}

static void plain_gray(uint8_t *out, const uint8_t *in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t v = pixel_gray(in + 3 * i);
        out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = v;
    }
}

static void plain_saturation(uint8_t *out, const uint8_t *in, size_t count, float factor) {
    for (size_t i = 0; i < count; i++) {
        uint8_t gray = pixel_gray(in + 3 * i);
        for (int c = 0; c < 3; c++) {
            out[3 * i + c] = pixel_blend(gray, in[3 * i + c], factor);
        }
    }
}

static void plain_hue(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift) {
    for (size_t i = 0; i < count; i++) {
        pixel_hue(out + 3 * i, in + 3 * i, shift);
    }
}

static void
plain_sharpness(uint8_t *out, const uint8_t *in, size_t stride_bytes, size_t size_bytes) {
    for (size_t x = 0; x < size_bytes; x++) {
        const uint8_t *above = in + x - stride_bytes;
        const uint8_t *here = in + x;
        const uint8_t *below = in + x + stride_bytes;
        int32_t sum = above[-3] + above[0] + above[3] + here[-3] + 5 * here[0] + here[3] +
                      below[-3] + below[0] + below[3];
        int32_t smooth = (2 * sum + 13) / 26;
        out[x] = (uint8_t)((34 * here[0] - 9 * smooth) / 25);
    }
}

static void plain_between(uint8_t *out,
                          const uint8_t *from,
                          const uint8_t *to,
                          const uint8_t *fractions,
                          size_t size_bytes) {
    for (size_t x = 0; x < size_bytes; x++) {
        out[x] = pixel_between(from[x], to[x], fractions[x]);
    }
}

static void plain_warp(uint8_t *out,
                       const uint8_t *in,
                       size_t stride_bytes,
                       int32_t x,
                       int32_t y,
                       const int32_t *dx,
                       const int32_t *dy,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        int32_t at_x = (x + dx[i]) >> OP_WARP_DROP_BITS;
        int32_t at_y = (y + dy[i]) >> OP_WARP_DROP_BITS;
        int32_t fx = at_x & OP_WARP_FRACTION;
        int32_t fy = at_y & OP_WARP_FRACTION;
        const uint8_t *p =
            in + (size_t)(at_y >> OP_WARP_BITS) * stride_bytes + (size_t)(at_x >> OP_WARP_BITS) * 3;
        for (int c = 0; c < 3; c++) {
            out[3 * i + c] = pixel_bilinear(p[c], p[c + 3], p[c + stride_bytes],
                                            p[c + 3 + stride_bytes], fx, fy);
        }
    }
}

const struct op_loops *op_loops_plain(void) {
    static const struct op_loops plain = {
        .name = "plain",
        .table = plain_table,
        .range = plain_range,
        .gray_sum = plain_gray_sum,
        .gray = plain_gray,
        .saturation = plain_saturation,
        .hue = plain_hue,
        .sharpness = plain_sharpness,
        .between = plain_between,
        .warp = plain_warp,
    };
    return &plain;
}
