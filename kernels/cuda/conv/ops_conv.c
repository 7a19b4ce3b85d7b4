/*
 * ops_conv: convolution with batch norm, residual and ReLU, and its backward pass. Each arrow is
 * one pass over activations:
 *
 *     forward    in --convolution--> pre --statistics--> mean, rstd;  pre --apply--> out
 *     backward   dout, out, pre --sums--> dgamma, dbeta, dresidual
 *                dout or dresidual, pre --apply--> dpre
 *                dpre, in --convolution--> dweight;  dpre, weight --convolution--> din
 *
 * cuDNN runs the convolutions, batch_norm.cu the rest. The stem is transformed by conv_stem.cu; if
 * cuDNN has no engine for a shape, the plain kernels of conv_direct.cu are used.
 *
 * With WRITE_ADD the convolution itself adds to din (cuDNN's beta). If cuDNN has no engine for
 * that, and for dweight, the gradient is computed in the workspace and added afterwards.
 */
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

static struct conv_problem problem_of(enum conv_pass pass,
                                      const struct tensor *in,
                                      const struct tensor *weight,
                                      const struct tensor *pre,
                                      const struct conv_params *p) {
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

/* cuDNN, or the plain kernels if it has no engine. */
static enum status convolve_as_it_is(struct cuda_device *dev,
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

static enum status convolve(struct cuda_device *dev,
                            const struct conv_problem *p,
                            void *x,
                            void *w,
                            void *y,
                            struct error *err) {
    if (!conv_stem_applies(p)) {
        return convolve_as_it_is(dev, p, x, w, y, err);
    }
    struct launch_on on = {.stream = dev->stream};
    const struct conv_problem problem = conv_stem_problem(p);
    struct conv_stem stem;
    TRY(cuda_workspace(dev, WORKSPACE_STEM, conv_stem_workspace_bytes(p), &on.workspace, err));
    TRY(launched(dev, launch_conv_stem_pack(&on, p, x, w, &stem), "conv_stem_pack", err));
    TRY(convolve_as_it_is(dev, &problem, stem.x, stem.w, y, err));
    return p->pass == CONV_WEIGHT
               ? launched(dev, launch_conv_stem_unpack(&on, p, &stem, w), "conv_stem_unpack", err)
               : STATUS_OK;
}

static enum status refuse_group(const struct batch_norm_group *group, struct error *err) {
    return group == NULL
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "batch norm over the batches of several ranks is not available on cuda");
}

/* ---- forward ---- */

/* mean and rstd of the batch, and the update of the running ones; or only the running ones. */
static enum status
statistics(struct cuda_device *dev, const struct conv_bn *op, struct error *err) {
    struct launch_on on;
    if (!op->training) {
        TRY(cuda_launch_on(dev, 0, &on, err));
        return launched(dev, launch_batch_norm_running(&on, op), "batch_norm_running", err);
    }
    TRY(cuda_launch_on(dev, batch_norm_statistics_workspace_bytes(op), &on, err));
    return launched(dev, launch_batch_norm_statistics(&on, op), "batch_norm_statistics", err);
}

enum status cuda_conv_bn(struct device *device, const struct conv_bn *op, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_on on;
    const struct conv_problem problem =
        problem_of(CONV_FORWARD, &op->in, &op->weight, &op->pre, &op->conv);
    TRY(refuse_group(op->group, err));
    TRY(convolve(dev, &problem, op->in.data, op->weight.data, op->pre.data, err));
    TRY(statistics(dev, op, err));
    TRY(cuda_launch_on(dev, 0, &on, err));
    return launched(dev, launch_batch_norm_apply(&on, op), "batch_norm_apply", err);
}

/* ---- backward ---- */

/* A tensor like `t` in the workspace. */
static enum status sum_like(struct cuda_device *dev,
                            struct tensor *out,
                            const struct tensor *t,
                            enum dtype dtype,
                            struct error *err) {
    *out = *t;
    out->dtype = dtype;
    return cuda_workspace(dev, WORKSPACE_SUM, tensor_size_bytes(out), &out->data, err);
}

/* cuDNN 9 has no engine that writes f32 from bf16, so there the sum is rounded once, as in other
 * frameworks, and widened. */
static enum status
weight_gradient(struct cuda_device *dev, const struct conv_bn_bwd *op, struct error *err) {
    const struct conv_problem problem =
        problem_of(CONV_WEIGHT, &op->in, &op->dweight, &op->dpre, &op->conv);
    struct tensor sum;
    if (op->param_mode == WRITE_SET && op->in.dtype == op->dweight.dtype) {
        return convolve(dev, &problem, op->in.data, op->dweight.data, op->dpre.data, err);
    }
    TRY(sum_like(dev, &sum, &op->dweight, op->in.dtype, err));
    TRY(convolve(dev, &problem, op->in.data, sum.data, op->dpre.data, err));
    return op->param_mode == WRITE_ADD
               ? cuda_add(&dev->base, &(struct add){op->dweight, sum, 1.0f}, err)
               : cuda_cast(&dev->base, &(struct cast){op->dweight, sum}, err);
}

static enum status
data_gradient(struct cuda_device *dev, const struct conv_bn_bwd *op, struct error *err) {
    struct conv_problem problem =
        problem_of(CONV_DATA, &op->din, &op->weight, &op->dpre, &op->conv);
    if (op->din_mode == WRITE_SET) {
        return convolve(dev, &problem, op->din.data, op->weight.data, op->dpre.data, err);
    }
    struct error why = {0};
    problem.add = true;
    const enum status s =
        conv_run(dev, &problem, op->din.data, op->weight.data, op->dpre.data, &why);
    if (s != STATUS_UNSUPPORTED) {
        return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
    }
    struct tensor sum;
    problem.add = false;
    TRY(sum_like(dev, &sum, &op->din, op->din.dtype, err));
    TRY(convolve(dev, &problem, sum.data, op->weight.data, op->dpre.data, err));
    return cuda_add(&dev->base, &(struct add){op->din, sum, 1.0f}, err);
}

enum status
cuda_conv_bn_bwd(struct device *device, const struct conv_bn_bwd *op, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_on on;
    TRY(refuse_group(op->group, err));
    TRY(cuda_launch_on(dev, batch_norm_bwd_workspace_bytes(op), &on, err));
    TRY(launched(dev, launch_batch_norm_bwd(&on, op), "batch_norm_bwd", err));
    TRY(weight_gradient(dev, op, err));
    return tensor_present(&op->din) ? data_gradient(dev, op, err) : STATUS_OK;
}
