/*
 * module: the only symbol that libccstream_cuda.so exports.
 */
#include "kernels/module_internal.h"

#include <stdio.h>

#include "kernels/cuda/device/cuda_internal.h"

__attribute__((visibility("default"))) const struct backend_module *ccstream_backend_module(void);

const struct backend_module *ccstream_backend_module(void) {
    static char requirements[96];
    static struct backend_module module = {
        .abi = BACKEND_MODULE_ABI,
        .ops_size_bytes = sizeof(struct ops),
        .version = CCSTREAM_VERSION,
        .requirements = requirements,
        .count = cuda_count,
        .describe = cuda_describe,
        .open = cuda_open,
    };
    module.ops = ops_cuda();
    (void)snprintf(requirements, sizeof requirements, "CUDA %d.%d, cuDNN %d.%d, cuBLASLt %d.%d",
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, CUDNN_MAJOR, CUDNN_MINOR,
                   CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
    return &module;
}
