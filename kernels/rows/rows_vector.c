/*
 * rows_vector: rows, vectors and optimisers.
 */
#include "kernels/rows/rows_internal.h"

/* ---- rows n of m, d wide; vectors ---- */

void describe_gather_rows(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, v2(c, s[0], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[1], s[2]));
    integers(c, "rows", CONTENT_INDEX, s[1], tensor_1d(NULL, DTYPE_I32, s[0]));
}

enum status call_gather_rows(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    (void)c;
    return ops->gather_rows(dev, &t[0], &t[1], &t[2], err);
}

void describe_scatter_rows(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_BOTH, v2(c, s[1], s[2]));
    operand(c, "in", ROLE_IN, v2(c, s[0], s[2]));
    integers(c, "rows", CONTENT_DISTINCT, s[1], tensor_1d(NULL, DTYPE_I32, s[0]));
}

enum status call_scatter_rows(const struct ops *ops,
                              struct device *dev,
                              const struct tensor *t,
                              const struct op_case *c,
                              struct error *err) {
    return ops->scatter_rows(dev, &t[0], c->mode, &t[1], &t[2], err);
}

void describe_l2_normalize(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_OUT, as_param(c, v2(c, s[0], s[1])));
    operand(c, "norm", ROLE_OUT, p1(c, s[0]));
    operand(c, "in", ROLE_IN, v2(c, s[0], s[1]));
}

enum status call_l2_normalize(const struct ops *ops,
                              struct device *dev,
                              const struct tensor *t,
                              const struct op_case *c,
                              struct error *err) {
    (void)c;
    return ops->l2_normalize(dev, &t[0], &t[1], &t[2], err);
}

void describe_l2_normalize_bwd(struct op_case *c, const int64_t *s) {
    operand(c, "din", ROLE_OUT, v2(c, s[0], s[1]))->gradient_of = "in";
    operand(c, "dout", ROLE_IN, as_param(c, v2(c, s[0], s[1])));
    operand(c, "out", ROLE_IN, as_param(c, v2(c, s[0], s[1])));
    operand(c, "norm", ROLE_IN, p1(c, s[0]));
}

enum status call_l2_normalize_bwd(const struct ops *ops,
                                  struct device *dev,
                                  const struct tensor *t,
                                  const struct op_case *c,
                                  struct error *err) {
    (void)c;
    return ops->l2_normalize_bwd(dev, &t[0], &t[1], &t[2], &t[3], err);
}

void describe_add(struct op_case *c, const int64_t *s) {
    operand(c, "out", ROLE_BOTH, v1(c, s[0]));
    operand(c, "in", ROLE_IN, v1(c, s[0]));
}

enum status call_add(const struct ops *ops,
                     struct device *dev,
                     const struct tensor *t,
                     const struct op_case *c,
                     struct error *err) {
    (void)c;
    return ops->add(dev, &t[0], &t[1], -0.3f, err);
}

void describe_sum_squares(struct op_case *c, const int64_t *s) {
    operand(c, "in", ROLE_IN, v1(c, s[0]));
    operand(c, "sum", ROLE_OUT, tensor_1d(NULL, DTYPE_F64, 1))->plain = true;
}

enum status call_sum_squares(const struct ops *ops,
                             struct device *dev,
                             const struct tensor *t,
                             const struct op_case *c,
                             struct error *err) {
    (void)c;
    return ops->sum_squares(dev, t[1].data, &t[0], err);
}

/* The values as numbers, whatever they mean; all but the sums may be anything. */
void describe_grad_scale(struct op_case *c, const int64_t *s) {
    const int64_t numbers = (int64_t)(sizeof(struct step_values) / sizeof(double));
    struct op_operand *o = operand(c, "values", ROLE_BOTH, tensor_1d(NULL, DTYPE_F64, numbers));
    o->content = CONTENT_POSITIVE;
    o->plain = true;
    (void)s;
}

/* s: sums, and a hundredth of the norm to clip to. */
enum status call_grad_scale(const struct ops *ops,
                            struct device *dev,
                            const struct tensor *t,
                            const struct op_case *c,
                            struct error *err) {
    return ops->grad_scale(dev, t[0].data, (int32_t)c->size.v[0], (double)c->size.v[1] * 0.01, err);
}

static void update_operands(struct op_case *c, const int64_t *s) {
    operand(c, "value", ROLE_BOTH, p1(c, s[0]));
    maybe(c, "working", ROLE_OUT, tensor_1d(NULL, DTYPE_BF16, s[0]), OP_UNWANTED);
    operand(c, "grad", ROLE_IN, p1(c, s[0]));
    operand(c, "m", ROLE_BOTH, p1(c, s[0]));
}

void describe_adamw(struct op_case *c, const int64_t *s) {
    c->values.step = (uint64_t)s[1] - 1;
    c->adamw = (struct adamw_params){
        .values = &c->values, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
    update_operands(c, s);
    operand(c, "v", ROLE_BOTH, p1(c, s[0]))->content = CONTENT_POSITIVE;
}

enum status call_adamw(const struct ops *ops,
                       struct device *dev,
                       const struct tensor *t,
                       const struct op_case *c,
                       struct error *err) {
    return ops->adamw(dev, &t[0], &t[1], &t[2], &t[3], &t[4], &c->adamw, err);
}

void describe_sgdm(struct op_case *c, const int64_t *s) {
    c->values.lr = 0.1;
    c->sgdm = (struct sgdm_params){.values = &c->values,
                                   .momentum = 0.9f,
                                   .weight_decay = 0.01f,
                                   .nesterov = (c->flags & OP_ALT) != 0};
    update_operands(c, s);
}

enum status call_sgdm(const struct ops *ops,
                      struct device *dev,
                      const struct tensor *t,
                      const struct op_case *c,
                      struct error *err) {
    return ops->sgdm(dev, &t[0], &t[1], &t[2], &t[3], &c->sgdm, err);
}
