/*
 * The loops of resize in AVX2: the integers of the plain loops, sixteen products at a time.
 *
 * Along a row, four taps of one output pixel are one group. Its twelve bytes are loaded into both
 * 128-bit lanes, spread to 16 bits so that a multiply-add works on pairs of taps, and met by the
 * four weights in the same order:
 *
 *     pixels   r0 r1 g0 g1 b0 b1 0 0 | r2 r3 g2 g3 b2 b3 0 0
 *     weights  w0 w1 w0 w1 w0 w1 .. . | w2 w3 w2 w3 w2 w3 .. .
 *
 * The two lanes are added at the end. Four rows share the weights and the final packing.
 */
#include "augment/resize_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

enum { ROW_VECTOR_BYTES = 32, GROUP_BYTES = 3 * RESIZE_TAP_GROUP };

AVX2 static inline __m256i
add_group(__m256i sum, const uint8_t *from, __m256i weights, __m256i pixel_mask) {
    __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)from));
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, pixel_mask), weights));
}

AVX2 static inline __m128i fold(__m256i sum, __m128i half, __m128i bits) {
    __m128i low = _mm256_castsi256_si128(sum);
    __m128i high = _mm256_extracti128_si256(sum, 1);
    return _mm_sra_epi32(_mm_add_epi32(_mm_add_epi32(low, high), half), bits);
}

AVX2 static void
avx2_rows(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis) {
    const __m256i pixel_mask =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                         -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i weight_mask =
        _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7, 4, 5, 6, 7,
                         4, 5, 6, 7, -1, -1, -1, -1);
    const __m128i half = _mm_set1_epi32((1 << axis->bits) >> 1);
    const __m128i bits = _mm_cvtsi32_si128(axis->bits);
    const uint8_t *in0 = in[0];
    const uint8_t *in1 = in[1];
    const uint8_t *in2 = in[2];
    const uint8_t *in3 = in[3];
    const int16_t *w = axis->weights;
    for (int32_t i = 0; i < axis->count; i++) {
        size_t at = (size_t)axis->starts[i] * 3;
        __m256i sum0 = _mm256_setzero_si256();
        __m256i sum1 = sum0;
        __m256i sum2 = sum0;
        __m256i sum3 = sum0;
        for (int32_t j = 0; j < axis->taps; j += RESIZE_TAP_GROUP) {
            int64_t four;
            memcpy(&four, w, sizeof(four));
            __m256i weights = _mm256_shuffle_epi8(_mm256_set1_epi64x(four), weight_mask);
            sum0 = add_group(sum0, in0 + at, weights, pixel_mask);
            sum1 = add_group(sum1, in1 + at, weights, pixel_mask);
            sum2 = add_group(sum2, in2 + at, weights, pixel_mask);
            sum3 = add_group(sum3, in3 + at, weights, pixel_mask);
            w += RESIZE_TAP_GROUP;
            at += GROUP_BYTES;
        }
        __m128i rows01 = _mm_packs_epi32(fold(sum0, half, bits), fold(sum1, half, bits));
        __m128i rows23 = _mm_packs_epi32(fold(sum2, half, bits), fold(sum3, half, bits));
        __m128i all = _mm_packus_epi16(rows01, rows23);
        /* Four bytes a row, of which the next pixel overwrites the last. */
        for (int32_t r = 0; r < RESIZE_ROWS_AT_ONCE; r++) {
            int32_t pixel = _mm_cvtsi128_si32(all);
            memcpy(out[r] + (size_t)i * 3, &pixel, sizeof(pixel));
            all = _mm_srli_si128(all, 4);
        }
    }
}

/* 32 output bytes. Rows come in pairs; a pair's second weight is zero where its row is missing. */
AVX2 static inline __m256i column_32(const uint8_t *in,
                                     size_t stride_bytes,
                                     int32_t rows,
                                     const int16_t *weights,
                                     int32_t bits_count) {
    const __m256i zero = _mm256_setzero_si256();
    const __m128i bits = _mm_cvtsi32_si128(bits_count);
    __m256i sum0 = _mm256_set1_epi32((1 << bits_count) >> 1);
    __m256i sum1 = sum0;
    __m256i sum2 = sum0;
    __m256i sum3 = sum0;
    for (int32_t j = 0; j < rows; j += 2) {
        const uint8_t *second = j + 1 < rows ? in + stride_bytes : in;
        int32_t pair;
        memcpy(&pair, weights + j, sizeof(pair));
        __m256i w = _mm256_set1_epi32(pair);
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)in);
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)second);
        __m256i low = _mm256_unpacklo_epi8(a, b);
        __m256i high = _mm256_unpackhi_epi8(a, b);
        sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), w));
        sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), w));
        sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), w));
        sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), w));
        in += 2 * stride_bytes;
    }
    /* The unpacks and the packs both work within lanes, so the order comes out right. */
    __m256i low = _mm256_packs_epi32(_mm256_sra_epi32(sum0, bits), _mm256_sra_epi32(sum1, bits));
    __m256i high = _mm256_packs_epi32(_mm256_sra_epi32(sum2, bits), _mm256_sra_epi32(sum3, bits));
    return _mm256_packus_epi16(low, high);
}

AVX2 static void avx2_column(uint8_t *out,
                             const uint8_t *in,
                             size_t stride_bytes,
                             int32_t row_count,
                             size_t size_bytes,
                             const int16_t *weights,
                             const struct resize_axis *axis) {
    int32_t rows = axis->taps < row_count ? axis->taps : row_count;
    size_t x = 0;
    for (; x + ROW_VECTOR_BYTES <= size_bytes; x += ROW_VECTOR_BYTES) {
        __m256i v = column_32(in + x, stride_bytes, rows, weights, axis->bits);
        _mm256_storeu_si256((__m256i *)(void *)(out + x), v);
    }
    if (x < size_bytes && size_bytes >= ROW_VECTOR_BYTES) {
        /* The rest, as the last whole vector: some bytes are made twice. */
        x = size_bytes - ROW_VECTOR_BYTES;
        __m256i v = column_32(in + x, stride_bytes, rows, weights, axis->bits);
        _mm256_storeu_si256((__m256i *)(void *)(out + x), v);
    } else if (x < size_bytes) {
        resize_kernels_plain()->column(out + x, in + x, stride_bytes, row_count, size_bytes - x,
                                       weights, axis);
    }
}

const struct resize_kernels *resize_kernels_avx2(void) {
    static const struct resize_kernels avx2 = {
        .name = "avx2",
        .rows = avx2_rows,
        .column = avx2_column,
        .reads_windows = true, /* 16 bytes are loaded where 12 are used */
    };
    return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const struct resize_kernels *resize_kernels_avx2(void) {
    return NULL;
}

#endif
