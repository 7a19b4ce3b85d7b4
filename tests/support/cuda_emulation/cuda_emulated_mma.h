/*
 * cuda_emulated_mma: the instructions of kernels/cuda/device/mma.cuh, by exchanges between lanes
 * and copies at once.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUDA_EMULATED_MMA_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUDA_EMULATED_MMA_H

static inline float half_of(uint32_t two, int which) {
    return bf16_to_f32((uint16_t)(two >> 16 * which));
}

/* Products of one pair of columns are exact in f64; the tensor core's own order is not defined. */
static inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const int lane = (int)threadIdx.x % 32;
    const int g = lane / 4;
    const int q = lane % 4;
    const uint32_t b[2] = {b0, b1};
    double sum[4] = {(double)d[0], (double)d[1], (double)d[2], (double)d[3]};
    for (int k = 0; k < 16; k += 2) {
        const int word = k / 8;
        const int from = k % 8 / 2;
        const uint32_t rows[2] = {__shfl_sync(~0u, a[2 * word], 4 * g + from),
                                  __shfl_sync(~0u, a[2 * word + 1], 4 * g + from)};
        const uint32_t columns[2] = {__shfl_sync(~0u, b[word], 4 * (2 * q) + from),
                                     __shfl_sync(~0u, b[word], 4 * (2 * q + 1) + from)};
        for (int i = 0; i < 4; i++) {
            for (int half = 0; half < 2; half++) {
                sum[i] +=
                    (double)half_of(rows[i / 2], half) * (double)half_of(columns[i % 2], half);
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        d[i] = (float)sum[i];
    }
}

template <bool TRANSPOSED>
static inline void load_matrices(uint32_t (&to)[4], const __nv_bfloat16 *row) {
    const int lane = (int)threadIdx.x % 32;
    const int g = lane / 4;
    const int q = lane % 4;
    for (int i = 0; i < 4; i++) {
        const __nv_bfloat16 *low = __shfl_sync(~0u, row, 8 * i + (TRANSPOSED ? 2 * q : g));
        const __nv_bfloat16 *high = __shfl_sync(~0u, row, 8 * i + (TRANSPOSED ? 2 * q + 1 : g));
        if ((uintptr_t)low % 16 != 0) {
            abort(); /* a misaligned address, on a GPU */
        }
        to[i] = low[TRANSPOSED ? g : 2 * q].bits | (uint32_t)high[TRANSPOSED ? g : 2 * q + 1].bits
                                                       << 16;
    }
}

/* Early or late: what waits for the barrier cannot tell. */
static inline void copy_later(void *shared, const void *global, bool zeros) {
    if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0) {
        abort();
    }
    if (zeros) {
        memset(shared, 0, 16);
    } else {
        memcpy(shared, global, 16);
    }
}

static inline void copies_wait() {
}

static inline float power_of_two(float x) {
    return exp2f(x);
}

#endif
