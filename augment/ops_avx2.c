/*
 * ops_avx2: the inner loops of the ops with AVX2, eight pixels at a time: the integers of the plain
 * loops, or the same single-precision operations in the same order. The remainder of a run uses the
 * plain arithmetic.
 *
 * If an op needs all channels of a pixel together, its three bytes are spread to a 32-bit lane:
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

/* ------------------------------------------------------------------------ smallest and largest */

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

AVX2 static void avx2_hue(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift) {
    struct hue_block p;
    size_t i = 0;
    for (; i + HUE_BLOCK_PX <= count; i += HUE_BLOCK_PX) {
        for (size_t k = 0; k < HUE_BLOCK_PX; k += 8) {
            __m256i bytes = load_24(in + 3 * (i + k));
            store_32(p.r + k, channel_of_8(bytes, 0));
            store_32(p.g + k, channel_of_8(bytes, 1));
            store_32(p.b + k, channel_of_8(bytes, 2));
        }
        hue_of_block(&p, shift);
        for (size_t k = 0; k < HUE_BLOCK_PX; k += 8) {
            store_24(out + 3 * (i + k), load_32(p.rgb + k));
        }
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
