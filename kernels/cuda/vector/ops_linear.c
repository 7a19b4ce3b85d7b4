/*
 * ops_linear: linear layers and plain products, by cuBLASLt; GELU and sums of rows by own kernels.
 *
 * cuBLASLt's own GELU is the tanh form, so only the bias goes into its epilogue. It wants the bias
 * in the type of the result: in a bf16 call the f32 bias is rounded first, which keeps
 * the single rounding of the sum.
 */
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/cuda/vector/matmul_internal.h"

static enum status ready_bias(struct cuda_device *dev,
                              const void **out,
                              const struct tensor *bias,
                              enum dtype real,
                              struct error *err) {
    *out = NULL;
    if (!tensor_wanted(bias)) {
        return STATUS_OK;
    }
    const int64_t count = bias->shape[0];
    void *copy;
    if (real == DTYPE_F32 && (uintptr_t)bias->data % ALIGNMENT_BYTES == 0) {
        *out = bias->data;
        return STATUS_OK;
    }
    TRY(cuda_scratch(dev, SCRATCH_BIAS, (size_t)count * sizeof(float), &copy, err));
    *out = copy;
    return launched(dev, launch_cast(dev->stream, real, copy, DTYPE_F32, bias->data, count), "bias",
                    err);
}

static enum status cuda_linear(struct device *device,
                               const struct tensor *out,
                               const struct tensor *pre,
                               const struct tensor *in,
                               const struct tensor *weight,
                               const struct tensor *bias,
                               enum activation act,
                               struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    const void *ready;
    TRY(cuda_real("linear", in, err));
    TRY(check_linear(out, pre, in, weight, bias, act, err));
    const bool gelu = act == ACTIVATION_GELU;
    const struct product p = {.in = in->dtype,
                              .out = in->dtype,
                              .m = in->shape[0],
                              .n = weight->shape[0],
                              .k = in->shape[1],
                              .transpose_b = true,
                              .bias = tensor_wanted(bias)};
    TRY(ready_bias(dev, &ready, bias, in->dtype, err));
    TRY(matmul_run(dev, &p, gelu ? pre->data : out->data, in->data, weight->data, ready, 1.0f,
                   err));
    if (!gelu) {
        return STATUS_OK;
    }
    return launched(dev, launch_gelu(dev->stream, in->dtype, out->data, pre->data, NULL, p.m, p.n),
                    "gelu", err);
}

/* d = dout behind the activation, and the bias's gradient. */
static enum status activation_bwd(struct cuda_device *dev,
                                  const struct tensor *dbias,
                                  enum write_mode mode,
                                  const struct tensor *dpre,
                                  const struct tensor *dout,
                                  const struct tensor *pre,
                                  enum activation act,
                                  struct error *err) {
    const int64_t rows = dout->shape[0];
    const int64_t width = dout->shape[1];
    float *sums = tensor_wanted(dbias) ? dbias->data : NULL;
    void *work;
    if (act == ACTIVATION_GELU) {
        TRY(cuda_workspace(dev, launch_gelu_bwd_workspace_bytes(rows, width), &work, err));
        return launched(dev,
                        launch_gelu_bwd(dev->stream, dout->dtype, dpre->data, sums, mode,
                                        dout->data, pre->data, rows, width, work),
                        "gelu_bwd", err);
    }
    if (sums == NULL) {
        return STATUS_OK;
    }
    TRY(cuda_workspace(dev, launch_column_sums_workspace_bytes(rows, width), &work, err));
    return launched(
        dev,
        launch_column_sums(dev->stream, dout->dtype, sums, mode, dout->data, rows, width, work),
        "column_sums", err);
}

static enum status cuda_linear_bwd(struct device *device,
                                   const struct tensor *din,
                                   enum write_mode din_mode,
                                   const struct tensor *dweight,
                                   const struct tensor *dbias,
                                   enum write_mode param_mode,
                                   const struct tensor *dpre,
                                   const struct tensor *dout,
                                   const struct tensor *in,
                                   const struct tensor *weight,
                                   const struct tensor *pre,
                                   enum activation act,
                                   struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("linear_bwd", in, err));
    TRY(check_linear_bwd(din, dweight, dbias, dpre, dout, in, weight, pre, act, err));
    TRY(activation_bwd(dev, dbias, param_mode, dpre, dout, pre, act, err));
    const void *d = act == ACTIVATION_GELU ? dpre->data : dout->data;
    const struct product weight_product = {.in = in->dtype,
                                           .out = DTYPE_F32,
                                           .m = weight->shape[0],
                                           .n = weight->shape[1],
                                           .k = in->shape[0],
                                           .transpose_a = true,
                                           .add = param_mode == WRITE_ADD};
    TRY(matmul_run(dev, &weight_product, dweight->data, d, in->data, NULL, 1.0f, err));
    if (!tensor_wanted(din)) {
        return STATUS_OK;
    }
    const struct product data_product = {.in = in->dtype,
                                         .out = in->dtype,
                                         .m = in->shape[0],
                                         .n = weight->shape[1],
                                         .k = weight->shape[0],
                                         .add = din_mode == WRITE_ADD};
    return matmul_run(dev, &data_product, din->data, d, weight->data, NULL, 1.0f, err);
}

static enum status cuda_matmul(struct device *device,
                               const struct tensor *out,
                               enum write_mode mode,
                               const struct tensor *a,
                               bool transpose_a,
                               const struct tensor *b,
                               bool transpose_b,
                               float alpha,
                               struct error *err) {
    TRY(cuda_real("matmul", a, err));
    TRY(check_matmul(out, a, transpose_a, b, transpose_b, err));
    const struct product p = {.in = a->dtype,
                              .out = out->dtype,
                              .m = out->shape[0],
                              .n = out->shape[1],
                              .k = a->shape[transpose_a ? 0 : 1],
                              .transpose_a = transpose_a,
                              .transpose_b = transpose_b,
                              .add = mode == WRITE_ADD};
    return matmul_run(cuda_of(device), &p, out->data, a->data, b->data, NULL, alpha, err);
}

void cuda_put_linear(struct ops *t) {
    t->linear = cuda_linear;
    t->linear_bwd = cuda_linear_bwd;
    t->matmul = cuda_matmul;
}
