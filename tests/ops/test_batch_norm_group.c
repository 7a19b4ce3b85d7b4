/*
 * conv_bn with a batch_norm_group: W ranks that each have some images of a batch against one call
 * that has all of them, and gradients against finite differences through the group.
 *
 *     operands with images (N,...) : a rank has its rows of the batch's operand
 *     other inputs                 : shared
 *     mean, rstd, running_*        : a rank's own; afterwards equal bits on all
 *     gradients of parameters      : a rank's own; their sum is compared
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/support/comm_threads.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

enum { MAX_WORLD = 4 };

struct call {
    const struct op_case *c;
    const struct op_data *data; /* of the whole batch */
    const char *device;
    void *own[MAX_WORLD][OP_MAX_OPERANDS]; /* what ranks have of their own; NULL: nothing */
};

static bool has_images(const struct op_operand *o) {
    return o->of->shape[0] == 'N';
}

static enum status
gather(void *cookie, void *all, const void *own, size_t own_bytes, struct error *err) {
    return comm_gather(cookie, all, own, own_bytes, err);
}

/* Images [rank N / W, (rank + 1) N / W): counts differ where W does not divide N. */
static struct tensor images_of(const struct tensor *whole, int64_t rank, int64_t world) {
    struct tensor t = *whole;
    const int64_t from = rank * whole->shape[0] / world;
    const size_t image_bytes = tensor_size_bytes(whole) / (size_t)whole->shape[0];
    t.shape[0] = (rank + 1) * whole->shape[0] / world - from;
    t.data = (unsigned char *)whole->data + (size_t)from * image_bytes;
    return t;
}

static enum status run_rank(struct comm *c, void *cookie, struct error *err) {
    struct call *call = cookie;
    const int32_t rank = comm_rank(c);
    const struct batch_norm_group group = {comm_world(c), gather, c};
    struct tensor t[OP_MAX_OPERANDS];
    union op_args args;
    struct device *dev;
    for (int i = 0; i < call->c->count; i++) {
        t[i] = call->data->t[i];
        if (t[i].data != NULL && has_images(&call->c->operands[i])) {
            t[i] = images_of(&t[i], rank, comm_world(c));
        } else if (call->own[rank][i] != NULL) {
            t[i].data = call->own[rank][i];
        }
    }
    op_case_args(&args, call->c, t);
    if (call->c->row->op == OP_conv_bn) {
        args.conv_bn.group = &group;
    } else {
        args.conv_bn_bwd.group = &group;
    }
    TRY(device_open(&dev, call->device, 1, err));
    const enum status s = op_call(dev, call->c->row->op, &args, err);
    device_close(dev);
    return s;
}

/* Own memory of operand i: rank 0's starts with what the batch's operand holds, and so does every
 * rank's but for gradients, which are summed. */
static void take_own(struct call *call, int i, int world) {
    const struct op_operand *o = &call->c->operands[i];
    const struct tensor *t = &call->data->t[i];
    for (int rank = 0; rank < world; rank++) {
        if (t->data != NULL && !has_images(o) && o->role != ROLE_IN) {
            call->own[rank][i] = calloc(1, tensor_size_bytes(t));
            assert_non_null(call->own[rank][i]);
            if (rank == 0 || o->gradient_of == NULL) {
                memcpy(call->own[rank][i], t->data, tensor_size_bytes(t));
            }
        }
    }
}

/* Into the batch's operand i. */
static void put_own(struct call *call, int i, int world) {
    const struct op_operand *o = &call->c->operands[i];
    const struct tensor *t = &call->data->t[i];
    if (call->own[0][i] == NULL) {
        return;
    }
    for (int rank = 1; rank < world; rank++) {
        if (o->gradient_of == NULL) {
            assert_memory_equal(call->own[rank][i], call->own[0][i], tensor_size_bytes(t));
        }
        for (int64_t e = 0; o->gradient_of != NULL && e < tensor_count(t); e++) {
            if (t->dtype == DTYPE_F64) {
                ((double *)call->own[0][i])[e] += ((double *)call->own[rank][i])[e];
            } else {
                ((float *)call->own[0][i])[e] += ((float *)call->own[rank][i])[e];
            }
        }
    }
    memcpy(t->data, call->own[0][i], tensor_size_bytes(t));
    for (int rank = 0; rank < world; rank++) {
        free(call->own[rank][i]);
    }
}

/* The call on `world` ranks; the results go where one call on the whole batch has them. */
static void
run_group(const struct op_case *c, const struct op_data *data, const char *device, int world) {
    struct call call = {.c = c, .data = data, .device = device};
    struct error err = {0};
    for (int i = 0; i < c->count; i++) {
        take_own(&call, i, world);
    }
    assert_ok(comm_threads_run(world, run_rank, &call, &err), err);
    for (int i = 0; i < c->count; i++) {
        put_own(&call, i, world);
    }
}

/* ---- against one call ---- */

static void compare(const struct op_case *c, const struct op_data *got, const struct op_data *ref) {
    if (c->real != DTYPE_F64) {
        op_cases_compare(c, got, ref);
        return;
    }
    for (int i = 0; i < c->count; i++) {
        const enum op_role role = c->operands[i].role;
        if (got->t[i].data != NULL && role != ROLE_IN && role != ROLE_WORKSPACE) {
            op_cases_compare_norms(c, c->operands[i].name, &got->t[i], &ref->t[i], 1e-12);
        }
    }
}

static void check_case(const struct op_case *c, struct device *dev) {
    struct op_data whole;
    struct error err = {0};
    op_cases_make(&whole, c, 0, dev);
    for (int world = 2; world <= MAX_WORLD && world <= c->size.v[0]; world++) {
        struct op_data parts;
        struct op_data ref;
        assert_ok(op_data_create(&parts, c, 0, &err), err);
        assert_ok(op_data_create(&ref, c, 0, &err), err);
        op_data_copy(&parts, &whole, c);
        op_data_copy(&ref, &whole, c);
        assert_ok(op_run(dev, c, &ref, &err), err);
        run_group(c, &parts, dev->ops->name, world);
        op_cases_check_guards(&parts, c);
        compare(c, &parts, &ref);
        op_data_destroy(&parts);
        op_data_destroy(&ref);
    }
    op_data_destroy(&whole);
}

static void check_rows(const char *name, const char *device, enum dtype real) {
    static const struct op_size sizes[] = {
        {{7, 4, 3, 5, 9, 3, 1, 1}},  /* images that 2, 3 and 4 ranks divide unequally */
        {{2, 5, 7, 3, 17, 3, 2, 1}}, /* a stride */
        {{4, 1, 1, 3, 5, 1, 1, 0}},  /* ranks with one row each */
    };
    static struct op_case c;
    const struct op_row *row = op_row_find(name);
    struct device *dev = op_cases_open(device);
    const size_t sizes_count = op_cases_computes(dev, real) ? sizeof sizes / sizeof sizes[0] : 0;
    for (size_t s = 0; s < sizes_count; s++) {
        for (int v = 0; v < op_trial_of(row)->variants_count; v++) {
            op_describe(&c, row, &sizes[s], op_trial_of(row)->variants[v], real);
            check_case(&c, dev);
        }
    }
    device_close(dev);
    op_cases_fail_where_it_differed();
}

TEST(ranks_normalise_as_one_call_does) {
    check_rows("conv_bn", "cpu-ref", DTYPE_F64);
    check_rows("conv_bn", "cpu-ref", DTYPE_BF16);
    check_rows("conv_bn", "cpu", DTYPE_F32);
    check_rows("conv_bn", "cpu", DTYPE_BF16);
}

TEST(ranks_have_the_gradients_of_one_call) {
    check_rows("conv_bn_bwd", "cpu-ref", DTYPE_F64);
    check_rows("conv_bn_bwd", "cpu-ref", DTYPE_BF16);
    check_rows("conv_bn_bwd", "cpu", DTYPE_F32);
    check_rows("conv_bn_bwd", "cpu", DTYPE_BF16);
}

/* ---- against finite differences ---- */

/* Sum of dout out over all ranks, with element e of operand x changed by `step`. */
static double loss(const struct op_case *f,
                   const struct op_data *start,
                   const struct tensor *dout,
                   int x,
                   int64_t e,
                   double step,
                   int world) {
    struct op_data work;
    struct error err = {0};
    double sum = 0.0;
    assert_ok(op_data_create(&work, f, 0, &err), err);
    op_data_copy(&work, start, f);
    ((double *)work.t[x].data)[e] += step;
    run_group(f, &work, "cpu-ref", world);
    for (int64_t i = 0; i < tensor_count(dout); i++) {
        sum += op_value(dout, i) * op_value(&work.t[0], i);
    }
    op_data_destroy(&work);
    return sum;
}

TEST(gradients_match_finite_differences_through_the_group) {
    enum { WORLD = 3, PROBES = 5 };
    static const struct op_size size = {{4, 3, 2, 2, 3, 2, 1, 1}};
    static const double step = 1e-5;
    static struct op_case f;
    static struct op_case b;
    struct device *dev = op_cases_open("cpu-ref");
    struct op_data start;
    struct op_data got;
    op_describe(&f, op_row_find("conv_bn"), &size, 0, DTYPE_F64);
    op_describe(&b, op_row_find("conv_bn_bwd"), &size, 0, DTYPE_F64);
    op_cases_make(&start, &f, 0, dev);
    op_cases_make(&got, &b, 0, dev);
    run_group(&b, &got, "cpu-ref", WORLD);
    const struct tensor *dout = &got.t[op_operand_find(&b, "dout")];
    int probes_count = 0;
    for (int i = 0; i < b.count; i++) {
        const struct tensor *d = &got.t[i];
        if (b.operands[i].gradient_of == NULL) {
            continue;
        }
        const int x = op_operand_find(&f, b.operands[i].gradient_of);
        for (int64_t e = 0; e < tensor_count(d); e += tensor_count(d) / PROBES + 1) {
            const double slope = (loss(&f, &start, dout, x, e, step, WORLD) -
                                  loss(&f, &start, dout, x, e, -step, WORLD)) /
                                 (2.0 * step);
            if (!(fabs(op_value(d, e) - slope) <= 1e-8 * fmax(op_cases_largest(d), 1.0))) {
                fail_msg("%s[%d] is %.12g, finite differences give %.12g", b.operands[i].name,
                         (int)e, op_value(d, e), slope);
            }
            probes_count++;
        }
    }
    assert_true(probes_count > 4 * 3);
    op_data_destroy(&start);
    op_data_destroy(&got);
    device_close(dev);
}
