/*
 * ops_neon: the inner loops of the ops on aarch64. Loads separate the channels, so that 16 pixels
 * are one register of each; the arithmetic is the integers of the plain loops, or the same
 * single-precision operations in the same order. Warps, and the remainder of a run, use the plain
 * arithmetic.
 */
#include "augment/ops_internal.h"

#if defined(__aarch64__)

#include <arm_neon.h>

enum { BLOCK_PX = 16, PARTS = 4 };

/* -------------------------------------------------------------------------------------- tables */

struct table_neon {
    uint8x16x4_t part[4];
};

static inline struct table_neon load_table(const uint8_t *table) {
    struct table_neon t;
    for (int i = 0; i < 4; i++) {
        t.part[i] = vld1q_u8_x4(table + 64 * i);
    }
    return t;
}

/* A quarter of the table replaces 64 values and keeps the others. */
static inline uint8x16_t look_up(uint8x16_t v, const struct table_neon *t) {
    uint8x16_t r = vqtbl4q_u8(t->part[0], v);
    r = vqtbx4q_u8(r, t->part[1], vsubq_u8(v, vdupq_n_u8(64)));
    r = vqtbx4q_u8(r, t->part[2], vsubq_u8(v, vdupq_n_u8(128)));
    return vqtbx4q_u8(r, t->part[3], vsubq_u8(v, vdupq_n_u8(192)));
}

/* One channel after another, since three tables do not fit the registers. */
static void
neon_table(uint8_t *out, const uint8_t *in, size_t count, const struct op_tables *tables) {
    enum { TILE_PX = 1024 };
    while (count >= BLOCK_PX) {
        size_t tile = count < TILE_PX ? count / BLOCK_PX * BLOCK_PX : TILE_PX;
        const uint8_t *from = in;
        for (int c = 0; c < 3; c++) {
            const struct table_neon t = load_table(tables->value[c]);
            for (size_t i = 0; i < tile; i += BLOCK_PX) {
                uint8x16x3_t p = vld3q_u8(from + 3 * i);
                p.val[c] = look_up(p.val[c], &t);
                vst3q_u8(out + 3 * i, p);
            }
            from = out;
        }
        in += 3 * tile;
        out += 3 * tile;
        count -= tile;
    }
    op_loops_plain()->table(out, in, count, tables);
}

static void neon_range(uint8_t low[3], uint8_t high[3], const uint8_t *in, size_t count) {
    uint8x16_t least[3];
    uint8x16_t most[3];
    for (int c = 0; c < 3; c++) {
        least[c] = vdupq_n_u8(low[c]);
        most[c] = vdupq_n_u8(high[c]);
    }
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        uint8x16x3_t p = vld3q_u8(in + 3 * i);
        for (int c = 0; c < 3; c++) {
            least[c] = vminq_u8(least[c], p.val[c]);
            most[c] = vmaxq_u8(most[c], p.val[c]);
        }
    }
    for (int c = 0; c < 3; c++) {
        low[c] = vminvq_u8(least[c]);
        high[c] = vmaxvq_u8(most[c]);
    }
    op_loops_plain()->range(low, high, in + 3 * i, count - i);
}

/* ---------------------------------------------------------------------------------------- gray */

static inline uint16x4_t gray_of_4(uint16x4_t r, uint16x4_t g, uint16x4_t b) {
    uint32x4_t sum = vdupq_n_u32(0x8000);
    sum = vmlal_n_u16(sum, r, 19595);
    sum = vmlal_n_u16(sum, g, 38470);
    sum = vmlal_n_u16(sum, b, 7471);
    return vshrn_n_u32(sum, 16);
}

static inline uint8x8_t gray_of_8(uint8x8_t r8, uint8x8_t g8, uint8x8_t b8) {
    uint16x8_t r = vmovl_u8(r8);
    uint16x8_t g = vmovl_u8(g8);
    uint16x8_t b = vmovl_u8(b8);
    return vmovn_u16(vcombine_u16(gray_of_4(vget_low_u16(r), vget_low_u16(g), vget_low_u16(b)),
                                  gray_of_4(vget_high_u16(r), vget_high_u16(g), vget_high_u16(b))));
}

static inline uint8x16_t gray_of_16(uint8x16x3_t p) {
    return vcombine_u8(
        gray_of_8(vget_low_u8(p.val[0]), vget_low_u8(p.val[1]), vget_low_u8(p.val[2])),
        gray_of_8(vget_high_u8(p.val[0]), vget_high_u8(p.val[1]), vget_high_u8(p.val[2])));
}

static uint64_t neon_gray_sum(const uint8_t *in, size_t count) {
    uint64_t sum = 0;
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        sum += vaddlvq_u8(gray_of_16(vld3q_u8(in + 3 * i)));
    }
    return sum + op_loops_plain()->gray_sum(in + 3 * i, count - i);
}

static void neon_gray(uint8_t *out, const uint8_t *in, size_t count) {
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        uint8x16_t gray = gray_of_16(vld3q_u8(in + 3 * i));
        vst3q_u8(out + 3 * i, (uint8x16x3_t){{gray, gray, gray}});
    }
    op_loops_plain()->gray(out + 3 * i, in + 3 * i, count - i);
}

/* ------------------------------------------------------------------ sixteen values as real ones */

struct real_16 {
    float32x4_t part[PARTS];
};

static inline struct real_16 real_of(uint8x16_t v) {
    uint16x8_t low = vmovl_u8(vget_low_u8(v));
    uint16x8_t high = vmovl_u8(vget_high_u8(v));
    return (struct real_16){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
                             vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
                             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
                             vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}

/* Clamped to [0, 255] and rounded down. */
static inline uint8x16_t bytes_of(const struct real_16 *v) {
    uint16x4_t part[PARTS];
    for (int k = 0; k < PARTS; k++) {
        float32x4_t clamped = vminq_f32(v->part[k], vdupq_n_f32(255.0F));
        part[k] = vqmovn_u32(vcvtq_u32_f32(clamped)); /* below 0 becomes 0 */
    }
    return vcombine_u8(vmovn_u16(vcombine_u16(part[0], part[1])),
                       vmovn_u16(vcombine_u16(part[2], part[3])));
}

static void neon_saturation(uint8_t *out, const uint8_t *in, size_t count, float factor) {
    const float32x4_t f = vdupq_n_f32(factor);
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        uint8x16x3_t p = vld3q_u8(in + 3 * i);
        struct real_16 gray = real_of(gray_of_16(p));
        for (int c = 0; c < 3; c++) {
            struct real_16 v = real_of(p.val[c]);
            for (int k = 0; k < PARTS; k++) {
                float32x4_t step = vmulq_f32(f, vsubq_f32(v.part[k], gray.part[k]));
                v.part[k] = vaddq_f32(gray.part[k], step);
            }
            p.val[c] = bytes_of(&v);
        }
        vst3q_u8(out + 3 * i, p);
    }
    op_loops_plain()->saturation(out + 3 * i, in + 3 * i, count - i, factor);
}

/* ----------------------------------------------------------------------------------------- hue */

/* As in ops_avx2.c: integers below 2^24, which single precision represents exactly. */
static inline float32x4_t quotient(float32x4_t n, float32x4_t d) {
    return vrndmq_f32(vdivq_f32(vaddq_f32(n, vdupq_n_f32(0.5F)), d));
}

static inline float32x4_t one_where(uint32x4_t mask) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(vdupq_n_f32(1.0F))));
}

static inline float32x4_t share_of(float32x4_t max, float32x4_t n) {
    const float32x4_t half = vdupq_n_f32(32512.5F);
    float32x4_t product = vmulq_f32(max, n);
    float32x4_t q = vrndnq_f32(vmulq_f32(product, vdupq_n_f32(1.0F / 65025.0F)));
    float32x4_t left = vsubq_f32(product, vmulq_f32(q, vdupq_n_f32(65025.0F)));
    float32x4_t up = one_where(vcgtq_f32(left, half));
    float32x4_t down = one_where(vcgtq_f32(vnegq_f32(half), left));
    return vsubq_f32(vaddq_f32(q, up), down);
}

struct hsv_4 {
    float32x4_t h, s, v;
};

static inline struct hsv_4 hsv_of_4(float32x4_t r, float32x4_t g, float32x4_t b) {
    const float32x4_t one = vdupq_n_f32(1.0F);
    const float32x4_t zero = vdupq_n_f32(0.0F);
    float32x4_t max = vmaxq_f32(vmaxq_f32(r, g), b);
    float32x4_t c = vsubq_f32(max, vminq_f32(vminq_f32(r, g), b));
    uint32x4_t is_r = vceqq_f32(r, max);
    uint32x4_t is_g = vceqq_f32(g, max);
    float32x4_t difference = vbslq_f32(is_g, vsubq_f32(b, r), vsubq_f32(r, g));
    difference = vbslq_f32(is_r, vsubq_f32(g, b), difference);
    float32x4_t base = vbslq_f32(is_g, vdupq_n_f32(170.0F), vdupq_n_f32(340.0F));
    base = vbslq_f32(is_r, zero, base);
    float32x4_t n = vaddq_f32(vmulq_f32(base, c), vmulq_f32(difference, vdupq_n_f32(85.0F)));
    float32x4_t circle = vmulq_f32(c, vdupq_n_f32(510.0F));
    n = vaddq_f32(n, vbslq_f32(vcltq_f32(n, zero), circle, zero));
    float32x4_t c255 = vmulq_f32(c, vdupq_n_f32(255.0F));
    return (struct hsv_4){quotient(n, vmaxq_f32(vaddq_f32(c, c), one)),
                          quotient(c255, vmaxq_f32(max, one)), max};
}

/* Writes r, g and b of four pixels after rotating their hue. */
static inline void rgb_of_4(float32x4_t rgb[3], const struct hsv_4 *p) {
    const float32x4_t unit = vdupq_n_f32(65025.0F);
    const float32x4_t all = vdupq_n_f32(255.0F);
    float32x4_t h6 = vmulq_f32(p->h, vdupq_n_f32(6.0F));
    float32x4_t sector = quotient(h6, all);
    float32x4_t f = vsubq_f32(h6, vmulq_f32(sector, all));
    float32x4_t sf = vmulq_f32(p->s, f);
    float32x4_t s255 = vmulq_f32(p->s, all);
    float32x4_t low = share_of(p->v, vsubq_f32(unit, s255));
    float32x4_t falling = share_of(p->v, vsubq_f32(unit, sf));
    float32x4_t rising = share_of(p->v, vsubq_f32(unit, vsubq_f32(s255, sf)));
    uint32x4_t is[6];
    for (int k = 0; k < 6; k++) {
        is[k] = vceqq_f32(sector, vdupq_n_f32((float)k));
    }
    is[0] = vorrq_u32(is[0], vceqq_f32(sector, vdupq_n_f32(6.0F)));
    for (int c = 0; c < 3; c++) { /* green lags red by two sectors, blue by four */
        float32x4_t v = p->v;
        v = vbslq_f32(is[(1 + 2 * c) % 6], falling, v);
        v = vbslq_f32(vorrq_u32(is[(2 + 2 * c) % 6], is[(3 + 2 * c) % 6]), low, v);
        rgb[c] = vbslq_f32(is[(4 + 2 * c) % 6], rising, v);
    }
}

static void neon_hue(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift) {
    const float32x4_t turn = vdupq_n_f32((float)shift);
    const float32x4_t circle = vdupq_n_f32(256.0F);
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        uint8x16x3_t p = vld3q_u8(in + 3 * i);
        struct real_16 channel[3] = {real_of(p.val[0]), real_of(p.val[1]), real_of(p.val[2])};
        for (int k = 0; k < PARTS; k++) {
            struct hsv_4 hsv = hsv_of_4(channel[0].part[k], channel[1].part[k], channel[2].part[k]);
            float32x4_t h = vaddq_f32(hsv.h, turn);
            hsv.h = vbslq_f32(vcgeq_f32(h, circle), vsubq_f32(h, circle), h);
            float32x4_t rgb[3];
            rgb_of_4(rgb, &hsv);
            for (int c = 0; c < 3; c++) {
                channel[c].part[k] = rgb[c];
            }
        }
        for (int c = 0; c < 3; c++) {
            p.val[c] = bytes_of(&channel[c]);
        }
        vst3q_u8(out + 3 * i, p);
    }
    op_loops_plain()->hue(out + 3 * i, in + 3 * i, count - i, shift);
}

/* ---------------------------------------------------------------------------------- sharpening */

/* x * factor / 2^19, rounded down. */
static inline uint16x8_t scaled(uint16x8_t x, uint16_t factor) {
    uint16x4_t low = vshrn_n_u32(vmull_n_u16(vget_low_u16(x), factor), 16);
    uint16x4_t high = vshrn_n_u32(vmull_n_u16(vget_high_u16(x), factor), 16);
    return vshrq_n_u16(vcombine_u16(low, high), 3);
}

/* (34 here - 9 smooth) / 25 towards zero, smooth = (2 sum + 13) / 26; see sharpen_16 in
 * ops_avx2.c for the factors. */
static inline uint8x8_t sharpen_8(uint16x8_t around, uint8x8_t here8) {
    uint16x8_t here = vmovl_u8(here8);
    uint16x8_t sum = vmlaq_n_u16(vaddq_u16(around, vdupq_n_u16(6)), here, 5);
    int16x8_t smooth = vreinterpretq_s16_u16(scaled(sum, 40330));
    int16x8_t v = vmulq_n_s16(vreinterpretq_s16_u16(here), 34);
    v = vmlsq_n_s16(v, smooth, 9);
    int16x8_t q = vreinterpretq_s16_u16(scaled(vreinterpretq_u16_s16(vabsq_s16(v)), 20972));
    q = vbslq_s16(vcltq_s16(v, vdupq_n_s16(0)), vnegq_s16(q), q);
    return vmovn_u16(vreinterpretq_u16_s16(q));
}

static void
neon_sharpness(uint8_t *out, const uint8_t *in, size_t stride_bytes, size_t size_bytes) {
    size_t x = 0;
    for (; x + 16 <= size_bytes; x += 16) {
        const uint8_t *rows[3] = {in + x - stride_bytes, in + x, in + x + stride_bytes};
        uint16x8_t low = vdupq_n_u16(0);
        uint16x8_t high = vdupq_n_u16(0);
        for (int r = 0; r < 3; r++) {
            for (int d = -3; d <= 3; d += 3) {
                if (r != 1 || d != 0) {
                    uint8x16_t v = vld1q_u8(rows[r] + d);
                    low = vaddw_u8(low, vget_low_u8(v));
                    high = vaddw_u8(high, vget_high_u8(v));
                }
            }
        }
        uint8x16_t here = vld1q_u8(in + x);
        vst1q_u8(out + x, vcombine_u8(sharpen_8(low, vget_low_u8(here)),
                                      sharpen_8(high, vget_high_u8(here))));
    }
    op_loops_plain()->sharpness(out + x, in + x, stride_bytes, size_bytes - x);
}

static void neon_between(uint8_t *out,
                         const uint8_t *from,
                         const uint8_t *to,
                         const uint8_t *fractions,
                         size_t size_bytes) {
    size_t x = 0;
    for (; x + 8 <= size_bytes; x += 8) {
        uint8x8_t f = vld1_u8(fractions + x);
        uint16x8_t sum = vmull_u8(vld1_u8(from + x), vsub_u8(vdup_n_u8(32), f));
        vst1_u8(out + x, vrshrn_n_u16(vmlal_u8(sum, vld1_u8(to + x), f), 5));
    }
    op_loops_plain()->between(out + x, from + x, to + x, fractions + x, size_bytes - x);
}

static void neon_warp(uint8_t *out,
                      const uint8_t *in,
                      size_t stride_bytes,
                      int32_t x,
                      int32_t y,
                      const int32_t *dx,
                      const int32_t *dy,
                      size_t count) {
    op_loops_plain()->warp(out, in, stride_bytes, x, y, dx, dy, count);
}

const struct op_loops *op_loops_neon(void) {
    static const struct op_loops neon = {
        .name = "neon",
        .table = neon_table,
        .range = neon_range,
        .gray_sum = neon_gray_sum,
        .gray = neon_gray,
        .saturation = neon_saturation,
        .hue = neon_hue,
        .sharpness = neon_sharpness,
        .between = neon_between,
        .warp = neon_warp,
    };
    return &neon;
}

#else

const struct op_loops *op_loops_neon(void) {
    return NULL;
}

#endif
