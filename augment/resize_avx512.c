/*
 * The loops of resize for CPUs with AVX-512 and its VNNI: those of AVX2 (see resize_avx2.c for how
 * taps lie in registers), with products and sums in one instruction. Along rows, 256-bit registers
 * are no slower than wide ones, which have a port less for their shuffles; across rows a register
 * holds 64 bytes.
 */
#include "augment/resize_avx2_internal.h"

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

enum { VECTOR_BYTES = 64 };

/* The sums of one output pixel in four rows, as 16-bit numbers: row 0, row 2 | row 1, row 3. */
AVX512 static inline __m256i four_rows(const uint8_t *const *in,
                                       size_t at,
                                       const int16_t *w,
                                       int32_t taps,
                                       __m256i half,
                                       __m128i bits) {
    __m256i sum01 = half;
    __m256i sum23 = half;
    for (int32_t j = 0; j < taps; j += RESIZE_TAP_GROUP) {
        __m256i w01 = pair_everywhere(w + j);
        __m256i w23 = pair_everywhere(w + j + 2);
        __m256i a = load_two_rows(in[0] + at, in[1] + at);
        __m256i b = load_two_rows(in[2] + at, in[3] + at);
        sum01 = _mm256_dpwssd_epi32(sum01, first_pairs(a), w01);
        sum23 = _mm256_dpwssd_epi32(sum23, first_pairs(b), w01);
        sum01 = _mm256_dpwssd_epi32(sum01, second_pairs(a), w23);
        sum23 = _mm256_dpwssd_epi32(sum23, second_pairs(b), w23);
        at += GROUP_BYTES;
    }
    return _mm256_packs_epi32(_mm256_sra_epi32(sum01, bits), _mm256_sra_epi32(sum23, bits));
}

AVX512 static void
avx512_rows(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis) {
    const __m256i half = _mm256_set1_epi32((1 << axis->bits) >> 1);
    const __m128i bits = _mm_cvtsi32_si128(axis->bits);
    /* Copies, which the stores below cannot change. */
    uint8_t *const to[] = {out[0], out[1], out[2], out[3]};
    const uint8_t *const from[] = {in[0], in[1], in[2], in[3]};
    const int32_t *starts = axis->starts;
    const int16_t *w = axis->weights;
    const int32_t taps = axis->taps;
    const int32_t count = axis->count;
    for (int32_t i = 0; i < count; i += 2) {
        __m256i pixel = four_rows(from, (size_t)starts[i] * 3, w, taps, half, bits);
        __m256i next = pixel;
        w += taps;
        if (i + 1 < count) {
            next = four_rows(from, (size_t)starts[i + 1] * 3, w, taps, half, bits);
            w += taps;
        }
        store_two(to, (size_t)i * 3, pixel, next);
    }
}

/* Up to 64 output bytes, those of `mask`. Rows come in pairs; a pair's second weight is zero where
 * its row is missing. */
AVX512 static inline __m512i column_64(const uint8_t *in,
                                       __mmask64 mask,
                                       size_t stride_bytes,
                                       int32_t rows,
                                       const int16_t *weights,
                                       int32_t bits_count) {
    const __m512i zero = _mm512_setzero_si512();
    const __m128i bits = _mm_cvtsi32_si128(bits_count);
    __m512i sum0 = _mm512_set1_epi32((1 << bits_count) >> 1);
    __m512i sum1 = sum0;
    __m512i sum2 = sum0;
    __m512i sum3 = sum0;
    for (int32_t j = 0; j < rows; j += 2) {
        const uint8_t *second = j + 1 < rows ? in + stride_bytes : in;
        __m512i w = _mm512_broadcastd_epi32(_mm_loadu_si32(weights + j));
        __m512i a = _mm512_maskz_loadu_epi8(mask, in);
        __m512i b = _mm512_maskz_loadu_epi8(mask, second);
        __m512i low = _mm512_unpacklo_epi8(a, b);
        __m512i high = _mm512_unpackhi_epi8(a, b);
        sum0 = _mm512_dpwssd_epi32(sum0, _mm512_unpacklo_epi8(low, zero), w);
        sum1 = _mm512_dpwssd_epi32(sum1, _mm512_unpackhi_epi8(low, zero), w);
        sum2 = _mm512_dpwssd_epi32(sum2, _mm512_unpacklo_epi8(high, zero), w);
        sum3 = _mm512_dpwssd_epi32(sum3, _mm512_unpackhi_epi8(high, zero), w);
        in += 2 * stride_bytes;
    }
    /* The unpacks and the packs both work within lanes, so the order comes out right. */
    __m512i low = _mm512_packs_epi32(_mm512_sra_epi32(sum0, bits), _mm512_sra_epi32(sum1, bits));
    __m512i high = _mm512_packs_epi32(_mm512_sra_epi32(sum2, bits), _mm512_sra_epi32(sum3, bits));
    return _mm512_packus_epi16(low, high);
}

AVX512 static void avx512_column(uint8_t *out,
                                 const uint8_t *in,
                                 size_t stride_bytes,
                                 int32_t row_count,
                                 size_t size_bytes,
                                 const int16_t *weights,
                                 const struct resize_axis *axis) {
    int32_t rows = axis->used < row_count ? axis->used : row_count;
    for (size_t x = 0; x < size_bytes; x += VECTOR_BYTES) {
        size_t left = size_bytes - x;
        __mmask64 mask = ~(__mmask64)0 >> (left < VECTOR_BYTES ? VECTOR_BYTES - left : 0);
        _mm512_mask_storeu_epi8(out + x, mask,
                                column_64(in + x, mask, stride_bytes, rows, weights, axis->bits));
    }
}

const struct resize_kernels *resize_kernels_avx512(void) {
    static const struct resize_kernels avx512 = {
        .name = "avx512",
        .rows = avx512_rows,
        .column = avx512_column,
        .reads_windows = true, /* 16 bytes are loaded where 12 are used */
    };
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return has ? &avx512 : NULL;
}

#else

const struct resize_kernels *resize_kernels_avx512(void) {
    return NULL;
}

#endif
