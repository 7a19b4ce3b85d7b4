/*
 * cuda_bf16, emulated: the 16-bit number and its conversions, those of kernels/bf16.h.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUDA_BF16_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUDA_BF16_H

#include "kernels/bf16.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 x) {
    return bf16_to_f32(x.bits);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    return __nv_bfloat16{bf16_from_f32(x)};
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif
