/*
 * Five checks of every row of kernels/op_cases/op_rows.c: cpu agrees with the reference, gradients
 * match finite differences, only outputs are written, repeated calls give the same bits, and every
 * table is complete. test_refusals.c checks what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

/* ---- (a) agreement ---- */

struct pair {
    struct device *ref, *other;
};

static void agree(struct op_case *c, void *cookie) {
    const struct pair *p = cookie;
    struct op_data ref;
    struct op_data got;
    struct error err = {0};
    if (!op_available(p->other, c->row->op)) {
        return;
    }
    op_cases_make(&ref, c, 0, p->ref);
    assert_ok(op_data_create(&got, c, 0, &err), err);
    op_data_copy(&got, &ref, c);
    assert_ok(op_run(p->ref, c, &ref, &err), err);
    const enum status s = op_run(p->other, c, &got, &err);
    if (s == STATUS_OK) {
        op_cases_compare(c, &got, &ref);
    } else {
        op_cases_differs(c, "%s", err.text);
    }
    if (s == STATUS_DEVICE) { /* the device cannot be used further in this process */
        fail_msg("%s: %s", op_cases_name(c), err.text);
    }
    op_data_destroy(&ref);
    op_data_destroy(&got);
}

static void check_agreement(struct device *other, enum dtype real) {
    struct pair p = {op_cases_open("cpu-ref"), other};
    if (op_cases_computes(other, real)) {
        op_cases_each(real, agree, &p);
    }
    device_close(p.ref);
    device_close(other);
    op_cases_fail_where_it_differed();
}

TEST(cpu_agrees_with_the_reference) {
    check_agreement(op_cases_open("cpu"), DTYPE_F32);
}

TEST(cpu_agrees_with_the_reference_in_bf16) {
    check_agreement(op_cases_open("cpu"), DTYPE_BF16);
}

TEST(cuda_agrees_with_the_reference) {
    check_agreement(op_cases_open_cuda(), DTYPE_F32);
}

TEST(cuda_agrees_with_the_reference_in_bf16) {
    check_agreement(op_cases_open_cuda(), DTYPE_BF16);
}

/* The same numbers as doubles, which hold bf16 exactly. */
static void widen_operands(struct op_data *wide, const struct op_data *half, struct op_case *c) {
    for (int i = 0; i < c->count; i++) {
        for (int64_t e = 0; half->raw[i] != NULL && e < tensor_count(&half->t[i]); e++) {
            if (wide->t[i].dtype == DTYPE_F64) {
                ((double *)wide->t[i].data)[e] = op_value(&half->t[i], e);
            }
        }
        if (wide->raw[i] != NULL && wide->t[i].dtype == half->t[i].dtype) {
            memcpy(wide->t[i].data, half->t[i].data, tensor_size_bytes(&half->t[i]));
        }
    }
}

/* The tolerance is one rounding step of the norm: intermediate tensors and the result are rounded.
 * Gradients of a batch norm over few values are differences of much larger numbers: sixteen steps.
 * Operands that are bf16 in every call (a cast, a working copy) are not compared. */
static void lies_near_doubles(struct op_case *c, void *cookie) {
    static struct op_case in_doubles;
    struct device *ref = cookie;
    struct op_data half;
    struct op_data wide;
    struct error err = {0};
    const bool differences = c->row->op == OP_conv_bn_bwd;
    const double bar = (differences ? 16.0 : 1.0) * op_rounding_step(c->real);
    op_describe(&in_doubles, c->row, &c->size, c->flags, DTYPE_F64);
    op_cases_make(&half, c, 0, ref);
    assert_ok(op_data_create(&wide, &in_doubles, 0, &err), err);
    widen_operands(&wide, &half, c);
    assert_ok(op_run(ref, c, &half, &err), err);
    assert_ok(op_run(ref, &in_doubles, &wide, &err), err);
    for (int i = 0; i < c->count; i++) {
        const struct op_operand *o = &c->operands[i];
        if (half.raw[i] != NULL && o->role != ROLE_IN && wide.t[i].dtype == DTYPE_F64) {
            op_cases_compare_norms(c, o->name, &half.t[i], &wide.t[i], bar);
        }
    }
    op_data_destroy(&half);
    op_data_destroy(&wide);
}

TEST(the_reference_in_bf16_agrees_with_doubles) {
    struct device *ref = op_cases_open("cpu-ref");
    op_cases_each(DTYPE_BF16, lies_near_doubles, ref);
    device_close(ref);
    op_cases_fail_where_it_differed();
}

/* Another number of threads may split sums differently; results stay within the same tolerance.
 */
TEST(cpu_with_other_numbers_of_threads_agrees_with_the_reference) {
    static const int threads[] = {1, 3};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        struct device *dev;
        struct error err = {0};
        assert_ok(device_open(&dev, "cpu", threads[i], &err), err);
        check_agreement(dev, DTYPE_F32);
    }
}

/* ---- (b) gradients ---- */

/* d/dx of sum dout * out at element `e` of forward operand `x`, by a central difference. */
static double slope(const struct op_case *f,
                    struct op_data *work,
                    const struct op_data *start,
                    int x,
                    int64_t e,
                    const struct tensor *dout,
                    struct device *dev) {
    static const double step = 2e-6;
    struct error err = {0};
    const int64_t count = tensor_count(dout);
    double *plus = calloc((size_t)count, sizeof *plus);
    double sum = 0.0;
    assert_non_null(plus);
    for (int sign = 1; sign >= -1; sign -= 2) {
        op_data_copy(work, start, f);
        ((double *)work->t[x].data)[e] += sign * step;
        assert_ok(op_run(dev, f, work, &err), err);
        for (int64_t i = 0; i < count; i++) {
            const double y = op_value(&work->t[0], i);
            const double weight = op_value(dout, i);
            if (sign > 0) {
                plus[i] = y;
            } else if (!isnan(weight)) { /* NaN: padding, which has no gradient */
                sum += weight * (plus[i] - y);
            }
        }
    }
    free(plus);
    return sum / (2.0 * step);
}

static void check_gradient(const struct op_case *c,
                           const struct op_data *after,
                           const struct op_data *before,
                           int operand,
                           struct device *dev) {
    enum { PROBES = 11 }; /* elements per operand, spread over it */
    const struct op_operand *o = &c->operands[operand];
    const struct tensor *got = &after->t[operand];
    static struct op_case f;
    struct op_data start;
    struct op_data work;
    struct error err = {0};
    op_describe(&f, op_row_find(c->row->forward), &c->size, c->flags & ~(unsigned)OP_ALIAS,
                DTYPE_F64);
    op_cases_make(&start, &f, 0, dev);
    assert_ok(op_data_create(&work, &f, 0, &err), err);
    const int x = op_operand_find(&f, o->gradient_of);
    assert_true(x >= 0 && start.t[x].data != NULL);
    const double bar = op_trial_of(c->row)->tolerance_f64 * fmax(op_cases_largest(got), 1e-3);
    const struct tensor *dout = &before->t[op_operand_find(c, "dout")];
    for (int64_t e = 0; e < tensor_count(got); e += tensor_count(got) / PROBES + 1) {
        const double base = o->added ? op_value(&before->t[operand], e) : 0.0;
        const double expected = base + slope(&f, &work, &start, x, e, dout, dev);
        if (!(fabs(op_value(got, e) - expected) <= bar)) {
            fail_msg("%s: %s[%d] is %.12g, finite differences give %.12g, allowed %.3g",
                     op_cases_name(c), o->name, (int)e, op_value(got, e), expected, bar);
        }
    }
    op_data_destroy(&start);
    op_data_destroy(&work);
}

static void gradients(struct op_case *c, void *cookie) {
    struct device *dev = cookie;
    struct op_data before;
    struct op_data after;
    struct error err = {0};
    if (c->row->forward == NULL) {
        return;
    }
    op_cases_make(&before, c, 0, dev);
    assert_ok(op_data_create(&after, c, 0, &err), err);
    op_data_copy(&after, &before, c);
    assert_ok(op_run(dev, c, &after, &err), err);
    for (int i = 0; i < c->count; i++) {
        if (c->operands[i].gradient_of != NULL && after.t[i].data != NULL) {
            check_gradient(c, &after, &before, i, dev);
        }
    }
    op_data_destroy(&before);
    op_data_destroy(&after);
}

TEST(gradients_match_finite_differences) {
    struct device *ref = op_cases_open("cpu-ref");
    op_cases_each(DTYPE_F64, gradients, ref);
    device_close(ref);
}

/* ---- (c) guards, at aligned and at odd places ---- */

/* One element, but on a GPU a whole vector of 16 bytes, as its libraries require. */
static int odd_place(const struct device *dev) {
    return strcmp(dev->ops->name, "cuda") == 0 ? 8 : 1;
}

static void guarded(struct op_case *c, void *cookie) {
    struct device *dev = cookie;
    for (int shift = 0; op_available(dev, c->row->op) && shift <= odd_place(dev);
         shift += odd_place(dev)) {
        struct op_data d;
        struct op_data before;
        struct error err = {0};
        op_cases_make(&d, c, shift, dev);
        assert_ok(op_data_create(&before, c, shift, &err), err);
        op_data_copy(&before, &d, c);
        assert_ok(op_run(dev, c, &d, &err), err);
        op_cases_check_guards(&d, c);
        op_cases_check_inputs(&d, &before, c);
        op_data_destroy(&d);
        op_data_destroy(&before);
    }
}

static void check_surroundings(struct device *dev) {
    op_cases_each(DTYPE_F32, guarded, dev);
    if (op_cases_computes(dev, DTYPE_BF16)) {
        op_cases_each(DTYPE_BF16, guarded, dev);
    }
    device_close(dev);
}

TEST(only_outputs_are_written) {
    for (int i = 0; i < OP_CASES_DEVICES; i++) {
        check_surroundings(op_cases_open(op_cases_devices[i]));
    }
}

TEST(cuda_writes_only_outputs) {
    check_surroundings(op_cases_open_cuda());
}

/* ---- (d) the same bits ---- */

static void repeat(struct op_case *c, struct device *dev) {
    enum { RUNS = 3 };
    struct op_data start;
    struct op_data first;
    struct error err = {0};
    if (!op_available(dev, c->row->op)) {
        return;
    }
    op_cases_make(&start, c, 0, dev);
    for (int run = 0; run < RUNS; run++) {
        struct op_data d;
        assert_ok(op_data_create(&d, c, 0, &err), err);
        op_data_copy(&d, &start, c);
        assert_ok(op_run(dev, c, &d, &err), err);
        if (run == 0) {
            first = d;
        } else {
            op_cases_same_bits(c, &first, &d, "differs from run to run");
            op_data_destroy(&d);
        }
    }
    op_data_destroy(&first);
    op_data_destroy(&start);
}

static void repeat_case(struct op_case *c, void *cookie) {
    repeat(c, cookie);
}

/* Sizes at which every loop is split over threads. */
static void repeat_large(struct device *dev, enum dtype real) {
    static const struct {
        const char *row;
        struct op_size size;
        unsigned flags;
    } large[] = {{"conv_bn", {{4, 32, 32, 16, 32, 3, 1, 1}}, OP_ACT},
                 {"conv_bn_bwd", {{4, 32, 32, 16, 32, 3, 1, 1}}, OP_ACT | OP_ADD},
                 {"conv_bn_bwd", {{4, 33, 31, 3, 17, 3, 2, 1}}, OP_ACT},
                 {"maxpool_bwd", {{8, 24, 24, 32, 3, 2, 1}}, 0},
                 {"linear_bwd", {{512, 192, 768}}, OP_ACT | OP_ADD},
                 {"embedding_bwd", {{64, 16, 192, 100, 32}}, 0},
                 {"layernorm_bwd", {{1024, 192}}, OP_ADD},
                 {"attention_bwd", {{32, 16, 3, 64}}, OP_DROP},
                 {"sum_squares", {{1000003}}, 0},
                 {"adamw", {{1000003, 5}}, 0},
                 {"lars", {{1000003}}, 0},
                 {"conv_gn", {{4, 32, 32, 16, 32, 3, 1, 1}}, OP_ACT},
                 {"conv_gn_bwd", {{4, 33, 31, 3, 17, 3, 2, 1}}, OP_ACT}};
    static struct op_case c;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        op_describe(&c, op_row_find(large[i].row), &large[i].size, large[i].flags, real);
        repeat(&c, dev);
    }
}

static void check_bits(struct device *dev) {
    op_cases_each(DTYPE_F32, repeat_case, dev);
    repeat_large(dev, DTYPE_F32);
    if (op_cases_computes(dev, DTYPE_BF16)) {
        op_cases_each(DTYPE_BF16, repeat_case, dev);
        repeat_large(dev, DTYPE_BF16);
    }
    device_close(dev);
}

TEST(the_same_call_gives_the_same_bits) {
    check_bits(op_cases_open("cpu"));
}

TEST(the_same_call_gives_the_same_bits_on_cuda) {
    check_bits(op_cases_open_cuda());
}

/* ---- (e) tables and rows are complete ---- */

TEST(no_member_of_a_table_is_missing) {
    const struct ops *tables[] = {ops_cpu_ref(), ops_cpu()};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        assert_string_equal(tables[t]->name, op_cases_devices[t]);
        for (size_t at = 0; at < sizeof *tables[t]; at += sizeof(void *)) {
            void *member;
            memcpy(&member, (const char *)tables[t] + at, sizeof member);
            if (member == NULL) {
                fail_msg("table %s: member %zu is NULL", tables[t]->name, at / sizeof(void *));
            }
        }
    }
}

TEST(every_op_has_a_row) {
    for (int op = 0; op < OPS_COUNT; op++) {
        bool found = false;
        for (int r = 0; r < op_rows_count; r++) {
            found = found || (int)op_rows[r].op == op;
        }
        if (!found) {
            fail_msg("%s has no row in op_rows.c", op_info(op)->name);
        }
    }
    /* and every op that has a gradient has one tested */
    for (int r = 0; r < op_rows_count; r++) {
        const size_t length = strlen(op_rows[r].name);
        if (length > 4 && strcmp(op_rows[r].name + length - 4, "_bwd") == 0) {
            assert_non_null(op_rows[r].forward);
            assert_true(op_trial_of(&op_rows[r])->tolerance_f64 > 0);
        }
        assert_true(op_rows[r].forward == NULL || op_row_find(op_rows[r].forward) != NULL);
    }
}

static void check_memory(struct device *dev) {
    struct error err = {0};
    const size_t sizes[] = {0, 1, 63, 64, 65, 100001, 40000000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        void *data = NULL;
        assert_ok(dev->ops->alloc(dev, sizes[s], &data, &err), err);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % 64, 0);
        unsigned char *host = calloc(sizes[s] + 1, 1);
        unsigned char *back = malloc(sizes[s] + 1);
        assert_true(host != NULL && back != NULL);
        assert_ok(dev->ops->download(dev, back, data, sizes[s], &err), err);
        assert_memory_equal(back, host, sizes[s]);
        memset(host, 0x5c, sizes[s]);
        assert_ok(dev->ops->upload(dev, data, host, sizes[s], &err), err);
        assert_ok(dev->ops->sync(dev, &err), err);
        assert_ok(dev->ops->download(dev, back, data, sizes[s], &err), err);
        assert_memory_equal(back, host, sizes[s]);
        dev->ops->free(dev, data);
        free(host);
        free(back);
    }
    dev->ops->free(dev, NULL);
    device_close(dev);
}

TEST(memory_comes_zeroed_aligned_and_copies) {
    for (int i = 0; i < OP_CASES_DEVICES; i++) {
        check_memory(op_cases_open(op_cases_devices[i]));
    }
}

TEST(memory_of_cuda_comes_zeroed_aligned_and_copies) {
    check_memory(op_cases_open_cuda());
}
