/*
 * ops_avx512: the inner loops of the ops that are faster with AVX-512 than with AVX2: tables, since
 * VBMI looks up 64 bytes at once, and those on colours, which separate and join the channels of 16
 * pixels with one permutation each. The others are those of AVX2.
 *
 * Processor time of the loader without them, on 3,600 photographs of 14 KiB: 24 % more with
 * --augment simclr, 3 to 4 % with paper, 2 to 3 % with crop.
 */
#include "augment/ops_avx2_internal.h"

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

#if __has_attribute(uninitialized)
#define UNINITIALIZED __attribute__((uninitialized)) /* not even with -ftrivial-auto-var-init */
#else
#define UNINITIALIZED
#endif

enum { VECTOR_BYTES = 64 };

/* A table of 256 bytes. */
struct table_512 {
    __m512i part[4];
};

AVX512 static inline struct table_512 load_table(const uint8_t *table) {
    struct table_512 t;
    for (int i = 0; i < 4; i++) {
        t.part[i] = _mm512_loadu_si512(table + i * VECTOR_BYTES);
    }
    return t;
}

/* Looks up both halves of the table by seven bits; the eighth bit selects. */
AVX512 static inline __m512i look_up(__m512i v, __mmask64 upper, const struct table_512 *t) {
    __m512i low = _mm512_permutex2var_epi8(t->part[0], v, t->part[1]);
    __m512i high = _mm512_permutex2var_epi8(t->part[2], v, t->part[3]);
    return _mm512_mask_blend_epi8(upper, low, high);
}

AVX512 static void
one_table(uint8_t *out, const uint8_t *in, size_t size_bytes, const struct op_tables *tables) {
    const struct table_512 t = load_table(tables->value[0]);
    size_t x = 0;
    for (; x + VECTOR_BYTES <= size_bytes; x += VECTOR_BYTES) {
        __m512i v = _mm512_loadu_si512(in + x);
        _mm512_storeu_si512(out + x, look_up(v, _mm512_movepi8_mask(v), &t));
    }
    if (x < size_bytes) {
        __mmask64 rest = ~(__mmask64)0 >> (VECTOR_BYTES - (size_bytes - x));
        __m512i v = _mm512_maskz_loadu_epi8(rest, in + x);
        _mm512_mask_storeu_epi8(out + x, rest, look_up(v, _mm512_movepi8_mask(v), &t));
    }
}

/* Which bytes of a vector are red, green and blue depends on its start: 64 bytes are 21 pixels and
 * a third. */
static const uint64_t EVERY_THIRD[3] = {0x9249249249249249u, 0x2492492492492492u,
                                        0x4924924924924924u};

AVX512 static inline __m512i look_up_channels(__m512i v,
                                              size_t phase,
                                              const struct table_512 *r,
                                              const struct table_512 *g,
                                              const struct table_512 *b) {
    __mmask64 upper = _mm512_movepi8_mask(v);
    __m512i result = look_up(v, upper, r);
    result = _mm512_mask_mov_epi8(result, EVERY_THIRD[(4 - phase) % 3], look_up(v, upper, g));
    return _mm512_mask_mov_epi8(result, EVERY_THIRD[(5 - phase) % 3], look_up(v, upper, b));
}

AVX512 static void
three_tables(uint8_t *out, const uint8_t *in, size_t size_bytes, const struct op_tables *tables) {
    const struct table_512 r = load_table(tables->value[0]);
    const struct table_512 g = load_table(tables->value[1]);
    const struct table_512 b = load_table(tables->value[2]);
    size_t x = 0;
    for (; x + 3 * VECTOR_BYTES <= size_bytes; x += 3 * VECTOR_BYTES) {
        for (size_t phase = 0; phase < 3; phase++) {
            __m512i v = _mm512_loadu_si512(in + x + phase * VECTOR_BYTES);
            _mm512_storeu_si512(out + x + phase * VECTOR_BYTES,
                                look_up_channels(v, phase, &r, &g, &b));
        }
    }
    for (size_t phase = 0; x < size_bytes; phase++, x += VECTOR_BYTES) {
        size_t left = size_bytes - x;
        __mmask64 rest = ~(__mmask64)0 >> (left < VECTOR_BYTES ? VECTOR_BYTES - left : 0);
        __m512i v = _mm512_maskz_loadu_epi8(rest, in + x);
        _mm512_mask_storeu_epi8(out + x, rest, look_up_channels(v, phase, &r, &g, &b));
    }
}

static void
avx512_table(uint8_t *out, const uint8_t *in, size_t count, const struct op_tables *tables) {
    if (tables->same) {
        one_table(out, in, count * 3, tables);
    } else {
        three_tables(out, in, count * 3, tables);
    }
}

/* ---------------------------------------------------------------------------- sixteen pixels */

enum { BLOCK_PX = 16 };

static const __mmask64 BLOCK_MASK = 0x0000FFFFFFFFFFFFu;

/* One channel in 32-bit lanes. The unused bytes of a permutation are 0 and masked. */
AVX512 static inline __m512i channel_of_16(__m512i bytes, int channel) {
    const __m512i red =
        _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
    __m512i order = _mm512_add_epi32(red, _mm512_set1_epi32(channel));
    return _mm512_maskz_permutexvar_epi8(0x1111111111111111u, order, bytes);
}

AVX512 static inline __m512i gray_of_16(__m512i r, __m512i g, __m512i b) {
    const __m512i of_red_green = _mm512_set1_epi32(19595 | 19235 << 16);
    const __m512i of_green_blue = _mm512_set1_epi32(19235 | 7471 << 16);
    __m512i red_green = _mm512_or_si512(r, _mm512_slli_epi32(g, 16));
    __m512i green_blue = _mm512_or_si512(g, _mm512_slli_epi32(b, 16));
    __m512i sum = _mm512_add_epi32(_mm512_madd_epi16(red_green, of_red_green),
                                   _mm512_madd_epi16(green_blue, of_green_blue));
    return _mm512_srli_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(0x8000)), 16);
}

/* Stores the low three bytes of each lane: 48 bytes. Not with one masked store: in place, the load
 * of the next block would wait for it, as if it wrote all 64. */
AVX512 static inline void store_16(uint8_t *p, __m512i lanes) {
    const __m512i close_up = _mm512_setr_epi32(
        0x04020100, 0x09080605, 0x0E0D0C0A, 0x14121110, 0x19181615, 0x1E1D1C1A, 0x24222120,
        0x29282625, 0x2E2D2C2A, 0x34323130, 0x39383635, 0x3E3D3C3A, 0, 0, 0, 0);
    __m512i bytes = _mm512_permutexvar_epi8(close_up, lanes);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(bytes));
    _mm_storeu_si128((__m128i *)(void *)(p + 32), _mm512_extracti32x4_epi32(bytes, 2));
}

AVX512 static inline __m512i blend_16(__m512i gray, __m512i value, __m512 factor) {
    __m512 step = _mm512_mul_ps(factor, _mm512_cvtepi32_ps(_mm512_sub_epi32(value, gray)));
    __m512 v = _mm512_add_ps(_mm512_cvtepi32_ps(gray), step);
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_setzero_ps()), _mm512_set1_ps(255.0F));
    return _mm512_cvttps_epi32(v);
}

AVX512 static void avx512_saturation(uint8_t *out, const uint8_t *in, size_t count, float factor) {
    const __m512 f = _mm512_set1_ps(factor);
    size_t i = 0;
    for (; i + BLOCK_PX <= count; i += BLOCK_PX) {
        __m512i bytes = _mm512_maskz_loadu_epi8(BLOCK_MASK, in + 3 * i);
        __m512i r = channel_of_16(bytes, 0);
        __m512i g = channel_of_16(bytes, 1);
        __m512i b = channel_of_16(bytes, 2);
        __m512i gray = gray_of_16(r, g, b);
        __m512i red_green =
            _mm512_or_si512(blend_16(gray, r, f), _mm512_slli_epi32(blend_16(gray, g, f), 8));
        store_16(out + 3 * i,
                 _mm512_or_si512(red_green, _mm512_slli_epi32(blend_16(gray, b, f), 16)));
    }
    op_loops_plain()->saturation(out + 3 * i, in + 3 * i, count - i, factor);
}

/* ----------------------------------------------------------------------------------------- hue */

AVX512 static void avx512_hue(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift) {
    /* Not initialised, and the target of p hidden: gcc would rely on a stack aligned to 64 bytes,
     * which that of the address sanitizer is not. */
    UNINITIALIZED struct hue_block block;
    struct hue_block *p = &block;
    size_t i = 0;
    __asm__("" : "+r"(p));
    for (; i + HUE_BLOCK_PX <= count; i += HUE_BLOCK_PX) {
        for (size_t k = 0; k < HUE_BLOCK_PX; k += BLOCK_PX) {
            __m512i bytes = _mm512_maskz_loadu_epi8(BLOCK_MASK, in + 3 * (i + k));
            _mm512_storeu_si512(p->r + k, channel_of_16(bytes, 0));
            _mm512_storeu_si512(p->g + k, channel_of_16(bytes, 1));
            _mm512_storeu_si512(p->b + k, channel_of_16(bytes, 2));
        }
        hue_of_block(p, shift);
        for (size_t k = 0; k < HUE_BLOCK_PX; k += BLOCK_PX) {
            store_16(out + 3 * (i + k), _mm512_loadu_si512(p->rgb + k));
        }
    }
    op_loops_plain()->hue(out + 3 * i, in + 3 * i, count - i, shift);
}

const struct op_loops *op_loops_avx512(void) {
    static const struct op_loops avx512 = {
        .name = "avx512",
        .table = avx512_table,
        .range = op_avx2_range,
        .gray_sum = op_avx2_gray_sum,
        .gray = op_avx2_gray,
        .saturation = avx512_saturation,
        .hue = avx512_hue,
        .sharpness = op_avx2_sharpness,
        .between = op_avx2_between,
        .warp = op_avx2_warp,
    };
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
    return has ? &avx512 : NULL;
}

#else

const struct op_loops *op_loops_avx512(void) {
    return NULL;
}

#endif
