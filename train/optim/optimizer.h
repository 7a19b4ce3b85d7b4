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
    OPTIMIZER_SGDM,  /* one; decay is added to the gradient (L2), as in PyTorch's SGD */
    /* LARS (You et al., 2017; struct lars of kernels/ops.h): as sgdm, but each tensor that decays
     * moves in proportion to its own norm. The others, biases and parameters of norms, are those
     * of sgdm without decay: the exclusions of SimCLR (Chen et al., 2020, section 2.3), MoCo v3 and
     * EMC2. Devices that lack the operator are refused. */
    OPTIMIZER_LARS,
    /* Two moments; decay is added to the gradient (L2), as in PyTorch's Adam. Refused on cuda. */
    OPTIMIZER_ADAM,
};

/* Moments that a table needs (params_set_moments): 2 or 1. */
static inline int32_t optimizer_moments(enum optimizer_kind kind) {
    return kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_ADAM ? 2 : 1;
}

struct optimizer_options {
    enum optimizer_kind kind;
    double momentum;     /* sgdm, lars: [0, 1); default 0.9 */
    double trust;        /* lars: > 0; 0.001 (You et al. and EMC2) */
    double beta1, beta2; /* adamw, adam: [0, 1); 0.9, 0.999 */
    double eps;          /* adamw, adam: > 0; 1e-8 */
    double weight_decay; /* >= 0; 0.02; tensors with params_info.decay only */
    double clip_norm;    /* gradients are scaled down to this global norm; 0 = never */
};

void optimizer_options_default(struct optimizer_options *opt);

/* Returns OK, or UNSUPPORTED where the device lacks the optimiser. */
enum status
optimizer_check(const struct device *dev, const struct optimizer_options *opt, struct error *err);

/* One step along the table's gradients with, times those of params_set_rate (adamw and adam), the
 * rate, the step and the soundness of *values, which lie on the device. There it leaves grad_norm,
 * that before clipping, and grad_scale; where the norm is not finite it clears `sound`, or skips
 * the step where gradients were scaled, and changes nothing. Waits for nothing. Returns OK or what
 * the device returns. */
enum status optimizer_step(struct params *p,
                           struct device *dev,
                           struct step_values *values,
                           const struct optimizer_options *opt,
                           struct error *err);

#endif
