/*
 * conv_unit: a convolution, its norm, a residual and an activation as one operator: the unit of
 * convolutional towers, and, with 1 x 1 pixels, a linear layer with a norm.
 */
#ifndef TRAIN_MODEL_CONV_UNIT_INTERNAL_H
#define TRAIN_MODEL_CONV_UNIT_INTERNAL_H

#include "train/model/carve.h"
#include "train/model/resnet.h"

/* Shared by the units of a model. */
struct unit_owner {
    struct params *params;
    struct device *dev; /* NULL before placement */
    enum resnet_norm norm;
    const struct batch_norm_group *group;
    struct tensor dpre;    /* memory for the gradient of any unit's `pre` */
    enum resnet_pass pass; /* of forward */
    enum write_mode mode;  /* of gradients of parameters, backward */
};

struct unit {
    /* Indices in the table; gamma and beta only with a norm, running_x only with batch norm. */
    int32_t weight, gamma, beta, running_mean, running_var;
    int32_t in_channels, out_channels;
    int32_t kernel, stride, pad;
    int32_t in_px, out_px;
    enum activation act;
    struct tensor out, pre;   /* (max_batch, P, P, C) */
    struct tensor mean, rstd; /* batch norm: (C); group norm: (max_batch, G) */
};

/* The same memory with another shape. */
static inline struct tensor
shaped(const struct tensor *slot, int64_t n, int64_t px, int64_t channels) {
    return tensor_4d(slot->data, slot->dtype, n, px, px, channels);
}

/* Adds the tensors of the unit's norm, if it has one, under PyTorch's names after "NORM.". Returns
 * as params_add. */
enum status unit_add_norm(struct unit *u,
                          const struct unit_owner *o,
                          const char *norm,
                          enum param_init gamma_init,
                          struct error *err);

/* Shape of mean and rstd for activations (n, P, P, channels), without memory. Requires a norm. */
struct tensor
unit_statistics(const struct unit_owner *o, enum dtype dtype, int64_t n, int32_t channels);

/* in (N, P, P, I) -> u->out (N, P', P', O); residual may be omitted. */
enum status unit_forward(const struct unit_owner *o,
                         const struct unit *u,
                         struct tensor in,
                         struct tensor residual,
                         struct error *err);

/* dout (N, P', P', O) -> din (N, P, P, I), which may be omitted, and dresidual like dout, which is
 * omitted if the forward call had no residual. */
enum status unit_backward(const struct unit_owner *o,
                          const struct unit *u,
                          struct tensor in,
                          struct tensor din,
                          enum write_mode din_mode,
                          struct tensor dresidual,
                          struct tensor dout,
                          struct error *err);

#endif
