/*
 * device: opens a GPU by its number, or reports why it cannot.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/cuda/loss/loss_internal.h"
#include "kernels/cuda/vector/matmul_internal.h"

/* The remedy for an error code of a first use. */
static const char *hint_of(cudaError_t code) {
    switch ((int)code) {
    case 802: /* cudaErrorSystemNotReady */
        return "; the switches between the GPUs are not ready: start nvidia-fabricmanager";
    case 803: /* cudaErrorSystemDriverMismatch */
        return "; libcuda.so.1 does not match the kernel's driver: restart the machine, or remove "
               "an old one from LD_LIBRARY_PATH";
    default:
        return "; nvidia-smi -L lists GPUs and their MIG instances (MIG-...)";
    }
}

static enum status no_device(cudaError_t code, struct error *err) {
    int driver = 0;
    int runtime = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    FAIL_IF(driver == 0, err, STATUS_DEVICE, "no NVIDIA driver on this machine");
    FAIL_IF(code == cudaErrorInsufficientDriver, err, STATUS_DEVICE,
            "the NVIDIA driver is for CUDA %d.%d, this build requires %d.%d or later; update the "
            "driver, or build with the older CUDA",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    FAIL_IF(code == cudaErrorNoDevice && visible != NULL, err, STATUS_DEVICE,
            "no usable NVIDIA device: CUDA_VISIBLE_DEVICES is '%s'; unset it, or set it to GPUs "
            "listed by nvidia-smi -L: a number, GPU-... or MIG-...",
            visible);
    return error_set(err, STATUS_DEVICE, "no usable NVIDIA device: %s%s", cudaGetErrorString(code),
                     hint_of(code));
}

/* cuDNN keeps its interface within a major version; what is used here exists since the minimum that
 * CMakeLists.txt names. */
static enum status check_cudnn(struct error *err) {
    const size_t found = cudnnGetVersion();
    FAIL_IF(found / 10000 != CUDNN_MAJOR || found < CCS_CUDNN_MINIMUM, err, STATUS_DEVICE,
            "cuDNN %zu.%zu is installed, this build requires %d.%d or later of major %d",
            found / 10000, found / 100 % 100, CCS_CUDNN_MINIMUM / 10000,
            CCS_CUDNN_MINIMUM / 100 % 100, CUDNN_MAJOR);
    return STATUS_OK;
}

enum status cuda_count(int32_t *out, struct error *err) {
    int count = 0;
    *out = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count < 1) {
        return no_device(code != cudaSuccess ? code : cudaErrorNoDevice, err);
    }
    TRY(check_cudnn(err));
    *out = count;
    return STATUS_OK;
}

enum status cuda_describe(int32_t index, char *out, size_t out_size, struct error *err) {
    struct cudaDeviceProp prop;
    TRY_CUDA(cudaGetDeviceProperties(&prop, index));
    (void)snprintf(out, out_size, "%s, %.0f GiB, compute capability %d.%d", prop.name,
                   (double)prop.totalGlobalMem / (1024.0 * 1024.0 * 1024.0), prop.major,
                   prop.minor);
    return STATUS_OK;
}

static void close_libraries(struct cuda_device *dev) {
    conv_plans_destroy(dev->convs);
    matmul_plans_destroy(dev->matmuls);
    if (dev->dnn != NULL) {
        (void)cudnnDestroy(dev->dnn);
    }
    (void)cudaFree(dev->blas_workspace);
    if (dev->blas != NULL) {
        (void)cublasLtDestroy(dev->blas);
    }
}

static void close_memory(struct cuda_device *dev) {
    for (int32_t i = 0; i < WORKSPACE_COUNT; i++) {
        (void)cudaFree(dev->workspace[i].data);
    }
    for (int32_t i = 0; i < STAGING_COUNT; i++) {
        if (dev->staging[i].read != NULL) {
            (void)cudaEventDestroy(dev->staging[i].read);
        }
        (void)cudaFreeHost(dev->staging[i].host);
    }
    (void)cudaFreeHost(dev->fault);
}

static void cuda_close(struct device *device) {
    struct cuda_device *dev = cuda_of(device);
    (void)cudaSetDevice(dev->index);
    if (dev->stream != NULL) {
        (void)cudaStreamSynchronize(dev->stream);
    }
    cuda_ranks_close(dev);
    close_libraries(dev);
    cuda_stream_close(dev);
    close_memory(dev);
    if (dev->stream != NULL) {
        (void)cudaStreamDestroy(dev->stream);
    }
    (void)cudaGetLastError();
    free(dev);
}

static enum status open_memory(struct cuda_device *dev, struct error *err) {
    for (int32_t i = 0; i < STAGING_COUNT; i++) {
        TRY_CUDA(cudaMallocHost(&dev->staging[i].host, STAGING_BYTES));
        TRY_CUDA(cudaEventCreateWithFlags(&dev->staging[i].read, cudaEventDisableTiming));
    }
    void *fault = NULL;
    TRY_CUDA(cudaHostAlloc(&fault, sizeof *dev->fault, cudaHostAllocMapped));
    dev->fault = fault;
    *dev->fault = FAULT_NONE;
    TRY_CUDA(cudaHostGetDevicePointer((void **)&dev->fault_on_device, fault, 0));
    return STATUS_OK;
}

static enum status open_libraries(struct cuda_device *dev, struct error *err) {
    void *data;
    TRY_BLAS(cublasLtCreate(&dev->blas));
    TRY(cuda_memory(dev, BLAS_WORKSPACE_BYTES, &dev->blas_workspace, err));
    TRY_DNN(cudnnCreate(&dev->dnn));
    TRY_DNN(cudnnSetStream(dev->dnn, dev->stream));
    TRY(matmul_plans_create(&dev->matmuls, err));
    const struct conv_gpu gpu = {.handle = dev->dnn, .sm = dev->sm, .name = dev->name};
    TRY(conv_plans_create(&dev->convs, &gpu, &dev->options,
                          dev->plan_cache[0] != '\0' ? dev->plan_cache : NULL, err));
    return cuda_workspace(dev, WORKSPACE_WORK, 1 << 20, &data, err);
}

static enum status open_parts(struct cuda_device *dev, struct error *err) {
    struct cudaDeviceProp prop;
    TRY_CUDA(cudaSetDevice(dev->index));
    TRY_CUDA(cudaGetDeviceProperties(&prop, dev->index));
    dev->sm = prop.major * 10 + prop.minor;
    (void)snprintf(dev->name, sizeof dev->name, "%.127s", prop.name);
    memcpy(dev->base.uuid, prop.uuid.bytes, sizeof dev->base.uuid);
    if (dev->sm < 80) {
        return error_set(
            err, STATUS_UNSUPPORTED,
            "cuda:%d is a %s of compute capability %d.%d; ccstream requires 8.0 or later",
            dev->index, dev->name, prop.major, prop.minor);
    }
    TRY_CUDA(cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking));
    TRY(cuda_stream_open(dev, err));
    TRY(open_memory(dev, err));
    TRY(open_libraries(dev, err));
    /* The first kernel shows whether this module has code for this GPU. */
    const struct fill probe = {tensor_1d(dev->workspace[WORKSPACE_WORK].data, DTYPE_F32, 1), 0.0};
    size_t all_bytes;
    TRY(ops_cuda()->fill(&dev->base, &probe, err));
    TRY_CUDA(cudaMemGetInfo(&dev->base.free_bytes, &all_bytes));
    return ops_cuda()->sync(&dev->base, err);
}

enum status
cuda_open(struct device **out, int32_t index, const struct device_options *opt, struct error *err) {
    *out = NULL;
    struct cuda_device *dev = calloc(1, sizeof *dev);
    TRY_MEMORY(dev != NULL, err, "cuda: no memory for the device");
    dev->base.ops = ops_cuda();
    dev->base.losses = &cuda_losses;
    dev->base.contrasts = &cuda_contrasts;
    dev->base.close = cuda_close;
    dev->base.stream = &cuda_device_stream;
    dev->base.ranks = &cuda_device_ranks;
    dev->index = index;
    dev->options = *opt;
    dev->options.plan_cache = NULL;
    if (opt->plan_cache != NULL) {
        const int n = snprintf(dev->plan_cache, sizeof dev->plan_cache, "%s", opt->plan_cache);
        if (n < 0 || (size_t)n >= sizeof dev->plan_cache) {
            free(dev);
            return error_set(err, STATUS_LIMIT, "the path of the plan cache is too long");
        }
    }
    const enum status s = open_parts(dev, err);
    RETURN_CREATED(s, out, &dev->base, cuda_close);
}
