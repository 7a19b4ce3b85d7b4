/*
 * op_rows: the table. Sizes include edge cases: one, odd numbers, and numbers next to vector
 * widths.
 */
#include "kernels/op_cases/op_rows.h"

#include <string.h>

#include "formats/base/image_norm.h"

/* ---- operands that differ from their table ---- */

static struct op_operand *find(struct op_case *c, const char *name) {
    return &c->operands[op_operand_find(c, name)];
}

static bool has(const struct op_case *c, unsigned flags) {
    return (c->flags & flags) != 0;
}

static void omit(struct op_case *c, unsigned flags, const char *name) {
    if (has(c, flags)) {
        find(c, name)->shape.ndim = 0;
    }
}

/* The operand shares the memory of another, which is then written. */
static void alias(struct op_case *c, const char *name, const char *other) {
    if (has(c, OP_ALIAS)) {
        find(c, name)->alias = op_operand_find(c, other);
        find(c, name)->role = ROLE_BOTH;
        find(c, other)->role = ROLE_BOTH;
        find(c, other)->by_caption = false;
    }
}

static struct dropout_params dropout_of(const struct op_case *c) {
    return (struct dropout_params){.p = 0.3f, .seed = 5, .layer = 2};
}

static void describe_fill(struct op_case *c, const int64_t *s) {
    c->args.fill.value = 1.25;
    op_add_operands(c);
}

static void describe_cast(struct op_case *c, const int64_t *s) {
    op_add_operands(c);
    find(c, "out")->shape.dtype = has(c, OP_ALT) ? DTYPE_F32 : DTYPE_BF16;
    find(c, "in")->shape.dtype = has(c, OP_ALT) ? DTYPE_BF16 : DTYPE_F32;
}

static void describe_normalize_u8(struct op_case *c, const int64_t *s) {
    c->sizes['P'] = s[1] / s[3];
    c->sizes['Q'] = s[2] / s[3];
    c->sizes['C'] = 3 * s[3] * s[3];
    c->args.normalize_u8.norm = &IMAGE_NORMS[IMAGE_NORM_IMAGENET];
    c->args.normalize_u8.patch = (int32_t)s[3];
    op_add_operands(c);
}

/* ---- sizes n, h, w, in, out, kernel, stride, pad ---- */

static struct conv_params conv_of(struct op_case *c, const int64_t *s) {
    c->sizes['L'] = s[5];
    c->sizes['P'] = conv_out_size(s[1], s[5], s[6], s[7]);
    c->sizes['Q'] = conv_out_size(s[2], s[5], s[6], s[7]);
    return (struct conv_params){.stride = (int32_t)s[6],
                                .pad = (int32_t)s[7],
                                .act = has(c, OP_ACT) ? ACTIVATION_RELU : ACTIVATION_NONE};
}

static void describe_conv_bn(struct op_case *c, const int64_t *s) {
    static const char *const running[] = {"running_mean", "running_var"};
    c->args.conv_bn = (struct conv_bn){
        .conv = conv_of(c, s), .training = !has(c, OP_EVAL), .eps = 1e-5f, .momentum = 0.1f};
    op_add_operands(c);
    for (int i = 0; i < 2; i++) {
        find(c, running[i])->role = has(c, OP_EVAL) ? ROLE_IN : ROLE_BOTH;
        find(c, running[i])->optional = false; /* only together */
        omit(c, OP_OMIT, running[i]);
    }
    find(c, "running_var")->content = CONTENT_POSITIVE;
    omit(c, OP_PLAIN, "residual");
}

static void describe_conv_bn_bwd(struct op_case *c, const int64_t *s) {
    c->args.conv_bn_bwd.conv = conv_of(c, s);
    op_add_operands(c);
    omit(c, OP_OMIT, "din");
    omit(c, OP_OMIT | OP_PLAIN, "dresidual");
    find(c, "out")->optional = find(c, "beta")->optional = false; /* one of the two */
    find(c, has(c, OP_PLAIN) ? "out" : "beta")->shape.ndim = 0;   /* no beta with a residual */
    alias(c, "dresidual", "dout");
}

/* Groups: the smallest divisor above 1; with OP_ALT none, and no operand of a norm. */
static int32_t groups_of(struct op_case *c) {
    int64_t groups = c->sizes['O'] > 1 ? 2 : 1;
    while (c->sizes['O'] % groups != 0) {
        groups++;
    }
    c->sizes['G'] = groups;
    return has(c, OP_ALT) ? 0 : (int32_t)groups;
}

static void
with_groups(struct op_case *c, int32_t groups, const char *const *names, int names_count) {
    for (int i = 0; i < names_count; i++) {
        find(c, names[i])->optional = false; /* only together */
        if (groups == 0) {
            find(c, names[i])->shape.ndim = 0;
        }
    }
}

static void describe_conv_gn(struct op_case *c, const int64_t *s) {
    static const char *const norm[] = {"pre", "mean", "rstd", "gamma", "beta"};
    c->args.conv_gn = (struct conv_gn){.conv = conv_of(c, s), .groups = groups_of(c), .eps = 1e-5f};
    op_add_operands(c);
    with_groups(c, c->args.conv_gn.groups, norm, 5);
    omit(c, OP_PLAIN, "residual");
}

static void describe_conv_gn_bwd(struct op_case *c, const int64_t *s) {
    static const char *const norm[] = {"pre", "mean", "rstd", "gamma", "dgamma", "dbeta"};
    c->args.conv_gn_bwd.conv = conv_of(c, s);
    c->args.conv_gn_bwd.groups = groups_of(c);
    op_add_operands(c);
    with_groups(c, c->args.conv_gn_bwd.groups, norm, 6);
    omit(c, OP_OMIT, "din");
    omit(c, OP_OMIT | OP_PLAIN, "dresidual");
    alias(c, "dresidual", "dout");
}

/* ---- sizes n, h, w, c, kernel, stride, pad ---- */

static struct pool_params pool_of(struct op_case *c, const int64_t *s, bool is_maxpool) {
    int64_t (*size_of)(int64_t, int64_t, int64_t, int64_t) =
        is_maxpool ? conv_out_size : avgpool_out_size;
    c->sizes['P'] = size_of(s[1], s[4], s[5], s[6]);
    c->sizes['Q'] = size_of(s[2], s[4], s[5], s[6]);
    return (struct pool_params){(int32_t)s[4], (int32_t)s[5], (int32_t)s[6]};
}

#define DESCRIBE_POOL(op, is_maxpool)                                                              \
    static void describe_##op(struct op_case *c, const int64_t *s) {                               \
        c->args.op.pool = pool_of(c, s, is_maxpool);                                               \
        op_add_operands(c);                                                                        \
    }
DESCRIBE_POOL(maxpool, true)
DESCRIBE_POOL(maxpool_bwd, true)
DESCRIBE_POOL(avgpool, false)
DESCRIBE_POOL(avgpool_bwd, false)

/* ---- linear: sizes m, in, out; matmul: m, n, k ---- */

static enum activation gelu_of(const struct op_case *c) {
    return has(c, OP_ALT)     ? ACTIVATION_QUICK_GELU
           : has(c, OP_THIRD) ? ACTIVATION_TANH_GELU
                              : ACTIVATION_GELU;
}

/* Required with GELU, omitted without. */
static void with_gelu(struct op_case *c, const char *name) {
    find(c, name)->optional = false;
    if (!has(c, OP_ACT)) {
        find(c, name)->shape.ndim = 0;
    }
}

static void describe_linear(struct op_case *c, const int64_t *s) {
    c->args.linear.act = has(c, OP_ACT) ? gelu_of(c) : ACTIVATION_NONE;
    op_add_operands(c);
    with_gelu(c, "pre");
    omit(c, OP_PLAIN, "bias");
}

static void describe_gelu(struct op_case *c, const int64_t *s) {
    c->args.gelu.act = gelu_of(c);
    op_add_operands(c);
}

static void describe_linear_bwd(struct op_case *c, const int64_t *s) {
    c->args.linear_bwd.act = has(c, OP_ACT) ? gelu_of(c) : ACTIVATION_NONE;
    op_add_operands(c);
    with_gelu(c, "pre");
    with_gelu(c, "dpre");
    omit(c, OP_OMIT, "din");
    omit(c, OP_OMIT | OP_PLAIN, "dbias");
}

static void describe_matmul(struct op_case *c, const int64_t *s) {
    const bool ta = has(c, OP_TRANSPOSE_A);
    const bool tb = has(c, OP_TRANSPOSE_B);
    c->sizes['A'] = ta ? s[2] : s[0];
    c->sizes['B'] = ta ? s[0] : s[2];
    c->sizes['C'] = tb ? s[1] : s[2];
    c->sizes['D'] = tb ? s[2] : s[1];
    c->args.matmul = (struct matmul){.transpose_a = ta, .transpose_b = tb, .alpha = 0.75f};
    op_add_operands(c);
    find(c, "out")->shape.dtype = has(c, OP_ALT) ? c->real : param_dtype(c->real);
}

/* ---- text: n captions in n t rows ---- */

static void describe_captions(struct op_case *c, const int64_t *s) {
    c->sizes['R'] = s[0] * s[1];
    op_add_operands(c);
}

static void describe_embedding_bwd(struct op_case *c, const int64_t *s) {
    describe_captions(c, s);
    find(c, "dtable")->optional = false; /* only together */
    find(c, "tokens")->optional = false;
    omit(c, OP_OMIT, "dtable");
    omit(c, OP_OMIT, "tokens");
}

static void describe_layernorm(struct op_case *c, const int64_t *s) {
    c->args.layernorm.eps = 1e-5f;
    op_add_operands(c);
    omit(c, OP_PLAIN, "b");
    alias(c, "sum", "a");
}

static void describe_layernorm_bwd(struct op_case *c, const int64_t *s) {
    op_add_operands(c);
    find(c, "dsum")->gradient_of = "a";
}

/* Sizes n, t, heads, width of a head. */
static void add_attention_operands(struct op_case *c, const int64_t *s) {
    c->sizes['R'] = s[0] * s[1];
    c->sizes['D'] = s[2] * s[3];
    op_add_operands(c);
    if (!has(c, OP_DROP)) {
        find(c, "values")->shape.ndim = 0;
        find(c, "sample_ids")->shape.ndim = 0;
    }
}

static void describe_attention(struct op_case *c, const int64_t *s) {
    c->args.attention.heads = (int32_t)s[2];
    c->args.attention.causal = has(c, OP_ALT);
    c->args.attention.dropout = has(c, OP_DROP) ? dropout_of(c) : (struct dropout_params){.p = 0};
    add_attention_operands(c, s);
}

static void describe_attention_bwd(struct op_case *c, const int64_t *s) {
    c->args.attention_bwd.heads = (int32_t)s[2];
    c->args.attention_bwd.causal = has(c, OP_ALT);
    c->args.attention_bwd.dropout =
        has(c, OP_DROP) ? dropout_of(c) : (struct dropout_params){.p = 0};
    add_attention_operands(c, s);
}

static void describe_dropout(struct op_case *c, const int64_t *s) {
    c->sizes['R'] = s[0] * s[1];
    c->args.dropout.dropout = dropout_of(c);
    op_add_operands(c);
    find(c, "starts")->optional = false; /* only together */
    find(c, "lengths")->optional = false;
    find(c, "values")->optional = false;
    find(c, "sample_ids")->optional = false;
    alias(c, "out", "in");
}

/* The same operator, seen as the backward pass of itself. */
static void describe_dropout_gradient(struct op_case *c, const int64_t *s) {
    describe_dropout(c, s);
    struct op_operand *din = find(c, "out");
    find(c, "in")->name = "dout";
    din->name = "din";
    din->gradient_of = "in";
}

/* ---- rows and vectors ---- */

static void describe_scatter_rows(struct op_case *c, const int64_t *s) {
    op_add_operands(c);
    find(c, "out")->role = ROLE_BOTH; /* other rows are unchanged */
    find(c, "rows")->content = CONTENT_DISTINCT;
}

static void describe_add(struct op_case *c, const int64_t *s) {
    c->args.add.alpha = -0.3f;
    op_add_operands(c);
}

/* Sums, and a hundredth of the norm to clip to. The values as plain numbers. */
static void describe_grad_scale(struct op_case *c, const int64_t *s) {
    c->args.grad_scale =
        (struct grad_scale){.count = (int32_t)s[0], .clip_norm = (double)s[1] * 0.01};
    op_add_operands(c);
    find(c, "values")->content = CONTENT_POSITIVE;
}

static void describe_adamw(struct op_case *c, const int64_t *s) {
    c->values.step = (uint64_t)s[1] - 1;
    c->args.adamw = (struct adamw){
        .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f, .lr_scale = 0.5f};
    op_add_operands(c);
    omit(c, OP_OMIT, "working");
    find(c, "v")->content = CONTENT_POSITIVE;
}

static void describe_sgdm(struct op_case *c, const int64_t *s) {
    c->values.lr = 0.1;
    c->args.sgdm =
        (struct sgdm){.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = has(c, OP_ALT)};
    op_add_operands(c);
    omit(c, OP_OMIT, "working");
}

static void describe_lars(struct op_case *c, const int64_t *s) {
    c->values.lr = 0.1;
    c->args.lars = (struct lars){.momentum = 0.9f, .weight_decay = 0.1f, .trust = 0.5f};
    op_add_operands(c);
    omit(c, OP_OMIT, "working");
}

/* ---- the table ---- */

#define ROW(op_, letters_) .name = #op_, .op = OP_##op_, .letters = letters_

const struct op_row op_rows[] = {
    {ROW(fill, "F"), .describe = describe_fill},
    {ROW(cast, "F"), .describe = describe_cast},
    {ROW(normalize_u8, "NHW"), .describe = describe_normalize_u8},
    {ROW(conv_bn, "NHWIOK"), .describe = describe_conv_bn},
    {ROW(conv_bn_bwd, "NHWIOK"), .describe = describe_conv_bn_bwd, .forward = "conv_bn"},
    {ROW(conv_gn, "NHWIOK"), .describe = describe_conv_gn},
    {ROW(conv_gn_bwd, "NHWIOK"), .describe = describe_conv_gn_bwd, .forward = "conv_gn"},
    {ROW(maxpool, "NHWC"), .describe = describe_maxpool},
    {ROW(maxpool_bwd, "NHWC"), .describe = describe_maxpool_bwd, .forward = "maxpool"},
    {ROW(avgpool, "NHWC"), .describe = describe_avgpool},
    {ROW(avgpool_bwd, "NHWC"), .describe = describe_avgpool_bwd, .forward = "avgpool"},
    {ROW(global_avgpool, "NHWC")},
    {ROW(global_avgpool_bwd, "NHWC"), .forward = "global_avgpool"},
    {ROW(linear, "MIO"), .describe = describe_linear},
    {ROW(gelu, "MO"), .describe = describe_gelu},
    {ROW(linear_bwd, "MIO"), .describe = describe_linear_bwd, .forward = "linear"},
    {ROW(matmul, "MN"), .describe = describe_matmul},
    {ROW(embedding, "NTDVP"), .describe = describe_captions},
    {ROW(embedding_bwd, "NTDVP"), .describe = describe_embedding_bwd, .forward = "embedding"},
    {ROW(layernorm, "MD"), .describe = describe_layernorm},
    {ROW(layernorm_bwd, "MD"), .describe = describe_layernorm_bwd, .forward = "layernorm"},
    {ROW(attention, "NTH"), .describe = describe_attention},
    {ROW(attention_bwd, "NTH"), .describe = describe_attention_bwd, .forward = "attention"},
    {ROW(dropout, "NTD"), .describe = describe_dropout},
    {.name = "dropout (gradient)",
     .op = OP_dropout,
     .letters = "NTD",
     .forward = "dropout",
     .describe = describe_dropout_gradient},
    {ROW(segment_mean, "NTD"), .describe = describe_captions},
    {ROW(segment_mean_bwd, "NTD"), .describe = describe_captions, .forward = "segment_mean"},
    {ROW(gather_rows, "NMD")},
    {ROW(scatter_rows, "NMD"), .describe = describe_scatter_rows},
    {ROW(l2_normalize, "ND")},
    {ROW(l2_normalize_bwd, "ND"), .forward = "l2_normalize"},
    {ROW(add, "F"), .describe = describe_add},
    {ROW(sum_squares, "F")},
    {ROW(grad_scale, ""), .describe = describe_grad_scale},
    {ROW(adamw, "F"), .describe = describe_adamw},
    {ROW(sgdm, "F"), .describe = describe_sgdm},
    {ROW(lars, "F"), .describe = describe_lars},
};
const int op_rows_count = (int)(sizeof op_rows / sizeof op_rows[0]);
