/*
 * libraries: what stands for cuDNN and cuBLASLt in the emulated module: the reference's matrix
 * product, and the plain convolutions of convolution.c.
 */
#include <stdlib.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/vector/matmul_internal.h"
#include "tests/support/cuda_emulation/emulation.h"

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    *out = NULL;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)handle;
    (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    (void)status;
    return "emulated";
}

void cudnnGetLastErrorString(char *out, size_t out_size) {
    if (out_size > 0) {
        out[0] = '\0';
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    (void)status;
    return "emulated";
}

size_t cublasLtGetVersion(void) {
    return 130000;
}

enum status conv_plans_create(struct conv_plans **out,
                              const struct conv_chip *chip,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err) {
    (void)chip;
    (void)opt;
    (void)cache_folder;
    (void)err;
    *out = NULL;
    return STATUS_OK;
}

void conv_plans_destroy(struct conv_plans *p) {
    (void)p;
}

enum status matmul_plans_create(struct matmul_plans **out, struct error *err) {
    (void)err;
    *out = NULL;
    return STATUS_OK;
}

void matmul_plans_destroy(struct matmul_plans *p) {
    (void)p;
}

/* One product by the reference. */
struct emulated_product {
    struct cuda_device *dev;
    struct product p;
    void *out;
    const void *a, *b, *bias;
    float alpha;
};

static enum status multiply(const struct emulated_product *e) {
    struct error *err = NULL;
    const struct ops *ref = ops_cpu_ref();
    const struct product *p = &e->p;
    struct device *dev = &e->dev->base;
    const struct matmul product = {
        .out = tensor_2d(e->out, p->out, p->m, p->n),
        .a = tensor_2d((void *)(uintptr_t)e->a, p->in, p->transpose_a ? p->k : p->m,
                       p->transpose_a ? p->m : p->k),
        .b = tensor_2d((void *)(uintptr_t)e->b, p->in, p->transpose_b ? p->n : p->k,
                       p->transpose_b ? p->k : p->n),
        .mode = p->add ? WRITE_ADD : WRITE_SET,
        .transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .alpha = e->alpha};
    TRY(ref->matmul(dev, &product, err));
    for (int64_t row = 0; p->bias && row < p->m; row++) {
        char *begin = (char *)e->out + (size_t)(row * p->n) * dtype_size_bytes(p->out);
        const struct add line = {.out = tensor_1d(begin, p->out, p->n),
                                 .in = tensor_1d((void *)(uintptr_t)e->bias, p->out, p->n),
                                 .alpha = 1.0f};
        TRY(ref->add(dev, &line, err));
    }
    return STATUS_OK;
}

static void multiply_or_stop(void *cookie) {
    if (multiply(cookie) != STATUS_OK) {
        abort(); /* the module has checked the product */
    }
}

enum status matmul_run(struct cuda_device *dev,
                       const struct product *p,
                       void *out,
                       const void *a,
                       const void *b,
                       const void *bias,
                       float alpha,
                       struct error *err) {
    const struct emulated_product e = {
        .dev = dev, .p = *p, .out = out, .a = a, .b = b, .bias = bias, .alpha = alpha};
    (void)err;
    cuda_counted(dev);
    emulation_do(dev->stream, multiply_or_stop, &e, sizeof e, EMULATION_KERNEL_NS);
    return STATUS_OK;
}
