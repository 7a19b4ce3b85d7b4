/*
 * The inner loops of the ops in AVX-512, where they are faster than in AVX2: tables, since VBMI
 * looks 64 bytes up at once. The others are those of AVX2.
 */
#include "augment/ops_avx2_internal.h"

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

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

/* The two halves of the table are looked up by seven bits, and the eighth chooses. */
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

/* Which bytes of a vector are red, green and blue depends on where it begins: 64 bytes are 21
 * pixels and a third. */
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

const struct op_loops *op_loops_avx512(void) {
    static const struct op_loops avx512 = {
        .name = "avx512",
        .table = avx512_table,
        .range = op_avx2_range,
        .gray_sum = op_avx2_gray_sum,
        .gray = op_avx2_gray,
        .saturation = op_avx2_saturation,
        .hue = op_avx2_hue,
        .sharpness = op_avx2_sharpness,
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
