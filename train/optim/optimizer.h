/*
 * optimizer: AdamW, Adam, SGD with momentum, or LARS over a parameter table, with weight decay for
 * some tensors and optional clipping of the global gradient norm.
 *
 * Threading : as the device.
 * Ownership : values, gradients and moments belong to the table; the step count is the caller's.
 */
#ifndef TRAIN_OPTIM_OPTIMIZER_H
#define TRAIN_OPTIM_OPTIMIZER_H

#include <stdint.h>

#include "formats/base/status.h"
#include "train/model/params.h"

enum optimizer_kind {
    OPTIMIZER_ADAMW, /* two moments */
    OPTIMIZER_SGDM,  /* one moment; L2 decay (added to the gradient), as in PyTorch's SGD */
    /* LARS (You et al., 2017; struct lars of kernels/ops.h): as sgdm, but each tensor with decay
     * moves in proportion to its own norm. Others (biases, parameters of norms) use sgdm without
     * decay: the exclusions of SimCLR (Chen et al., 2020, section 2.3), MoCo v3 and EMC2. Refused
     * on devices without the operator. */
    OPTIMIZER_LARS,
    /* Two moments; L2 decay, as in PyTorch's Adam. Refused on cuda. */
    OPTIMIZER_ADAM,
};

/* Moments per parameter (params_set_moments): 2 or 1. */
static inline int32_t optimizer_moments(enum optimizer_kind kind) {
    return kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_ADAM ? 2 : 1;
}

struct optimizer_options {
    enum optimizer_kind kind;
    double momentum;     /* sgdm, lars: [0, 1); default 0.9 */
    double trust;        /* lars: > 0; default 0.001 (You et al. and EMC2) */
    double beta1, beta2; /* adamw, adam: [0, 1); defaults 0.9, 0.999 */
    double eps;          /* adamw, adam: > 0; default 1e-8 */
    double weight_decay; /* >= 0, of tensors with params_info.decay; default 0.02 */
    double clip_norm;    /* gradients are scaled down to this global norm; default 0: never */
};

void optimizer_options_default(struct optimizer_options *opt);

/* Returns OK, or UNSUPPORTED if the device lacks the optimiser. */
enum status
optimizer_check(const struct device *dev, const struct optimizer_options *opt, struct error *err);

/* One step along the table's gradients. *values, in device memory, has the learning rate (times
 * params_set_rate with adamw and adam), the step and `sound`, and receives grad_norm (before
 * clipping) and grad_scale. If the norm is not finite nothing changes, and `sound` is cleared
 * unless gradients were scaled. Does not wait. Returns OK or what the device returns. */
enum status optimizer_step(struct params *p,
                           struct device *dev,
                           struct step_values *values,
                           const struct optimizer_options *opt,
                           struct error *err);

#endif
