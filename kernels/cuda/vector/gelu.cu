/*
 * gelu: both GELUs and their slopes, as in kernels/cpu_ref/linear.c, together with the gradient of
 * the linear layer's bias.
 */
#include "kernels/cuda/vector/columns.cuh"

/* sigmoid(1.702 x) */
static __device__ __forceinline__ float quick_share(float x) {
    return 1.0f / (1.0f + expf(-1.702f * x));
}

static __device__ __forceinline__ float gelu_of(float x, bool quick) {
    return quick ? x * quick_share(x) : 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

static __device__ __forceinline__ float gelu_slope(float x, bool quick) {
    if (quick) {
        const float s = quick_share(x);
        return s + 1.702f * x * s * (1.0f - s);
    }
    const float cumulative = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));
    return cumulative + x * 0.39894228040143267794f * expf(-0.5f * x * x);
}

template <typename T, int V>
static __global__ void gelu(T *out, const T *pre, bool quick, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    if (!p.inside) {
        return;
    }
#pragma unroll 2
    for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
        const int64_t e = row * w.width + p.column;
        float x[V];
        load(x, pre + e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            x[k] = gelu_of(x[k], quick);
        }
        store(out + e, x);
    }
}

template <typename T, int V>
static cudaError_t run_gelu(const struct launch_on &on, const struct linear &op) {
    const struct walk w = walk_of(op.out.shape[0], op.out.shape[1], V);
    return launch(on.stream, walk_blocks(w), gelu<T, V>, (T *)op.out.data, (const T *)op.pre.data,
                  op.act == ACTIVATION_QUICK_GELU, w);
}

LAUNCHER(gelu, linear, out, wide(op->out, op->pre))

template <typename T, int V>
static __global__ void
gelu_bwd(T *dpre, float *partials, const T *dout, const T *pre, bool quick, struct walk w) {
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
                g[k] = as_stored<T>(g[k] * gelu_slope(x[k], quick));
                sum[k] += g[k];
            }
            store(dpre + e, g);
        }
    }
    if (partials != NULL) {
        store_partials(partials, w, p, sum, 0, 1);
    }
}

size_t gelu_bwd_workspace_bytes(const struct linear_bwd *op) {
    return walk_partials_bytes(op->dout.shape[0], op->dout.shape[1], 1);
}

template <typename T, int V>
static cudaError_t run_gelu_bwd(const struct launch_on &on, const struct linear_bwd &op) {
    const int64_t width = op.dout.shape[1];
    const struct walk w = walk_of(op.dout.shape[0], width, V);
    float *dbias = (float *)op.dbias.data;
    float *partials = dbias != NULL ? (float *)on.workspace : NULL;
    TRY_LAUNCH(launch(on.stream, walk_blocks(w), gelu_bwd<T, V>, (T *)op.dpre.data, partials,
                      (const T *)op.dout.data, (const T *)op.pre.data,
                      op.act == ACTIVATION_QUICK_GELU, w));
    return dbias != NULL ? launch_merge_one(on.stream, dbias, op.param_mode == WRITE_ADD, partials,
                                            width, w.chunks)
                         : cudaSuccess;
}

LAUNCHER(gelu_bwd, linear_bwd, dout, wide(op->dout, op->dpre, op->pre))
