/*
 * check: each function spells the shapes of one op as kernels/ops.h states them.
 */
#include "kernels/check.h"

#include <stdio.h>

#include "kernels/dropout_mask.h"

bool tensor_wanted(const struct tensor *t) {
    return t != NULL && t->data != NULL;
}

enum dtype param_dtype(enum dtype real) {
    return real == DTYPE_BF16 ? DTYPE_F32 : real;
}

/* "(2,3,4) f32", sizes that may be anything as '?'. */
static void
describe(char *out, size_t out_size, enum dtype dtype, int32_t ndim, const int64_t *shape) {
    size_t used = 0;
    int n = snprintf(out, out_size, "(");
    used = n > 0 ? (size_t)n : 0;
    for (int32_t i = 0; i < ndim && used < out_size; i++) {
        const char *comma = i > 0 ? "," : "";
        if (shape[i] == ANY_SIZE) {
            n = snprintf(out + used, out_size - used, "%s?", comma);
        } else {
            n = snprintf(out + used, out_size - used, "%s%lld", comma, (long long)shape[i]);
        }
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < out_size) {
        (void)snprintf(out + used, out_size - used, ") %s", dtype_name(dtype));
    }
}

enum status check_tensor(const char *op,
                         const char *argument,
                         const struct tensor *t,
                         enum dtype dtype,
                         int32_t ndim,
                         int64_t a,
                         int64_t b,
                         int64_t c,
                         int64_t d,
                         struct error *err) {
    const int64_t expected[TENSOR_MAX_DIMS] = {a, b, c, d};
    if (t == NULL) {
        return error_set(err, STATUS_INVALID, "%s: %s is NULL", op, argument);
    }
    bool ok = t->data != NULL && t->dtype == dtype && t->ndim == ndim;
    for (int32_t i = 0; ok && i < ndim; i++) {
        ok = t->shape[i] > 0 && (expected[i] == ANY_SIZE || t->shape[i] == expected[i]);
    }
    if (ok) {
        return STATUS_OK;
    }
    char found_text[96];
    char expected_text[96];
    int32_t found_ndim = t->ndim < 0 ? 0 : t->ndim > TENSOR_MAX_DIMS ? TENSOR_MAX_DIMS : t->ndim;
    describe(found_text, sizeof found_text, t->dtype, found_ndim, t->shape);
    describe(expected_text, sizeof expected_text, dtype, ndim, expected);
    return error_set(err, STATUS_INVALID, "%s: %s is %s%s, expected %s", op, argument, found_text,
                     t->data == NULL ? " without data" : "", expected_text);
}

enum status check_optional(const char *op,
                           const char *argument,
                           const struct tensor *t,
                           enum dtype dtype,
                           int32_t ndim,
                           int64_t a,
                           int64_t b,
                           int64_t c,
                           int64_t d,
                           struct error *err) {
    if (!tensor_wanted(t)) {
        return STATUS_OK;
    }
    return check_tensor(op, argument, t, dtype, ndim, a, b, c, d, err);
}

enum status check_like(const char *op,
                       const char *argument,
                       const struct tensor *t,
                       const struct tensor *like,
                       struct error *err) {
    const int64_t *s = like->shape;
    return check_tensor(op, argument, t, like->dtype, like->ndim, s[0], s[1], s[2], s[3], err);
}

/* The gradient of a parameter `like`: its shape, in the type of gradients. */
static enum status check_param_gradient(const char *op,
                                        const char *argument,
                                        const struct tensor *t,
                                        const struct tensor *like,
                                        struct error *err) {
    const int64_t *s = like->shape;
    return check_tensor(op, argument, t, param_dtype(like->dtype), like->ndim, s[0], s[1], s[2],
                        s[3], err);
}

int64_t conv_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    return (in + 2 * pad - kernel) / stride + 1;
}

int64_t avgpool_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
    int64_t out = (in + 2 * pad - kernel + stride - 1) / stride + 1;
    /* A last window that would start in the padding has nothing to average. */
    return (out - 1) * stride >= in + pad ? out - 1 : out;
}

static enum status check_conv_shapes(const char *op,
                                     const struct tensor *out,
                                     const struct tensor *pre,
                                     const struct tensor *in,
                                     const struct tensor *weight,
                                     const struct conv_bn_params *p,
                                     struct error *err) {
    const enum dtype real = in->dtype;
    TRY(check_tensor(op, "in", in, real, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, ANY_SIZE, err));
    TRY(check_tensor(op, "weight", weight, real, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, in->shape[3],
                     err));
    if (p->stride < 1 || p->pad < 0 || weight->shape[1] > in->shape[1] + 2 * p->pad ||
        weight->shape[2] > in->shape[2] + 2 * p->pad) {
        return error_set(err, STATUS_INVALID,
                         "%s: stride %d, pad %d do not fit a %lld x %lld kernel", op, p->stride,
                         p->pad, (long long)weight->shape[1], (long long)weight->shape[2]);
    }
    if (p->act == ACTIVATION_GELU) {
        return error_set(err, STATUS_INVALID, "%s: activation must be none or relu", op);
    }
    const int64_t oh = conv_out_size(in->shape[1], weight->shape[1], p->stride, p->pad);
    const int64_t ow = conv_out_size(in->shape[2], weight->shape[2], p->stride, p->pad);
    TRY(check_tensor(op, "out", out, real, 4, in->shape[0], oh, ow, weight->shape[0], err));
    return check_like(op, "pre", pre, out, err);
}

enum status check_conv_bn(const struct tensor *out,
                          const struct tensor *pre,
                          const struct tensor *mean,
                          const struct tensor *rstd,
                          const struct tensor *running_mean,
                          const struct tensor *running_var,
                          const struct tensor *in,
                          const struct tensor *weight,
                          const struct tensor *gamma,
                          const struct tensor *beta,
                          const struct tensor *residual,
                          const struct conv_bn_params *p,
                          struct error *err) {
    static const char op[] = "conv_bn";
    TRY(check_conv_shapes(op, out, pre, in, weight, p, err));
    const int64_t channels = weight->shape[0];
    const struct {
        const char *name;
        const struct tensor *t;
    } vectors[] = {{"mean", mean},
                   {"rstd", rstd},
                   {"gamma", gamma},
                   {"beta", beta},
                   {"running_mean", running_mean},
                   {"running_var", running_var}};
    const bool still = p->training && !tensor_wanted(running_mean) && !tensor_wanted(running_var);
    const size_t count = sizeof vectors / sizeof vectors[0] - (still ? 2 : 0);
    for (size_t i = 0; i < count; i++) {
        TRY(check_tensor(op, vectors[i].name, vectors[i].t, param_dtype(in->dtype), 1, channels, 0,
                         0, 0, err));
    }
    if (tensor_wanted(residual)) {
        TRY(check_like(op, "residual", residual, out, err));
    }
    return STATUS_OK;
}

enum status check_conv_bn_bwd(const struct tensor *din,
                              const struct tensor *dresidual,
                              const struct tensor *dweight,
                              const struct tensor *dgamma,
                              const struct tensor *dbeta,
                              const struct tensor *dpre,
                              const struct tensor *dout,
                              const struct tensor *out,
                              const struct tensor *pre,
                              const struct tensor *mean,
                              const struct tensor *rstd,
                              const struct tensor *in,
                              const struct tensor *weight,
                              const struct tensor *gamma,
                              const struct conv_bn_params *p,
                              struct error *err) {
    static const char op[] = "conv_bn_bwd";
    if (!p->training) {
        return error_set(err, STATUS_INVALID, "%s: there is no backward pass of the inference form",
                         op);
    }
    TRY(check_conv_shapes(op, out, pre, in, weight, p, err));
    const int64_t channels = weight->shape[0];
    if (tensor_wanted(din)) {
        TRY(check_like(op, "din", din, in, err));
    }
    if (tensor_wanted(dresidual)) {
        TRY(check_like(op, "dresidual", dresidual, out, err));
    }
    TRY(check_param_gradient(op, "dweight", dweight, weight, err));
    TRY(check_like(op, "dpre", dpre, out, err));
    TRY(check_like(op, "dout", dout, out, err));
    const struct {
        const char *name;
        const struct tensor *t;
    } vectors[] = {
        {"dgamma", dgamma}, {"dbeta", dbeta}, {"mean", mean}, {"rstd", rstd}, {"gamma", gamma}};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        TRY(check_tensor(op, vectors[i].name, vectors[i].t, param_dtype(in->dtype), 1, channels, 0,
                         0, 0, err));
    }
    return STATUS_OK;
}

enum status check_pool(const char *op,
                       const struct tensor *out,
                       const struct tensor *argmax,
                       const struct tensor *in,
                       const struct pool_params *p,
                       bool ceil_form,
                       struct error *err) {
    TRY(check_tensor(op, "input", in, in->dtype, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, ANY_SIZE, err));
    if (p->kernel < 1 || p->stride < 1 || p->pad < 0 || 2 * p->pad > p->kernel ||
        (!ceil_form &&
         (p->kernel > in->shape[1] + 2 * p->pad || p->kernel > in->shape[2] + 2 * p->pad))) {
        return error_set(err, STATUS_INVALID,
                         "%s: kernel %d, stride %d, pad %d do not fit %lld x %lld", op, p->kernel,
                         p->stride, p->pad, (long long)in->shape[1], (long long)in->shape[2]);
    }
    int64_t (*size_of)(int64_t, int64_t, int64_t, int64_t) =
        ceil_form ? avgpool_out_size : conv_out_size;
    const int64_t oh = size_of(in->shape[1], p->kernel, p->stride, p->pad);
    const int64_t ow = size_of(in->shape[2], p->kernel, p->stride, p->pad);
    TRY(check_tensor(op, "output", out, in->dtype, 4, in->shape[0], oh, ow, in->shape[3], err));
    if (argmax != NULL) {
        TRY(check_tensor(op, "argmax", argmax, DTYPE_I32, 4, in->shape[0], oh, ow, in->shape[3],
                         err));
    }
    return STATUS_OK;
}

enum status
check_global_avgpool(const struct tensor *out, const struct tensor *in, struct error *err) {
    static const char op[] = "global_avgpool";
    TRY(check_tensor(op, "input", in, in->dtype, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, ANY_SIZE, err));
    return check_tensor(op, "output", out, in->dtype, 2, in->shape[0], in->shape[3], 0, 0, err);
}

enum status check_linear(const struct tensor *out,
                         const struct tensor *pre,
                         const struct tensor *in,
                         const struct tensor *weight,
                         const struct tensor *bias,
                         enum activation act,
                         struct error *err) {
    static const char op[] = "linear";
    const enum dtype real = in->dtype;
    TRY(check_tensor(op, "in", in, real, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_tensor(op, "weight", weight, real, 2, ANY_SIZE, in->shape[1], 0, 0, err));
    TRY(check_tensor(op, "out", out, real, 2, in->shape[0], weight->shape[0], 0, 0, err));
    TRY(check_optional(op, "bias", bias, param_dtype(real), 1, weight->shape[0], 0, 0, 0, err));
    if (act == ACTIVATION_RELU || (act == ACTIVATION_NONE && tensor_wanted(pre))) {
        return error_set(err, STATUS_INVALID,
                         "%s: activation must be gelu with pre, or none without", op);
    }
    return act == ACTIVATION_GELU ? check_like(op, "pre", pre, out, err) : STATUS_OK;
}

enum status check_linear_bwd(const struct tensor *din,
                             const struct tensor *dweight,
                             const struct tensor *dbias,
                             const struct tensor *dpre,
                             const struct tensor *dout,
                             const struct tensor *in,
                             const struct tensor *weight,
                             const struct tensor *pre,
                             enum activation act,
                             struct error *err) {
    static const char op[] = "linear_bwd";
    TRY(check_linear(dout, pre, in, weight, NULL, act, err));
    if (tensor_wanted(din)) {
        TRY(check_like(op, "din", din, in, err));
    }
    TRY(check_param_gradient(op, "dweight", dweight, weight, err));
    TRY(check_optional(op, "dbias", dbias, param_dtype(in->dtype), 1, weight->shape[0], 0, 0, 0,
                       err));
    return act == ACTIVATION_GELU ? check_like(op, "dpre", dpre, dout, err) : STATUS_OK;
}

enum status check_matmul(const struct tensor *out,
                         const struct tensor *a,
                         bool transpose_a,
                         const struct tensor *b,
                         bool transpose_b,
                         struct error *err) {
    static const char op[] = "matmul";
    TRY(check_tensor(op, "a", a, a->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    const int64_t m = a->shape[transpose_a ? 1 : 0];
    const int64_t k = a->shape[transpose_a ? 0 : 1];
    TRY(check_tensor(op, "b", b, a->dtype, 2, transpose_b ? ANY_SIZE : k,
                     transpose_b ? k : ANY_SIZE, 0, 0, err));
    const bool wide = out != NULL && a->dtype == DTYPE_BF16 && out->dtype == DTYPE_F32;
    return check_tensor(op, "out", out, wide ? DTYPE_F32 : a->dtype, 2, m,
                        b->shape[transpose_b ? 0 : 1], 0, 0, err);
}

enum status
check_segments(const char *op, const struct segments *seg, int64_t count, struct error *err) {
    if (seg == NULL) {
        return error_set(err, STATUS_INVALID, "%s: there are no segments", op);
    }
    TRY(check_tensor(op, "starts", seg->starts, DTYPE_I32, 1, count, 0, 0, 0, err));
    return check_tensor(op, "lengths", seg->lengths, DTYPE_I32, 1, seg->starts->shape[0], 0, 0, 0,
                        err);
}

enum status check_segment_values(const char *op,
                                 const struct segments *seg,
                                 int64_t rows,
                                 int64_t longest,
                                 struct error *err) {
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    int64_t end = 0;
    for (int64_t n = 0; n < seg->starts->shape[0]; n++) {
        if (lengths[n] < 1 || lengths[n] > longest) {
            return error_set(err, STATUS_INVALID, "%s: length %lld is %d, expected 1 to %lld", op,
                             (long long)n, lengths[n], (long long)longest);
        }
        if (starts[n] < end || starts[n] > rows - lengths[n]) {
            return error_set(err, STATUS_INVALID,
                             "%s: caption %lld of %d rows starts at %d, expected %lld to %lld", op,
                             (long long)n, lengths[n], starts[n], (long long)end,
                             (long long)(rows - lengths[n]));
        }
        end = (int64_t)starts[n] + lengths[n];
    }
    return STATUS_OK;
}

static enum status check_token_rows(const char *op,
                                    const struct tensor *tokens,
                                    const struct segments *seg,
                                    const struct tensor *table,
                                    const struct tensor *positions,
                                    struct error *err) {
    const enum dtype real = table->dtype;
    TRY(check_tensor(op, "tokens", tokens, DTYPE_I32, 1, ANY_SIZE, 0, 0, 0, err));
    TRY(check_segments(op, seg, ANY_SIZE, err));
    TRY(check_tensor(op, "table", table, real, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    return check_tensor(op, "positions", positions, real, 2, ANY_SIZE, table->shape[1], 0, 0, err);
}

enum status check_embedding(const struct tensor *out,
                            const struct tensor *tokens,
                            const struct segments *seg,
                            const struct tensor *table,
                            const struct tensor *positions,
                            struct error *err) {
    static const char op[] = "embedding";
    TRY(check_token_rows(op, tokens, seg, table, positions, err));
    return check_tensor(op, "out", out, table->dtype, 2, tokens->shape[0], table->shape[1], 0, 0,
                        err);
}

enum status check_embedding_bwd(const struct tensor *dtable,
                                const struct tensor *dpositions,
                                const struct tensor *dout,
                                const struct tensor *tokens,
                                const struct segments *seg,
                                struct error *err) {
    static const char op[] = "embedding_bwd";
    TRY(check_token_rows(op, tokens, seg, dtable, dpositions, err));
    const bool narrow = dout != NULL && dout->dtype == DTYPE_BF16 && dtable->dtype == DTYPE_F32;
    return check_tensor(op, "dout", dout, narrow ? dout->dtype : dtable->dtype, 2, tokens->shape[0],
                        dtable->shape[1], 0, 0, err);
}

enum status check_token_values(const char *op,
                               const struct tensor *tokens,
                               const struct segments *seg,
                               int64_t vocab_count,
                               int64_t position_count,
                               struct error *err) {
    TRY(check_segment_values(op, seg, tokens->shape[0], position_count, err));
    const int32_t *ids = tokens->data;
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    for (int64_t n = 0; n < seg->starts->shape[0]; n++) {
        for (int64_t r = starts[n]; r < (int64_t)starts[n] + lengths[n]; r++) {
            if (ids[r] < 0 || ids[r] >= vocab_count) {
                return error_set(err, STATUS_INVALID,
                                 "%s: token of row %lld is %d, the vocabulary has %lld pieces", op,
                                 (long long)r, ids[r], (long long)vocab_count);
            }
        }
    }
    return STATUS_OK;
}

enum status check_layernorm(const struct tensor *out,
                            const struct tensor *sum,
                            const struct tensor *mean,
                            const struct tensor *rstd,
                            const struct tensor *a,
                            const struct tensor *b,
                            const struct tensor *gamma,
                            const struct tensor *beta,
                            struct error *err) {
    static const char op[] = "layernorm";
    TRY(check_tensor(op, "a", a, a->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_like(op, "out", out, a, err));
    TRY(check_like(op, "sum", sum, a, err));
    if (tensor_wanted(b)) {
        TRY(check_like(op, "b", b, a, err));
    }
    const enum dtype vector = param_dtype(a->dtype);
    TRY(check_tensor(op, "mean", mean, vector, 1, a->shape[0], 0, 0, 0, err));
    TRY(check_tensor(op, "rstd", rstd, vector, 1, a->shape[0], 0, 0, 0, err));
    TRY(check_tensor(op, "gamma", gamma, vector, 1, a->shape[1], 0, 0, 0, err));
    return check_tensor(op, "beta", beta, vector, 1, a->shape[1], 0, 0, 0, err);
}

enum status check_layernorm_bwd(const struct tensor *dsum,
                                const struct tensor *dgamma,
                                const struct tensor *dbeta,
                                const struct tensor *dout,
                                const struct tensor *sum,
                                const struct tensor *mean,
                                const struct tensor *rstd,
                                const struct tensor *gamma,
                                struct error *err) {
    static const char op[] = "layernorm_bwd";
    TRY(check_layernorm(dout, sum, mean, rstd, sum, NULL, gamma, dbeta, err));
    TRY(check_like(op, "dsum", dsum, sum, err));
    return check_like(op, "dgamma", dgamma, gamma, err);
}

enum status check_attention(const struct tensor *out,
                            const struct tensor *probs,
                            const struct tensor *qkv,
                            const struct segments *seg,
                            const struct attention_params *p,
                            struct error *err) {
    static const char op[] = "attention";
    const enum dtype real = qkv->dtype;
    TRY(check_tensor(op, "out", out, real, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    const int64_t d = out->shape[1];
    if (p->heads < 1 || d % p->heads != 0) {
        return error_set(err, STATUS_INVALID, "%s: %d heads do not fit a width of %lld", op,
                         p->heads, (long long)d);
    }
    TRY(check_tensor(op, "qkv", qkv, real, 2, out->shape[0], 3 * d, 0, 0, err));
    TRY(check_segments(op, seg, ANY_SIZE, err));
    TRY(check_tensor(op, "probs", probs, real, 4, seg->starts->shape[0], p->heads, ANY_SIZE,
                     ANY_SIZE, err));
    if (probs->shape[2] != probs->shape[3] || probs->shape[2] > DROPOUT_MAX_TOKENS) {
        return error_set(
            err, STATUS_INVALID, "%s: probs are %lld x %lld, expected a square of at most %d", op,
            (long long)probs->shape[2], (long long)probs->shape[3], (int)DROPOUT_MAX_TOKENS);
    }
    return p->dropout != NULL ? check_dropout_params(op, p->dropout, err) : STATUS_OK;
}

enum status
check_dropout_params(const char *op, const struct dropout_params *p, struct error *err) {
    if (!(p->p >= 0.0f && p->p < 1.0f) || p->sample_ids == NULL || p->values == NULL) {
        return error_set(err, STATUS_INVALID,
                         "%s: dropout of %g outside [0, 1), or no sample ids or step values", op,
                         (double)p->p);
    }
    return STATUS_OK;
}

enum status check_dropout(const struct tensor *out,
                          const struct tensor *in,
                          const struct segments *seg,
                          const struct dropout_params *p,
                          struct error *err) {
    static const char op[] = "dropout";
    TRY(check_tensor(op, "in", in, in->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_like(op, "out", out, in, err));
    if (seg != NULL) {
        TRY(check_segments(op, seg, ANY_SIZE, err));
    }
    return check_dropout_params(op, p, err);
}

enum status check_segment_mean(const struct tensor *out,
                               const struct tensor *in,
                               const struct segments *seg,
                               struct error *err) {
    static const char op[] = "segment_mean";
    TRY(check_tensor(op, "wide tensor", in, in->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_tensor(op, "narrow tensor", out, in->dtype, 2, ANY_SIZE, in->shape[1], 0, 0, err));
    return check_segments(op, seg, out->shape[0], err);
}

enum status check_rows(const char *op,
                       const struct tensor *narrow,
                       const struct tensor *wide,
                       const struct tensor *rows,
                       struct error *err) {
    TRY(check_tensor(op, "wide tensor", wide, wide->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_tensor(op, "narrow tensor", narrow, wide->dtype, 2, ANY_SIZE, wide->shape[1], 0, 0,
                     err));
    TRY(check_tensor(op, "rows", rows, DTYPE_I32, 1, narrow->shape[0], 0, 0, 0, err));
    const int32_t *index = rows->data;
    for (int64_t i = 0; i < rows->shape[0]; i++) {
        if (index[i] < 0 || index[i] >= wide->shape[0]) {
            return error_set(err, STATUS_INVALID, "%s: row %lld is %d, expected below %lld", op,
                             (long long)i, index[i], (long long)wide->shape[0]);
        }
    }
    return STATUS_OK;
}

enum status check_l2_normalize(const struct tensor *out,
                               const struct tensor *norm,
                               const struct tensor *in,
                               struct error *err) {
    static const char op[] = "l2_normalize";
    TRY(check_tensor(op, "in", in, in->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_param_gradient(op, "out", out, in, err));
    return check_tensor(op, "norm", norm, out->dtype, 1, in->shape[0], 0, 0, 0, err);
}

enum status check_l2_normalize_bwd(const struct tensor *din,
                                   const struct tensor *dout,
                                   const struct tensor *out,
                                   const struct tensor *norm,
                                   struct error *err) {
    static const char op[] = "l2_normalize_bwd";
    TRY(check_tensor(op, "out", out, out->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_like(op, "dout", dout, out, err));
    TRY(check_tensor(op, "norm", norm, out->dtype, 1, out->shape[0], 0, 0, 0, err));
    const bool narrow = din != NULL && din->dtype == DTYPE_BF16 && out->dtype == DTYPE_F32;
    return check_tensor(op, "din", din, narrow ? din->dtype : out->dtype, 2, out->shape[0],
                        out->shape[1], 0, 0, err);
}

enum status check_cast(const struct tensor *out, const struct tensor *in, struct error *err) {
    const bool narrow = in->dtype == DTYPE_F32;
    const int64_t *s = in->shape;
    if (in->dtype != DTYPE_F32 && in->dtype != DTYPE_BF16) {
        return error_set(err, STATUS_UNSUPPORTED, "cast: from f32 to bf16 or back, not from %s",
                         dtype_name(in->dtype));
    }
    TRY(check_like("cast", "in", in, in, err));
    return check_tensor("cast", "out", out, narrow ? DTYPE_BF16 : DTYPE_F32, in->ndim, s[0], s[1],
                        s[2], s[3], err);
}

/* What every optimiser takes: tensors like value, and its working copy. */
static enum status check_update(const char *op,
                                const struct tensor *value,
                                const struct tensor *working,
                                const struct tensor *grad,
                                const struct tensor *m,
                                struct error *err) {
    const int64_t *s = value->shape;
    if (value->dtype == DTYPE_BF16) {
        return error_set(err, STATUS_INVALID, "%s: value is %s; the master copy is f32", op,
                         dtype_name(value->dtype));
    }
    TRY(check_like(op, "value", value, value, err));
    TRY(check_optional(op, "working", working, DTYPE_BF16, value->ndim, s[0], s[1], s[2], s[3],
                       err));
    TRY(check_like(op, "grad", grad, value, err));
    return check_like(op, "m", m, value, err);
}

static enum status
check_values(const char *op, const struct step_values *values, struct error *err) {
    return values != NULL ? STATUS_OK : error_set(err, STATUS_INVALID, "%s: no step values", op);
}

enum status check_adamw(const struct tensor *value,
                        const struct tensor *working,
                        const struct tensor *grad,
                        const struct tensor *m,
                        const struct tensor *v,
                        const struct adamw_params *p,
                        struct error *err) {
    static const char op[] = "adamw";
    TRY(check_update(op, value, working, grad, m, err));
    TRY(check_like(op, "v", v, value, err));
    return check_values(op, p->values, err);
}

enum status check_sgdm(const struct tensor *value,
                       const struct tensor *working,
                       const struct tensor *grad,
                       const struct tensor *m,
                       const struct sgdm_params *p,
                       struct error *err) {
    TRY(check_update("sgdm", value, working, grad, m, err));
    return check_values("sgdm", p->values, err);
}

enum status check_grad_scale(const struct step_values *values,
                             int32_t count,
                             double clip_norm,
                             struct error *err) {
    TRY(check_values("grad_scale", values, err));
    if (count < 1 || count > 2 || !(clip_norm >= 0.0)) {
        return error_set(err, STATUS_INVALID,
                         "grad_scale: %d sums, expected 1 or 2, or a norm of %g to clip to",
                         (int)count, clip_norm);
    }
    return STATUS_OK;
}
