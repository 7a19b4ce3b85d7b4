/*
 * cuda_runtime, emulated: CUDA C as far as ccstream's kernels use it, over emulation.h.
 *
 * __shared__ is `static thread_local`: blocks run one after another, so one copy is enough, and it
 * has its own address range, so that shared memory can be recognised. It is dirty at the start of a
 * launch and not cleared between blocks, as on a GPU.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUDA_RUNTIME_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUDA_RUNTIME_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>

#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/executor.h"
#include <cuda_runtime_api.h>

#define CUDA_EMULATION
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__      static thread_local
#define __launch_bounds__(...)

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {
    }
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    cudaStream_t stream;
};

/* A store that is only valid for global memory. */
template <typename T> static inline void __stwb(T *to, T value) {
    emulation_check_global(to, sizeof value);
    *to = value;
}

/* A clock that advances a thousand cycles at each reading. */
static inline long long clock64() {
    static long long now;
    return now += 1000;
}

static inline void __syncthreads() {
    emulation_wait(EMULATION_BLOCK);
}

/* Every lane takes part, as the kernels' masks say. `from` is a lane of the warp. */
template <typename T> static inline T emulation_shuffle(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a register or two");
    emulation_full_warp(mask);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulation_exchange(bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned from = lane ^ (unsigned)lane_mask;
    return emulation_shuffle(mask, value,
                             from / (unsigned)width == lane / (unsigned)width ? from : lane);
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const unsigned lane = threadIdx.x % 32;
    return emulation_shuffle(mask, value,
                             lane / (unsigned)width * (unsigned)width + (unsigned)(from % width));
}

/* One launch by the library of executor.h, which has a kernel of this function. */
template <typename... Parameters>
static inline bool emulation_execute(const void *kernel,
                                     const struct emulation_size *grid,
                                     const struct emulation_size *block,
                                     const Parameters &...values) {
    struct {
        const void *kernel;
        alignas(16) unsigned char room[EXECUTOR_PARAMETER_BYTES];
    } call;
    int count = 0;
    call.kernel = kernel;
    (executor()->parameter(kernel, call.room, count++, &values, sizeof values), ...);
    executor()->begin(kernel, count, executor_operands_now());
    return emulation_launch(
        grid, block,
        [](void *cookie) {
            const auto *c = static_cast<const decltype(call) *>(cookie);
            executor()->thread(c->kernel, c->room);
        },
        &call);
}

template <typename... Parameters, typename... Arguments>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(Parameters...),
                                             Arguments &&...arguments) {
    if (emulation_is_deferred(config->stream)) { /* with copies of the arguments, as on a GPU */
        auto later = [config = *config, kernel, operands = executor_operands_now(),
                      copies = std::tuple<Parameters...>(arguments...)]() {
            const unsigned before = executor_operands_now(); /* of a call that has not returned */
            executor_operands_set(operands);
            std::apply(
                [&](auto... a) {
                    if (cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(a)...) !=
                        cudaSuccess) {
                        abort(); /* sizes that the launch should have refused */
                    }
                },
                copies);
            executor_operands_set(before);
        };
        typedef decltype(later) noted;
        emulation_note(
            config->stream, [](void *cookie) { (*static_cast<noted *>(cookie))(); },
            [](void *cookie) { delete static_cast<noted *>(cookie); }, new noted(later),
            EMULATION_KERNEL_NS);
        return cudaSuccess;
    }
    const struct emulation_size grid = {config->gridDim.x, config->gridDim.y, config->gridDim.z};
    const struct emulation_size block = {config->blockDim.x, config->blockDim.y,
                                         config->blockDim.z};
    const void *found = executor_kernel((const void *)kernel);
    bool ran;
    if (found != NULL) {
        ran = emulation_execute<Parameters...>(found, &grid, &block, arguments...);
    } else {
        auto body = [&]() { kernel(arguments...); };
        ran = emulation_launch(
            &grid, &block, [](void *cookie) { (*static_cast<decltype(body) *>(cookie))(); }, &body);
    }
    emulation_spend(config->stream, EMULATION_KERNEL_NS);
    return ran ? cudaSuccess : cudaErrorInvalidValue;
}

#endif
