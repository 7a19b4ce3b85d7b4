/*
 * common: included by every kernel file: numbers of all types, loads and stores of 16 bytes, sums
 * over a warp, and the launch.
 *
 * The kernels are CUDA C with templates for the element type T and the count V of elements moved at
 * once (16 bytes, or 1 if shapes or addresses do not allow that). They use no features of the GPU
 * except shuffles and barriers, since tests/support/cuda_emulation compiles them for the host.
 */
#ifndef KERNELS_CUDA_DEVICE_COMMON_CUH
#define KERNELS_CUDA_DEVICE_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/device/kernels_internal.h"

typedef __nv_bfloat16 bf16;

enum { WARP = 32, THREADS = 256, WARPS = THREADS / WARP };
#define FULL_WARP 0xffffffffu

static __device__ __forceinline__ float to_f32(float x) {
    return x;
}

static __device__ __forceinline__ float to_f32(bf16 x) {
    return __bfloat162float(x);
}

static __device__ __forceinline__ void put(float *out, float x) {
    *out = x;
}

static __device__ __forceinline__ void put(bf16 *out, float x) {
    *out = __float2bfloat16_rn(x);
}

/* x as read back from a tensor of type T. */
template <typename T> static __device__ __forceinline__ float as_stored(float x) {
    T stored;
    put(&stored, x);
    return to_f32(stored);
}

template <typename T> static __device__ __forceinline__ void put_mode(T *out, float x, bool add) {
    put(out, add ? to_f32(*out) + x : x);
}

/* The type of one access of BYTES bytes. nvcc would split a struct into its elements.
 */
template <int BYTES> struct access;
template <> struct access<1> { typedef uint8_t word; };
template <> struct access<2> { typedef uint16_t word; };
template <> struct access<4> { typedef uint32_t word; };
template <> struct access<8> { typedef uint2 word; };
template <> struct access<16> { typedef uint4 word; };

/* Stores to global memory only. nvcc would split an assignment of two or four words; __stwb is one
 * store, by the instruction st.global, for which an address in shared memory is a fault. So
 * put_word and its callers (store, store_f32, store_mode) are for global memory only. */
template <typename WORD> static __device__ __forceinline__ void put_word(WORD *to, WORD w) {
    *to = w;
}

static __device__ __forceinline__ void put_word(uint2 *to, uint2 w) {
    __stwb(to, w);
}

static __device__ __forceinline__ void put_word(uint4 *to, uint4 w) {
    __stwb(to, w);
}

template <typename T, int V> struct alignas(V * sizeof(T)) vector { T at[V]; };

/* A count of elements as an argument. */
template <int V> struct width {
    enum { COUNT = V };
};

template <typename T, int V>
static __device__ __forceinline__ vector<T, V> load_vector(const T *from) {
    typedef typename access<sizeof(vector<T, V>)>::word word;
    const word w = *reinterpret_cast<const word *>(from);
    vector<T, V> v;
    memcpy(&v, &w, sizeof v);
    return v;
}

template <int V, typename T>
static __device__ __forceinline__ void unpack(float (&x)[V], const vector<T, V> &v) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        x[i] = to_f32(v.at[i]);
    }
}

/* V elements by one access; `from` is a multiple of V elements. */
template <int V, typename T>
static __device__ __forceinline__ void load(float (&x)[V], const T *from) {
    unpack(x, load_vector<T, V>(from));
}

/* V f32 parameters for V elements of another type, 16 bytes at a time. */
template <int V> static __device__ __forceinline__ void load_f32(float (&x)[V], const float *from) {
    constexpr int PIECE = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += PIECE) {
        float piece[PIECE];
        load(piece, from + i);
#pragma unroll
        for (int k = 0; k < PIECE; k++) {
            x[i + k] = piece[k];
        }
    }
}

template <int V>
static __device__ __forceinline__ void pack(vector<float, V> *v, const float (&x)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        v->at[i] = x[i];
    }
}

static __device__ __forceinline__ void put_two(bf16 *out, float x, float y) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    out[0] = two.x;
    out[1] = two.y;
}

/* For bf16 one instruction rounds two numbers. */
template <typename T, int V>
static __device__ __forceinline__ void pack(vector<T, V> *v, const float (&x)[V]) {
#pragma unroll
    for (int i = 0; i + 1 < V; i += 2) {
        put_two(v->at + i, x[i], x[i + 1]);
    }
    if (V % 2 != 0) {
        put(v->at + V - 1, x[V - 1]);
    }
}

template <int V, typename T>
static __device__ __forceinline__ void store(T *to, const float (&x)[V]) {
    vector<T, V> v;
    pack(&v, x);
    typedef typename access<sizeof(v)>::word word;
    word w;
    memcpy(&w, &v, sizeof w);
    put_word(reinterpret_cast<word *>(to), w);
}

template <int V> static __device__ __forceinline__ void store_f32(float *to, const float (&x)[V]) {
    constexpr int PIECE = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += PIECE) {
        float piece[PIECE];
#pragma unroll
        for (int k = 0; k < PIECE; k++) {
            piece[k] = x[i + k];
        }
        store(to + i, piece);
    }
}

template <int V, typename T>
static __device__ __forceinline__ void store_mode(T *to, float (&x)[V], bool add) {
    if (add) {
        float before[V];
        load(before, to);
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[i] += before[i];
        }
    }
    store(to, x);
}

/* Bit-identical in all lanes: both sides of each exchange add the same pair. */
template <typename N> static __device__ __forceinline__ N warp_sum(N x, int lanes = WARP) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, step);
    }
    return x;
}

static __device__ __forceinline__ float warp_max(float x, int lanes = WARP) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, step));
    }
    return x;
}

/* Sum over a block of THREADS threads, returned to all of them. `room` is shared memory, which is
 * not used again before a barrier. */
template <typename N> static __device__ __forceinline__ N block_sum_once(N x, N (&room)[WARPS]) {
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    N sum = room[0];
    for (int i = 1; i < WARPS; i++) {
        sum += room[i];
    }
    return sum;
}

/* `room` may be reused at once. */
template <typename N> static __device__ __forceinline__ N block_sum(N x, N (&room)[WARPS]) {
    const N sum = block_sum_once(x, room);
    __syncthreads();
    return sum;
}

/* Calls f(width, i) for this thread's pieces [i, i + width) of `count` elements: V elements at a
 * time, and one by one at the end. */
template <int V, typename F> static __device__ __forceinline__ void each_piece(int64_t count, F f) {
    const int64_t step = (int64_t)gridDim.x * THREADS * V;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V; i < count; i += step) {
        if (i + V <= count) {
            f(width<V>(), i);
            continue;
        }
        for (int64_t e = i; e < count; e++) {
            f(width<1>(), e);
        }
    }
}

static __device__ __forceinline__ void report(int32_t *fault, enum fault what) {
    if (fault != NULL) {
        *fault = what;
    }
}

/* ---- host side ---- */

static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Blocks for a grid-stride loop: enough to fill any GPU, few enough to launch quickly. */
static inline dim3 blocks_for(int64_t items) {
    static const int64_t MOST = 1 << 14;
    const int64_t blocks = ceil_div(items, THREADS);
    return dim3((unsigned)(blocks < MOST ? blocks : MOST));
}

static inline bool is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

/* Whether rows of `width` elements can be moved 16 bytes at a time; NULL counts as aligned. */
template <typename... P>
static inline bool wide(enum dtype real, int64_t width, const P *...addresses) {
    return width % (real == DTYPE_F32 ? 4 : 8) == 0 && (is_aligned(addresses) && ...);
}

/* The same for tensors with rows of the length and type of `like`. */
template <typename... T> static inline bool wide(const struct tensor &like, const T &...others) {
    return wide(like.dtype, like.shape[like.ndim - 1], like.data, others.data...);
}

template <typename... P, typename... A>
static cudaError_t
launch_threads(cudaStream_t stream, dim3 grid, int threads, void (*kernel)(P...), A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.stream = stream;
    cuda_count_launch();
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

template <typename... P, typename... A>
static cudaError_t launch(cudaStream_t stream, dim3 grid, void (*kernel)(P...), A... arguments) {
    return launch_threads(stream, grid, THREADS, kernel, arguments...);
}

/* Calls run<T, V>(...) for the type and width. */
#define BY_TYPE(real, is_wide, run, ...)                                                           \
    ((real) == DTYPE_F32    ? (is_wide) ? run<float, 4>(__VA_ARGS__) : run<float, 1>(__VA_ARGS__)  \
        : (real) == DTYPE_BF16 ? (is_wide) ? run<bf16, 8>(__VA_ARGS__) : run<bf16, 1>(__VA_ARGS__) \
                               : cudaErrorInvalidValue)

/* launch_NAME for a struct of operands: run_NAME<T, V> by the type of its tensor `like`. */
#define LAUNCHER(name, operands, like, is_wide)                                                    \
    cudaError_t launch_##name(const struct launch_on *on, const struct operands *op) {             \
        return BY_TYPE(op->like.dtype, is_wide, run_##name, *on, *op);                             \
    }

#define TRY_LAUNCH(call)                                                                           \
    do {                                                                                           \
        const cudaError_t code_ = (call);                                                          \
        if (code_ != cudaSuccess) {                                                                \
            return code_;                                                                          \
        }                                                                                          \
    } while (0)

#endif
