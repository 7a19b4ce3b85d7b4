/*
 * attention: out = dropout(softmax(q k^T / sqrt Dh)) v within each caption, and its backward pass.
 *
 * A block computes ROWS rows of one head of one caption, 16 a warp, and visits what they are
 * multiplied with in tiles of ROWS as well; no matrix of scores is ever in memory. No two blocks
 * write to one element.
 *
 *   forward         own rows: q     over k, v: the sum of e^score, once more over k, v: out
 *   backward, dq    own: q, dout    over k, v:     dq += ds k
 *   backward, dk dv own: k, v       over q, dout:  dk += ds^T q, dv += (P kept)^T dout
 *
 * where P = e^(score - lse) and ds = P (kept dP - <out, dout>) / sqrt Dh. <out, dout> equals the
 * sum over keys of P kept dP; a kernel of its own computes it first. This is FlashAttention-2
 * (arXiv:2307.08691) with its two backward passes apart, so that no sum depends on an order.
 *
 * Products of bf16 are those of the tensor cores: P and ds are rounded to bf16, sums are f32.
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

/* Rows of one head that lie `stride` elements apart. */
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

/* Rows [first, first + ROWS) into the tile, zeros beyond `length` and beyond the head's width. */
template <typename T, int WIDTH, int ROWS>
static __device__ __forceinline__ void load_tile(struct tile<T, WIDTH, ROWS> &to,
                                                 const struct attention_operands<T> &a,
                                                 const struct rows<const T> &r,
                                                 int first,
                                                 int length) {
    constexpr int V = 16 / sizeof(T);
    constexpr int PIECES = WIDTH / V;
#pragma unroll
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += ROWS / 16 * WARP) {
        const int row = i / PIECES;
        const int column = i % PIECES * V;
        vector<T, V> v = {};
        if (first + row < length) {
            const T *from = r.from + (first + row) * r.stride + column;
            if (a.wide && column < a.head_width) {
                v = load_vector<T, V>(from);
            }
            for (int k = 0; !a.wide && k < V && column + k < a.head_width; k++) {
                v.at[k] = from[k];
            }
        }
        typedef typename access<16>::word word;
        word w;
        memcpy(&w, &v, sizeof w);
        *reinterpret_cast<word *>(&to.at[row][column]) = w;
    }
}

/* The lane's numbers of sum (16, WIDTH), times `factor`, into rows [first, first + 16). */
template <typename T, int WIDTH>
static __device__ __forceinline__ void store_rows(const struct rows<T> &r,
                                                  const struct attention_operands<T> &a,
                                                  const float (&sum)[WIDTH / 8][4],
                                                  float factor,
                                                  int first,
                                                  int length) {
    const int g = (int)threadIdx.x % WARP / 4;
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int row = first + g + 8 * j;
        T *to = r.from + row * r.stride;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            const int column = 8 * i + 2 * q;
            const float pair[2] = {sum[i][2 * j] * factor, sum[i][2 * j + 1] * factor};
            if (row < length && a.wide && column < a.head_width) {
                store(to + column, pair);
            }
            for (int k = 0; row < length && !a.wide && k < 2 && column + k < a.head_width; k++) {
                put(to + column + k, pair[k]);
            }
        }
    }
}

/* Whether the query sees the key, both within the caption. */
template <typename T>
static __device__ __forceinline__ bool
sees(const struct attention_operands<T> &a, int query, int key, int length) {
    return query < length && key < length && (!a.causal || key <= query);
}

/* 1 where dropout keeps the probability, else 0. Elements as dropout_attention_element numbers
 * them. */
template <typename T>
static __device__ __forceinline__ float
kept(const struct attention_operands<T> &a, const struct head_place &h, int query, int key) {
    float factors[4];
    const uint32_t e = (uint32_t)((h.head * DROPOUT_MAX_TOKENS + query) * DROPOUT_MAX_TOKENS + key);
    dropout_factors(factors, a.dropout, a.dropout.sample_ids[h.n], e / 4);
    const float low = key % 2 == 0 ? factors[0] : factors[1];
    const float high = key % 2 == 0 ? factors[2] : factors[3];
    return (key % 4 < 2 ? low : high) > 0.0f ? 1.0f : 0.0f;
}

/* Zeros in the rows of no caption: each caption's block clears those before it, the last also those
 * after it. `parts` is 1 for out (R,D), 3 for dqkv (R,3,D). All threads of the block call it. */
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

/* Scores of rows from `first` and keys from `key`, in units of log 2; -inf where none is seen. */
template <typename T, int ROWS>
static __device__ __forceinline__ void scale_scores(float (&x)[ROWS / 8][4],
                                                    const struct attention_operands<T> &a,
                                                    int first,
                                                    int key,
                                                    int length) {
    const int g = (int)threadIdx.x % WARP / 4;
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            x[i][e] = sees(a, first + g + e / 2 * 8, key + 8 * i + 2 * q + e % 2, length)
                          ? x[i][e] * (a.scale * LOG2_E)
                          : -INFINITY;
        }
    }
}

/* Adds a tile's scores to the largest one and the sum of 2^(score - largest) of two rows, which the
 * four lanes of a row share. */
template <int ROWS>
static __device__ __forceinline__ void
add_scores(float (&largest)[2], float (&total)[2], const float (&x)[ROWS / 8][4]) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) {
            most = fmaxf(most, fmaxf(x[i][2 * j], x[i][2 * j + 1]));
        }
        most = fmaxf(largest[j], warp_max(most, 4));
        const float shift = most == -INFINITY ? 0.0f : most; /* rows past the caption see nothing */
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) {
            sum += exp2f(x[i][2 * j] - shift) + exp2f(x[i][2 * j + 1] - shift);
        }
        total[j] = total[j] * exp2f(largest[j] - shift) + warp_sum(sum, 4);
        largest[j] = most;
    }
}

template <typename T, int WIDTH, int ROWS>
static __global__ void forward(struct attention_operands<T> a) {
    __shared__ struct tile<T, WIDTH, ROWS> queries;
    __shared__ struct tile<T, WIDTH, ROWS> keys;
    __shared__ struct tile<T, WIDTH, ROWS> values;
    const struct head_place h = head_of(a, ROWS);
    const int length = (int)h.caption.length;
    const int mine = h.first + (int)threadIdx.x / WARP * 16; /* this warp's first query */
    const int g = (int)threadIdx.x % WARP / 4;
    const int q = (int)threadIdx.x % 4;
    const struct rows<const T> k = part_rows(a, h, a.qkv, PART_K);
    const struct rows<const T> v = part_rows(a, h, a.qkv, PART_V);
    float *lse = a.lse + (h.n * a.heads + h.head) * a.tokens;
    if (h.first == 0) {
        clear_gaps(a, h, 1);
    }
    for (int row = h.first + (int)threadIdx.x; row < h.first + ROWS && row < a.tokens;
         row += (int)blockDim.x) {
        if (row >= length) {
            lse[row] = 0.0f;
        }
    }
    if (h.first >= length) {
        return;
    }
    if (a.drop) {
        dropout_begin(a.dropout);
    }
    const int seen = a.causal && h.first + ROWS < length ? h.first + ROWS : length;
    float x[ROWS / 8][4];
    float largest[2] = {-INFINITY, -INFINITY};
    float total[2] = {0.0f, 0.0f};
    load_tile(queries, a, part_rows(a, h, a.qkv, PART_Q), h.first, length);
    if (seen <= ROWS) {
        load_tile(values, a, v, 0, length);
    }
    for (int key = 0; key < seen; key += ROWS) {
        __syncthreads();
        load_tile(keys, a, k, key, length);
        __syncthreads();
        products(x, queries, mine - h.first, keys);
        scale_scores<T, ROWS>(x, a, mine, key, length);
        add_scores<ROWS>(largest, total, x);
    }
    float log_sum[2]; /* 2^-this divides by the sum */
#pragma unroll
    for (int j = 0; j < 2; j++) {
        log_sum[j] = total[j] > 0.0f ? largest[j] + log2f(total[j]) : 0.0f;
        const int row = mine + g + 8 * j;
        if (q == 0 && row < length) {
            lse[row] = log_sum[j] / LOG2_E;
        }
    }
    float sum[WIDTH / 8][4] = {};
    for (int key = 0; key < seen; key += ROWS) {
        if (seen > ROWS) { /* else both are there */
            __syncthreads();
            load_tile(keys, a, k, key, length);
            load_tile(values, a, v, key, length);
            __syncthreads();
            products(x, queries, mine - h.first, keys);
            scale_scores<T, ROWS>(x, a, mine, key, length);
        }
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[i][e] = exp2f(x[i][e] - log_sum[e / 2]);
                if (a.drop) {
                    x[i][e] *= kept(a, h, mine + g + e / 2 * 8, key + 8 * i + 2 * q + e % 2);
                }
            }
        }
        add_product(sum, x, values);
    }
    store_rows<T, WIDTH>(out_rows(a, h, a.to), a, sum, a.drop ? a.dropout.scale : 1.0f, mine,
                         length);
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

/* Four tiles, and what is known of each query among them. */
template <typename T, int WIDTH, int ROWS> struct backward_room {
    struct tile<T, WIDTH, ROWS> own[2];
    struct tile<T, WIDTH, ROWS> other[2];
    float lse[ROWS], along[ROWS];
};

template <typename T, int WIDTH, int ROWS>
static __device__ __forceinline__ void load_queries(struct backward_room<T, WIDTH, ROWS> &room,
                                                    const struct attention_operands<T> &a,
                                                    const struct head_place &h,
                                                    int first) {
    const float *lse = a.lse + (h.n * a.heads + h.head) * a.tokens;
    for (int i = (int)threadIdx.x; i < ROWS; i += ROWS / 16 * WARP) {
        const bool inside = first + i < h.caption.length;
        const int64_t row = h.caption.start + first + i;
        room.lse[i] = inside ? lse[first + i] * LOG2_E : 0.0f;
        room.along[i] = inside ? a.along[row * a.heads + h.head] : 0.0f;
    }
}

/* KEYS: own rows are keys and the others queries; otherwise the reverse. */
template <bool KEYS, typename T, int WIDTH, int ROWS>
static __device__ __forceinline__ void backward_rows(struct backward_room<T, WIDTH, ROWS> &room,
                                                     const struct attention_operands<T> &a,
                                                     const struct head_place &h) {
    const int length = (int)h.caption.length;
    const int warp = (int)threadIdx.x / WARP * 16;
    const int g = (int)threadIdx.x % WARP / 4;
    const int q = (int)threadIdx.x % 4;
    const struct rows<const T> queries = part_rows(a, h, a.qkv, PART_Q);
    const struct rows<const T> keys = part_rows(a, h, a.qkv, PART_K);
    const struct rows<const T> values = part_rows(a, h, a.qkv, PART_V);
    const struct rows<const T> douts = out_rows(a, h, a.dout);
    load_tile(room.own[0], a, KEYS ? keys : queries, h.first, length);
    load_tile(room.own[1], a, KEYS ? values : douts, h.first, length);
    if (!KEYS) {
        load_queries(room, a, h, h.first);
    }
    float first_sum[WIDTH / 8][4] = {};  /* dk or dq */
    float second_sum[WIDTH / 8][4] = {}; /* dv */
    const int begin = KEYS && a.causal ? h.first : 0;
    const int end = !KEYS && a.causal && h.first + ROWS < length ? h.first + ROWS : length;
    for (int other = begin; other < end; other += ROWS) {
        __syncthreads();
        load_tile(room.other[0], a, KEYS ? queries : keys, other, length);
        load_tile(room.other[1], a, KEYS ? douts : values, other, length);
        if (KEYS) {
            load_queries(room, a, h, other);
        }
        __syncthreads();
        float p[ROWS / 8][4];
        float ds[ROWS / 8][4];
        products(p, room.own[0], warp, room.other[0]);
        products(ds, room.own[1], warp, room.other[1]);
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = warp + g + e / 2 * 8;
                const int column = 8 * i + 2 * q + e % 2;
                const int query = KEYS ? other + column : h.first + row;
                const int key = KEYS ? h.first + row : other + column;
                const int in_tile = KEYS ? column : row;
                const float scaled = p[i][e] * (a.scale * LOG2_E);
                const float prob =
                    sees(a, query, key, length) ? exp2f(scaled - room.lse[in_tile]) : 0.0f;
                const float keep = a.drop ? kept(a, h, query, key) : 1.0f;
                const float dp = a.drop ? ds[i][e] * keep * a.dropout.scale : ds[i][e];
                ds[i][e] = prob * (dp - room.along[in_tile]) * a.scale;
                p[i][e] = prob * keep;
            }
        }
        add_product(first_sum, ds, room.other[0]);
        if (KEYS) {
            add_product(second_sum, p, room.other[1]);
        }
    }
    const int mine = h.first + warp;
    store_rows<T, WIDTH>(part_rows(a, h, a.to, KEYS ? PART_K : PART_Q), a, first_sum, 1.0f, mine,
                         length);
    if (KEYS) {
        store_rows<T, WIDTH>(part_rows(a, h, a.to, PART_V), a, second_sum,
                             a.drop ? a.dropout.scale : 1.0f, mine, length);
    }
}

template <typename T, int WIDTH, int ROWS>
static __global__ void backward(struct attention_operands<T> a) {
    __shared__ struct backward_room<T, WIDTH, ROWS> room;
    const struct head_place h = head_of(a, ROWS);
    if (h.first == 0 && blockIdx.z == 0) {
        clear_gaps(a, h, 3);
    }
    if (h.first >= h.caption.length) {
        return;
    }
    if (a.drop) {
        dropout_begin(a.dropout);
    }
    if (blockIdx.z == 0) {
        backward_rows<true>(room, a, h);
    } else {
        backward_rows<false>(room, a, h);
    }
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

template <typename T, int WIDTH, int ROWS>
static cudaError_t run_tiles(const struct launch_on &on, const struct attention_operands<T> &a) {
    dim3 grid((unsigned)(a.segments.count * a.heads), (unsigned)ceil_div(a.tokens, ROWS));
    if (a.dout == NULL) {
        return launch_threads(on.stream, grid, ROWS / 16 * WARP, forward<T, WIDTH, ROWS>, a);
    }
    const dim3 blocks((unsigned)ceil_div(a.segments.rows * a.heads * 8, THREADS));
    TRY_LAUNCH(launch(on.stream, blocks, along_kernel<T>, a));
    grid.z = 2;
    return launch_threads(on.stream, grid, ROWS / 16 * WARP, backward<T, WIDTH, ROWS>, a);
}

/* Four tiles of a block fit into 48 KiB, which every GPU has. */
static cudaError_t run_widths(const struct launch_on &on,
                              const struct attention_operands<float> &a) {
    return a.head_width <= HEAD_WIDTH ? run_tiles<float, HEAD_WIDTH, 32>(on, a)
                                      : run_tiles<float, WIDEST, 16>(on, a);
}

static cudaError_t run_widths(const struct launch_on &on,
                              const struct attention_operands<bf16> &a) {
    if (a.head_width > HEAD_WIDTH) {
        return run_tiles<bf16, WIDEST, 32>(on, a);
    }
    return a.tokens <= 32 ? run_tiles<bf16, HEAD_WIDTH, 32>(on, a)
                          : run_tiles<bf16, HEAD_WIDTH, 64>(on, a);
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
