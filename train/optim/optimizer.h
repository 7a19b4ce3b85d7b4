/*
 * optimizer: AdamW, or SGD with momentum, over a parameter table, with decay for the tensors that
 * take it and an optional clip of the global gradient norm.
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
};

/* Moments that a table needs (params_set_moments): 2 or 1. */
static inline int32_t optimizer_moments(enum optimizer_kind kind) {
    return kind == OPTIMIZER_SGDM ? 1 : 2;
}

struct optimizer_options {
    enum optimizer_kind kind;
    double momentum;     /* sgdm: [0, 1); 0.9 */
    double beta1, beta2; /* adamw: [0, 1); 0.9, 0.999 */
    double eps;          /* adamw: > 0; 1e-8 */
    double weight_decay; /* >= 0; 0.02; tensors with params_info.decay only */
    double clip_norm;    /* gradients are scaled down to this global norm; 0 = never */
};

void optimizer_options_default(struct optimizer_options *opt);

/* One step along the table's gradients with the rate, the step and the soundness of *values, which
 * lie on the device. There it leaves grad_norm, that before clipping, and grad_scale; where the
 * norm is not finite it clears `sound`, or skips the step where gradients were scaled, and changes
 * nothing. Waits for nothing. Returns OK or what the device returns. */
enum status optimizer_step(struct params *p,
                           struct device *dev,
                           struct step_values *values,
                           const struct optimizer_options *opt,
                           struct error *err);

#endif
