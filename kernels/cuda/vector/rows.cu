/*
 * rows: kernels over whole rows: copies by index, L2 normalisation, means over captions.
 *
 * One warp per row, its lanes V elements apart.
 */
#include "kernels/cuda/text/captions.cuh"

/* This warp's first row, and the distance to its next. */
static __device__ __forceinline__ int64_t first_row(int64_t *step) {
    *step = (int64_t)gridDim.x * WARPS;
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}

static __device__ __forceinline__ int64_t first_column(int v) {
    return (int64_t)(threadIdx.x % WARP) * v;
}

template <typename T, int V>
static __global__ void gather_rows(T *out,
                                   const T *in,
                                   const int32_t *rows,
                                   int64_t count,
                                   int64_t width,
                                   int64_t in_rows,
                                   int32_t *fault) {
    int64_t step;
    for (int64_t i = first_row(&step); i < count; i += step) {
        const int64_t row = rows[i];
        const bool inside = row >= 0 && row < in_rows;
        if (!inside) {
            report(fault, FAULT_ROW);
        }
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float x[V] = {};
            if (inside) {
                load(x, in + row * width + d);
            }
            store(out + i * width + d, x);
        }
    }
}

template <typename T, int V>
static cudaError_t run_gather_rows(const struct launch_on &on, const struct gather_rows &op) {
    return launch(on.stream, blocks_for(op.out.shape[0] * WARP), gather_rows<T, V>,
                  (T *)op.out.data, (const T *)op.in.data, (const int32_t *)op.rows.data,
                  op.out.shape[0], op.in.shape[1], op.in.shape[0], on.fault);
}

LAUNCHER(gather_rows, gather_rows, in, wide(op->in, op->out))

template <typename T, int V>
static __global__ void scatter_rows(T *out,
                                    bool add,
                                    const T *in,
                                    const int32_t *rows,
                                    int64_t count,
                                    int64_t width,
                                    int64_t out_rows,
                                    int32_t *fault) {
    int64_t step;
    for (int64_t i = first_row(&step); i < count; i += step) {
        const int64_t row = rows[i];
        if (row < 0 || row >= out_rows) {
            report(fault, FAULT_ROW);
            continue;
        }
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float x[V];
            load(x, in + i * width + d);
            store_mode(out + row * width + d, x, add);
        }
    }
}

template <typename T, int V>
static cudaError_t run_scatter_rows(const struct launch_on &on, const struct scatter_rows &op) {
    return launch(on.stream, blocks_for(op.in.shape[0] * WARP), scatter_rows<T, V>,
                  (T *)op.out.data, op.mode == WRITE_ADD, (const T *)op.in.data,
                  (const int32_t *)op.rows.data, op.in.shape[0], op.in.shape[1], op.out.shape[0],
                  on.fault);
}

LAUNCHER(scatter_rows, scatter_rows, in, wide(op->in, op->out))

/* ---- L2 normalisation ---- */

static const float SMALLEST_NORM = 1e-12f;

template <typename T, int V>
static __global__ void
l2_normalize(float *out, float *norm, const T *in, int64_t rows, int64_t width) {
    int64_t step;
    for (int64_t row = first_row(&step); row < rows; row += step) {
        float squares = 0.0f;
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float x[V];
            load(x, in + row * width + d);
#pragma unroll
            for (int k = 0; k < V; k++) {
                squares += x[k] * x[k];
            }
        }
        const float length = sqrtf(warp_sum(squares));
        const float divisor = fmaxf(length, SMALLEST_NORM);
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float x[V];
            load(x, in + row * width + d);
#pragma unroll
            for (int k = 0; k < V; k++) {
                x[k] /= divisor;
            }
            store_f32(out + row * width + d, x);
        }
        if (threadIdx.x % WARP == 0) {
            norm[row] = length;
        }
    }
}

template <typename T, int V>
static cudaError_t run_l2_normalize(const struct launch_on &on, const struct l2_normalize &op) {
    return launch(on.stream, blocks_for(op.in.shape[0] * WARP), l2_normalize<T, V>,
                  (float *)op.out.data, (float *)op.norm.data, (const T *)op.in.data,
                  op.in.shape[0], op.in.shape[1]);
}

LAUNCHER(l2_normalize, l2_normalize, in, wide(op->in, op->out))

template <typename T, int V>
static __global__ void l2_normalize_bwd(T *din,
                                        const float *dout,
                                        const float *out,
                                        const float *norm,
                                        int64_t rows,
                                        int64_t width) {
    int64_t step;
    for (int64_t row = first_row(&step); row < rows; row += step) {
        float along = 0.0f;
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float g[V];
            float y[V];
            load_f32(g, dout + row * width + d);
            load_f32(y, out + row * width + d);
#pragma unroll
            for (int k = 0; k < V; k++) {
                along += g[k] * y[k];
            }
        }
        along = warp_sum(along);
        const float divisor = fmaxf(norm[row], SMALLEST_NORM);
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float g[V];
            float y[V];
            load_f32(g, dout + row * width + d);
            load_f32(y, out + row * width + d);
#pragma unroll
            for (int k = 0; k < V; k++) {
                g[k] = (g[k] - along * y[k]) / divisor;
            }
            store(din + row * width + d, g);
        }
    }
}

template <typename T, int V>
static cudaError_t run_l2_normalize_bwd(const struct launch_on &on,
                                        const struct l2_normalize_bwd &op) {
    return launch(on.stream, blocks_for(op.din.shape[0] * WARP), l2_normalize_bwd<T, V>,
                  (T *)op.din.data, (const float *)op.dout.data, (const float *)op.out.data,
                  (const float *)op.norm.data, op.din.shape[0], op.din.shape[1]);
}

LAUNCHER(l2_normalize_bwd, l2_normalize_bwd, din, wide(op->din, op->dout, op->out))

/* ---- means over captions: one warp per caption forward, one per row backward ---- */

template <typename T, int V>
static __global__ void
segment_mean(T *out, const T *in, int64_t width, struct launch_segments segments) {
    int64_t step;
    for (int64_t n = first_row(&step); n < segments.count; n += step) {
        const struct caption c = caption_at(segments, n, segments.rows);
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float sum[V] = {};
            for (int64_t t = 0; t < c.length; t++) {
                float x[V];
                load(x, in + (c.start + t) * width + d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += x[k];
                }
            }
#pragma unroll
            for (int k = 0; k < V && c.length > 0; k++) {
                sum[k] /= (float)c.length;
            }
            store(out + n * width + d, sum);
        }
    }
}

template <typename T, int V>
static cudaError_t run_segment_mean(const struct launch_on &on, const struct segment_mean &op) {
    return launch(on.stream, blocks_for(op.out.shape[0] * WARP), segment_mean<T, V>,
                  (T *)op.out.data, (const T *)op.in.data, op.in.shape[1],
                  captions_of(on, op.segments, op.in.shape[0]));
}

LAUNCHER(segment_mean, segment_mean, in, wide(op->in, op->out))

template <typename T, int V>
static __global__ void
segment_mean_bwd(T *din, bool add, const T *dout, int64_t width, struct launch_segments segments) {
    int64_t step;
    for (int64_t row = first_row(&step); row < segments.rows; row += step) {
        const int64_t n = caption_of(segments, row);
        if (n < 0 && add) {
            continue;
        }
        for (int64_t d = first_column(V); d < width; d += WARP * V) {
            float x[V] = {};
            if (n >= 0) {
                load(x, dout + n * width + d);
            }
#pragma unroll
            for (int k = 0; k < V && n >= 0; k++) {
                x[k] /= (float)segments.lengths[n];
            }
            store_mode(din + row * width + d, x, add);
        }
    }
}

template <typename T, int V>
static cudaError_t run_segment_mean_bwd(const struct launch_on &on,
                                        const struct segment_mean_bwd &op) {
    return launch(on.stream, blocks_for(op.din.shape[0] * WARP), segment_mean_bwd<T, V>,
                  (T *)op.din.data, op.mode == WRITE_ADD, (const T *)op.dout.data, op.din.shape[1],
                  captions_of(on, op.segments, op.din.shape[0]));
}

LAUNCHER(segment_mean_bwd, segment_mean_bwd, din, wide(op->din, op->dout))
