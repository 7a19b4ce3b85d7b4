/*
 * rows_internal: how describe_NAME of rows_*.c spells operands, and what op_rows.c makes its table
 * of. describe_NAME names the operands in the order of the call, call_NAME makes the call.
 */
#ifndef KERNELS_ROWS_ROWS_INTERNAL_H
#define KERNELS_ROWS_ROWS_INTERNAL_H

#include <stddef.h>

#include "kernels/check.h"
#include "kernels/rows/op_rows.h"

static inline struct op_operand *
operand(struct op_case *c, const char *name, enum op_role role, struct tensor shape) {
    struct op_operand *o = &c->operands[c->count++];
    *o = (struct op_operand){.name = name, .role = role, .alias = -1, .shape = shape};
    return o;
}

static inline void integers(struct op_case *c,
                            const char *name,
                            enum op_content content,
                            int64_t limit,
                            struct tensor shape) {
    struct op_operand *o = operand(c, name, ROLE_IN, shape);
    o->content = content;
    o->limit = (int32_t)limit;
}

/* An operand that a flag may take away. */
static inline struct op_operand *
maybe(struct op_case *c, const char *name, enum op_role role, struct tensor shape, unsigned flag) {
    struct op_operand *o = operand(c, name, role, shape);
    o->optional = true;
    if ((c->flags & flag) != 0) {
        o->shape = (struct tensor){.dtype = shape.dtype};
    }
    return o;
}

static inline struct op_operand *
gradient(struct op_case *c, const char *name, const char *of, struct tensor shape) {
    const bool add = c->mode == WRITE_ADD;
    struct op_operand *o = operand(c, name, add ? ROLE_BOTH : ROLE_OUT, shape);
    o->gradient_of = of;
    o->added = add;
    return o;
}

static inline struct op_operand *maybe_gradient(struct op_case *c,
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

static inline struct tensor v1(const struct op_case *c, int64_t a) {
    return tensor_1d(NULL, c->real, a);
}

static inline struct tensor v2(const struct op_case *c, int64_t a, int64_t b) {
    return tensor_2d(NULL, c->real, a, b);
}

static inline struct tensor
v4(const struct op_case *c, int64_t a, int64_t b, int64_t d, int64_t e) {
    return tensor_4d(NULL, c->real, a, b, d, e);
}

/* Parameters' vectors and gradients: f32 in a bf16 call. */
static inline struct tensor as_param(const struct op_case *c, struct tensor t) {
    t.dtype = param_dtype(c->real);
    return t;
}

static inline struct tensor p1(const struct op_case *c, int64_t a) {
    return as_param(c, v1(c, a));
}

/* Two operands: starts and lengths of n captions of up to t tokens in n t rows. */
static inline void segment_operands(struct op_case *c, int64_t n, int64_t t) {
    integers(c, "starts", CONTENT_START, t, tensor_1d(NULL, DTYPE_I32, n));
    integers(c, "lengths", CONTENT_LENGTH, t, tensor_1d(NULL, DTYPE_I32, n));
}

#define OP_DESCRIBE(name) void describe_##name(struct op_case *c, const int64_t *s)
#define OP_CALL(name)                                                                              \
    enum status call_##name(const struct ops *ops, struct device *dev, const struct tensor *t,     \
                            const struct op_case *c, struct error *err)

OP_DESCRIBE(fill);
OP_CALL(fill);
OP_DESCRIBE(cast);
OP_CALL(cast);
OP_DESCRIBE(normalize_u8);
OP_CALL(normalize_u8);
OP_DESCRIBE(conv_bn);
OP_CALL(conv_bn);
OP_DESCRIBE(conv_bn_bwd);
OP_CALL(conv_bn_bwd);
OP_DESCRIBE(maxpool);
OP_CALL(maxpool);
OP_DESCRIBE(maxpool_bwd);
OP_CALL(maxpool_bwd);
OP_DESCRIBE(avgpool);
OP_CALL(avgpool);
OP_DESCRIBE(avgpool_bwd);
OP_CALL(avgpool_bwd);
OP_DESCRIBE(global_avgpool);
OP_CALL(global_avgpool);
OP_DESCRIBE(global_avgpool_bwd);
OP_CALL(global_avgpool_bwd);
OP_DESCRIBE(linear);
OP_CALL(linear);
OP_DESCRIBE(linear_bwd);
OP_CALL(linear_bwd);
OP_DESCRIBE(matmul);
OP_CALL(matmul);
OP_DESCRIBE(embedding);
OP_CALL(embedding);
OP_DESCRIBE(embedding_bwd);
OP_CALL(embedding_bwd);
OP_DESCRIBE(layernorm);
OP_CALL(layernorm);
OP_DESCRIBE(layernorm_bwd);
OP_CALL(layernorm_bwd);
OP_DESCRIBE(attention);
OP_CALL(attention);
OP_DESCRIBE(attention_bwd);
OP_CALL(attention_bwd);
OP_DESCRIBE(dropout);
OP_CALL(dropout);
OP_DESCRIBE(dropout_gradient);
OP_DESCRIBE(segment_mean);
OP_CALL(segment_mean);
OP_DESCRIBE(segment_mean_bwd);
OP_CALL(segment_mean_bwd);
OP_DESCRIBE(gather_rows);
OP_CALL(gather_rows);
OP_DESCRIBE(scatter_rows);
OP_CALL(scatter_rows);
OP_DESCRIBE(l2_normalize);
OP_CALL(l2_normalize);
OP_DESCRIBE(l2_normalize_bwd);
OP_CALL(l2_normalize_bwd);
OP_DESCRIBE(add);
OP_CALL(add);
OP_DESCRIBE(sum_squares);
OP_CALL(sum_squares);
OP_DESCRIBE(grad_scale);
OP_CALL(grad_scale);
OP_DESCRIBE(adamw);
OP_CALL(adamw);
OP_DESCRIBE(sgdm);
OP_CALL(sgdm);

#endif
