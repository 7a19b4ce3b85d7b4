/*
 * input: what moves whole tensors element by element: fill, cast, add, and pixels to numbers.
 *
 * One thread takes V neighbours at a time; the last piece of a range goes element by element.
 */
#include "kernels/cuda/device/common.cuh"

/* Begin of this thread's first piece of V elements, and the distance to its next. */
template <int V> static __device__ __forceinline__ int64_t first_piece(int64_t *step) {
    *step = (int64_t)gridDim.x * THREADS * V;
    return ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
}

template <typename T, int V> static __global__ void fill(T *out, int64_t count, float value) {
    int64_t step;
    for (int64_t i = first_piece<V>(&step); i < count; i += step) {
        if (i + V <= count) {
            float x[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = value;
            }
            store(out + i, x);
            continue;
        }
        for (int64_t e = i; e < count; e++) {
            put(out + e, value);
        }
    }
}

template <typename T, int V>
static cudaError_t run_fill(cudaStream_t stream, void *out, int64_t count, float value) {
    return launch(stream, blocks_for(ceil_div(count, V)), fill<T, V>, (T *)out, count, value);
}

cudaError_t
launch_fill(cudaStream_t stream, enum dtype real, void *out, int64_t count, float value) {
    if (count == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(real, is_aligned(out), run_fill, stream, out, count, value);
}

/* out = in, or out += alpha in. V: 4 elements are 16 bytes of F32 and half of that of BF16.
 */
template <typename TO, typename FROM, int V>
static __global__ void combine(TO *out, const FROM *in, int64_t count, float alpha, bool add) {
    int64_t step;
    for (int64_t i = first_piece<V>(&step); i < count; i += step) {
        if (i + V <= count) {
            float x[V];
            load(x, in + i);
            if (add) {
                float before[V];
                load(before, out + i);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    x[k] = before[k] + alpha * x[k];
                }
            }
            store(out + i, x);
            continue;
        }
        for (int64_t e = i; e < count; e++) {
            put(out + e, add ? to_f32(out[e]) + alpha * to_f32(in[e]) : to_f32(in[e]));
        }
    }
}

template <typename TO, typename FROM>
static cudaError_t
run_combine(cudaStream_t stream, void *out, const void *in, int64_t count, float alpha, bool add) {
    if (is_aligned(out) && is_aligned(in)) {
        return launch(stream, blocks_for(ceil_div(count, 4)), combine<TO, FROM, 4>, (TO *)out,
                      (const FROM *)in, count, alpha, add);
    }
    return launch(stream, blocks_for(count), combine<TO, FROM, 1>, (TO *)out, (const FROM *)in,
                  count, alpha, add);
}

static cudaError_t combine_types(cudaStream_t stream,
                                 enum dtype to,
                                 void *out,
                                 enum dtype from,
                                 const void *in,
                                 int64_t count,
                                 float alpha,
                                 bool add) {
    if (count == 0) {
        return cudaSuccess;
    }
    if (to == DTYPE_F32 && from == DTYPE_F32) {
        return run_combine<float, float>(stream, out, in, count, alpha, add);
    }
    if (to == DTYPE_F32 && from == DTYPE_BF16) {
        return run_combine<float, bf16>(stream, out, in, count, alpha, add);
    }
    if (to == DTYPE_BF16 && from == DTYPE_F32) {
        return run_combine<bf16, float>(stream, out, in, count, alpha, add);
    }
    if (to == DTYPE_BF16 && from == DTYPE_BF16) {
        return run_combine<bf16, bf16>(stream, out, in, count, alpha, add);
    }
    return cudaErrorInvalidValue;
}

cudaError_t launch_cast(cudaStream_t stream,
                        enum dtype to,
                        void *out,
                        enum dtype from,
                        const void *in,
                        int64_t count) {
    return combine_types(stream, to, out, from, in, count, 1.0f, false);
}

cudaError_t launch_add(cudaStream_t stream,
                       enum dtype to,
                       void *out,
                       enum dtype from,
                       const void *in,
                       int64_t count,
                       float alpha) {
    return combine_types(stream, to, out, from, in, count, alpha, true);
}

struct channel_scale {
    float mean[3], std[3];
};

static __device__ __forceinline__ float
normalised(uint8_t pixel, const struct channel_scale &s, int channel) {
    const float mean = channel == 0 ? s.mean[0] : channel == 1 ? s.mean[1] : s.mean[2];
    const float std = channel == 0 ? s.std[0] : channel == 1 ? s.std[1] : s.std[2];
    return ((float)pixel * (1.0f / 255.0f) - mean) / std;
}

template <typename T, int V>
static __global__ void
normalize_u8(T *out, const uint8_t *in, int64_t count, struct channel_scale scale) {
    int64_t step;
    for (int64_t i = first_piece<V>(&step); i < count; i += step) {
        const int channel = (int)(i % 3);
        if (i + V <= count) {
            const vector<uint8_t, V> pixels = load_vector<uint8_t, V>(in + i);
            float x[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = normalised(pixels.at[k], scale, (channel + k) % 3);
            }
            store(out + i, x);
            continue;
        }
        for (int64_t e = i; e < count; e++) {
            put(out + e, normalised(in[e], scale, (int)(e % 3)));
        }
    }
}

template <typename T, int V>
static cudaError_t run_normalize_u8(cudaStream_t stream,
                                    void *out,
                                    const uint8_t *in,
                                    int64_t count,
                                    struct channel_scale scale) {
    return launch(stream, blocks_for(ceil_div(count, V)), normalize_u8<T, V>, (T *)out, in, count,
                  scale);
}

cudaError_t launch_normalize_u8(cudaStream_t stream,
                                enum dtype real,
                                void *out,
                                const uint8_t *in,
                                int64_t count,
                                const float mean[3],
                                const float std[3]) {
    if (count == 0) {
        return cudaSuccess;
    }
    struct channel_scale scale;
    for (int c = 0; c < 3; c++) {
        scale.mean[c] = mean[c];
        scale.std[c] = std[c];
    }
    return BY_TYPE(real, is_aligned(out) && is_aligned(in), run_normalize_u8, stream, out, in,
                   count, scale);
}

/* Keeps the stream busy for that many clock cycles. */
static __global__ void delay(int64_t cycles) {
    const int64_t begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

cudaError_t launch_delay(cudaStream_t stream, int64_t cycles) {
    return launch(stream, blocks_for(1), delay, cycles);
}
