/*
 * optimizer: two fused calls, one for the decayed range of the table and one for the rest.
 */
#include "train/optim/optimizer.h"

void optimizer_options_default(struct optimizer_options *opt) {
    *opt = (struct optimizer_options){.kind = OPTIMIZER_ADAMW,
                                      .momentum = 0.9,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .weight_decay = 0.02,
                                      .clip_norm = 0.0};
}

static enum status global_norm(const struct params *p,
                               struct device *dev,
                               struct step_values *values,
                               double clip_norm,
                               struct error *err) {
    for (int decayed = 0; decayed < 2; decayed++) { /* an empty range adds 0 */
        const struct tensor grad = params_range(p, PARAM_GRAD, decayed == 1);
        TRY(dev->ops->sum_squares(dev, &values->squares[decayed], &grad, err));
    }
    return dev->ops->grad_scale(dev, values, 2, clip_norm, err);
}

/* All decayed tensors, or all others. */
static enum status step_range(struct params *p,
                              struct device *dev,
                              const struct step_values *values,
                              const struct optimizer_options *opt,
                              bool decayed,
                              struct error *err) {
    const struct tensor value = params_range(p, PARAM_VALUE, decayed);
    const struct tensor working = params_working(p, decayed);
    const struct tensor grad = params_range(p, PARAM_GRAD, decayed);
    const struct tensor m = params_range(p, PARAM_M, decayed);
    const float weight_decay = decayed ? (float)opt->weight_decay : 0.0f;
    if (opt->kind == OPTIMIZER_SGDM) {
        const struct sgdm_params sgdm = {
            .momentum = (float)opt->momentum, .weight_decay = weight_decay, .values = values};
        return dev->ops->sgdm(dev, &value, &working, &grad, &m, &sgdm, err);
    }
    const struct tensor v = params_range(p, PARAM_V, decayed);
    const struct adamw_params adamw = {.beta1 = (float)opt->beta1,
                                       .beta2 = (float)opt->beta2,
                                       .eps = (float)opt->eps,
                                       .weight_decay = weight_decay,
                                       .values = values};
    return dev->ops->adamw(dev, &value, &working, &grad, &m, &v, &adamw, err);
}

enum status optimizer_step(struct params *p,
                           struct device *dev,
                           struct step_values *values,
                           const struct optimizer_options *opt,
                           struct error *err) {
    REQUIRE(p != NULL && dev != NULL && values != NULL && opt != NULL);
    TRY(global_norm(p, dev, values, opt->clip_norm, err));
    for (int decayed = 0; decayed < 2; decayed++) {
        const struct tensor value = params_range(p, PARAM_VALUE, decayed == 1);
        if (tensor_count(&value) > 0) {
            TRY(step_range(p, dev, values, opt, decayed == 1, err));
        }
    }
    return STATUS_OK;
}
