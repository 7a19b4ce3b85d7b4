/*
 * columns: how kernels traverse a matrix (rows, width) to compute a value per column.
 *
 *            strip 0            strip 1
 *          +------------------+-----------
 *  chunk 0 | t t t t t t t t  |            a block: `lanes` adjacent threads, V columns each,
 *          | t t t t t t t t  |            THREADS / lanes rows at a time, down its chunk of rows
 *          +------------------+-----------
 *  chunk 1 |                  |
 *
 * Sums take two stages: each block stores one partial sum per column and chunk; then merge_columns
 * adds the chunks in double. The order of both depends only on the shape.
 */
#ifndef KERNELS_CUDA_VECTOR_COLUMNS_CUH
#define KERNELS_CUDA_VECTOR_COLUMNS_CUH

#include "kernels/cuda/device/common.cuh"

struct walk {
    int64_t rows, width, rows_per_chunk;
    int32_t lanes, strips, chunks;
};

/* A thread's part: columns [column, column + V), rows row, row + row_step, ... below row_end. */
struct walk_place {
    int64_t column, row, row_end;
    int32_t row_step;
    bool inside; /* the columns exist */
};

/* backwards: chunks from the last to the first, so that the first blocks read what the previous
 * pass left in the cache. */
template <int V>
static __device__ __forceinline__ struct walk_place walk_place_of(const struct walk &w,
                                                                  bool backwards) {
    const int64_t strip = blockIdx.x % w.strips;
    const int64_t chunk = blockIdx.x / w.strips;
    const int64_t first = (backwards ? w.chunks - 1 - chunk : chunk) * w.rows_per_chunk;
    struct walk_place p;
    p.column = (strip * w.lanes + threadIdx.x % w.lanes) * V;
    p.row_step = THREADS / w.lanes;
    p.row = first + threadIdx.x / w.lanes;
    p.row_end = first + w.rows_per_chunk < w.rows ? first + w.rows_per_chunk : w.rows;
    p.inside = p.column < w.width;
    return p;
}

/* Loads rows row, row + row_step, ... of a thread's part before any of them is used: otherwise nvcc
 * would not move a load before an earlier store, which may be to the same memory, and with one load
 * in flight a third of the bandwidth is unused. Rows from row_end on are not loaded. */
template <int ROWS, typename T, int V>
static __device__ __forceinline__ void load_rows(vector<T, V> (&x)[ROWS],
                                                 const T *from,
                                                 const struct walk &w,
                                                 const struct walk_place &p,
                                                 int64_t row) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t at = row + i * p.row_step;
        x[i] = at < p.row_end ? load_vector<T, V>(from + at * w.width + p.column) : vector<T, V>{};
    }
}

/* Adds `sum` over the threads of the block that hold the same columns, and stores partial sum
 * number `which` of `count` of this block's chunk. Called by all threads. After its last barrier a
 * thread reads only its own elements, so that the next call may write at once. */
template <int V>
static __device__ __forceinline__ void store_partials(float *partials,
                                                      const struct walk &w,
                                                      const struct walk_place &p,
                                                      const float (&sum)[V],
                                                      int which,
                                                      int count) {
    __shared__ float room[V][THREADS];
#pragma unroll
    for (int k = 0; k < V; k++) {
        room[k][threadIdx.x] = sum[k];
    }
    __syncthreads();
    for (int half = THREADS / 2; half >= w.lanes; half /= 2) {
        if ((int)threadIdx.x < half) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                room[k][threadIdx.x] += room[k][threadIdx.x + half];
            }
        }
        __syncthreads();
    }
    if ((int)threadIdx.x < w.lanes && p.inside) {
        const int64_t chunk = blockIdx.x / w.strips;
        float total[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            total[k] = room[k][threadIdx.x];
        }
        store_f32(partials + (chunk * count + which) * w.width + p.column, total);
    }
}

enum { MERGE_LANES = 8, MERGE_ROWS = THREADS / MERGE_LANES, MERGE_AT_ONCE = 8 };

/* Second stage, MERGE_LANES columns per block: sum[i] of column *column over the chunks of partial
 * sums written by store_partials. True for the one thread per column that writes its result. */
template <int COUNT>
static __device__ __forceinline__ bool merge_columns(double (&sum)[COUNT],
                                                     int64_t *column,
                                                     const float *partials,
                                                     int64_t width,
                                                     int32_t chunks) {
    __shared__ double room[COUNT][THREADS];
    const int lane = threadIdx.x % MERGE_LANES;
    *column = (int64_t)blockIdx.x * MERGE_LANES + lane;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sum[i] = 0.0;
    }
    for (int32_t first = threadIdx.x / MERGE_LANES; *column < width && first < chunks;
         first += MERGE_AT_ONCE * MERGE_ROWS) {
        float parts[MERGE_AT_ONCE][COUNT];
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
            const int64_t chunk = first + k * MERGE_ROWS;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                parts[k][i] =
                    chunk < chunks ? partials[(chunk * COUNT + i) * width + *column] : 0.0f;
            }
        }
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                sum[i] += (double)parts[k][i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        room[i][threadIdx.x] = sum[i];
    }
    for (int half = THREADS / 2; half >= MERGE_LANES; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                room[i][threadIdx.x] += room[i][threadIdx.x + half];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) { /* its own: of the first threads the sums */
        sum[i] = room[i][threadIdx.x];
    }
    return (int)threadIdx.x < MERGE_LANES && *column < width;
}

/* ---- host side ---- */

/* v: adjacent elements per thread. */
static inline struct walk walk_of(int64_t rows, int64_t width, int v) {
    static const int64_t MOST_BLOCKS =
        1024; /* about eight per multiprocessor of the largest GPUs */
    static const int64_t ROWS_PER_THREAD = 4; /* at least, if there are as many */
    struct walk w = {};
    w.rows = rows;
    w.width = width;
    const int64_t groups = ceil_div(width, v);
    for (w.lanes = 1; w.lanes < groups && w.lanes < WARP; w.lanes *= 2) {
    }
    w.strips = (int32_t)ceil_div(groups, w.lanes);
    const int64_t most = w.strips < MOST_BLOCKS ? MOST_BLOCKS / w.strips : 1;
    const int64_t rows_at_once = THREADS / w.lanes;
    const int64_t wanted = ceil_div(rows, rows_at_once * ROWS_PER_THREAD);
    w.rows_per_chunk = ceil_div(rows, wanted < most ? wanted : most);
    w.rows_per_chunk = ceil_div(w.rows_per_chunk, rows_at_once) * rows_at_once;
    w.chunks = (int32_t)ceil_div(rows, w.rows_per_chunk);
    return w;
}

static inline dim3 walk_blocks(const struct walk &w) {
    return dim3((unsigned)w.strips * (unsigned)w.chunks);
}

/* Bytes of the partial sums of `count` sums: enough for any width of access. */
static inline size_t walk_partials_bytes(int64_t rows, int64_t width, int count) {
    size_t most = 0;
    for (int v = 1; v <= 8; v *= 2) {
        const struct walk w = walk_of(rows, width, v);
        most = (size_t)w.chunks > most ? (size_t)w.chunks : most;
    }
    return rows > 0 ? most * (size_t)width * (size_t)count * sizeof(float) : 0;
}

static inline dim3 merge_blocks(int64_t width) {
    return dim3((unsigned)ceil_div(width, MERGE_LANES));
}

/* out (width) = or += the sums over the chunks of `partials`. columns.cu */
cudaError_t launch_merge_one(cudaStream_t stream,
                             float *out,
                             bool add,
                             const float *partials,
                             int64_t width,
                             int32_t chunks);
/* The same for two. */
cudaError_t launch_merge_two(cudaStream_t stream,
                             float *first,
                             float *second,
                             bool add,
                             const float *partials,
                             int64_t width,
                             int32_t chunks);

#endif
