/*
 * embedding: out (R,D) = table[tokens] + positions[position], and its gradients without atomics.
 *
 * Backward, in three steps:
 *   1. place every row in the order (token, row): a row's place is the count of rows before it in
 *      that order, found by comparing with all others. R^2 comparisons out of shared memory sound
 *      like much and are 10 to 30 microseconds at a batch's 16,000 rows; no sort is simpler.
 *   2. one block per run of equal tokens adds its rows in order;
 *   3. one block per position adds that row of every caption, in order of captions.
 */
#include "kernels/cuda/text/captions.cuh"

template <typename T, int V>
static __global__ void embedding(T *out,
                                 const int32_t *tokens,
                                 const T *table,
                                 const T *positions,
                                 int64_t width,
                                 int64_t vocab_count,
                                 int64_t position_count,
                                 struct launch_segments segments) {
    const int64_t step = (int64_t)gridDim.x * WARPS;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < segments.rows;
         row += step) {
        const int64_t n = caption_of(segments, row);
        int64_t token = n >= 0 ? tokens[row] : 0;
        int64_t position = n >= 0 ? row - segments.starts[n] : 0;
        if (token < 0 || token >= vocab_count || position >= position_count) {
            report(segments.fault, FAULT_TOKEN);
            token = 0;
            position = 0;
        }
        for (int64_t d = (int64_t)(threadIdx.x % WARP) * V; d < width; d += WARP * V) {
            float x[V] = {};
            if (n >= 0) {
                float y[V];
                load(x, table + token * width + d);
                load(y, positions + position * width + d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    x[k] += y[k];
                }
            }
            store(out + row * width + d, x);
        }
    }
}

template <typename T, int V>
static cudaError_t run_embedding(cudaStream_t stream,
                                 void *out,
                                 const int32_t *tokens,
                                 const void *table,
                                 const void *positions,
                                 int64_t width,
                                 int64_t vocab_count,
                                 int64_t position_count,
                                 const struct launch_segments &segments) {
    return launch(stream, blocks_for(segments.rows * WARP), embedding<T, V>, (T *)out, tokens,
                  (const T *)table, (const T *)positions, width, vocab_count, position_count,
                  segments);
}

cudaError_t launch_embedding(cudaStream_t stream,
                             enum dtype real,
                             void *out,
                             const int32_t *tokens,
                             const void *table,
                             const void *positions,
                             int64_t width,
                             int64_t vocab_count,
                             int64_t position_count,
                             const struct launch_segments *segments) {
    if (segments->rows == 0) {
        return cudaSuccess;
    }
    return BY_TYPE(real, wide(real, width, out, table, positions), run_embedding, stream, out,
                   tokens, table, positions, width, vocab_count, position_count, *segments);
}

/* ---- order of tokens ---- */

static const int32_t NO_TOKEN = INT32_MAX; /* rows of no caption, and bad tokens: last */

/* keys[row] = the row's token, or NO_TOKEN where it takes no part. */
static __global__ void token_keys(int32_t *keys,
                                  const int32_t *tokens,
                                  int64_t vocab_count,
                                  int64_t position_count,
                                  struct launch_segments segments) {
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= segments.rows) {
        return;
    }
    const int64_t n = caption_of(segments, row);
    int32_t key = NO_TOKEN;
    if (n >= 0) {
        const bool good = tokens[row] >= 0 && tokens[row] < vocab_count &&
                          row - segments.starts[n] < position_count;
        key = good ? tokens[row] : NO_TOKEN;
        if (!good) {
            report(segments.fault, FAULT_TOKEN);
        }
    }
    keys[row] = key;
}

/* sorted_rows[place of row] = row, and its key beside it. */
static __global__ void
order_rows(int32_t *sorted_rows, int32_t *sorted_keys, const int32_t *keys, int64_t rows) {
    alignas(16) __shared__ int32_t tile[THREADS];
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int32_t key = row < rows ? keys[row] : NO_TOKEN;
    int32_t place = 0;
    for (int64_t first = 0; first < rows; first += THREADS) {
        const int64_t other = first + threadIdx.x;
        tile[threadIdx.x] = other < rows ? keys[other] : NO_TOKEN;
        __syncthreads();
        /* Of equal keys those of earlier rows come first; past the end nothing does. */
        const int64_t before = row - first; /* tile[i] is an earlier row for i < before */
        const int32_t count = rows - first < THREADS ? (int32_t)(rows - first) : THREADS;
        if (count == THREADS && (before <= 0 || before >= THREADS)) {
            const int32_t least = before > 0 && key < NO_TOKEN ? key + 1 : key;
            const int32_t ties = before > 0 && key == NO_TOKEN;
#pragma unroll 16
            for (int i = 0; i < THREADS; i++) {
                place += tile[i] < least || ties;
            }
        } else {
            for (int i = 0; i < count; i++) {
                place += tile[i] < key || (tile[i] == key && i < before);
            }
        }
        __syncthreads();
    }
    if (row < rows) {
        sorted_rows[place] = (int32_t)row;
        sorted_keys[place] = key;
    }
}

/* One block per place in the order; the first of a run adds the whole run, the others leave. Rows
 * are added one after another but fetched several at a time: frequent tokens have hundreds. */
template <typename T, int V>
static __global__ void add_runs(float *dtable,
                                const T *dout,
                                const int32_t *sorted_rows,
                                const int32_t *sorted_keys,
                                int64_t rows,
                                int64_t width) {
    enum { AHEAD = 8 };
    const int64_t first = blockIdx.x;
    const int32_t key = sorted_keys[first];
    if (key == NO_TOKEN || (first > 0 && sorted_keys[first - 1] == key)) {
        return;
    }
    for (int64_t d = (int64_t)threadIdx.x * V; d < width; d += THREADS * V) {
        float sum[V];
        load_f32(sum, dtable + (int64_t)key * width + d);
        for (int64_t i = first; i < rows && sorted_keys[i] == key; i += AHEAD) {
            float x[AHEAD][V] = {};
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                if (i + a < rows && sorted_keys[i + a] == key) {
                    load(x[a], dout + (int64_t)sorted_rows[i + a] * width + d);
                }
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += x[a][k];
                }
            }
        }
        store_f32(dtable + (int64_t)key * width + d, sum);
    }
}

/* One block per position; captions shorter than that have no such row. */
template <typename T, int V>
static __global__ void add_positions(float *dpositions,
                                     const T *dout,
                                     int64_t width,
                                     int64_t position_count,
                                     struct launch_segments segments) {
    const int64_t position = blockIdx.x;
    for (int64_t d = (int64_t)threadIdx.x * V; d < width; d += THREADS * V) {
        float sum[V];
        load_f32(sum, dpositions + position * width + d);
#pragma unroll 4
        for (int64_t n = 0; n < segments.count; n++) {
            const struct caption c = caption_at(segments, n, position_count);
            if (c.length > position) {
                float x[V];
                load(x, dout + (c.start + position) * width + d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += x[k];
                }
            }
        }
        store_f32(dpositions + position * width + d, sum);
    }
}

size_t launch_embedding_bwd_workspace_bytes(int64_t rows) {
    return (size_t)rows * 3 * sizeof(int32_t); /* keys, then rows and keys in order */
}

template <typename T, int V>
static cudaError_t run_embedding_bwd(cudaStream_t stream,
                                     float *dtable,
                                     float *dpositions,
                                     const void *dout,
                                     const int32_t *sorted_rows,
                                     const int32_t *sorted_keys,
                                     int64_t width,
                                     int64_t position_count,
                                     const struct launch_segments &segments) {
    TRY_LAUNCH(launch(stream, dim3((unsigned)segments.rows), add_runs<T, V>, dtable,
                      (const T *)dout, sorted_rows, sorted_keys, segments.rows, width));
    return launch(stream, dim3((unsigned)position_count), add_positions<T, V>, dpositions,
                  (const T *)dout, width, position_count, segments);
}

cudaError_t launch_embedding_bwd(cudaStream_t stream,
                                 enum dtype real,
                                 float *dtable,
                                 float *dpositions,
                                 enum write_mode mode,
                                 const void *dout,
                                 const int32_t *tokens,
                                 int64_t width,
                                 int64_t vocab_count,
                                 int64_t position_count,
                                 const struct launch_segments *segments,
                                 void *workspace) {
    if (mode == WRITE_SET) {
        TRY_LAUNCH(
            cudaMemsetAsync(dtable, 0, (size_t)(vocab_count * width) * sizeof(float), stream));
        TRY_LAUNCH(cudaMemsetAsync(dpositions, 0, (size_t)(position_count * width) * sizeof(float),
                                   stream));
        cuda_count_launch();
        cuda_count_launch();
    }
    const int64_t rows = segments->rows;
    if (rows == 0 || segments->count == 0 || width == 0) {
        return cudaSuccess;
    }
    if (rows > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    int32_t *keys = (int32_t *)workspace;
    int32_t *sorted_rows = keys + rows;
    int32_t *sorted_keys = sorted_rows + rows;
    const dim3 blocks((unsigned)ceil_div(rows, THREADS));
    TRY_LAUNCH(
        launch(stream, blocks, token_keys, keys, tokens, vocab_count, position_count, *segments));
    TRY_LAUNCH(launch(stream, blocks, order_rows, sorted_rows, sorted_keys, keys, rows));
    return BY_TYPE(real, wide(real, width, dtable, dpositions, dout), run_embedding_bwd, stream,
                   dtable, dpositions, dout, sorted_rows, sorted_keys, width, position_count,
                   *segments);
}
