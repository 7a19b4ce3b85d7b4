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
#include "kernels/cuda/conv/conv_fused_internal.h"
#include "kernels/cuda/conv/normalise.cuh"

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

/* From sums of x - shift and (x - shift)^2 over all rows. */
static __device__ __forceinline__ void finish_statistics(const struct statistics_results &r,
                                                         int64_t c,
                                                         float shift,
                                                         const double (&sum)[2]) {
    const double offset = sum[0] / (double)r.rows;
    const double m = (double)shift + offset;
    const double squares = fmax(sum[1] - sum[0] * offset, 0.0);
    const double variance = squares / (double)r.rows;
    r.mean[c] = (float)m;
    r.rstd[c] = (float)(1.0 / sqrt(variance + (double)r.eps));
    if (r.running.mean != NULL) {
        const double unbiased = r.rows > 1 ? squares / (double)(r.rows - 1) : variance;
        const double weight = (double)r.running.momentum;
        r.running.mean[c] = (float)((1.0 - weight) * (double)r.running.mean[c] + weight * m);
        r.running.var[c] = (float)((1.0 - weight) * (double)r.running.var[c] + weight * unbiased);
    }
}

template <typename T>
static __global__ void
statistics_merge(struct statistics_results r, const float *partials, const T *pre, int32_t chunks) {
    double sum[PASS_PARTIALS];
    int64_t c;
    if (merge_columns(sum, &c, partials, r.channels, chunks)) {
        finish_statistics(r, c, to_f32(pre[c]), sum);
    }
}

/* The same of chunks of rows that each have their first row for a shift: what they hold is brought
 * to the shift of the first chunk, in double. */
template <typename T>
static __global__ void statistics_merge_chunks(struct statistics_results r,
                                               const float *partials,
                                               const T *pre,
                                               int64_t rows_per_chunk,
                                               int32_t chunks) {
    double sum[PASS_PARTIALS];
    int64_t c;
    const bool goes_on = merge_chunks(
        sum, &c, r.channels, chunks,
        [=](double(&to)[PASS_PARTIALS], int32_t chunk, int64_t column) {
            const float *mine = partials + (int64_t)chunk * PASS_PARTIALS * r.channels + column;
            const int64_t first = (int64_t)chunk * rows_per_chunk;
            const int64_t left = r.rows - first;
            const double count = (double)(left < rows_per_chunk ? left : rows_per_chunk);
            const double mean = (double)mine[0] / count; /* beyond the chunk's shift */
            const double offset = (double)to_f32(pre[first * r.channels + column]) -
                                  (double)to_f32(pre[column]) + mean;
            to[0] += count * offset;
            to[1] += (double)mine[r.channels] - (double)mine[0] * mean + count * offset * offset;
        });
    if (goes_on) {
        finish_statistics(r, c, to_f32(pre[c]), sum);
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

cudaError_t launch_batch_norm_statistics_merge(cudaStream_t stream,
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
                                               const float *partials,
                                               int64_t rows_per_chunk,
                                               int32_t chunks) {
    const struct running running = {running_mean, running_var, momentum};
    const struct statistics_results r = {mean, rstd, running, rows, channels, eps};
    if (real == DTYPE_F16) {
        return launch(stream, merge_blocks(channels), statistics_merge_chunks<f16>, r, partials,
                      (const f16 *)pre, rows_per_chunk, chunks);
    }
    return launch(stream, merge_blocks(channels), statistics_merge_chunks<bf16>, r, partials,
                  (const bf16 *)pre, rows_per_chunk, chunks);
}

static __global__ void statistics_sums(struct statistics_results r, const float *sums) {
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c < r.channels) {
        const double both[PASS_PARTIALS] = {(double)sums[c], (double)sums[r.channels + c]};
        finish_statistics(r, c, 0.0f, both);
    }
}

cudaError_t launch_batch_norm_statistics_sums(cudaStream_t stream,
                                              float *mean,
                                              float *rstd,
                                              float *running_mean,
                                              float *running_var,
                                              const float *sums,
                                              int64_t rows,
                                              int64_t channels,
                                              float eps,
                                              float momentum) {
    const struct running running = {running_mean, running_var, momentum};
    const struct statistics_results r = {mean, rstd, running, rows, channels, eps};
    return launch(stream, dim3((unsigned)ceil_div(channels, THREADS)), statistics_sums, r, sums);
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

template <typename T> struct apply_operands {
    T *out;
    const T *pre, *residual; /* residual NULL: none */
    struct launch_norm norm,
        residual_norm; /* the latter of a residual that is not normalised yet */
    bool relu;
};

/* DUAL: the residual is normalised here too, and rounded as it would have been when stored. */
template <typename T, int V, bool DUAL>
static __global__ void apply(struct apply_operands<T> a, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, true);
    if (!p.inside) {
        return;
    }
    columns_norm<V> norm;
    columns_norm<V> residual_norm;
    load_norm(&norm, a.norm, p.column);
    if (DUAL) {
        load_norm(&residual_norm, a.residual_norm, p.column);
    }
#pragma unroll 4
    for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
        const int64_t e = row * w.width + p.column;
        float x[V];
        load(x, a.pre + e);
        normalise(x, norm);
        if (DUAL || a.residual != NULL) {
            float r[V];
            load(r, a.residual + e);
            if (DUAL) {
                normalise(r, residual_norm);
            }
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] += DUAL ? as_stored<T>(r[k]) : r[k];
            }
        }
        activate(x, a.relu);
        store(a.out + e, x);
    }
}

template <typename T, int V>
static cudaError_t run_apply(cudaStream_t stream,
                             void *out,
                             const void *pre,
                             const struct launch_norm &norm,
                             const void *residual,
                             const struct launch_norm *residual_norm,
                             bool relu,
                             int64_t rows,
                             int64_t channels) {
    const struct walk w = walk_of(rows, channels, V);
    const bool dual = residual_norm != NULL;
    const struct apply_operands<T> a = {
        (T *)out, (const T *)pre, (const T *)residual, norm, dual ? *residual_norm : norm, relu
    };
    return launch(stream, walk_blocks(w), dual ? apply<T, V, true> : apply<T, V, false>, a, w);
}

static bool norm_is_aligned(const struct launch_norm *n) {
    return n == NULL || (is_aligned(n->mean) && is_aligned(n->rstd) && is_aligned(n->gamma) &&
                         is_aligned(n->beta));
}

cudaError_t launch_batch_norm_apply(cudaStream_t stream,
                                    enum dtype real,
                                    void *out,
                                    const void *pre,
                                    const struct launch_norm *norm,
                                    const void *residual,
                                    const struct launch_norm *residual_norm,
                                    enum activation act,
                                    int64_t rows,
                                    int64_t channels) {
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const bool vectors = norm_is_aligned(norm) && norm_is_aligned(residual_norm);
    return BY_TYPE(real, vectors && wide(real, channels, out, pre, residual), run_apply, stream,
                   out, pre, *norm, residual, residual_norm, act == ACTIVATION_RELU, rows,
                   channels);
}

/* ---- backward: dy = dout behind the activation, xhat = (pre - mean) rstd ---- */

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

size_t launch_batch_norm_bwd_sums_bytes(int64_t rows, int64_t channels) {
    return walk_partials_bytes(rows, channels, PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_backward_sums(cudaStream_t stream,
                                     float *partials,
                                     int32_t *chunks,
                                     const void *dout,
                                     const void *out,
                                     const void *pre,
                                     const float *mean,
                                     const float *rstd,
                                     int64_t rows,
                                     int64_t channels) {
    const struct walk w = walk_of(rows, channels, V);
    struct backward_operands<T> b = {};
    b.dout = (const T *)dout;
    b.out = (const T *)out;
    b.pre = (const T *)pre;
    b.mean = mean;
    b.rstd = rstd;
    b.partials = partials;
    *chunks = w.chunks;
    return launch(stream, walk_blocks(w), backward_partials<T, V>, b, w);
}

cudaError_t launch_batch_norm_bwd_sums(cudaStream_t stream,
                                       enum dtype real,
                                       float *partials,
                                       int32_t *chunks,
                                       const void *dout,
                                       const void *out,
                                       const void *pre,
                                       const float *mean,
                                       const float *rstd,
                                       enum activation act,
                                       int64_t rows,
                                       int64_t channels) {
    *chunks = 0;
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const bool vectors = is_aligned(mean) && is_aligned(rstd) && is_aligned(partials);
    return BY_TYPE(real, vectors && wide(real, channels, dout, out, pre), run_backward_sums, stream,
                   partials, chunks, dout, act == ACTIVATION_RELU ? out : NULL, pre, mean, rstd,
                   rows, channels);
}

size_t launch_batch_norm_bwd_workspace_bytes(int64_t channels) {
    return (size_t)ceil_div(2 * channels * (int64_t)sizeof(float), 16) * 16;
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
                                const float *partials,
                                int32_t chunks,
                                void *workspace) {
    const struct walk w = walk_of(rows, channels, V);
    float *means = (float *)workspace;
    struct backward_operands<T> b = {
        (T *)dpre, (T *)dresidual, add_residual, (const T *)dout, (const T *)out,
            (const T *)pre, mean, rstd, gamma, NULL, means
    };
    TRY_LAUNCH(launch(stream, merge_blocks(channels), backward_merge, dgamma, dbeta, add, means,
                      partials, rows, channels, chunks));
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
                                  const float *partials,
                                  int32_t chunks,
                                  void *workspace) {
    if (rows == 0 || channels == 0) {
        return cudaSuccess;
    }
    const bool vectors =
        is_aligned(mean) && is_aligned(rstd) && is_aligned(gamma) && is_aligned(workspace);
    return BY_TYPE(real, vectors && wide(real, channels, dpre, dresidual, dout, out, pre),
                   run_backward, stream, dpre, dresidual, dresidual_mode == WRITE_ADD, dgamma,
                   dbeta, param_mode == WRITE_ADD, dout, act == ACTIVATION_RELU ? out : NULL, pre,
                   mean, rstd, gamma, rows, channels, partials, chunks, workspace);
}
