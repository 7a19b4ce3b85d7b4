/*
 * wgmma, emulated: what kernels/cuda/conv/wgmma.cuh has one instruction for. Where every number
 * comes from is told at wgmma.c.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_WGMMA_H
#define TESTS_SUPPORT_CUDA_EMULATION_WGMMA_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each of the calling thread. `columns` of the product; c has columns / 2 numbers. f16: of the
 * operands, else bf16. */
void emulation_product_begin(float *c,
                             unsigned columns,
                             bool f16,
                             uint64_t a,
                             uint64_t b,
                             bool a_across,
                             bool b_across);
void emulation_product_fence(void);
void emulation_product_group(void);
void emulation_product_wait(void);

#ifdef __cplusplus
}

#define WGMMA_HERE true

static inline uint32_t shared_address(const void *shared) {
    return emulation_shared_address(shared);
}

static inline void proxy_fence() {
    emulation_proxy_fence();
}

static inline void product_fence() {
    emulation_product_fence();
}

static inline void product_group() {
    emulation_product_group();
}

static inline void product_wait() {
    emulation_product_wait();
}

template <typename T, bool A_ACROSS, bool B_ACROSS, int N>
static inline void product_begin(float (&c)[N][4], uint64_t a, uint64_t b) {
    emulation_product_begin(&c[0][0], 8 * N, emulated_type<T>::IS_F16, a, b, A_ACROSS, B_ACROSS);
}

#endif

#endif
