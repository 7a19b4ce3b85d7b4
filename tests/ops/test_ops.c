/*
 * Every row of kernels/rows/op_rows.c, asked six questions: does cpu agree with the reference, is
 * the gradient one, does anything write beside its outputs, are the bits the same twice, is every
 * member of every table there and described, and is a wrong call refused before it writes.
 * test-timeout: 240
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "kernels/rows/op_rows.h"
#include "tests/support/test.h"

static const char *const devices[] = {"cpu-ref", "cpu"};
enum { DEVICES_COUNT = sizeof devices / sizeof devices[0] };

static struct device *open_device(const char *name) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, name, 2, &err), err);
    return dev;
}

/* The GPU; a case without one is skipped with the reason. */
static struct device *open_cuda(void) {
    struct device *dev;
    struct error err = {0};
    if (device_open(&dev, "cuda", 2, &err) != STATUS_OK) {
        test_skip("%s", err.text);
    }
    return dev;
}

/* False, with a word about it, where the machine lacks the type. */
static bool computes(struct device *dev, enum dtype dtype) {
    struct error err = {0};
    const enum status s = dev->ops->supports(dev, dtype, &err);
    if (s == STATUS_OK) {
        return true;
    }
    assert_status(s, STATUS_UNSUPPORTED, err);
    print_message("%s\n", err.text);
    return false;
}

/* "conv_bn 2x5x7 flags 4" for messages. */
static const char *case_name(const struct op_case *c) {
    static char text[160];
    int used = snprintf(text, sizeof text, "%s, size", c->row->name);
    for (int i = 0; i < 8; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, " %d", (int)c->size.v[i]);
    }
    (void)snprintf(text + used, sizeof text - (size_t)used, ", flags %u", c->flags);
    return text;
}

/* Calls `visit` for every row, size and variant. */
static void
each_case(enum dtype real, void (*visit)(struct op_case *c, void *cookie), void *cookie) {
    static struct op_case c;
    for (int r = 0; r < op_rows_count; r++) {
        for (int s = 0; s < op_rows[r].sizes_count; s++) {
            for (int v = 0; v < op_rows[r].variants_count; v++) {
                op_describe(&c, &op_rows[r], &op_rows[r].sizes[s], op_rows[r].variants[v], real);
                visit(&c, cookie);
            }
        }
    }
}

static void make(struct op_data *d, const struct op_case *c, int shift, struct device *dev) {
    struct error err = {0};
    assert_ok(op_data_create(d, c, shift, &err), err);
    assert_ok(op_data_fill(d, c, test_seed(), dev, &err), err);
}

static double largest(const struct tensor *t) {
    double most = 0.0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        most = fmax(most, fabs(op_value(t, i)));
    }
    return most;
}

static void check_guards(const struct op_data *d, const struct op_case *c) {
    const char *broken = op_data_broken_guard(d, c);
    if (broken != NULL) {
        fail_msg("%s: memory beside %s was written", case_name(c), broken);
    }
}

/* Inputs are as they were. */
static void
check_inputs(const struct op_data *d, const struct op_data *before, const struct op_case *c) {
    for (int i = 0; i < c->count; i++) {
        if (d->raw[i] != NULL && c->operands[i].role == ROLE_IN &&
            memcmp(d->t[i].data, before->t[i].data, tensor_size_bytes(&d->t[i])) != 0) {
            fail_msg("%s: input %s was written", case_name(c), c->operands[i].name);
        }
    }
}

/* ---- (a) agreement ---- */

struct pair {
    struct device *ref, *other;
};

/* Elements: within the row's tolerance, measured at least against 1, the size of the inputs: a
 * gradient of batch norm over two values is what rounding leaves of a difference of such. A BF16
 * element may besides be rounded to the neighbour. */
static void compare_elements(const struct op_case *c,
                             const char *name,
                             const struct tensor *got,
                             const struct tensor *ref,
                             double tolerance) {
    static const double bf16_step = 0x1p-7;
    const double size = fmax(largest(ref), 1.0);
    for (int64_t e = 0; e < tensor_count(got); e++) {
        const double x = op_value(got, e);
        const double y = op_value(ref, e);
        const double bar =
            tolerance * size + (got->dtype == DTYPE_BF16 ? bf16_step * fabs(y) : 0.0);
        if (!(fabs(x - y) <= bar)) {
            fail_msg("%s: %s[%d] is %.9g, the reference says %.9g, allowed %.3g", case_name(c),
                     name, (int)e, x, y, bar);
        }
    }
}

/* The whole operand: |got - ref| within the tolerance of |ref|, or of ones. */
static void compare_norms(const struct op_case *c,
                          const char *name,
                          const struct tensor *got,
                          const struct tensor *ref,
                          double tolerance) {
    double difference = 0.0;
    double size = 0.0;
    for (int64_t e = 0; e < tensor_count(got); e++) {
        difference += pow(op_value(got, e) - op_value(ref, e), 2.0);
        size += pow(op_value(ref, e), 2.0);
    }
    size = fmax(size, (double)tensor_count(got));
    if (!(sqrt(difference) <= tolerance * sqrt(size))) {
        fail_msg("%s: %s differs by %.3g of its norm, allowed %.3g", case_name(c), name,
                 sqrt(difference / size), tolerance);
    }
}

static void compare(const struct op_case *c, const struct op_data *got, const struct op_data *ref) {
    for (int i = 0; i < c->count; i++) {
        const struct op_operand *o = &c->operands[i];
        if (got->t[i].data == NULL || o->role == ROLE_IN || o->role == ROLE_SCRATCH) {
            continue;
        }
        if (c->real == DTYPE_BF16) {
            compare_norms(c, o->name, &got->t[i], &ref->t[i], c->row->tolerance_bf16);
            compare_elements(c, o->name, &got->t[i], &ref->t[i], 4.0 * c->row->tolerance_bf16);
        } else {
            compare_elements(c, o->name, &got->t[i], &ref->t[i], c->row->tolerance_f32);
        }
    }
}

static void agree(struct op_case *c, void *cookie) {
    const struct pair *p = cookie;
    struct op_data ref;
    struct op_data got;
    struct error err = {0};
    make(&ref, c, 0, p->ref);
    assert_ok(op_data_create(&got, c, 0, &err), err);
    op_data_copy(&got, &ref, c);
    assert_ok(op_run(p->ref, c, &ref, &err), err);
    assert_ok(op_run(p->other, c, &got, &err), err);
    compare(c, &got, &ref);
    op_data_destroy(&ref);
    op_data_destroy(&got);
}

static void check_agreement(struct device *other, enum dtype real) {
    struct pair p = {open_device("cpu-ref"), other};
    if (computes(other, real)) {
        each_case(real, agree, &p);
    }
    device_close(p.ref);
    device_close(other);
}

TEST(cpu_agrees_with_the_reference) {
    check_agreement(open_device("cpu"), DTYPE_F32);
}

TEST(cpu_agrees_with_the_reference_in_bf16) {
    check_agreement(open_device("cpu"), DTYPE_BF16);
}

TEST(cuda_agrees_with_the_reference) {
    check_agreement(open_cuda(), DTYPE_F32);
}

TEST(cuda_agrees_with_the_reference_in_bf16) {
    check_agreement(open_cuda(), DTYPE_BF16);
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
            } else if (!isnan(weight)) { /* no number: padding, which carries no gradient */
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
    make(&start, &f, 0, dev);
    assert_ok(op_data_create(&work, &f, 0, &err), err);
    const int x = op_operand_find(&f, o->gradient_of);
    assert_true(x >= 0 && start.t[x].data != NULL);
    const double bar = c->row->tolerance_f64 * fmax(largest(got), 1e-3);
    const struct tensor *dout = &before->t[op_operand_find(c, "dout")];
    for (int64_t e = 0; e < tensor_count(got); e += tensor_count(got) / PROBES + 1) {
        const double base = o->added ? op_value(&before->t[operand], e) : 0.0;
        const double expected = base + slope(&f, &work, &start, x, e, dout, dev);
        if (!(fabs(op_value(got, e) - expected) <= bar)) {
            fail_msg("%s: %s[%d] is %.12g, differences say %.12g, allowed %.3g", case_name(c),
                     o->name, (int)e, op_value(got, e), expected, bar);
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
    make(&before, c, 0, dev);
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
    struct device *ref = open_device("cpu-ref");
    each_case(DTYPE_F64, gradients, ref);
    device_close(ref);
}

/* ---- (c) guards, at aligned and at odd places ---- */

/* One element off, but on a GPU a whole vector of 16 bytes: its libraries take nothing else. */
static int odd_place(const struct device *dev) {
    return strcmp(dev->ops->name, "cuda") == 0 ? 8 : 1;
}

static void guarded(struct op_case *c, void *cookie) {
    struct device *dev = cookie;
    for (int shift = 0; shift <= odd_place(dev); shift += odd_place(dev)) {
        struct op_data d;
        struct op_data before;
        struct error err = {0};
        make(&d, c, shift, dev);
        assert_ok(op_data_create(&before, c, shift, &err), err);
        op_data_copy(&before, &d, c);
        assert_ok(op_run(dev, c, &d, &err), err);
        check_guards(&d, c);
        check_inputs(&d, &before, c);
        op_data_destroy(&d);
        op_data_destroy(&before);
    }
}

static void check_surroundings(struct device *dev) {
    each_case(DTYPE_F32, guarded, dev);
    if (computes(dev, DTYPE_BF16)) {
        each_case(DTYPE_BF16, guarded, dev);
    }
    device_close(dev);
}

TEST(nothing_is_written_beside_the_outputs) {
    for (int i = 0; i < DEVICES_COUNT; i++) {
        check_surroundings(open_device(devices[i]));
    }
}

TEST(cuda_writes_nothing_beside_the_outputs) {
    check_surroundings(open_cuda());
}

/* ---- (d) the same bits ---- */

static void same_bits(const struct op_case *c, const struct op_data *a, const struct op_data *b) {
    for (int i = 0; i < c->count; i++) {
        if (a->raw[i] != NULL && c->operands[i].role != ROLE_SCRATCH &&
            memcmp(a->t[i].data, b->t[i].data, tensor_size_bytes(&a->t[i])) != 0) {
            fail_msg("%s: %s differs from run to run", case_name(c), c->operands[i].name);
        }
    }
}

static void repeat(struct op_case *c, struct device *dev) {
    enum { RUNS = 3 };
    struct op_data start;
    struct op_data first;
    struct error err = {0};
    make(&start, c, 0, dev);
    for (int run = 0; run < RUNS; run++) {
        struct op_data d;
        assert_ok(op_data_create(&d, c, 0, &err), err);
        op_data_copy(&d, &start, c);
        assert_ok(op_run(dev, c, &d, &err), err);
        if (run == 0) {
            first = d;
        } else {
            same_bits(c, &first, &d);
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
                 {"adamw", {{1000003, 5}}, 0}};
    static struct op_case c;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        op_describe(&c, op_row_find(large[i].row), &large[i].size, large[i].flags, real);
        repeat(&c, dev);
    }
}

static void check_bits(struct device *dev) {
    each_case(DTYPE_F32, repeat_case, dev);
    repeat_large(dev, DTYPE_F32);
    if (computes(dev, DTYPE_BF16)) {
        each_case(DTYPE_BF16, repeat_case, dev);
        repeat_large(dev, DTYPE_BF16);
    }
    device_close(dev);
}

TEST(the_same_call_gives_the_same_bits) {
    check_bits(open_device("cpu"));
}

TEST(the_same_call_gives_the_same_bits_on_cuda) {
    check_bits(open_cuda());
}

/* ---- (e) tables and rows are complete ---- */

TEST(no_member_of_a_table_is_missing) {
    const struct ops *tables[] = {ops_cpu_ref(), ops_cpu()};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        assert_string_equal(tables[t]->name, devices[t]);
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
    /* name and memory come first and have tests of their own */
    for (size_t at = offsetof(struct ops, fill); at < sizeof(struct ops); at += sizeof(void *)) {
        bool found = false;
        for (int r = 0; r < op_rows_count; r++) {
            found = found || op_rows[r].member == at;
        }
        if (!found) {
            fail_msg("member %zu of struct ops has no row in op_rows.c", at / sizeof(void *));
        }
    }
    /* and every op that has a gradient has one tested */
    for (int r = 0; r < op_rows_count; r++) {
        const size_t length = strlen(op_rows[r].name);
        if (length > 4 && strcmp(op_rows[r].name + length - 4, "_bwd") == 0) {
            assert_non_null(op_rows[r].forward);
            assert_true(op_rows[r].tolerance_f64 > 0);
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
    for (int i = 0; i < DEVICES_COUNT; i++) {
        check_memory(open_device(devices[i]));
    }
}

TEST(memory_of_cuda_comes_zeroed_aligned_and_copies) {
    check_memory(open_cuda());
}

/* ---- (f) refusals ---- */

enum damage { OTHER_SHAPE, OTHER_DTYPE, NO_DATA, FEWER_DIMENSIONS, DAMAGE_COUNT };

/* False where the damage would leave a correct call. */
static bool damage(struct tensor *t, const struct op_case *c, int operand, enum damage kind) {
    const struct op_operand *o = &c->operands[operand];
    if (t->data == NULL || o->on_host) {
        return false;
    }
    switch (kind) {
    case OTHER_SHAPE:
        t->shape[t->ndim - 1]++;
        return !c->row->any_shape;
    case OTHER_DTYPE:
        t->dtype = t->dtype == DTYPE_I32 ? DTYPE_F32 : DTYPE_I32;
        return true;
    case NO_DATA:
        t->data = NULL;
        return !o->optional;
    default:
        t->ndim--;
        return !c->row->any_shape;
    }
}

static void refuse(struct op_case *c, void *cookie) {
    struct device *dev = cookie;
    struct op_data start;
    struct op_data d;
    struct error err = {0};
    make(&start, c, 0, dev);
    assert_ok(op_data_create(&d, c, 0, &err), err);
    for (int i = 0; i < c->count; i++) {
        for (int kind = 0; kind < DAMAGE_COUNT; kind++) {
            const struct tensor whole = d.t[i];
            op_data_copy(&d, &start, c);
            if (damage(&d.t[i], c, i, (enum damage)kind)) {
                const enum status s = op_run(dev, c, &d, &err);
                if (s != STATUS_INVALID && s != STATUS_UNSUPPORTED) {
                    fail_msg("%s on %s: damage %d of %s was answered %s", case_name(c),
                             dev->ops->name, kind, c->operands[i].name, status_name(s));
                }
            }
            d.t[i] = whole;
            for (int k = 0; k < c->count; k++) {
                if (d.raw[k] != NULL &&
                    memcmp(d.t[k].data, start.t[k].data, tensor_size_bytes(&d.t[k])) != 0) {
                    fail_msg("%s on %s: a refused call (damage %d of %s) wrote %s", case_name(c),
                             dev->ops->name, kind, c->operands[i].name, c->operands[k].name);
                }
            }
        }
    }
    op_data_destroy(&start);
    op_data_destroy(&d);
}

static void check_refusals(struct device *dev) {
    each_case(DTYPE_F32, refuse, dev);
    if (computes(dev, DTYPE_BF16)) {
        each_case(DTYPE_BF16, refuse, dev);
    }
    device_close(dev);
}

TEST(wrong_tensors_are_refused_before_anything_is_written) {
    for (int i = 0; i < DEVICES_COUNT; i++) {
        check_refusals(open_device(devices[i]));
    }
}

TEST(cuda_refuses_wrong_tensors_before_anything_is_written) {
    check_refusals(open_cuda());
}

TEST(cpu_refuses_doubles) {
    struct device *ref = open_device("cpu-ref");
    struct device *cpu = open_device("cpu");
    for (int r = 0; r < op_rows_count; r++) {
        static struct op_case c;
        struct op_data d;
        struct error err = {0};
        op_describe(&c, &op_rows[r], &op_rows[r].sizes[0], op_rows[r].variants[0], DTYPE_F64);
        if (op_rows[r].member == offsetof(struct ops, cast)) {
            continue; /* its two types are always the same */
        }
        make(&d, &c, 0, ref);
        assert_status(op_run(cpu, &c, &d, &err), STATUS_UNSUPPORTED, err);
        op_data_destroy(&d);
    }
    device_close(ref);
    device_close(cpu);
}

/* One call with a wrong parameter or a wrong number in an integer operand. */
static void
refused_after(const char *row, unsigned flags, void (*spoil)(struct op_case *, struct op_data *)) {
    for (int i = 0; i < DEVICES_COUNT; i++) {
        struct device *dev = open_device(devices[i]);
        static struct op_case c;
        struct op_data d;
        struct op_data before;
        struct error err = {0};
        op_describe(&c, op_row_find(row), &op_row_find(row)->sizes[1], flags, DTYPE_F32);
        make(&d, &c, 0, dev);
        spoil(&c, &d);
        assert_ok(op_data_create(&before, &c, 0, &err), err);
        op_data_copy(&before, &d, &c);
        assert_status(op_run(dev, &c, &d, &err), STATUS_INVALID, err);
        same_bits(&c, &before, &d);
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

static void ends_behind(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "starts")[c->size.v[0] - 1] = (int32_t)(c->size.v[0] * c->size.v[1]);
}

static void row_too_large(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "rows")[0] = (int32_t)c->size.v[1];
}

static void negative_row(struct op_case *c, struct op_data *d) {
    integers_of(c, d, "rows")[1] = -1;
}

static void no_stride(struct op_case *c, struct op_data *d) {
    (void)d;
    c->conv.stride = c->pool.stride = 0;
}

static void negative_pad(struct op_case *c, struct op_data *d) {
    (void)d;
    c->conv.pad = c->pool.pad = -1;
}

static void pad_beyond_half(struct op_case *c, struct op_data *d) {
    (void)d;
    c->pool.pad = c->pool.kernel;
}

static void wrong_activation(struct op_case *c, struct op_data *d) {
    (void)d;
    c->conv.act = ACTIVATION_GELU;
    c->act = ACTIVATION_RELU;
}

static void inference(struct op_case *c, struct op_data *d) {
    (void)d;
    c->conv.training = false;
}

static void too_many_heads(struct op_case *c, struct op_data *d) {
    (void)d;
    c->attention.heads = 2; /* width 5 */
}

static void all_dropped(struct op_case *c, struct op_data *d) {
    (void)d;
    c->dropout.p = 1.0f;
}

static void nobody_named(struct op_case *c, struct op_data *d) {
    (void)d;
    c->dropout.sample_ids = NULL;
}

static void step_zero(struct op_case *c, struct op_data *d) {
    (void)d;
    c->adamw.step = 0;
}

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
        refused_after(by_caption[i], 0, ends_behind);
    }
    refused_after("attention", 0, too_many_heads);
    refused_after("attention_bwd", 0, too_many_heads);
    refused_after("attention", OP_DROP, all_dropped);
    refused_after("attention_bwd", OP_DROP, nobody_named);
    refused_after("gather_rows", 0, row_too_large);
    refused_after("gather_rows", 0, negative_row);
    refused_after("scatter_rows", 0, row_too_large);
    refused_after("scatter_rows", 0, negative_row);
    refused_after("conv_bn", 0, no_stride);
    refused_after("conv_bn", 0, negative_pad);
    refused_after("conv_bn", 0, wrong_activation);
    refused_after("conv_bn_bwd", 0, inference);
    refused_after("maxpool", 0, no_stride);
    refused_after("maxpool_bwd", 0, negative_pad);
    refused_after("maxpool", 0, pad_beyond_half);
    refused_after("avgpool", 0, no_stride);
    refused_after("avgpool_bwd", 0, pad_beyond_half);
    refused_after("linear", 0, wrong_activation);
    refused_after("linear_bwd", 0, wrong_activation);
    refused_after("dropout", 0, all_dropped);
    refused_after("dropout", 0, nobody_named);
    refused_after("adamw", 0, step_zero);
}

/* Indices lie on the device there: what is wrong with them is told when the results are fetched,
 * and once. */
static void told_later(const char *row, void (*spoil)(struct op_case *, struct op_data *)) {
    struct device *dev = open_cuda();
    static struct op_case c;
    struct op_data d;
    struct error err = {0};
    op_describe(&c, op_row_find(row), &op_row_find(row)->sizes[1], 0, DTYPE_F32);
    make(&d, &c, 0, dev);
    spoil(&c, &d);
    assert_status(op_run(dev, &c, &d, &err), STATUS_INVALID, err);
    check_guards(&d, &c);
    err = (struct error){0};
    assert_ok(dev->ops->sync(dev, &err), err);
    op_data_destroy(&d);
    device_close(dev);
}

TEST(cuda_tells_of_wrong_indices_when_it_is_waited_for) {
    told_later("embedding", negative_token);
    told_later("embedding", token_too_large);
    told_later("embedding_bwd", token_too_large);
    told_later("embedding", text_too_long);
    told_later("attention", text_too_long);
    told_later("attention_bwd", starts_before);
    told_later("segment_mean", ends_behind);
    told_later("gather_rows", row_too_large);
    told_later("gather_rows", negative_row);
    told_later("scatter_rows", row_too_large);
}

TEST(an_unknown_device_is_refused_with_the_names) {
    struct device *dev;
    struct error err = {0};
    assert_status(device_open(&dev, "abacus", 1, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "cpu-ref"));
}
