/*
 * conv_direct: the three passes of a convolution as plain sums: for shapes that no engine of cuDNN
 * takes. x (n,h,w,c), weight (k,r,s,c), y (n,oh,ow,k).
 *
 *     forward   y[n,oy,ox,o]  = sum over (ky,kx,i)    x[n, oy stride - pad + ky, ..., i]
 * w[o,ky,kx,i] data      x[n,iy,ix,i]  = sum over (ky,kx,o)    y[n, (iy + pad - ky) / stride, ...,
 * o] w[...] weight    w[o,ky,kx,i]  = sum over (n,oy,ox)    y[n,oy,ox,o] x[n, oy stride - pad + ky,
 * ..., i]
 *
 * One thread per element of the first two; one block per element of the third. Right, not fast.
 */
#include <cuda_bf16.h>

extern "C" {
#include "kernels/cuda/conv_plan_internal.h"
}

enum { BLOCK = 256, MAX_BLOCKS = 65535 };

static __device__ __forceinline__ float value(const float *x, int64_t i) {
    return x[i];
}

static __device__ __forceinline__ float value(const __nv_bfloat16 *x, int64_t i) {
    return __bfloat162float(x[i]);
}

static __device__ __forceinline__ void put(float *x, int64_t i, float v) {
    x[i] = v;
}

static __device__ __forceinline__ void put(__nv_bfloat16 *x, int64_t i, float v) {
    x[i] = __float2bfloat16_rn(v);
}

template <typename T>
static __global__ void forward_kernel(T *y, const T *x, const T *w, struct conv_problem p) {
    const int64_t count = p.n * p.oh * p.ow * p.k;
    for (int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x; e < count;
         e += (int64_t)gridDim.x * BLOCK) {
        const int64_t o = e % p.k;
        const int64_t ox = e / p.k % p.ow;
        const int64_t oy = e / (p.k * p.ow) % p.oh;
        const int64_t n = e / (p.k * p.ow * p.oh);
        float sum = 0.0f;
        for (int64_t ky = 0; ky < p.r; ky++) {
            for (int64_t kx = 0; kx < p.s; kx++) {
                const int64_t iy = oy * p.stride - p.pad + ky;
                const int64_t ix = ox * p.stride - p.pad + kx;
                if (iy < 0 || iy >= p.h || ix < 0 || ix >= p.w) {
                    continue;
                }
                for (int64_t i = 0; i < p.c; i++) {
                    sum += value(x, ((n * p.h + iy) * p.w + ix) * p.c + i) *
                           value(w, ((o * p.r + ky) * p.s + kx) * p.c + i);
                }
            }
        }
        put(y, e, sum);
    }
}

template <typename T>
static __global__ void data_kernel(T *x, const T *y, const T *w, struct conv_problem p) {
    const int64_t count = p.n * p.h * p.w * p.c;
    for (int64_t e = (int64_t)blockIdx.x * BLOCK + threadIdx.x; e < count;
         e += (int64_t)gridDim.x * BLOCK) {
        const int64_t i = e % p.c;
        const int64_t ix = e / p.c % p.w;
        const int64_t iy = e / (p.c * p.w) % p.h;
        const int64_t n = e / (p.c * p.w * p.h);
        float sum = 0.0f;
        for (int64_t ky = 0; ky < p.r; ky++) {
            for (int64_t kx = 0; kx < p.s; kx++) {
                const int64_t sy = iy + p.pad - ky;
                const int64_t sx = ix + p.pad - kx;
                if (sy < 0 || sx < 0 || sy % p.stride != 0 || sx % p.stride != 0 ||
                    sy / p.stride >= p.oh || sx / p.stride >= p.ow) {
                    continue;
                }
                for (int64_t o = 0; o < p.k; o++) {
                    sum += value(y, ((n * p.oh + sy / p.stride) * p.ow + sx / p.stride) * p.k + o) *
                           value(w, ((o * p.r + ky) * p.s + kx) * p.c + i);
                }
            }
        }
        put(x, e, sum);
    }
}

template <typename T>
static __global__ void weight_kernel(T *w, const T *y, const T *x, struct conv_problem p) {
    __shared__ float sums[BLOCK];
    const int64_t count = p.k * p.r * p.s * p.c;
    const int64_t places = p.n * p.oh * p.ow;
    for (int64_t e = blockIdx.x; e < count; e += gridDim.x) {
        const int64_t i = e % p.c;
        const int64_t kx = e / p.c % p.s;
        const int64_t ky = e / (p.c * p.s) % p.r;
        const int64_t o = e / (p.c * p.s * p.r);
        float sum = 0.0f;
        for (int64_t place = threadIdx.x; place < places; place += BLOCK) {
            const int64_t ox = place % p.ow;
            const int64_t oy = place / p.ow % p.oh;
            const int64_t n = place / (p.ow * p.oh);
            const int64_t iy = oy * p.stride - p.pad + ky;
            const int64_t ix = ox * p.stride - p.pad + kx;
            if (iy >= 0 && iy < p.h && ix >= 0 && ix < p.w) {
                sum += value(y, place * p.k + o) * value(x, ((n * p.h + iy) * p.w + ix) * p.c + i);
            }
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int step = BLOCK / 2; step > 0; step /= 2) {
            if (threadIdx.x < step) {
                sums[threadIdx.x] += sums[threadIdx.x + step];
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            put(w, e, sums[0]);
        }
        __syncthreads();
    }
}

template <typename T>
static void launch(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y) {
    const int64_t count = p->pass == CONV_FORWARD ? p->n * p->oh * p->ow * p->k
                          : p->pass == CONV_DATA  ? p->n * p->h * p->w * p->c
                                                  : p->k * p->r * p->s * p->c * BLOCK;
    const int64_t wanted = (count + BLOCK - 1) / BLOCK;
    const unsigned blocks = (unsigned)(wanted < MAX_BLOCKS ? wanted : (int64_t)MAX_BLOCKS);
    switch (p->pass) {
    case CONV_FORWARD:
        forward_kernel<T><<<blocks, BLOCK, 0, stream>>>((T *)y, (const T *)x, (const T *)w, *p);
        break;
    case CONV_DATA:
        data_kernel<T><<<blocks, BLOCK, 0, stream>>>((T *)x, (const T *)y, (const T *)w, *p);
        break;
    case CONV_WEIGHT:
        weight_kernel<T><<<blocks, BLOCK, 0, stream>>>((T *)w, (const T *)y, (const T *)x, *p);
        break;
    }
}

cudaError_t
launch_conv_direct(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y) {
    if (p->dtype == DTYPE_BF16) {
        launch<__nv_bfloat16>(stream, p, x, w, y);
    } else {
        launch<float>(stream, p, x, w, y);
    }
    return cudaGetLastError();
}
