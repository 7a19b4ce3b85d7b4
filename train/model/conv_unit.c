/*
 * With batch norm a unit is conv_bn, with group norm or none conv_gn.
 */
#include "train/model/conv_unit_internal.h"

/* ---- description ---- */

enum status unit_add_norm(struct unit *u,
                          const struct unit_owner *o,
                          const char *norm,
                          enum param_init gamma_init,
                          struct error *err) {
    const struct {
        int32_t *index;
        const char *name;
        enum param_kind kind;
        enum param_init init;
    } vectors[] = {
        {&u->gamma, "weight", PARAM_TRAINED, gamma_init},
        {&u->beta, "bias", PARAM_TRAINED, PARAM_INIT_ZEROS},
        {&u->running_mean, "running_mean", PARAM_BUFFER, PARAM_INIT_ZEROS},
        {&u->running_var, "running_var", PARAM_BUFFER, PARAM_INIT_ONES},
    };
    const int count = o->norm == RESNET_NORM_BATCH ? 4 : o->norm == RESNET_NORM_GROUP ? 2 : 0;
    for (int i = 0; i < count; i++) {
        const struct param_spec spec = {.module = norm,
                                        .name = vectors[i].name,
                                        .shape = {u->out_channels},
                                        .kind = vectors[i].kind,
                                        .init = vectors[i].init};
        TRY(params_add(o->params, vectors[i].index, &spec, err));
    }
    return STATUS_OK;
}

struct tensor
unit_statistics(const struct unit_owner *o, enum dtype dtype, int64_t n, int32_t channels) {
    const enum dtype exact = statistics_dtype(dtype);
    return o->norm == RESNET_NORM_BATCH
               ? tensor_1d(NULL, exact, channels)
               : tensor_2d(NULL, exact, n, resnet_group_count(o->norm, channels));
}

/* ---- passes ---- */

/* The unit of a linear layer is a convolution of 1 x 1 pixels. */
static struct tensor as_weight(struct tensor t) {
    return t.ndim == 2 ? tensor_4d(t.data, t.dtype, t.shape[0], 1, 1, t.shape[1]) : t;
}

static struct conv_params conv_of(const struct unit *u) {
    return (struct conv_params){.stride = u->stride, .pad = u->pad, .act = u->act};
}

static bool has_batch_norm(const struct unit_owner *o) {
    return o->norm == RESNET_NORM_BATCH;
}

/* A vector of the unit's norm, or omitted without norm. */
static struct tensor norm_tensor(const struct unit_owner *o, int32_t index) {
    return o->norm == RESNET_NORM_NONE ? NOT_WANTED : params_tensor(o->params, index);
}

static struct tensor norm_grad(const struct unit_owner *o, int32_t index) {
    return o->norm == RESNET_NORM_NONE ? NOT_WANTED : params_grad(o->params, index);
}

/* The first n rows of the norm's statistics, or omitted without norm. */
static struct tensor norm_rows(struct tensor kept, int64_t n) {
    return kept.ndim == 0 ? NOT_WANTED : first_rows(kept, n);
}

static enum status unit_forward_by_image(const struct unit_owner *o,
                                         const struct unit *u,
                                         struct tensor in,
                                         struct tensor residual,
                                         struct error *err) {
    const int64_t n = in.shape[0];
    const struct conv_gn op = {.out = first_rows(u->out, n),
                               .pre = norm_rows(u->pre, n),
                               .mean = norm_rows(u->mean, n),
                               .rstd = norm_rows(u->rstd, n),
                               .in = in,
                               .weight = as_weight(params_tensor(o->params, u->weight)),
                               .gamma = norm_tensor(o, u->gamma),
                               .beta = norm_tensor(o, u->beta),
                               .residual = residual,
                               .conv = conv_of(u),
                               .groups = resnet_group_count(o->norm, u->out_channels),
                               .eps = 1e-5f};
    return o->dev->ops->conv_gn(o->dev, &op, err);
}

enum status unit_forward(const struct unit_owner *o,
                         const struct unit *u,
                         struct tensor in,
                         struct tensor residual,
                         struct error *err) {
    const int64_t n = in.shape[0];
    if (!has_batch_norm(o)) {
        return unit_forward_by_image(o, u, in, residual, err);
    }
    struct conv_bn op = {.out = first_rows(u->out, n),
                         .pre = first_rows(u->pre, n),
                         .mean = u->mean,
                         .rstd = u->rstd,
                         .in = in,
                         .weight = as_weight(params_tensor(o->params, u->weight)),
                         .gamma = params_tensor(o->params, u->gamma),
                         .beta = params_tensor(o->params, u->beta),
                         .residual = residual,
                         .conv = conv_of(u),
                         .group = o->group,
                         .training = o->pass != RESNET_INFERENCE,
                         .eps = 1e-5f,
                         .momentum = params_momentum(o->params)};
    if (o->pass != RESNET_REPLAY) { /* a replay leaves the running statistics */
        op.running_mean = params_tensor(o->params, u->running_mean);
        op.running_var = params_tensor(o->params, u->running_var);
    }
    return o->dev->ops->conv_bn(o->dev, &op, err);
}

enum status unit_backward(const struct unit_owner *o,
                          const struct unit *u,
                          struct tensor in,
                          struct tensor din,
                          enum write_mode din_mode,
                          struct tensor dresidual,
                          struct tensor dout,
                          struct error *err) {
    const int64_t n = dout.shape[0];
    if (!has_batch_norm(o)) {
        return o->dev->ops->conv_gn_bwd(
            o->dev,
            &(struct conv_gn_bwd){.din = din,
                                  .dresidual = dresidual,
                                  .dweight = as_weight(params_grad(o->params, u->weight)),
                                  .dgamma = norm_grad(o, u->gamma),
                                  .dbeta = norm_grad(o, u->beta),
                                  .dpre = shaped(&o->dpre, n, u->out_px, u->out_channels),
                                  .dout = dout,
                                  .out = first_rows(u->out, n),
                                  .pre = norm_rows(u->pre, n),
                                  .mean = norm_rows(u->mean, n),
                                  .rstd = norm_rows(u->rstd, n),
                                  .in = in,
                                  .weight = as_weight(params_tensor(o->params, u->weight)),
                                  .gamma = norm_tensor(o, u->gamma),
                                  .din_mode = din_mode,
                                  .param_mode = o->mode,
                                  .conv = conv_of(u),
                                  .groups = resnet_group_count(o->norm, u->out_channels)},
            err);
    }
    const bool by_out = tensor_present(&dresidual); /* the mask, else by pre and beta */
    return o->dev->ops->conv_bn_bwd(
        o->dev,
        &(struct conv_bn_bwd){.din = din,
                              .dresidual = dresidual,
                              .dweight = as_weight(params_grad(o->params, u->weight)),
                              .dgamma = params_grad(o->params, u->gamma),
                              .dbeta = params_grad(o->params, u->beta),
                              .dpre = shaped(&o->dpre, n, u->out_px, u->out_channels),
                              .dout = dout,
                              .out = by_out ? first_rows(u->out, n) : NOT_WANTED,
                              .pre = first_rows(u->pre, n),
                              .mean = u->mean,
                              .rstd = u->rstd,
                              .in = in,
                              .weight = as_weight(params_tensor(o->params, u->weight)),
                              .gamma = params_tensor(o->params, u->gamma),
                              .beta = by_out ? NOT_WANTED : params_tensor(o->params, u->beta),
                              .din_mode = din_mode,
                              .param_mode = o->mode,
                              .conv = conv_of(u),
                              .group = o->group},
        err);
}
