/*
 * rows_text: products and what knows captions.
 */
#include "kernels/rows/rows_internal.h"

/* ---- linear: sizes m, in, out; matmul: m, n, k ---- */

void describe_linear(struct op_case *c, const int64_t *s) {
    c->flops = 2.0 * (double)(s[0] * s[1] * s[2]);
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "pre", ROLE_OUT,
            c->act == ACTIVATION_GELU ? v2(c, s[0], s[2]) : (struct tensor){.dtype = c->real});
    operand(c, "in", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "weight", ROLE_IN, v2(c, s[2], s[1]));
    maybe(c, "bias", ROLE_IN, p1(c, s[2]), OP_PLAIN);
}

enum status call_linear(const struct ops *ops,
                        struct device *dev,
                        const struct tensor *t,
                        const struct op_case *c,
                        struct error *err) {
    return ops->linear(dev, &t[0], &t[1], &t[2], &t[3], &t[4], c->act, err);
}

void describe_linear_bwd(struct op_case *c, const int64_t *s) {
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

enum status call_linear_bwd(const struct ops *ops,
                            struct device *dev,
                            const struct tensor *t,
                            const struct op_case *c,
                            struct error *err) {
    return ops->linear_bwd(dev, &t[0], c->mode, &t[1], &t[2], c->mode, &t[3], &t[4], &t[5], &t[6],
                           &t[7], c->act, err);
}

void describe_matmul(struct op_case *c, const int64_t *s) {
    const bool ta = (c->flags & OP_TRANSPOSE_A) != 0;
    const bool tb = (c->flags & OP_TRANSPOSE_B) != 0;
    c->flops = 2.0 * (double)(s[0] * s[1] * s[2]);
    const bool wide = (c->flags & OP_ALT) == 0; /* a narrow type's result in f32 */
    const struct tensor out = v2(c, s[0], s[1]);
    operand(c, "out", c->mode == WRITE_ADD ? ROLE_BOTH : ROLE_OUT, wide ? as_param(c, out) : out);
    operand(c, "a", ROLE_IN, ta ? v2(c, s[2], s[0]) : v2(c, s[0], s[2]));
    operand(c, "b", ROLE_IN, tb ? v2(c, s[1], s[2]) : v2(c, s[2], s[1]));
}

enum status call_matmul(const struct ops *ops,
                        struct device *dev,
                        const struct tensor *t,
                        const struct op_case *c,
                        struct error *err) {
    return ops->matmul(dev, &t[0], c->mode, &t[1], (c->flags & OP_TRANSPOSE_A) != 0, &t[2],
                       (c->flags & OP_TRANSPOSE_B) != 0, 0.75f, err);
}

/* ---- text: embedding n, t, d, vocabulary, positions; layernorm m, d; attention n, t, heads, dh;
 * dropout and segment_mean n, t, d ---- */

void describe_embedding(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0] * s[1], s[2]));
    integers(c, "tokens", CONTENT_INDEX, s[3], tensor_1d(NULL, DTYPE_I32, s[0] * s[1]));
    segment_operands(c, s[0], s[1]);
    operand(c, "table", ROLE_IN, v2(c, s[3], s[2]));
    operand(c, "positions", ROLE_IN, v2(c, s[4], s[2]));
}

enum status call_embedding(const struct ops *ops,
                           struct device *dev,
                           const struct tensor *t,
                           const struct op_case *c,
                           struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    (void)c;
    return ops->embedding(dev, &t[0], &t[1], &seg, &t[4], &t[5], err);
}

void describe_embedding_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "dtable", "table", as_param(c, v2(c, s[3], s[2])));
    gradient(c, "dpositions", "positions", as_param(c, v2(c, s[4], s[2])));
    operand(c, "dout", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    integers(c, "tokens", CONTENT_INDEX, s[3], tensor_1d(NULL, DTYPE_I32, s[0] * s[1]));
    segment_operands(c, s[0], s[1]);
}

enum status call_embedding_bwd(const struct ops *ops,
                               struct device *dev,
                               const struct tensor *t,
                               const struct op_case *c,
                               struct error *err) {
    const struct segments seg = {&t[4], &t[5]};
    return ops->embedding_bwd(dev, &t[0], &t[1], c->mode, &t[2], &t[3], &seg, err);
}

void describe_layernorm(struct op_case *c, const int64_t *s) {
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

enum status call_layernorm(const struct ops *ops,
                           struct device *dev,
                           const struct tensor *t,
                           const struct op_case *c,
                           struct error *err) {
    (void)c;
    return ops->layernorm(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], 1e-5f, err);
}

void describe_layernorm_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "dsum", "a", v2(c, s[0], s[1]));
    gradient(c, "dgamma", "gamma", p1(c, s[1]));
    gradient(c, "dbeta", "beta", p1(c, s[1]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "sum", ROLE_IN, v2(c, s[0], s[1]));
    operand(c, "mean", ROLE_IN, p1(c, s[0]));
    operand(c, "rstd", ROLE_IN, p1(c, s[0]));
    operand(c, "gamma", ROLE_IN, p1(c, s[1]));
}

enum status call_layernorm_bwd(const struct ops *ops,
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

void describe_attention(struct op_case *c, const int64_t *s) {
    attention_operands(c, s, false);
}

enum status call_attention(const struct ops *ops,
                           struct device *dev,
                           const struct tensor *t,
                           const struct op_case *c,
                           struct error *err) {
    const struct segments seg = {&t[3], &t[4]};
    return ops->attention(dev, &t[0], &t[1], &t[2], &seg, &c->attention, err);
}

void describe_attention_bwd(struct op_case *c, const int64_t *s) {
    attention_operands(c, s, true);
}

enum status call_attention_bwd(const struct ops *ops,
                               struct device *dev,
                               const struct tensor *t,
                               const struct op_case *c,
                               struct error *err) {
    const struct segments seg = {&t[4], &t[5]};
    return ops->attention_bwd(dev, &t[0], &t[1], &t[2], &t[3], &seg, &c->attention, err);
}

void describe_dropout(struct op_case *c, const int64_t *s) {
    const bool alias = (c->flags & OP_ALIAS) != 0;
    operand(c, "out", alias ? ROLE_BOTH : ROLE_OUT, v2(c, s[0] * s[1], s[2]))->alias =
        alias ? 1 : -1;
    operand(c, "in", alias ? ROLE_BOTH : ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = !alias;
    segment_operands(c, s[0], s[1]);
}

void describe_dropout_gradient(struct op_case *c, const int64_t *s) {
    operand(c, "din", ROLE_OUT, v2(c, s[0] * s[1], s[2]))->gradient_of = "in";
    operand(c, "dout", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    segment_operands(c, s[0], s[1]);
}

enum status call_dropout(const struct ops *ops,
                         struct device *dev,
                         const struct tensor *t,
                         const struct op_case *c,
                         struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    return ops->dropout(dev, &t[0], &t[1], &seg, &c->dropout, err);
}

void describe_segment_mean(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[0] * s[1], s[2]))->by_caption = true;
    segment_operands(c, s[0], s[1]);
}

enum status call_segment_mean(const struct ops *ops,
                              struct device *dev,
                              const struct tensor *t,
                              const struct op_case *c,
                              struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    (void)c;
    return ops->segment_mean(dev, &t[0], &t[1], &seg, err);
}

void describe_segment_mean_bwd(struct op_case *c, const int64_t *s) {
    gradient(c, "din", "in", v2(c, s[0] * s[1], s[2]));
    operand(c, "dout", ROLE_IN, v2(c, s[0], s[2]));
    segment_operands(c, s[0], s[1]);
}

enum status call_segment_mean_bwd(const struct ops *ops,
                                  struct device *dev,
                                  const struct tensor *t,
                                  const struct op_case *c,
                                  struct error *err) {
    const struct segments seg = {&t[2], &t[3]};
    return ops->segment_mean_bwd(dev, &t[0], c->mode, &t[1], &seg, err);
}
