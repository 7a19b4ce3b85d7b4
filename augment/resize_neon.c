/*
 * resize_neon: the integer arithmetic of the plain loops on aarch64, four sums at a time. Along a
 * row a tap is one pixel, whose four bytes (the last belongs to the next pixel) are widened and
 * multiplied by its weight; across rows a register holds 16 bytes.
 */
#include "augment/resize_internal.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

enum { VECTOR_BYTES = 16, PIXEL_READ_BYTES = 4 };

static inline int32x4_t rounded_start(int32_t bits) {
    return vdupq_n_s32((1 << bits) >> 1);
}

static inline int16x4_t load_pixel(const uint8_t *p) {
    uint32_t four;
    memcpy(&four, p, PIXEL_READ_BYTES);
    uint16x8_t wide = vmovl_u8(vcreate_u8(four));
    return vget_low_s16(vreinterpretq_s16_u16(wide));
}

/* One row: three bytes per output pixel, of which the next pixel's store overwrites none. */
static void
neon_row(uint8_t *out, const uint8_t *in, const struct resize_axis *axis, int32x4_t down) {
    const int16_t *w = axis->weights;
    for (int32_t i = 0; i < axis->count; i++) {
        const uint8_t *from = in + (size_t)axis->starts[i] * 3;
        int32x4_t even = rounded_start(axis->bits);
        int32x4_t odd = vdupq_n_s32(0);
        for (int32_t j = 0; j < axis->taps; j += 2) {
            even = vmlal_n_s16(even, load_pixel(from + 3 * j), w[j]);
            odd = vmlal_n_s16(odd, load_pixel(from + 3 * j + 3), w[j + 1]);
        }
        int32x4_t sum = vshlq_s32(vaddq_s32(even, odd), down);
        uint8x8_t bytes = vqmovun_s16(vcombine_s16(vqmovn_s32(sum), vdup_n_s16(0)));
        vst1_lane_u8(out, bytes, 0);
        vst1_lane_u8(out + 1, bytes, 1);
        vst1_lane_u8(out + 2, bytes, 2);
        w += axis->taps;
        out += 3;
    }
}

static void
neon_rows(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis) {
    for (int32_t r = 0; r < RESIZE_ROWS_AT_ONCE; r++) {
        neon_row(out[r], in[r], axis, vdupq_n_s32(-axis->bits));
    }
}

static inline uint8x16_t column_16(const uint8_t *in,
                                   size_t stride_bytes,
                                   int32_t rows,
                                   const int16_t *weights,
                                   int32_t bits) {
    int32x4_t sum[4];
    for (int k = 0; k < 4; k++) {
        sum[k] = rounded_start(bits);
    }
    for (int32_t j = 0; j < rows; j++) {
        uint8x16_t v = vld1q_u8(in + (size_t)j * stride_bytes);
        int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v)));
        int16x8_t high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(v)));
        sum[0] = vmlal_n_s16(sum[0], vget_low_s16(low), weights[j]);
        sum[1] = vmlal_n_s16(sum[1], vget_high_s16(low), weights[j]);
        sum[2] = vmlal_n_s16(sum[2], vget_low_s16(high), weights[j]);
        sum[3] = vmlal_n_s16(sum[3], vget_high_s16(high), weights[j]);
    }
    int32x4_t down = vdupq_n_s32(-bits);
    int16x4_t part[4];
    for (int k = 0; k < 4; k++) {
        part[k] = vqmovn_s32(vshlq_s32(sum[k], down));
    }
    return vcombine_u8(vqmovun_s16(vcombine_s16(part[0], part[1])),
                       vqmovun_s16(vcombine_s16(part[2], part[3])));
}

static void neon_column(uint8_t *out,
                        const uint8_t *in,
                        size_t stride_bytes,
                        int32_t row_count,
                        size_t size_bytes,
                        const int16_t *weights,
                        const struct resize_axis *axis) {
    int32_t rows = axis->used < row_count ? axis->used : row_count;
    size_t x = 0;
    for (; x + VECTOR_BYTES <= size_bytes; x += VECTOR_BYTES) {
        vst1q_u8(out + x, column_16(in + x, stride_bytes, rows, weights, axis->bits));
    }
    if (x < size_bytes && size_bytes >= VECTOR_BYTES) {
        /* The remainder, as the last whole vector: some bytes are computed twice. */
        x = size_bytes - VECTOR_BYTES;
        vst1q_u8(out + x, column_16(in + x, stride_bytes, rows, weights, axis->bits));
    } else if (x < size_bytes) {
        resize_kernels_plain()->column(out + x, in + x, stride_bytes, row_count, size_bytes - x,
                                       weights, axis);
    }
}

const struct resize_kernels *resize_kernels_neon(void) {
    static const struct resize_kernels neon = {
        .name = "neon",
        .rows = neon_rows,
        .column = neon_column,
        .reads_windows = true, /* the last byte of a tap's four is beyond it */
    };
    return &neon;
}

#else

const struct resize_kernels *resize_kernels_neon(void) {
    return NULL;
}

#endif
