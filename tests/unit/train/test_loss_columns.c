/*
 * Losses with weights of samples, a reference model and a teacher: against
 * tests/golden/losses/columns.txt, computed in float64 by another implementation
 * (make_columns.py), and what must hold of every row of losses.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"

enum { B = 5, MAX_ROWS = 2 * B, ID_SPACE = 1000 };

static void read_numbers(FILE *file, float *out, int count) {
    for (int i = 0; i < count; i++) {
        assert_int_equal(fscanf(file, "%f", &out[i]), 1);
    }
}

static void check_near(const char *name, const char *what, double got, double want, double scale) {
    if (!(fabs(got - want) <= 2e-7 * scale)) {
        fail_msg("%s: %s is %.12g, not %.12g", name, what, got, want);
    }
}

TEST(weights_reference_and_teacher_are_those_of_the_float64_reference) {
    static const uint64_t ids[B] = {7, 3, 900, 12, 5};
    FILE *file = fopen(test_source_path("tests/golden/losses/columns.txt"), "r");
    char name[32];
    double tau, share, teacher_tau;
    int cases = 0;
    assert_non_null(file);
    while (fscanf(file, "%31s %lf %lf %lf", name, &tau, &share, &teacher_tau) == 4) {
        float weights[B], s[B * B], excess[B * B], teacher[B * B], gradient[B * B];
        double value, k, rows[B];
        struct error err = {0};
        struct loss_options o;
        struct sample_state *samples = NULL;
        struct loss *loss = NULL;
        read_numbers(file, weights, B);
        read_numbers(file, s, B * B);
        read_numbers(file, excess, B * B);
        read_numbers(file, teacher, B * B);
        assert_int_equal(fscanf(file, "%lf %lf", &value, &k), 2);
        loss_options_default(&o);
        o.name = name;
        o.tau = tau;
        assert_ok(sample_state_create(&samples, ID_SPACE, NULL, &err), err);
        assert_ok(loss_create(&loss, &o, samples, ID_SPACE, B, &err), err);
        bool referenced = false;
        for (int i = 0; i < B * B; i++) {
            referenced = referenced || excess[i] != 0.0f;
            excess[i] = s[i] - excess[i];
        }
        assert_true(loss_takes_weights(loss) && (!referenced || loss_takes_reference(loss)));
        const struct loss_input in = {.similarity = excess,
                                      .sample_ids = ids,
                                      .weights = weights,
                                      .batch_count = B,
                                      .lr = 1e-3};
        struct loss_output out = {.gradient = gradient, .row_values = rows};
        assert_ok(loss_step(loss, &in, &out, &err), err);
        const struct distill d = {share, out.tau, teacher_tau, s, teacher};
        check_near(name, "K", distill_add(&d, &in, &out), k, fmax(1.0, k));
        check_near(name, "the value", out.value, value, fmax(1.0, fabs(value)));
        check_near(name, "the sum of rows", rows[0] + rows[1] + rows[2] + rows[3] + rows[4], value,
                   fmax(1.0, fabs(value)));
        double largest = 0.0;
        double want[B * B];
        for (int i = 0; i < B * B; i++) {
            assert_int_equal(fscanf(file, "%lf", &want[i]), 1);
            largest = fmax(largest, fabs(want[i]));
        }
        for (int i = 0; i < B * B; i++) {
            check_near(name, "an element of the gradient", (double)gradient[i], want[i],
                       fabs(want[i]) + largest);
        }
        loss_destroy(loss);
        sample_state_destroy(samples);
        cases++;
    }
    fclose(file);
    assert_int_equal(cases, 44);
}

/* ---- every row ---- */

struct fixture {
    const struct loss_row *row;
    struct sample_state *state;
    struct loss *loss;
    int rows;
    float s[MAX_ROWS * MAX_ROWS], gradient[MAX_ROWS * MAX_ROWS];
    float weights[B], carried[2 * B], carried_gradient[2 * B];
    float self[2][B * B], self_gradient[2][B * B]; /* images with images, texts with texts */
    uint64_t ids[B], carried_ids[2 * B];
    double row_values[B];
};

static void draw(float *m, int count, uint64_t stream) {
    struct rng r;
    rng_init(&r, 5, RNG_INIT, stream, 0);
    for (int i = 0; i < count; i++) {
        m[i] = (float)(rint((2.0 * rng_uniform(&r) - 1.0) * 4096.0) / 4096.0);
    }
}

static void fixture_open(struct fixture *f, const struct loss_row *row) {
    struct loss_options o;
    struct error err = {0};
    loss_options_default(&o);
    o.name = row->name;
    o.views = row->views;
    o.parity = row->parity;
    o.tau = 0.25;
    o.tau_min = 0.001;
    o.tau_max = 2.0;
    o.zeta0 = 0.0;
    o.tau_plus = 0.02;
    o.q = 0.4;
    o.lambda = 0.05;
    o.bias0 = -1.0;
    *f = (struct fixture){.row = row, .rows = row->views ? 2 * B : B};
    draw(f->s, f->rows * f->rows, 1);
    draw(f->carried, 2 * B, 2);
    for (int side = 0; side < 2; side++) { /* symmetric */
        draw(f->self[side], B * B, 3 + (uint64_t)side);
        for (int i = 0; i < B * B; i++) {
            f->self[side][i] = f->self[side][i % B * B + i / B];
        }
    }
    for (int i = 0; i < B; i++) {
        f->ids[i] = (uint64_t)(60 - 5 * i);
        f->weights[i] = (float)i / 2.0f; /* the first: 0 */
    }
    for (int i = 0; i < 2 * B; i++) {
        f->carried_ids[i] = 100;
    }
    assert_ok(sample_state_create(&f->state, ID_SPACE, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &o, f->state, ID_SPACE, B, &err), err);
}

static struct loss_output step(struct fixture *f, const float *weights) {
    struct error err = {0};
    const bool cached = loss_cache_refresh(f->loss) > 0.0;
    const struct loss_input in = {.similarity = f->s,
                                  .image_similarity = f->self[0],
                                  .text_similarity = f->self[1],
                                  .sample_ids = f->ids,
                                  .weights = weights,
                                  .carried_ids = cached ? f->carried_ids : NULL,
                                  .carried_similarity = f->carried,
                                  .batch_count = B,
                                  .lr = 1e-3,
                                  .zeta_lr_text = 1e-3,
                                  .zeta_lr_image = 1e-3};
    struct loss_output out = {.gradient = f->gradient,
                              .image_gradient = f->self_gradient[0],
                              .text_gradient = f->self_gradient[1],
                              .row_values = f->row_values,
                              .carried_gradient = f->carried_gradient};
    assert_ok(loss_step(f->loss, &in, &out, &err), err);
    return out;
}

static void fixture_close(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

#define FOR_EACH_WEIGHTED_ROW(row, f)                                                              \
    for (const struct loss_row *const *at_ = loss_rows(), *row; (row = *at_) != NULL; at_++)       \
        if (fixture_open(f, row), !loss_takes_weights((f)->loss)) {                                \
            fixture_close(f);                                                                      \
        } else

TEST(weights_of_one_are_no_weights) {
    static const float ones[B] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    static struct fixture f, plain;
    FOR_EACH_WEIGHTED_ROW(row, &f) {
        fixture_open(&plain, row);
        const struct loss_output with = step(&f, ones);
        const struct loss_output without = step(&plain, NULL);
        assert_true(with.value == without.value && with.objective == without.objective);
        assert_memory_equal(f.gradient, plain.gradient, sizeof f.gradient);
        assert_memory_equal(f.carried_gradient, plain.carried_gradient, sizeof f.carried_gradient);
        fixture_close(&plain);
        fixture_close(&f);
    }
}

/* G(w) = sum of w_a G(e_a), value and objective likewise; and a sample's state has no part of it.
 */
TEST(a_weighted_step_is_the_sum_of_its_weighted_anchors) {
    static struct fixture f, one;
    FOR_EACH_WEIGHTED_ROW(row, &f) {
        static double gradient[MAX_ROWS * MAX_ROWS];
        double value = 0.0, objective = 0.0;
        const struct loss_output all = step(&f, f.weights);
        memset(gradient, 0, sizeof gradient);
        for (int a = 0; a < B; a++) {
            float only[B] = {0};
            only[a] = f.weights[a];
            fixture_open(&one, row);
            const struct loss_output part = step(&one, only);
            check_near(row->name, "the row's value", f.row_values[a], part.value, 1.0);
            value += part.value;
            objective += part.objective;
            for (int i = 0; i < f.rows * f.rows; i++) {
                gradient[i] += (double)one.gradient[i];
                /* Of siglip every element is half of its image's and half of its text's. */
                const bool touched = i / f.rows % B == a || (!row->views && i % f.rows == a);
                assert_true(touched || one.gradient[i] == 0.0f);
            }
            for (int32_t c = 0; c < sample_state_count(f.state); c++) {
                size_t size_bytes;
                const void *whole = sample_state_values(f.state, c, &size_bytes);
                assert_memory_equal(whole, sample_state_values(one.state, c, &size_bytes),
                                    size_bytes);
            }
            fixture_close(&one);
        }
        check_near(row->name, "the value", all.value, value, fmax(1.0, fabs(value)));
        check_near(row->name, "the objective", all.objective, objective, fmax(1.0, fabs(value)));
        for (int i = 0; i < f.rows * f.rows; i++) {
            check_near(row->name, "the gradient", (double)f.gradient[i], gradient[i], 10.0);
        }
        fixture_close(&f);
    }
}

TEST(gradients_are_slopes_of_the_weighted_objective) {
    static const double steps[] = {1.0, -1.0, 2.0, -2.0};
    static const double h = 0x1p-12;
    static struct fixture f;
    static float gradient[MAX_ROWS * MAX_ROWS];
    FOR_EACH_WEIGHTED_ROW(row, &f) {
        const double scale = strcmp(row->name, "fastclip-v2") == 0 ? 4.0 : 1.0; /* 1 / tau */
        double error = 0.0, norm = 0.0;
        (void)step(&f, f.weights);
        const int count = f.rows * f.rows;
        memcpy(gradient, f.gradient, sizeof gradient);
        fixture_close(&f);
        for (int i = 0; i < count; i++) {
            double at[4];
            for (int k = 0; k < 4; k++) {
                fixture_open(&f, row);
                f.s[i] = (float)((double)f.s[i] + steps[k] * h);
                const struct loss_output out = step(&f, f.weights);
                at[k] = row->surrogate ? out.objective : out.value;
                fixture_close(&f);
            }
            const double slope = scale * (8.0 * (at[0] - at[1]) - (at[2] - at[3])) / (12.0 * h);
            error += pow((double)gradient[i] - slope, 2.0);
            norm += slope * slope;
        }
        if (!(norm > 0.0 && sqrt(error / norm) < 1e-5)) {
            fail_msg("%s: slopes differ by %g of norm %g", row->name, sqrt(error / norm),
                     sqrt(norm));
        }
    }
}

/* The weight of its second place is not read. */
TEST(a_repeated_id_has_the_weight_of_its_first_place) {
    static struct fixture f, plain;
    FOR_EACH_WEIGHTED_ROW(row, &f) {
        fixture_open(&plain, row);
        f.ids[3] = plain.ids[3] = f.ids[1];
        plain.weights[3] = 100.0f;
        const struct loss_output a = step(&f, f.weights);
        const struct loss_output b = step(&plain, plain.weights);
        assert_true(a.value == b.value && a.objective == b.objective);
        assert_memory_equal(f.gradient, plain.gradient, sizeof f.gradient);
        fixture_close(&plain);
        fixture_close(&f);
    }
}

/* Of every loss, those without weights too; NaN: a row that is ignored. */
TEST(values_of_rows_add_up_to_the_loss) {
    static struct fixture f;
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        for (int repeated = 0; repeated < 3; repeated++) {
            double sum = 0.0;
            fixture_open(&f, *row);
            f.ids[3] = repeated == 1 ? f.ids[1] : f.ids[3];
            for (int i = 0; i < B && repeated == 2; i++) {
                f.ids[i] = f.ids[0]; /* one sample is no batch */
            }
            const struct loss_output out = step(&f, NULL);
            for (int i = 0; i < B; i++) {
                assert_true(isnan(f.row_values[i]) == (repeated == 2 || (repeated == 1 && i == 3)));
                assert_true(isnan(f.row_values[i]) || f.row_values[i] != 0.0);
                sum += isnan(f.row_values[i]) ? 0.0 : f.row_values[i];
            }
            check_near((*row)->name, "the sum", sum, out.value, fmax(1.0, fabs(sum)));
            fixture_close(&f);
        }
    }
}

TEST(what_takes_no_weights_and_no_reference_is_known) {
    static struct fixture f;
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        fixture_open(&f, *row);
        const bool code = (*row)->parity == LOSS_PARITY_REFERENCE;
        const bool moving =
            strstr((*row)->name, "clr") != NULL && strcmp((*row)->name, "simclr") != 0;
        assert_true(loss_takes_weights(f.loss) == (!code && strcmp((*row)->name, "cyclip") != 0));
        assert_true(loss_takes_reference(f.loss) ==
                    (!code && !(*row)->views &&
                     (moving || strncmp((*row)->name, "fastclip", 8) == 0 ||
                      strcmp((*row)->name, "scent") == 0 || strcmp((*row)->name, "hgcl") == 0)));
        fixture_close(&f);
    }
}
