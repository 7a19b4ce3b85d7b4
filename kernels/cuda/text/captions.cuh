/*
 * captions: the rows of a caption, the caption of a row, and dropout's random numbers, on the
 * device. Results stay within the rows for any contents of the segments.
 */
#ifndef KERNELS_CUDA_TEXT_CAPTIONS_CUH
#define KERNELS_CUDA_TEXT_CAPTIONS_CUH

#include "formats/base/rng.h"
#include "kernels/cuda/device/common.cuh"
extern "C" {
#include "kernels/dropout_mask.h"
}

/* struct segments on the device: captions in a list of `rows` rows. */
struct launch_segments {
    const int32_t *starts, *lengths; /* (count); NULL: row n is sample n */
    int64_t count, rows;
    int32_t *fault; /* FAULT_SEGMENT if a caption leaves the rows or is longer than allowed */
};

/* struct dropout_params, prepared. Kernels compute key and tweak of dropout_stream_init themselves,
 * once per thread (dropout_begin), since the step is in device memory. */
struct launch_dropout {
    uint32_t seed[2], layer;
    uint32_t threshold; /* dropout_threshold; 0: nothing is dropped */
    float scale;        /* 1 / (1 - p) */
    uint32_t key[2], tweak;
    const uint64_t *step;       /* on the device */
    const uint64_t *sample_ids; /* (N), on the device */
};

struct caption {
    int64_t start, length; /* length 0: an invalid caption */
};

static __device__ __forceinline__ struct caption
caption_at(const struct launch_segments &s, int64_t n, int64_t longest) {
    struct caption c = {s.starts[n], s.lengths[n]};
    if (c.start < 0 || c.length < 1 || c.length > longest || c.start > s.rows - c.length) {
        report(s.fault, FAULT_SEGMENT);
        c.start = 0;
        c.length = 0;
    }
    return c;
}

/* Rows outside captions that precede caption n, or follow the last one for n == count. */
static __device__ __forceinline__ struct caption gap_before(const struct launch_segments &s,
                                                            int64_t n) {
    int64_t begin = n > 0 ? (int64_t)s.starts[n - 1] + s.lengths[n - 1] : 0;
    int64_t end = n < s.count ? s.starts[n] : s.rows;
    begin = begin < 0 ? 0 : begin;
    end = end > s.rows ? s.rows : end;
    return {begin, end > begin ? end - begin : 0};
}

/* The caption that holds `row`, or -1: the last one that starts at or before it, if it reaches. */
static __device__ __forceinline__ int64_t caption_of(const struct launch_segments &s, int64_t row) {
    int64_t low = 0;
    int64_t high = s.count; /* starts[low - 1] <= row < starts[high] */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (s.starts[middle] <= row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && row < (int64_t)s.starts[low - 1] + s.lengths[low - 1] ? low - 1 : -1;
}

/* rng_block of formats/base/rng.h: Philox4x32-10. */
static __device__ __forceinline__ void philox(uint32_t (&out)[4],
                                              uint32_t k0,
                                              uint32_t k1,
                                              uint32_t c0,
                                              uint32_t c1,
                                              uint32_t c2,
                                              uint32_t c3) {
#pragma unroll
    for (int i = 0; i < 10; i++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* dropout_stream_init for this thread's copy; called before any factors are computed. */
static __device__ __forceinline__ void dropout_begin(struct launch_dropout &d) {
    const uint64_t step = *d.step;
    uint32_t words[4];
    philox(words, d.seed[0], d.seed[1], (uint32_t)step, (uint32_t)(step >> 32), d.layer,
           RNG_DROPOUT);
    d.key[0] = words[0];
    d.key[1] = words[1];
    d.tweak = words[2];
}

/* Factors of elements [4 block, 4 block + 4) of a sample: 0 or `scale`. dropout_draw's numbers. */
static __device__ __forceinline__ void dropout_factors(float (&out)[4],
                                                       const struct launch_dropout &d,
                                                       uint64_t sample_id,
                                                       uint32_t block) {
    uint32_t draws[4];
    philox(draws, d.key[0], d.key[1], block, (uint32_t)sample_id, (uint32_t)(sample_id >> 32),
           d.tweak);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[i] = draws[i] >> 8 < d.threshold ? 0.0f : d.scale;
    }
}

/* ---- host side ---- */

static inline struct launch_segments
captions_of(const struct launch_on &on, const struct segments &s, int64_t rows) {
    return {(const int32_t *)s.starts.data, (const int32_t *)s.lengths.data,
            tensor_present(&s.starts) ? s.starts.shape[0] : 0, rows, on.fault};
}

static inline struct launch_dropout mask_of(const struct dropout_params &p) {
    struct launch_dropout d = {};
    if (p.p > 0.0f) {
        d.step = &p.values->step;
    }
    d.seed[0] = (uint32_t)p.seed;
    d.seed[1] = (uint32_t)(p.seed >> 32);
    d.layer = p.layer;
    d.threshold = dropout_threshold(p.p);
    d.scale = 1.0f / (1.0f - p.p);
    d.sample_ids = p.sample_ids;
    return d;
}

#endif
