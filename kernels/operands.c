/*
 * operands: the tables, in the order of ops.h. The operands of an operator are in the order of its
 * struct; its rules and FLOPs, if any, come before them.
 */
#include "kernels/operands.h"

#include "kernels/dropout_mask.h"

#define OPERANDS(op) static const struct operand op##_operands[]

/* A tensor; TENSOR_WITH: more fields of struct operand. */
#define TENSOR(op, field, role_, type_, shape_)                                                    \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct op, field), .role = ROLE_##role_,                \
        .type = TYPE_##type_, .shape = shape_                                                      \
    }
#define TENSOR_WITH(op, field, role_, type_, shape_, ...)                                          \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct op, field), .role = ROLE_##role_,                \
        .type = TYPE_##type_, .shape = shape_, __VA_ARGS__                                         \
    }
#define OPTIONAL        .optional = true
#define MODE(op, field) .mode_offset = offsetof(struct op, field)
#define BELOW(letter)   .below = letter
#define SPARSE          .is_sparse = true

/* Captions, none longer than the size of the letter. */
#define SEGMENTS(op, longest, is_optional)                                                         \
    {.name = "starts",                                                                             \
     .offset = offsetof(struct op, segments.starts),                                               \
     .type = TYPE_I32,                                                                             \
     .shape = "N",                                                                                 \
     .optional = is_optional},                                                                     \
    {                                                                                              \
        .name = "lengths", .offset = offsetof(struct op, segments.lengths), .type = TYPE_I32,      \
        .shape = "N", .optional = is_optional, .below = longest                                    \
    }
/* Dropout's memory; nothing is read where p is 0. */
#define DROPOUT(op)                                                                                \
    {.name = "values",                                                                             \
     .offset = offsetof(struct op, dropout.values),                                                \
     .type = TYPE_VALUES,                                                                          \
     .optional = true},                                                                            \
    {                                                                                              \
        .name = "sample_ids", .offset = offsetof(struct op, dropout.sample_ids), .type = TYPE_IDS, \
        .optional = true                                                                           \
    }

static double count(const struct tensor *t) {
    return (double)tensor_count(t);
}

/* ---- fill, cast, input ---- */

OPERANDS(fill) = {TENSOR(fill, out, OUT, REAL, "*")};

static enum status cast_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct cast *op = args;
    return op->in.dtype != op->out.dtype ? STATUS_OK
                                         : error_set(err, STATUS_INVALID, "cast: from %s to itself",
                                                     dtype_name(op->in.dtype));
}

OPERANDS(cast) = {
    TENSOR(cast, out, OUT, CAST, "*"),
    TENSOR(cast, in, IN, CAST, "*"),
};

static enum status normalize_u8_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct normalize_u8 *op = args;
    return op->norm != NULL ? STATUS_OK
                            : error_set(err, STATUS_INVALID, "normalize_u8: norm is missing");
}

OPERANDS(normalize_u8) = {
    TENSOR(normalize_u8, out, OUT, REAL, "NHW3"),
    TENSOR(normalize_u8, in, IN, U8, "NHW3"),
};

/* ---- conv_bn: in NHWI, weight OKLI, out NPQO ---- */

int64_t conv_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    return (in + 2 * pad - kernel) / stride + 1;
}

static enum status
planes_differ(const char *op, const int64_t *sizes, int64_t h, int64_t w, struct error *err) {
    return error_set(err, STATUS_INVALID, "%s: out has planes of %lld x %lld, expected %lld x %lld",
                     op, (long long)sizes['P'], (long long)sizes['Q'], (long long)h, (long long)w);
}

static enum status
conv_rules(const char *op, const struct conv_params *p, const int64_t *sizes, struct error *err) {
    if (p->stride < 1 || p->pad < 0 || sizes['K'] > sizes['H'] + 2 * p->pad ||
        sizes['L'] > sizes['W'] + 2 * p->pad) {
        return error_set(err, STATUS_INVALID,
                         "%s: stride %d, pad %d do not fit a %lld x %lld kernel", op, p->stride,
                         p->pad, (long long)sizes['K'], (long long)sizes['L']);
    }
    if (p->act != ACTIVATION_NONE && p->act != ACTIVATION_RELU) {
        return error_set(err, STATUS_INVALID, "%s: activation must be none or relu", op);
    }
    const int64_t h = conv_out_size(sizes['H'], sizes['K'], p->stride, p->pad);
    const int64_t w = conv_out_size(sizes['W'], sizes['L'], p->stride, p->pad);
    return sizes['P'] == h && sizes['Q'] == w ? STATUS_OK : planes_differ(op, sizes, h, w, err);
}

static enum status
group_rules(const char *op, const struct batch_norm_group *group, struct error *err) {
    if (group != NULL && (group->ranks_count < 1 || group->gather == NULL)) {
        return error_set(err, STATUS_INVALID, "%s: a group of %d ranks%s", op,
                         (int)group->ranks_count, group->gather == NULL ? " without gather" : "");
    }
    return STATUS_OK;
}

static enum status conv_bn_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_bn *op = args;
    const bool mean = tensor_present(&op->running_mean);
    const bool var = tensor_present(&op->running_var);
    if (mean != var || !(mean || op->training)) {
        return error_set(err, STATUS_INVALID,
                         "conv_bn: running_mean and running_var are given together, and omitted in "
                         "training alone");
    }
    if (!(op->eps > 0.0f)) {
        return error_set(err, STATUS_INVALID, "conv_bn: eps is %g", (double)op->eps);
    }
    TRY(group_rules("conv_bn", op->group, err));
    return conv_rules("conv_bn", &op->conv, sizes, err);
}

static enum status conv_bn_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_bn_bwd *op = args;
    TRY(group_rules("conv_bn_bwd", op->group, err));
    return conv_rules("conv_bn_bwd", &op->conv, sizes, err);
}

static double conv_flops(const struct tensor *pre, const struct tensor *weight) {
    return 2.0 * count(pre) * count(weight) / (double)weight->shape[0];
}

static double conv_bn_flops(const void *args) {
    const struct conv_bn *op = args;
    return conv_flops(&op->pre, &op->weight);
}

static double conv_bn_bwd_flops(const void *args) {
    const struct conv_bn_bwd *op = args;
    return (tensor_present(&op->din) ? 2.0 : 1.0) * conv_flops(&op->pre, &op->weight);
}

OPERANDS(conv_bn) = {
    TENSOR(conv_bn, out, OUT, REAL, "NPQO"),
    TENSOR(conv_bn, pre, OUT, REAL, "NPQO"),
    TENSOR(conv_bn, mean, OUT, PARAM, "O"),
    TENSOR(conv_bn, rstd, OUT, PARAM, "O"),
    TENSOR_WITH(conv_bn, running_mean, BOTH, PARAM, "O", OPTIONAL),
    TENSOR_WITH(conv_bn, running_var, BOTH, PARAM, "O", OPTIONAL),
    TENSOR(conv_bn, in, IN, REAL, "NHWI"),
    TENSOR(conv_bn, weight, IN, REAL, "OKLI"),
    TENSOR(conv_bn, gamma, IN, PARAM, "O"),
    TENSOR(conv_bn, beta, IN, PARAM, "O"),
    TENSOR_WITH(conv_bn, residual, IN, REAL, "NPQO", OPTIONAL),
};

OPERANDS(conv_bn_bwd) = {
    TENSOR_WITH(conv_bn_bwd, din, OUT, REAL, "NHWI", OPTIONAL, MODE(conv_bn_bwd, din_mode)),
    TENSOR_WITH(conv_bn_bwd,
                dresidual,
                OUT,
                REAL,
                "NPQO",
                OPTIONAL,
                MODE(conv_bn_bwd, dresidual_mode)),
    TENSOR_WITH(conv_bn_bwd, dweight, OUT, PARAM, "OKLI", MODE(conv_bn_bwd, param_mode)),
    TENSOR_WITH(conv_bn_bwd, dgamma, OUT, PARAM, "O", MODE(conv_bn_bwd, param_mode)),
    TENSOR_WITH(conv_bn_bwd, dbeta, OUT, PARAM, "O", MODE(conv_bn_bwd, param_mode)),
    TENSOR(conv_bn_bwd, dpre, SCRATCH, REAL, "NPQO"),
    TENSOR(conv_bn_bwd, dout, IN, REAL, "NPQO"),
    TENSOR(conv_bn_bwd, out, IN, REAL, "NPQO"),
    TENSOR(conv_bn_bwd, pre, IN, REAL, "NPQO"),
    TENSOR(conv_bn_bwd, mean, IN, PARAM, "O"),
    TENSOR(conv_bn_bwd, rstd, IN, PARAM, "O"),
    TENSOR(conv_bn_bwd, in, IN, REAL, "NHWI"),
    TENSOR(conv_bn_bwd, weight, IN, REAL, "OKLI"),
    TENSOR(conv_bn_bwd, gamma, IN, PARAM, "O"),
};

/* ---- conv_gn: as conv_bn, with statistics NG ---- */

/* What a norm has, and all of it, with groups alone. */
static enum status norm_rules(const char *op,
                              int32_t groups,
                              const struct tensor *const *with_groups,
                              int tensors_count,
                              const int64_t *sizes,
                              struct error *err) {
    for (int i = 0; i < tensors_count; i++) {
        if (tensor_present(with_groups[i]) != (groups > 0)) {
            return error_set(err, STATUS_INVALID,
                             "%s: %d groups; operands of a norm are given with groups alone, and "
                             "then all of them",
                             op, (int)groups);
        }
    }
    if (groups < 0 || (groups > 0 && (sizes['G'] != groups || sizes['O'] % groups != 0))) {
        return error_set(err, STATUS_INVALID, "%s: %d groups of %lld channels, statistics of %lld",
                         op, (int)groups, (long long)sizes['O'], (long long)sizes['G']);
    }
    return STATUS_OK;
}

static enum status conv_gn_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_gn *op = args;
    const struct tensor *const norm[] = {&op->pre, &op->mean, &op->rstd, &op->gamma, &op->beta};
    TRY(norm_rules("conv_gn", op->groups, norm, 5, sizes, err));
    if (!(op->eps > 0.0f)) {
        return error_set(err, STATUS_INVALID, "conv_gn: eps is %g", (double)op->eps);
    }
    return conv_rules("conv_gn", &op->conv, sizes, err);
}

static enum status conv_gn_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_gn_bwd *op = args;
    const struct tensor *const norm[] = {&op->pre,   &op->mean,   &op->rstd,
                                         &op->gamma, &op->dgamma, &op->dbeta};
    TRY(norm_rules("conv_gn_bwd", op->groups, norm, 6, sizes, err));
    return conv_rules("conv_gn_bwd", &op->conv, sizes, err);
}

static double conv_gn_flops(const void *args) {
    const struct conv_gn *op = args;
    return conv_flops(&op->out, &op->weight);
}

static double conv_gn_bwd_flops(const void *args) {
    const struct conv_gn_bwd *op = args;
    return (tensor_present(&op->din) ? 2.0 : 1.0) * conv_flops(&op->out, &op->weight);
}

OPERANDS(conv_gn) = {
    TENSOR(conv_gn, out, OUT, REAL, "NPQO"),
    TENSOR_WITH(conv_gn, pre, OUT, REAL, "NPQO", OPTIONAL),
    TENSOR_WITH(conv_gn, mean, OUT, PARAM, "NG", OPTIONAL),
    TENSOR_WITH(conv_gn, rstd, OUT, PARAM, "NG", OPTIONAL),
    TENSOR(conv_gn, in, IN, REAL, "NHWI"),
    TENSOR(conv_gn, weight, IN, REAL, "OKLI"),
    TENSOR_WITH(conv_gn, gamma, IN, PARAM, "O", OPTIONAL),
    TENSOR_WITH(conv_gn, beta, IN, PARAM, "O", OPTIONAL),
    TENSOR_WITH(conv_gn, residual, IN, REAL, "NPQO", OPTIONAL),
};

OPERANDS(conv_gn_bwd) = {
    TENSOR_WITH(conv_gn_bwd, din, OUT, REAL, "NHWI", OPTIONAL, MODE(conv_gn_bwd, din_mode)),
    TENSOR_WITH(conv_gn_bwd,
                dresidual,
                OUT,
                REAL,
                "NPQO",
                OPTIONAL,
                MODE(conv_gn_bwd, dresidual_mode)),
    TENSOR_WITH(conv_gn_bwd, dweight, OUT, PARAM, "OKLI", MODE(conv_gn_bwd, param_mode)),
    TENSOR_WITH(conv_gn_bwd, dgamma, OUT, PARAM, "O", OPTIONAL, MODE(conv_gn_bwd, param_mode)),
    TENSOR_WITH(conv_gn_bwd, dbeta, OUT, PARAM, "O", OPTIONAL, MODE(conv_gn_bwd, param_mode)),
    TENSOR(conv_gn_bwd, dpre, SCRATCH, REAL, "NPQO"),
    TENSOR(conv_gn_bwd, dout, IN, REAL, "NPQO"),
    TENSOR(conv_gn_bwd, out, IN, REAL, "NPQO"),
    TENSOR_WITH(conv_gn_bwd, pre, IN, REAL, "NPQO", OPTIONAL),
    TENSOR_WITH(conv_gn_bwd, mean, IN, PARAM, "NG", OPTIONAL),
    TENSOR_WITH(conv_gn_bwd, rstd, IN, PARAM, "NG", OPTIONAL),
    TENSOR(conv_gn_bwd, in, IN, REAL, "NHWI"),
    TENSOR(conv_gn_bwd, weight, IN, REAL, "OKLI"),
    TENSOR_WITH(conv_gn_bwd, gamma, IN, PARAM, "O", OPTIONAL),
};

/* ---- pools: in NHWC, out NPQC ---- */

int64_t avgpool_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    int64_t out = (in + 2 * pad - kernel + stride - 1) / stride + 1;
    /* A last window that started in the padding would have nothing to average. */
    return (out - 1) * stride >= in + pad ? out - 1 : out;
}

static enum status pool_rules(const char *op,
                              const struct pool_params *p,
                              bool is_maxpool,
                              const int64_t *sizes,
                              struct error *err) {
    const bool too_wide =
        p->kernel > sizes['H'] + 2 * p->pad || p->kernel > sizes['W'] + 2 * p->pad;
    if (p->kernel < 1 || p->stride < 1 || p->pad < 0 || 2 * p->pad > p->kernel ||
        (is_maxpool && too_wide)) {
        return error_set(err, STATUS_INVALID,
                         "%s: kernel %d, stride %d, pad %d do not fit %lld x %lld", op, p->kernel,
                         p->stride, p->pad, (long long)sizes['H'], (long long)sizes['W']);
    }
    int64_t (*size_of)(int64_t, int64_t, int64_t, int64_t) =
        is_maxpool ? conv_out_size : avgpool_out_size;
    const int64_t h = size_of(sizes['H'], p->kernel, p->stride, p->pad);
    const int64_t w = size_of(sizes['W'], p->kernel, p->stride, p->pad);
    return sizes['P'] == h && sizes['Q'] == w ? STATUS_OK : planes_differ(op, sizes, h, w, err);
}

#define POOL_RULES(op_, is_maxpool)                                                                \
    static enum status op_##_rules(const void *args, const int64_t *sizes, struct error *err) {    \
        const struct op_ *op = args;                                                               \
        return pool_rules(#op_, &op->pool, is_maxpool, sizes, err);                                \
    }
POOL_RULES(maxpool, true)
POOL_RULES(maxpool_bwd, true)
POOL_RULES(avgpool, false)
POOL_RULES(avgpool_bwd, false)

OPERANDS(maxpool) = {
    TENSOR(maxpool, out, OUT, REAL, "NPQC"),
    TENSOR(maxpool, argmax, OUT, I32, "NPQC"),
    TENSOR(maxpool, in, IN, REAL, "NHWC"),
};

OPERANDS(maxpool_bwd) = {
    TENSOR_WITH(maxpool_bwd, din, OUT, REAL, "NHWC", MODE(maxpool_bwd, mode)),
    TENSOR(maxpool_bwd, dout, IN, REAL, "NPQC"),
    TENSOR(maxpool_bwd, argmax, IN, I32, "NPQC"),
};

OPERANDS(avgpool) = {
    TENSOR(avgpool, out, OUT, REAL, "NPQC"),
    TENSOR(avgpool, in, IN, REAL, "NHWC"),
};

OPERANDS(avgpool_bwd) = {
    TENSOR_WITH(avgpool_bwd, din, OUT, REAL, "NHWC", MODE(avgpool_bwd, mode)),
    TENSOR(avgpool_bwd, dout, IN, REAL, "NPQC"),
};

OPERANDS(global_avgpool) = {
    TENSOR(global_avgpool, out, OUT, REAL, "NC"),
    TENSOR(global_avgpool, in, IN, REAL, "NHWC"),
};

OPERANDS(global_avgpool_bwd) = {
    TENSOR_WITH(global_avgpool_bwd, din, OUT, REAL, "NHWC", MODE(global_avgpool_bwd, mode)),
    TENSOR(global_avgpool_bwd, dout, IN, REAL, "NC"),
};

/* ---- products: linear of in MI, weight OI ---- */

static enum status
linear_act(const char *op, enum activation act, const struct tensor *pre, struct error *err) {
    return (act == ACTIVATION_GELU && tensor_present(pre)) ||
                   (act == ACTIVATION_NONE && !tensor_present(pre))
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "%s: activation must be gelu with pre, or none without", op);
}

static enum status linear_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct linear *op = args;
    return linear_act("linear", op->act, &op->pre, err);
}

static enum status linear_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct linear_bwd *op = args;
    TRY(linear_act("linear_bwd", op->act, &op->pre, err));
    return op->act == ACTIVATION_NONE || tensor_present(&op->dpre)
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "linear_bwd: dpre is missing");
}

static double linear_flops(const void *args) {
    const struct linear *op = args;
    return 2.0 * count(&op->in) * (double)op->weight.shape[0];
}

static double linear_bwd_flops(const void *args) {
    const struct linear_bwd *op = args;
    return (tensor_present(&op->din) ? 4.0 : 2.0) * count(&op->in) * (double)op->weight.shape[0];
}

OPERANDS(linear) = {
    TENSOR(linear, out, OUT, REAL, "MO"),
    TENSOR_WITH(linear, pre, OUT, REAL, "MO", OPTIONAL),
    TENSOR(linear, in, IN, REAL, "MI"),
    TENSOR(linear, weight, IN, REAL, "OI"),
    TENSOR_WITH(linear, bias, IN, PARAM, "O", OPTIONAL),
};

OPERANDS(linear_bwd) = {
    TENSOR_WITH(linear_bwd, din, OUT, REAL, "MI", OPTIONAL, MODE(linear_bwd, din_mode)),
    TENSOR_WITH(linear_bwd, dweight, OUT, PARAM, "OI", MODE(linear_bwd, param_mode)),
    TENSOR_WITH(linear_bwd, dbias, OUT, PARAM, "O", OPTIONAL, MODE(linear_bwd, param_mode)),
    TENSOR_WITH(linear_bwd, dpre, SCRATCH, REAL, "MO", OPTIONAL),
    TENSOR(linear_bwd, dout, IN, REAL, "MO"),
    TENSOR(linear_bwd, in, IN, REAL, "MI"),
    TENSOR(linear_bwd, weight, IN, REAL, "OI"),
    TENSOR_WITH(linear_bwd, pre, IN, REAL, "MO", OPTIONAL),
};

/* a is AB and b is CD, before they are transposed. */
static enum status matmul_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct matmul *op = args;
    const int64_t m = sizes[op->transpose_a ? 'B' : 'A'];
    const int64_t k = sizes[op->transpose_a ? 'A' : 'B'];
    const int64_t k_of_b = sizes[op->transpose_b ? 'D' : 'C'];
    const int64_t n = sizes[op->transpose_b ? 'C' : 'D'];
    if (m != sizes['M'] || n != sizes['N'] || k != k_of_b) {
        return error_set(err, STATUS_INVALID,
                         "matmul: (%lld,%lld) times (%lld,%lld) does not give (%lld,%lld)",
                         (long long)m, (long long)k, (long long)k_of_b, (long long)n,
                         (long long)sizes['M'], (long long)sizes['N']);
    }
    return op->alpha != 0.0f ? STATUS_OK : error_set(err, STATUS_INVALID, "matmul: alpha is 0");
}

static double matmul_flops(const void *args) {
    const struct matmul *op = args;
    return 2.0 * count(&op->out) * (double)op->a.shape[op->transpose_a ? 0 : 1];
}

OPERANDS(matmul) = {
    TENSOR_WITH(matmul, out, OUT, REAL_OR_PARAM, "MN", MODE(matmul, mode)),
    TENSOR(matmul, a, IN, REAL, "AB"),
    TENSOR(matmul, b, IN, REAL, "CD"),
};

/* ---- text: R rows, D wide, N captions ---- */

OPERANDS(embedding) = {
    TENSOR(embedding, out, OUT, REAL, "RD"),
    TENSOR_WITH(embedding, tokens, IN, I32, "R", BELOW('V')),
    SEGMENTS(embedding, 'P', false),
    TENSOR_WITH(embedding, table, IN, REAL, "VD", SPARSE),
    TENSOR(embedding, positions, IN, REAL, "PD"),
};

OPERANDS(embedding_bwd) = {
    TENSOR_WITH(embedding_bwd, dtable, OUT, PARAM, "VD", MODE(embedding_bwd, mode)),
    TENSOR_WITH(embedding_bwd, dpositions, OUT, PARAM, "PD", MODE(embedding_bwd, mode)),
    TENSOR(embedding_bwd, dout, IN, REAL, "RD"),
    TENSOR_WITH(embedding_bwd, tokens, IN, I32, "R", BELOW('V')),
    SEGMENTS(embedding_bwd, 'P', false),
};

static enum status layernorm_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct layernorm *op = args;
    return op->eps > 0.0f ? STATUS_OK
                          : error_set(err, STATUS_INVALID, "layernorm: eps is %g", (double)op->eps);
}

OPERANDS(layernorm) = {
    TENSOR(layernorm, out, OUT, REAL, "MD"),  TENSOR(layernorm, sum, OUT, REAL, "MD"),
    TENSOR(layernorm, mean, OUT, PARAM, "M"), TENSOR(layernorm, rstd, OUT, PARAM, "M"),
    TENSOR(layernorm, a, IN, REAL, "MD"),     TENSOR_WITH(layernorm, b, IN, REAL, "MD", OPTIONAL),
    TENSOR(layernorm, gamma, IN, PARAM, "D"), TENSOR(layernorm, beta, IN, PARAM, "D"),
};

OPERANDS(layernorm_bwd) = {
    TENSOR_WITH(layernorm_bwd, dsum, OUT, REAL, "MD", MODE(layernorm_bwd, dsum_mode)),
    TENSOR_WITH(layernorm_bwd, dgamma, OUT, PARAM, "D", MODE(layernorm_bwd, param_mode)),
    TENSOR_WITH(layernorm_bwd, dbeta, OUT, PARAM, "D", MODE(layernorm_bwd, param_mode)),
    TENSOR(layernorm_bwd, dout, IN, REAL, "MD"),
    TENSOR(layernorm_bwd, sum, IN, REAL, "MD"),
    TENSOR(layernorm_bwd, mean, IN, PARAM, "M"),
    TENSOR(layernorm_bwd, rstd, IN, PARAM, "M"),
    TENSOR(layernorm_bwd, gamma, IN, PARAM, "D"),
};

static enum status
dropout_given(const char *op, const struct dropout_params *p, struct error *err) {
    return p->p >= 0.0f && p->p < 1.0f && p->sample_ids != NULL && p->values != NULL
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "%s: dropout of %g outside [0, 1), or no sample ids or step values", op,
                           (double)p->p);
}

static enum status attention_shapes(const char *op,
                                    int32_t heads,
                                    const struct dropout_params *dropout,
                                    const int64_t *sizes,
                                    struct error *err) {
    if (heads < 1 || sizes['D'] % heads != 0 || sizes['H'] != heads) {
        return error_set(err, STATUS_INVALID,
                         "%s: %d heads do not fit a width of %lld and probs of %lld", op, heads,
                         (long long)sizes['D'], (long long)sizes['H']);
    }
    if (sizes['T'] > DROPOUT_MAX_TOKENS) {
        return error_set(err, STATUS_INVALID, "%s: captions of %lld tokens, expected at most %d",
                         op, (long long)sizes['T'], (int)DROPOUT_MAX_TOKENS);
    }
    return dropout->p == 0.0f ? STATUS_OK : dropout_given(op, dropout, err);
}

static enum status attention_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct attention *op = args;
    return attention_shapes("attention", op->heads, &op->dropout, sizes, err);
}

static enum status attention_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct attention_bwd *op = args;
    return attention_shapes("attention_bwd", op->heads, &op->dropout, sizes, err);
}

/* Two products of (T,Dh) with (T,Dh) a head, all T x T; four in the backward pass. */
static double attention_flops(const void *args) {
    const struct attention *op = args;
    return 4.0 * count(&op->probs) * (double)op->out.shape[1] / (double)op->heads;
}

static double attention_bwd_flops(const void *args) {
    const struct attention_bwd *op = args;
    return 8.0 * count(&op->probs) * (double)op->dout.shape[1] / (double)op->heads;
}

OPERANDS(attention) = {
    TENSOR(attention, out, OUT, REAL, "RD"),
    TENSOR(attention, probs, OUT, REAL, "NHTT"),
    TENSOR(attention, qkv, IN, REAL, "R3D"),
    SEGMENTS(attention, 'T', false),
    DROPOUT(attention),
};

OPERANDS(attention_bwd) = {
    TENSOR(attention_bwd, dqkv, OUT, REAL, "R3D"),
    TENSOR(attention_bwd, dout, IN, REAL, "RD"),
    TENSOR(attention_bwd, probs, IN, REAL, "NHTT"),
    TENSOR(attention_bwd, qkv, IN, REAL, "R3D"),
    SEGMENTS(attention_bwd, 'T', false),
    DROPOUT(attention_bwd),
};

static enum status dropout_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct dropout *op = args;
    if (tensor_present(&op->segments.starts) != tensor_present(&op->segments.lengths)) {
        return error_set(err, STATUS_INVALID, "dropout: starts and lengths are given together");
    }
    return dropout_given("dropout", &op->dropout, err);
}

OPERANDS(dropout) = {
    TENSOR(dropout, out, OUT, REAL, "RD"),
    TENSOR(dropout, in, IN, REAL, "RD"),
    SEGMENTS(dropout, 'R', true),
    DROPOUT(dropout),
};

OPERANDS(segment_mean) = {
    TENSOR(segment_mean, out, OUT, REAL, "ND"),
    TENSOR(segment_mean, in, IN, REAL, "RD"),
    SEGMENTS(segment_mean, 'R', false),
};

OPERANDS(segment_mean_bwd) = {
    TENSOR_WITH(segment_mean_bwd, din, OUT, REAL, "RD", MODE(segment_mean_bwd, mode)),
    TENSOR(segment_mean_bwd, dout, IN, REAL, "ND"),
    SEGMENTS(segment_mean_bwd, 'R', false),
};

/* ---- rows and vectors ---- */

OPERANDS(gather_rows) = {
    TENSOR(gather_rows, out, OUT, REAL, "ND"),
    TENSOR_WITH(gather_rows, in, IN, REAL, "MD", SPARSE),
    TENSOR_WITH(gather_rows, rows, IN, I32, "N", BELOW('M')),
};

OPERANDS(scatter_rows) = {
    TENSOR_WITH(scatter_rows, out, OUT, REAL, "MD", SPARSE, MODE(scatter_rows, mode)),
    TENSOR(scatter_rows, in, IN, REAL, "ND"),
    TENSOR_WITH(scatter_rows, rows, IN, I32, "N", BELOW('M')),
};

OPERANDS(l2_normalize) = {
    TENSOR(l2_normalize, out, OUT, PARAM, "ND"),
    TENSOR(l2_normalize, norm, OUT, PARAM, "N"),
    TENSOR(l2_normalize, in, IN, REAL, "ND"),
};

OPERANDS(l2_normalize_bwd) = {
    TENSOR(l2_normalize_bwd, din, OUT, REAL, "ND"),
    TENSOR(l2_normalize_bwd, dout, IN, PARAM, "ND"),
    TENSOR(l2_normalize_bwd, out, IN, PARAM, "ND"),
    TENSOR(l2_normalize_bwd, norm, IN, PARAM, "N"),
};

static enum status add_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct add *op = args;
    return op->alpha != 0.0f ? STATUS_OK : error_set(err, STATUS_INVALID, "add: alpha is 0");
}

OPERANDS(add) = {
    TENSOR(add, out, BOTH, REAL, "*"),
    TENSOR(add, in, IN, REAL, "*"),
};

static double sum_squares_flops(const void *args) {
    const struct sum_squares *op = args;
    return 2.0 * count(&op->in);
}

OPERANDS(sum_squares) = {
    TENSOR(sum_squares, sum, OUT, F64, "1"),
    TENSOR(sum_squares, in, IN, REAL, "*"),
};

/* ---- optimisers ---- */

static enum status grad_scale_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct grad_scale *op = args;
    return op->count >= 1 && op->count <= 2 && op->clip_norm >= 0.0
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "grad_scale: %d sums, expected 1 or 2, or a norm of %g to clip to",
                           (int)op->count, op->clip_norm);
}

OPERANDS(grad_scale) = {
    {.name = "values",
     .offset = offsetof(struct grad_scale, values),
     .role = ROLE_BOTH,
     .type = TYPE_VALUES},
};

OPERANDS(adamw) = {
    TENSOR(adamw, value, BOTH, PARAM, "*"),
    TENSOR_WITH(adamw, working, OUT, BF16, "*", OPTIONAL),
    TENSOR(adamw, grad, IN, PARAM, "*"),
    TENSOR(adamw, m, BOTH, PARAM, "*"),
    TENSOR(adamw, v, BOTH, PARAM, "*"),
    {.name = "values", .offset = offsetof(struct adamw, values), .type = TYPE_VALUES},
};

OPERANDS(sgdm) = {
    TENSOR(sgdm, value, BOTH, PARAM, "*"),
    TENSOR_WITH(sgdm, working, OUT, BF16, "*", OPTIONAL),
    TENSOR(sgdm, grad, IN, PARAM, "*"),
    TENSOR(sgdm, m, BOTH, PARAM, "*"),
    {.name = "values", .offset = offsetof(struct sgdm, values), .type = TYPE_VALUES},
};

static enum status lars_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct lars *op = args;
    return op->trust > 0.0f
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "lars: trust is %g", (double)op->trust);
}

OPERANDS(lars) = {
    TENSOR(lars, value, BOTH, PARAM, "*"),
    TENSOR_WITH(lars, working, OUT, BF16, "*", OPTIONAL),
    TENSOR(lars, grad, IN, PARAM, "*"),
    TENSOR(lars, m, BOTH, PARAM, "*"),
    {.name = "values", .offset = offsetof(struct lars, values), .type = TYPE_VALUES},
};

/* ---- the tables ---- */

#define INFO(op)                                                                                   \
    [OP_##op] = {.name = #op,                                                                      \
                 .args_bytes = sizeof(struct op),                                                  \
                 .operands = op##_operands,                                                        \
                 .operands_count = (int32_t)(sizeof op##_operands / sizeof op##_operands[0])},
const struct op_info op_infos[OPS_COUNT] = {OPS_LIST(INFO)};

op_rules_function *const op_rules[OPS_COUNT] = {
    [OP_cast] = cast_rules,
    [OP_normalize_u8] = normalize_u8_rules,
    [OP_conv_bn] = conv_bn_rules,
    [OP_conv_bn_bwd] = conv_bn_bwd_rules,
    [OP_maxpool] = maxpool_rules,
    [OP_maxpool_bwd] = maxpool_bwd_rules,
    [OP_avgpool] = avgpool_rules,
    [OP_avgpool_bwd] = avgpool_bwd_rules,
    [OP_linear] = linear_rules,
    [OP_linear_bwd] = linear_bwd_rules,
    [OP_matmul] = matmul_rules,
    [OP_layernorm] = layernorm_rules,
    [OP_attention] = attention_rules,
    [OP_attention_bwd] = attention_bwd_rules,
    [OP_dropout] = dropout_rules,
    [OP_add] = add_rules,
    [OP_grad_scale] = grad_scale_rules,
    [OP_lars] = lars_rules,
    [OP_conv_gn] = conv_gn_rules,
    [OP_conv_gn_bwd] = conv_gn_bwd_rules,
};

double op_flops(enum op_id id, const void *args) {
    static double (*const flops[OPS_COUNT])(const void *) = {
        [OP_conv_bn] = conv_bn_flops,
        [OP_conv_bn_bwd] = conv_bn_bwd_flops,
        [OP_conv_gn] = conv_gn_flops,
        [OP_conv_gn_bwd] = conv_gn_bwd_flops,
        [OP_linear] = linear_flops,
        [OP_linear_bwd] = linear_bwd_flops,
        [OP_matmul] = matmul_flops,
        [OP_attention] = attention_flops,
        [OP_attention_bwd] = attention_bwd_flops,
        [OP_sum_squares] = sum_squares_flops,
    };
    return flops[id] != NULL ? flops[id](args) : 0.0;
}
