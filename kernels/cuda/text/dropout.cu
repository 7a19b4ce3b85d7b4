/*
 * dropout: out (R,D) = mask(in), with exactly the mask of kernels/dropout_mask.h.
 *
 * One warp per row: the search for the row's caption is the same for all lanes. One Philox block
 * gives four elements; if rows are multiples of four, they begin with a block.
 */
#include "kernels/cuda/text/captions.cuh"

/* Sample and position of a row; false for a row outside captions. */
static __device__ __forceinline__ bool
place_of(const struct launch_segments &segments, int64_t row, int64_t *sample, int64_t *position) {
    *sample = row;
    *position = 0;
    if (segments.starts != NULL) {
        *sample = caption_of(segments, row);
        *position = *sample >= 0 ? row - segments.starts[*sample] : 0;
    }
    return *sample >= 0;
}

/* V > 1: width is a multiple of V, and V of 4. */
template <typename T, int V>
static __global__ void dropout(T *out,
                               const T *in,
                               int64_t rows,
                               int64_t width,
                               struct launch_segments segments,
                               struct launch_dropout mask) {
    dropout_begin(mask);
    const int lane = threadIdx.x % WARP;
    const int64_t step = (int64_t)gridDim.x * WARPS;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < rows; row += step) {
        int64_t sample;
        int64_t position;
        const bool inside = place_of(segments, row, &sample, &position);
        const uint64_t id = inside ? mask.sample_ids[sample] : 0;
        for (int64_t d = lane * V; d < width; d += WARP * V) {
            const int64_t e = position * width + d;
            float x[V] = {};
            if (inside) {
                load(x, in + row * width + d);
            }
#pragma unroll
            for (int k = 0; k < V && inside; k += 4) {
                float factors[4];
                dropout_factors(factors, mask, id, (uint32_t)((e + k) / 4));
#pragma unroll
                for (int i = 0; i < (V < 4 ? 1 : 4); i++) {
                    x[k + i] *= factors[V < 4 ? e % 4 : i];
                }
            }
            store(out + row * width + d, x);
        }
    }
}

template <typename T, int V>
static cudaError_t run_dropout(const struct launch_on &on, const struct dropout &op) {
    const int64_t rows = op.in.shape[0];
    return launch(on.stream, blocks_for(rows * WARP), dropout<T, V>, (T *)op.out.data,
                  (const T *)op.in.data, rows, op.in.shape[1], captions_of(on, op.segments, rows),
                  mask_of(op.dropout));
}

LAUNCHER(dropout, dropout, in, wide(op->in, op->out))
