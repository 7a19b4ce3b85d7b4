/*
 * resize_avx2_internal: loads and stores of the row loops of AVX2 and AVX-512.
 */
#ifndef AUGMENT_RESIZE_AVX2_INTERNAL_H
#define AUGMENT_RESIZE_AVX2_INTERNAL_H

#include "augment/resize_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

enum { GROUP_BYTES = 3 * RESIZE_TAP_GROUP };

/* A pair of weights in every 32-bit lane. The explicit load matters: the compiler would use a
 * general register, and so the execution port that the shuffles need. */
AVX2 static inline __m256i pair_everywhere(const int16_t *weights) {
    return _mm256_broadcastd_epi32(_mm_loadu_si32(weights));
}

AVX2 static inline __m256i load_two_rows(const uint8_t *a, const uint8_t *b) {
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
}

/* Pairs of 16-bit numbers from four pixels of two rows: of pixels 0 and 1, or of pixels 2 and 3. */
AVX2 static inline __m256i first_pairs(__m256i rows) {
    const __m256i order =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1,
                         -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(rows, order);
}

AVX2 static inline __m256i second_pairs(__m256i rows) {
    const __m256i order =
        _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, 6, -1, 9, -1,
                         7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(rows, order);
}

/* Stores pixels i and i + 1 of four rows; of the eight bytes stored in each row, two are beyond
 * them. The _pi stores need no alignment; the _pd ones, in C, need a double's alignment. */
AVX2 static inline void store_two(uint8_t *const *out, size_t to, __m256i pixel, __m256i next) {
    const __m256i close_up =
        _mm256_setr_epi8(0, 1, 2, 8, 9, 10, -1, -1, 4, 5, 6, 12, 13, 14, -1, -1, 0, 1, 2, 8, 9, 10,
                         -1, -1, 4, 5, 6, 12, 13, 14, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(pixel, next), close_up);
    __m128 rows02 = _mm_castsi128_ps(_mm256_castsi256_si128(bytes));
    __m128 rows13 = _mm_castsi128_ps(_mm256_extracti128_si256(bytes, 1));
    _mm_storel_pi((__m64 *)(void *)(out[0] + to), rows02);
    _mm_storel_pi((__m64 *)(void *)(out[1] + to), rows13);
    _mm_storeh_pi((__m64 *)(void *)(out[2] + to), rows02);
    _mm_storeh_pi((__m64 *)(void *)(out[3] + to), rows13);
}

#endif

#endif
