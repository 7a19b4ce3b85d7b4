/*
 * conv_direct: the three passes of a convolution as plain sums, for shapes that no cuDNN engine
 * supports. x (n,h,w,c), weight (k,r,s,c), y (n,oh,ow,k).
 *
 *   forward  y[n,oy,ox,o] = sum over ky, kx, i of x[n,iy,ix,i] w[o,ky,kx,i]
 *   data     x[n,iy,ix,i] = sum over ky, kx, o of y[n,oy,ox,o] w[o,ky,kx,i]
 *   weight   w[o,ky,kx,i] = sum over n, oy, ox of y[n,oy,ox,o] x[n,iy,ix,i]
 *
 * with iy = oy stride - pad + ky and ix likewise.
 *
 * One thread per element of the first two; one block per element of the third. Correct, not fast.
 */
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/common.cuh"

template <typename T>
static __global__ void forward_kernel(T *y, const T *x, const T *w, struct conv_problem p) {
    const int64_t count = p.n * p.oh * p.ow * p.k;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < count;
         e += (int64_t)gridDim.x * THREADS) {
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
                    sum += to_f32(x[((n * p.h + iy) * p.w + ix) * p.c + i]) *
                           to_f32(w[((o * p.r + ky) * p.s + kx) * p.c + i]);
                }
            }
        }
        put(y + e, sum);
    }
}

template <typename T>
static __global__ void data_kernel(T *x, const T *y, const T *w, struct conv_problem p) {
    const int64_t count = p.n * p.h * p.w * p.c;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < count;
         e += (int64_t)gridDim.x * THREADS) {
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
                    sum +=
                        to_f32(y[((n * p.oh + sy / p.stride) * p.ow + sx / p.stride) * p.k + o]) *
                        to_f32(w[((o * p.r + ky) * p.s + kx) * p.c + i]);
                }
            }
        }
        put(x + e, sum);
    }
}

template <typename T>
static __global__ void weight_kernel(T *w, const T *y, const T *x, struct conv_problem p) {
    __shared__ float sums[THREADS];
    const int64_t count = p.k * p.r * p.s * p.c;
    const int64_t places = p.n * p.oh * p.ow;
    for (int64_t e = blockIdx.x; e < count; e += gridDim.x) {
        const int64_t i = e % p.c;
        const int64_t kx = e / p.c % p.s;
        const int64_t ky = e / (p.c * p.s) % p.r;
        const int64_t o = e / (p.c * p.s * p.r);
        float sum = 0.0f;
        for (int64_t place = threadIdx.x; place < places; place += THREADS) {
            const int64_t ox = place % p.ow;
            const int64_t oy = place / p.ow % p.oh;
            const int64_t n = place / (p.ow * p.oh);
            const int64_t iy = oy * p.stride - p.pad + ky;
            const int64_t ix = ox * p.stride - p.pad + kx;
            if (iy >= 0 && iy < p.h && ix >= 0 && ix < p.w) {
                sum +=
                    to_f32(y[place * p.k + o]) * to_f32(x[((n * p.h + iy) * p.w + ix) * p.c + i]);
            }
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int step = THREADS / 2; step > 0; step /= 2) {
            if ((int)threadIdx.x < step) {
                sums[threadIdx.x] += sums[threadIdx.x + step];
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            put(w + e, sums[0]);
        }
    }
}

template <typename T>
static cudaError_t
run(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y) {
    static const int64_t MOST_BLOCKS = 65535;
    switch (p->pass) {
    case CONV_FORWARD:
        return launch(stream, blocks_for(p->n * p->oh * p->ow * p->k), forward_kernel<T>, (T *)y,
                      (const T *)x, (const T *)w, *p);
    case CONV_DATA:
        return launch(stream, blocks_for(p->n * p->h * p->w * p->c), data_kernel<T>, (T *)x,
                      (const T *)y, (const T *)w, *p);
    case CONV_WEIGHT:
        break;
    }
    const int64_t weights = p->k * p->r * p->s * p->c;
    return launch(stream, dim3((unsigned)(weights < MOST_BLOCKS ? weights : MOST_BLOCKS)),
                  weight_kernel<T>, (T *)w, (const T *)y, (const T *)x, *p);
}

cudaError_t
launch_conv_direct(cudaStream_t stream, const struct conv_problem *p, void *x, void *w, void *y) {
    switch (p->dtype) {
    case DTYPE_F32:
        return run<float>(stream, p, x, w, y);
    case DTYPE_BF16:
        return run<bf16>(stream, p, x, w, y);
    default:
        return cudaErrorInvalidValue;
    }
}
