/*
 * operands: the description of every operator: the lists of ops.h, and what they lack: conditions
 * beyond types and shapes, FLOPs, captions and dropout.
 */
#include "kernels/operands.h"

#include "kernels/dropout_mask.h"

/* One operator: its rules and FLOPs (NULL: none), and its operands. */
#define OPERATOR(op, rules_, flops_, ...)                                                          \
    static const struct op_info *op##_info(void) {                                                 \
        typedef struct op args;                                                                    \
        static const struct operand operands[] = {__VA_ARGS__};                                    \
        static const struct op_info info = {.name = #op,                                           \
                                            .args_bytes = sizeof(args),                            \
                                            .operands = operands,                                  \
                                            .operands_count = sizeof operands / sizeof *operands,  \
                                            .rules = rules_,                                       \
                                            .flops = flops_};                                      \
        return &info;                                                                              \
    }

#define OPERAND(name_, field, role_, type_, ...)                                                   \
    {.name = name_,                                                                                \
     .offset = offsetof(args, field),                                                              \
     .role = ROLE_##role_,                                                                         \
     .type = TYPE_##type_,                                                                         \
     __VA_ARGS__},
#define T(field, role, type, shape_) OPERAND(#field, field, role, type, .shape = shape_)
#define W(field, role, type, shape_, ...)                                                          \
    OPERAND(#field, field, role, type, .shape = shape_, __VA_ARGS__)
#define OPTIONAL      .optional = true
#define MODE(field)   .mode_offset = offsetof(args, field)
#define BELOW(letter) .below = letter
#define SPARSE        .is_sparse = true

/* Captions, none longer than the size of the letter. */
#define SEGMENTS(longest, is_optional)                                                             \
    OPERAND("starts", segments.starts, IN, I32, .shape = "N", .optional = is_optional)             \
    OPERAND("lengths", segments.lengths, IN, I32, .shape = "N", .optional = is_optional,           \
            .below = longest)
/* What is not a tensor: the values of the step; dropout's memory, which is not read if p is 0. */
#define VALUES(role) OPERAND("values", values, role, VALUES, .optional = false)
#define DROPOUT                                                                                    \
    OPERAND("values", dropout.values, IN, VALUES, OPTIONAL)                                        \
    OPERAND("sample_ids", dropout.sample_ids, IN, IDS, OPTIONAL)

static double count(const struct tensor *t) {
    return (double)tensor_count(t);
}

/* ---- fill, cast, input ---- */

OPERATOR(fill, NULL, NULL, FILL_TENSORS(T, W))

static enum status cast_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct cast *op = args;
    return op->in.dtype != op->out.dtype ? STATUS_OK
                                         : error_set(err, STATUS_INVALID, "cast: from %s to itself",
                                                     dtype_name(op->in.dtype));
}

OPERATOR(cast, cast_rules, NULL, CAST_TENSORS(T, W))

static enum status normalize_u8_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct normalize_u8 *op = args;
    const int64_t side = op->patch;
    FAIL_IF(op->norm == NULL, err, STATUS_INVALID, "normalize_u8: norm is missing");
    FAIL_IF(side < 1 || side > sizes['H'] + sizes['W'] || sizes['P'] * side != sizes['H'] ||
                sizes['Q'] * side != sizes['W'] || sizes['C'] != 3 * side * side,
            err, STATUS_INVALID,
            "normalize_u8: patches of %d pixels of %lld x %lld do not give %lld x %lld of %lld",
            (int)op->patch, (long long)sizes['H'], (long long)sizes['W'], (long long)sizes['P'],
            (long long)sizes['Q'], (long long)sizes['C']);
    return STATUS_OK;
}

OPERATOR(normalize_u8, normalize_u8_rules, NULL, NORMALIZE_U8_TENSORS(T, W))

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
    FAIL_IF(p->stride < 1 || p->pad < 0 || sizes['K'] > sizes['H'] + 2 * p->pad ||
                sizes['L'] > sizes['W'] + 2 * p->pad,
            err, STATUS_INVALID, "%s: stride %d, pad %d do not fit a %lld x %lld kernel", op,
            p->stride, p->pad, (long long)sizes['K'], (long long)sizes['L']);
    FAIL_IF(p->act != ACTIVATION_NONE && p->act != ACTIVATION_RELU, err, STATUS_INVALID,
            "%s: activation must be none or relu", op);
    const int64_t h = conv_out_size(sizes['H'], sizes['K'], p->stride, p->pad);
    const int64_t w = conv_out_size(sizes['W'], sizes['L'], p->stride, p->pad);
    return sizes['P'] == h && sizes['Q'] == w ? STATUS_OK : planes_differ(op, sizes, h, w, err);
}

static enum status
group_rules(const char *op, const struct batch_norm_group *group, struct error *err) {
    FAIL_IF(group != NULL && (group->ranks_count < 1 || group->gather == NULL), err, STATUS_INVALID,
            "%s: a group of %d ranks%s", op, (int)group->ranks_count,
            group->gather == NULL ? " without gather" : "");
    return STATUS_OK;
}

static enum status conv_bn_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_bn *op = args;
    const bool mean = tensor_present(&op->running_mean);
    const bool var = tensor_present(&op->running_var);
    FAIL_IF(mean != var || !(mean || op->training), err, STATUS_INVALID,
            "conv_bn: running_mean and running_var are given together, and omitted in "
            "training alone");
    FAIL_IF(!(op->eps > 0.0f), err, STATUS_INVALID, "conv_bn: eps is %g", (double)op->eps);
    TRY(group_rules("conv_bn", op->group, err));
    return conv_rules("conv_bn", &op->conv, sizes, err);
}

static enum status conv_bn_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_bn_bwd *op = args;
    const bool out = tensor_present(&op->out);
    FAIL_IF(out == tensor_present(&op->beta) || (!out && tensor_present(&op->dresidual)), err,
            STATUS_INVALID,
            "conv_bn_bwd: the mask needs out, or, without dresidual, beta: one of the two");
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

OPERATOR(conv_bn, conv_bn_rules, conv_bn_flops, CONV_BN_TENSORS(T, W))

OPERATOR(conv_bn_bwd, conv_bn_bwd_rules, conv_bn_bwd_flops, CONV_BN_BWD_TENSORS(T, W))

/* ---- conv_gn: as conv_bn, with statistics NG ---- */

/* With groups all operands of a norm are given, without groups none. */
static enum status norm_rules(const char *op,
                              int32_t groups,
                              const struct tensor *const *with_groups,
                              int tensors_count,
                              const int64_t *sizes,
                              struct error *err) {
    for (int i = 0; i < tensors_count; i++) {
        FAIL_IF(tensor_present(with_groups[i]) != (groups > 0), err, STATUS_INVALID,
                "%s: %d groups; operands of a norm are given with groups alone, and "
                "then all of them",
                op, (int)groups);
    }
    FAIL_IF(groups < 0 || (groups > 0 && (sizes['G'] != groups || sizes['O'] % groups != 0)), err,
            STATUS_INVALID, "%s: %d groups of %lld channels, statistics of %lld", op, (int)groups,
            (long long)sizes['O'], (long long)sizes['G']);
    return STATUS_OK;
}

static enum status conv_gn_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct conv_gn *op = args;
    const struct tensor *const norm[] = {&op->pre, &op->mean, &op->rstd, &op->gamma, &op->beta};
    TRY(norm_rules("conv_gn", op->groups, norm, 5, sizes, err));
    FAIL_IF(!(op->eps > 0.0f), err, STATUS_INVALID, "conv_gn: eps is %g", (double)op->eps);
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

OPERATOR(conv_gn, conv_gn_rules, conv_gn_flops, CONV_GN_TENSORS(T, W))

OPERATOR(conv_gn_bwd, conv_gn_bwd_rules, conv_gn_bwd_flops, CONV_GN_BWD_TENSORS(T, W))

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
    FAIL_IF(p->kernel < 1 || p->stride < 1 || p->pad < 0 || 2 * p->pad > p->kernel ||
                (is_maxpool && too_wide),
            err, STATUS_INVALID, "%s: kernel %d, stride %d, pad %d do not fit %lld x %lld", op,
            p->kernel, p->stride, p->pad, (long long)sizes['H'], (long long)sizes['W']);
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

OPERATOR(maxpool, maxpool_rules, NULL, MAXPOOL_TENSORS(T, W))

OPERATOR(maxpool_bwd, maxpool_bwd_rules, NULL, MAXPOOL_BWD_TENSORS(T, W))

OPERATOR(avgpool, avgpool_rules, NULL, AVGPOOL_TENSORS(T, W))

OPERATOR(avgpool_bwd, avgpool_bwd_rules, NULL, AVGPOOL_BWD_TENSORS(T, W))

OPERATOR(global_avgpool, NULL, NULL, GLOBAL_AVGPOOL_TENSORS(T, W))

OPERATOR(global_avgpool_bwd, NULL, NULL, GLOBAL_AVGPOOL_BWD_TENSORS(T, W))

/* ---- products: linear of in MI, weight OI ---- */

static enum status
linear_act(const char *op, enum activation act, const struct tensor *pre, struct error *err) {
    const bool gelu = act >= ACTIVATION_GELU && act <= ACTIVATION_TANH_GELU;
    return (gelu && tensor_present(pre)) || (act == ACTIVATION_NONE && !tensor_present(pre))
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

static enum status gelu_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct gelu *op = args;
    return linear_act("gelu", op->act, &op->pre, err);
}

static double linear_flops(const void *args) {
    const struct linear *op = args;
    return 2.0 * count(&op->in) * (double)op->weight.shape[0];
}

static double linear_bwd_flops(const void *args) {
    const struct linear_bwd *op = args;
    return (tensor_present(&op->din) ? 4.0 : 2.0) * count(&op->in) * (double)op->weight.shape[0];
}

OPERATOR(linear, linear_rules, linear_flops, LINEAR_TENSORS(T, W))

OPERATOR(gelu, gelu_rules, NULL, GELU_TENSORS(T, W))

OPERATOR(linear_bwd, linear_bwd_rules, linear_bwd_flops, LINEAR_BWD_TENSORS(T, W))

/* a is AB and b is CD, before they are transposed. */
static enum status matmul_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct matmul *op = args;
    const int64_t m = sizes[op->transpose_a ? 'B' : 'A'];
    const int64_t k = sizes[op->transpose_a ? 'A' : 'B'];
    const int64_t k_of_b = sizes[op->transpose_b ? 'D' : 'C'];
    const int64_t n = sizes[op->transpose_b ? 'C' : 'D'];
    FAIL_IF(m != sizes['M'] || n != sizes['N'] || k != k_of_b, err, STATUS_INVALID,
            "matmul: (%lld,%lld) times (%lld,%lld) does not give (%lld,%lld)", (long long)m,
            (long long)k, (long long)k_of_b, (long long)n, (long long)sizes['M'],
            (long long)sizes['N']);
    return op->alpha != 0.0f ? STATUS_OK : error_set(err, STATUS_INVALID, "matmul: alpha is 0");
}

static double matmul_flops(const void *args) {
    const struct matmul *op = args;
    return 2.0 * count(&op->out) * (double)op->a.shape[op->transpose_a ? 0 : 1];
}

OPERATOR(matmul, matmul_rules, matmul_flops, MATMUL_TENSORS(T, W))

/* ---- text: R rows, D wide, N captions ---- */

OPERATOR(embedding, NULL, NULL, EMBEDDING_TENSORS(T, W) SEGMENTS('P', false))

static enum status embedding_bwd_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct embedding_bwd *op = args;
    return tensor_present(&op->dtable) == tensor_present(&op->tokens)
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "embedding_bwd: dtable and tokens are given together");
}

OPERATOR(embedding_bwd, embedding_bwd_rules, NULL, EMBEDDING_BWD_TENSORS(T, W) SEGMENTS('P', false))

static enum status layernorm_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct layernorm *op = args;
    return op->eps > 0.0f ? STATUS_OK
                          : error_set(err, STATUS_INVALID, "layernorm: eps is %g", (double)op->eps);
}

OPERATOR(layernorm, layernorm_rules, NULL, LAYERNORM_TENSORS(T, W))

OPERATOR(layernorm_bwd, NULL, NULL, LAYERNORM_BWD_TENSORS(T, W))

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
    FAIL_IF(heads < 1 || sizes['D'] % heads != 0 || sizes['H'] != heads, err, STATUS_INVALID,
            "%s: %d heads do not fit a width of %lld and lse of %lld", op, heads,
            (long long)sizes['D'], (long long)sizes['H']);
    const int most = dropout->p == 0.0f ? (int)ATTENTION_MAX_TOKENS : (int)DROPOUT_MAX_TOKENS;
    FAIL_IF(sizes['T'] > most, err, STATUS_INVALID,
            "%s: captions of %lld tokens, expected at most %d", op, (long long)sizes['T'], most);
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

/* Per head two products of (T,Dh) with (T,Dh), all T x T; five in the backward pass. */
static double attention_flops(const void *args) {
    const struct attention *op = args;
    return 4.0 * count(&op->lse) * (double)(op->lse.shape[2] * op->out.shape[1] / op->heads);
}

static double attention_bwd_flops(const void *args) {
    const struct attention_bwd *op = args;
    return 10.0 * count(&op->lse) * (double)(op->lse.shape[2] * op->dout.shape[1] / op->heads);
}

OPERATOR(attention,
         attention_rules,
         attention_flops,
         ATTENTION_TENSORS(T, W) SEGMENTS('T', false) DROPOUT)

OPERATOR(attention_bwd,
         attention_bwd_rules,
         attention_bwd_flops,
         ATTENTION_BWD_TENSORS(T, W) SEGMENTS('T', false) DROPOUT)

static enum status dropout_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct dropout *op = args;
    FAIL_IF(tensor_present(&op->segments.starts) != tensor_present(&op->segments.lengths), err,
            STATUS_INVALID, "dropout: starts and lengths are given together");
    return dropout_given("dropout", &op->dropout, err);
}

OPERATOR(dropout, dropout_rules, NULL, DROPOUT_TENSORS(T, W) SEGMENTS('R', true) DROPOUT)

OPERATOR(segment_mean, NULL, NULL, SEGMENT_MEAN_TENSORS(T, W) SEGMENTS('R', false))

OPERATOR(segment_mean_bwd, NULL, NULL, SEGMENT_MEAN_BWD_TENSORS(T, W) SEGMENTS('R', false))

/* ---- rows and vectors ---- */

OPERATOR(gather_rows, NULL, NULL, GATHER_ROWS_TENSORS(T, W))

OPERATOR(scatter_rows, NULL, NULL, SCATTER_ROWS_TENSORS(T, W))

OPERATOR(l2_normalize, NULL, NULL, L2_NORMALIZE_TENSORS(T, W))

OPERATOR(l2_normalize_bwd, NULL, NULL, L2_NORMALIZE_BWD_TENSORS(T, W))

static enum status add_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct add *op = args;
    return op->alpha != 0.0f ? STATUS_OK : error_set(err, STATUS_INVALID, "add: alpha is 0");
}

OPERATOR(add, add_rules, NULL, ADD_TENSORS(T, W))

static double sum_squares_flops(const void *args) {
    const struct sum_squares *op = args;
    return 2.0 * count(&op->in);
}

OPERATOR(sum_squares, NULL, sum_squares_flops, SUM_SQUARES_TENSORS(T, W))

/* ---- optimisers ---- */

static enum status grad_scale_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct grad_scale *op = args;
    return op->count >= 1 && op->count <= 2 && op->clip_norm >= 0.0
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "grad_scale: %d sums, expected 1 or 2, or a norm of %g to clip to",
                           (int)op->count, op->clip_norm);
}

OPERATOR(grad_scale, grad_scale_rules, NULL, VALUES(BOTH))

static enum status adamw_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct adamw *op = args;
    return op->lr_scale > 0.0f ? STATUS_OK
                               : error_set(err, STATUS_INVALID, "adamw: its rate is %g times lr",
                                           (double)op->lr_scale);
}

OPERATOR(adamw, adamw_rules, NULL, ADAMW_TENSORS(T, W) VALUES(IN))

OPERATOR(sgdm, NULL, NULL, SGDM_TENSORS(T, W) VALUES(IN))

static enum status lars_rules(const void *args, const int64_t *sizes, struct error *err) {
    const struct lars *op = args;
    return op->trust > 0.0f
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "lars: trust is %g", (double)op->trust);
}

OPERATOR(lars, lars_rules, NULL, LARS_TENSORS(T, W) VALUES(IN))

/* ---- the table ---- */

const struct op_info *op_info(enum op_id id) {
#define INFO(op) [OP_##op] = op##_info,
    static const struct op_info *(*const infos[OPS_COUNT])(void) = {OPS_LIST(INFO)};
    return infos[id]();
}

double op_flops(enum op_id id, const void *args) {
    return op_info(id)->flops != NULL ? op_info(id)->flops(args) : 0.0;
}
