/*
 * The CUDA module on the host: its operators and its own kernels, compiled as C++ over
 * tests/support/cuda_emulation, against the reference. Proves indices, barriers, orders of sums and
 * edge shapes of every kernel where no GPU is; convolutions run on the module's plain kernels and
 * matrix products on the reference's, for cuDNN and cuBLASLt are not there.
 * test-timeout: 240
 */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/cuda/conv/conv_variant_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/f16.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

static struct device *open_emulated_with(const struct device_options *opt) {
    struct device *dev;
    struct error err = {0};
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    emulation_convolutions(false); /* the module's own */
    assert_ok(cuda_open(&dev, 0, opt, &err), err);
    return dev;
}

static struct device *open_emulated(void) {
    struct device_options opt;
    device_options_default(&opt);
    return open_emulated_with(&opt);
}

static struct device *open_reference(void) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    return dev;
}

/* Shapes that the rows leave out because they are a GPU's: whole vectors, rows beyond what a warp
 * holds, several strips and chunks of a walk, short attention of every size of tile. */
static const struct {
    const char *op;
    struct op_size size;
} more[] = {
    {"attention", {{2, 13, 2, 64}}},
    {"attention", {{2, 33, 1, 64}}},
    {"attention", {{1, 64, 2, 64}}},
    {"attention", {{3, 32, 1, 64}}},
    {"attention", {{1, 65, 1, 64}}},
    {"attention", {{2, 16, 1, 32}}},
    {"conv_bn", {{2, 33, 31, 4, 64, 1, 1, 0}}},
    {"conv_bn", {{1, 40, 40, 3, 7, 1, 1, 0}}},
    {"conv_bn", {{2, 3, 5, 2, 132, 1, 1, 0}}},
    {"conv_bn", {{1, 17, 16, 3, 8, 1, 1, 0}}},
    {"maxpool", {{1, 9, 9, 64, 3, 2, 1}}},
    {"avgpool", {{1, 7, 7, 24, 2, 2, 0}}},
    {"global_avgpool", {{2, 7, 7, 72}}},
    {"linear", {{70, 3, 264}}},
    {"linear", {{300, 2, 40}}},
    {"embedding", {{9, 40, 8, 5, 40}}},
    {"embedding", {{3, 90, 264, 3, 90}}},
    {"layernorm", {{5, 1024}}},
    {"layernorm", {{3, 1032}}},
    {"layernorm", {{2, 1031}}},
    {"layernorm", {{70, 72}}},
    {"layernorm", {{9, 300}}},
    {"dropout", {{3, 7, 264}}},
    {"dropout", {{2, 3, 1030}}},
    {"segment_mean", {{9, 5, 264}}},
    {"gather_rows", {{40, 9, 264}}},
    {"scatter_rows", {{9, 40, 264}}},
    {"l2_normalize", {{9, 264}}},
    {"l2_normalize", {{3, 257}}},
    {"normalize_u8", {{3, 19, 17}}},
};
enum { MORE_COUNT = sizeof more / sizeof more[0] };

/* The plain kernel of a weight's gradient takes a block for each weight: here too slow for many. */
static bool is_heavy(const struct op_case *c) {
    const int weight = op_operand_find(c, "weight");
    return weight >= 0 && c->operands[weight].shape.ndim == 4 &&
           tensor_count(&c->operands[weight].shape) > 300;
}

typedef void visit_case(struct op_case *c, void *cookie);

static void variants(const struct op_row *row,
                     const struct op_size *size,
                     enum dtype real,
                     visit_case *visit,
                     void *cookie) {
    static struct op_case c;
    for (int v = 0; v < row->variants_count; v++) {
        op_describe(&c, row, size, row->variants[v], real);
        if (!is_heavy(&c)) {
            visit(&c, cookie);
        }
    }
}

/* A row's own sizes and those of `more` that name it or its forward row. */
static void each_case(enum dtype real, visit_case *visit, void *cookie) {
    for (int r = 0; r < op_rows_count; r++) {
        const struct op_row *row = &op_rows[r];
        for (int s = 0; s < row->sizes_count; s++) {
            variants(row, &row->sizes[s], real, visit, cookie);
        }
        for (int m = 0; m < MORE_COUNT; m++) {
            if (strcmp(more[m].op, row->name) == 0 ||
                (row->forward != NULL && strcmp(more[m].op, row->forward) == 0)) {
                variants(row, &more[m].size, real, visit, cookie);
            }
        }
    }
}

static double largest(const struct tensor *t) {
    double most = 1.0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        most = fmax(most, fabs(op_value(t, i)));
    }
    return most;
}

/* As tests/ops/test_ops.c compares: of a half element also one step of its own rounding. */
static void compare_operand(const struct op_case *c,
                            const char *name,
                            const struct tensor *got,
                            const struct tensor *ref) {
    const double tolerance =
        (dtype_is_half(c->real) ? 4.0 : 1.0) * op_row_tolerance(c->row, c->real);
    const double step = op_rounding_step(got->dtype);
    const double size = largest(ref);
    for (int64_t e = 0; e < tensor_count(got); e++) {
        const double x = op_value(got, e);
        const double y = op_value(ref, e);
        const double bar = tolerance * size + step * fabs(y);
        if (!(fabs(x - y) <= bar)) {
            fail_msg("%s: %s[%d] is %.9g, the reference says %.9g, allowed %.3g", op_cases_name(c),
                     name, (int)e, x, y, bar);
        }
    }
}

static void compare(const struct op_case *c, const struct op_data *got, const struct op_data *ref) {
    for (int i = 0; i < c->count; i++) {
        const struct op_operand *o = &c->operands[i];
        if (got->t[i].data != NULL && o->role != ROLE_IN && o->role != ROLE_SCRATCH) {
            compare_operand(c, o->name, &got->t[i], &ref->t[i]);
        }
    }
}

struct pair {
    struct device *ref, *emulated;
    bool aligned_only;
    bool one_order; /* of threads: what another type has shown already */
};

/* On the emulated device, at `shift` elements off a vector's boundary, in either order of threads.
 */
static void run_emulated(struct device *dev,
                         const struct op_case *c,
                         struct op_data *out,
                         const struct op_data *start,
                         int shift,
                         bool backwards) {
    struct error err = {0};
    assert_ok(op_data_create(out, c, shift, &err), err);
    op_data_copy(out, start, c);
    emulation_backwards(backwards);
    const enum status s = op_run(dev, c, out, &err);
    if (s != STATUS_OK) {
        fail_msg("%s: %s", op_cases_name(c), err.text);
    }
    assert_ok(dev->ops->sync(dev, &err), err);
    op_cases_check_guards(out, c);
    op_cases_check_inputs(out, start, c);
}

static void agree(struct op_case *c, void *cookie) {
    const struct pair *p = cookie;
    struct op_data start;
    struct op_data ref;
    struct op_data forward;
    struct op_data other;
    struct error err = {0};
    assert_ok(op_data_create(&start, c, 0, &err), err);
    assert_ok(op_data_fill(&start, c, test_seed(), p->ref, &err), err);
    assert_ok(op_data_create(&ref, c, 0, &err), err);
    op_data_copy(&ref, &start, c);
    assert_ok(op_run(p->ref, c, &ref, &err), err);

    run_emulated(p->emulated, c, &forward, &start, 0, false);
    compare(c, &forward, &ref);
    if (!p->one_order) {
        run_emulated(p->emulated, c, &other, &start, 0, true);
        op_cases_same_bits(c, &forward, &other, "depends on the order in which threads run");
        op_data_destroy(&other);
    }
    if (!p->aligned_only) {
        run_emulated(p->emulated, c, &other, &start, 1, false);
        compare(c, &other, &ref);
        op_data_destroy(&other);
    }

    op_data_destroy(&forward);
    op_data_destroy(&ref);
    op_data_destroy(&start);
}

static void agree_in(enum dtype real) {
    struct pair p = {
        .ref = open_reference(), .emulated = open_emulated(), .one_order = real == DTYPE_F16};
    const uint64_t before = emulation_launches_count();
    each_case(real, agree, &p);
    assert_true(emulation_launches_count() > before + 1000);
    device_close(p.ref);
    device_close(p.emulated);
}

TEST(kernels_agree_with_the_reference_in_f32) {
    agree_in(DTYPE_F32);
}

TEST(kernels_agree_with_the_reference_in_bf16) {
    agree_in(DTYPE_BF16);
}

TEST(kernels_agree_with_the_reference_in_f16) {
    agree_in(DTYPE_F16);
}

/* 1x1 convolutions that our own products take: channels of every remainder of a tile, rows that end
 * inside one, several strips, strides that leave pixels out, a batch in several chunks.
 * Each is tried in two of the row's variants in turn, in f16 in one.
 */
static const struct op_size products[] = {
    {{1, 1, 1, 8, 8, 1, 1, 0}},     {{1, 3, 5, 8, 24, 1, 1, 0}},
    {{2, 7, 9, 72, 40, 1, 1, 0}},   {{3, 9, 5, 40, 72, 1, 1, 0}},
    {{2, 9, 8, 136, 64, 1, 1, 0}},  {{1, 9, 9, 64, 136, 1, 1, 0}},
    {{1, 6, 5, 264, 128, 1, 1, 0}}, {{1, 13, 11, 16, 264, 1, 1, 0}},
    {{2, 9, 7, 16, 200, 1, 2, 0}},  {{3, 16, 17, 24, 64, 1, 2, 0}},
    {{2, 8, 10, 8, 16, 1, 3, 0}},   {{3, 17, 18, 8, 8, 1, 1, 0}},
    {{1, 5, 3, 520, 72, 1, 1, 0}},  {{1, 5, 3, 392, 64, 1, 1, 0}},
    {{1, 9, 15, 16, 2048, 1, 1, 0}}};

/* So many rows that a block walks over several tiles and sums over all of them. */
static const struct op_size many_rows = {{1, 261, 261, 8, 8, 1, 1, 0}};

enum { PRODUCTS_COUNT = sizeof products / sizeof products[0] };

static void each_product(const char *op, enum dtype real, visit_case *visit, void *cookie) {
    static struct op_case c;
    const struct op_row *row = op_row_find(op);
    for (int i = 0; i < PRODUCTS_COUNT; i++) {
        for (int k = 0; k < (real == DTYPE_F16 ? 1 : 2); k++) {
            op_describe(&c, row, &products[i], row->variants[(2 * i + k) % row->variants_count],
                        real);
            visit(&c, cookie);
        }
    }
}

static void agree_in_products(const char *op, enum own_convolutions own, enum dtype real) {
    struct device_options opt;
    device_options_default(&opt);
    opt.own_convolutions = own;
    struct pair p = {.ref = open_reference(),
                     .emulated = open_emulated_with(&opt),
                     .aligned_only = true,
                     .one_order = real == DTYPE_F16};
    each_product(op, real, agree, &p);
    device_close(p.ref);
    device_close(p.emulated);
}

TEST(own_products_agree_with_the_reference) {
    agree_in_products("conv_bn", OWN_ALWAYS, DTYPE_BF16);
}

TEST(products_by_wgmma_agree_with_the_reference) {
    agree_in_products("conv_bn", OWN_WGMMA, DTYPE_BF16);
}

TEST(own_sums_agree_with_the_reference_over_many_tiles) {
    static const enum own_convolutions ways[] = {OWN_ALWAYS, OWN_WGMMA};
    static struct op_case c;
    for (int i = 0; i < 2; i++) {
        struct device_options opt;
        device_options_default(&opt);
        opt.own_convolutions = ways[i];
        struct pair p = {
            .ref = open_reference(), .emulated = open_emulated_with(&opt), .aligned_only = true};
        op_describe(&c, op_row_find("conv_bn"), &many_rows, OP_ACT, DTYPE_BF16);
        agree(&c, &p);
        device_close(p.ref);
        device_close(p.emulated);
    }
}

TEST(own_gradients_agree_with_the_reference) {
    agree_in_products("conv_bn_bwd", OWN_ALWAYS, DTYPE_BF16);
}

TEST(gradients_by_wgmma_agree_with_the_reference) {
    agree_in_products("conv_bn_bwd", OWN_WGMMA, DTYPE_BF16);
}

TEST(own_products_and_gradients_agree_with_the_reference_in_f16) {
    agree_in_products("conv_bn", OWN_ALWAYS, DTYPE_F16);
    agree_in_products("conv_bn_bwd", OWN_ALWAYS, DTYPE_F16);
}

TEST(products_and_gradients_by_wgmma_agree_with_the_reference_in_f16) {
    agree_in_products("conv_bn", OWN_WGMMA, DTYPE_F16);
    agree_in_products("conv_bn_bwd", OWN_WGMMA, DTYPE_F16);
}

/* Two units, one behind the other: the second gives its gradient to the first. */
struct unit {
    struct tensor in, weight, pre, out, mean, rstd, gamma, beta;
    struct tensor dweight, dgamma, dbeta, dpre, dout;
    struct conv_bn_params p;
};

struct chain {
    struct unit first, second;
    struct tensor din;
};

struct arena {
    alignas(64) unsigned char bytes[1 << 20];
    size_t used;
};

static struct tensor
carve(struct arena *a, enum dtype t, int64_t n, int64_t h, int64_t w, int64_t c, uint32_t seed) {
    const int64_t shape[4] = {n, h, w, c};
    struct tensor out =
        tensor_view(a->bytes + a->used, t, n == 0 ? 1 : 4, n == 0 ? shape + 3 : shape);
    uint32_t draw = seed * 2654435761u + 12345u;
    assert_true(a->used + tensor_size_bytes(&out) + 64 <= sizeof a->bytes);
    for (int64_t i = 0; i < tensor_count(&out); i++) {
        draw = draw * 1664525u + 1013904223u;
        const float x = seed == 0 ? 1.0f : (float)(draw >> 8) * 0x1p-23f - 1.0f;
        if (dtype_is_half(t)) {
            ((uint16_t *)out.data)[i] = t == DTYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
        } else {
            ((float *)out.data)[i] = x;
        }
    }
    a->used += (tensor_size_bytes(&out) + 63) / 64 * 64;
    return out;
}

static void carve_unit(struct arena *a,
                       struct unit *u,
                       const struct tensor *in,
                       int64_t channels,
                       const struct conv_bn_params *p,
                       uint32_t seed) {
    const int64_t n = in->shape[0];
    const int64_t h = (in->shape[1] - 1) / p->stride + 1;
    const int64_t w = (in->shape[2] - 1) / p->stride + 1;
    struct tensor *const planes[] = {&u->pre, &u->out, &u->dpre, &u->dout};
    struct tensor *const vectors[] = {&u->mean,   &u->rstd,  &u->beta,
                                      &u->dgamma, &u->dbeta, &u->gamma};
    u->in = *in;
    u->p = *p;
    for (int i = 0; i < 4; i++) {
        *planes[i] = carve(a, in->dtype, n, h, w, channels, seed + (uint32_t)i);
    }
    for (int i = 0; i < 6; i++) {
        *vectors[i] = carve(a, DTYPE_F32, 0, 0, 0, channels, i == 5 ? 0 : seed + 10 + (uint32_t)i);
    }
    u->weight = carve(a, in->dtype, channels, 1, 1, in->shape[3], seed + 20);
    u->dweight = carve(a, DTYPE_F32, channels, 1, 1, in->shape[3], seed + 21);
}

static void forward_unit(struct device *dev, const struct unit *u) {
    const struct tensor none = {0};
    struct error err = {0};
    assert_ok(dev->ops->conv_bn(dev, &u->out, &u->pre, &u->mean, &u->rstd, &none, &none, &u->in,
                                &u->weight, &u->gamma, &u->beta, &none, &u->p, &err),
              err);
}

static void backward_unit(struct device *dev,
                          const struct unit *u,
                          const struct tensor *din,
                          enum write_mode din_mode) {
    const struct tensor none = {0};
    struct error err = {0};
    assert_ok(dev->ops->conv_bn_bwd(dev, din, din_mode, &none, WRITE_SET, &u->dweight, &u->dgamma,
                                    &u->dbeta, WRITE_SET, &u->dpre, &u->dout, &u->out, &u->pre,
                                    &u->mean, &u->rstd, &u->in, &u->weight, &u->gamma, &u->p, &err),
              err);
}

struct link {
    int64_t n, h, w, c, middle, k;
    int32_t stride;
    enum write_mode mode;
    enum activation act; /* of the first unit */
};

static void carve_chain(struct arena *a, struct chain *c, const struct link *l, enum dtype real) {
    const struct conv_bn_params first = {
        .stride = 1, .act = l->act, .training = true, .eps = 1e-5f, .momentum = 0.1f};
    struct conv_bn_params second = first;
    second.stride = l->stride;
    second.act = ACTIVATION_RELU;
    const struct tensor in = carve(a, real, l->n, l->h, l->w, l->c, 1);
    carve_unit(a, &c->first, &in, l->middle, &first, 100);
    carve_unit(a, &c->second, &c->first.out, l->k, &second, 200);
    c->din = carve(a, real, l->n, l->h, l->w, l->c, 300);
}

/* Forward by the reference in both; backward with a handoff, which the device may use. */
static void run_chain(struct device *ref,
                      struct device *dev,
                      struct arena *a,
                      struct chain *c,
                      const struct link *l,
                      enum dtype real,
                      bool expected) {
    carve_chain(a, c, l, real);
    forward_unit(ref, &c->first);
    forward_unit(ref, &c->second);
    struct conv_bn_handoff handoff = {.pre = &c->first.pre,
                                      .mean = &c->first.mean,
                                      .rstd = &c->first.rstd,
                                      .act = c->first.p.act};
    c->second.p.give = &handoff;
    backward_unit(dev, &c->second, &c->first.dout, l->mode);
    assert_int_equal(handoff.given, expected);
    c->first.p.take = &handoff;
    backward_unit(dev, &c->first, &c->din, WRITE_SET);
    assert_false(handoff.given);
}

/* Normwise, as gradients of sums over many roundings are compared. */
static void
near_in_norm(const struct tensor *got, const struct tensor *ref, double bar, const char *name) {
    double difference = 0.0;
    double size = 0.0;
    for (int64_t i = 0; i < tensor_count(ref); i++) {
        difference += pow(op_value(got, i) - op_value(ref, i), 2.0);
        size += pow(op_value(ref, i), 2.0);
    }
    if (!(sqrt(difference) <= bar * sqrt(size))) {
        fail_msg("%s: off by %.3g of its norm", name, sqrt(difference / size));
    }
}

static void hand_over(enum own_convolutions own, enum dtype real) {
    static const struct link links[] = {{2, 9, 7, 16, 24, 40, 1, WRITE_SET, ACTIVATION_RELU},
                                        {2, 9, 7, 16, 24, 40, 1, WRITE_ADD, ACTIVATION_RELU},
                                        {1, 13, 12, 8, 136, 72, 1, WRITE_ADD, ACTIVATION_NONE},
                                        {3, 9, 8, 16, 72, 16, 2, WRITE_SET, ACTIVATION_RELU},
                                        {3, 9, 8, 16, 72, 16, 2, WRITE_ADD, ACTIVATION_RELU}};
    static struct arena ours, theirs, again;
    struct device_options opt;
    device_options_default(&opt);
    opt.own_convolutions = own;
    opt.autotune = own == OWN_WHERE_FASTER;
    struct device *ref = open_reference();
    struct device *dev = open_emulated_with(&opt);
    const double bar = real == DTYPE_F16 ? 8e-4 : 6e-3;
    const size_t first = opt.autotune ? 1 : 0; /* of which there are many runs: one */
    const size_t end = opt.autotune ? 2 : sizeof links / sizeof links[0];
    for (size_t i = first; i < end; i++) {
        struct chain got;
        struct chain same;
        struct chain want;
        ours.used = theirs.used = again.used = 0;
        emulation_backwards(false);
        run_chain(ref, dev, &ours, &got, &links[i], real, true);
        run_chain(ref, ref, &theirs, &want, &links[i], real, false);
        near_in_norm(&got.din, &want.din, bar, "din");
        near_in_norm(&got.first.dweight, &want.first.dweight, bar, "first dweight");
        near_in_norm(&got.first.dgamma, &want.first.dgamma, bar, "first dgamma");
        near_in_norm(&got.first.dbeta, &want.first.dbeta, bar, "first dbeta");
        near_in_norm(&got.second.dweight, &want.second.dweight, bar, "second dweight");
        emulation_backwards(true);
        run_chain(ref, dev, &again, &same, &links[i], real, true);
        assert_memory_equal(again.bytes, ours.bytes, ours.used);
    }
    device_close(ref);
    device_close(dev);
}

TEST(gradients_handed_over_are_those_of_two_units) {
    hand_over(OWN_ALWAYS, DTYPE_BF16);
    hand_over(OWN_ALWAYS, DTYPE_F16);
}

TEST(gradients_handed_over_by_wgmma_are_those_of_two_units) {
    hand_over(OWN_WGMMA, DTYPE_BF16);
    hand_over(OWN_WGMMA, DTYPE_F16);
}

/* Fewer launches take less time here: what agrees is chosen. */
TEST(gradients_handed_over_where_faster_are_those_of_two_units) {
    hand_over(OWN_WHERE_FASTER, DTYPE_BF16);
}

TEST(variants_are_chosen_by_their_time) {
    struct device_options opt;
    device_options_default(&opt);
    opt.autotune = true;
    struct pair p = {
        .ref = open_reference(), .emulated = open_emulated_with(&opt), .aligned_only = true};
    static struct op_case c;
    static const char *const ops[] = {"conv_bn", "conv_bn_bwd"};
    for (int i = 0; i < 4; i++) {
        op_describe(&c, op_row_find(ops[i / 2]), &products[1], OP_ACT | (i == 3 ? OP_ADD : 0),
                    DTYPE_BF16);
        agree(&c, &p);
    }
    device_close(p.ref);
    device_close(p.emulated);
}

/* A trial whose variants write numbers of the test's own. */
struct made_up {
    float result[3][300], sums[3][4]; /* by variant */
    float before[300], mask[300];
    float got[300], got_sums[4];
    int runs[VARIANTS_COUNT];
    bool adds;
};

static enum status run_made_up(struct cuda_device *dev,
                               enum conv_variant variant,
                               const void *cookie,
                               struct error *err) {
    struct made_up *m = (struct made_up *)(uintptr_t)cookie;
    const int v = variant == VARIANT_LIBRARY ? 0 : variant == VARIANT_OWN ? 1 : 2;
    (void)dev;
    (void)err;
    for (int i = 0; i < 300; i++) {
        m->got[i] = (m->adds ? m->got[i] : 0.0f) + m->result[v][i];
    }
    memcpy(m->got_sums, m->sums[v], sizeof m->got_sums);
    m->runs[variant]++;
    return STATUS_OK;
}

/* Which of the own variants ran again after the comparison, to be timed: a set. */
static conv_variants timed_of(struct device *dev, struct made_up *m, bool masked) {
    const struct conv_problem p = {.pass = CONV_DATA, .dtype = DTYPE_F32, .n = 1, .h = 1, .w = 300};
    const conv_variants takers =
        conv_variant_bit(VARIANT_OWN, true) | conv_variant_bit(VARIANT_WGMMA, true);
    const struct conv_variant_trial trial = {
        .run = run_made_up,
        .cookie = m,
        .outputs = {{.name = "the numbers",
                     .data = m->got,
                     .dtype = DTYPE_F32,
                     .count = 300,
                     .mask = masked ? m->mask : NULL,
                     .before = m->adds ? m->before : NULL},
                    {.name = "the sums", .data = m->got_sums, .dtype = DTYPE_F32, .count = 4}},
        .outputs_count = 2};
    enum conv_variant chosen;
    conv_variants timed = 0;
    memset(m->runs, 0, sizeof m->runs);
    assert_int_equal(
        conv_variant_choose(cuda_of(dev), &chosen, &p, "made up", takers, &trial, NULL), STATUS_OK);
    assert_true(m->runs[VARIANT_LIBRARY] > 1);
    for (int v = 1; v < VARIANTS_COUNT; v++) {
        timed |= conv_variant_bit((enum conv_variant)v, m->runs[v] > 1);
    }
    assert_true(chosen == VARIANT_LIBRARY || (timed & conv_variant_bit(chosen, true)) != 0);
    return timed;
}

static void make_up(struct made_up *m) {
    memset(m, 0, sizeof *m);
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 300; i++) {
            m->result[v][i] = (float)(i % 17) - 8.0f;
            m->mask[i] = (float)(i % 3);
            m->before[i] = 0.5f * (float)(i % 7);
        }
        for (int i = 0; i < 4; i++) {
            m->sums[v][i] = 100.0f + (float)i;
        }
    }
}

TEST(a_variant_that_disagrees_is_not_chosen) {
    static struct made_up m;
    const conv_variants own = conv_variant_bit(VARIANT_OWN, true);
    const conv_variants wgmma = conv_variant_bit(VARIANT_WGMMA, true);
    struct device_options opt;
    device_options_default(&opt);
    opt.autotune = true;
    struct device *dev = open_emulated_with(&opt);
    make_up(&m);
    assert_int_equal(timed_of(dev, &m, false), own | wgmma);
    m.result[1][299] += 1.0f; /* one element */
    assert_int_equal(timed_of(dev, &m, false), wgmma);
    m.result[2][0] = NAN;
    assert_int_equal(timed_of(dev, &m, false), 0);
    make_up(&m);
    m.sums[2][3] *= 1.1f;
    assert_int_equal(timed_of(dev, &m, false), own);
    make_up(&m);
    for (int i = 0; i < 300; i++) { /* every element a little */
        m.result[1][i] *= 1.01f;
        m.result[2][i] *= 1.001f;
    }
    assert_int_equal(timed_of(dev, &m, false), wgmma);
    make_up(&m);
    memset(m.result[0], 0, sizeof m.result); /* nothing to compare with */
    assert_int_equal(timed_of(dev, &m, false), 0);
    make_up(&m);
    for (int i = 0; i < 300; i += 3) { /* ours masks what cuDNN's way leaves */
        m.result[1][i] = 0.0f;
    }
    assert_int_equal(timed_of(dev, &m, true), own);
    make_up(&m);
    m.adds = true; /* to the same, whatever ran before */
    assert_int_equal(timed_of(dev, &m, false), own | wgmma);
    device_close(dev);
}

TEST(no_member_of_the_table_is_missing) {
    const struct ops *table = ops_cuda();
    for (size_t at = 0; at < sizeof *table; at += sizeof(void *)) {
        void *member;
        memcpy(&member, (const char *)table + at, sizeof member);
        if (member == NULL) {
            fail_msg("member %zu of the table cuda is NULL", at / sizeof(void *));
        }
    }
}

/* INVALID at the next wait, once. */
static void
expect_fault(struct device *dev, enum status of_the_call, const struct error *call_err) {
    struct error err = {0};
    assert_ok(of_the_call, *call_err);
    assert_status(dev->ops->sync(dev, &err), STATUS_INVALID, err);
    assert_ok(dev->ops->sync(dev, &err), err);
}

TEST(indices_out_of_range_are_told_at_the_next_wait) {
    enum { WIDTH = 8, ROWS = 4, CAPTIONS = 2 };
    static float in[ROWS * 3 * WIDTH];
    static float out[ROWS * WIDTH];
    static float probs[CAPTIONS * 2 * 2];
    int32_t bad_rows[] = {0, -1};
    int32_t bad_tokens[ROWS] = {0, 1, 1 << 30, 0};
    int32_t starts[CAPTIONS] = {0, 2};
    int32_t lengths[CAPTIONS] = {2, 2};
    int32_t long_lengths[CAPTIONS] = {2, 3};
    struct device *dev = open_emulated();
    struct error err = {0};
    const struct ops *ops = dev->ops;
    const struct tensor moved = tensor_2d(out, DTYPE_F32, 2, WIDTH);
    const struct tensor table = tensor_2d(in, DTYPE_F32, 3, WIDTH);
    const struct tensor rows = tensor_1d(bad_rows, DTYPE_I32, 2);
    expect_fault(dev, ops->gather_rows(dev, &moved, &table, &rows, &err), &err);
    expect_fault(dev, ops->scatter_rows(dev, &table, WRITE_SET, &moved, &rows, &err), &err);

    const struct tensor first = tensor_1d(starts, DTYPE_I32, CAPTIONS);
    const struct tensor count = tensor_1d(lengths, DTYPE_I32, CAPTIONS);
    const struct tensor past_the_rows = tensor_1d(long_lengths, DTYPE_I32, CAPTIONS);
    const struct segments good = {&first, &count};
    const struct segments bad = {&first, &past_the_rows};
    const struct tensor states = tensor_2d(out, DTYPE_F32, ROWS, WIDTH);
    const struct tensor tokens = tensor_1d(bad_tokens, DTYPE_I32, ROWS);
    expect_fault(dev, ops->embedding(dev, &states, &tokens, &good, &table, &table, &err), &err);
    expect_fault(dev,
                 ops->embedding_bwd(dev, &table, &table, WRITE_ADD, &states, &tokens, &good, &err),
                 &err);
    const struct tensor qkv = tensor_2d(in, DTYPE_F32, ROWS, 3 * WIDTH);
    const struct tensor weights = tensor_4d(probs, DTYPE_F32, CAPTIONS, 1, 2, 2);
    const struct attention_params one_head = {.heads = 1};
    expect_fault(dev, ops->attention(dev, &states, &weights, &qkv, &bad, &one_head, &err), &err);
    const struct tensor means = tensor_2d(in, DTYPE_F32, CAPTIONS, WIDTH);
    expect_fault(dev, ops->segment_mean(dev, &means, &states, &bad, &err), &err);
    device_close(dev);
}

/* A mean of 100 deviations: E[x^2] - E[x]^2 in f32 would have no digit left. */
TEST(statistics_survive_a_mean_of_a_hundred_deviations) {
    enum { ROWS = 5000, CHANNELS = 8 };
    static float x[ROWS * CHANNELS];
    float mean[CHANNELS];
    float rstd[CHANNELS];
    uint32_t draw = 1;
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        draw = draw * 1664525u + 1013904223u;
        x[i] = 100.0f * (float)(1 + i % CHANNELS) + (float)(draw >> 8) * 0x1p-24f * 3.46f;
    }
    device_close(open_emulated()); /* or skip */
    void *workspace = malloc(launch_batch_norm_statistics_workspace_bytes(ROWS, CHANNELS));
    assert_non_null(workspace);
    assert_int_equal(launch_batch_norm_statistics(NULL, DTYPE_F32, mean, rstd, NULL, NULL, x, ROWS,
                                                  CHANNELS, 0.0f, 0.1f, workspace),
                     cudaSuccess);
    free(workspace);
    for (int c = 0; c < CHANNELS; c++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int r = 0; r < ROWS; r++) {
            sum += (double)x[r * CHANNELS + c] / ROWS;
        }
        for (int r = 0; r < ROWS; r++) {
            squares += pow((double)x[r * CHANNELS + c] - sum, 2.0) / ROWS;
        }
        assert_true(fabs((double)mean[c] - sum) <= 1e-7 * sum);
        assert_true(fabs((double)rstd[c] * sqrt(squares) - 1.0) <= 1e-5);
    }
}
