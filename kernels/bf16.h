/*
 * bf16: the upper half of an f32 as a number: 8 bits of exponent, 7 of fraction.
 *
 * Threading : pure functions.
 */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even; NaN stays NaN. Without branches, so that loops vectorise. */
static inline uint16_t bf16_from_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    const uint32_t quiet = bits | 0x400000u;
    return (uint16_t)(((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded) >> 16);
}

#endif
