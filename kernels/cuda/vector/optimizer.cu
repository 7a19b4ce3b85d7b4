/*
 * optimizer: AdamW and SGD with momentum over flat ranges, which read and write every buffer once;
 * and the sum of squares for clipping.
 */
#include "kernels/cuda/device/common.cuh"

struct adamw_scales {
    float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
    float decay;                      /* 1 - lr weight_decay */
    float step_size;                  /* lr / (1 - beta1^t) */
    float v_scale;                    /* 1 / (1 - beta2^t) */
    float eps, grad_scale;
    bool updates;
};

/* Numbers of the step, computed by one thread of each block and read by the others. */
static __device__ __forceinline__ void adamw_begin(struct adamw_scales &s, const struct adamw &p) {
    if (threadIdx.x == 0) {
        const double update = (double)(p.values->step + 1);
        const double lr = (double)(float)(p.values->lr * (double)p.lr_scale);
        s.beta1 = p.beta1;
        s.beta2 = p.beta2;
        s.rest1 = (float)(1.0 - (double)p.beta1);
        s.rest2 = (float)(1.0 - (double)p.beta2);
        s.decay = (float)(1.0 - lr * (double)p.weight_decay);
        s.step_size = (float)(lr / (1.0 - pow((double)p.beta1, update)));
        s.v_scale = (float)(1.0 / (1.0 - pow((double)p.beta2, update)));
        s.eps = p.eps;
        s.grad_scale = (float)p.values->grad_scale;
        s.updates = p.values->sound != 0;
    }
    __syncthreads();
}

static __device__ __forceinline__ void
adamw_one(float *value, float *m, float *v, float grad, const struct adamw_scales &s) {
    const float g = grad * s.grad_scale;
    *m = s.beta1 * *m + s.rest1 * g;
    *v = s.beta2 * *v + s.rest2 * g * g;
    *value = *value * s.decay - s.step_size * *m / (sqrtf(*v * s.v_scale) + s.eps);
}

template <int V>
static __device__ __forceinline__ void adamw_piece(float *value,
                                                   bf16 *working,
                                                   const float *grad,
                                                   float *m,
                                                   float *v,
                                                   int64_t i,
                                                   const struct adamw_scales &s) {
    float x[V];
    float g[V];
    float first[V];
    float second[V];
    load(x, value + i);
    load(g, grad + i);
    load(first, m + i);
    load(second, v + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        adamw_one(&x[k], &first[k], &second[k], g[k], s);
    }
    store(value + i, x);
    store(m + i, first);
    store(v + i, second);
    if (working != NULL) {
        store(working + i, x);
    }
}

template <int V>
static __global__ void adamw(float *value,
                             bf16 *working,
                             const float *grad,
                             float *m,
                             float *v,
                             int64_t count,
                             struct adamw p) {
    __shared__ struct adamw_scales shared;
    adamw_begin(shared, p);
    const struct adamw_scales s = shared;
    if (!s.updates) {
        return;
    }
    each_piece<V>(count, [&](auto width, int64_t i) {
        adamw_piece<decltype(width)::COUNT>(value, working, grad, m, v, i, s);
    });
}

template <int V> static cudaError_t run_adamw(const struct launch_on *on, const struct adamw *op) {
    const int64_t count = tensor_count(&op->value);
    return launch(on->stream, blocks_for(ceil_div(count, V)), adamw<V>, (float *)op->value.data,
                  (bf16 *)op->working.data, (const float *)op->grad.data, (float *)op->m.data,
                  (float *)op->v.data, count, *op);
}

cudaError_t launch_adamw(const struct launch_on *on, const struct adamw *op) {
    if (op->coupled) {
        return cudaErrorInvalidValue; /* refused earlier by optimizer_check */
    }
    if (tensor_count(&op->value) == 0) {
        return cudaSuccess;
    }
    return wide(DTYPE_F32, 0, op->value.data, op->working.data, op->grad.data, op->m.data,
                op->v.data)
               ? run_adamw<4>(on, op)
               : run_adamw<1>(on, op);
}

template <int V>
static __device__ __forceinline__ void sgdm_piece(float *value,
                                                  bf16 *working,
                                                  const float *grad,
                                                  float *m,
                                                  int64_t i,
                                                  float lr,
                                                  float scale,
                                                  const struct sgdm &p) {
    float x[V];
    float g[V];
    float momentum[V];
    load(x, value + i);
    load(g, grad + i);
    load(momentum, m + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float slope = g[k] * scale + p.weight_decay * x[k];
        momentum[k] = p.momentum * momentum[k] + slope;
        x[k] -= lr * (p.nesterov ? slope + p.momentum * momentum[k] : momentum[k]);
    }
    store(value + i, x);
    store(m + i, momentum);
    if (working != NULL) {
        store(working + i, x);
    }
}

template <int V>
static __global__ void
sgdm(float *value, bf16 *working, const float *grad, float *m, int64_t count, struct sgdm p) {
    if (p.values->sound == 0) {
        return;
    }
    const float lr = (float)p.values->lr;
    const float scale = (float)p.values->grad_scale;
    each_piece<V>(count, [&](auto width, int64_t i) {
        sgdm_piece<decltype(width)::COUNT>(value, working, grad, m, i, lr, scale, p);
    });
}

template <int V> static cudaError_t run_sgdm(const struct launch_on *on, const struct sgdm *op) {
    const int64_t count = tensor_count(&op->value);
    return launch(on->stream, blocks_for(ceil_div(count, V)), sgdm<V>, (float *)op->value.data,
                  (bf16 *)op->working.data, (const float *)op->grad.data, (float *)op->m.data,
                  count, *op);
}

cudaError_t launch_sgdm(const struct launch_on *on, const struct sgdm *op) {
    if (tensor_count(&op->value) == 0) {
        return cudaSuccess;
    }
    return wide(DTYPE_F32, 0, op->value.data, op->working.data, op->grad.data, op->m.data)
               ? run_sgdm<4>(on, op)
               : run_sgdm<1>(on, op);
}

/* ---- sum of squares ---- */

static int64_t squares_blocks(int64_t count) {
    static const int64_t MOST = 512;
    static const int64_t PER_BLOCK = 8 * THREADS * 4; /* at least, except the last */
    const int64_t blocks = ceil_div(count, PER_BLOCK);
    return blocks < MOST ? blocks : MOST;
}

template <typename T, int V>
static __global__ void squares_partials(double *partials, const T *in, int64_t count) {
    __shared__ double room[WARPS];
    const int64_t step = (int64_t)gridDim.x * THREADS * V;
    double sum = 0.0;
#pragma unroll 4
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V; i < count; i += step) {
        float x[V] = {};
        if (i + V <= count) {
            load(x, in + i);
        } else {
            for (int k = 0; k < V && i + k < count; k++) {
                x[k] = to_f32(in[i + k]);
            }
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum += (double)x[k] * (double)x[k];
        }
    }
    sum = block_sum_once(sum, room);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

static __global__ void squares_merge(double *out, const double *partials, int32_t blocks) {
    __shared__ double room[WARPS];
    double sum = 0.0;
    for (int32_t i = (int32_t)threadIdx.x; i < blocks; i += THREADS) {
        sum += partials[i];
    }
    sum = block_sum_once(sum, room);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

size_t sum_squares_workspace_bytes(const struct sum_squares *op) {
    return (size_t)squares_blocks(tensor_count(&op->in)) * sizeof(double);
}

template <typename T, int V>
static cudaError_t run_sum_squares(const struct launch_on &on, const struct sum_squares &op) {
    const int64_t count = tensor_count(&op.in);
    const int64_t blocks = squares_blocks(count);
    double *partials = (double *)on.workspace;
    if (count > 0) {
        TRY_LAUNCH(launch(on.stream, dim3((unsigned)blocks), squares_partials<T, V>, partials,
                          (const T *)op.in.data, count));
    }
    return launch(on.stream, dim3(1), squares_merge, (double *)op.sum.data, partials,
                  (int32_t)blocks);
}

LAUNCHER(sum_squares, sum_squares, in, is_aligned(op->in.data))

/* ---- from sums to the factor of the gradients ---- */

static __global__ void grad_scale(struct step_values *values, int32_t count, double clip_norm) {
    if (threadIdx.x != 0) {
        return;
    }
    const double norm = sqrt(values->squares[0] + (count > 1 ? values->squares[1] : 0.0));
    values->grad_norm = norm;
    values->grad_scale = clip_norm > 0.0 && norm > clip_norm ? clip_norm / norm : 1.0;
    if (!isfinite(norm)) {
        values->sound = 0;
    }
}

cudaError_t launch_grad_scale(const struct launch_on *on, const struct grad_scale *op) {
    return launch(on->stream, dim3(1), grad_scale, op->values, op->count, op->clip_norm);
}
