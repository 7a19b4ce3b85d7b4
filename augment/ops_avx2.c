/*
 * ops_avx2: the inner loops of the ops with AVX2, eight pixels at a time: the integers of the plain
 * loops, or the same single-precision operations in the same order. The remainder of a run uses the
 * plain arithmetic.
 *
 * Where an op needs all channels of a pixel together, its three bytes are spread to a 32-bit lane:
 *
 *     24 bytes  rgbrgbrgb...   ->   rgb0 rgb0 rgb0 rgb0 | rgb0 rgb0 rgb0 rgb0
 *
 * A 128-bit lane holds twelve of the bytes, loaded so that nothing beyond them is read.
 */
#include "augment/ops_avx2_internal.h"

#if defined(__x86_64__)

#include <string.h>

/* -------------------------------------------------------------------------------------- tables */

static void
avx2_table(uint8_t *out, const uint8_t *in, size_t count, const struct op_tables *tables) {
    op_loops_plain()->table(out, in, count, tables);
}

/* --------------------------------------------------------------------------- least and largest */

AVX2 void op_avx2_range(uint8_t low[3], uint8_t high[3], const uint8_t *in, size_t count) {
    enum { BLOCK_PX = 32, VECTORS = 3, BYTES = 96 };
    size_t i = 0;
    if (count >= BLOCK_PX) {
        __m256i least[VECTORS];
        __m256i most[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            least[v] = _mm256_set1_epi8(-1);
            most[v] = _mm256_setzero_si256();
        }
        for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
            for (int v = 0; v < VECTORS; v++) {
                __m256i p = load_32(in + 3 * i + 32 * v);
                least[v] = _mm256_min_epu8(least[v], p);
                most[v] = _mm256_max_epu8(most[v], p);
            }
        }
        uint8_t bytes[2][BYTES];
        for (int v = 0; v < VECTORS; v++) {
            store_32(bytes[0] + 32 * v, least[v]);
            store_32(bytes[1] + 32 * v, most[v]);
        }
        for (int k = 0; k < BYTES; k++) {
            low[k % 3] = bytes[0][k] < low[k % 3] ? bytes[0][k] : low[k % 3];
            high[k % 3] = bytes[1][k] > high[k % 3] ? bytes[1][k] : high[k % 3];
        }
    }
    op_loops_plain()->range(low, high, in + 3 * i, count - i);
}

/* ---------------------------------------------------------------------------------------- gray */

AVX2 uint64_t op_avx2_gray_sum(const uint8_t *in, size_t count) {
    __m256i sum = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        sum = _mm256_add_epi32(sum, gray_of_8(load_24(in + 3 * i)));
    }
    uint32_t lanes[8];
    store_32(lanes, sum);
    uint64_t total = op_loops_plain()->gray_sum(in + 3 * i, count - i);
    for (int k = 0; k < 8; k++) {
        total += lanes[k];
    }
    return total;
}

AVX2 void op_avx2_gray(uint8_t *out, const uint8_t *in, size_t count) {
    const __m256i three_times =
        _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4, 4,
                         8, 8, 8, 8, 12, 12, 12, 12);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i gray = gray_of_8(load_24(in + 3 * i));
        store_24(out + 3 * i, _mm256_shuffle_epi8(gray, three_times));
    }
    op_loops_plain()->gray(out + 3 * i, in + 3 * i, count - i);
}

/* ---------------------------------------------------------------------------------- saturation */

AVX2 static inline __m256i blend_8(__m256i gray, __m256i value, __m256 factor) {
    __m256 step = _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_sub_epi32(value, gray)));
    __m256 v = _mm256_add_ps(_mm256_cvtepi32_ps(gray), step);
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255.0F));
    return _mm256_cvttps_epi32(v);
}

AVX2 static void avx2_saturation(uint8_t *out, const uint8_t *in, size_t count, float factor) {
    const __m256 f = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i bytes = load_24(in + 3 * i);
        __m256i gray = gray_of_8(bytes);
        __m256i r = blend_8(gray, channel_of_8(bytes, 0), f);
        __m256i g = blend_8(gray, channel_of_8(bytes, 1), f);
        __m256i b = blend_8(gray, channel_of_8(bytes, 2), f);
        store_24(out + 3 * i, join_8(r, g, b));
    }
    op_loops_plain()->saturation(out + 3 * i, in + 3 * i, count - i, factor);
}

/* ----------------------------------------------------------------------------------------- hue */

/* All values are integers below 2^24, which single precision represents exactly; its
 * multiplications cost half as much as those of 32-bit integers. */

/* n / d rounded down, for integers 0 <= n < 2^22 and 0 < d < 2^10 with n / d < 2^8: adding a half
 * to n keeps the quotient farther from an integer than the error of single precision. */
AVX2 static inline __m256 quotient(__m256 n, __m256 d) {
    return _mm256_floor_ps(_mm256_div_ps(_mm256_add_ps(n, _mm256_set1_ps(0.5F)), d));
}

/* The nearest integer to max * n / 65025, 0 <= n <= 65025: an estimate, corrected by its
 * remainder. */
AVX2 static inline __m256 share_of(__m256 max, __m256 n) {
    const __m256 unit = _mm256_set1_ps(65025.0F);
    const __m256 one = _mm256_set1_ps(1.0F);
    const __m256 half = _mm256_set1_ps(32512.5F);
    __m256 product = _mm256_mul_ps(max, n);
    __m256 q = _mm256_round_ps(_mm256_mul_ps(product, _mm256_set1_ps(1.0F / 65025.0F)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 left = _mm256_sub_ps(product, _mm256_mul_ps(q, unit));
    __m256 up = _mm256_and_ps(_mm256_cmp_ps(left, half, _CMP_GT_OQ), one);
    __m256 down = _mm256_and_ps(
        _mm256_cmp_ps(_mm256_sub_ps(_mm256_setzero_ps(), half), left, _CMP_GT_OQ), one);
    return _mm256_sub_ps(_mm256_add_ps(q, up), down);
}

struct hsv_8 {
    __m256 h, s, v;
};

AVX2 static inline struct hsv_8 hsv_of_8(__m256 r, __m256 g, __m256 b) {
    const __m256 one = _mm256_set1_ps(1.0F);
    const __m256 zero = _mm256_setzero_ps();
    __m256 max = _mm256_max_ps(_mm256_max_ps(r, g), b);
    __m256 c = _mm256_sub_ps(max, _mm256_min_ps(_mm256_min_ps(r, g), b));
    __m256 is_r = _mm256_cmp_ps(r, max, _CMP_EQ_OQ);
    __m256 is_g = _mm256_cmp_ps(g, max, _CMP_EQ_OQ);
    __m256 difference = _mm256_blendv_ps(_mm256_sub_ps(r, g), _mm256_sub_ps(b, r), is_g);
    difference = _mm256_blendv_ps(difference, _mm256_sub_ps(g, b), is_r);
    __m256 base = _mm256_blendv_ps(_mm256_set1_ps(340.0F), _mm256_set1_ps(170.0F), is_g);
    base = _mm256_andnot_ps(is_r, base);
    __m256 n =
        _mm256_add_ps(_mm256_mul_ps(base, c), _mm256_mul_ps(difference, _mm256_set1_ps(85.0F)));
    __m256 circle = _mm256_mul_ps(c, _mm256_set1_ps(510.0F));
    n = _mm256_add_ps(n, _mm256_and_ps(_mm256_cmp_ps(n, zero, _CMP_LT_OQ), circle));
    /* Gray pixels have c = 0, and black ones max = 0: any divisor will do, since c decides. */
    __m256 c2 = _mm256_max_ps(_mm256_add_ps(c, c), one);
    __m256 c255 = _mm256_mul_ps(c, _mm256_set1_ps(255.0F));
    return (struct hsv_8){quotient(n, c2), quotient(c255, _mm256_max_ps(max, one)), max};
}

/* The three channels as one 32-bit lane per pixel. */
AVX2 static inline __m256i rgb_of_8(struct hsv_8 p) {
    const __m256 unit = _mm256_set1_ps(65025.0F);
    const __m256 all = _mm256_set1_ps(255.0F);
    __m256 h6 = _mm256_mul_ps(p.h, _mm256_set1_ps(6.0F));
    __m256 sector = quotient(h6, all);
    __m256 f = _mm256_sub_ps(h6, _mm256_mul_ps(sector, all));
    __m256 sf = _mm256_mul_ps(p.s, f);
    __m256 s255 = _mm256_mul_ps(p.s, all);
    __m256 pv = share_of(p.v, _mm256_sub_ps(unit, s255));
    __m256 qv = share_of(p.v, _mm256_sub_ps(unit, sf));
    __m256 tv = share_of(p.v, _mm256_sub_ps(unit, _mm256_sub_ps(s255, sf)));
    /* Bytes v, t, p, q of a lane, selected by sector: tables of three indices. */
    __m256 vt = _mm256_add_ps(p.v, _mm256_mul_ps(tv, _mm256_set1_ps(256.0F)));
    __m256 pq = _mm256_add_ps(pv, _mm256_mul_ps(qv, _mm256_set1_ps(256.0F)));
    __m256i lane =
        _mm256_or_si256(_mm256_cvttps_epi32(vt), _mm256_slli_epi32(_mm256_cvttps_epi32(pq), 16));
    const __m256i choice =
        _mm256_setr_epi32(0x020100, 0x020003, 0x010002, 0x000302, 0x000201, 0x030200, 0x020100, 0);
    const __m256i lane_start = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0,
                                                 0x04040404, 0x08080808, 0x0C0C0C0C);
    __m256i which = _mm256_permutevar8x32_epi32(choice, _mm256_cvttps_epi32(sector));
    return _mm256_shuffle_epi8(lane, _mm256_add_epi8(which, lane_start));
}

AVX2 static void avx2_hue(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift) {
    const __m256 turn = _mm256_set1_ps(shift);
    const __m256 circle = _mm256_set1_ps(256.0F);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i bytes = load_24(in + 3 * i);
        struct hsv_8 p = hsv_of_8(_mm256_cvtepi32_ps(channel_of_8(bytes, 0)),
                                  _mm256_cvtepi32_ps(channel_of_8(bytes, 1)),
                                  _mm256_cvtepi32_ps(channel_of_8(bytes, 2)));
        p.h = _mm256_add_ps(p.h, turn);
        p.h = _mm256_sub_ps(p.h, _mm256_and_ps(_mm256_cmp_ps(p.h, circle, _CMP_GE_OQ), circle));
        store_24(out + 3 * i, rgb_of_8(p));
    }
    op_loops_plain()->hue(out + 3 * i, in + 3 * i, count - i, shift);
}

/* ---------------------------------------------------------------------------------- sharpening */

/* Sixteen values: (34 here - 9 smooth) / 25 towards zero, smooth = (2 sum + 13) / 26. Divisions are
 * multiplications: 40330 / 2^19 is 1/13 and 20972 / 2^19 is 1/25 closely enough for these ranges.
 */
AVX2 static inline __m256i sharpen_16(__m256i around, __m256i here) {
    __m256i sum = _mm256_add_epi16(around, _mm256_mullo_epi16(here, _mm256_set1_epi16(5)));
    sum = _mm256_add_epi16(sum, _mm256_set1_epi16(6));
    __m256i smooth =
        _mm256_srli_epi16(_mm256_mulhi_epu16(sum, _mm256_set1_epi16((int16_t)40330)), 3);
    __m256i v = _mm256_sub_epi16(_mm256_mullo_epi16(here, _mm256_set1_epi16(34)),
                                 _mm256_mullo_epi16(smooth, _mm256_set1_epi16(9)));
    __m256i q =
        _mm256_srli_epi16(_mm256_mulhi_epu16(_mm256_abs_epi16(v), _mm256_set1_epi16(20972)), 3);
    return _mm256_and_si256(_mm256_sign_epi16(q, v), _mm256_set1_epi16(255));
}

AVX2 static inline __m256i sharpen_32(const uint8_t *in, size_t stride_bytes) {
    const __m256i zero = _mm256_setzero_si256();
    const uint8_t *rows[3] = {in - stride_bytes, in, in + stride_bytes};
    __m256i low = zero;
    __m256i high = zero;
    for (int r = 0; r < 3; r++) {
        for (int x = -3; x <= 3; x += 3) {
            if (r != 1 || x != 0) {
                __m256i v = load_32(rows[r] + x);
                low = _mm256_add_epi16(low, _mm256_unpacklo_epi8(v, zero));
                high = _mm256_add_epi16(high, _mm256_unpackhi_epi8(v, zero));
            }
        }
    }
    __m256i here = load_32(in);
    return _mm256_packus_epi16(sharpen_16(low, _mm256_unpacklo_epi8(here, zero)),
                               sharpen_16(high, _mm256_unpackhi_epi8(here, zero)));
}

AVX2 void
op_avx2_sharpness(uint8_t *out, const uint8_t *in, size_t stride_bytes, size_t size_bytes) {
    size_t x = 0;
    for (; x + 32 <= size_bytes; x += 32) {
        store_32(out + x, sharpen_32(in + x, stride_bytes));
    }
    op_loops_plain()->sharpness(out + x, in + x, stride_bytes, size_bytes - x);
}

/* --------------------------------------------------------------------------------------- warps */

AVX2 void op_avx2_between(uint8_t *out,
                          const uint8_t *from,
                          const uint8_t *to,
                          const uint8_t *fractions,
                          size_t size_bytes) {
    const __m256i half = _mm256_set1_epi16(16);
    size_t x = 0;
    for (; x + 32 <= size_bytes; x += 32) {
        __m256i a = load_32(from + x);
        __m256i b = load_32(to + x);
        __m256i f = load_32(fractions + x);
        __m256i g = _mm256_sub_epi8(_mm256_set1_epi8(32), f);
        __m256i low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(g, f));
        __m256i high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(g, f));
        low = _mm256_srli_epi16(_mm256_add_epi16(low, half), 5);
        high = _mm256_srli_epi16(_mm256_add_epi16(high, half), 5);
        store_32(out + x, _mm256_packus_epi16(low, high));
    }
    op_loops_plain()->between(out + x, from + x, to + x, fractions + x, size_bytes - x);
}

/* Eight bytes in all lanes: only a load, unlike an insertion, which competes with the shuffles. */
AVX2 static inline __m256i eight_everywhere(const uint8_t *p) {
    int64_t v;
    memcpy(&v, p, sizeof(v));
    return _mm256_set1_epi64x(v);
}

/* Pixels k and k + 4 of a block, one per half: sums of 32-bit r, g, b. A half first holds the two
 * neighbours above and the two below. */
AVX2 static inline __m256i two_samples(const uint8_t *in,
                                       size_t stride_bytes,
                                       const int32_t *offsets,
                                       __m256i across,
                                       __m256i down,
                                       int k) {
    const __m256i by_channel =
        _mm256_setr_epi8(0, 3, 8, 11, 1, 4, 9, 12, 2, 5, 10, 13, -1, -1, -1, -1, 0, 3, 8, 11, 1, 4,
                         9, 12, 2, 5, 10, 13, -1, -1, -1, -1);
    const __m256i kth = _mm256_set1_epi32(0x03020100 + k * 0x04040404);
    const uint8_t *p = in + offsets[k];
    const uint8_t *q = in + offsets[k + 4];
    __m256i top = _mm256_blend_epi32(eight_everywhere(p), eight_everywhere(q), 0xF0);
    __m256i bottom = _mm256_blend_epi32(eight_everywhere(p + stride_bytes),
                                        eight_everywhere(q + stride_bytes), 0xF0);
    __m256i pixels = _mm256_blend_epi32(top, bottom, 0xCC);
    __m256i rows = _mm256_maddubs_epi16(_mm256_shuffle_epi8(pixels, by_channel),
                                        _mm256_shuffle_epi8(across, kth));
    __m256i sum = _mm256_madd_epi16(rows, _mm256_shuffle_epi8(down, kth));
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(512)), 10);
}

AVX2 void op_avx2_warp(uint8_t *out,
                       const uint8_t *in,
                       size_t stride_bytes,
                       int32_t x,
                       int32_t y,
                       const int32_t *dx,
                       const int32_t *dy,
                       size_t count) {
    enum { MAX_STRIDE_BYTES = 1 << 18 }; /* times 4096 rows: an offset fits 31 bits */
    const __m256i fraction = _mm256_set1_epi32(OP_WARP_FRACTION);
    const __m256i one = _mm256_set1_epi32(32);
    size_t i = 0;
    for (; stride_bytes < MAX_STRIDE_BYTES && i + 8 <= count; i += 8) {
        __m256i at_x = _mm256_srai_epi32(_mm256_add_epi32(_mm256_set1_epi32(x), load_32(dx + i)),
                                         OP_WARP_DROP_BITS);
        __m256i at_y = _mm256_srai_epi32(_mm256_add_epi32(_mm256_set1_epi32(y), load_32(dy + i)),
                                         OP_WARP_DROP_BITS);
        __m256i fx = _mm256_and_si256(at_x, fraction);
        __m256i fy = _mm256_and_si256(at_y, fraction);
        __m256i across = _mm256_or_si256(_mm256_sub_epi32(one, fx), _mm256_slli_epi32(fx, 8));
        across = _mm256_or_si256(across, _mm256_slli_epi32(across, 16));
        __m256i down = _mm256_or_si256(_mm256_sub_epi32(one, fy), _mm256_slli_epi32(fy, 16));
        __m256i column = _mm256_srai_epi32(at_x, OP_WARP_BITS);
        __m256i row = _mm256_srai_epi32(at_y, OP_WARP_BITS);
        __m256i start = _mm256_mullo_epi32(row, _mm256_set1_epi32((int32_t)stride_bytes));
        start = _mm256_add_epi32(start, _mm256_add_epi32(column, _mm256_slli_epi32(column, 1)));
        int32_t offsets[8];
        store_32(offsets, start);
        __m256i p04 = two_samples(in, stride_bytes, offsets, across, down, 0);
        __m256i p15 = two_samples(in, stride_bytes, offsets, across, down, 1);
        __m256i p26 = two_samples(in, stride_bytes, offsets, across, down, 2);
        __m256i p37 = two_samples(in, stride_bytes, offsets, across, down, 3);
        store_24(out + 3 * i,
                 _mm256_packus_epi16(_mm256_packs_epi32(p04, p15), _mm256_packs_epi32(p26, p37)));
    }
    op_loops_plain()->warp(out + 3 * i, in, stride_bytes, x, y, dx + i, dy + i, count - i);
}

const struct op_loops *op_loops_avx2(void) {
    static const struct op_loops avx2 = {
        .name = "avx2",
        .table = avx2_table,
        .range = op_avx2_range,
        .gray_sum = op_avx2_gray_sum,
        .gray = op_avx2_gray,
        .saturation = avx2_saturation,
        .hue = avx2_hue,
        .sharpness = op_avx2_sharpness,
        .between = op_avx2_between,
        .warp = op_avx2_warp,
    };
    return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const struct op_loops *op_loops_avx2(void) {
    return NULL;
}

#endif
