/*
 * normalise: what a batch norm and its activation do to an element. A pass of its own
 * (batch_norm.cu) and a product that does it to what it reads (conv_1x1.cu) give the same bits.
 */
#ifndef KERNELS_CUDA_CONV_NORMALISE_CUH
#define KERNELS_CUDA_CONV_NORMALISE_CUH

#include "kernels/cuda/device/common.cuh"

/* What a norm does to V columns: (x - mean) scale + beta. */
template <int V> struct columns_norm { float mean[V], scale[V], beta[V]; };

template <int V>
static __device__ __forceinline__ void
load_norm(columns_norm<V> *to, const struct launch_norm &n, int64_t column) {
    float rstd[V];
    load_f32(to->mean, n.mean + column);
    load_f32(to->beta, n.beta + column);
    load_f32(to->scale, n.gamma + column);
    load_f32(rstd, n.rstd + column);
#pragma unroll
    for (int k = 0; k < V; k++) {
        to->scale[k] *= rstd[k];
    }
}

template <int V>
static __device__ __forceinline__ void normalise(float (&x)[V], const columns_norm<V> &n) {
#pragma unroll
    for (int k = 0; k < V; k++) {
        x[k] = (x[k] - n.mean[k]) * n.scale[k] + n.beta[k];
    }
}

template <int V> static __device__ __forceinline__ void activate(float (&x)[V], bool relu) {
#pragma unroll
    for (int k = 0; k < V; k++) {
        x[k] = relu && x[k] < 0.0f ? 0.0f : x[k];
    }
}

#endif
