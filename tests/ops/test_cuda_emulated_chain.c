/*
 * Units of convolution and batch norm behind each other on the emulated CUDA device. Results that
 * one leaves to the next (struct conv_bn_deferral): the bits are those of units that write
 * everything themselves, forward and backward, and near the reference's; what is left to the reader
 * is not written, and nothing beside the results is. And plans with channel sums: what is made of
 * them, and that they are compared before they are taken.
 * test-timeout: 120
 */
#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "kernels/f16.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/op_cases.h"
#include "tests/support/test.h"

enum { ARENA_BYTES = 1 << 20, GUARD_BYTES = 64, POISON = 0x7b };

/* Tensors one after the other, with guard zones between them. */
struct arena {
    alignas(64) unsigned char bytes[ARENA_BYTES];
    size_t used;
};

struct unit {
    struct tensor in, weight, pre, out, mean, rstd, gamma, beta, running_mean, running_var;
    struct tensor dweight, dgamma, dbeta, dpre, dout, din;
    struct conv_bn_params p;
};

/* How the second unit reads the first one's out. */
enum reading { AS_IN, AS_RESIDUAL };

struct shape {
    int64_t n, h, w, c, k, o; /* channels before, between and after */
    enum reading reading;
    enum activation act; /* of the first unit */
};

static const struct shape shapes[] = {{2, 9, 7, 8, 64, 64, AS_RESIDUAL, ACTIVATION_NONE},
                                      {1, 5, 5, 3, 7, 7, AS_RESIDUAL, ACTIVATION_NONE},
                                      {2, 3, 5, 2, 132, 132, AS_RESIDUAL, ACTIVATION_NONE},
                                      {2, 9, 7, 8, 24, 24, AS_IN, ACTIVATION_RELU},
                                      {1, 5, 6, 3, 9, 9, AS_IN, ACTIVATION_RELU},
                                      {3, 4, 4, 8, 16, 16, AS_IN, ACTIVATION_NONE}};
enum { SHAPES_COUNT = sizeof shapes / sizeof shapes[0] };

/* For products of our own: several tiles of 128 rows and of 128 or 64 columns, the last ones not
 * whole, more steps along the channels than there are stages, and a last one that is not whole; and
 * more tiles of columns than a product takes an in for. */
static const struct shape tiled_shapes[] = {{1, 13, 10, 8, 200, 136, AS_IN, ACTIVATION_RELU},
                                            {1, 7, 5, 8, 64, 264, AS_IN, ACTIVATION_NONE},
                                            {1, 13, 11, 16, 72, 40, AS_IN, ACTIVATION_RELU},
                                            {1, 2, 3, 8, 16, 520, AS_IN, ACTIVATION_RELU}};
enum { TILED_SHAPES_COUNT = sizeof tiled_shapes / sizeof tiled_shapes[0] };

static void put_value(const struct tensor *t, int64_t i, float x) {
    switch (t->dtype) {
    case DTYPE_BF16:
        ((uint16_t *)t->data)[i] = bf16_from_f32(x);
        break;
    case DTYPE_F16:
        ((uint16_t *)t->data)[i] = f16_from_f32(x);
        break;
    default:
        ((float *)t->data)[i] = x;
    }
}

static struct tensor
carve(struct arena *a, enum dtype t, int32_t ndim, const int64_t *shape, uint32_t seed) {
    struct tensor out = tensor_view(a->bytes + a->used, t, ndim, shape);
    const size_t bytes = (tensor_size_bytes(&out) + 63) / 64 * 64;
    uint32_t draw = seed * 2654435761u + 12345u;
    assert_true(a->used + bytes + GUARD_BYTES <= sizeof a->bytes);
    memset(out.data, POISON, bytes + GUARD_BYTES);
    for (int64_t i = 0; seed != 0 && i < tensor_count(&out); i++) {
        draw = draw * 1664525u + 1013904223u;
        put_value(&out, i, (float)(draw >> 8) * 0x1p-23f - 1.0f);
    }
    a->used += bytes + GUARD_BYTES;
    return out;
}

static bool is_poison(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != POISON) {
            return false;
        }
    }
    return true;
}

static void no_guard_is_written(const struct tensor *t) {
    const size_t bytes = tensor_size_bytes(t);
    assert_true(
        is_poison((unsigned char *)t->data + bytes, (bytes + 63) / 64 * 64 - bytes + GUARD_BYTES));
}

/* Of stride 1. What is computed starts as poison. */
static void carve_unit(struct arena *a,
                       struct unit *u,
                       const struct tensor *in,
                       int64_t k,
                       int64_t kernel,
                       uint32_t seed) {
    const enum dtype real = in->dtype;
    const int64_t plane[4] = {in->shape[0], in->shape[1], in->shape[2], k};
    const int64_t weight[4] = {k, kernel, kernel, in->shape[3]};
    u->in = *in;
    u->pre = carve(a, real, 4, plane, 0);
    u->out = carve(a, real, 4, plane, 0);
    u->dpre = carve(a, real, 4, plane, 0);
    u->din = carve(a, real, 4, in->shape, 0);
    u->dout = carve(a, real, 4, plane, seed);
    u->weight = carve(a, real, 4, weight, seed + 1);
    u->dweight = carve(a, DTYPE_F32, 4, weight, 0);
    struct tensor *const computed[] = {&u->mean, &u->rstd, &u->dgamma, &u->dbeta};
    struct tensor *const given[] = {&u->gamma, &u->beta, &u->running_mean, &u->running_var};
    for (int i = 0; i < 4; i++) {
        *computed[i] = carve(a, DTYPE_F32, 1, &k, 0);
        *given[i] = carve(a, DTYPE_F32, 1, &k, seed + 2 + (uint32_t)i);
    }
    u->p = (struct conv_bn_params){.stride = 1,
                                   .pad = (int32_t)(kernel / 2),
                                   .training = true,
                                   .eps = 1e-5f,
                                   .momentum = 0.1f};
}

static enum status forward(struct device *dev,
                           const struct unit *u,
                           const struct tensor *residual,
                           struct error *err) {
    return dev->ops->conv_bn(dev, &u->out, &u->pre, &u->mean, &u->rstd, &u->running_mean,
                             &u->running_var, &u->in, &u->weight, &u->gamma, &u->beta, residual,
                             &u->p, err);
}

static void backward(struct device *dev, const struct unit *u, const struct tensor *dresidual) {
    struct error err = {0};
    assert_ok(dev->ops->conv_bn_bwd(dev, &u->din, WRITE_SET, dresidual, WRITE_SET, &u->dweight,
                                    &u->dgamma, &u->dbeta, WRITE_SET, &u->dpre, &u->dout, &u->out,
                                    &u->pre, &u->mean, &u->rstd, &u->in, &u->weight, &u->gamma,
                                    &u->p, &err),
              err);
}

struct chain {
    struct unit first, second;
    uint64_t launches; /* of the second's forward pass */
};

/* Forward through two units. */
static void run_forward(struct device *dev,
                        struct arena *a,
                        struct chain *c,
                        const struct shape *s,
                        enum dtype real,
                        bool deferred) {
    static const struct tensor none = {0};
    struct conv_bn_deferral deferral = {0};
    struct error err = {0};
    const int64_t shape[4] = {s->n, s->h, s->w, s->c};
    const bool as_in = s->reading == AS_IN;
    a->used = 0;
    const struct tensor in = carve(a, real, 4, shape, 1);
    carve_unit(a, &c->first, &in, s->k, 1, 100);
    carve_unit(a, &c->second, as_in ? &c->first.out : &in, s->o, 1, 200);
    c->first.p.act = s->act;
    c->second.p.act = ACTIVATION_RELU;
    if (deferred) {
        c->first.p.defer = &deferral;
        *(as_in ? &c->second.p.take_in : &c->second.p.take_residual) = &deferral;
    }
    assert_ok(forward(dev, &c->first, &none, &err), err);
    assert_int_equal(deferral.given, deferred);
    assert_int_equal(is_poison(c->first.out.data, tensor_size_bytes(&c->first.out)), deferred);
    c->launches = emulation_launches_count();
    assert_ok(forward(dev, &c->second, as_in ? &none : &c->first.out, &err), err);
    c->launches = emulation_launches_count() - c->launches;
    assert_false(deferral.given);
    assert_int_equal(is_poison(c->first.out.data, tensor_size_bytes(&c->first.out)),
                     deferred && !as_in);
    no_guard_is_written(&c->first.out);
    no_guard_is_written(&c->second.out);
}

/* And back. */
static void run_chain(struct device *dev,
                      struct arena *a,
                      struct chain *c,
                      const struct shape *s,
                      enum dtype real,
                      bool deferred) {
    static const struct tensor none = {0};
    const bool as_in = s->reading == AS_IN;
    run_forward(dev, a, c, s, real, deferred);
    c->first.dout = as_in ? c->second.din : c->first.dout;
    backward(dev, &c->second, as_in ? &none : &c->first.dout);
    backward(dev, &c->first, &none);
}

static void near_in_norm(const struct tensor *got, const struct tensor *ref, double tolerance) {
    double difference = 0.0;
    double size = 0.0;
    for (int64_t i = 0; i < tensor_count(ref); i++) {
        difference += pow(op_value(got, i) - op_value(ref, i), 2.0);
        size += pow(op_value(ref, i), 2.0);
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size))) {
        fail_msg("off by %.3g of its norm", sqrt(difference / size));
    }
}

static void same_bits(const struct tensor *got, const struct tensor *want) {
    assert_memory_equal(got->data, want->data, tensor_size_bytes(want));
}

static void same_forward(const struct chain *got, const struct chain *want, enum reading reading) {
    same_bits(&got->second.pre, &want->second.pre);
    same_bits(&got->second.out, &want->second.out);
    same_bits(&got->second.mean, &want->second.mean);
    same_bits(&got->second.rstd, &want->second.rstd);
    same_bits(&got->second.running_var, &want->second.running_var);
    if (reading == AS_IN) {
        same_bits(&got->first.out, &want->first.out);
    }
}

static void same_chain(const struct chain *got, const struct chain *want, enum reading reading) {
    same_forward(got, want, reading);
    same_bits(&got->second.dweight, &want->second.dweight);
    same_bits(&got->first.dweight, &want->first.dweight);
    same_bits(&got->first.dgamma, &want->first.dgamma);
    same_bits(&got->first.din, &want->first.din);
}

static struct device *open_emulated(const struct device_options *opt) {
    struct device *dev;
    struct error err = {0};
    if (test_sanitizer()[0] != '\0') {
        test_skip("sanitizers do not follow jumps between the stacks of fibers");
    }
    assert_ok(cuda_open(&dev, 0, opt, &err), err);
    return dev;
}

static struct device *open_reference(void) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    return dev;
}

/* Whether the second unit's product makes its in by itself. */
static bool is_taken_by_product(const struct shape *s, enum dtype real, enum own_convolutions own) {
    return s->reading == AS_IN && dtype_is_half(real) && own != OWN_WHERE_FASTER && s->k % 8 == 0 &&
           s->o <= 512;
}

static void deferred_is_the_same_at(struct device *dev,
                                    struct device *ref,
                                    const struct shape *s,
                                    enum dtype real,
                                    enum own_convolutions own,
                                    double tolerance) {
    static struct arena ours, theirs;
    for (int backwards = 0; backwards < 2; backwards++) {
        struct chain got;
        struct chain want;
        emulation_backwards(backwards != 0);
        run_chain(dev, &ours, &got, s, real, true);
        run_chain(dev, &theirs, &want, s, real, false);
        same_chain(&got, &want, s->reading);
        const bool by_a_pass = s->reading == AS_IN && !is_taken_by_product(s, real, own);
        assert_int_equal(got.launches, want.launches + by_a_pass);
        run_chain(ref, &theirs, &want, s, real, false);
        near_in_norm(&got.second.out, &want.second.out, tolerance);
        near_in_norm(&got.first.din, &want.first.din, tolerance);
        near_in_norm(&got.first.dweight, &want.first.dweight, tolerance);
    }
    emulation_backwards(false);
}

static void deferred_forward_is_the_same(struct device *dev,
                                         struct device *ref,
                                         const struct shape *s,
                                         enum dtype real,
                                         enum own_convolutions own,
                                         double tolerance) {
    static struct arena ours, theirs;
    const int orders = real == DTYPE_F16 ? 1 : 2; /* copies do not know the type */
    for (int backwards = 0; backwards < orders; backwards++) {
        struct chain got;
        struct chain want;
        emulation_backwards(backwards != 0);
        run_forward(dev, &ours, &got, s, real, true);
        run_forward(dev, &theirs, &want, s, real, false);
        same_forward(&got, &want, s->reading);
        assert_int_equal(got.launches, want.launches + !is_taken_by_product(s, real, own));
        run_forward(ref, &theirs, &want, s, real, false);
        near_in_norm(&got.second.out, &want.second.out, tolerance);
    }
    emulation_backwards(false);
}

static void deferred_is_the_same(enum dtype real, enum own_convolutions own, double tolerance) {
    struct device_options opt;
    device_options_default(&opt);
    opt.own_convolutions = own;
    struct device *ref = open_reference();
    struct device *dev = open_emulated(&opt);
    for (int i = 0; i < SHAPES_COUNT; i++) {
        deferred_is_the_same_at(dev, ref, &shapes[i], real, own, tolerance);
    }
    for (int i = 0; i < TILED_SHAPES_COUNT && own != OWN_WHERE_FASTER; i++) {
        deferred_forward_is_the_same(dev, ref, &tiled_shapes[i], real, own, tolerance);
    }
    device_close(ref);
    device_close(dev);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_in_f32) {
    deferred_is_the_same(DTYPE_F32, OWN_WHERE_FASTER, 1e-5);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_in_bf16) {
    deferred_is_the_same(DTYPE_BF16, OWN_WHERE_FASTER, 2e-2);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_with_own_products) {
    deferred_is_the_same(DTYPE_BF16, OWN_ALWAYS, 2e-2);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_with_own_products_by_wgmma) {
    deferred_is_the_same(DTYPE_BF16, OWN_WGMMA, 2e-2);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_in_fp16) {
    deferred_is_the_same(DTYPE_F16, OWN_WHERE_FASTER, 3e-3);
}

TEST(what_is_left_to_the_reader_has_the_same_bits_with_own_products_in_fp16) {
    deferred_is_the_same(DTYPE_F16, OWN_ALWAYS, 3e-3);
    deferred_is_the_same(DTYPE_F16, OWN_WGMMA, 3e-3);
}

/* Two units of 3x3, which no product of our own takes, hand a gradient over: whether it was given.
 */
static bool hand_over(struct device *dev,
                      struct arena *a,
                      struct chain *c,
                      enum dtype real,
                      enum write_mode mode) {
    static const struct tensor none = {0};
    static const int64_t shape[4] = {2, 9, 7, 8};
    struct error err = {0};
    a->used = 0;
    const struct tensor in = carve(a, real, 4, shape, 1);
    carve_unit(a, &c->first, &in, 16, 3, 100);
    carve_unit(a, &c->second, &c->first.out, 24, 3, 200);
    c->first.p.act = c->second.p.act = ACTIVATION_RELU;
    assert_ok(forward(dev, &c->first, &none, &err), err);
    assert_ok(forward(dev, &c->second, &none, &err), err);
    struct conv_bn_handoff handoff = {.pre = &c->first.pre,
                                      .mean = &c->first.mean,
                                      .rstd = &c->first.rstd,
                                      .act = ACTIVATION_RELU};
    c->second.p.give = &handoff;
    c->second.din = c->first.dout; /* which has numbers in it */
    assert_ok(dev->ops->conv_bn_bwd(dev, &c->second.din, mode, &none, WRITE_SET, &c->second.dweight,
                                    &c->second.dgamma, &c->second.dbeta, WRITE_SET, &c->second.dpre,
                                    &c->second.dout, &c->second.out, &c->second.pre,
                                    &c->second.mean, &c->second.rstd, &c->second.in,
                                    &c->second.weight, &c->second.gamma, &c->second.p, &err),
              err);
    const bool given = handoff.given;
    no_guard_is_written(&c->second.din);
    c->first.p.take = &handoff;
    backward(dev, &c->first, &none);
    assert_false(handoff.given);
    return given;
}

static struct device *open_timing(void) {
    struct device_options opt;
    device_options_default(&opt);
    opt.autotune = true;
    return open_emulated(&opt);
}

/* Timed, when what was left is written first; and remembered, when the product writes it. */
TEST(what_is_left_to_a_reader_that_is_timed_has_the_same_bits) {
    static struct arena ours, theirs;
    struct device *dev = open_timing();
    for (int32_t variant = -1; variant < VARIANTS_COUNT; variant++) {
        struct chain got;
        struct chain want;
        emulation_variant(variant);
        run_forward(dev, &ours, &got, &tiled_shapes[1], DTYPE_BF16, true);
        run_forward(dev, &theirs, &want, &tiled_shapes[1], DTYPE_BF16, false);
        same_forward(&got, &want, AS_IN);
    }
    emulation_variant(-1);
    device_close(dev);
}

/* As a remembered choice; without plans behind it, as the plain ones. */
TEST(plans_with_sums_agree_with_the_reference) {
    static struct arena ours, theirs;
    struct device *ref = open_reference();
    struct device *dev = open_timing();
    emulation_variant(VARIANT_FUSED);
    for (int i = 0; i < 8; i++) {
        struct chain got;
        struct chain want;
        const enum write_mode mode = i % 2 == 0 ? WRITE_SET : WRITE_ADD;
        const bool plans = i < 4;
        emulation_convolutions(plans);
        emulation_backwards(i / 2 % 2 != 0);
        assert_int_equal(hand_over(dev, &ours, &got, DTYPE_F16, mode), plans);
        assert_false(hand_over(ref, &theirs, &want, DTYPE_F16, mode));
        near_in_norm(&got.first.mean, &want.first.mean, 2e-3);
        near_in_norm(&got.first.running_var, &want.first.running_var, 2e-3);
        near_in_norm(&got.second.out, &want.second.out, 3e-3);
        near_in_norm(&got.first.dgamma, &want.first.dgamma, 5e-3);
        near_in_norm(&got.first.dbeta, &want.first.dbeta, 5e-3);
        near_in_norm(&got.first.din, &want.first.din, 5e-3);
    }
    emulation_convolutions(true);
    struct chain got; /* in bf16 forward alone */
    struct chain want;
    assert_false(hand_over(dev, &ours, &got, DTYPE_BF16, WRITE_SET));
    assert_false(hand_over(ref, &theirs, &want, DTYPE_BF16, WRITE_SET));
    near_in_norm(&got.first.rstd, &want.first.rstd, 1e-2);
    near_in_norm(&got.second.out, &want.second.out, 2e-2);
    emulation_variant(-1);
    device_close(ref);
    device_close(dev);
}

/* Timed: the plan with sums is a launch less, and taken unless it is wrong. */
TEST(plans_with_sums_are_compared_before_they_are_taken) {
    static struct arena ours, theirs;
    struct device *ref = open_reference();
    struct device *dev = open_timing();
    for (int wrong = 0; wrong < 2; wrong++) {
        struct chain got;
        struct chain want;
        emulation_wrong_sums(wrong != 0);
        const bool given = hand_over(dev, &ours, &got, DTYPE_F16, WRITE_ADD);
        assert_int_equal(given, wrong == 0);
        (void)hand_over(ref, &theirs, &want, DTYPE_F16, WRITE_ADD);
        near_in_norm(&got.second.out, &want.second.out, 3e-3);
        near_in_norm(&got.first.dgamma, &want.first.dgamma, 5e-3);
        near_in_norm(&got.first.din, &want.first.din, 5e-3);
    }
    emulation_wrong_sums(false);
    device_close(ref);
    device_close(dev);
}

static void refused(struct device *dev, const struct unit *u, const struct tensor *residual) {
    struct error err = {0};
    assert_status(forward(dev, u, residual, &err), STATUS_INVALID, err);
}

TEST(deferrals_that_make_no_sense_are_refused) {
    static const struct tensor none = {0};
    static const int64_t shape[4] = {1, 3, 3, 8};
    static struct arena a;
    struct conv_bn_deferral left = {0};
    struct unit u;
    struct device *dev = open_reference();
    a.used = 0;
    const struct tensor in = carve(&a, DTYPE_F32, 4, shape, 1);
    const struct tensor residual = carve(&a, DTYPE_F32, 4, shape, 2);
    carve_unit(&a, &u, &in, 8, 1, 100);
    u.p.defer = &left;
    refused(dev, &u, &residual); /* the giver has a residual */
    u.p.training = false;
    refused(dev, &u, &none);
    u.p.defer = NULL;
    u.p.training = true;
    left = (struct conv_bn_deferral){.given = true, .pre = in, .act = ACTIVATION_RELU};
    u.p.take_residual = &left;
    refused(dev, &u, &residual); /* its backward pass would read what was not written */
    left.act = ACTIVATION_NONE;
    refused(dev, &u, &none);
    left.pre.shape[1] = 4;
    refused(dev, &u, &residual);
    u.p.take_residual = NULL;
    u.p.take_in = &left;
    refused(dev, &u, &none);
    device_close(dev);
}
