/*
 * f16: IEEE 754's half precision: 5 bits of exponent, 10 of fraction, numbers up to 65504, and
 * below 2^-14 multiples of 2^-24.
 *
 * Threading : pure functions.
 */
#ifndef KERNELS_F16_H
#define KERNELS_F16_H

#include <stdint.h>
#include <string.h>

/* Exact. No f32 on the way is a denormal, so threads that flush those convert alike. */
static inline float f16_to_f32(uint16_t x) {
    const uint32_t shift = (uint32_t)(127 - 15) << 23; /* between the biases of the exponents */
    const uint32_t moved = (uint32_t)(x & 0x7FFFu) << 13;
    const uint32_t above = moved >= 31u << 23 ? 2 * shift : shift; /* infinity and no number */
    const uint32_t normal = moved + above;
    /* below 2^-14: 2^-14 (1 + fraction), less the 2^-14 that is not there */
    const uint32_t one_more = moved + shift + (1u << 23);
    float small;
    memcpy(&small, &one_more, sizeof small);
    small -= 0x1p-14f;
    uint32_t bits;
    memcpy(&bits, &small, sizeof bits);
    bits = (moved < 1u << 23 ? bits : normal) | (uint32_t)(x & 0x8000u) << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even; from 65520 on infinity; not a number stays one. Selections instead of
 * branches, so that loops vectorise. */
static inline uint16_t f16_from_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t moved = magnitude - ((uint32_t)(127 - 15) << 23);
    const uint32_t normal = (moved + 0xFFFu + (moved >> 13 & 1u)) >> 13;
    /* below 2^-14: beside 1/2 an f32 holds multiples of 2^-24, so the addition rounds */
    float small;
    memcpy(&small, &magnitude, sizeof small);
    small += 0.5f;
    uint32_t denormal;
    memcpy(&denormal, &small, sizeof denormal);
    denormal -= 0x3F000000u;
    uint32_t half = magnitude < (uint32_t)(127 - 14) << 23 ? denormal : normal;
    half = magnitude >= (uint32_t)(127 + 16) << 23 ? 0x7C00u : half;
    half = magnitude > 0x7F800000u ? 0x7E00u | (magnitude >> 13 & 0x1FFu) : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}

#endif
