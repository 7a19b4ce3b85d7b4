/*
 * mma: products of 8 x 8 matrices by a warp: by the tensor cores for bf16, and for f32 in plain
 * arithmetic with the same division of the work over lanes.
 *
 * Of a matrix of 16 rows that a warp computes, lane l = 4 g + q has, of every 8 columns, those
 * 2 q and 2 q + 1 of rows g and g + 8: x[block][0..1] and x[block][2..3]. PTX calls it the
 * accumulator of mma.m16n8k16.
 *
 * tests/support/cuda_emulation has its own version of the instructions.
 */
#ifndef KERNELS_CUDA_DEVICE_MMA_CUH
#define KERNELS_CUDA_DEVICE_MMA_CUH

#include "kernels/cuda/device/common.cuh"

/* Rows of a matrix in shared memory. The padding keeps eight rows in different banks. */
template <typename T, int WIDTH, int ROWS> struct tile {
    alignas(16) T at[ROWS][WIDTH + 16 / sizeof(T)];
};

#ifdef CUDA_EMULATION
#include <cuda_emulated_mma.h>
#else

/* d += a b: a of 16 x 16 (four 8 x 8 matrices), b of 16 x 8. */
static __device__ __forceinline__ void
mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices; lanes 8 i to 8 i + 7 give the rows of matrix i, 16 bytes each in shared memory. A
 * lane receives elements 2 q and 2 q + 1 of row g; transposed, of column g. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const bf16 *row) {
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(row);
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    }
}

/* Copies sixteen bytes from global into shared memory, or zeros; complete after copies_wait and a
 * barrier. Both addresses are multiples of 16 bytes. */
static __device__ __forceinline__ void copy_later(void *shared, const void *global, bool zeros) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(zeros ? 0 : 16)
                 : "memory");
}

static __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* 2^x within two units in the last place; a result below 2^-126 is 0. */
static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

static __device__ __forceinline__ uint32_t two_bf16(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &two, sizeof word);
    return word;
}

/* x (16, COLS) = rows [first, first + 16) of a, times b^T. */
template <int WIDTH, int ROWS, int COLS>
static __device__ __forceinline__ void products(float (&x)[COLS / 8][4],
                                                const struct tile<bf16, WIDTH, ROWS> &a,
                                                int first,
                                                const struct tile<bf16, WIDTH, COLS> &b) {
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < COLS / 8; i++) {
        x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        uint32_t left[4];
        load_matrices<false>(left, &a.at[first + lane % 16][k + lane / 16 * 8]);
#pragma unroll
        for (int i = 0; i < COLS / 8; i += 2) {
            uint32_t right[4];
            load_matrices<false>(right,
                                 &b.at[8 * i + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
            mma_bf16(x[i], left, right[0], right[1]);
            mma_bf16(x[i + 1], left, right[2], right[3]);
        }
    }
}

/* sum (16, WIDTH) += w (16, ROWS), rounded to bf16, times b. */
template <int WIDTH, int ROWS>
static __device__ __forceinline__ void add_product(float (&sum)[WIDTH / 8][4],
                                                   const float (&w)[ROWS / 8][4],
                                                   const struct tile<bf16, WIDTH, ROWS> &b) {
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        const float(&even)[4] = w[k / 8];
        const float(&odd)[4] = w[k / 8 + 1];
        const uint32_t left[4] = {two_bf16(even[0], even[1]), two_bf16(even[2], even[3]),
                                  two_bf16(odd[0], odd[1]), two_bf16(odd[2], odd[3])};
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i += 2) {
            uint32_t right[4];
            load_matrices<true>(right, &b.at[k + lane % 16][8 * i + lane / 16 * 8]);
            mma_bf16(sum[i], left, right[0], right[1]);
            mma_bf16(sum[i + 1], left, right[2], right[3]);
        }
    }
}

template <int WIDTH, int ROWS, int COLS>
static __device__ __forceinline__ void products(float (&x)[COLS / 8][4],
                                                const struct tile<float, WIDTH, ROWS> &a,
                                                int first,
                                                const struct tile<float, WIDTH, COLS> &b) {
    const int g = (int)threadIdx.x % WARP / 4;
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < COLS / 8; i++) {
        x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.0f;
    }
#pragma unroll 2
    for (int k = 0; k < WIDTH; k += 4) {
        float left[2][4];
        load(left[0], &a.at[first + g][k]);
        load(left[1], &a.at[first + g + 8][k]);
#pragma unroll
        for (int c = 0; c < COLS / 4; c++) {
            float right[4];
            load(right, &b.at[c / 2 * 8 + 2 * q + c % 2][k]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[c / 2][c % 2] += left[0][j] * right[j];
                x[c / 2][c % 2 + 2] += left[1][j] * right[j];
            }
        }
    }
}

template <int WIDTH, int ROWS>
static __device__ __forceinline__ void add_product(float (&sum)[WIDTH / 8][4],
                                                   const float (&w)[ROWS / 8][4],
                                                   const struct tile<float, WIDTH, ROWS> &b) {
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const float left[2] = {__shfl_sync(FULL_WARP, w[k / 8][k % 2], k % 8 / 2, 4),
                               __shfl_sync(FULL_WARP, w[k / 8][k % 2 + 2], k % 8 / 2, 4)};
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            float right[2];
            load(right, &b.at[k][8 * i + 2 * q]);
            sum[i][0] += left[0] * right[0];
            sum[i][1] += left[0] * right[1];
            sum[i][2] += left[1] * right[0];
            sum[i][3] += left[1] * right[1];
        }
    }
}

#endif
