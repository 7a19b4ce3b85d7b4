/*
 * libraries: replaces cuDNN and cuBLASLt in the emulated module: the reference's matrix
 * product, and the plain convolutions of convolution.c.
 */
#include <stdlib.h>

#include "kernels/bf16.h"
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
                              const struct conv_gpu *gpu,
                              const struct device_options *opt,
                              const char *cache_folder,
                              struct error *err) {
    (void)gpu;
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
    const struct product *p = &e->p;
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
    return ops_cpu_ref()->matmul(&e->dev->base, &product, NULL);
}

static float number(const void *from, enum dtype dtype, int64_t i) {
    return dtype == DTYPE_F32 ? ((const float *)from)[i] : bf16_to_f32(((const uint16_t *)from)[i]);
}

/* As the library's epilogue: the bias is added to the sums in f32, and the result is rounded once.
 */
static enum status multiply_and_add_bias(const struct emulated_product *e) {
    const int64_t count = e->p.m * e->p.n;
    struct emulated_product sums = *e;
    sums.p.out = DTYPE_F32;
    sums.out = calloc((size_t)count, sizeof(float));
    const enum status s = sums.out != NULL ? multiply(&sums) : STATUS_NOMEM;
    for (int64_t i = 0; s == STATUS_OK && i < count; i++) {
        const float sum = ((float *)sums.out)[i] + number(e->bias, e->p.out, i % e->p.n);
        if (e->p.out == DTYPE_F32) {
            ((float *)e->out)[i] = sum;
        } else {
            ((uint16_t *)e->out)[i] = bf16_from_f32(sum);
        }
    }
    free(sums.out);
    return s;
}

static void multiply_or_stop(void *cookie) {
    const struct emulated_product *e = cookie;
    if ((e->p.bias ? multiply_and_add_bias(e) : multiply(e)) != STATUS_OK) {
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
