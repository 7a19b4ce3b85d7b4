/*
 * batch_norm: statistics, application with residual and ReLU, and the backward pass, over pre
 * (rows, channels) of a convolution. Each direction takes two passes over memory, the minimum: a
 * channel's mean is known only after its last row.
 *
 * Statistics are shifted sums: of x - s and (x - s)^2, s the channel's value in row 0, which is at
 * most a few deviations from the mean: no cancellation even where the mean is 100 deviations.
 */
#include "kernels/cuda/vector/columns.cuh"

enum { PASS_PARTIALS = 2 };

template <typename T, int V>
static __global__ void statistics_partials(float *partials, const T *pre, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum[V] = {};
    float squares[V] = {};
    if (p.inside) {
        float shift[V];
        load(shift, pre + p.column);
#pragma unroll 4
        for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
            float x[V];
            load(x, pre + row * w.width + p.column);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float d = x[k] - shift[k];
                sum[k] += d;
                squares[k] += d * d;
            }
        }
    }
    store_partials(partials, w, p, sum, 0, PASS_PARTIALS);
    store_partials(partials, w, p, squares, 1, PASS_PARTIALS);
}

struct running {
    float *mean, *var; /* NULL: not moved */
    float momentum;
};

struct statistics_results {
    float *mean, *rstd;
    struct running running;
    int64_t rows, channels;
    float eps;
};

/* From the sums of x - shift and (x - shift)^2 over all rows. */
template <typename T>
static __global__ void
statistics_merge(struct statistics_results r, const float *partials, const T *pre, int32_t chunks) {
    double sum[PASS_PARTIALS];
    int64_t c;
    if (!merge_columns(sum, &c, partials, r.channels, chunks)) {
        return;
    }
    const double offset = sum[0] / (double)r.rows;
    const double mean = (double)to_f32(pre[c]) + offset;
    const double squares = fmax(sum[1] - sum[0] * offset, 0.0);
    const double variance = squares / (double)r.rows;
    r.mean[c] = (float)mean;
    r.rstd[c] = (float)(1.0 / sqrt(variance + (double)r.eps));
    if (r.running.mean != NULL) {
        const double unbiased = r.rows > 1 ? squares / (double)(r.rows - 1) : variance;
        const double weight = (double)r.running.momentum;
        r.running.mean[c] = (float)((1.0 - weight) * (double)r.running.mean[c] + weight * mean);
        r.running.var[c] = (float)((1.0 - weight) * (double)r.running.var[c] + weight * unbiased);
    }
}

static int64_t rows_of(const struct tensor &pre) {
    return tensor_count(&pre) / pre.shape[3];
}

size_t batch_norm_statistics_workspace_bytes(const struct conv_bn *op) {
    return walk_partials_bytes(rows_of(op->pre), op->pre.shape[3], PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_statistics(const struct launch_on &on, const struct conv_bn &op) {
    const int64_t rows = rows_of(op.pre);
    const int64_t channels = op.pre.shape[3];
    const struct walk w = walk_of(rows, channels, V);
    float *partials = (float *)on.workspace;
    const T *pre = (const T *)op.pre.data;
    TRY_LAUNCH(launch(on.stream, walk_blocks(w), statistics_partials<T, V>, partials, pre, w));
    const struct statistics_results r = {
        (float *)op.mean.data,
        (float *)op.rstd.data,
        {(float *)op.running_mean.data, (float *)op.running_var.data, op.momentum},
        rows,
        channels,
        op.eps,
    };
    return launch(on.stream, merge_blocks(channels), statistics_merge<T>, r,
                  (const float *)partials, pre, w.chunks);
}

cudaError_t launch_batch_norm_statistics(const struct launch_on *on, const struct conv_bn *op) {
    const enum dtype real = op->pre.dtype;
    return BY_TYPE(real, wide(real, op->pre.shape[3], op->pre.data, on->workspace), run_statistics,
                   *on, *op);
}

static __global__ void running_statistics(float *mean,
                                          float *rstd,
                                          const float *running_mean,
                                          const float *running_var,
                                          int64_t channels,
                                          float eps) {
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c < channels) {
        mean[c] = running_mean[c];
        rstd[c] = (float)(1.0 / sqrt((double)running_var[c] + (double)eps));
    }
}

cudaError_t launch_batch_norm_running(const struct launch_on *on, const struct conv_bn *op) {
    const int64_t channels = op->mean.shape[0];
    return launch(on->stream, dim3((unsigned)ceil_div(channels, THREADS)), running_statistics,
                  (float *)op->mean.data, (float *)op->rstd.data,
                  (const float *)op->running_mean.data, (const float *)op->running_var.data,
                  channels, op->eps);
}

/* ---- application ---- */

struct norm {
    const float *mean, *rstd, *gamma, *beta; /* (channels) */
};

template <typename T, int V>
static __global__ void apply(T *out,
                             const T *pre,
                             const T *residual, /* NULL: none */
                             struct norm norm,
                             bool relu,
                             struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, true);
    if (!p.inside) {
        return;
    }
    float mean[V];
    float beta[V];
    float scale[V];
    float rstd[V];
    load_f32(mean, norm.mean + p.column);
    load_f32(beta, norm.beta + p.column);
    load_f32(scale, norm.gamma + p.column);
    load_f32(rstd, norm.rstd + p.column);
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale[k] *= rstd[k];
    }
#pragma unroll 4
    for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
        const int64_t e = row * w.width + p.column;
        float x[V];
        float added[V] = {};
        load(x, pre + e);
        if (residual != NULL) {
            load(added, residual + e);
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            x[k] = (x[k] - mean[k]) * scale[k] + beta[k] + added[k];
            x[k] = relu && x[k] < 0.0f ? 0.0f : x[k];
        }
        store(out + e, x);
    }
}

template <typename T, int V>
static cudaError_t run_apply(const struct launch_on &on, const struct conv_bn &op) {
    const struct walk w = walk_of(rows_of(op.pre), op.pre.shape[3], V);
    const struct norm norm = {(const float *)op.mean.data, (const float *)op.rstd.data,
                              (const float *)op.gamma.data, (const float *)op.beta.data};
    return launch(on.stream, walk_blocks(w), apply<T, V>, (T *)op.out.data, (const T *)op.pre.data,
                  (const T *)op.residual.data, norm, op.conv.act == ACTIVATION_RELU, w);
}

cudaError_t launch_batch_norm_apply(const struct launch_on *on, const struct conv_bn *op) {
    const enum dtype real = op->pre.dtype;
    const bool vectors =
        is_aligned(op->mean.data) && is_aligned(op->rstd.data) && is_aligned(op->gamma.data) &&
        is_aligned(op->beta.data) &&
        wide(real, op->pre.shape[3], op->out.data, op->pre.data, op->residual.data);
    return BY_TYPE(real, vectors, run_apply, *on, *op);
}

/* ---- backward: dy = dout through the activation, xhat = (pre - mean) rstd ---- */

template <typename T> struct backward_operands {
    T *dpre, *dresidual; /* dresidual NULL: omitted */
    bool add_residual;
    const T *dout, *out, *pre; /* out NULL: no activation */
    const float *mean, *rstd, *gamma;
    float *partials, *means; /* means (2, channels): of dy and of dy xhat */
};

/* dy of V elements. It may read memory that the same thread later overwrites with dresidual. */
template <typename T, int V>
static __device__ __forceinline__ void
load_dy(float (&dy)[V], const struct backward_operands<T> &b, int64_t e) {
    load(dy, b.dout + e);
    if (b.out != NULL) {
        float y[V];
        load(y, b.out + e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            dy[k] = y[k] <= 0.0f ? 0.0f : dy[k];
        }
    }
}

template <typename T, int V>
static __global__ void backward_partials(struct backward_operands<T> b, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum_dy[V] = {};
    float sum_dy_xhat[V] = {};
    if (p.inside) {
        float mean[V];
        float rstd[V];
        load_f32(mean, b.mean + p.column);
        load_f32(rstd, b.rstd + p.column);
#pragma unroll 2
        for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
            const int64_t e = row * w.width + p.column;
            float dy[V];
            float x[V];
            load_dy(dy, b, e);
            load(x, b.pre + e);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum_dy[k] += dy[k];
                sum_dy_xhat[k] += dy[k] * ((x[k] - mean[k]) * rstd[k]);
            }
        }
    }
    store_partials(b.partials, w, p, sum_dy, 0, PASS_PARTIALS);
    store_partials(b.partials, w, p, sum_dy_xhat, 1, PASS_PARTIALS);
}

static __global__ void backward_merge(float *dgamma,
                                      float *dbeta,
                                      bool add,
                                      float *means,
                                      const float *partials,
                                      int64_t rows,
                                      int64_t channels,
                                      int32_t chunks) {
    double sum[PASS_PARTIALS];
    int64_t c;
    if (!merge_columns(sum, &c, partials, channels, chunks)) {
        return;
    }
    put_mode(dbeta + c, (float)sum[0], add);
    put_mode(dgamma + c, (float)sum[1], add);
    means[c] = (float)(sum[0] / (double)rows);
    means[channels + c] = (float)(sum[1] / (double)rows);
}

template <typename T, int V>
static __global__ void backward_apply(struct backward_operands<T> b, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, true);
    if (!p.inside) {
        return;
    }
    float mean[V];
    float rstd[V];
    float scale[V];
    float mean_dy[V];
    float mean_dy_xhat[V];
    load_f32(mean, b.mean + p.column);
    load_f32(rstd, b.rstd + p.column);
    load_f32(scale, b.gamma + p.column);
    load_f32(mean_dy, b.means + p.column);
    load_f32(mean_dy_xhat, b.means + w.width + p.column);
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale[k] *= rstd[k];
    }
#pragma unroll 2
    for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
        const int64_t e = row * w.width + p.column;
        float dy[V];
        float x[V];
        load_dy(dy, b, e);
        load(x, b.pre + e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float xhat = (x[k] - mean[k]) * rstd[k];
            x[k] = scale[k] * (dy[k] - mean_dy[k] - xhat * mean_dy_xhat[k]);
        }
        store(b.dpre + e, x);
        if (b.dresidual != NULL) {
            store_mode(b.dresidual + e, dy, b.add_residual);
        }
    }
}

static size_t means_bytes(int64_t channels) { /* of backward_operands, then the partials */
    return (size_t)ceil_div(2 * channels * (int64_t)sizeof(float), 16) * 16;
}

size_t batch_norm_bwd_workspace_bytes(const struct conv_bn_bwd *op) {
    const int64_t channels = op->pre.shape[3];
    return means_bytes(channels) + walk_partials_bytes(rows_of(op->pre), channels, PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_backward(const struct launch_on &on, const struct conv_bn_bwd &op) {
    const int64_t rows = rows_of(op.pre);
    const int64_t channels = op.pre.shape[3];
    const struct walk w = walk_of(rows, channels, V);
    float *means = (float *)on.workspace;
    float *partials = (float *)((char *)on.workspace + means_bytes(channels));
    const struct backward_operands<T> b = {
        (T *)op.dpre.data, (T *)op.dresidual.data, op.dresidual_mode == WRITE_ADD,
            (const T *)op.dout.data, op.conv.act == ACTIVATION_RELU ? (const T *)op.out.data : NULL,
            (const T *)op.pre.data, (const float *)op.mean.data, (const float *)op.rstd.data,
            (const float *)op.gamma.data, partials, means,
    };
    TRY_LAUNCH(launch(on.stream, walk_blocks(w), backward_partials<T, V>, b, w));
    TRY_LAUNCH(launch(on.stream, merge_blocks(channels), backward_merge, (float *)op.dgamma.data,
                      (float *)op.dbeta.data, op.param_mode == WRITE_ADD, means,
                      (const float *)partials, rows, channels, w.chunks));
    return launch(on.stream, walk_blocks(w), backward_apply<T, V>, b, w);
}

cudaError_t launch_batch_norm_bwd(const struct launch_on *on, const struct conv_bn_bwd *op) {
    const enum dtype real = op->pre.dtype;
    const bool vectors = is_aligned(op->mean.data) && is_aligned(op->rstd.data) &&
                         is_aligned(op->gamma.data) && is_aligned(on->workspace) &&
                         wide(real, op->pre.shape[3], op->dpre.data, op->dresidual.data,
                              op->dout.data, op->out.data, op->pre.data);
    return BY_TYPE(real, vectors, run_backward, *on, *op);
}
