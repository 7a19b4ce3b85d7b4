/*
 * batch_norm: statistics, application with residual and ReLU, and the backward pass, over pre
 * (rows, channels) of a convolution. Each direction takes two passes over memory, the minimum: a
 * channel's mean is known only after its last row.
 *
 * Statistics are shifted sums: of x - s and (x - s)^2, where s is the channel's value in row 0, at
 * most a few standard deviations from the mean: no cancellation even if the mean is 100 of them.
 */
#include "kernels/cuda/vector/columns.cuh"

enum { PASS_PARTIALS = 2 };
enum { STATISTICS_ROWS = 8, APPLY_ROWS = 4 }; /* of load_rows: 8 loads of 16 bytes or fewer */

template <typename T, int V>
static __global__ void statistics_partials(float *partials, const T *pre, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum[V] = {};
    float squares[V] = {};
    if (p.inside) {
        float shift[V];
        load(shift, pre + p.column);
        for (int64_t row = p.row; row < p.row_end; row += STATISTICS_ROWS * p.row_step) {
            vector<T, V> rows[STATISTICS_ROWS];
            load_rows(rows, pre, w, p, row);
#pragma unroll
            for (int i = 0; i < STATISTICS_ROWS; i++) {
                if (row + i * p.row_step >= p.row_end) {
                    break;
                }
                float x[V];
                unpack(x, rows[i]);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    const float d = x[k] - shift[k];
                    sum[k] += d;
                    squares[k] += d * d;
                }
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
    double per_row, per_other_row; /* 1 / rows; 1 / (rows - 1), of one row 1 */
    int64_t channels;
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
    const float shift = to_f32(pre[c]);
    const bool moves = r.running.mean != NULL;
    const float running_mean = moves ? r.running.mean[c] : 0.0f;
    const float running_var = moves ? r.running.var[c] : 0.0f;
    const double offset = sum[0] * r.per_row;
    const double mean = (double)shift + offset;
    const double squares = fmax(sum[1] - sum[0] * offset, 0.0);
    r.mean[c] = (float)mean;
    r.rstd[c] = (float)(1.0 / sqrt(squares * r.per_row + (double)r.eps));
    if (moves) {
        const double weight = (double)r.running.momentum;
        const double unbiased = squares * r.per_other_row;
        r.running.mean[c] = (float)((1.0 - weight) * (double)running_mean + weight * mean);
        r.running.var[c] = (float)((1.0 - weight) * (double)running_var + weight * unbiased);
    }
}

static int64_t rows_of(const struct tensor &pre) {
    return tensor_count(&pre) / pre.shape[3];
}

size_t batch_norm_statistics_workspace_bytes(const struct conv_bn *op) {
    return walk_partials_bytes(rows_of(op->pre), op->pre.shape[3], PASS_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_batch_norm_statistics(const struct launch_on &on, const struct conv_bn &op) {
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
        1.0 / (double)rows,
        1.0 / (double)(rows > 1 ? rows - 1 : 1),
        channels,
        op.eps,
    };
    return launch(on.stream, merge_blocks(channels), statistics_merge<T>, r,
                  (const float *)partials, pre, w.chunks);
}

LAUNCHER(batch_norm_statistics, conv_bn, pre, wide(op->pre))

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

/* Bit-identical in both directions: the backward pass computes the mask of a ReLU from it. */
static __device__ __forceinline__ float normed(float x, float mean, float scale, float beta) {
    return fmaf(x - mean, scale, beta);
}

/* gamma rstd of V channels. */
template <int V>
static __device__ __forceinline__ void
load_scale(float (&scale)[V], const float *gamma, const float *rstd, int64_t column) {
    float factor[V];
    load_f32(scale, gamma + column);
    load_f32(factor, rstd + column);
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale[k] *= factor[k];
    }
}

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
    load_f32(mean, norm.mean + p.column);
    load_f32(beta, norm.beta + p.column);
    load_scale(scale, norm.gamma, norm.rstd, p.column);
    for (int64_t row = p.row; row < p.row_end; row += APPLY_ROWS * p.row_step) {
        vector<T, V> rows[APPLY_ROWS];
        vector<T, V> residuals[APPLY_ROWS] = {};
        load_rows(rows, pre, w, p, row);
        if (residual != NULL) {
            load_rows(residuals, residual, w, p, row);
        }
#pragma unroll
        for (int i = 0; i < APPLY_ROWS; i++) {
            const int64_t at = row + i * p.row_step;
            if (at >= p.row_end) {
                break;
            }
            float x[V];
            float added[V];
            unpack(x, rows[i]);
            unpack(added, residuals[i]);
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = normed(x[k], mean[k], scale[k], beta[k]) + added[k];
                x[k] = relu && x[k] < 0.0f ? 0.0f : x[k];
            }
            store(out + at * w.width + p.column, x);
        }
    }
}

template <typename T, int V>
static cudaError_t run_batch_norm_apply(const struct launch_on &on, const struct conv_bn &op) {
    const struct walk w = walk_of(rows_of(op.pre), op.pre.shape[3], V);
    const struct norm norm = {(const float *)op.mean.data, (const float *)op.rstd.data,
                              (const float *)op.gamma.data, (const float *)op.beta.data};
    return launch(on.stream, walk_blocks(w), apply<T, V>, (T *)op.out.data, (const T *)op.pre.data,
                  (const T *)op.residual.data, norm, op.conv.act == ACTIVATION_RELU, w);
}

LAUNCHER(batch_norm_apply,
         conv_bn,
         pre,
         wide(op->pre, op->out, op->residual, op->mean, op->rstd, op->gamma, op->beta))

/* ---- backward: dy = dout through the activation, xhat = (pre - mean) rstd ---- */

enum mask { MASK_NONE, MASK_OUT, MASK_PRE }; /* of a ReLU: none, from `out`, computed from pre */

template <typename T> struct backward_operands {
    T *dpre;
    T *dy; /* NULL, or dresidual, where the first pass stores dy for the second */
    const T *dout, *out, *pre;
    const float *mean, *rstd, *gamma, *beta; /* beta with MASK_PRE only */
    float *partials, *means;                 /* means (2, channels): of dy and of dy xhat */
};

/* Some rows of one thread. */
template <enum mask MASK, typename T, int V> struct backward_rows {
    enum { COUNT = MASK == MASK_OUT ? 2 : 4 };
    vector<T, V> dout[COUNT], out[COUNT], pre[COUNT];
};

template <enum mask MASK, typename T, int V>
static __device__ __forceinline__ void load_backward(struct backward_rows<MASK, T, V> *r,
                                                     const struct backward_operands<T> &b,
                                                     const struct walk &w,
                                                     const struct walk_place &p,
                                                     int64_t row) {
    load_rows(r->dout, b.dout, w, p, row);
    load_rows(r->pre, b.pre, w, p, row);
    if (MASK == MASK_OUT) {
        load_rows(r->out, b.out, w, p, row);
    }
}

/* dy and pre of row i of those. */
template <enum mask MASK, typename T, int V>
static __device__ __forceinline__ void take_row(float (&dy)[V],
                                                float (&x)[V],
                                                const struct backward_rows<MASK, T, V> &r,
                                                int i,
                                                const float (&mean)[V],
                                                const float (&scale)[V],
                                                const float (&beta)[V]) {
    unpack(dy, r.dout[i]);
    unpack(x, r.pre[i]);
    float y[V];
    if (MASK == MASK_OUT) {
        unpack(y, r.out[i]);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (MASK == MASK_PRE) {
            y[k] = as_stored<T>(normed(x[k], mean[k], scale[k], beta[k]));
        }
        if (MASK != MASK_NONE) {
            dy[k] = y[k] <= 0.0f ? 0.0f : dy[k];
        }
    }
}

template <enum mask MASK, typename T, int V>
static __global__ void backward_partials(struct backward_operands<T> b, struct walk w) {
    typedef struct backward_rows<MASK, T, V> rows_here;
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum_dy[V] = {};
    float sum_dy_xhat[V] = {};
    if (p.inside) {
        float mean[V];
        float scale[V] = {};
        float beta[V] = {};
        load_f32(mean, b.mean + p.column);
        if (MASK == MASK_PRE) {
            load_scale(scale, b.gamma, b.rstd, p.column);
            load_f32(beta, b.beta + p.column);
        }
        for (int64_t row = p.row; row < p.row_end; row += rows_here::COUNT * p.row_step) {
            rows_here rows;
            load_backward(&rows, b, w, p, row);
#pragma unroll
            for (int i = 0; i < rows_here::COUNT; i++) {
                const int64_t at = row + i * p.row_step;
                if (at >= p.row_end) {
                    break;
                }
                float dy[V];
                float x[V];
                take_row(dy, x, rows, i, mean, scale, beta);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum_dy[k] += dy[k];
                    sum_dy_xhat[k] += dy[k] * (x[k] - mean[k]);
                }
                if (b.dy != NULL) {
                    store(b.dy + at * w.width + p.column, dy);
                }
            }
        }
        float rstd[V];
        load_f32(rstd, b.rstd + p.column);
#pragma unroll
        for (int k = 0; k < V; k++) {
            sum_dy_xhat[k] *= rstd[k];
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

/* dpre = scale (dy - mean of dy - xhat (mean of dy xhat)), scale = gamma rstd */
template <enum mask MASK, typename T, int V>
static __global__ void backward_apply(struct backward_operands<T> b, struct walk w) {
    typedef struct backward_rows<MASK, T, V> rows_here;
    const struct walk_place p = walk_place_of<V>(w, true);
    if (!p.inside) {
        return;
    }
    float mean[V];
    float scale[V];
    float beta[V] = {};
    float mean_dy[V];
    float slope[V]; /* of dpre in pre */
    load_f32(mean, b.mean + p.column);
    load_scale(scale, b.gamma, b.rstd, p.column);
    load_f32(mean_dy, b.means + p.column);
    load_scale(slope, b.means + w.width, b.rstd, p.column);
    if (MASK == MASK_PRE) {
        load_f32(beta, b.beta + p.column);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        slope[k] *= -scale[k];
    }
    for (int64_t row = p.row; row < p.row_end; row += rows_here::COUNT * p.row_step) {
        rows_here rows;
        load_backward(&rows, b, w, p, row);
#pragma unroll
        for (int i = 0; i < rows_here::COUNT; i++) {
            const int64_t at = row + i * p.row_step;
            if (at >= p.row_end) {
                break;
            }
            float dy[V];
            float x[V];
            take_row(dy, x, rows, i, mean, scale, beta);
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] = scale[k] * (dy[k] - mean_dy[k]) + slope[k] * (x[k] - mean[k]);
            }
            store(b.dpre + at * w.width + p.column, x);
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
static cudaError_t run_batch_norm_bwd(const struct launch_on &on, const struct conv_bn_bwd &op) {
    const int64_t rows = rows_of(op.pre);
    const int64_t channels = op.pre.shape[3];
    const struct walk w = walk_of(rows, channels, V);
    const bool relu = op.conv.act == ACTIVATION_RELU;
    float *means = (float *)on.workspace;
    struct backward_operands<T> b = {
        (T *)op.dpre.data, (T *)op.dresidual.data, (const T *)op.dout.data, (const T *)op.out.data,
            (const T *)op.pre.data, (const float *)op.mean.data, (const float *)op.rstd.data,
            (const float *)op.gamma.data, (const float *)op.beta.data,
            (float *)((char *)on.workspace + means_bytes(channels)), means,
    };
    const bool from_pre = relu && b.beta != NULL;
    TRY_LAUNCH(launch(on.stream, walk_blocks(w),
                      !relu      ? backward_partials<MASK_NONE, T, V>
                      : from_pre ? backward_partials<MASK_PRE, T, V>
                                 : backward_partials<MASK_OUT, T, V>,
                      b, w));
    TRY_LAUNCH(launch(on.stream, merge_blocks(channels), backward_merge, (float *)op.dgamma.data,
                      (float *)op.dbeta.data, op.param_mode == WRITE_ADD, means,
                      (const float *)b.partials, rows, channels, w.chunks));
    const bool masked = !relu || b.dy != NULL;
    b.dout = b.dy != NULL ? b.dy : b.dout;
    return launch(on.stream, walk_blocks(w),
                  masked     ? backward_apply<MASK_NONE, T, V>
                  : from_pre ? backward_apply<MASK_PRE, T, V>
                             : backward_apply<MASK_OUT, T, V>,
                  b, w);
}

static bool backward_wide(const struct conv_bn_bwd *op) {
    return wide(op->pre, op->dpre, op->dresidual, op->dout, op->out, op->mean, op->rstd, op->gamma,
                op->beta);
}

LAUNCHER(batch_norm_bwd, conv_bn_bwd, pre, backward_wide(op))
