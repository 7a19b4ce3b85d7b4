/*
 * resize_avx2: the integer arithmetic of the plain loops with AVX2, sixteen products at a time.
 *
 * Along a row, four taps of one output pixel are one group of twelve bytes. Two rows share a
 * register, one in each 128-bit lane; their bytes are widened to 16 bits so that a multiply-add
 * handles pairs of taps, once for the first pair and once for the second:
 *
 *     pixels    r0 r1 g0 g1 b0 b1 0 0 (row A) | r0 r1 g0 g1 b0 b1 0 0 (row B)
 *     weights   w0 w1 w0 w1 w0 w1 w0 w1       | w0 w1 w0 w1 w0 w1 w0 w1
 *
 * so that a pixel's three sums end up side by side. Two pixels of four rows are packed and stored
 * together.
 */
#include "augment/resize_avx2_internal.h"

#if defined(__x86_64__)

enum { ROW_VECTOR_BYTES = 32 };

/* The sums of one output pixel in four rows: 01 holds rows 0 and 1, 23 rows 2 and 3. Returns them
 * as 16-bit numbers: row 0, row 2 | row 1, row 3. */
AVX2 static inline __m256i four_rows(const uint8_t *const *in,
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
        sum01 = _mm256_add_epi32(sum01, _mm256_madd_epi16(first_pairs(a), w01));
        sum23 = _mm256_add_epi32(sum23, _mm256_madd_epi16(first_pairs(b), w01));
        sum01 = _mm256_add_epi32(sum01, _mm256_madd_epi16(second_pairs(a), w23));
        sum23 = _mm256_add_epi32(sum23, _mm256_madd_epi16(second_pairs(b), w23));
        at += GROUP_BYTES;
    }
    return _mm256_packs_epi32(_mm256_sra_epi32(sum01, bits), _mm256_sra_epi32(sum23, bits));
}

AVX2 static void
avx2_rows(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis) {
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
        size_t at = (size_t)starts[i] * 3;
        __m256i pixel = four_rows(from, at, w, taps, half, bits);
        __m256i next = pixel;
        w += taps;
        if (i + 1 < count) {
            at = (size_t)starts[i + 1] * 3;
            next = four_rows(from, at, w, taps, half, bits);
            w += taps;
        }
        store_two(to, (size_t)i * 3, pixel, next);
    }
}

/* Computes 32 output bytes from pairs of rows; the second weight of a pair is zero if its row is
 * missing. */
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
        __m256i w = pair_everywhere(weights + j);
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
    /* Both unpack and pack work within lanes, so the order is preserved. */
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
    int32_t rows = axis->used < row_count ? axis->used : row_count;
    size_t x = 0;
    for (; x + ROW_VECTOR_BYTES <= size_bytes; x += ROW_VECTOR_BYTES) {
        __m256i v = column_32(in + x, stride_bytes, rows, weights, axis->bits);
        _mm256_storeu_si256((__m256i *)(void *)(out + x), v);
    }
    if (x < size_bytes && size_bytes >= ROW_VECTOR_BYTES) {
        /* The remainder, as the last full vector: some bytes are computed twice. */
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
        .reads_windows = true, /* loads 16 bytes, of which 12 are used */
    };
    return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const struct resize_kernels *resize_kernels_avx2(void) {
    return NULL;
}

#endif
