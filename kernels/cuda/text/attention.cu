/*
 * attention: out = dropout(softmax(q k^T / sqrt Dh)) v within each caption, and its backward pass.
 *
 * A block computes ROWS rows of one head of one caption, 16 per warp. It reads the rows with which
 * they are multiplied COLS at a time, while the next ones are being copied; no matrix of scores is
 * ever in memory. No two blocks write to one element.
 *
 *   forward         own rows: q     over k, v:     out, rescaled whenever a larger score appears
 *   backward, dq    own: q, dout    over k, v:     dq += ds k
 *   backward, dk dv own: k, v       over q, dout:  dk += ds^T q, dv += (P kept)^T dout
 *
 * where P = e^(score - lse) and ds = P (kept dP - <out, dout>) / sqrt Dh. <out, dout> equals the
 * sum over keys of P kept dP; a separate kernel computes it first. This is FlashAttention-2
 * (arXiv:2307.08691) with two separate backward passes, so that no sum depends on an order.
 *
 * bf16 products run on the tensor cores: P and ds are rounded to bf16, sums are f32.
 */
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/text/captions.cuh"

#define LOG2_E 1.44269504088896340736f

template <typename T> struct attention_operands {
    T *to;      /* out (R,D) or dqkv (R,3,D) */
    float *lse; /* (N,heads,T); backward only reads it */
    const T *qkv, *out, *dout;
    float *along; /* backward: <out, dout> (R,heads) */
    int64_t tokens, heads, head_width;
    float scale; /* 1 / sqrt(head_width) */
    bool causal;
    bool drop;
    bool wide; /* rows of a head can be moved 16 bytes at a time */
    struct launch_segments segments;
    struct launch_dropout dropout;
};

enum part { PART_Q, PART_K, PART_V };

/* The block's head of a caption, and the first of its rows. */
struct head_place {
    int64_t n, head;
    struct caption caption;
    int first;
};

template <typename T>
static __device__ __forceinline__ struct head_place head_of(const struct attention_operands<T> &a,
                                                            int rows) {
    const int64_t n = blockIdx.x / a.heads;
    return {n, blockIdx.x % a.heads, caption_at(a.segments, n, a.tokens), (int)blockIdx.y * rows};
}

/* Rows of one head, `stride` elements apart. */
template <typename T> struct rows {
    T *from;
    int64_t stride;
};

template <typename T, typename P>
static __device__ __forceinline__ struct rows<P>
part_rows(const struct attention_operands<T> &a, const struct head_place &h, P *qkv, int part) {
    return {qkv + ((h.caption.start * 3 + part) * a.heads + h.head) * a.head_width,
            3 * a.heads *a.head_width};
}

template <typename T, typename P>
static __device__ __forceinline__ struct rows<P>
out_rows(const struct attention_operands<T> &a, const struct head_place &h, P *out) {
    return {out + (h.caption.start * a.heads + h.head) * a.head_width, a.heads *a.head_width};
}

/* Copies rows [first, first + ROWS) into the tile by BLOCK threads, with zeros beyond `length` and
 * beyond the head's width. Complete after copies_wait and a barrier. */
template <int BLOCK, typename T, int WIDTH, int ROWS>
static __device__ __forceinline__ void load_tile(struct tile<T, WIDTH, ROWS> &to,
                                                 const struct attention_operands<T> &a,
                                                 const struct rows<const T> &r,
                                                 int first,
                                                 int length) {
    constexpr int V = 16 / sizeof(T);
    constexpr int PIECES = WIDTH / V;
    if (!a.wide) {
        for (int i = (int)threadIdx.x; i < ROWS * WIDTH; i += BLOCK) {
            const int row = i / WIDTH;
            const int column = i % WIDTH;
            const bool inside = first + row < length && column < a.head_width;
            to.at[row][column] = inside ? r.from[(first + row) * r.stride + column] : T();
        }
        return;
    }
#pragma unroll
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += BLOCK) {
        const int row = i / PIECES;
        const int column = i % PIECES * V;
        const bool inside = first + row < length && column < a.head_width;
        copy_later(&to.at[row][column],
                   inside ? r.from + (first + row) * r.stride + column : r.from, !inside);
    }
}

/* Writes the lane's numbers of sum (16, WIDTH) to rows `row` and `row` + 8, times their factors. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void store_rows(const struct rows<T> &r,
                                                  const struct attention_operands<T> &a,
                                                  const float (&sum)[WIDTH / 8][4],
                                                  const float (&factor)[2],
                                                  int row,
                                                  int length) {
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        T *to = r.from + (row + 8 * j) * r.stride;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            const int column = 8 * i + 2 * q;
            const float pair[2] = {sum[i][2 * j] * factor[j], sum[i][2 * j + 1] * factor[j]};
            const int inside = row + 8 * j < length ? (int)a.head_width - column : 0;
            if (inside > 1 && a.wide) {
                store(to + column, pair);
            } else {
                for (int e = 0; e < 2 && e < inside; e++) {
                    put(to + column + e, pair[e]);
                }
            }
        }
    }
}

/* Which of the lane's elements of a (16, COLS) part of the scores dropout keeps: bit 4 i + e for
 * x[i][e]. Elements are numbered by dropout_attention_element. KEYS: rows are keys and columns
 * queries, otherwise the reverse. A loop: 16 times Philox would not fit into the instruction cache.
 */
template <bool KEYS, int COLS, typename T>
static __device__ __forceinline__ uint32_t
kept(const struct attention_operands<T> &a, const struct head_place &h, int row, int column) {
    uint32_t bits = 0;
#pragma unroll 1
    for (int n = 0; n < COLS / 2; n += KEYS ? 1 : 2) {
        const int r = row + n % 4 / 2 * 8;
        const int c = column + n / 4 * 8 + n % 2;
        const int query = KEYS ? c : r;
        const int key = KEYS ? r : c;
        if (query < h.caption.length && key < h.caption.length) {
            const uint32_t e =
                (uint32_t)((h.head * DROPOUT_MAX_TOKENS + query) * DROPOUT_MAX_TOKENS + key);
            float f[4];
            dropout_factors(f, a.dropout, a.dropout.sample_ids[h.n], e / 4);
            const float even = key % 4 < 2 ? f[0] : f[2];
            const float odd = key % 4 < 2 ? f[1] : f[3];
            bits |= (uint32_t)((key % 2 == 0 ? even : odd) > 0.0f) << n;
            bits |= KEYS ? 0 : (uint32_t)(odd > 0.0f) << (n + 1); /* the next key */
        }
    }
    return bits;
}

/* Zeros in rows outside captions: each caption's block clears those before it, the last also those
 * after it. `parts` is 1 for out (R,D), 3 for dqkv (R,3,D). Called by all threads of the block. */
template <typename T>
static __device__ __forceinline__ void
clear_gaps(const struct attention_operands<T> &a, const struct head_place &h, int parts) {
    const int64_t last = h.n + 1 == a.segments.count ? h.n + 1 : h.n;
    for (int64_t n = h.n; n <= last; n++) {
        const struct caption gap = gap_before(a.segments, n);
        for (int64_t i = threadIdx.x; i < gap.length * parts * a.head_width; i += blockDim.x) {
            const int64_t row = gap.start * parts + i / a.head_width;
            put(a.to + (row * a.heads + h.head) * a.head_width + i % a.head_width, 0.0f);
        }
    }
}

template <typename T, int WIDTH, int ROWS, int COLS>
static __global__ void __launch_bounds__(ROWS * 2, 256 / ROWS)
    forward(struct attention_operands<T> a) {
    constexpr int BLOCK = ROWS / 16 * WARP;
    __shared__ struct tile<T, WIDTH, ROWS> queries;
    __shared__ struct tile<T, WIDTH, COLS> keys[2];
    __shared__ struct tile<T, WIDTH, COLS> values[2];
    const struct head_place h = head_of(a, ROWS);
    const int length = (int)h.caption.length;
    const int warp = (int)threadIdx.x / WARP * 16;
    const int row = h.first + warp + (int)threadIdx.x % WARP / 4; /* and the one 8 further */
    const int q = (int)threadIdx.x % 4;
    const struct rows<const T> k = part_rows(a, h, a.qkv, PART_K);
    const struct rows<const T> v = part_rows(a, h, a.qkv, PART_V);
    float *lse = a.lse + (h.n * a.heads + h.head) * a.tokens;
    if (h.first == 0) {
        clear_gaps(a, h, 1);
    }
    for (int i = h.first + (int)threadIdx.x; i < h.first + ROWS && i < a.tokens; i += BLOCK) {
        if (i >= length) {
            lse[i] = 0.0f;
        }
    }
    if (h.first >= length) {
        return;
    }
    if (a.drop) {
        dropout_begin(a.dropout);
    }
    const int seen = a.causal && h.first + ROWS < length ? h.first + ROWS : length;
    const float scale = a.scale * LOG2_E;
    float largest[2] = {-INFINITY, -INFINITY}; /* of the row's scores, in units of log 2 */
    float total[2] = {0.0f, 0.0f};             /* of 2^(score - largest) in this lane's columns */
    float sum[WIDTH / 8][4] = {};
    load_tile<BLOCK>(queries, a, part_rows(a, h, a.qkv, PART_Q), h.first, length);
    load_tile<BLOCK>(keys[0], a, k, 0, length);
    load_tile<BLOCK>(values[0], a, v, 0, length);
    for (int key = 0, turn = 0; key < seen; key += COLS, turn ^= 1) {
        copies_wait();
        __syncthreads();
        if (key + COLS < seen) {
            load_tile<BLOCK>(keys[turn ^ 1], a, k, key + COLS, length);
            load_tile<BLOCK>(values[turn ^ 1], a, v, key + COLS, length);
        }
        if (h.first + warp >= length) {
            continue;
        }
        float x[COLS / 8][4];
        products(x, queries, warp, keys[turn]);
        const uint32_t keep = a.drop ? kept<false, COLS>(a, h, row, key + 2 * q) : 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int end = a.causal && row + 8 * j < length ? row + 8 * j + 1 : length;
            float most = largest[j];
#pragma unroll
            for (int i = 0; i < COLS / 8; i++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &score = x[i][2 * j + e];
                    score = key + 2 * q + 8 * i + e < end ? score * scale : -INFINITY;
                    most = fmaxf(most, score);
                }
            }
            most = warp_max(most, 4);
            const float shrink = power_of_two(largest[j] - most); /* the first tile has a key */
            largest[j] = most;
            total[j] *= shrink;
#pragma unroll
            for (int i = 0; i < COLS / 8; i++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &weight = x[i][2 * j + e];
                    weight = power_of_two(weight - most);
                    total[j] += weight;
                    if (a.drop && (keep >> (4 * i + 2 * j + e) & 1) == 0) {
                        weight = 0.0f;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < WIDTH / 8; i++) {
                sum[i][2 * j] *= shrink;
                sum[i][2 * j + 1] *= shrink;
            }
        }
        add_product(sum, x, values[turn]);
    }
    const float kept_scale = a.drop ? a.dropout.scale : 1.0f;
    float factor[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        total[j] = warp_sum(total[j], 4);
        factor[j] = kept_scale / total[j];
        if (q == 0 && row + 8 * j < length) {
            lse[row + 8 * j] = (largest[j] + log2f(total[j])) / LOG2_E;
        }
    }
    store_rows<T, WIDTH>(out_rows(a, h, a.to), a, sum, factor, row, length);
}

/* <out, dout> of each row and head, eight lanes for one. */
template <typename T> static __global__ void along_kernel(struct attention_operands<T> a) {
    const int64_t index = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 8;
    float sum = 0.0f;
    if (index < a.segments.rows * a.heads) {
        for (int64_t i = threadIdx.x % 8; i < a.head_width; i += 8) {
            const int64_t at = index * a.head_width + i;
            sum += to_f32(a.out[at]) * to_f32(a.dout[at]);
        }
    }
    sum = warp_sum(sum, 8);
    if (threadIdx.x % 8 == 0 && index < a.segments.rows * a.heads) {
        a.along[index] = sum;
    }
}

/* Own rows, two buffers of the others, and lse and <out, dout> of the queries among either. */
template <typename T, int WIDTH, int ROWS, int COLS> struct backward_room {
    struct tile<T, WIDTH, ROWS> own[2];
    struct tile<T, WIDTH, COLS> other[2][2];
    float lse[2][ROWS > COLS ? ROWS : COLS];
    float along[2][ROWS > COLS ? ROWS : COLS];
};

/* KEYS: own rows are keys and the others queries; otherwise the reverse. */
template <bool KEYS, typename T, int WIDTH, int ROWS, int COLS>
static __device__ __forceinline__ void
backward_rows(struct backward_room<T, WIDTH, ROWS, COLS> &room,
              const struct attention_operands<T> &a,
              const struct head_place &h) {
    constexpr int BLOCK = ROWS / 16 * WARP;
    const int length = (int)h.caption.length;
    const int warp = (int)threadIdx.x / WARP * 16;
    const int row = h.first + warp + (int)threadIdx.x % WARP / 4; /* and the one 8 further */
    const int q = (int)threadIdx.x % 4;
    const struct rows<const T> douts = out_rows(a, h, a.dout);
    const struct rows<const T> queries = part_rows(a, h, a.qkv, PART_Q);
    const struct rows<const T> keys = part_rows(a, h, a.qkv, PART_K);
    const struct rows<const T> values = part_rows(a, h, a.qkv, PART_V);
    const int begin = KEYS && a.causal ? h.first / COLS * COLS : 0;
    const int end = !KEYS && a.causal && h.first + ROWS < length ? h.first + ROWS : length;
    const auto load_queries = [&](int turn, int first, int count) {
        const float *lse = a.lse + (h.n * a.heads + h.head) * a.tokens;
        for (int i = (int)threadIdx.x; i < count; i += BLOCK) {
            const bool inside = first + i < length;
            const int64_t at = (h.caption.start + first + i) * a.heads + h.head;
            room.lse[turn][i] = inside ? lse[first + i] * LOG2_E : 0.0f;
            room.along[turn][i] = inside ? a.along[at] : 0.0f;
        }
    };
    const auto load_others = [&](int turn, int first) {
        load_tile<BLOCK>(room.other[turn][0], a, KEYS ? queries : keys, first, length);
        load_tile<BLOCK>(room.other[turn][1], a, KEYS ? douts : values, first, length);
        if (KEYS) {
            load_queries(turn, first, COLS);
        }
    };
    load_tile<BLOCK>(room.own[0], a, KEYS ? keys : queries, h.first, length);
    load_tile<BLOCK>(room.own[1], a, KEYS ? values : douts, h.first, length);
    if (!KEYS) {
        load_queries(0, h.first, ROWS);
    }
    load_others(0, begin);
    const float scale = a.scale * LOG2_E;
    const float kept_scale = a.drop ? a.dropout.scale : 1.0f;
    float first_sum[WIDTH / 8][4] = {};  /* dk or dq */
    float second_sum[WIDTH / 8][4] = {}; /* dv */
    for (int other = begin, turn = 0; other < end; other += COLS, turn ^= 1) {
        copies_wait();
        __syncthreads();
        if (other + COLS < end) {
            load_others(turn ^ 1, other + COLS);
        }
        if (h.first + warp >= length) {
            continue;
        }
        const int column = other + 2 * q;
        const uint32_t keep = a.drop ? kept<KEYS, COLS>(a, h, row, column) : 0;
        float p[COLS / 8][4];
        float ds[COLS / 8][4];
        products(p, room.own[0], warp, room.other[turn][0]);
        products(ds, room.own[1], warp, room.other[turn][1]);
#pragma unroll
        for (int i = 0; i < COLS / 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int mine = row + e / 2 * 8;
                const int theirs = column + 8 * i + e % 2;
                const int in_tile = KEYS ? theirs - other : mine - h.first;
                const int of = KEYS ? turn : 0;
                /* Queries past the caption are rows of zeros: they add nothing. */
                const bool sees = KEYS ? !a.causal || mine <= theirs
                                       : theirs < length && (!a.causal || theirs <= mine);
                const bool drop = a.drop && (keep >> (4 * i + e) & 1) == 0;
                const float prob =
                    sees ? power_of_two(p[i][e] * scale - room.lse[of][in_tile]) : 0.0f;
                const float dp = drop ? 0.0f : ds[i][e] * kept_scale;
                ds[i][e] = prob * (dp - room.along[of][in_tile]) * a.scale;
                p[i][e] = drop ? 0.0f : prob;
            }
        }
        add_product(first_sum, ds, room.other[turn][0]);
        if (KEYS) {
            add_product(second_sum, p, room.other[turn][1]);
        }
    }
    store_rows<T, WIDTH>(part_rows(a, h, a.to, KEYS ? PART_K : PART_Q), a, first_sum, {1.0f, 1.0f},
                         row, length);
    if (KEYS) {
        store_rows<T, WIDTH>(part_rows(a, h, a.to, PART_V), a, second_sum, {kept_scale, kept_scale},
                             row, length);
    }
}

template <bool KEYS, typename T, int WIDTH, int ROWS, int COLS>
static __global__ void __launch_bounds__(ROWS * 2, (KEYS ? 192 : 256) / ROWS)
    backward(struct attention_operands<T> a) {
    __shared__ struct backward_room<T, WIDTH, ROWS, COLS> room;
    const struct head_place h = head_of(a, ROWS);
    if (h.first == 0 && KEYS) {
        clear_gaps(a, h, 3);
    }
    if (h.first >= h.caption.length) {
        return;
    }
    if (a.drop) {
        dropout_begin(a.dropout);
    }
    backward_rows<KEYS>(room, a, h);
}

/* ---- host side ---- */

enum { HEAD_WIDTH = 64, WIDEST = 128 };

/* Common to both directions. */
template <typename T>
static struct attention_operands<T> operands_of(const struct launch_on &on,
                                                const struct tensor &to,
                                                const struct tensor &lse,
                                                const struct tensor &qkv,
                                                const struct tensor &out,
                                                const struct segments &segments,
                                                const struct dropout_params &dropout) {
    struct attention_operands<T> a = {};
    a.to = (T *)to.data;
    a.lse = (float *)lse.data;
    a.qkv = (const T *)qkv.data;
    a.out = (const T *)out.data;
    a.tokens = lse.shape[2];
    a.heads = lse.shape[1];
    a.head_width = out.shape[1] / a.heads;
    a.scale = (float)(1.0 / sqrt((double)a.head_width));
    a.segments = captions_of(on, segments, out.shape[0]);
    a.dropout = mask_of(dropout);
    a.drop = a.dropout.threshold > 0;
    a.along = (float *)on.workspace;
    return a;
}

template <typename T, int WIDTH, int ROWS, int COLS>
static cudaError_t run_tiles(const struct launch_on &on, const struct attention_operands<T> &a) {
    const dim3 grid((unsigned)(a.segments.count * a.heads), (unsigned)ceil_div(a.tokens, ROWS));
    if (a.dout == NULL) {
        return launch_threads(on.stream, grid, ROWS * 2, forward<T, WIDTH, ROWS, COLS>, a);
    }
    const dim3 blocks((unsigned)ceil_div(a.segments.rows * a.heads * 8, THREADS));
    TRY_LAUNCH(launch(on.stream, blocks, along_kernel<T>, a));
    TRY_LAUNCH(launch_threads(on.stream, grid, ROWS * 2, backward<true, T, WIDTH, ROWS, COLS>, a));
    return launch_threads(on.stream, grid, ROWS * 2, backward<false, T, WIDTH, ROWS, COLS>, a);
}

/* The tiles of a block fit into 48 KiB, which every GPU has. */
static cudaError_t run_widths(const struct launch_on &on,
                              const struct attention_operands<float> &a) {
    return a.head_width <= HEAD_WIDTH ? run_tiles<float, HEAD_WIDTH, 32, 16>(on, a)
                                      : run_tiles<float, WIDEST, 16, 8>(on, a);
}

static cudaError_t run_widths(const struct launch_on &on,
                              const struct attention_operands<bf16> &a) {
    if (a.head_width > HEAD_WIDTH) {
        return run_tiles<bf16, WIDEST, 32, 16>(on, a);
    }
    return a.tokens <= 32 ? run_tiles<bf16, HEAD_WIDTH, 32, 32>(on, a)
                          : run_tiles<bf16, HEAD_WIDTH, 64, 32>(on, a);
}

template <typename T, int V>
static cudaError_t run_attention(const struct launch_on &on, const struct attention &op) {
    struct attention_operands<T> a =
        operands_of<T>(on, op.out, op.lse, op.qkv, op.out, op.segments, op.dropout);
    a.causal = op.causal;
    a.wide = wide(op.qkv.dtype, a.head_width, a.qkv, a.to);
    return a.head_width > WIDEST ? cudaErrorInvalidValue : run_widths(on, a);
}

cudaError_t launch_attention(const struct launch_on *on, const struct attention *op) {
    return BY_TYPE(op->qkv.dtype, false, run_attention, *on, *op);
}

size_t attention_bwd_workspace_bytes(const struct attention_bwd *op) {
    return (size_t)(op->dout.shape[0] * op->lse.shape[1]) * sizeof(float);
}

template <typename T, int V>
static cudaError_t run_attention_bwd(const struct launch_on &on, const struct attention_bwd &op) {
    struct attention_operands<T> a =
        operands_of<T>(on, op.dqkv, op.lse, op.qkv, op.out, op.segments, op.dropout);
    a.dout = (const T *)op.dout.data;
    a.causal = op.causal;
    a.wide = wide(op.qkv.dtype, a.head_width, a.qkv, a.to, a.dout);
    return a.head_width > WIDEST ? cudaErrorInvalidValue : run_widths(on, a);
}

cudaError_t launch_attention_bwd(const struct launch_on *on, const struct attention_bwd *op) {
    return BY_TYPE(op->qkv.dtype, false, run_attention_bwd, *on, *op);
}
