/*
 * attention: shared by attention.cu and attention_long.cu: operands, and the memory layout of a
 * head.
 */
#ifndef KERNELS_CUDA_TEXT_ATTENTION_CUH
#define KERNELS_CUDA_TEXT_ATTENTION_CUH

#include "kernels/cuda/text/captions.cuh"

template <typename T> struct attention_operands {
    T *out;   /* forward: (R,D) */
    T *dqkv;  /* backward: (R,3,D) */
    T *probs; /* (N,heads,T,T); backward only reads it */
    const T *qkv, *dout;
    float *weighted; /* workspace of the long backward pass: sum P da of each query (N,heads,T) */
    int64_t tokens, heads, head_width;
    float scale; /* 1 / sqrt(head_width) */
    bool causal; /* forward */
    bool drop;
    struct launch_segments segments;
    struct launch_dropout dropout;
};

enum part { PART_Q, PART_K, PART_V };

/* One head of one caption. */
struct head_place {
    int64_t n, head;
    struct caption caption;
};

template <typename T>
static __device__ __forceinline__ struct head_place head_at(const struct attention_operands<T> &a,
                                                            int64_t index) {
    const int64_t n = index / a.heads;
    return {n, index % a.heads, caption_at(a.segments, n, a.tokens)};
}

/* Where row t of the head begins in out and dout. */
template <typename T>
static __device__ __forceinline__ int64_t out_row(const struct attention_operands<T> &a,
                                                  const struct head_place &h,
                                                  int64_t t) {
    return ((h.caption.start + t) * a.heads + h.head) * a.head_width;
}

/* The same in qkv and dqkv. */
template <typename T>
static __device__ __forceinline__ int64_t qkv_row(const struct attention_operands<T> &a,
                                                  const struct head_place &h,
                                                  enum part part,
                                                  int64_t t) {
    return (((h.caption.start + t) * 3 + part) * a.heads + h.head) * a.head_width;
}

template <typename T>
static __device__ __forceinline__ int64_t probs_row(const struct attention_operands<T> &a,
                                                    const struct head_place &h,
                                                    int64_t query) {
    return ((h.n * a.heads + h.head) * a.tokens + query) * a.tokens;
}

/* Keys that a query of the caption sees: [0, this). */
template <typename T>
static __device__ __forceinline__ int64_t seen_keys(const struct attention_operands<T> &a,
                                                    const struct head_place &h,
                                                    int64_t query) {
    return a.causal && query < h.caption.length ? query + 1 : h.caption.length;
}

/* Called first in every kernel that uses kept_keys, on its own copy of the operands. */
template <typename T>
static __device__ __forceinline__ void attention_begin(struct attention_operands<T> &a) {
    if (a.drop) {
        dropout_begin(a.dropout);
    }
}

/* 0 or the scale of kept ones, for keys [4 group, 4 group + 4) of a query: elements as
 * dropout_attention_element numbers them. */
template <typename T>
static __device__ __forceinline__ void kept_keys(float (&factors)[4],
                                                 const struct attention_operands<T> &a,
                                                 const struct head_place &h,
                                                 int64_t query,
                                                 int64_t group) {
    const uint32_t e =
        (uint32_t)((h.head * DROPOUT_MAX_TOKENS + query) * DROPOUT_MAX_TOKENS + 4 * group);
    dropout_factors(factors, a.dropout, a.dropout.sample_ids[h.n], e / 4);
}

/* Zeros in the rows of no caption: each caption's block clears those before it, the last also those
 * after it. `parts` is 1 for out (R,D), 3 for dqkv (R,3,D). All threads of the block call it. */
template <typename T>
static __device__ __forceinline__ void clear_gaps(T *to,
                                                  int64_t parts,
                                                  const struct attention_operands<T> &a,
                                                  const struct head_place &h) {
    const int64_t last = h.n + 1 == a.segments.count ? h.n + 1 : h.n;
    for (int64_t n = h.n; n <= last; n++) {
        const struct caption gap = gap_before(a.segments, n);
        for (int64_t i = threadIdx.x; i < gap.length * parts * a.head_width; i += THREADS) {
            const int64_t row = gap.start * parts + i / a.head_width;
            put(to + (row * a.heads + h.head) * a.head_width + i % a.head_width, 0.0f);
        }
    }
}

/* attention_long.cu: heads of any width, captions of any length up to DROPOUT_MAX_TOKENS. */
template <typename T>
cudaError_t run_long_attention(cudaStream_t stream, const struct attention_operands<T> &a);
template <typename T>
cudaError_t run_long_attention_bwd(cudaStream_t stream, const struct attention_operands<T> &a);

#endif
