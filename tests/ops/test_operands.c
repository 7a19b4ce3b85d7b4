/*
 * The tables of kernels/operands.c describe every tensor of every argument struct. Tests over them
 * notice two operands of the same shape that are swapped in a backend or in a call, such as mean
 * and rstd.
 */
#include <math.h>
#include <string.h>

#include "kernels/operands.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

/* Tensors come first in a struct, and what follows them is smaller than one. */
TEST(every_tensor_of_an_operator_is_described) {
    for (int op = 0; op < OPS_COUNT; op++) {
        const struct op_info *info = op_info(op);
        size_t end = 0;
        for (int32_t i = 0; i < info->operands_count; i++) {
            const struct operand *o = &info->operands[i];
            if (operand_is_tensor(o) && o->offset != end) {
                fail_msg("%s: %s is at %zu, expected %zu", info->name, o->name, o->offset, end);
            }
            end += operand_is_tensor(o) ? sizeof(struct tensor) : 0;
        }
        if (info->args_bytes - end >= sizeof(struct tensor)) {
            fail_msg("%s: %zu bytes after the operands", info->name, info->args_bytes - end);
        }
    }
}

/* ---- swaps ---- */

static bool differ(const struct op_case *c, const struct op_data *a, const struct op_data *b) {
    for (int i = 0; i < c->count; i++) {
        const enum op_role role = c->operands[i].role;
        for (int64_t e = 0; e < tensor_count(&a->t[i]) && a->raw[i] != NULL; e++) {
            const double x = op_value(&a->t[i], e);
            const double y = op_value(&b->t[i], e);
            if (role != ROLE_IN && role != ROLE_WORKSPACE && !(fabs(x - y) <= 0.01 * fabs(y))) {
                return true;
            }
        }
    }
    return false;
}

static bool same_kind(const struct op_case *c, int a, int b) {
    const struct tensor *x = &c->operands[a].shape;
    const struct tensor *y = &c->operands[b].shape;
    return x->ndim > 0 && x->ndim == y->ndim && x->dtype == y->dtype &&
           memcmp(x->shape, y->shape, sizeof x->shape) == 0 && c->operands[a].alias < 0 &&
           c->operands[b].alias < 0;
}

/* Operands whose order has no effect: a layer norm adds its two summands. */
static const struct {
    enum op_id op;
    const char *a, *b;
} interchangeable[] = {{OP_layernorm, "a", "b"}};

static bool may_be_swapped(const struct op_case *c, int a, int b) {
    for (size_t i = 0; i < sizeof interchangeable / sizeof interchangeable[0]; i++) {
        if (c->row->op == interchangeable[i].op &&
            strcmp(c->operands[a].name, interchangeable[i].a) == 0 &&
            strcmp(c->operands[b].name, interchangeable[i].b) == 0) {
            return true;
        }
    }
    return c->operands[a].role == ROLE_WORKSPACE || c->operands[b].role == ROLE_WORKSPACE;
}

/* A call with operands a and b swapped must be refused or give other results. */
static void
swap_two(struct op_case *c, const struct op_data *start, int a, int b, struct device *dev) {
    struct op_data right;
    struct op_data swapped;
    struct error err = {0};
    assert_ok(op_data_create(&right, c, 0, &err), err);
    assert_ok(op_data_create(&swapped, c, 0, &err), err);
    op_data_copy(&right, start, c);
    op_data_copy(&swapped, start, c);
    assert_ok(op_run(dev, c, &right, &err), err);
    struct op_data call = swapped;
    call.t[a] = swapped.t[b];
    call.t[b] = swapped.t[a];
    const enum status s = op_run(dev, c, &call, &err);
    if (s != STATUS_INVALID && !differ(c, &swapped, &right)) {
        fail_msg("%s: nothing changes where %s and %s are swapped", op_cases_name(c),
                 c->operands[a].name, c->operands[b].name);
    }
    op_data_destroy(&right);
    op_data_destroy(&swapped);
}

static void swap_all(struct op_case *c, struct device *dev) {
    struct op_data start;
    op_cases_make(&start, c, 0, dev);
    for (int a = 0; a < c->count; a++) {
        for (int b = a + 1; b < c->count; b++) {
            if (same_kind(c, a, b) && !may_be_swapped(c, a, b)) {
                swap_two(c, &start, a, b, dev);
            }
        }
    }
    op_data_destroy(&start);
}

TEST(swapped_operands_change_the_result) {
    struct device *ref = op_cases_open("cpu-ref");
    for (int r = 0; r < op_rows_count; r++) {
        const struct op_row *row = &op_rows[r];
        for (int v = 0; v < op_trial_of(row)->variants_count; v++) {
            static struct op_case c;
            op_describe(&c, row,
                        &op_trial_of(row)->sizes[op_trial_of(row)->sizes_count > 1 ? 1 : 0],
                        op_trial_of(row)->variants[v], DTYPE_F32);
            swap_all(&c, ref);
        }
    }
    device_close(ref);
}

/* ---- statistics are where their names say, in every backend ---- */

static void check_statistics(const float *x,
                             int64_t count,
                             int64_t step,
                             double eps,
                             double mean_found,
                             double rstd_found) {
    double mean = 0.0;
    double variance = 0.0;
    for (int64_t i = 0; i < count; i++) {
        mean += (double)x[i * step] / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        variance += pow((double)x[i * step] - mean, 2.0) / (double)count;
    }
    assert_true(fabs(mean_found - mean) < 1e-4);
    assert_true(fabs(rstd_found * sqrt(variance + eps) - 1.0) < 1e-4);
}

static const float *floats_of(const struct op_case *c, const struct op_data *d, const char *name) {
    return d->t[op_operand_find(c, name)].data;
}

/* What was normalised (channels or rows of `sum`) against the definition. */
static void check_norm(struct device *dev, const char *row, const struct op_size *size) {
    static struct op_case c;
    struct op_data d;
    struct error err = {0};
    op_describe(&c, op_row_find(row), size, 0, DTYPE_F32);
    op_cases_make(&d, &c, 0, dev);
    assert_ok(op_run(dev, &c, &d, &err), err);
    const float *mean = floats_of(&c, &d, "mean");
    const float *rstd = floats_of(&c, &d, "rstd");
    if (c.row->op == OP_conv_bn) {
        const float *pre = floats_of(&c, &d, "pre");
        const int64_t channels = c.sizes['O'];
        const int64_t rows = c.sizes['N'] * c.sizes['P'] * c.sizes['Q'];
        for (int64_t i = 0; i < channels; i++) {
            check_statistics(pre + i, rows, channels, 1e-5, (double)mean[i], (double)rstd[i]);
        }
    } else {
        const float *sum = floats_of(&c, &d, "sum");
        for (int64_t i = 0; i < c.sizes['M']; i++) {
            check_statistics(sum + i * c.sizes['D'], c.sizes['D'], 1, 1e-5, (double)mean[i],
                             (double)rstd[i]);
        }
    }
    op_data_destroy(&d);
}

TEST(mean_and_rstd_are_not_exchanged) {
    for (int i = 0; i < OP_CASES_DEVICES; i++) {
        struct device *dev = op_cases_open(op_cases_devices[i]);
        check_norm(dev, "conv_bn", &(struct op_size){{2, 5, 7, 3, 17, 3, 1, 1}});
        check_norm(dev, "layernorm", &(struct op_size){{19, 16}});
        device_close(dev);
    }
}
