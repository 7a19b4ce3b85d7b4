/*
 * ops_linear: linear layers and plain products, by cuBLASLt; GELU and sums of rows by own kernels.
 *
 * cuBLASLt's own GELU is the tanh form, so only the bias goes into its epilogue. It requires a bias
 * of the result's type: in a bf16 call the f32 bias is rounded first, which keeps the single
 * rounding of the sum.
 */
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/cuda/vector/matmul_internal.h"

static enum status
ready_bias(struct cuda_device *dev, const void **out, const struct linear *op, struct error *err) {
    const enum dtype real = op->out.dtype;
    *out = op->bias.data;
    if (!tensor_present(&op->bias) ||
        (real == DTYPE_F32 && (uintptr_t)op->bias.data % ALIGNMENT_BYTES == 0)) {
        return STATUS_OK;
    }
    struct tensor copy = tensor_1d(NULL, real, op->bias.shape[0]);
    TRY(cuda_workspace(dev, WORKSPACE_BIAS, tensor_size_bytes(&copy), &copy.data, err));
    *out = copy.data;
    return cuda_cast(&dev->base, &(struct cast){copy, op->bias}, err);
}

enum status cuda_linear(struct device *device, const struct linear *op, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_on on;
    const void *bias;
    const bool gelu = op->act != ACTIVATION_NONE;
    const struct product p = {.in = op->in.dtype,
                              .out = op->in.dtype,
                              .m = op->in.shape[0],
                              .n = op->weight.shape[0],
                              .k = op->in.shape[1],
                              .transpose_b = true,
                              .bias = tensor_present(&op->bias)};
    TRY(ready_bias(dev, &bias, op, err));
    TRY(matmul_run(dev, &p, gelu ? op->pre.data : op->out.data, op->in.data, op->weight.data, bias,
                   1.0f, err));
    if (!gelu) {
        return STATUS_OK;
    }
    TRY(cuda_launch_on(dev, 0, &on, err));
    return launched(dev, launch_gelu(&on, op), "gelu", err);
}

/* dpre with an activation, and the bias's gradient. */
static enum status
activation_bwd(struct cuda_device *dev, const struct linear_bwd *op, struct error *err) {
    struct launch_on on;
    if (op->act != ACTIVATION_NONE) {
        TRY(cuda_launch_on(dev, gelu_bwd_workspace_bytes(op), &on, err));
        return launched(dev, launch_gelu_bwd(&on, op), "gelu_bwd", err);
    }
    if (!tensor_present(&op->dbias)) {
        return STATUS_OK;
    }
    TRY(cuda_launch_on(dev, bias_bwd_workspace_bytes(op), &on, err));
    return launched(dev, launch_bias_bwd(&on, op), "bias_bwd", err);
}

enum status cuda_linear_bwd(struct device *device, const struct linear_bwd *op, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(activation_bwd(dev, op, err));
    const void *d = op->act != ACTIVATION_NONE ? op->dpre.data : op->dout.data;
    const struct product weight_product = {.in = op->in.dtype,
                                           .out = DTYPE_F32,
                                           .m = op->weight.shape[0],
                                           .n = op->weight.shape[1],
                                           .k = op->in.shape[0],
                                           .transpose_a = true,
                                           .add = op->param_mode == WRITE_ADD};
    TRY(matmul_run(dev, &weight_product, op->dweight.data, d, op->in.data, NULL, 1.0f, err));
    if (!tensor_present(&op->din)) {
        return STATUS_OK;
    }
    const struct product data_product = {.in = op->in.dtype,
                                         .out = op->in.dtype,
                                         .m = op->in.shape[0],
                                         .n = op->weight.shape[1],
                                         .k = op->weight.shape[0],
                                         .add = op->din_mode == WRITE_ADD};
    return matmul_run(dev, &data_product, op->din.data, d, op->weight.data, NULL, 1.0f, err);
}

enum status cuda_matmul(struct device *device, const struct matmul *op, struct error *err) {
    const struct product p = {.in = op->a.dtype,
                              .out = op->out.dtype,
                              .m = op->out.shape[0],
                              .n = op->out.shape[1],
                              .k = op->a.shape[op->transpose_a ? 0 : 1],
                              .transpose_a = op->transpose_a,
                              .transpose_b = op->transpose_b,
                              .add = op->mode == WRITE_ADD};
    return matmul_run(cuda_of(device), &p, op->out.data, op->a.data, op->b.data, NULL, op->alpha,
                      err);
}
