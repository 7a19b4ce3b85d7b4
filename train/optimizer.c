/*
 * optimizer: two fused calls, one for the decayed range of the table and one for the rest.
 */
#include "train/optimizer.h"

#include <math.h>

void optimizer_options_default(struct optimizer_options *opt) {
    *opt = (struct optimizer_options){.kind = OPTIMIZER_ADAMW,
                                      .momentum = 0.9,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .weight_decay = 0.02,
                                      .clip_norm = 0.0};
}

static enum status
global_norm(const struct params *p, struct device *dev, double *out, struct error *err) {
    double total = 0.0;
    for (int decayed = 0; decayed < 2; decayed++) {
        const struct tensor grad = params_range(p, PARAM_GRAD, decayed == 1);
        double squares = 0.0;
        if (tensor_count(&grad) > 0) {
            TRY(dev->ops->sum_squares(dev, &squares, &grad, err));
        }
        total += squares;
    }
    *out = sqrt(total);
    return STATUS_OK;
}

/* All decayed tensors, or all others. */
static enum status step_range(struct params *p,
                              struct device *dev,
                              const struct optimizer_options *opt,
                              bool decayed,
                              double lr,
                              uint64_t step,
                              float grad_scale,
                              struct error *err) {
    const struct tensor value = params_range(p, PARAM_VALUE, decayed);
    const struct tensor working = params_working(p, decayed);
    const struct tensor grad = params_range(p, PARAM_GRAD, decayed);
    const struct tensor m = params_range(p, PARAM_M, decayed);
    const float weight_decay = decayed ? (float)opt->weight_decay : 0.0f;
    if (opt->kind == OPTIMIZER_SGDM) {
        const struct sgdm_params sgdm = {.lr = (float)lr,
                                         .momentum = (float)opt->momentum,
                                         .weight_decay = weight_decay,
                                         .grad_scale = grad_scale};
        return dev->ops->sgdm(dev, &value, &working, &grad, &m, &sgdm, err);
    }
    const struct tensor v = params_range(p, PARAM_V, decayed);
    const struct adamw_params adamw = {.lr = (float)lr,
                                       .beta1 = (float)opt->beta1,
                                       .beta2 = (float)opt->beta2,
                                       .eps = (float)opt->eps,
                                       .weight_decay = weight_decay,
                                       .grad_scale = grad_scale,
                                       .step = (int64_t)step};
    return dev->ops->adamw(dev, &value, &working, &grad, &m, &v, &adamw, err);
}

enum status optimizer_step(struct params *p,
                           struct device *dev,
                           double *grad_norm,
                           const struct optimizer_options *opt,
                           double lr,
                           uint64_t step,
                           struct error *err) {
    REQUIRE(p != NULL && dev != NULL && grad_norm != NULL && opt != NULL && step >= 1);
    TRY(global_norm(p, dev, grad_norm, err));
    if (!isfinite(*grad_norm)) {
        return error_set(err, STATUS_CORRUPT, "gradients are not finite; lower the learning rate");
    }
    float grad_scale = 1.0f;
    if (opt->clip_norm > 0.0 && *grad_norm > opt->clip_norm) {
        grad_scale = (float)(opt->clip_norm / *grad_norm);
    }
    for (int decayed = 0; decayed < 2; decayed++) {
        const struct tensor value = params_range(p, PARAM_VALUE, decayed == 1);
        if (tensor_count(&value) > 0) {
            TRY(step_range(p, dev, opt, decayed == 1, lr, step, grad_scale, err));
        }
    }
    return STATUS_OK;
}
