/*
 * ops_conv: convolution with batch norm, residual and ReLU, and its backward pass. Each arrow is
 * one pass over activations:
 *
 *     forward    in --convolution--> pre --statistics--> mean, rstd;  pre --apply--> out
 *     backward   dout, out, pre --sums--> dgamma, dbeta;  dout, out, pre --apply--> dpre, dresidual
 *                dpre, in --convolution--> dweight;  dpre, weight --convolution--> din
 *
 * cuDNN runs the convolutions, batch_norm.cu the rest. Where cuDNN has no engine for a shape, the
 * plain kernels of conv_direct.cu do the work.
 *
 * A din that is added is added by the convolution (cuDNN's beta). Where cuDNN has no engine for
 * that, and for dweight, the gradient is computed in scratch memory and added afterwards.
 */
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

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

/* cuDNN, or the plain kernels where it has no engine. */
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

/* ---- forward ---- */

/* mean and rstd of the batch, and the step of the running ones. */
static enum status batch_statistics(struct cuda_device *dev,
                                    const struct tensor *pre,
                                    const struct tensor *mean,
                                    const struct tensor *rstd,
                                    const struct tensor *running_mean,
                                    const struct tensor *running_var,
                                    const struct conv_bn_params *p,
                                    struct error *err) {
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    const bool moves = tensor_wanted(running_mean);
    void *work;
    TRY(cuda_workspace(dev, launch_batch_norm_statistics_workspace_bytes(rows, channels), &work,
                       err));
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
    const int64_t channels = pre->shape[3];
    TRY(convolve(dev, &problem, in->data, weight->data, pre->data, err));
    if (p->training) {
        TRY(batch_statistics(dev, pre, mean, rstd, running_mean, running_var, p, err));
    } else {
        TRY(launched(dev,
                     launch_batch_norm_running(dev->stream, mean->data, rstd->data,
                                               running_mean->data, running_var->data, channels,
                                               p->eps),
                     "batch_norm_running", err));
    }
    return launched(dev,
                    launch_batch_norm_apply(dev->stream, pre->dtype, out->data, pre->data,
                                            mean->data, rstd->data, gamma->data, beta->data,
                                            tensor_wanted(residual) ? residual->data : NULL, p->act,
                                            tensor_count(pre) / channels, channels),
                    "batch_norm_apply", err);
}

/* ---- backward ---- */

/* cuDNN 9 has no engine that writes f32 from bf16, so there the sum is rounded once, as in other
 * frameworks, and widened. */
static enum status weight_gradient(struct cuda_device *dev,
                                   const struct tensor *dweight,
                                   enum write_mode mode,
                                   const struct tensor *dpre,
                                   const struct tensor *in,
                                   const struct conv_bn_params *params,
                                   struct error *err) {
    const struct conv_problem problem = problem_of(CONV_WEIGHT, in, dweight, dpre, params);
    const int64_t count = tensor_count(dweight);
    const bool direct = mode == WRITE_SET && in->dtype == dweight->dtype;
    void *sum = dweight->data;
    if (!direct) {
        TRY(cuda_scratch(dev, SCRATCH_SUM, (size_t)count * dtype_size_bytes(in->dtype), &sum, err));
    }
    TRY(convolve(dev, &problem, in->data, sum, dpre->data, err));
    if (direct) {
        return STATUS_OK;
    }
    return mode == WRITE_ADD ? launched(dev,
                                        launch_add(dev->stream, dweight->dtype, dweight->data,
                                                   in->dtype, sum, count, 1.0f),
                                        "add", err)
                             : launched(dev,
                                        launch_cast(dev->stream, dweight->dtype, dweight->data,
                                                    in->dtype, sum, count),
                                        "cast", err);
}

static enum status data_gradient(struct cuda_device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dpre,
                                 const struct tensor *weight,
                                 const struct conv_bn_params *params,
                                 struct error *err) {
    struct conv_problem problem = problem_of(CONV_DATA, din, weight, dpre, params);
    if (mode == WRITE_SET) {
        return convolve(dev, &problem, din->data, weight->data, dpre->data, err);
    }
    struct error why = {0};
    problem.add = true;
    const enum status s = conv_run(dev, &problem, din->data, weight->data, dpre->data, &why);
    if (s != STATUS_UNSUPPORTED) {
        return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
    }
    void *sum;
    problem.add = false;
    TRY(cuda_scratch(dev, SCRATCH_SUM, tensor_size_bytes(din), &sum, err));
    TRY(convolve(dev, &problem, sum, weight->data, dpre->data, err));
    return launched(
        dev,
        launch_add(dev->stream, din->dtype, din->data, din->dtype, sum, tensor_count(din), 1.0f),
        "add", err);
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
    TRY(cuda_real("conv_bn_bwd", in, err));
    TRY(check_conv_bn_bwd(din, dresidual, dweight, dgamma, dbeta, dpre, dout, out, pre, mean, rstd,
                          in, weight, gamma, p, err));
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    void *work;
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

void cuda_put_conv(struct ops *t) {
    t->conv_bn = cuda_conv_bn;
    t->conv_bn_bwd = cuda_conv_bn_bwd;
}
