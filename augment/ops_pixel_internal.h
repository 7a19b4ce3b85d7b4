/*
 * ops_pixel_internal: the arithmetic of one pixel, shared by the plain loops and by the remainders
 * of rows in the vector loops.
 */
#ifndef AUGMENT_OPS_PIXEL_INTERNAL_H
#define AUGMENT_OPS_PIXEL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Coordinates in a warp: ten bits of fraction, of which five are used. */
enum {
    OP_WARP_ONE = 1024,
    OP_WARP_BITS = 5,
    OP_WARP_DROP_BITS = 5,
    OP_WARP_FRACTION = 31,
    OP_WARP_ROUND = 16
};

static inline uint8_t pixel_gray(const uint8_t *p) {
    return (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
}

/* from + factor (to - from), each step rounded to single precision, clamped and rounded down.
 * Product and sum are two statements, so that no compiler contracts them to one rounding. */
static inline uint8_t pixel_blend(int32_t from, int32_t to, float factor) {
    float step = factor * (float)(to - from);
    float v = (float)from + step;
    return v <= 0.0F ? 0 : v >= 255.0F ? 255 : (uint8_t)v;
}

/* Interpolates four neighbours; fractions are in thirty-seconds. */
static inline uint8_t pixel_bilinear(int32_t top_left,
                                     int32_t top_right,
                                     int32_t bottom_left,
                                     int32_t bottom_right,
                                     int32_t fx,
                                     int32_t fy) {
    int32_t top = top_left * (32 - fx) + top_right * fx;
    int32_t bottom = bottom_left * (32 - fx) + bottom_right * fx;
    return (uint8_t)((top * (32 - fy) + bottom * fy + 512) >> 10);
}

/* Interpolates two neighbours. */
static inline uint8_t pixel_between(int32_t from, int32_t to, int32_t fraction) {
    return (uint8_t)((from * (32 - fraction) + to * fraction + 16) >> 5);
}

/* Through 8-bit HSV and back. With c = max - min, the hue is 42.5 (k + difference / c) with k of
 * 0, 2, 4 by the largest channel: a quotient of integers, rounded down. On the way back, with
 * 6 hue = 255 sector + f, the three values are max, and
 *     p = max (1 - s / 255), q = max (1 - s f / 255^2), t = max (1 - s (255 - f) / 255^2),
 * rounded to nearest; 255 is odd, so that no half occurs. */
static inline void pixel_hue(uint8_t *out, const uint8_t *in, uint8_t shift) {
    int32_t r = in[0];
    int32_t g = in[1];
    int32_t b = in[2];
    int32_t max = r > g ? r : g;
    max = max > b ? max : b;
    int32_t min = r < g ? r : g;
    min = min < b ? min : b;
    int32_t c = max - min;
    if (c == 0) {
        out[0] = out[1] = out[2] = (uint8_t)max;
        return;
    }
    int32_t n = r == max   ? 85 * (g - b)
                : g == max ? 170 * c + 85 * (b - r)
                           : 340 * c + 85 * (r - g);
    n = n < 0 ? n + 510 * c : n;
    int32_t hue = (n / (2 * c) + shift) & 255;
    int32_t s = 255 * c / max;
    int32_t sector = 6 * hue / 255;
    int32_t f = 6 * hue - 255 * sector;
    uint8_t v = (uint8_t)max;
    uint8_t p = (uint8_t)((2 * max * (255 - s) + 255) / 510);
    uint8_t q = (uint8_t)((2 * max * (65025 - s * f) + 65025) / 130050);
    uint8_t t = (uint8_t)((2 * max * (65025 - s * (255 - f)) + 65025) / 130050);
    const uint8_t by_sector[7][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v},
                                     {t, p, v}, {v, p, q}, {v, t, p}};
    for (int i = 0; i < 3; i++) {
        out[i] = by_sector[sector][i];
    }
}

/* pixel_hue of many pixels, written so that compilers make vector code of it: without branches,
 * and with divisions in single precision, which represents all values here exactly. */
enum { HUE_BLOCK_PX = 32 };

struct hue_block {
    int32_t r[HUE_BLOCK_PX], g[HUE_BLOCK_PX], b[HUE_BLOCK_PX]; /* in */
    uint32_t rgb[HUE_BLOCK_PX];                                /* out: r + 256 g + 65536 b */
};

static inline int32_t hue_pick(bool first, int32_t a, int32_t b) {
    return b ^ ((a ^ b) & -(int32_t)first);
}

/* The nearest integer to max * n / 65025, 0 <= n <= 65025: an estimate, corrected by its
 * remainder. */
static inline int32_t hue_share(float max, float n) {
    float product = max * n;
    int32_t q = (int32_t)(product * (1.0F / 65025.0F) + 0.5F);
    float left = product - (float)q * 65025.0F;
    return q + (left > 32512.5F) - (left < -32512.5F);
}

/* Quotients of integers below 2^24 are rounded down: adding a half to the numerator keeps them
 * farther from an integer than the error of single precision. Gray pixels have c = 0, and black
 * ones max = 0: any divisor will do, since c decides. */
__attribute__((always_inline)) static inline void hue_of_block(struct hue_block *p, uint8_t shift) {
    for (int i = 0; i < HUE_BLOCK_PX; i++) {
        int32_t r = p->r[i], g = p->g[i], b = p->b[i];
        int32_t max = r > g ? r : g;
        max = max > b ? max : b;
        int32_t min = r < g ? r : g;
        min = min < b ? min : b;
        int32_t c = max - min;
        int32_t n = hue_pick(r == max, g - b, hue_pick(g == max, 2 * c + b - r, 4 * c + r - g));
        n += 6 * c & (n >> 31);
        float v = (float)max, vc = (float)c;
        int32_t hue = ((int32_t)((85.0F * (float)n + 0.5F) / (vc + vc + (c == 0))) + shift) & 255;
        int32_t s = (int32_t)((255.0F * vc + 0.5F) / (v + (max == 0)));
        int32_t sector = (int32_t)(((float)(6 * hue) + 0.5F) * (1.0F / 255.0F));
        float fs = (float)(6 * hue - 255 * sector) * (float)s;
        int32_t down = (max * (255 - s) + 128) * 257 >> 16; /* p, q, t of pixel_hue */
        int32_t q = hue_share(v, 65025.0F - fs);
        int32_t t = hue_share(v, 65025.0F - ((float)(255 * s) - fs));
        /* Each channel is byte v, t, p or q of a lane, chosen by 4 bits for each sector. */
        uint32_t lane = (uint32_t)max | (uint32_t)t << 8 | (uint32_t)down << 16 | (uint32_t)q << 24;
        uint32_t at = 4 * (uint32_t)sector;
        p->rgb[i] = (lane >> (0x91180U >> at & 24) & 255) |
                    (lane >> (0x9118008U >> at & 24) & 255) << 8 |
                    (lane >> (0x11800910U >> at & 24) & 255) << 16;
    }
}

#endif
