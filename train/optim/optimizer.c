/*
 * optimizer: two fused calls, for the decayed range of the table and for the rest. LARS makes one
 * call per decayed tensor.
 */
#include "train/optim/optimizer.h"

#include "train/model/carve.h"

void optimizer_options_default(struct optimizer_options *opt) {
    *opt = (struct optimizer_options){.kind = OPTIMIZER_ADAMW,
                                      .momentum = 0.9,
                                      .trust = 0.001,
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
        const struct sum_squares op = {.sum = tensor_1d(&values->squares[decayed], DTYPE_F64, 1),
                                       .in = params_range(p, PARAM_GRAD, decayed == 1)};
        TRY(dev->ops->sum_squares(dev, &op, err));
    }
    return dev->ops->grad_scale(
        dev, &(struct grad_scale){.values = values, .count = 2, .clip_norm = clip_norm}, err);
}

static struct tensor
part(const struct params *p, enum param_slot slot, bool decayed, int64_t from, int64_t count) {
    return rows_from(params_range(p, slot, decayed), from, count);
}

/* A part of the decayed tensors, or of the others, with `rate` times the step's learning rate. */
static enum status step_range(struct params *p,
                              struct device *dev,
                              const struct step_values *values,
                              const struct optimizer_options *opt,
                              bool decayed,
                              int64_t from,
                              int64_t count,
                              float rate,
                              struct error *err) {
    const float weight_decay = decayed ? (float)opt->weight_decay : 0.0f;
    const struct tensor working = params_working(p, decayed);
    if (optimizer_moments(opt->kind) == 1) {
        return dev->ops->sgdm(dev,
                              &(struct sgdm){.value = params_range(p, PARAM_VALUE, decayed),
                                             .working = params_working(p, decayed),
                                             .grad = params_range(p, PARAM_GRAD, decayed),
                                             .m = params_range(p, PARAM_M, decayed),
                                             .momentum = (float)opt->momentum,
                                             .weight_decay = weight_decay,
                                             .values = values},
                              err);
    }
    return dev->ops->adamw(dev,
                           &(struct adamw){.value = part(p, PARAM_VALUE, decayed, from, count),
                                           .working = tensor_present(&working)
                                                          ? rows_from(working, from, count)
                                                          : working,
                                           .grad = part(p, PARAM_GRAD, decayed, from, count),
                                           .m = part(p, PARAM_M, decayed, from, count),
                                           .v = part(p, PARAM_V, decayed, from, count),
                                           .lr_scale = rate,
                                           .beta1 = (float)opt->beta1,
                                           .beta2 = (float)opt->beta2,
                                           .eps = (float)opt->eps,
                                           .weight_decay = weight_decay,
                                           .coupled = opt->kind == OPTIMIZER_ADAM,
                                           .values = values},
                           err);
}

static enum status step_by_norms(struct params *p,
                                 struct device *dev,
                                 const struct step_values *values,
                                 const struct optimizer_options *opt,
                                 struct error *err) {
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct tensor read = params_tensor(p, i);
        if (!params_info(p, i).decay) {
            continue;
        }
        const struct lars op = {.value = params_slot(p, i, PARAM_VALUE),
                                .working =
                                    read.dtype == DTYPE_BF16 ? read : (struct tensor){.data = NULL},
                                .grad = params_slot(p, i, PARAM_GRAD),
                                .m = params_slot(p, i, PARAM_M),
                                .momentum = (float)opt->momentum,
                                .weight_decay = (float)opt->weight_decay,
                                .trust = (float)opt->trust,
                                .values = values};
        TRY(dev->ops->lars(dev, &op, err));
    }
    return STATUS_OK;
}

enum status
optimizer_check(const struct device *dev, const struct optimizer_options *opt, struct error *err) {
    const bool lars = opt->kind == OPTIMIZER_LARS && dev->ops->lars == NULL;
    const bool adam = opt->kind == OPTIMIZER_ADAM && dev->stream != NULL;
    return lars || adam
               ? error_set(err, STATUS_UNSUPPORTED,
                           "--optimizer %s: device %s has no kernel for it; use --device cpu",
                           lars ? "lars" : "adam", dev->ops->name)
               : STATUS_OK;
}

enum status optimizer_step(struct params *p,
                           struct device *dev,
                           struct step_values *values,
                           const struct optimizer_options *opt,
                           struct error *err) {
    REQUIRE(p != NULL && dev != NULL && values != NULL && opt != NULL);
    TRY(global_norm(p, dev, values, opt->clip_norm, err));
    for (int decayed = 0; decayed < 2; decayed++) {
        int64_t end;
        float rate;
        if (decayed == 1 && opt->kind == OPTIMIZER_LARS) {
            TRY(step_by_norms(p, dev, values, opt, err));
            continue;
        }
        for (int64_t from = 0; params_same_rate(p, decayed == 1, from, &end, &rate); from = end) {
            TRY(step_range(p, dev, values, opt, decayed == 1, from, end - from, rate, err));
        }
    }
    return STATUS_OK;
}
