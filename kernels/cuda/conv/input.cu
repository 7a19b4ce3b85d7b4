/*
 * input: elementwise kernels over whole tensors: fill, cast, add, and pixel normalisation.
 *
 * One thread handles V neighbours at a time; the last piece of a range is handled element by
 * element.
 */
#include "formats/base/image_norm.h"
#include "kernels/cuda/device/common.cuh"

/* Start of this thread's first piece of V elements, and the distance to its next. */
template <int V> static __device__ __forceinline__ int64_t first_piece(int64_t *step) {
    *step = (int64_t)gridDim.x * THREADS * V;
    return ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
}

template <typename T, int V> static __global__ void fill(T *out, int64_t count, float value) {
    each_piece<V>(count, [&](auto width, int64_t i) {
        constexpr int N = decltype(width)::COUNT;
        float x[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = value;
        }
        store(out + i, x);
    });
}

template <typename T, int V>
static cudaError_t run_fill(const struct launch_on &on, const struct fill &op) {
    const int64_t count = tensor_count(&op.out);
    return launch(on.stream, blocks_for(ceil_div(count, V)), fill<T, V>, (T *)op.out.data, count,
                  (float)op.value);
}

cudaError_t launch_fill(const struct launch_on *on, const struct fill *op) {
    if (tensor_count(&op->out) == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(op->out.dtype, is_aligned(op->out.data), run_fill, *on, *op);
}

/* out = in, or out += alpha in. V: 4 elements are 16 bytes of F32, or 8 of BF16. */
template <typename TO, typename FROM, int V>
static __global__ void combine(TO *out, const FROM *in, int64_t count, float alpha, bool add) {
    each_piece<V>(count, [&](auto width, int64_t i) {
        constexpr int N = decltype(width)::COUNT;
        float x[N];
        load(x, in + i);
        if (add) {
            float before[N];
            load(before, out + i);
#pragma unroll
            for (int k = 0; k < N; k++) {
                x[k] = before[k] + alpha * x[k];
            }
        }
        store(out + i, x);
    });
}

template <typename TO, typename FROM>
static cudaError_t run_combine(const struct launch_on &on,
                               const struct tensor &out,
                               const struct tensor &in,
                               float alpha,
                               bool add) {
    const int64_t count = tensor_count(&in);
    const bool wide = is_aligned(out.data) && is_aligned(in.data);
    return launch(on.stream, blocks_for(ceil_div(count, wide ? 4 : 1)),
                  wide ? combine<TO, FROM, 4> : combine<TO, FROM, 1>, (TO *)out.data,
                  (const FROM *)in.data, count, alpha, add);
}

static cudaError_t combine_types(const struct launch_on &on,
                                 const struct tensor &out,
                                 const struct tensor &in,
                                 float alpha,
                                 bool add) {
    if (tensor_count(&in) == 0) {
        return cudaSuccess;
    }
    if ((out.dtype != DTYPE_F32 && out.dtype != DTYPE_BF16) ||
        (in.dtype != DTYPE_F32 && in.dtype != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    const auto run =
        out.dtype == DTYPE_F32
            ? (in.dtype == DTYPE_F32 ? run_combine<float, float> : run_combine<float, bf16>)
            : (in.dtype == DTYPE_F32 ? run_combine<bf16, float> : run_combine<bf16, bf16>);
    return run(on, out, in, alpha, add);
}

cudaError_t launch_cast(const struct launch_on *on, const struct cast *op) {
    return combine_types(*on, op->out, op->in, 1.0f, false);
}

cudaError_t launch_add(const struct launch_on *on, const struct add *op) {
    return combine_types(*on, op->out, op->in, op->alpha, true);
}

static __device__ __forceinline__ float
normalised(uint8_t pixel, const struct image_norm &s, int channel) {
    const float mean = channel == 0 ? s.mean[0] : channel == 1 ? s.mean[1] : s.mean[2];
    const float std = channel == 0   ? s.deviation[0]
                      : channel == 1 ? s.deviation[1]
                                     : s.deviation[2];
    return ((float)pixel * (1.0f / 255.0f) - mean) / std;
}

/* The index of element i of the images in rows of patches of side^2 pixels. */
static __device__ __forceinline__ int64_t patch_place(int64_t i, int64_t side, int64_t width) {
    const int64_t row = i / (3 * width); /* of all images below each other */
    const int64_t column = i % (3 * width);
    const int64_t patch = row / side * (width / side) + column / (3 * side);
    return (patch * side + row % side) * 3 * side + column % (3 * side);
}

/* V > 1: patches of one pixel. */
template <typename T, int V>
static __global__ void normalize_u8(T *out,
                                    const uint8_t *in,
                                    int64_t count,
                                    int64_t side,
                                    int64_t width,
                                    struct image_norm norm) {
    int64_t step;
    for (int64_t i = first_piece<V>(&step); i < count; i += step) {
        const int channel = (int)(i % 3);
        if (V > 1 && i + V <= count) {
            const vector<uint8_t, V> pixels = load_vector<uint8_t, V>(in + i);
            float x[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = normalised(pixels.at[k], norm, (channel + k) % 3);
            }
            store(out + i, x);
            continue;
        }
        for (int64_t e = i; e < count && (V > 1 || e == i); e++) {
            const int64_t to = side == 1 ? e : patch_place(e, side, width);
            put(out + to, normalised(in[e], norm, (int)(e % 3)));
        }
    }
}

template <typename T, int V>
static cudaError_t run_normalize_u8(const struct launch_on &on, const struct normalize_u8 &op) {
    const int64_t count = tensor_count(&op.in);
    return launch(on.stream, blocks_for(ceil_div(count, V)), normalize_u8<T, V>, (T *)op.out.data,
                  (const uint8_t *)op.in.data, count, (int64_t)op.patch, op.in.shape[2], *op.norm);
}

cudaError_t launch_normalize_u8(const struct launch_on *on, const struct normalize_u8 *op) {
    if (tensor_count(&op->in) == 0) {
        return cudaSuccess;
    }
    const bool vectors = op->patch == 1 && is_aligned(op->out.data) && is_aligned(op->in.data);
    return BY_TYPE(op->out.dtype, vectors, run_normalize_u8, *on, *op);
}

/* Keeps the stream busy for `cycles` clock cycles. */
static __global__ void delay(int64_t cycles) {
    const int64_t begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

cudaError_t launch_delay(cudaStream_t stream, int64_t cycles) {
    return launch(stream, blocks_for(1), delay, cycles);
}
