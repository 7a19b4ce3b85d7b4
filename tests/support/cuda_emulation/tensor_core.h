/*
 * tensor_core, emulated: what kernels/cuda/conv/tensor_core.cuh has one instruction for, by the
 * meaning that PTX gives to every register of every lane.
 *
 * A copy that is not waited for lands as late as it may (threads run forwards) or at once (threads
 * run backwards), so a missing wait reads dirt, and a place that is written while others still read
 * it gives other bits in the two orders.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_TENSOR_CORE_H
#define TESTS_SUPPORT_CUDA_EMULATION_TENSOR_CORE_H

#include <stdint.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "tests/support/cuda_emulation/cuda_fp16.h"
#include "tests/support/cuda_emulation/emulation.h"

#define SHARED_OF_LAUNCH(name) unsigned char *const name = emulation_shared_of_launch()

static inline void copy_async(void *shared, const void *global, bool there) {
    emulation_copy(shared, there ? global : nullptr, 16);
}

static inline void copy_group() {
    emulation_copy_group();
}

template <int LEFT> static inline void copy_wait() {
    emulation_copy_wait(LEFT);
}

template <typename WORD> static inline void put_chunk(void *shared, WORD chunk) {
    emulation_put_chunk(shared, &chunk, sizeof chunk);
}

static inline void load_matrices_in(uint32_t (&r)[4], const void *row, bool transposed) {
    const unsigned lane = threadIdx.x % 32;
    const void *const *rows = emulation_share(row);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t two[2];
        for (unsigned k = 0; k < 2; k++) {
            const unsigned line = transposed ? 2 * (lane % 4) + k : lane / 4;
            const unsigned at = transposed ? lane / 4 : 2 * (lane % 4) + k;
            emulation_check_shared(rows[8 * i + line], 16);
            memcpy(&two[k], (const char *)rows[8 * i + line] + 2 * at, sizeof two[k]);
        }
        memcpy(&r[i], two, sizeof r[i]);
    }
    emulation_wait(EMULATION_WARP); /* nobody shares anew before all have read */
}

static inline void load_matrices(uint32_t (&r)[4], const void *row) {
    load_matrices_in(r, row, false);
}

static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row) {
    load_matrices_in(r, row, true);
}

struct tensor_core_operands {
    uint32_t a[4], b[2];
};

/* Element (row, k) of a, 16 x 16, and (k, column) of b, 16 x 8, from the lanes that hold them. */
template <typename T> struct emulated_type { static constexpr bool IS_F16 = false; };
template <> struct emulated_type<__half> { static constexpr bool IS_F16 = true; };

template <typename T> static inline float tensor_core_half(uint32_t two, unsigned which) {
    const uint16_t bits = (uint16_t)(two >> (16 * which));
    return emulated_type<T>::IS_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

template <typename T>
static inline float tensor_core_a(const void *const *all, unsigned row, unsigned k) {
    const auto *o = static_cast<const tensor_core_operands *>(all[row % 8 * 4 + k % 8 / 2]);
    return tensor_core_half<T>(o->a[row / 8 + k / 8 * 2], k % 2);
}

template <typename T>
static inline float tensor_core_b(const void *const *all, unsigned k, unsigned column) {
    const auto *o = static_cast<const tensor_core_operands *>(all[column * 4 + k % 8 / 2]);
    return tensor_core_half<T>(o->b[k / 8], k % 2);
}

/* Products of half types are exact in f32; a chip adds them in an order that it does not tell. */
template <typename T>
static inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const struct tensor_core_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const unsigned lane = threadIdx.x % 32;
    const void *const *all = emulation_share(&mine);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4 + i / 2 * 8;
        const unsigned column = 2 * (lane % 4) + i % 2;
        double sum = (double)c[i];
        for (unsigned k = 0; k < 16; k++) {
            sum += (double)tensor_core_a<T>(all, row, k) * (double)tensor_core_b<T>(all, k, column);
        }
        c[i] = (float)sum;
    }
    emulation_wait(EMULATION_WARP);
}

#endif
