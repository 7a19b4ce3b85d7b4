/*
 * attention_long: attention of any shape, one block per query (and, in the backward pass, one more
 * per key): the fallback for shapes that attention.cu does not support. Correct, not fast: a head's
 * keys are read again for every query.
 */
#include "kernels/cuda/text/attention.cuh"

/* The block's head, and its query or key as *t. */
template <typename T>
static __device__ __forceinline__ struct head_place
long_place(const struct attention_operands<T> &a, int64_t *t) {
    *t = blockIdx.x % a.tokens;
    return head_at(a, blockIdx.x / a.tokens);
}

/* The warp's dot product of two rows of a head. */
template <typename T>
static __device__ __forceinline__ float
dot(const struct attention_operands<T> &a, const T *x, const T *y) {
    float sum = 0.0f;
    for (int64_t d = threadIdx.x % WARP; d < a.head_width; d += WARP) {
        sum += to_f32(x[d]) * to_f32(y[d]);
    }
    return warp_sum(sum);
}

template <typename T>
static __device__ __forceinline__ float kept(const struct attention_operands<T> &a,
                                             const struct head_place &h,
                                             int64_t query,
                                             int64_t key) {
    if (!a.drop) {
        return 1.0f;
    }
    float factors[4];
    kept_keys(factors, a, h, query, key / 4);
    return key % 4 == 0   ? factors[0]
           : key % 4 == 1 ? factors[1]
           : key % 4 == 2 ? factors[2]
                          : factors[3];
}

/* to[d] = sum over t < length of weights[t] from(t)[d]; rows are `stride` elements apart. */
template <typename T>
static __device__ __forceinline__ void weighted_rows(T *to,
                                                     const float *weights,
                                                     const T *from,
                                                     int64_t stride,
                                                     int64_t length,
                                                     int64_t width) {
    for (int64_t d = threadIdx.x; d < width; d += THREADS) {
        float sum = 0.0f;
        for (int64_t t = 0; t < length; t++) {
            sum += weights[t] * to_f32(from[t * stride + d]);
        }
        put(to + d, sum);
    }
}

/* One block per query. */
template <typename T> static __global__ void long_forward(struct attention_operands<T> a) {
    attention_begin(a);
    __shared__ float scores[DROPOUT_MAX_TOKENS];
    int64_t query;
    const struct head_place h = long_place(a, &query);
    const int64_t length = h.caption.length;
    const int64_t keys = seen_keys(a, h, query);
    const int64_t stride = 3 * a.heads * a.head_width;
    T *probs = a.probs + probs_row(a, h, query);
    if (query == 0) {
        clear_gaps(a.out, 1, a, h);
    }
    for (int64_t key = threadIdx.x; key < a.tokens; key += THREADS) {
        if (query >= length || key >= keys) {
            put(probs + key, 0.0f);
        }
    }
    if (query >= length) {
        return;
    }
    const T *q = a.qkv + qkv_row(a, h, PART_Q, query);
    for (int64_t key = threadIdx.x / WARP; key < keys; key += WARPS) {
        const float score = dot(a, q, a.qkv + qkv_row(a, h, PART_K, key)) * a.scale;
        if (threadIdx.x % WARP == 0) {
            scores[key] = score;
        }
    }
    __syncthreads();
    if (threadIdx.x < WARP) {
        float most = -INFINITY;
        float total = 0.0f;
        for (int64_t key = threadIdx.x; key < keys; key += WARP) {
            most = fmaxf(most, scores[key]);
        }
        most = warp_max(most);
        for (int64_t key = threadIdx.x; key < keys; key += WARP) {
            total += expf(scores[key] - most);
        }
        total = warp_sum(total);
        for (int64_t key = threadIdx.x; key < keys; key += WARP) {
            const float p = as_stored<T>(expf(scores[key] - most) / total);
            put(probs + key, p);
            scores[key] = p * kept(a, h, query, key);
        }
    }
    __syncthreads();
    weighted_rows(a.out + out_row(a, h, query), scores, a.qkv + qkv_row(a, h, PART_V, 0), stride,
                  keys, a.head_width);
}

template <typename T>
cudaError_t run_long_attention(cudaStream_t stream, const struct attention_operands<T> &a) {
    return launch(stream, dim3((unsigned)(a.segments.count * a.heads * a.tokens)), long_forward<T>,
                  a);
}

template cudaError_t run_long_attention(cudaStream_t, const struct attention_operands<float> &);
template cudaError_t run_long_attention(cudaStream_t, const struct attention_operands<bf16> &);

/* ---- backward: da = dP kept, ds = P (da - weighted) scale, weighted = sum P da ---- */

/* One block per query: dq = ds k, and weighted for the keys' turn. */
template <typename T> static __global__ void long_backward_query(struct attention_operands<T> a) {
    attention_begin(a);
    __shared__ float da[DROPOUT_MAX_TOKENS];
    __shared__ float room[WARPS];
    int64_t query;
    const struct head_place h = long_place(a, &query);
    const int64_t length = h.caption.length;
    const int64_t stride = 3 * a.heads * a.head_width;
    const T *probs = a.probs + probs_row(a, h, query);
    if (query == 0) {
        clear_gaps(a.dqkv, 3, a, h);
    }
    if (query >= length) {
        return;
    }
    const T *dout = a.dout + out_row(a, h, query);
    for (int64_t key = threadIdx.x / WARP; key < length; key += WARPS) {
        const float dp = dot(a, dout, a.qkv + qkv_row(a, h, PART_V, key));
        if (threadIdx.x % WARP == 0) {
            da[key] = dp * kept(a, h, query, key);
        }
    }
    __syncthreads();
    float weighted = 0.0f;
    for (int64_t key = threadIdx.x; key < length; key += THREADS) {
        weighted += to_f32(probs[key]) * da[key];
    }
    weighted = block_sum(weighted, room);
    for (int64_t key = threadIdx.x; key < length; key += THREADS) {
        da[key] = to_f32(probs[key]) * (da[key] - weighted) * a.scale;
    }
    if (threadIdx.x == 0) {
        a.weighted[blockIdx.x] = weighted;
    }
    __syncthreads();
    weighted_rows(a.dqkv + qkv_row(a, h, PART_Q, query), da, a.qkv + qkv_row(a, h, PART_K, 0),
                  stride, length, a.head_width);
}

/* One block per key: dk = ds^T q, dv = (P kept)^T dout. */
template <typename T> static __global__ void long_backward_key(struct attention_operands<T> a) {
    attention_begin(a);
    __shared__ float ds[DROPOUT_MAX_TOKENS];
    __shared__ float pk[DROPOUT_MAX_TOKENS];
    int64_t key;
    const struct head_place h = long_place(a, &key);
    const int64_t length = h.caption.length;
    const int64_t width = a.heads * a.head_width;
    if (key >= length) {
        return;
    }
    const float *weighted = a.weighted + (h.n * a.heads + h.head) * a.tokens;
    const T *v = a.qkv + qkv_row(a, h, PART_V, key);
    for (int64_t query = threadIdx.x / WARP; query < length; query += WARPS) {
        const float dp = dot(a, a.dout + out_row(a, h, query), v);
        if (threadIdx.x % WARP == 0) {
            const float p = to_f32(a.probs[probs_row(a, h, query) + key]);
            const float factor = kept(a, h, query, key);
            ds[query] = p * (dp * factor - weighted[query]) * a.scale;
            pk[query] = p * factor;
        }
    }
    __syncthreads();
    weighted_rows(a.dqkv + qkv_row(a, h, PART_K, key), ds, a.qkv + qkv_row(a, h, PART_Q, 0),
                  3 * width, length, a.head_width);
    weighted_rows(a.dqkv + qkv_row(a, h, PART_V, key), pk, a.dout + out_row(a, h, 0), width, length,
                  a.head_width);
}

template <typename T>
cudaError_t run_long_attention_bwd(cudaStream_t stream, const struct attention_operands<T> &a) {
    const dim3 blocks((unsigned)(a.segments.count * a.heads * a.tokens));
    TRY_LAUNCH(launch(stream, blocks, long_backward_query<T>, a));
    return launch(stream, blocks, long_backward_key<T>, a);
}

template cudaError_t run_long_attention_bwd(cudaStream_t, const struct attention_operands<float> &);
template cudaError_t run_long_attention_bwd(cudaStream_t, const struct attention_operands<bf16> &);
