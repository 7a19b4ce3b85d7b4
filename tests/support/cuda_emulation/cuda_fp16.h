/*
 * cuda_fp16, emulated: the 16-bit number and its conversions, those of kernels/f16.h.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUDA_FP16_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUDA_FP16_H

#include "kernels/f16.h"

struct __half {
    uint16_t bits;
};

struct __half2 {
    __half x, y;
};

static inline float __half2float(__half x) {
    return f16_to_f32(x.bits);
}

static inline __half __float2half_rn(float x) {
    return __half{f16_from_f32(x)};
}

static inline __half2 __floats2half2_rn(float x, float y) {
    return __half2{__float2half_rn(x), __float2half_rn(y)};
}

#endif
