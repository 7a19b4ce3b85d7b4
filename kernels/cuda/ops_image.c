/*
 * ops_image: pixels to numbers, convolution with batch norm, pools.
 *
 *     forward    in --cuDNN--> pre --statistics--> mean, rstd --one pass--> out
 *     backward   dout, out, pre --sums--> dgamma, dbeta --one pass--> dpre (and dresidual)
 *                dpre, in --cuDNN--> dweight;  dpre, weight --cuDNN--> din
 *
 * A gradient that is added is computed beside and added after: cuDNN's own beta keeps most engines
 * away. Where cuDNN has no engine for a shape, the plain kernels of conv_direct.cu do the work.
 */
#include "kernels/cuda/conv_plan_internal.h"
#include "kernels/cuda/cuda_internal.h"

static enum status cuda_normalize_u8(struct device *device,
                                     const struct tensor *out,
                                     const struct tensor *in,
                                     const float mean[3],
                                     const float std[3],
                                     struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("normalize_u8", out, err));
    TRY(check_tensor("normalize_u8", "in", in, DTYPE_U8, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, 3, err));
    TRY(check_tensor("normalize_u8", "out", out, out->dtype, 4, in->shape[0], in->shape[1],
                     in->shape[2], 3, err));
    return launched(dev,
                    launch_normalize_u8(dev->stream, out->dtype, out->data, in->data,
                                        tensor_count(in), mean, std),
                    "normalize_u8", err);
}

/* ---- convolutions ---- */

static struct conv_problem problem_of(enum conv_pass pass,
                                      const struct tensor *in,
                                      const struct tensor *weight,
                                      const struct tensor *pre,
                                      const struct conv_bn_params *p) {
    return (struct conv_problem){.pass = pass,
                                 .dtype = in->dtype,
                                 .n = in->shape[0],
                                 .h = in->shape[1],
                                 .w = in->shape[2],
                                 .c = in->shape[3],
                                 .k = weight->shape[0],
                                 .r = weight->shape[1],
                                 .s = weight->shape[2],
                                 .oh = pre->shape[1],
                                 .ow = pre->shape[2],
                                 .stride = p->stride,
                                 .pad = p->pad};
}

/* cuDNN, or the plain kernels where it has nothing. */
static enum status convolve(struct cuda_device *dev,
                            const struct conv_problem *p,
                            void *x,
                            void *w,
                            void *y,
                            struct error *err) {
    struct error why = {0};
    const enum status s = conv_run(dev, p, x, w, y, &why);
    if (s != STATUS_UNSUPPORTED) {
        return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
    }
    return launched(dev, launch_conv_direct(dev->stream, p, x, w, y), "conv_direct", err);
}

/* dweight (f32) = or += the sum over the batch of dpre x in. cuDNN 9 has no engine that writes f32
 * from bf16, so there the sum is rounded once, as in other frameworks, and widened. */
static enum status weight_gradient(struct cuda_device *dev,
                                   const struct tensor *dweight,
                                   enum write_mode mode,
                                   const struct tensor *dpre,
                                   const struct tensor *in,
                                   const struct conv_bn_params *params,
                                   struct error *err) {
    const struct conv_problem p = problem_of(CONV_WEIGHT, in, dweight, dpre, params);
    const int64_t count = tensor_count(dweight);
    void *sum = dweight->data;
    if (mode == WRITE_ADD || p.dtype == DTYPE_BF16) {
        TRY(cuda_scratch(dev, SCRATCH_SUM, (size_t)count * dtype_size_bytes(p.dtype), &sum, err));
    }
    TRY(convolve(dev, &p, in->data, sum, dpre->data, err));
    if (mode == WRITE_ADD) {
        return launched(
            dev, launch_add(dev->stream, DTYPE_F32, dweight->data, p.dtype, sum, count, 1.0f),
            "add", err);
    }
    if (sum == dweight->data) {
        return STATUS_OK;
    }
    return launched(dev, launch_cast(dev->stream, DTYPE_F32, dweight->data, p.dtype, sum, count),
                    "cast", err);
}

static enum status data_gradient(struct cuda_device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dpre,
                                 const struct tensor *weight,
                                 const struct conv_bn_params *params,
                                 struct error *err) {
    const struct conv_problem p = problem_of(CONV_DATA, din, weight, dpre, params);
    void *sum = din->data;
    if (mode == WRITE_ADD) {
        TRY(cuda_scratch(dev, SCRATCH_SUM, tensor_size_bytes(din), &sum, err));
    }
    TRY(convolve(dev, &p, sum, weight->data, dpre->data, err));
    if (mode == WRITE_SET) {
        return STATUS_OK;
    }
    return launched(
        dev,
        launch_add(dev->stream, din->dtype, din->data, din->dtype, sum, tensor_count(din), 1.0f),
        "add", err);
}

/* mean and rstd, from the batch or from the running statistics. */
static enum status statistics(struct cuda_device *dev,
                              const struct tensor *mean,
                              const struct tensor *rstd,
                              const struct tensor *running_mean,
                              const struct tensor *running_var,
                              const struct tensor *pre,
                              const struct conv_bn_params *p,
                              struct error *err) {
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    void *work;
    if (!p->training) {
        return launched(dev,
                        launch_batch_norm_running(dev->stream, mean->data, rstd->data,
                                                  running_mean->data, running_var->data, channels,
                                                  p->eps),
                        "batch_norm_running", err);
    }
    TRY(cuda_workspace(dev, launch_batch_norm_statistics_workspace_bytes(rows, channels), &work,
                       err));
    const bool moves = tensor_wanted(running_mean);
    return launched(dev,
                    launch_batch_norm_statistics(dev->stream, pre->dtype, mean->data, rstd->data,
                                                 moves ? running_mean->data : NULL,
                                                 moves ? running_var->data : NULL, pre->data, rows,
                                                 channels, p->eps, p->momentum, work),
                    "batch_norm_statistics", err);
}

static enum status cuda_conv_bn(struct device *device,
                                const struct tensor *out,
                                const struct tensor *pre,
                                const struct tensor *mean,
                                const struct tensor *rstd,
                                const struct tensor *running_mean,
                                const struct tensor *running_var,
                                const struct tensor *in,
                                const struct tensor *weight,
                                const struct tensor *gamma,
                                const struct tensor *beta,
                                const struct tensor *residual,
                                const struct conv_bn_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("conv_bn", in, err));
    TRY(check_conv_bn(out, pre, mean, rstd, running_mean, running_var, in, weight, gamma, beta,
                      residual, p, err));
    const struct conv_problem problem = problem_of(CONV_FORWARD, in, weight, pre, p);
    TRY(convolve(dev, &problem, in->data, weight->data, pre->data, err));
    TRY(statistics(dev, mean, rstd, running_mean, running_var, pre, p, err));
    const int64_t channels = pre->shape[3];
    return launched(dev,
                    launch_batch_norm_apply(dev->stream, pre->dtype, out->data, pre->data,
                                            mean->data, rstd->data, gamma->data, beta->data,
                                            tensor_wanted(residual) ? residual->data : NULL, p->act,
                                            tensor_count(pre) / channels, channels),
                    "batch_norm_apply", err);
}

static enum status cuda_conv_bn_bwd(struct device *device,
                                    const struct tensor *din,
                                    enum write_mode din_mode,
                                    const struct tensor *dresidual,
                                    enum write_mode dresidual_mode,
                                    const struct tensor *dweight,
                                    const struct tensor *dgamma,
                                    const struct tensor *dbeta,
                                    enum write_mode param_mode,
                                    const struct tensor *dpre,
                                    const struct tensor *dout,
                                    const struct tensor *out,
                                    const struct tensor *pre,
                                    const struct tensor *mean,
                                    const struct tensor *rstd,
                                    const struct tensor *in,
                                    const struct tensor *weight,
                                    const struct tensor *gamma,
                                    const struct conv_bn_params *p,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    void *work;
    TRY(cuda_real("conv_bn_bwd", in, err));
    TRY(check_conv_bn_bwd(din, dresidual, dweight, dgamma, dbeta, dpre, dout, out, pre, mean, rstd,
                          in, weight, gamma, p, err));
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    TRY(cuda_workspace(dev, launch_batch_norm_bwd_workspace_bytes(rows, channels), &work, err));
    TRY(launched(dev,
                 launch_batch_norm_bwd(dev->stream, pre->dtype, dpre->data,
                                       tensor_wanted(dresidual) ? dresidual->data : NULL,
                                       dresidual_mode, dgamma->data, dbeta->data, param_mode,
                                       dout->data, out->data, pre->data, mean->data, rstd->data,
                                       gamma->data, p->act, rows, channels, work),
                 "batch_norm_bwd", err));
    TRY(weight_gradient(dev, dweight, param_mode, dpre, in, p, err));
    return tensor_wanted(din) ? data_gradient(dev, din, din_mode, dpre, weight, p, err) : STATUS_OK;
}

/* ---- pools ---- */

static struct launch_plane
plane_of(const struct tensor *in, const struct tensor *out, const struct pool_params *p) {
    return (struct launch_plane){.n = in->shape[0],
                                 .h = in->shape[1],
                                 .w = in->shape[2],
                                 .c = in->shape[3],
                                 .oh = out->ndim == 4 ? out->shape[1] : 1,
                                 .ow = out->ndim == 4 ? out->shape[2] : 1,
                                 .pool = p != NULL ? *p : (struct pool_params){0}};
}

static enum status cuda_maxpool(struct device *device,
                                const struct tensor *out,
                                const struct tensor *argmax,
                                const struct tensor *in,
                                const struct pool_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("maxpool", in, err));
    TRY(check_pool("maxpool", out, argmax, in, p, false, err));
    const struct launch_plane plane = plane_of(in, out, p);
    return launched(
        dev, launch_maxpool(dev->stream, in->dtype, out->data, argmax->data, in->data, &plane),
        "maxpool", err);
}

static enum status cuda_maxpool_bwd(struct device *device,
                                    const struct tensor *din,
                                    enum write_mode mode,
                                    const struct tensor *dout,
                                    const struct tensor *argmax,
                                    const struct pool_params *p,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("maxpool_bwd", dout, err));
    TRY(check_pool("maxpool_bwd", dout, argmax, din, p, false, err));
    const struct launch_plane plane = plane_of(din, dout, p);
    return launched(dev,
                    launch_maxpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data,
                                       argmax->data, &plane),
                    "maxpool_bwd", err);
}

static enum status cuda_avgpool(struct device *device,
                                const struct tensor *out,
                                const struct tensor *in,
                                const struct pool_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("avgpool", in, err));
    TRY(check_pool("avgpool", out, NULL, in, p, true, err));
    const struct launch_plane plane = plane_of(in, out, p);
    return launched(dev, launch_avgpool(dev->stream, in->dtype, out->data, in->data, &plane),
                    "avgpool", err);
}

static enum status cuda_avgpool_bwd(struct device *device,
                                    const struct tensor *din,
                                    enum write_mode mode,
                                    const struct tensor *dout,
                                    const struct pool_params *p,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("avgpool_bwd", dout, err));
    TRY(check_pool("avgpool_bwd", dout, NULL, din, p, true, err));
    const struct launch_plane plane = plane_of(din, dout, p);
    return launched(
        dev, launch_avgpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data, &plane),
        "avgpool_bwd", err);
}

static enum status cuda_global_avgpool(struct device *device,
                                       const struct tensor *out,
                                       const struct tensor *in,
                                       struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("global_avgpool", in, err));
    TRY(check_global_avgpool(out, in, err));
    const struct launch_plane plane = plane_of(in, out, NULL);
    return launched(dev, launch_global_avgpool(dev->stream, in->dtype, out->data, in->data, &plane),
                    "global_avgpool", err);
}

static enum status cuda_global_avgpool_bwd(struct device *device,
                                           const struct tensor *din,
                                           enum write_mode mode,
                                           const struct tensor *dout,
                                           struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("global_avgpool_bwd", dout, err));
    TRY(check_global_avgpool(dout, din, err));
    const struct launch_plane plane = plane_of(din, dout, NULL);
    return launched(
        dev,
        launch_global_avgpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data, &plane),
        "global_avgpool_bwd", err);
}

void cuda_put_image(struct ops *t) {
    t->normalize_u8 = cuda_normalize_u8;
    t->conv_bn = cuda_conv_bn;
    t->conv_bn_bwd = cuda_conv_bn_bwd;
    t->maxpool = cuda_maxpool;
    t->maxpool_bwd = cuda_maxpool_bwd;
    t->avgpool = cuda_avgpool;
    t->avgpool_bwd = cuda_avgpool_bwd;
    t->global_avgpool = cuda_global_avgpool;
    t->global_avgpool_bwd = cuda_global_avgpool_bwd;
}
