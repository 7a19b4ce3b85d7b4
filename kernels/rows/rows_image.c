/*
 * rows_image: fills, casts, input, convolutions and pools.
 */
#include "kernels/rows/rows_internal.h"

/* ---- fill, input ---- */

void describe_fill(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v1(c, s[0]));
}

enum status call_fill(const struct ops *ops,
                      struct device *dev,
                      const struct tensor *t,
                      const struct op_case *c,
                      struct error *err) {
    (void)c;
    return ops->fill(dev, &t[0], 1.25, err);
}

void describe_cast(struct op_case *c, const int64_t *s) {
    const bool back = (c->flags & OP_ALT) != 0;
    operand(c, "out", ROLE_OUT, tensor_1d(NULL, back ? DTYPE_F32 : DTYPE_BF16, s[0]));
    operand(c, "in", ROLE_IN, tensor_1d(NULL, back ? DTYPE_BF16 : DTYPE_F32, s[0]));
}

enum status call_cast(const struct ops *ops,
                      struct device *dev,
                      const struct tensor *t,
                      const struct op_case *c,
                      struct error *err) {
    (void)c;
    return ops->cast(dev, &t[0], &t[1], err);
}

void describe_normalize_u8(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v4(c, s[0], s[1], s[2], 3));
    integers(c, "in", CONTENT_BYTE, 256, tensor_4d(NULL, DTYPE_U8, s[0], s[1], s[2], 3));
}

enum status call_normalize_u8(const struct ops *ops,
                              struct device *dev,
                              const struct tensor *t,
                              const struct op_case *c,
                              struct error *err) {
    static const float mean[3] = {0.485f, 0.456f, 0.406f};
    static const float std[3] = {0.229f, 0.224f, 0.225f};
    (void)c;
    return ops->normalize_u8(dev, &t[0], &t[1], mean, std, err);
}

/* ---- conv_bn: sizes n, h, w, in, out, kernel, stride, pad ---- */

static struct tensor conv_parameters(struct op_case *c, const int64_t *s) {
    c->conv =
        (struct conv_bn_params){.stride = (int32_t)s[6],
                                .pad = (int32_t)s[7],
                                .act = (c->flags & OP_ACT) != 0 ? ACTIVATION_RELU : ACTIVATION_NONE,
                                .training = (c->flags & OP_EVAL) == 0,
                                .eps = 1e-5f,
                                .momentum = 0.1f};
    const struct tensor out = v4(c, s[0], conv_out_size(s[1], s[5], s[6], s[7]),
                                 conv_out_size(s[2], s[5], s[6], s[7]), s[4]);
    c->flops = 2.0 * (double)tensor_count(&out) * (double)(s[5] * s[5] * s[3]);
    return out;
}

void describe_conv_bn(struct op_case *c, const int64_t *s) {
    const struct tensor out = conv_parameters(c, s);
    operand(c, "out", ROLE_OUT, out);
    operand(c, "pre", ROLE_OUT, out);
    operand(c, "mean", ROLE_OUT, p1(c, s[4]));
    operand(c, "rstd", ROLE_OUT, p1(c, s[4]));
    const enum op_role running = c->conv.training ? ROLE_BOTH : ROLE_IN;
    maybe(c, "running_mean", running, p1(c, s[4]), OP_UNWANTED)->optional = false;
    struct op_operand *var = maybe(c, "running_var", running, p1(c, s[4]), OP_UNWANTED);
    var->content = CONTENT_POSITIVE;
    var->optional = false; /* only together with the mean */
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "weight", ROLE_IN, v4(c, s[4], s[5], s[5], s[3]));
    operand(c, "gamma", ROLE_IN, p1(c, s[4]));
    operand(c, "beta", ROLE_IN, p1(c, s[4]));
    maybe(c, "residual", ROLE_IN, out, OP_PLAIN);
}

enum status call_conv_bn(const struct ops *ops,
                         struct device *dev,
                         const struct tensor *t,
                         const struct op_case *c,
                         struct error *err) {
    return ops->conv_bn(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], &t[8], &t[9],
                        &t[10], &c->conv, err);
}

void describe_conv_bn_bwd(struct op_case *c, const int64_t *s) {
    enum { DOUT = 6 };
    const struct tensor out = conv_parameters(c, s);
    const bool alias = (c->flags & OP_ALIAS) != 0;
    c->flops *= (c->flags & OP_UNWANTED) != 0 ? 1.0 : 2.0;
    maybe_gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]), OP_UNWANTED);
    struct op_operand *dresidual =
        maybe_gradient(c, "dresidual", "residual", out, OP_UNWANTED | OP_PLAIN);
    if (alias) {
        dresidual->alias = DOUT;
        dresidual->role = ROLE_BOTH;
    }
    gradient(c, "dweight", "weight", as_param(c, v4(c, s[4], s[5], s[5], s[3])));
    gradient(c, "dgamma", "gamma", p1(c, s[4]));
    gradient(c, "dbeta", "beta", p1(c, s[4]));
    operand(c, "dpre", ROLE_SCRATCH, out);
    operand(c, "dout", alias ? ROLE_BOTH : ROLE_IN, out);
    operand(c, "out", ROLE_IN, out);
    operand(c, "pre", ROLE_IN, out);
    operand(c, "mean", ROLE_IN, p1(c, s[4]));
    operand(c, "rstd", ROLE_IN, p1(c, s[4]));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "weight", ROLE_IN, v4(c, s[4], s[5], s[5], s[3]));
    operand(c, "gamma", ROLE_IN, p1(c, s[4]));
}

enum status call_conv_bn_bwd(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    return ops->conv_bn_bwd(dev, &t[0], c->mode, &t[1], c->mode, &t[2], &t[3], &t[4], c->mode,
                            &t[5], &t[6], &t[7], &t[8], &t[9], &t[10], &t[11], &t[12], &t[13],
                            &c->conv, err);
}

/* ---- pools: sizes n, h, w, c, kernel, stride, pad ---- */

static struct tensor pool_parameters(struct op_case *c, const int64_t *s, bool ceil_form) {
    c->pool = (struct pool_params){(int32_t)s[4], (int32_t)s[5], (int32_t)s[6]};
    int64_t (*size_of)(int64_t, int64_t, int64_t, int64_t) =
        ceil_form ? avgpool_out_size : conv_out_size;
    return v4(c, s[0], size_of(s[1], s[4], s[5], s[6]), size_of(s[2], s[4], s[5], s[6]), s[3]);
}

static struct tensor as_i32(struct tensor t) {
    t.dtype = DTYPE_I32;
    return t;
}

void describe_maxpool(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, false);
    operand(c, "out", ROLE_OUT, out);
    operand(c, "argmax", ROLE_OUT, as_i32(out));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

enum status call_maxpool(const struct ops *ops,
                         struct device *dev,
                         const struct tensor *t,
                         const struct op_case *c,
                         struct error *err) {
    return ops->maxpool(dev, &t[0], &t[1], &t[2], &c->pool, err);
}

void describe_maxpool_bwd(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, false);
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, out);
    operand(c, "argmax", ROLE_IN, as_i32(out));
}

enum status call_maxpool_bwd(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    return ops->maxpool_bwd(dev, &t[0], c->mode, &t[1], &t[2], &c->pool, err);
}

void describe_avgpool(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, pool_parameters(c, s, true));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

enum status call_avgpool(const struct ops *ops,
                         struct device *dev,
                         const struct tensor *t,
                         const struct op_case *c,
                         struct error *err) {
    return ops->avgpool(dev, &t[0], &t[1], &c->pool, err);
}

void describe_avgpool_bwd(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, true);
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, out);
}

enum status call_avgpool_bwd(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    return ops->avgpool_bwd(dev, &t[0], c->mode, &t[1], &c->pool, err);
}

void describe_global_avgpool(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[3]));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

enum status call_global_avgpool(const struct ops *ops,
                                struct device *dev,
                                const struct tensor *t,
                                const struct op_case *c,
                                struct error *err) {
    (void)c;
    return ops->global_avgpool(dev, &t[0], &t[1], err);
}

void describe_global_avgpool_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[3]));
}

enum status call_global_avgpool_bwd(const struct ops *ops,
                                    struct device *dev,
                                    const struct tensor *t,
                                    const struct op_case *c,
                                    struct error *err) {
    return ops->global_avgpool_bwd(dev, &t[0], c->mode, &t[1], err);
}
