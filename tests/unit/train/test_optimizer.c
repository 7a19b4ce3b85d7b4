/*
 * LARS, AdamW and Adam over a small table, against the published formulas written again in float64:
 * the trust ratio of each tensor, moments, decay, clipping, and the tensors that are excluded.
 */
#include <math.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/optim/optimizer.h"

enum { TENSORS = 5, MOST = 24, STEPS = 4 };

static const struct tensor_of_table {
    const char *name;
    int32_t ndim;
    int64_t shape[4];
    bool conv, adapts;
} table[TENSORS] = {{"conv.weight", 4, {2, 2, 2, 3}, true, true},
                    {"norm.weight", 1, {5}, false, false},
                    {"fc.weight", 2, {3, 4}, false, true},
                    {"fc.bias", 2, {1, 3}, false, false}, /* excluded by its name */
                    {"zero.weight", 2, {2, 2}, false, true}};

struct optimised {
    struct device *dev;
    struct params *params;
    struct optimizer_options how;
};

static int64_t count_of(int t) {
    int64_t count = 1;
    for (int32_t d = 0; d < table[t].ndim; d++) {
        count *= table[t].shape[d];
    }
    return count;
}

/* zero.weight begins at 0, and has no gradient until the third step. */
static double first_value(int t, int64_t i) {
    return t == TENSORS - 1 ? 0.0 : 0.4 * (t + 1) * sin(1.0 + 3.0 * t + (double)i);
}

static double gradient(int t, int64_t i, int step) {
    return t == TENSORS - 1 && step < 2 ? 0.0 : 0.3 * cos(5.0 * step + 2.0 * t + 1.7 * (double)i);
}

static void write(const struct optimised *o, int t, enum param_slot slot, const double *values) {
    struct error err = {0};
    float narrow[MOST];
    const bool wide = params_dtype(o->params) == DTYPE_F64;
    for (int64_t i = 0; i < count_of(t); i++) {
        narrow[i] = (float)values[i];
    }
    const size_t size = (size_t)count_of(t) * (wide ? sizeof(double) : sizeof(float));
    assert_ok(params_write(o->params, t, slot, wide ? (const void *)values : narrow, size, &err),
              err);
}

static void read(const struct optimised *o, int t, enum param_slot slot, double *values) {
    struct error err = {0};
    float narrow[MOST];
    const bool wide = params_dtype(o->params) == DTYPE_F64;
    const size_t size = (size_t)count_of(t) * (wide ? sizeof(double) : sizeof(float));
    assert_ok(params_read(o->params, t, slot, wide ? (void *)values : narrow, size, &err), err);
    for (int64_t i = 0; i < count_of(t) && !wide; i++) {
        values[i] = (double)narrow[i];
    }
}

static void
open_table(struct optimised *o, enum optimizer_kind kind, const char *device, enum dtype dtype) {
    struct error err = {0};
    assert_ok(device_open(&o->dev, device, 2, &err), err);
    assert_ok(params_create(&o->params, &err), err);
    optimizer_options_default(&o->how);
    assert_true(o->how.trust == 0.001 && o->how.momentum == 0.9);
    o->how.kind = kind;
    o->how.trust = 0.05;
    o->how.weight_decay = 0.3;
    o->how.clip_norm = 0.5;
    assert_int_equal(optimizer_moments(kind), kind == OPTIMIZER_LARS ? 1 : 2);
    params_set_moments(o->params, optimizer_moments(kind));
    for (int t = 0; t < TENSORS; t++) {
        struct param_spec spec = {.name = table[t].name, .conv = table[t].conv};
        int32_t index;
        memcpy(spec.shape, table[t].shape, sizeof spec.shape);
        assert_ok(params_add(o->params, &index, &spec, &err), err);
        assert_int_equal(index, t);
    }
    assert_ok(params_alloc(o->params, o->dev, dtype, true, &err), err);
    assert_ok(params_init(o->params, 0, &err), err);
    for (int t = 0; t < TENSORS; t++) {
        double values[MOST];
        for (int64_t i = 0; i < count_of(t); i++) {
            values[i] = first_value(t, i);
        }
        write(o, t, PARAM_VALUE, values);
    }
}

static void close_table(struct optimised *o) {
    params_destroy(o->params);
    device_close(o->dev);
}

static double norm_of(const double *x, int64_t count) {
    double squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        squares += x[i] * x[i];
    }
    return sqrt(squares);
}

/* One step of one tensor by the formula of LARS. */
static void lars_step(int t,
                      double *w,
                      double *m,
                      const double *gradients,
                      const struct optimizer_options *how,
                      double lr) {
    double g[MOST];
    for (int64_t i = 0; i < count_of(t); i++) {
        g[i] = gradients[i] + (table[t].adapts ? how->weight_decay * w[i] : 0.0);
    }
    const double weights = norm_of(w, count_of(t));
    const double steps = norm_of(g, count_of(t));
    const bool ratio = table[t].adapts && weights > 0.0 && steps > 0.0;
    for (int64_t i = 0; i < count_of(t); i++) {
        m[i] = how->momentum * m[i] + (ratio ? how->trust * weights / steps : 1.0) * g[i];
        w[i] -= lr * m[i];
    }
}

/* Step number `step`, from 0, of Adam (Kingma and Ba, algorithm 1), with decay as L2; or of AdamW
 * (Loshchilov and Hutter, algorithm 2), which decays the weights themselves. */
static void adam_step(int t,
                      double *w,
                      double *m,
                      double *v,
                      const double *gradients,
                      const struct optimizer_options *how,
                      double lr,
                      int step) {
    const double decay = table[t].adapts ? how->weight_decay : 0.0;
    const double corrected1 = 1.0 - pow(how->beta1, step + 1);
    const double corrected2 = 1.0 - pow(how->beta2, step + 1);
    for (int64_t i = 0; i < count_of(t); i++) {
        const bool l2 = how->kind == OPTIMIZER_ADAM;
        const double g = gradients[i] + (l2 ? decay * w[i] : 0.0);
        m[i] = how->beta1 * m[i] + (1.0 - how->beta1) * g;
        v[i] = how->beta2 * v[i] + (1.0 - how->beta2) * g * g;
        const double shrunk = l2 ? 0.0 : lr * decay * w[i];
        w[i] -= shrunk + lr * (m[i] / corrected1) / (sqrt(v[i] / corrected2) + how->eps);
    }
}

static void against_the_formula(enum optimizer_kind kind,
                                const char *device,
                                enum dtype dtype,
                                double tolerance) {
    static double w[TENSORS][MOST], m[TENSORS][MOST], v[TENSORS][MOST], g[TENSORS][MOST];
    struct optimised o;
    struct error err = {0};
    open_table(&o, kind, device, dtype);
    for (int t = 0; t < TENSORS; t++) {
        for (int64_t i = 0; i < count_of(t); i++) {
            w[t][i] = first_value(t, i);
            m[t][i] = 0.0;
            v[t][i] = 0.0;
        }
    }
    for (int step = 0; step < STEPS; step++) {
        const double lr = (0.5 + 0.25 * step) * (kind == OPTIMIZER_LARS ? 1.0 : 0.1);
        struct step_values values = {.step = (uint64_t)step, .lr = lr, .sound = 1};
        double squares = 0.0;
        for (int t = 0; t < TENSORS; t++) {
            for (int64_t i = 0; i < count_of(t); i++) {
                g[t][i] = gradient(t, i, step);
                squares += g[t][i] * g[t][i];
            }
            write(&o, t, PARAM_GRAD, g[t]);
        }
        assert_ok(optimizer_step(o.params, o.dev, &values, &o.how, &err), err);
        assert_true(fabs(values.grad_norm - sqrt(squares)) < 1e-6 && values.grad_scale < 0.5);
        for (int t = 0; t < TENSORS; t++) {
            double found[MOST];
            for (int64_t i = 0; i < count_of(t); i++) {
                g[t][i] *= o.how.clip_norm / sqrt(squares);
            }
            if (kind == OPTIMIZER_LARS) {
                lars_step(t, w[t], m[t], g[t], &o.how, lr);
            } else {
                adam_step(t, w[t], m[t], v[t], g[t], &o.how, lr, step);
            }
            read(&o, t, PARAM_VALUE, found);
            for (int64_t i = 0; i < count_of(t); i++) {
                if (!(fabs(found[i] - w[t][i]) < tolerance)) {
                    fail_msg("%s[%d] after step %d is %.12g, expected %.12g", table[t].name, (int)i,
                             step, found[i], w[t][i]);
                }
            }
        }
    }
    close_table(&o);
}

/* grad_scale, lr and the numbers of the options are rounded to f32 where they meet the op. */
TEST(lars_in_doubles_is_the_published_formula) {
    against_the_formula(OPTIMIZER_LARS, "cpu-ref", DTYPE_F64, 1e-6);
}

TEST(lars_in_floats_is_the_published_formula) {
    against_the_formula(OPTIMIZER_LARS, "cpu-ref", DTYPE_F32, 1e-5);
    against_the_formula(OPTIMIZER_LARS, "cpu", DTYPE_F32, 1e-5);
}

TEST(adam_and_adamw_are_the_published_formulas) {
    static const enum optimizer_kind kinds[] = {OPTIMIZER_ADAM, OPTIMIZER_ADAMW};
    for (int k = 0; k < 2; k++) {
        against_the_formula(kinds[k], "cpu-ref", DTYPE_F64, 1e-6);
        against_the_formula(kinds[k], "cpu-ref", DTYPE_F32, 1e-5);
        against_the_formula(kinds[k], "cpu", DTYPE_F32, 1e-5);
    }
}

/* One step from a large weight: it moves by lr trust times its norm, whatever its gradient is. */
TEST(a_first_step_is_proportional_to_the_norm) {
    for (double scale = 1e-3; scale < 1e4; scale *= 1e3) {
        struct optimised o;
        struct error err = {0};
        double before[MOST], after[MOST], g[MOST];
        struct step_values values = {.lr = 2.0, .sound = 1};
        open_table(&o, OPTIMIZER_LARS, "cpu", DTYPE_F32);
        o.how.clip_norm = 0.0;
        o.how.weight_decay = 0.0;
        for (int64_t i = 0; i < count_of(0); i++) {
            g[i] = scale * gradient(0, i, 1);
        }
        write(&o, 0, PARAM_GRAD, g);
        read(&o, 0, PARAM_VALUE, before);
        assert_ok(optimizer_step(o.params, o.dev, &values, &o.how, &err), err);
        read(&o, 0, PARAM_VALUE, after);
        for (int64_t i = 0; i < count_of(0); i++) {
            after[i] -= before[i];
        }
        const double moved = norm_of(after, count_of(0)) / norm_of(before, count_of(0));
        assert_true(fabs(moved / (2.0 * 0.05) - 1.0) < 1e-4);
        close_table(&o);
    }
}

TEST(working_copies_follow_lars) {
    struct optimised o;
    struct error err = {0};
    struct step_values values = {.lr = 1.0, .sound = 1};
    open_table(&o, OPTIMIZER_LARS, "cpu-ref", DTYPE_BF16);
    double g[MOST];
    for (int64_t i = 0; i < count_of(2); i++) {
        g[i] = gradient(2, i, 0);
    }
    write(&o, 2, PARAM_GRAD, g);
    assert_ok(optimizer_step(o.params, o.dev, &values, &o.how, &err), err);
    double value[MOST];
    read(&o, 2, PARAM_VALUE, value);
    const struct tensor working = params_tensor(o.params, 2);
    assert_int_equal(working.dtype, DTYPE_BF16);
    for (int64_t i = 0; i < count_of(2); i++) {
        uint32_t bits = (uint32_t)((const uint16_t *)working.data)[i] << 16;
        float half;
        memcpy(&half, &bits, sizeof half);
        assert_true(fabs((double)half - value[i]) <= 0x1p-8 * fabs(value[i]));
        assert_true(fabs(value[i] - first_value(2, i)) > 1e-4);
    }
    close_table(&o);
}
