/*
 * attention: out = dropout(softmax(q k^T / sqrt Dh)) v within each caption, and its backward pass,
 * for captions of up to 64 tokens and heads 64 wide; attention_long.cu handles the rest.
 *
 * One block computes one head of one caption, so no two blocks add to one element. Its 256 threads
 * are a square of 16 x 16; two tiles of shared memory hold, one after another, the operands of the
 * products:
 *
 *   forward   A: q -> P -> P kept     B: k -> v
 *   backward  A: dout -> k -> q       B: v -> P kept -> ds
 *
 * Thread (y, x) has the scores of rows y, y + 16, ... and columns x, x + 16, ...; and of products
 * that are 64 wide the rows y, y + 16, ... and the columns 4 x to 4 x + 3. Captions shorter than
 * the tile take as many steps of 16 as they have tokens. Tiles are f32 for every type of tensor.
 */
#include "kernels/cuda/text/attention.cuh"

enum { HEAD_WIDTH = 64, SIDE = 16, PIECE = HEAD_WIDTH / SIDE, PADDING = 4 };

/* Padding: 16 threads that read the same column of 16 rows, four numbers each, have no bank
 * conflict within a quarter of a warp. */
template <int ROWS> struct tile { alignas(16) float at[ROWS][HEAD_WIDTH + PADDING]; };

/* Four numbers of a tile, 16 bytes. */
static __device__ __forceinline__ void put_four(float *to, const float *x) {
    *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

/* Rows of `stride` elements into the tile. */
template <typename T, int ROWS>
static __device__ __forceinline__ void
load_tile(struct tile<ROWS> &to, const T *from, int64_t stride, int length) {
    constexpr int V = 16 / sizeof(T);
    constexpr int PIECES = HEAD_WIDTH / V;
    for (int i = (int)threadIdx.x; i < length * PIECES; i += THREADS) {
        const int row = i / PIECES;
        const int column = i % PIECES * V;
        float x[V];
        load(x, from + row * stride + column);
#pragma unroll
        for (int k = 0; k < V; k += 4) {
            put_four(&to.at[row][column + k], x + k);
        }
    }
}

/* s[i][j] = a row (y + 16 i) . b row (x + 16 j). Results of rows past the caption are not used. */
template <int ROWS, int STEPS>
static __device__ __forceinline__ void row_products(float (&s)[STEPS][STEPS],
                                                    const struct tile<ROWS> &a,
                                                    const struct tile<ROWS> &b,
                                                    int y,
                                                    int x,
                                                    int length) {
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            s[i][j] = 0.0f;
        }
    }
#pragma unroll 4
    for (int d = 0; d < HEAD_WIDTH; d += PIECE) {
        float right[STEPS][PIECE];
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            if (j * SIDE < length) {
                load(right[j], &b.at[x + SIDE * j][d]);
            }
        }
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i * SIDE < length) {
                float left[PIECE];
                load(left, &a.at[y + SIDE * i][d]);
#pragma unroll
                for (int j = 0; j < STEPS; j++) {
                    if (j * SIDE < length) {
#pragma unroll
                        for (int k = 0; k < PIECE; k++) {
                            s[i][j] += left[k] * right[j][k];
                        }
                    }
                }
            }
        }
    }
}

/* to row (y + 16 i) = sum over t < length of weight(t, that row) times row t of `b`. TRANSPOSED:
 * the weight stands at w[t][row], else at w[row][t]. */
template <bool TRANSPOSED, typename T, int ROWS>
static __device__ __forceinline__ void store_product(T *to,
                                                     int64_t stride,
                                                     const struct tile<ROWS> &w,
                                                     const struct tile<ROWS> &b,
                                                     int y,
                                                     int x,
                                                     int length) {
    constexpr int STEPS = ROWS / SIDE;
    float sum[STEPS][PIECE] = {};
#pragma unroll 4
    for (int t = 0; t < length; t++) {
        float row[PIECE];
        load(row, &b.at[t][PIECE * x]);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i * SIDE < length) {
                const int other = y + SIDE * i;
                const float weight = TRANSPOSED ? w.at[t][other] : w.at[other][t];
#pragma unroll
                for (int k = 0; k < PIECE; k++) {
                    sum[i][k] += weight * row[k];
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if (y + SIDE * i < length) {
            store(to + (y + SIDE * i) * stride + PIECE * x, sum[i]);
        }
    }
}

/* Along a row of scores, which 16 lanes of a warp share; keys past `length` become 0. */
template <typename T, int STEPS>
static __device__ __forceinline__ void
softmax_row(float (&s)[STEPS], int x, int length, float scale) {
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        s[j] = x + SIDE * j < length ? s[j] * scale : -INFINITY;
        most = fmaxf(most, s[j]);
    }
    most = warp_max(most, SIDE);
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        s[j] = x + SIDE * j < length ? expf(s[j] - most) : 0.0f;
        total += s[j];
    }
    total = warp_sum(total, SIDE);
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        s[j] = as_stored<T>(s[j] / total);
    }
}

/* Stores the tile of probabilities, zero past the caption, and leaves in it what dropout keeps. */
template <typename T, int ROWS>
static __device__ __forceinline__ void store_probs(struct tile<ROWS> &p,
                                                   const struct attention_operands<T> &a,
                                                   const struct head_place &h) {
    const int length = (int)h.caption.length;
    const int tokens = (int)a.tokens;
    const int groups = (tokens + 3) / 4;
    for (int i = (int)threadIdx.x; i < tokens * groups; i += THREADS) {
        const int query = i / groups;
        const int group = i % groups;
        T *to = a.probs + probs_row(a, h, query) + 4 * group;
        float values[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const bool inside = query < length && 4 * group + k < length;
            values[k] = inside ? p.at[query][4 * group + k] : 0.0f;
        }
        if (tokens % 4 == 0) {
            store(to, values);
        } else {
            for (int k = 0; k < 4 && 4 * group + k < tokens; k++) {
                put(to + k, values[k]);
            }
        }
        if (a.drop && query < length && 4 * group < length) {
            float factors[4];
            kept_keys(factors, a, h, query, group);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                p.at[query][4 * group + k] = values[k] * factors[k];
            }
        }
    }
}

template <typename T, int ROWS>
static __global__ void short_forward(struct attention_operands<T> a) {
    attention_begin(a);
    constexpr int STEPS = ROWS / SIDE;
    __shared__ struct tile<ROWS> first;
    __shared__ struct tile<ROWS> second;
    const struct head_place h = head_at(a, blockIdx.x);
    const int length = (int)h.caption.length;
    const int64_t stride = 3 * a.heads * HEAD_WIDTH;
    const int y = (int)threadIdx.x / SIDE;
    const int x = (int)threadIdx.x % SIDE;
    clear_gaps(a.out, 1, a, h);
    load_tile(first, a.qkv + qkv_row(a, h, PART_Q, 0), stride, length);
    load_tile(second, a.qkv + qkv_row(a, h, PART_K, 0), stride, length);
    __syncthreads();
    float s[STEPS][STEPS];
    row_products(s, first, second, y, x, length);
    __syncthreads();
    load_tile(second, a.qkv + qkv_row(a, h, PART_V, 0), stride, length);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if (i * SIDE < length) {
            softmax_row<T>(s[i], x, (int)seen_keys(a, h, y + SIDE * i), a.scale);
#pragma unroll
            for (int j = 0; j < STEPS; j++) {
                first.at[y + SIDE * i][x + SIDE * j] = s[i][j];
            }
        }
    }
    __syncthreads();
    store_probs(first, a, h);
    __syncthreads();
    store_product<false>(a.out + out_row(a, h, 0), a.heads * HEAD_WIDTH, first, second, y, x,
                         length);
}

/* The tile of probabilities, times what dropout does with each. */
template <typename T, int ROWS>
static __device__ __forceinline__ void
load_kept(struct tile<ROWS> &p, const struct attention_operands<T> &a, const struct head_place &h) {
    const int length = (int)h.caption.length;
    const int groups = (length + 3) / 4;
    for (int i = (int)threadIdx.x; i < length * groups; i += THREADS) {
        const int query = i / groups;
        const int group = i % groups;
        const T *from = a.probs + probs_row(a, h, query) + 4 * group;
        float factors[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        if (a.drop) {
            kept_keys(factors, a, h, query, group);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (4 * group + k < length) {
                p.at[query][4 * group + k] = to_f32(from[k]) * factors[k];
            }
        }
    }
}

/* From dP to ds = (P kept dP - P weighted) scale of a row that 16 lanes share; `kept` is a row of
 * the tile, `probs` the probabilities as stored. */
template <typename T, int STEPS>
static __device__ __forceinline__ void softmax_row_bwd(float (&dp)[STEPS],
                                                       const float *kept,
                                                       const T *probs,
                                                       int x,
                                                       int length,
                                                       bool row,
                                                       float scale) {
    float weighted = 0.0f;
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        const int key = x + SIDE * j;
        dp[j] = row && key < length ? dp[j] * kept[key] : 0.0f;
        weighted += dp[j];
    }
    weighted = warp_sum(weighted, SIDE);
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        const int key = x + SIDE * j;
        const float p = row && key < length ? to_f32(probs[key]) : 0.0f;
        dp[j] = (dp[j] - p * weighted) * scale;
    }
}

template <typename T, int ROWS>
static __global__ void short_backward(struct attention_operands<T> a) {
    attention_begin(a);
    constexpr int STEPS = ROWS / SIDE;
    __shared__ struct tile<ROWS> first;
    __shared__ struct tile<ROWS> second;
    const struct head_place h = head_at(a, blockIdx.x);
    const int length = (int)h.caption.length;
    const int64_t stride = 3 * a.heads * HEAD_WIDTH;
    const int y = (int)threadIdx.x / SIDE;
    const int x = (int)threadIdx.x % SIDE;
    clear_gaps(a.dqkv, 3, a, h);
    load_tile(first, a.dout + out_row(a, h, 0), a.heads * HEAD_WIDTH, length);
    load_tile(second, a.qkv + qkv_row(a, h, PART_V, 0), stride, length);
    __syncthreads();
    float s[STEPS][STEPS];
    row_products(s, first, second, y, x, length);
    __syncthreads();
    load_kept(second, a, h);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if (i * SIDE < length) {
            const int query = y + SIDE * i;
            softmax_row_bwd(s[i], second.at[query], a.probs + probs_row(a, h, query), x, length,
                            query < length, a.scale);
        }
    }
    store_product<true>(a.dqkv + qkv_row(a, h, PART_V, 0), stride, second, first, y, x, length);
    __syncthreads();
    load_tile(first, a.qkv + qkv_row(a, h, PART_K, 0), stride, length);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            if (i * SIDE < length) {
                second.at[y + SIDE * i][x + SIDE * j] = s[i][j];
            }
        }
    }
    __syncthreads();
    store_product<false>(a.dqkv + qkv_row(a, h, PART_Q, 0), stride, second, first, y, x, length);
    __syncthreads();
    load_tile(first, a.qkv + qkv_row(a, h, PART_Q, 0), stride, length);
    __syncthreads();
    store_product<true>(a.dqkv + qkv_row(a, h, PART_K, 0), stride, second, first, y, x, length);
}

/* ---- host side ---- */

enum { SHORT_TOKENS = 64 };

/* Common to both directions. `out`: the (R,D) tensor of either. */
template <typename T>
static struct attention_operands<T> operands_of(const struct launch_on &on,
                                                const struct tensor &probs,
                                                const struct tensor &qkv,
                                                const struct tensor &out,
                                                const struct segments &segments,
                                                const struct dropout_params &dropout) {
    struct attention_operands<T> a = {};
    a.probs = (T *)probs.data;
    a.qkv = (const T *)qkv.data;
    a.tokens = probs.shape[2];
    a.heads = probs.shape[1];
    a.head_width = out.shape[1] / a.heads;
    a.scale = (float)(1.0 / sqrt((double)a.head_width));
    a.segments = captions_of(on, segments, out.shape[0]);
    a.dropout = mask_of(dropout);
    a.drop = a.dropout.threshold > 0;
    a.weighted = (float *)on.workspace;
    return a;
}

template <typename T>
static bool is_short(const struct attention_operands<T> &a, const void *b, const void *c) {
    return a.tokens <= SHORT_TOKENS && a.head_width == HEAD_WIDTH && is_aligned(a.qkv) &&
           is_aligned(b) && is_aligned(c);
}

template <typename T, int V>
static cudaError_t run_attention(const struct launch_on &on, const struct attention &op) {
    struct attention_operands<T> a =
        operands_of<T>(on, op.probs, op.qkv, op.out, op.segments, op.dropout);
    const dim3 blocks((unsigned)(a.segments.count * a.heads));
    a.out = (T *)op.out.data;
    a.causal = op.causal;
    if (!is_short(a, a.out, a.probs)) {
        return run_long_attention(on.stream, a);
    }
    return a.tokens <= SHORT_TOKENS / 2 ? launch(on.stream, blocks, short_forward<T, 32>, a)
                                        : launch(on.stream, blocks, short_forward<T, 64>, a);
}

cudaError_t launch_attention(const struct launch_on *on, const struct attention *op) {
    return BY_TYPE(op->qkv.dtype, false, run_attention, *on, *op);
}

size_t attention_bwd_workspace_bytes(const struct attention_bwd *op) {
    return (size_t)(op->probs.shape[0] * op->probs.shape[1] * op->probs.shape[2]) * sizeof(float);
}

template <typename T, int V>
static cudaError_t run_attention_bwd(const struct launch_on &on, const struct attention_bwd &op) {
    struct attention_operands<T> a =
        operands_of<T>(on, op.probs, op.qkv, op.dout, op.segments, op.dropout);
    const dim3 blocks((unsigned)(a.segments.count * a.heads));
    a.dqkv = (T *)op.dqkv.data;
    a.dout = (const T *)op.dout.data;
    if (!is_short(a, a.dqkv, a.dout)) {
        return run_long_attention_bwd(on.stream, a);
    }
    return a.tokens <= SHORT_TOKENS / 2 ? launch(on.stream, blocks, short_backward<T, 32>, a)
                                        : launch(on.stream, blocks, short_backward<T, 64>, a);
}

cudaError_t launch_attention_bwd(const struct launch_on *on, const struct attention_bwd *op) {
    return BY_TYPE(op->qkv.dtype, false, run_attention_bwd, *on, *op);
}
