/*
 * gelu: the GELUs and their slopes, as in kernels/cpu_ref/linear.c, together with the gradient of
 * the linear layer's bias. The quick one and the tanh one are x sigmoid(z), z = a x + b x^3.
 */
#include "kernels/cuda/vector/columns.cuh"

/* sigmoid(z); *slope = dz/dx. x^2 stays finite: beyond that the sigmoid is 0 or 1. */
static __device__ __forceinline__ float share_of(float x, bool quick, float *slope) {
    const float a = quick ? 1.702f : 1.5957691216f; /* 2 sqrt(2/pi) */
    const float b = quick ? 0.0f : 0.044715f * 1.5957691216f;
    const float square = fminf(x * x, 1e30f);
    *slope = a + 3.0f * b * square;
    return 1.0f / (1.0f + expf(-x * (a + b * square)));
}

static __device__ __forceinline__ float gelu_of(float x, enum activation act) {
    float slope;
    return act == ACTIVATION_GELU ? 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f))
                                  : x * share_of(x, act == ACTIVATION_QUICK_GELU, &slope);
}

static __device__ __forceinline__ float gelu_slope(float x, enum activation act) {
    if (act != ACTIVATION_GELU) {
        float slope;
        const float s = share_of(x, act == ACTIVATION_QUICK_GELU, &slope);
        return s + x * s * (1.0f - s) * slope;
    }
    const float cumulative = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));
    return cumulative + x * 0.39894228040143267794f * expf(-0.5f * x * x);
}

template <typename T, int V>
static __global__ void gelu(T *out, const T *pre, enum activation act, struct walk w) {
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
            x[k] = gelu_of(x[k], act);
        }
        store(out + e, x);
    }
}

template <typename T, int V>
static cudaError_t run_gelu(const struct launch_on &on, const struct linear &op) {
    const struct walk w = walk_of(op.out.shape[0], op.out.shape[1], V);
    return launch(on.stream, walk_blocks(w), gelu<T, V>, (T *)op.out.data, (const T *)op.pre.data,
                  op.act, w);
}

LAUNCHER(gelu, linear, out, wide(op->out, op->pre))

template <typename T, int V>
static __global__ void gelu_bwd(T *dpre,
                                float *partials,
                                const T *dout,
                                const T *pre,
                                enum activation act,
                                struct walk w) {
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
                g[k] = as_stored<T>(g[k] * gelu_slope(x[k], act));
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
                      (const T *)op.dout.data, (const T *)op.pre.data, op.act, w));
    return dbias != NULL ? launch_merge_one(on.stream, dbias, op.param_mode == WRITE_ADD, partials,
                                            width, w.chunks)
                         : cudaSuccess;
}

LAUNCHER(gelu_bwd, linear_bwd, dout, wide(op->dout, op->dpre, op->pre))
