/*
 * op_rows: the table. describe_NAME spells the operands in the order of the call, call_NAME makes
 * the call. Sizes hold edge cases: one, odd numbers, and numbers beside the vector widths.
 */
#include "tests/support/op_rows.h"

#include <stddef.h>

#include "kernels/check.h"

static struct op_operand *
operand(struct op_case *c, const char *name, enum op_role role, struct tensor shape) {
    struct op_operand *o = &c->operands[c->count++];
    *o = (struct op_operand){.name = name, .role = role, .alias = -1, .shape = shape};
    return o;
}

static void integers(struct op_case *c,
                     const char *name,
                     enum op_content content,
                     int64_t limit,
                     struct tensor shape) {
    struct op_operand *o = operand(c, name, ROLE_IN, shape);
    o->content = content;
    o->limit = (int32_t)limit;
}

/* An operand that a flag may take away. */
static struct op_operand *
maybe(struct op_case *c, const char *name, enum op_role role, struct tensor shape, unsigned flag) {
    struct op_operand *o = operand(c, name, role, shape);
    o->optional = true;
    if ((c->flags & flag) != 0) {
        o->shape = (struct tensor){.dtype = shape.dtype};
    }
    return o;
}

static struct op_operand *
gradient(struct op_case *c, const char *name, const char *of, struct tensor shape) {
    const bool add = c->mode == WRITE_ADD;
    struct op_operand *o = operand(c, name, add ? ROLE_BOTH : ROLE_OUT, shape);
    o->gradient_of = of;
    o->added = add;
    return o;
}

static struct op_operand *maybe_gradient(struct op_case *c,
                                         const char *name,
                                         const char *of,
                                         struct tensor shape,
                                         unsigned flag) {
    struct op_operand *o = gradient(c, name, of, shape);
    o->optional = true;
    if ((c->flags & flag) != 0) {
        o->shape = (struct tensor){.dtype = shape.dtype};
    }
    return o;
}

static struct tensor v1(const struct op_case *c, int64_t a) {
    return tensor_1d(NULL, c->real, a);
}

static struct tensor v2(const struct op_case *c, int64_t a, int64_t b) {
    return tensor_2d(NULL, c->real, a, b);
}

static struct tensor v4(const struct op_case *c, int64_t a, int64_t b, int64_t d, int64_t e) {
    return tensor_4d(NULL, c->real, a, b, d, e);
}

/* Parameters' vectors and gradients: f32 in a bf16 call. */
static struct tensor as_param(const struct op_case *c, struct tensor t) {
    t.dtype = param_dtype(c->real);
    return t;
}

static struct tensor p1(const struct op_case *c, int64_t a) {
    return as_param(c, v1(c, a));
}

/* Two operands: starts and lengths of n captions of up to t tokens in n t rows. */
static void segment_operands(struct op_case *c, int64_t n, int64_t t) {
    integers(c, "starts", CONTENT_START, t, tensor_1d(NULL, DTYPE_I32, n));
    integers(c, "lengths", CONTENT_LENGTH, t, tensor_1d(NULL, DTYPE_I32, n));
}

/* ---- fill, input ---- */

static void describe_fill(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v1(c, s[0]));
}

static enum status call_fill(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    (void)c;
    return ops->fill(dev, &t[0], 1.25, err);
}

static void describe_cast(struct op_case *c, const int64_t *s) {
    const bool back = (c->flags & OP_ALT) != 0;
    operand(c, "out", ROLE_OUT, tensor_1d(NULL, back ? DTYPE_F32 : DTYPE_BF16, s[0]));
    operand(c, "in", ROLE_IN, tensor_1d(NULL, back ? DTYPE_BF16 : DTYPE_F32, s[0]));
}

static enum status call_cast(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    (void)c;
    return ops->cast(dev, &t[0], &t[1], err);
}

static void describe_normalize_u8(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v4(c, s[0], s[1], s[2], 3));
    integers(c, "in", CONTENT_BYTE, 256, tensor_4d(NULL, DTYPE_U8, s[0], s[1], s[2], 3));
}

static enum status call_normalize_u8(const struct ops *ops,
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

static void describe_conv_bn(struct op_case *c, const int64_t *s) {
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

static enum status call_conv_bn(const struct ops *ops,
                                struct device *dev,
                                const struct tensor *t,
                                const struct op_case *c,
                                struct error *err) {
    return ops->conv_bn(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], &t[8], &t[9],
                        &t[10], &c->conv, err);
}

static void describe_conv_bn_bwd(struct op_case *c, const int64_t *s) {
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

static enum status call_conv_bn_bwd(const struct ops *ops,
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

static void describe_maxpool(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, false);
    operand(c, "out", ROLE_OUT, out);
    operand(c, "argmax", ROLE_OUT, as_i32(out));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

static enum status call_maxpool(const struct ops *ops,
                                struct device *dev,
                                const struct tensor *t,
                                const struct op_case *c,
                                struct error *err) {
    return ops->maxpool(dev, &t[0], &t[1], &t[2], &c->pool, err);
}

static void describe_maxpool_bwd(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, false);
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, out);
    operand(c, "argmax", ROLE_IN, as_i32(out));
}

static enum status call_maxpool_bwd(const struct ops *ops,
                                    struct device *dev,
                                    const struct tensor *t,
                                    const struct op_case *c,
                                    struct error *err) {
    return ops->maxpool_bwd(dev, &t[0], c->mode, &t[1], &t[2], &c->pool, err);
}

static void describe_avgpool(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, pool_parameters(c, s, true));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

static enum status call_avgpool(const struct ops *ops,
                                struct device *dev,
                                const struct tensor *t,
                                const struct op_case *c,
                                struct error *err) {
    return ops->avgpool(dev, &t[0], &t[1], &c->pool, err);
}

static void describe_avgpool_bwd(struct op_case *c, const int64_t *s) {
    const struct tensor out = pool_parameters(c, s, true);
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, out);
}

static enum status call_avgpool_bwd(const struct ops *ops,
                                    struct device *dev,
                                    const struct tensor *t,
                                    const struct op_case *c,
                                    struct error *err) {
    return ops->avgpool_bwd(dev, &t[0], c->mode, &t[1], &c->pool, err);
}

static void describe_global_avgpool(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[3]));
    operand(c, "in", ROLE_IN, v4(c, s[0], s[1], s[2], s[3]));
}

static enum status call_global_avgpool(const struct ops *ops,
                                       struct device *dev,
                                       const struct tensor *t,
                                       const struct op_case *c,
                                       struct error *err) {
    (void)c;
    return ops->global_avgpool(dev, &t[0], &t[1], err);
}

static void describe_global_avgpool_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "din", "in", v4(c, s[0], s[1], s[2], s[3]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[3]));
}

static enum status call_global_avgpool_bwd(const struct ops *ops,
                                           struct device *dev,
                                           const struct tensor *t,
                                           const struct op_case *c,
                                           struct error *err) {
    return ops->global_avgpool_bwd(dev, &t[0], c->mode, &t[1], err);
}

/* ---- linear: sizes m, in, out; matmul: m, n, k ---- */

static void describe_linear(struct op_case *c, const int64_t *s) {
    c->flops = 2.0 * (double)(s[0] * s[1] * s[2]);
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "pre", ROLE_OUT,
            c->act == ACTIVATION_GELU ? v2(c, s[0], s[2]) : (struct tensor){.dtype = c->real});
    operand(c, "in", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "weight", ROLE_IN, v2(c, s[2], s[1]));
    maybe(c, "bias", ROLE_IN, p1(c, s[2]), OP_PLAIN);
}

static enum status call_linear(const struct ops *ops,
                               struct device *dev,
                               const struct tensor *t,
                               const struct op_case *c,
                               struct error *err) {
    return ops->linear(dev, &t[0], &t[1], &t[2], &t[3], &t[4], c->act, err);
}

static void describe_linear_bwd(struct op_case *c, const int64_t *s) {
    const struct tensor none = {.dtype = c->real};
    const struct tensor out = v2(c, s[0], s[2]);
    const bool gelu = c->act == ACTIVATION_GELU;
    c->flops = ((c->flags & OP_UNWANTED) != 0 ? 2.0 : 4.0) * (double)(s[0] * s[1] * s[2]);
    maybe_gradient(c, "din", "in", v2(c, s[0], s[1]), OP_UNWANTED);
    gradient(c, "dweight", "weight", as_param(c, v2(c, s[2], s[1])));
    maybe_gradient(c, "dbias", "bias", p1(c, s[2]), OP_UNWANTED | OP_PLAIN);
    operand(c, "dpre", ROLE_SCRATCH, gelu ? out : none);
    operand(c, "dout", ROLE_IN, out);
    operand(c, "in", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "weight", ROLE_IN, v2(c, s[2], s[1]));
    operand(c, "pre", ROLE_IN, gelu ? out : none);
}

static enum status call_linear_bwd(const struct ops *ops,
                                   struct device *dev,
                                   const struct tensor *t,
                                   const struct op_case *c,
                                   struct error *err) {
    return ops->linear_bwd(dev, &t[0], c->mode, &t[1], &t[2], c->mode, &t[3], &t[4], &t[5], &t[6],
                           &t[7], c->act, err);
}

static void describe_matmul(struct op_case *c, const int64_t *s) {
    const bool ta = (c->flags & OP_TRANSPOSE_A) != 0;
    const bool tb = (c->flags & OP_TRANSPOSE_B) != 0;
    c->flops = 2.0 * (double)(s[0] * s[1] * s[2]);
    const bool wide = (c->flags & OP_ALT) == 0; /* a narrow type's result in f32 */
    const struct tensor out = v2(c, s[0], s[1]);
    operand(c, "out", c->mode == WRITE_ADD ? ROLE_BOTH : ROLE_OUT, wide ? as_param(c, out) : out);
    operand(c, "a", ROLE_IN, ta ? v2(c, s[2], s[0]) : v2(c, s[0], s[2]));
    operand(c, "b", ROLE_IN, tb ? v2(c, s[1], s[2]) : v2(c, s[2], s[1]));
}

static enum status call_matmul(const struct ops *ops,
                               struct device *dev,
                               const struct tensor *t,
                               const struct op_case *c,
                               struct error *err) {
    return ops->matmul(dev, &t[0], c->mode, &t[1], (c->flags & OP_TRANSPOSE_A) != 0, &t[2],
                       (c->flags & OP_TRANSPOSE_B) != 0, 0.75f, err);
}

/* ---- text: embedding n, t, d, vocabulary, positions; layernorm m, d; attention n, t, heads, dh;
 * dropout and segment_mean n, t, d ---- */

static void describe_embedding(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0] * s[1], s[2]));
    integers(c, "tokens", CONTENT_INDEX, s[3], tensor_1d(NULL, DTYPE_I32, s[0] * s[1]));
    segment_operands(c, s[0], s[1]);
    operand(c, "table", ROLE_IN, v2(c, s[3], s[2]));
    operand(c, "positions", ROLE_IN, v2(c, s[4], s[2]));
}

static enum status call_embedding(const struct ops *ops,
                                  struct device *dev,
                                  const struct tensor *t,
                                  const struct op_case *c,
                                  struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    (void)c;
    return ops->embedding(dev, &t[0], &t[1], &seg, &t[4], &t[5], err);
}

static void describe_embedding_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "dtable", "table", as_param(c, v2(c, s[3], s[2])));
    gradient(c, "dpositions", "positions", as_param(c, v2(c, s[4], s[2])));
    operand(c, "dout", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    integers(c, "tokens", CONTENT_INDEX, s[3], tensor_1d(NULL, DTYPE_I32, s[0] * s[1]));
    segment_operands(c, s[0], s[1]);
}

static enum status call_embedding_bwd(const struct ops *ops,
                                      struct device *dev,
                                      const struct tensor *t,
                                      const struct op_case *c,
                                      struct error *err) {
    const struct segments seg = {&t[4], &t[5]};
    return ops->embedding_bwd(dev, &t[0], &t[1], c->mode, &t[2], &t[3], &seg, err);
}

static void describe_layernorm(struct op_case *c, const int64_t *s) {
    enum { A = 4 };
    const bool alias = (c->flags & OP_ALIAS) != 0;
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[1]));
    operand(c, "sum", alias ? ROLE_BOTH : ROLE_OUT, v2(c, s[0], s[1]))->alias = alias ? A : -1;
    operand(c, "mean", ROLE_OUT, p1(c, s[0]));
    operand(c, "rstd", ROLE_OUT, p1(c, s[0]));
    operand(c, "a", alias ? ROLE_BOTH : ROLE_IN, v2(c, s[0], s[1]));
    maybe(c, "b", ROLE_IN, v2(c, s[0], s[1]), OP_PLAIN);
    operand(c, "gamma", ROLE_IN, p1(c, s[1]));
    operand(c, "beta", ROLE_IN, p1(c, s[1]));
}

static enum status call_layernorm(const struct ops *ops,
                                  struct device *dev,
                                  const struct tensor *t,
                                  const struct op_case *c,
                                  struct error *err) {
    (void)c;
    return ops->layernorm(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], 1e-5f, err);
}

static void describe_layernorm_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "dsum", "a", v2(c, s[0], s[1]));
    gradient(c, "dgamma", "gamma", p1(c, s[1]));
    gradient(c, "dbeta", "beta", p1(c, s[1]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "sum", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "mean", ROLE_IN, p1(c, s[0]));
    operand(c, "rstd", ROLE_IN, p1(c, s[0]));
    operand(c, "gamma", ROLE_IN, p1(c, s[1]));
}

static enum status call_layernorm_bwd(const struct ops *ops,
                                      struct device *dev,
                                      const struct tensor *t,
                                      const struct op_case *c,
                                      struct error *err) {
    return ops->layernorm_bwd(dev, &t[0], c->mode, &t[1], &t[2], c->mode, &t[3], &t[4], &t[5],
                              &t[6], &t[7], err);
}

static void attention_operands(struct op_case *c, const int64_t *s, bool backward) {
    const int64_t width = s[2] * s[3];
    const int64_t rows = s[0] * s[1];
    c->attention =
        (struct attention_params){(int32_t)s[2], (c->flags & OP_DROP) != 0 ? &c->dropout : NULL};
    c->flops = (backward ? 8.0 : 4.0) * (double)(s[0] * s[1] * s[1] * width);
    if (backward) {
        operand(c, "dqkv", ROLE_OUT, v2(c, rows, 3 * width))->gradient_of = "qkv";
        operand(c, "dout", ROLE_IN, v2(c, rows, width))->by_caption = true;
    } else {
        operand(c, "out", ROLE_OUT, v2(c, rows, width));
    }
    operand(c, "probs", backward ? ROLE_IN : ROLE_OUT, v4(c, s[0], s[2], s[1], s[1]));
    operand(c, "qkv", ROLE_IN, v2(c, rows, 3 * width))->by_caption = true;
    segment_operands(c, s[0], s[1]);
}

static void describe_attention(struct op_case *c, const int64_t *s) {
    attention_operands(c, s, false);
}

static enum status call_attention(const struct ops *ops,
                                  struct device *dev,
                                  const struct tensor *t,
                                  const struct op_case *c,
                                  struct error *err) {
    const struct segments seg = {&t[3], &t[4]};
    return ops->attention(dev, &t[0], &t[1], &t[2], &seg, &c->attention, err);
}

static void describe_attention_bwd(struct op_case *c, const int64_t *s) {
    attention_operands(c, s, true);
}

static enum status call_attention_bwd(const struct ops *ops,
                                      struct device *dev,
                                      const struct tensor *t,
                                      const struct op_case *c,
                                      struct error *err) {
    const struct segments seg = {&t[4], &t[5]};
    return ops->attention_bwd(dev, &t[0], &t[1], &t[2], &t[3], &seg, &c->attention, err);
}

static void describe_dropout(struct op_case *c, const int64_t *s) {
    const bool alias = (c->flags & OP_ALIAS) != 0;
    operand(c, "out", alias ? ROLE_BOTH : ROLE_OUT, v2(c, s[0] * s[1], s[2]))->alias =
        alias ? 1 : -1;
    operand(c, "in", alias ? ROLE_BOTH : ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = !alias;
    segment_operands(c, s[0], s[1]);
}

static void describe_dropout_gradient(struct op_case *c, const int64_t *s) {
    operand(c, "din", ROLE_OUT, v2(c, s[0] * s[1], s[2]))->gradient_of = "in";
    operand(c, "dout", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    segment_operands(c, s[0], s[1]);
}

static enum status call_dropout(const struct ops *ops,
                                struct device *dev,
                                const struct tensor *t,
                                const struct op_case *c,
                                struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    return ops->dropout(dev, &t[0], &t[1], &seg, &c->dropout, err);
}

static void describe_segment_mean(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    segment_operands(c, s[0], s[1]);
}

static enum status call_segment_mean(const struct ops *ops,
                                     struct device *dev,
                                     const struct tensor *t,
                                     const struct op_case *c,
                                     struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    (void)c;
    return ops->segment_mean(dev, &t[0], &t[1], &seg, err);
}

static void describe_segment_mean_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "din", "in", v2(c, s[0] * s[1], s[2]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[2]));
    segment_operands(c, s[0], s[1]);
}

static enum status call_segment_mean_bwd(const struct ops *ops,
                                         struct device *dev,
                                         const struct tensor *t,
                                         const struct op_case *c,
                                         struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    return ops->segment_mean_bwd(dev, &t[0], c->mode, &t[1], &seg, err);
}

/* ---- rows n of m, d wide; vectors ---- */

static void describe_gather_rows(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[1], s[2]));
    integers(c, "rows", CONTENT_INDEX, s[1], tensor_1d(NULL, DTYPE_I32, s[0]));
}

static enum status call_gather_rows(const struct ops *ops,
                                    struct device *dev,
                                    const struct tensor *t,
                                    const struct op_case *c,
                                    struct error *err) {
    (void)c;
    return ops->gather_rows(dev, &t[0], &t[1], &t[2], err);
}

static void describe_scatter_rows(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_BOTH, v2(c, s[1], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[0], s[2]));
    integers(c, "rows", CONTENT_DISTINCT, s[1], tensor_1d(NULL, DTYPE_I32, s[0]));
}

static enum status call_scatter_rows(const struct ops *ops,
                                     struct device *dev,
                                     const struct tensor *t,
                                     const struct op_case *c,
                                     struct error *err) {
    return ops->scatter_rows(dev, &t[0], c->mode, &t[1], &t[2], err);
}

static void describe_l2_normalize(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, as_param(c, v2(c, s[0], s[1])));
    operand(c, "norm", ROLE_OUT, p1(c, s[0]));
    operand(c, "in", ROLE_IN, v2(c, s[0], s[1]));
}

static enum status call_l2_normalize(const struct ops *ops,
                                     struct device *dev,
                                     const struct tensor *t,
                                     const struct op_case *c,
                                     struct error *err) {
    (void)c;
    return ops->l2_normalize(dev, &t[0], &t[1], &t[2], err);
}

static void describe_l2_normalize_bwd(struct op_case *c, const int64_t *s) {
    operand(c, "din", ROLE_OUT, v2(c, s[0], s[1]))->gradient_of = "in";
    operand(c, "dout", ROLE_IN, as_param(c, v2(c, s[0], s[1])));
    operand(c, "out", ROLE_IN, as_param(c, v2(c, s[0], s[1])));
    operand(c, "norm", ROLE_IN, p1(c, s[0]));
}

static enum status call_l2_normalize_bwd(const struct ops *ops,
                                         struct device *dev,
                                         const struct tensor *t,
                                         const struct op_case *c,
                                         struct error *err) {
    (void)c;
    return ops->l2_normalize_bwd(dev, &t[0], &t[1], &t[2], &t[3], err);
}

static void describe_add(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_BOTH, v1(c, s[0]));
    operand(c, "in", ROLE_IN, v1(c, s[0]));
}

static enum status call_add(const struct ops *ops,
                            struct device *dev,
                            const struct tensor *t,
                            const struct op_case *c,
                            struct error *err) {
    (void)c;
    return ops->add(dev, &t[0], &t[1], -0.3f, err);
}

static void describe_sum_squares(struct op_case *c, const int64_t *s) {
    operand(c, "in", ROLE_IN, v1(c, s[0]));
    operand(c, "sum", ROLE_OUT, tensor_1d(NULL, DTYPE_F64, 1));
}

static enum status call_sum_squares(const struct ops *ops,
                                    struct device *dev,
                                    const struct tensor *t,
                                    const struct op_case *c,
                                    struct error *err) {
    (void)c;
    return ops->sum_squares(dev, t[1].data, &t[0], err);
}

static void update_operands(struct op_case *c, const int64_t *s) {
    operand(c, "value", ROLE_BOTH, p1(c, s[0]));
    maybe(c, "working", ROLE_OUT, tensor_1d(NULL, DTYPE_BF16, s[0]), OP_UNWANTED);
    operand(c, "grad", ROLE_IN, p1(c, s[0]));
    operand(c, "m", ROLE_BOTH, p1(c, s[0]));
}

static void describe_adamw(struct op_case *c, const int64_t *s) {
    c->adamw = (struct adamw_params){.lr = 1e-3f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.999f,
                                     .eps = 1e-8f,
                                     .weight_decay = 0.1f,
                                     .grad_scale = 0.5f,
                                     .step = s[1]};
    update_operands(c, s);
    operand(c, "v", ROLE_BOTH, p1(c, s[0]))->content = CONTENT_POSITIVE;
}

static enum status call_adamw(const struct ops *ops,
                              struct device *dev,
                              const struct tensor *t,
                              const struct op_case *c,
                              struct error *err) {
    return ops->adamw(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &c->adamw, err);
}

static void describe_sgdm(struct op_case *c, const int64_t *s) {
    c->sgdm = (struct sgdm_params){.lr = 0.1f,
                                   .momentum = 0.9f,
                                   .weight_decay = 0.01f,
                                   .grad_scale = 0.5f,
                                   .nesterov = (c->flags & OP_ALT) != 0};
    update_operands(c, s);
}

static enum status call_sgdm(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    return ops->sgdm(dev, &t[0], &t[1], &t[2], &t[3], &c->sgdm, err);
}

/* ---- the table ---- */

#define ROW(op)                                                                                    \
    .name = #op, .member = offsetof(struct ops, op), .describe = describe_##op, .call = call_##op
#define SIZES(n, ...)    .sizes_count = (n), .sizes = {__VA_ARGS__}
#define VARIANTS(n, ...) .variants_count = (n), .variants = {__VA_ARGS__}

#define CONV_SIZES                                                                                 \
    SIZES(12, {{2, 4, 5, 65, 9, 1, 1, 0}}, {{2, 2, 2, 64, 17, 3, 1, 1}},                           \
          {{1, 5, 3, 67, 8, 3, 2, 1}}, {{1, 1, 1, 1, 1, 1, 1, 0}}, {{2, 1, 1, 3, 5, 1, 1, 0}},     \
          {{2, 5, 7, 3, 17, 3, 2, 1}}, {{1, 8, 8, 16, 16, 3, 1, 1}}, {{3, 7, 5, 9, 33, 3, 1, 1}},  \
          {{2, 6, 9, 17, 8, 1, 2, 0}}, {{1, 9, 9, 3, 8, 7, 2, 3}}, {{2, 3, 2, 7, 1, 3, 3, 2}},     \
          {{3, 1, 4, 1, 31, 1, 1, 1}})
#define MAXPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 1, 1, 0}}, {{2, 7, 5, 3, 3, 2, 1}}, {{1, 8, 8, 16, 3, 2, 1}},           \
          {{3, 4, 6, 17, 2, 2, 0}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 0}})
#define AVGPOOL_SIZES                                                                              \
    SIZES(6, {{1, 1, 1, 1, 2, 2, 0}}, {{2, 7, 5, 3, 2, 2, 0}}, {{1, 8, 8, 16, 2, 2, 0}},           \
          {{3, 5, 6, 17, 3, 2, 1}}, {{2, 5, 5, 9, 3, 1, 1}}, {{1, 9, 4, 33, 2, 3, 1}})
#define PLANE_SIZES SIZES(4, {{1, 1, 1, 1}}, {{2, 3, 5, 7}}, {{3, 2, 2, 33}}, {{5, 4, 4, 16}})
#define PRODUCT_SIZES                                                                              \
    SIZES(6, {{1, 1, 1}}, {{1, 7, 3}}, {{17, 1, 33}}, {{33, 17, 1}}, {{16, 8, 32}}, {{19, 31, 23}})
#define EMBEDDING_SIZES                                                                            \
    SIZES(4, {{1, 1, 1, 1, 1}}, {{3, 5, 7, 4, 6}}, {{2, 9, 33, 11, 9}}, {{4, 8, 16, 3, 8}})
#define LAYERNORM_SIZES SIZES(5, {{1, 2}}, {{1, 33}}, {{7, 5}}, {{19, 16}}, {{35, 31}})
#define ATTENTION_SIZES                                                                            \
    SIZES(7, {{1, 1, 1, 1}}, {{2, 3, 1, 5}}, {{3, 7, 3, 4}}, {{2, 16, 2, 16}}, {{1, 17, 1, 33}},   \
          {{5, 2, 4, 1}}, {{1, 70, 2, 3}})
#define DROPOUT_SIZES SIZES(5, {{1, 1, 1}}, {{3, 1, 7}}, {{2, 5, 9}}, {{4, 8, 16}}, {{2, 31, 37}})
#define L2_SIZES      SIZES(5, {{1, 1}}, {{1, 2}}, {{3, 7}}, {{5, 33}}, {{16, 16}})
#define FLAT_SIZES    SIZES(5, {{1, 1}}, {{7, 2}}, {{16, 10}}, {{1001, 1000}}, {{40007, 3}})

const struct op_row op_rows[] = {
    {ROW(fill), .tolerance_f32 = 0, .tolerance_bf16 = 0, .any_shape = true, FLAT_SIZES,
     VARIANTS(1, 0)},
    {ROW(cast), .tolerance_f32 = 0, .tolerance_bf16 = 0, FLAT_SIZES, VARIANTS(2, 0, OP_ALT)},
    {ROW(normalize_u8), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, PLANE_SIZES, VARIANTS(1, 0)},
    {ROW(conv_bn), .tolerance_f32 = 1e-5, .tolerance_bf16 = 4e-3, CONV_SIZES,
     VARIANTS(7,
              0,
              OP_ACT,
              OP_PLAIN,
              OP_PLAIN | OP_ACT,
              OP_EVAL | OP_ACT,
              OP_EVAL | OP_PLAIN,
              OP_UNWANTED | OP_ACT)},
    {ROW(conv_bn_bwd), .forward = "conv_bn", .tolerance_f32 = 2e-5, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, CONV_SIZES,
     VARIANTS(8,
              0,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_PLAIN | OP_ACT,
              OP_PLAIN | OP_ADD,
              OP_ALIAS | OP_ACT,
              OP_UNWANTED | OP_ACT,
              OP_UNWANTED | OP_ACT | OP_ADD)},
    {ROW(maxpool), .tolerance_f32 = 0, .tolerance_bf16 = 0, MAXPOOL_SIZES, VARIANTS(1, 0)},
    {ROW(maxpool_bwd), .forward = "maxpool", .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, MAXPOOL_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(avgpool), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, AVGPOOL_SIZES, VARIANTS(1, 0)},
    {ROW(avgpool_bwd), .forward = "avgpool", .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, AVGPOOL_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(global_avgpool), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, PLANE_SIZES,
     VARIANTS(1, 0)},
    {ROW(global_avgpool_bwd), .forward = "global_avgpool", .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, PLANE_SIZES, VARIANTS(2, 0, OP_ADD)},
    {ROW(linear), .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3, PRODUCT_SIZES,
     VARIANTS(4, 0, OP_PLAIN, OP_ACT, OP_ACT | OP_PLAIN)},
    {ROW(linear_bwd), .forward = "linear", .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, PRODUCT_SIZES,
     VARIANTS(8,
              0,
              OP_ADD,
              OP_PLAIN,
              OP_ACT,
              OP_ACT | OP_ADD,
              OP_ACT | OP_PLAIN | OP_ADD,
              OP_UNWANTED,
              OP_UNWANTED | OP_ACT | OP_ADD)},
    {ROW(matmul), .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3, PRODUCT_SIZES,
     VARIANTS(6,
              0,
              OP_ADD,
              OP_TRANSPOSE_A,
              OP_TRANSPOSE_B | OP_ADD,
              OP_TRANSPOSE_A | OP_TRANSPOSE_B,
              OP_ALT | OP_TRANSPOSE_B)},
    {ROW(embedding), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, EMBEDDING_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(embedding_bwd), .forward = "embedding", .tolerance_f32 = 2e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, EMBEDDING_SIZES, VARIANTS(3, 0, OP_ADD, OP_PACKED)},
    {ROW(layernorm), .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3, LAYERNORM_SIZES,
     VARIANTS(4, 0, OP_PLAIN, OP_ALIAS, OP_ALIAS | OP_PLAIN)},
    {ROW(layernorm_bwd), .forward = "layernorm", .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, LAYERNORM_SIZES, VARIANTS(3, 0, OP_ADD, OP_PLAIN)},
    {ROW(attention), .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3, ATTENTION_SIZES,
     VARIANTS(3, 0, OP_DROP, OP_DROP | OP_PACKED)},
    {ROW(attention_bwd), .forward = "attention", .tolerance_f32 = 5e-6, .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6, ATTENTION_SIZES, VARIANTS(3, 0, OP_DROP, OP_DROP | OP_PACKED)},
    {ROW(dropout), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ALIAS, OP_PACKED)},
    {.name = "dropout (gradient)",
     .member = offsetof(struct ops, dropout),
     .forward = "dropout",
     .describe = describe_dropout_gradient,
     .call = call_dropout,
     .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3,
     .tolerance_f64 = 1e-6,
     DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(segment_mean), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, DROPOUT_SIZES,
     VARIANTS(2, 0, OP_PACKED)},
    {ROW(segment_mean_bwd), .forward = "segment_mean", .tolerance_f32 = 1e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, DROPOUT_SIZES,
     VARIANTS(3, 0, OP_ADD, OP_PACKED)},
    {ROW(gather_rows), .tolerance_f32 = 0, .tolerance_bf16 = 0,
     SIZES(4, {{1, 1, 1}}, {{5, 3, 7}}, {{9, 31, 33}}, {{16, 16, 16}}), VARIANTS(1, 0)},
    {ROW(scatter_rows), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3,
     SIZES(4, {{1, 1, 1}}, {{3, 5, 7}}, {{9, 31, 33}}, {{16, 16, 16}}), VARIANTS(2, 0, OP_ADD)},
    {ROW(l2_normalize), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, L2_SIZES, VARIANTS(1, 0)},
    {ROW(l2_normalize_bwd), .forward = "l2_normalize", .tolerance_f32 = 2e-6,
     .tolerance_bf16 = 4e-3, .tolerance_f64 = 1e-6, L2_SIZES, VARIANTS(1, 0)},
    {ROW(add), .tolerance_f32 = 1e-6, .tolerance_bf16 = 4e-3, FLAT_SIZES, VARIANTS(1, 0)},
    {ROW(sum_squares), .tolerance_f32 = 1e-12, .tolerance_bf16 = 1e-12, .any_shape = true,
     FLAT_SIZES, VARIANTS(1, 0)},
    {ROW(adamw), .tolerance_f32 = 2e-6, .tolerance_bf16 = 1e-4, FLAT_SIZES,
     VARIANTS(2, 0, OP_UNWANTED)},
    {ROW(sgdm), .tolerance_f32 = 2e-6, .tolerance_bf16 = 1e-4, FLAT_SIZES,
     VARIANTS(3, 0, OP_UNWANTED, OP_ALT)},
};
const int op_rows_count = (int)(sizeof op_rows / sizeof op_rows[0]);
