/*
 * batch_norm: statistics, application with residual and ReLU, and the way back, over pre (rows,
 * channels) of a convolution. Two passes over memory each way, the least there can be: a channel's
 * mean is known only at its last row.
 *
 * Statistics are shifted sums: of x - s and (x - s)^2, s the channel's value in row 0, which is
 * some deviations from the mean at most, so that nothing cancels even where the mean is 100
 * deviations.
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

size_t launch_batch_norm_statistics_workspace_bytes(int64_t rows, int64_t channels) {
    return walk_partials_bytes(rows, channels, PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_statistics(cudaStream_t stream,
                                  float *mean,
                                  float *rstd,
                                  struct running running,
                                  const void *pre,
                                  int64_t rows,
                                  int64_t channels,
                                  float eps,
                                  void *workspace) {
    const struct walk w = walk_of(rows, channels, V);
    float *partials = (float *)workspace;
    TRY_LAUNCH(
        launch(stream, walk_blocks(w), statistics_partials<T, V>, partials, (const T *)pre, w));
    const struct statistics_results r = {mean, rstd, running, rows, channels, eps};
    return launch(stream, merge_blocks(channels), statistics_merge<T>, r, (const float *)partials,
                  (const T *)pre, w.chunks);
}

cudaError_t launch_batch_norm_statistics(cudaStream_t stream,
                                         enum dtype real,
                                         float *mean,
                                         float *rstd,
                                         float *running_mean,
                                         float *running_var,
                                         const void *pre,
                                         int64_t rows,
                                         int64_t channels,
                                         float eps,
                                         float momentum,
                                         void *workspace) {
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const struct running running = {running_mean, running_var, momentum};
    return BY_TYPE(real, wide(real, channels, pre, workspace), run_statistics, stream, mean, rstd,
                   running, pre, rows, channels, eps, workspace);
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

cudaError_t launch_batch_norm_running(cudaStream_t stream,
                                      float *mean,
                                      float *rstd,
                                      const float *running_mean,
                                      const float *running_var,
                                      int64_t channels,
                                      float eps) {
    if (channels == 0) {
        return cudaSuccess;
    }
    return launch(stream, dim3((unsigned)ceil_div(channels, THREADS)), running_statistics, mean,
                  rstd, running_mean, running_var, channels, eps);
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
static cudaError_t run_apply(cudaStream_t stream,
                             void *out,
                             const void *pre,
                             const void *residual,
                             const struct norm &norm,
                             bool relu,
                             int64_t rows,
                             int64_t channels) {
    const struct walk w = walk_of(rows, channels, V);
    return launch(stream, walk_blocks(w), apply<T, V>, (T *)out, (const T *)pre,
                  (const T *)residual, norm, relu, w);
}

cudaError_t launch_batch_norm_apply(cudaStream_t stream,
                                    enum dtype real,
                                    void *out,
                                    const void *pre,
                                    const float *mean,
                                    const float *rstd,
                                    const float *gamma,
                                    const float *beta,
                                    const void *residual,
                                    enum activation act,
                                    int64_t rows,
                                    int64_t channels) {
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const struct norm norm = {mean, rstd, gamma, beta};
    const bool vectors =
        is_aligned(mean) && is_aligned(rstd) && is_aligned(gamma) && is_aligned(beta);
    return BY_TYPE(real, vectors && wide(real, channels, out, pre, residual), run_apply, stream,
                   out, pre, residual, norm, act == ACTIVATION_RELU, rows, channels);
}

/* ---- backward: dy = dout through the activation, xhat = (pre - mean) rstd ---- */

template <typename T> struct backward_operands {
    T *dpre, *dresidual; /* dresidual NULL: not wanted */
    bool add_residual;
    const T *dout, *out, *pre; /* out NULL: no activation */
    const float *mean, *rstd, *gamma;
    float *partials, *means; /* means (2, channels): of dy and of dy xhat */
};

/* dy of V elements; what it reads may be what dresidual overwrites, by the same thread later. */
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

size_t launch_batch_norm_bwd_workspace_bytes(int64_t rows, int64_t channels) {
    return means_bytes(channels) + walk_partials_bytes(rows, channels, PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_backward(cudaStream_t stream,
                                void *dpre,
                                void *dresidual,
                                bool add_residual,
                                float *dgamma,
                                float *dbeta,
                                bool add,
                                const void *dout,
                                const void *out,
                                const void *pre,
                                const float *mean,
                                const float *rstd,
                                const float *gamma,
                                int64_t rows,
                                int64_t channels,
                                void *workspace) {
    const struct walk w = walk_of(rows, channels, V);
    float *means = (float *)workspace;
    float *partials = (float *)((char *)workspace + means_bytes(channels));
    const struct backward_operands<T> b = {
        (T *)dpre, (T *)dresidual, add_residual, (const T *)dout, (const T *)out,
            (const T *)pre, mean, rstd, gamma, partials, means
    };
    TRY_LAUNCH(launch(stream, walk_blocks(w), backward_partials<T, V>, b, w));
    TRY_LAUNCH(launch(stream, merge_blocks(channels), backward_merge, dgamma, dbeta, add, means,
                      (const float *)partials, rows, channels, w.chunks));
    return launch(stream, walk_blocks(w), backward_apply<T, V>, b, w);
}

cudaError_t launch_batch_norm_bwd(cudaStream_t stream,
                                  enum dtype real,
                                  void *dpre,
                                  void *dresidual,
                                  enum write_mode dresidual_mode,
                                  float *dgamma,
                                  float *dbeta,
                                  enum write_mode param_mode,
                                  const void *dout,
                                  const void *out,
                                  const void *pre,
                                  const float *mean,
                                  const float *rstd,
                                  const float *gamma,
                                  enum activation act,
                                  int64_t rows,
                                  int64_t channels,
                                  void *workspace) {
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const bool vectors =
        is_aligned(mean) && is_aligned(rstd) && is_aligned(gamma) && is_aligned(workspace);
    return BY_TYPE(real, vectors && wide(real, channels, dpre, dresidual, dout, out, pre),
                   run_backward, stream, dpre, dresidual, dresidual_mode == WRITE_ADD, dgamma,
                   dbeta, param_mode == WRITE_ADD, dout, act == ACTIVATION_RELU ? out : NULL, pre,
                   mean, rstd, gamma, rows, channels, workspace);
}
