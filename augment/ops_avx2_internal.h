/*
 * ops_avx2_internal: moves eight RGB pixels between memory and an AVX2 register, for the vector
 * loops of the ops.
 */
#ifndef AUGMENT_OPS_AVX2_INTERNAL_H
#define AUGMENT_OPS_AVX2_INTERNAL_H

#include "augment/ops_internal.h"
#include "augment/ops_pixel_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256i load_32(const void *p) {
    return _mm256_loadu_si256(p);
}

AVX2 static inline void store_32(void *p, __m256i v) {
    _mm256_storeu_si256(p, v);
}

/* 24 bytes: the low half begins with byte 0, the high half with byte 8, so that no byte after them
 * is read. */
AVX2 static inline __m256i load_24(const uint8_t *p) {
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + 8));
    return _mm256_inserti128_si256(low, high, 1);
}

/* One channel of the result of load_24, in 32-bit lanes. */
AVX2 static inline __m256i channel_of_8(__m256i bytes, int channel) {
    const __m256i red = _mm256_setr_epi32(-0x100, -0xFD, -0xFA, -0xF7, -0xFC, -0xF9, -0xF6, -0xF3);
    return _mm256_shuffle_epi8(bytes, _mm256_add_epi32(red, _mm256_set1_epi32(channel)));
}

/* Two channels in 16 bits each: red and green, or green and blue. */
AVX2 static inline __m256i pairs_of_8(__m256i bytes, int channel) {
    const __m256i red_green =
        _mm256_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1, 4, -1, 5, -1, 7,
                         -1, 8, -1, 10, -1, 11, -1, 13, -1, 14, -1);
    const __m256i green_blue =
        _mm256_setr_epi8(1, -1, 2, -1, 4, -1, 5, -1, 7, -1, 8, -1, 10, -1, 11, -1, 5, -1, 6, -1, 8,
                         -1, 9, -1, 11, -1, 12, -1, 14, -1, 15, -1);
    return _mm256_shuffle_epi8(bytes, channel == 0 ? red_green : green_blue);
}

/* Gray levels in 32-bit lanes. Green's factor exceeds a signed 16-bit number, so it is added in two
 * halves. */
AVX2 static inline __m256i gray_of_8(__m256i bytes) {
    const __m256i of_red_green = _mm256_set1_epi32(19595 | 19235 << 16);
    const __m256i of_green_blue = _mm256_set1_epi32(19235 | 7471 << 16);
    __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(pairs_of_8(bytes, 0), of_red_green),
                                   _mm256_madd_epi16(pairs_of_8(bytes, 1), of_green_blue));
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(0x8000)), 16);
}

AVX2 static inline __m256i join_8(__m256i r, __m256i g, __m256i b) {
    return _mm256_or_si256(r, _mm256_or_si256(_mm256_slli_epi32(g, 8), _mm256_slli_epi32(b, 16)));
}

/* Stores the low three bytes of each 32-bit lane: 24 bytes. */
AVX2 static inline void store_24(uint8_t *p, __m256i lanes) {
    const __m256i close_up =
        _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6,
                         8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8(lanes, close_up);
    __m128i high = _mm256_extracti128_si256(bytes, 1);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(bytes));
    _mm_storel_epi64((__m128i *)(void *)(p + 12), high);
    _mm_storeu_si32(p + 20, _mm_srli_si128(high, 8));
}

/* For op_loops_avx512, which has them too. */
void op_avx2_range(uint8_t low[3], uint8_t high[3], const uint8_t *in, size_t count);
uint64_t op_avx2_gray_sum(const uint8_t *in, size_t count);
void op_avx2_gray(uint8_t *out, const uint8_t *in, size_t count);
void op_avx2_sharpness(uint8_t *out, const uint8_t *in, size_t stride_bytes, size_t size_bytes);
void op_avx2_between(uint8_t *out,
                     const uint8_t *from,
                     const uint8_t *to,
                     const uint8_t *fractions,
                     size_t size_bytes);
void op_avx2_warp(uint8_t *out,
                  const uint8_t *in,
                  size_t stride_bytes,
                  int32_t x,
                  int32_t y,
                  const int32_t *dx,
                  const int32_t *dy,
                  size_t count);

#endif

#endif
