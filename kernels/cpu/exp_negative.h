/*
 * exp_negative: e^x for x <= 0, a polynomial over a power of two, which inlines into loops that the
 * compiler vectorises.
 */
#ifndef KERNELS_CPU_EXP_NEGATIVE_H
#define KERNELS_CPU_EXP_NEGATIVE_H

#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0; below -87 it is 0. Relative error below 2e-7. Adding 1.5 * 2^23 rounds to an
 * integer, which is then in the lowest bits of the sum. */
static inline float exp_negative(float x) {
    const float whole = 12582912.0f;
    const float clipped = x > -87.0f ? x : -87.0f;
    const float shifted = clipped * 1.44269504f + whole;
    const float k = shifted - whole;
    const float r = (clipped - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x > -87.0f ? p * scale : 0.0f;
}

#endif
