/*
 * conv_stem: a convolution of stride 2 over at most 4 channels, such as the first one of a ResNet,
 * as one of stride 1 over blocks of 2x2 pixels, for which cuDNN uses tensor cores:
 *
 *     x (n,h,w,c) --> (n, oh+r'-1, ow+s'-1, 16): pixel (2 by + py - pad, 2 bx + px - pad),
 *                     channel i at (py 2 + px) 4 + i; zeros outside the image
 *     w (k,r,s,c) --> (k, r', s', 16), r' = ceil(r / 2): tap (2 ky + py, 2 kx + px); zeros beyond r
 *
 * The sums have the same products. The gradient of w is converted back. (NVIDIA's ResNet for MLPerf
 * has its stem in this form; on an H200 cuDNN's own kernels for 3 channels take 1.8 ms forward and
 * 3.1 ms for the gradient at batch 512 and 224 px, ten times the time to move their bytes.)
 */
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/common.cuh"

enum { SIDE = 2, SLOTS = 4, BLOCK_CHANNELS = SIDE * SIDE * SLOTS };

bool conv_stem_applies(const struct conv_problem *p) {
    return p->dtype == DTYPE_BF16 && p->stride == SIDE && p->c <= SLOTS && p->pass != CONV_DATA;
}

struct conv_problem conv_stem_problem(const struct conv_problem *p) {
    struct conv_problem q = *p;
    q.r = (p->r + 1) / SIDE;
    q.s = (p->s + 1) / SIDE;
    q.h = p->oh - 1 + q.r;
    q.w = p->ow - 1 + q.s;
    q.c = BLOCK_CHANNELS;
    q.stride = 1;
    q.pad = 0;
    return q;
}

/* Both shapes of a stem. */
struct stem {
    struct conv_problem from, to;
};

static __global__ void pack_images(bf16 *blocks, const bf16 *x, struct stem s) {
    const int32_t width = (int32_t)s.to.w;
    for (int64_t row = blockIdx.x; row < s.to.n * s.to.h; row += gridDim.x) {
        const int64_t n = row / s.to.h;
        const int32_t top = (int32_t)(row % s.to.h) * SIDE - s.from.pad;
        for (int32_t bx = threadIdx.x; bx < width; bx += THREADS) {
            const int32_t left = bx * SIDE - s.from.pad;
            bf16 *block = blocks + (row * width + bx) * BLOCK_CHANNELS;
#pragma unroll
            for (int py = 0; py < SIDE; py++) {
                float v[SIDE * SLOTS] = {};
                const int32_t y = top + py;
#pragma unroll
                for (int px = 0; px < SIDE; px++) {
                    const int32_t at = left + px;
                    const bool inside = y >= 0 && y < s.from.h && at >= 0 && at < s.from.w;
                    const bf16 *pixel = x + ((n * s.from.h + y) * s.from.w + at) * s.from.c;
#pragma unroll
                    for (int i = 0; i < SLOTS; i++) {
                        v[px * SLOTS + i] = inside && i < s.from.c ? to_f32(pixel[i]) : 0.0f;
                    }
                }
                store(block + py * SIDE * SLOTS, v);
            }
        }
    }
}

/* The element of w for element e of the packed weights, or -1. */
static __device__ __forceinline__ int64_t tap_of(int64_t e, const struct stem &s) {
    const int64_t i = e % SLOTS;
    const int64_t px = e / SLOTS % SIDE;
    const int64_t py = e / (SLOTS * SIDE) % SIDE;
    e /= BLOCK_CHANNELS;
    const int64_t kx = e % s.to.s * SIDE + px;
    const int64_t ky = e / s.to.s % s.to.r * SIDE + py;
    const int64_t o = e / (s.to.s * s.to.r);
    return i < s.from.c && ky < s.from.r && kx < s.from.s
               ? ((o * s.from.r + ky) * s.from.s + kx) * s.from.c + i
               : -1;
}

static __global__ void pack_weights(bf16 *packed, const bf16 *w, struct stem s, int64_t count) {
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < count) {
        const int64_t tap = tap_of(e, s);
        put(packed + e, tap < 0 ? 0.0f : to_f32(w[tap]));
    }
}

static __global__ void unpack_weights(bf16 *w, const bf16 *packed, struct stem s, int64_t count) {
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < count) {
        const int64_t tap = tap_of(e, s);
        if (tap >= 0) {
            w[tap] = packed[e];
        }
    }
}

static int64_t weights_count(const struct conv_problem *q) {
    return q->k * q->r * q->s * q->c;
}

static size_t images_bytes(const struct conv_problem *q) {
    return (size_t)ceil_div(q->n * q->h * q->w * q->c * (int64_t)sizeof(bf16), 256) * 256;
}

size_t conv_stem_workspace_bytes(const struct conv_problem *p) {
    const struct conv_problem q = conv_stem_problem(p);
    return images_bytes(&q) + (size_t)weights_count(&q) * sizeof(bf16);
}

cudaError_t launch_conv_stem_pack(const struct launch_on *on,
                                  const struct conv_problem *p,
                                  const void *x,
                                  const void *w,
                                  struct conv_stem *out) {
    const struct stem s = {*p, conv_stem_problem(p)};
    const int64_t weights = weights_count(&s.to);
    out->x = on->workspace;
    out->w = (char *)on->workspace + images_bytes(&s.to);
    TRY_LAUNCH(launch(on->stream, blocks_for(s.to.n * s.to.h * THREADS), pack_images,
                      (bf16 *)out->x, (const bf16 *)x, s));
    return p->pass == CONV_WEIGHT
               ? cudaSuccess
               : launch(on->stream, dim3((unsigned)ceil_div(weights, THREADS)), pack_weights,
                        (bf16 *)out->w, (const bf16 *)w, s, weights);
}

cudaError_t launch_conv_stem_unpack(const struct launch_on *on,
                                    const struct conv_problem *p,
                                    const struct conv_stem *from,
                                    void *w) {
    const struct stem s = {*p, conv_stem_problem(p)};
    const int64_t weights = weights_count(&s.to);
    return launch(on->stream, dim3((unsigned)ceil_div(weights, THREADS)), unpack_weights, (bf16 *)w,
                  (const bf16 *)from->w, s, weights);
}
