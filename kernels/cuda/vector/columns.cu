/*
 * columns: sums over the rows of a matrix: the gradient of a bias, and the second stage of sums in
 * other files.
 */
#include "kernels/cuda/vector/columns.cuh"

static __global__ void
merge_one(float *out, bool add, const float *partials, int64_t width, int32_t chunks) {
    double sum[1];
    int64_t column;
    if (merge_columns(sum, &column, partials, width, chunks)) {
        put_mode(out + column, (float)sum[0], add);
    }
}

static __global__ void merge_two(float *first,
                                 float *second,
                                 bool add,
                                 const float *partials,
                                 int64_t width,
                                 int32_t chunks) {
    double sum[2];
    int64_t column;
    if (merge_columns(sum, &column, partials, width, chunks)) {
        put_mode(first + column, (float)sum[0], add);
        put_mode(second + column, (float)sum[1], add);
    }
}

cudaError_t launch_merge_one(cudaStream_t stream,
                             float *out,
                             bool add,
                             const float *partials,
                             int64_t width,
                             int32_t chunks) {
    return launch(stream, merge_blocks(width), merge_one, out, add, partials, width, chunks);
}

cudaError_t launch_merge_two(cudaStream_t stream,
                             float *first,
                             float *second,
                             bool add,
                             const float *partials,
                             int64_t width,
                             int32_t chunks) {
    return launch(stream, merge_blocks(width), merge_two, first, second, add, partials, width,
                  chunks);
}

template <typename T, int V>
static __global__ void column_sums(float *partials, const T *in, struct walk w) {
    const struct walk_place p = walk_place_of<V>(w, false);
    float sum[V] = {};
    if (p.inside) {
#pragma unroll 4
        for (int64_t row = p.row; row < p.row_end; row += p.row_step) {
            float x[V];
            load(x, in + row * w.width + p.column);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum[k] += x[k];
            }
        }
    }
    store_partials(partials, w, p, sum, 0, 1);
}

size_t bias_bwd_workspace_bytes(const struct linear_bwd *op) {
    return walk_partials_bytes(op->dout.shape[0], op->dout.shape[1], 1);
}

template <typename T, int V>
static cudaError_t run_bias_bwd(const struct launch_on &on, const struct linear_bwd &op) {
    const int64_t width = op.dout.shape[1];
    const struct walk w = walk_of(op.dout.shape[0], width, V);
    float *partials = (float *)on.workspace;
    TRY_LAUNCH(
        launch(on.stream, walk_blocks(w), column_sums<T, V>, partials, (const T *)op.dout.data, w));
    return launch_merge_one(on.stream, (float *)op.dbias.data, op.param_mode == WRITE_ADD, partials,
                            width, w.chunks);
}

LAUNCHER(bias_bwd, linear_bwd, dout, wide(op->dout))
