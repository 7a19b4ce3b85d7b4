/*
 * gelu: gelu(x) = x/2 (1 + erf(x / sqrt 2)) and gelu'(x) = Phi(x) + x phi(x), as
 * kernels/cpu_ref/linear.c says them; the bias of the linear layer and its gradient on the way.
 */
#include "kernels/cuda/vector/columns.cuh"

static __device__ __forceinline__ float gelu_of(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

static __device__ __forceinline__ float gelu_slope(float x) {
    const float cumulative = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));
    return cumulative + x * 0.39894228040143267794f * expf(-0.5f * x * x);
}

template <typename T, int V>
static __global__ void gelu(T *out, T *pre, const float *bias, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    if (!p.inside) {
        return;
    }
    float b[V] = {};
    if (bias != NULL) {
        load_f32(b, bias + p.column);
    }
#pragma unroll 2
    for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
        const int64_t e = row * w.width + p.column;
        float x[V];
        load(x, pre + e);
        if (bias != NULL) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = as_stored<T>(x[k] + b[k]);
            }
            store(pre + e, x);
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            x[k] = gelu_of(x[k]);
        }
        store(out + e, x);
    }
}

template <typename T, int V>
static cudaError_t run_gelu(cudaStream_t stream,
                            void *out,
                            void *pre,
                            const float *bias,
                            int64_t rows,
                            int64_t width) {
    const struct walk w = walk_of(rows, width, V);
    return launch(stream, walk_blocks(w), gelu<T, V>, (T *)out, (T *)pre, bias, w);
}

cudaError_t launch_gelu(cudaStream_t stream,
                        enum dtype real,
                        void *out,
                        void *pre,
                        const float *bias,
                        int64_t rows,
                        int64_t width) {
    if (rows == 0 || width == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(real, wide(real, width, out, pre, bias), run_gelu, stream, out, pre, bias, rows,
                   width);
}

template <typename T, int V>
static __global__ void
gelu_bwd(T *dpre, float *partials, const T *dout, const T *pre, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum[V] = {};
    if (p.inside) {
#pragma unroll 2
        for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
            const int64_t e = row * w.width + p.column;
            float x[V];
            float g[V];
            load(x, pre + e);
            load(g, dout + e);
#pragma unroll
            for (int k = 0; k < V; k++) {
                g[k] = as_stored<T>(g[k] * gelu_slope(x[k]));
                sum[k] += g[k];
            }
            store(dpre + e, g);
        }
    }
    if (partials != NULL) {
        store_partials(partials, w, p, sum, 0, 1);
    }
}

size_t launch_gelu_bwd_workspace_bytes(int64_t rows, int64_t width) {
    return walk_partials_bytes(rows, width, 1);
}

template <typename T, int V>
static cudaError_t run_gelu_bwd(cudaStream_t stream,
                                void *dpre,
                                float *dbias,
                                bool add,
                                const void *dout,
                                const void *pre,
                                int64_t rows,
                                int64_t width,
                                void *workspace) {
    const struct walk w = walk_of(rows, width, V);
    float *partials = dbias != NULL ? (float *)workspace : NULL;
    TRY_LAUNCH(launch(stream, walk_blocks(w), gelu_bwd<T, V>, (T *)dpre, partials, (const T *)dout,
                      (const T *)pre, w));
    return dbias != NULL ? launch_merge_one(stream, dbias, add, partials, width, w.chunks)
                         : cudaSuccess;
}

cudaError_t launch_gelu_bwd(cudaStream_t stream,
                            enum dtype real,
                            void *dpre,
                            float *dbias,
                            enum write_mode mode,
                            const void *dout,
                            const void *pre,
                            int64_t rows,
                            int64_t width,
                            void *workspace) {
    if (rows == 0 || width == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(real, wide(real, width, dpre, dout, pre, workspace), run_gelu_bwd, stream, dpre,
                   dbias, mode == WRITE_ADD, dout, pre, rows, width, workspace);
}
