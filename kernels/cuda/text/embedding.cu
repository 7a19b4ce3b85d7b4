/*
 * embedding: out (R,D) = table[tokens] + positions[position], and its gradients without atomics.
 *
 * Backward, in three steps:
 *   1. sort the rows by (token, row): a row's place is the number of rows before it in that order,
 *      counted by comparison with all others: R^2 comparisons in shared memory, an estimated
 *      10 to 30 microseconds for the 16,000 rows of a batch, and simpler than any sort;
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
static cudaError_t run_embedding(const struct launch_on &on, const struct embedding &op) {
    const int64_t rows = op.out.shape[0];
    return launch(on.stream, blocks_for(rows * WARP), embedding<T, V>, (T *)op.out.data,
                  (const int32_t *)op.tokens.data, (const T *)op.table.data,
                  (const T *)op.positions.data, op.table.shape[1], op.table.shape[0],
                  op.positions.shape[0], captions_of(on, op.segments, rows));
}

LAUNCHER(embedding, embedding, table, wide(op->table, op->out, op->positions))

/* ---- order of tokens ---- */

static const int32_t NO_TOKEN = INT32_MAX; /* rows outside captions, and bad tokens: last */

/* keys[row] = the row's token, or NO_TOKEN for a row without one. */
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

/* sorted_rows[place of row] = row, and its key likewise. */
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
        /* Equal keys are ordered by row; nothing precedes an entry past the end. */
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

/* One block per place in the order; the first of a run adds the whole run, the others return. Rows
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

size_t embedding_bwd_workspace_bytes(const struct embedding_bwd *op) {
    return (size_t)op->dout.shape[0] * 3 * sizeof(int32_t); /* keys, then rows and keys in order */
}

template <typename T, int V>
static cudaError_t run_embedding_bwd(const struct launch_on &on,
                                     const struct embedding_bwd &op,
                                     const int32_t *sorted_rows,
                                     const int32_t *sorted_keys) {
    const int64_t rows = op.dout.shape[0];
    const int64_t width = op.dout.shape[1];
    const int64_t positions = op.dpositions.shape[0];
    if (sorted_rows != NULL) {
        TRY_LAUNCH(launch(on.stream, dim3((unsigned)rows), add_runs<T, V>, (float *)op.dtable.data,
                          (const T *)op.dout.data, sorted_rows, sorted_keys, rows, width));
    }
    return launch(on.stream, dim3((unsigned)positions), add_positions<T, V>,
                  (float *)op.dpositions.data, (const T *)op.dout.data, width, positions,
                  captions_of(on, op.segments, rows));
}

static cudaError_t clear(const struct launch_on *on, const struct tensor *t) {
    cuda_count_launch();
    return cudaMemsetAsync(t->data, 0, tensor_size_bytes(t), on->stream);
}

cudaError_t launch_embedding_bwd(const struct launch_on *on, const struct embedding_bwd *op) {
    const bool tokens = op->tokens.data != NULL;
    if (op->mode == WRITE_SET) {
        TRY_LAUNCH(tokens ? clear(on, &op->dtable) : cudaSuccess);
        TRY_LAUNCH(clear(on, &op->dpositions));
    }
    const int64_t rows = op->dout.shape[0];
    const enum dtype real = op->dout.dtype;
    if (rows > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    int32_t *keys = (int32_t *)on->workspace;
    int32_t *sorted_rows = tokens ? keys + rows : NULL;
    int32_t *sorted_keys = tokens ? sorted_rows + rows : NULL;
    if (tokens) {
        const dim3 blocks((unsigned)ceil_div(rows, THREADS));
        TRY_LAUNCH(launch(on->stream, blocks, token_keys, keys, (const int32_t *)op->tokens.data,
                          op->dtable.shape[0], op->dpositions.shape[0],
                          captions_of(*on, op->segments, rows)));
        TRY_LAUNCH(launch(on->stream, blocks, order_rows, sorted_rows, sorted_keys, keys, rows));
    }
    const bool vectors =
        wide(real, op->dout.shape[1], op->dtable.data, op->dpositions.data, op->dout.data);
    return BY_TYPE(real, vectors, run_embedding_bwd, *on, *op, sorted_rows, sorted_keys);
}
