/*
 * Every row of kernels/op_cases/op_rows.c with wrong arguments: tensors of another shape or type,
 * numbers and indices out of range. The call must be refused and must not write.
 */
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

enum damage { OTHER_SHAPE, OTHER_DTYPE, NO_DATA, FEWER_DIMENSIONS, DAMAGE_COUNT };

/* False if the call would still be correct. */
static bool damage(struct tensor *t, const struct op_case *c, int operand, enum damage kind) {
    const struct op_operand *o = &c->operands[operand];
    if (t->data == NULL || o->plain) {
        return false;
    }
    switch (kind) {
    case OTHER_SHAPE:
        t->shape[t->ndim - 1]++;
        return !o->free_shape && !o->free_last;
    case OTHER_DTYPE:
        t->dtype = t->dtype == DTYPE_I32 ? DTYPE_F32 : DTYPE_I32;
        return true;
    case NO_DATA:
        t->data = NULL;
        return !o->optional;
    default:
        t->ndim--;
        return !o->free_shape;
    }
}

static void refuse(struct op_case *c, void *cookie) {
    struct device *dev = cookie;
    struct op_data start;
    struct op_data d;
    struct error err = {0};
    if (!op_available(dev, c->row->op)) {
        return;
    }
    op_cases_make(&start, c, 0, dev);
    assert_ok(op_data_create(&d, c, 0, &err), err);
    for (int i = 0; i < c->count; i++) {
        for (int kind = 0; kind < DAMAGE_COUNT; kind++) {
            const struct tensor whole = d.t[i];
            op_data_copy(&d, &start, c);
            if (damage(&d.t[i], c, i, (enum damage)kind)) {
                const enum status s = op_run(dev, c, &d, &err);
                if (s != STATUS_INVALID && s != STATUS_UNSUPPORTED) {
                    fail_msg("%s on %s: damage %d of %s returned %s", op_cases_name(c),
                             dev->ops->name, kind, c->operands[i].name, status_name(s));
                }
            }
            d.t[i] = whole;
            for (int k = 0; k < c->count; k++) {
                if (d.raw[k] != NULL &&
                    memcmp(d.t[k].data, start.t[k].data, tensor_size_bytes(&d.t[k])) != 0) {
                    fail_msg("%s on %s: a refused call (damage %d of %s) wrote %s",
                             op_cases_name(c), dev->ops->name, kind, c->operands[i].name,
                             c->operands[k].name);
                }
            }
        }
    }
    op_data_destroy(&start);
    op_data_destroy(&d);
}

static void check_refusals(struct device *dev) {
    op_cases_each(DTYPE_F32, refuse, dev);
    if (op_cases_computes(dev, DTYPE_BF16)) {
        op_cases_each(DTYPE_BF16, refuse, dev);
    }
    device_close(dev);
}

TEST(wrong_tensors_are_refused_before_anything_is_written) {
    for (int i = 0; i < OP_CASES_DEVICES; i++) {
        check_refusals(op_cases_open(op_cases_devices[i]));
    }
}

TEST(cuda_refuses_wrong_tensors_before_anything_is_written) {
    check_refusals(op_cases_open_cuda());
}

TEST(cpu_refuses_doubles) {
    struct device *ref = op_cases_open("cpu-ref");
    struct device *cpu = op_cases_open("cpu");
    for (int r = 0; r < op_rows_count; r++) {
        static struct op_case c;
        struct op_data d;
        struct error err = {0};
        op_describe(&c, &op_rows[r], &op_trial_of(&op_rows[r])->sizes[0],
                    op_trial_of(&op_rows[r])->variants[0], DTYPE_F64);
        if (op_rows[r].op == OP_grad_scale || op_rows[r].op == OP_cast) {
            continue; /* no operand of such a call has that type */
        }
        op_cases_make(&d, &c, 0, ref);
        assert_status(op_run(cpu, &c, &d, &err), STATUS_UNSUPPORTED, err);
        op_data_destroy(&d);
    }
    device_close(ref);
    device_close(cpu);
}

/* One call with a wrong parameter or a wrong number in an integer operand. */
static void
refused_after(const char *row, unsigned flags, void (*spoil)(struct op_case *, struct op_data *)) {
    for (int i = 0; i < OP_CASES_DEVICES; i++) {
        struct device *dev = op_cases_open(op_cases_devices[i]);
        static struct op_case c;
        struct op_data d;
        struct op_data before;
        struct error err = {0};
        op_describe(&c, op_row_find(row), &op_trial_of(op_row_find(row))->sizes[1], flags,
                    DTYPE_F32);
        op_cases_make(&d, &c, 0, dev);
        spoil(&c, &d);
        assert_ok(op_data_create(&before, &c, 0, &err), err);
        op_data_copy(&before, &d, &c);
        const enum status s = op_run(dev, &c, &d, &err);
        if (s != STATUS_INVALID) {
            fail_msg("%s on %s was answered %s", op_cases_name(&c), dev->ops->name, status_name(s));
        }
        op_cases_same_bits(&c, &d, &before, "was written by a refused call");
        op_data_destroy(&before);
        op_data_destroy(&d);
        device_close(dev);
    }
}

static int32_t *integers_of(const struct op_case *c, struct op_data *d, const char *name) {
    return d->t[op_operand_find(c, name)].data;
}

static void negative_token(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "tokens")[0] = -1;
}

static void token_too_large(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "tokens")[0] = (int32_t)c->size.v[3];
}

static void empty_text(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "lengths")[1] = 0;
}

static void text_too_long(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "lengths")[0] = (int32_t)(c->size.v[0] * c->size.v[1]) + 1;
}

static void captions_overlap(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "starts")[1] = integers_of(c, d, "starts")[0];
}

static void starts_before(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "starts")[0] = -1;
}

static void ends_after(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "starts")[c->size.v[0] - 1] = (int32_t)(c->size.v[0] * c->size.v[1]);
}

static void row_too_large(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "rows")[0] = (int32_t)c->size.v[1];
}

static void negative_row(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "rows")[1] = -1;
}

static struct conv_params *conv_of(struct op_case *c) {
    return c->row->op == OP_conv_bn ? &c->args.conv_bn.conv : &c->args.conv_bn_bwd.conv;
}

static struct pool_params *pool_of(struct op_case *c) {
    switch (c->row->op) {
    case OP_maxpool:
        return &c->args.maxpool.pool;
    case OP_maxpool_bwd:
        return &c->args.maxpool_bwd.pool;
    case OP_avgpool:
        return &c->args.avgpool.pool;
    default:
        return &c->args.avgpool_bwd.pool;
    }
}

#define SPOIL(name, assignment)                                                                    \
    static void name(struct op_case *c, struct op_data *d) {                                       \
        (void)c;                                                                                   \
        (void)d;                                                                                   \
        assignment;                                                                                \
    }

SPOIL(no_stride, conv_of(c)->stride = 0)
SPOIL(negative_pad, conv_of(c)->pad = -1)
SPOIL(relu_then_gelu, conv_of(c)->act = ACTIVATION_GELU)
SPOIL(no_pool_stride, pool_of(c)->stride = 0)
SPOIL(negative_pool_pad, pool_of(c)->pad = -1)
SPOIL(pad_beyond_half, pool_of(c)->pad = pool_of(c)->kernel)
SPOIL(linear_relu, c->args.linear.act = ACTIVATION_RELU)
SPOIL(linear_bwd_relu, c->args.linear_bwd.act = ACTIVATION_RELU)
/* Zeros of numbers that the caller did not set. */
SPOIL(no_conv_eps, c->args.conv_bn.eps = 0.0f)
static const struct batch_norm_group no_ranks = {0};
SPOIL(group_of_none, c->args.conv_bn.group = &no_ranks)
SPOIL(group_of_none_bwd, c->args.conv_bn_bwd.group = &no_ranks)
SPOIL(no_layernorm_eps, c->args.layernorm.eps = 0.0f)
SPOIL(no_matmul_alpha, c->args.matmul.alpha = 0.0f)
SPOIL(no_add_alpha, c->args.add.alpha = 0.0f)
SPOIL(no_norm, c->args.normalize_u8.norm = NULL)
SPOIL(no_patch, c->args.normalize_u8.patch = 0)
SPOIL(other_patch, c->args.normalize_u8.patch++)
SPOIL(no_table_gradient, d->t[op_operand_find(c, "dtable")].data = NULL)
SPOIL(one_running_statistic, d->t[op_operand_find(c, "running_var")].data = NULL)
SPOIL(too_many_heads, c->args.attention.heads = 2) /* width 5 */
SPOIL(too_many_heads_bwd, c->args.attention_bwd.heads = 2)
SPOIL(attention_all_dropped, c->args.attention.dropout.p = 1.0f)
SPOIL(all_dropped, c->args.dropout.dropout.p = 1.0f)
SPOIL(no_sample_ids, d->t[op_operand_find(c, "sample_ids")].data = NULL)
SPOIL(no_step, d->t[op_operand_find(c, "values")].data = NULL)
SPOIL(no_group_norm_eps, c->args.conv_gn.eps = 0.0f)
SPOIL(groups_without_norm, c->args.conv_gn.groups = 0)
SPOIL(negative_groups, c->args.conv_gn.groups = -1)
SPOIL(other_groups_bwd, c->args.conv_gn_bwd.groups = 3)
SPOIL(no_trust, c->args.lars.trust = 0.0f)
SPOIL(three_sums, c->args.grad_scale.count = 3)

TEST(wrong_numbers_are_refused_before_anything_is_written) {
    refused_after("embedding", 0, negative_token);
    refused_after("embedding", 0, token_too_large);
    refused_after("embedding_bwd", 0, token_too_large);
    static const char *const by_caption[] = {"embedding",       "embedding_bwd", "attention",
                                             "attention_bwd",   "dropout",       "segment_mean",
                                             "segment_mean_bwd"};
    for (size_t i = 0; i < sizeof by_caption / sizeof by_caption[0]; i++) {
        refused_after(by_caption[i], 0, empty_text);
        refused_after(by_caption[i], 0, text_too_long);
        refused_after(by_caption[i], 0, captions_overlap);
        refused_after(by_caption[i], 0, starts_before);
        refused_after(by_caption[i], 0, ends_after);
    }
    refused_after("attention", 0, too_many_heads);
    refused_after("attention_bwd", 0, too_many_heads_bwd);
    refused_after("attention", OP_DROP, attention_all_dropped);
    refused_after("attention_bwd", OP_DROP, no_sample_ids);
    refused_after("gather_rows", 0, row_too_large);
    refused_after("gather_rows", 0, negative_row);
    refused_after("scatter_rows", 0, row_too_large);
    refused_after("scatter_rows", 0, negative_row);
    refused_after("conv_bn", 0, no_stride);
    refused_after("conv_bn", 0, negative_pad);
    refused_after("conv_bn", 0, relu_then_gelu);
    refused_after("conv_bn_bwd", 0, relu_then_gelu);
    refused_after("conv_bn", 0, no_conv_eps);
    refused_after("conv_bn", 0, one_running_statistic);
    refused_after("conv_bn", 0, group_of_none);
    refused_after("conv_bn_bwd", 0, group_of_none_bwd);
    refused_after("maxpool", 0, no_pool_stride);
    refused_after("maxpool_bwd", 0, negative_pool_pad);
    refused_after("maxpool", 0, pad_beyond_half);
    refused_after("avgpool", 0, no_pool_stride);
    refused_after("avgpool_bwd", 0, pad_beyond_half);
    refused_after("linear", 0, linear_relu);
    refused_after("linear_bwd", 0, linear_bwd_relu);
    refused_after("dropout", 0, all_dropped);
    refused_after("dropout", 0, no_sample_ids);
    refused_after("adamw", 0, no_step);
    refused_after("sgdm", 0, no_step);
    refused_after("lars", 0, no_step);
    refused_after("lars", 0, no_trust);
    refused_after("conv_gn", 0, no_group_norm_eps);
    refused_after("conv_gn", 0, groups_without_norm);
    refused_after("conv_gn", OP_ALT, negative_groups);
    refused_after("conv_gn_bwd", 0, other_groups_bwd);
    refused_after("dropout", 0, no_step);
    refused_after("grad_scale", 0, three_sums);
    refused_after("layernorm", 0, no_layernorm_eps);
    refused_after("matmul", 0, no_matmul_alpha);
    refused_after("add", 0, no_add_alpha);
    refused_after("normalize_u8", 0, no_norm);
    refused_after("normalize_u8", 0, no_patch);
    refused_after("normalize_u8", 0, other_patch);
    refused_after("embedding_bwd", 0, no_table_gradient);
}

/* Indices are in device memory: errors in them are reported once, when the results are fetched. */
static void reported_later(const char *row, void (*spoil)(struct op_case *, struct op_data *)) {
    struct device *dev = op_cases_open_cuda();
    static struct op_case c;
    struct op_data d;
    struct error err = {0};
    op_describe(&c, op_row_find(row), &op_trial_of(op_row_find(row))->sizes[1], 0, DTYPE_F32);
    op_cases_make(&d, &c, 0, dev);
    spoil(&c, &d);
    assert_status(op_run(dev, &c, &d, &err), STATUS_INVALID, err);
    op_cases_check_guards(&d, &c);
    err = (struct error){0};
    assert_ok(dev->ops->sync(dev, &err), err);
    op_data_destroy(&d);
    device_close(dev);
}

TEST(cuda_reports_wrong_indices_at_the_next_wait) {
    reported_later("embedding", negative_token);
    reported_later("embedding", token_too_large);
    reported_later("embedding_bwd", token_too_large);
    reported_later("embedding", text_too_long);
    reported_later("attention", text_too_long);
    reported_later("attention_bwd", starts_before);
    reported_later("segment_mean", ends_after);
    reported_later("gather_rows", row_too_large);
    reported_later("gather_rows", negative_row);
    reported_later("scatter_rows", row_too_large);
}

TEST(an_unknown_device_is_refused_with_the_names) {
    struct device *dev;
    struct error err = {0};
    assert_status(device_open(&dev, "abacus", 1, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "cpu-ref"));
}
