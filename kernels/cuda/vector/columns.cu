/*
 * columns: sums over the rows of a matrix: the gradient of a bias, and the second stage that other
 * files' sums share.
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

size_t launch_column_sums_workspace_bytes(int64_t rows, int64_t width) {
    return walk_partials_bytes(rows, width, 1);
}

template <typename T, int V>
static cudaError_t run_column_sums(cudaStream_t stream,
                                   float *out,
                                   bool add,
                                   const void *in,
                                   int64_t rows,
                                   int64_t width,
                                   void *workspace) {
    const struct walk w = walk_of(rows, width, V);
    float *partials = (float *)workspace;
    TRY_LAUNCH(launch(stream, walk_blocks(w), column_sums<T, V>, partials, (const T *)in, w));
    return launch_merge_one(stream, out, add, partials, width, w.chunks);
}

cudaError_t launch_column_sums(cudaStream_t stream,
                               enum dtype real,
                               float *out,
                               enum write_mode mode,
                               const void *in,
                               int64_t rows,
                               int64_t width,
                               void *workspace) {
    if (rows == 0 || width == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(real, wide(real, width, in, workspace), run_column_sums, stream, out,
                   mode == WRITE_ADD, in, rows, width, workspace);
}
