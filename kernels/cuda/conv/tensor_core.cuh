/*
 * tensor_core: the instructions of compute capability 8.0 that matrix products are made of, one
 * function each. Every lane of a warp calls them together (copies excepted). What the numbers in a
 * lane's registers stand for is told at gemm.cuh, which is the only user.
 *
 * Compiled for the host, the same names come from tests/support/cuda_emulation/tensor_core.h.
 */
#ifndef KERNELS_CUDA_CONV_TENSOR_CORE_CUH
#define KERNELS_CUDA_CONV_TENSOR_CORE_CUH

#include "kernels/cuda/device/common.cuh"

#ifdef __CUDACC__

template <typename T> struct is_f16 { static constexpr bool YES = false; };
template <> struct is_f16<f16> { static constexpr bool YES = true; };

/* Shared memory whose size the launch says: launch_shared(). */
#define SHARED_OF_LAUNCH(name) extern __shared__ __align__(1024) unsigned char name[]

static __device__ __forceinline__ uint32_t shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* 16 bytes from global to shared memory, or zeros where there are none; complete after the wait. */
static __device__ __forceinline__ void copy_async(void *shared, const void *global, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)),
                 "l"(global), "r"(there ? 16 : 0)
                 : "memory");
}

/* Ends a group of this thread's copies; an empty group counts too. */
static __device__ __forceinline__ void copy_group() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits for all of this thread's groups but the last LEFT. Others see the bytes after a barrier. */
template <int LEFT> static __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* A chunk of an operand that this thread made itself, to where it would have been copied. */
static __device__ __forceinline__ void put_chunk(void *shared, uint4 chunk) {
    *static_cast<uint4 *>(shared) = chunk;
}

/* Four matrices of 8 x 8 elements of 16 bits: lane 8 i + j points to row j of matrix i, 16 bytes of
 * shared memory. Register i of lane l gets elements 2 (l % 4) and the next of row l / 4 of matrix
 * i. */
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same of the transposed matrices. */
static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* c (16 x 8, f32) += a (16 x 16) b (16 x 8) of type T. With g = lane / 4, t = 2 (lane % 4):
 *   a[0] (g, t..t+1)  a[1] (g+8, t..)  a[2] (g, t+8..)  a[3] (g+8, t+8..)
 *   b[0] (t..t+1, g)  b[1] (t+8.., g)
 *   c[0..1] (g, t..t+1)  c[2..3] (g+8, t..t+1) */
template <typename T>
static __device__ __forceinline__ void
multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#define MULTIPLY_ADD(TYPE)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                    \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"                         \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (is_f16<T>::YES) {
        MULTIPLY_ADD("f16");
    } else {
        MULTIPLY_ADD("bf16");
    }
#undef MULTIPLY_ADD
}

#endif

/* launch() with `shared_bytes` of SHARED_OF_LAUNCH; beyond 48 KiB a kernel must be told first. */
template <typename... P, typename... A>
static cudaError_t launch_shared(cudaStream_t stream,
                                 dim3 grid,
                                 int shared_bytes,
                                 void (*kernel)(P...),
                                 A... arguments) {
    TRY_LAUNCH(cudaFuncSetAttribute((const void *)kernel,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = stream;
    cuda_count_launch();
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

#endif
