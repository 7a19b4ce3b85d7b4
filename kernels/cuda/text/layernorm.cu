/*
 * layernorm: sum = a + b; out = (sum - mean) rstd gamma + beta along rows, and its backward pass.
 *
 * One warp per row. Rows of up to 1024 elements stay in registers between the passes over them
 * (`held`); longer ones are read again. In both cases a lane reads only what it wrote itself, so
 * `sum` may be `a`.
 */
#include "kernels/cuda/vector/columns.cuh"

enum { HELD_ELEMENTS = 32 }; /* of a row, per lane */

/* The pieces of V elements of a row that a lane has: piece i begins at (i WARP + lane) V. */
template <typename T, int V, int HELD> struct row_pieces { float x[HELD > 0 ? HELD : 1][V]; };

static __device__ __forceinline__ int64_t piece_column(int64_t piece, int v) {
    return (piece * WARP + threadIdx.x % WARP) * v;
}

/* Calls body(values, column) for every piece of the row: held ones, or read again from `from`. */
template <typename T, int V, int HELD, typename BODY>
static __device__ __forceinline__ void
each_piece(struct row_pieces<T, V, HELD> &row, const T *from, int64_t width, BODY body) {
    if constexpr (HELD > 0) {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (piece_column(i, V) < width) {
                body(row.x[i], piece_column(i, V));
            }
        }
    } else {
        for (int64_t i = 0; piece_column(i, V) < width; i++) {
            load(row.x[0], from + piece_column(i, V));
            body(row.x[0], piece_column(i, V));
        }
    }
}

/* sum = a + b, rounded as stored, into memory and the pieces; returns the lane's total. */
template <typename T, int V>
static __device__ __forceinline__ float
add_piece(float (&x)[V], T *sum, const T *a, const T *b, int64_t e) {
    float total = 0.0f;
    load(x, a + e);
    if (b != NULL) {
        float y[V];
        load(y, b + e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            x[k] = as_stored<T>(x[k] + y[k]);
        }
    }
    store(sum + e, x);
#pragma unroll
    for (int k = 0; k < V; k++) {
        total += x[k];
    }
    return total;
}

template <typename T> struct forward_operands {
    T *out, *sum;
    float *mean, *rstd;
    const T *a, *b; /* b NULL: nothing is added */
    const float *gamma, *beta;
    int64_t rows, width;
    float eps;
};

template <typename T, int V, int HELD>
static __global__ void layernorm(struct forward_operands<T> f) {
    struct row_pieces<T, V, HELD> pieces;
    const int64_t step = (int64_t)gridDim.x * WARPS;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < f.rows;
         row += step) {
        const int64_t start = row * f.width;
        float total = 0.0f;
        if constexpr (HELD > 0) {
#pragma unroll
            for (int i = 0; i < HELD; i++) {
                if (piece_column(i, V) < f.width) {
                    total += add_piece(pieces.x[i], f.sum, f.a, f.b, start + piece_column(i, V));
                }
            }
        } else {
            for (int64_t i = 0; piece_column(i, V) < f.width; i++) {
                total += add_piece(pieces.x[0], f.sum, f.a, f.b, start + piece_column(i, V));
            }
        }
        const float m = warp_sum(total) / (float)f.width;
        float squares = 0.0f;
        each_piece(pieces, f.sum + start, f.width, [&](const float(&x)[V], int64_t) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                squares += (x[k] - m) * (x[k] - m);
            }
        });
        const float s = 1.0f / sqrtf(warp_sum(squares) / (float)f.width + f.eps);
        each_piece(pieces, f.sum + start, f.width, [&](const float(&x)[V], int64_t d) {
            float gamma[V];
            float y[V];
            load_f32(gamma, f.gamma + d);
            load_f32(y, f.beta + d);
#pragma unroll
            for (int k = 0; k < V; k++) {
                y[k] += (x[k] - m) * s * gamma[k];
            }
            store(f.out + start + d, y);
        });
        if (threadIdx.x % WARP == 0) {
            f.mean[row] = m;
            f.rstd[row] = s;
        }
    }
}

template <typename T, int V>
static cudaError_t run_layernorm(const struct launch_on &on, const struct layernorm &op) {
    const int64_t rows = op.a.shape[0];
    const int64_t width = op.a.shape[1];
    const struct forward_operands<T> f = {
        (T *)op.out.data, (T *)op.sum.data, (float *)op.mean.data, (float *)op.rstd.data,
            (const T *)op.a.data, (const T *)op.b.data, (const float *)op.gamma.data,
            (const float *)op.beta.data, rows, width, op.eps
    };
    if (width <= HELD_ELEMENTS * WARP) {
        return launch(on.stream, blocks_for(rows * WARP), layernorm<T, V, HELD_ELEMENTS / V>, f);
    }
    return launch(on.stream, blocks_for(rows * WARP), layernorm<T, V, 0>, f);
}

LAUNCHER(layernorm, layernorm, a, wide(op->a, op->out, op->sum, op->b, op->gamma, op->beta))

/* ---- backward: g = dout gamma, xhat = (sum - mean) rstd;
 * dsum = rstd (g - mean(g) - xhat mean(g xhat)) ---- */

template <typename T> struct backward_operands {
    T *dsum;
    bool add;
    const T *dout, *sum;
    const float *mean, *rstd, *gamma;
    int64_t rows, width;
};

/* g and xhat of V elements. */
template <typename T, int V>
static __device__ __forceinline__ void load_terms(float (&g)[V],
                                                  float (&xhat)[V],
                                                  const struct backward_operands<T> &b,
                                                  int64_t start,
                                                  int64_t d,
                                                  float mean,
                                                  float rstd) {
    float gamma[V];
    load(g, b.dout + start + d);
    load(xhat, b.sum + start + d);
    load_f32(gamma, b.gamma + d);
#pragma unroll
    for (int k = 0; k < V; k++) {
        g[k] *= gamma[k];
        xhat[k] = (xhat[k] - mean) * rstd;
    }
}

template <typename T, int V> static __global__ void layernorm_bwd(struct backward_operands<T> b) {
    const int64_t step = (int64_t)gridDim.x * WARPS;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < b.rows;
         row += step) {
        const int64_t start = row * b.width;
        const float mean = b.mean[row];
        const float rstd = b.rstd[row];
        float g[V];
        float xhat[V];
        float sum_g = 0.0f;
        float sum_g_xhat = 0.0f;
        for (int64_t i = 0; piece_column(i, V) < b.width; i++) {
            load_terms(g, xhat, b, start, piece_column(i, V), mean, rstd);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum_g += g[k];
                sum_g_xhat += g[k] * xhat[k];
            }
        }
        const float mean_g = warp_sum(sum_g) / (float)b.width;
        const float mean_g_xhat = warp_sum(sum_g_xhat) / (float)b.width;
        for (int64_t i = 0; piece_column(i, V) < b.width; i++) {
            load_terms(g, xhat, b, start, piece_column(i, V), mean, rstd);
#pragma unroll
            for (int k = 0; k < V; k++) {
                g[k] = rstd * (g[k] - mean_g - xhat[k] * mean_g_xhat);
            }
            store_mode(b.dsum + start + piece_column(i, V), g, b.add);
        }
    }
}

enum { PARAMETER_PARTIALS = 2 };

template <typename T, int V>
static __global__ void
parameter_partials(float *partials, struct backward_operands<T> b, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float dgamma[V] = {};
    float dbeta[V] = {};
    if (p.inside) {
#pragma unroll 2
        for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
            const float mean = b.mean[row];
            const float rstd = b.rstd[row];
            float g[V];
            float x[V];
            load(g, b.dout + row * w.width + p.column);
            load(x, b.sum + row * w.width + p.column);
#pragma unroll
            for (int k = 0; k < V; k++) {
                dgamma[k] += g[k] * ((x[k] - mean) * rstd);
                dbeta[k] += g[k];
            }
        }
    }
    store_partials(partials, w, p, dgamma, 0, PARAMETER_PARTIALS);
    store_partials(partials, w, p, dbeta, 1, PARAMETER_PARTIALS);
}

size_t layernorm_bwd_workspace_bytes(const struct layernorm_bwd *op) {
    return walk_partials_bytes(op->sum.shape[0], op->sum.shape[1], PARAMETER_PARTIALS);
}

template <typename T, int V>
static cudaError_t run_layernorm_bwd(const struct launch_on &on, const struct layernorm_bwd &op) {
    const int64_t rows = op.sum.shape[0];
    const int64_t width = op.sum.shape[1];
    const struct backward_operands<T> b = {
        (T *)op.dsum.data, op.dsum_mode == WRITE_ADD, (const T *)op.dout.data,
            (const T *)op.sum.data, (const float *)op.mean.data, (const float *)op.rstd.data,
            (const float *)op.gamma.data, rows, width
    };
    const struct walk w = walk_of(rows, width, V);
    float *partials = (float *)on.workspace;
    /* Parameters first: dsum may overwrite dout. */
    TRY_LAUNCH(launch(on.stream, walk_blocks(w), parameter_partials<T, V>, partials, b, w));
    TRY_LAUNCH(launch_merge_two(on.stream, (float *)op.dgamma.data, (float *)op.dbeta.data,
                                op.param_mode == WRITE_ADD, partials, width, w.chunks));
    return launch(on.stream, blocks_for(rows * WARP), layernorm_bwd<T, V>, b);
}

LAUNCHER(layernorm_bwd, layernorm_bwd, sum, wide(op->sum, op->dsum, op->dout, op->gamma))
