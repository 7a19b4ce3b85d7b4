/*
 * conv_compare: how far one variant's result is from another's, for conv_variant.c.
 */
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/conv/conv_variant_internal.h"

/* Of each block: the squares of differences, the squares of `want`, and how many elements are far
 * off. What is not a number is far. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) compare(double *partials,
                                                          const T *got,
                                                          const T *want,
                                                          const T *mask,
                                                          const T *before,
                                                          int64_t count,
                                                          double tolerance,
                                                          double slack) {
    __shared__ double room[WARPS];
    double difference = 0.0;
    double size = 0.0;
    double far = 0.0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS) {
        const bool masked = mask != NULL && to_f32(mask[i]) <= 0.0f;
        const double a = (double)to_f32(got[i]);
        const double b = masked ? 0.0 : (double)to_f32(want[i]);
        const double c = before != NULL ? (double)to_f32(before[i]) : 0.0;
        const double most = tolerance * (fabs(a) + fabs(b) + fabs(c)) + slack;
        difference += (a - b) * (a - b);
        size += b * b;
        far += fabs(a - b) <= most ? 0.0 : 1.0;
    }
    difference = block_sum(difference, room);
    size = block_sum(size, room);
    far = block_sum(far, room);
    if (threadIdx.x == 0) {
        partials[3 * blockIdx.x] = difference;
        partials[3 * blockIdx.x + 1] = size;
        partials[3 * blockIdx.x + 2] = far;
    }
}

template <typename T, int V>
static cudaError_t run_compare(cudaStream_t stream,
                               double *partials,
                               const struct conv_variant_output *o,
                               const void *want,
                               double tolerance,
                               double slack) {
    return launch(stream, dim3(COMPARE_BLOCKS), compare<T>, partials, (const T *)o->data,
                  (const T *)want, (const T *)o->mask, (const T *)o->before, o->count, tolerance,
                  slack);
}

cudaError_t launch_conv_compare(cudaStream_t stream,
                                double *partials,
                                const struct conv_variant_output *o,
                                const void *want,
                                double tolerance,
                                double slack) {
    return BY_TYPE(o->dtype, false, run_compare, stream, partials, o, want, tolerance, slack);
}
