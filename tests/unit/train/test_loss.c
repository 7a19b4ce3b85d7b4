/*
 * Losses against objectives that are written out plainly in double here: gradients with state of
 * earlier steps against finite differences, zeta's gradient against its own objective. What every
 * loss must satisfy is in test_loss_rows.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss.h"
#include "train/optim/schedule.h"

enum { B = 5, MAX_B = 512 };

struct fixture {
    struct loss_options options;
    struct sample_state *state;
    struct loss *loss;
    float similarity[B * B];
    float gradient[B * B];
    uint64_t ids[B];
};

static void open_fixture(struct fixture *f, const char *name, double tau, uint64_t samples_count) {
    struct error err = {0};
    memset(f, 0, sizeof *f);
    loss_options_default(&f->options);
    f->options.name = name;
    f->options.tau = tau;
    f->options.gamma = 0.8;
    assert_ok(sample_state_create(&f->state, 100, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &f->options, f->state, samples_count, B, &err), err);
    struct rng r;
    rng_init(&r, 7, RNG_INIT, 0, 0);
    for (int i = 0; i < B * B; i++) {
        /* Multiples of 2^-12, so that finite differences step between exact floats. */
        f->similarity[i] = (float)(rint((2.0 * rng_uniform(&r) - 1.0) * 4096.0) / 4096.0);
    }
    for (int i = 0; i < B; i++) {
        f->ids[i] = (uint64_t)(90 - 7 * i);
    }
}

static void close_fixture(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

static struct loss_output step_rates(struct fixture *f, double zeta_lr) {
    struct error err = {0};
    const struct loss_input in = {.similarity = f->similarity,
                                  .sample_ids = f->ids,
                                  .batch_count = B,
                                  .zeta_lr_text = zeta_lr,
                                  .zeta_lr_image = zeta_lr};
    struct loss_output out = {.gradient = f->gradient};
    assert_ok(loss_step(f->loss, &in, &out, &err), err);
    return out;
}

static struct loss_output step(struct fixture *f) {
    return step_rates(f, 0.0);
}

static float *column(const struct fixture *f, const char *name) {
    for (int32_t i = 0; i < sample_state_count(f->state); i++) {
        if (strcmp(sample_state_name(f->state, i), name) == 0) {
            return sample_state_column(f->state, i);
        }
    }
    fail_msg("no column %s", name);
    return NULL;
}

/* ---- objectives, written out ---- */

struct objective {
    double (*value)(const struct objective *o, const double *s);
    double tau, gamma, offset; /* offset: exp(-xi/tau)/(n-1), or 0 */
    double old_u[2][B];        /* running means before the step; < 0: unvisited */
    double zeta[2][B];         /* of images, of texts */
};

static double at(const double *s, int side, int anchor, int contrast) {
    return side == 0 ? s[anchor * B + contrast] : s[contrast * B + anchor];
}

static double clip_value(const struct objective *o, const double *s) {
    double total = 0.0;
    for (int side = 0; side < 2; side++) {
        for (int a = 0; a < B; a++) {
            double sum = 0.0;
            for (int c = 0; c < B; c++) {
                sum += exp(at(s, side, a, c) / o->tau);
            }
            total += 0.5 / B * (log(sum) - at(s, side, a, a) / o->tau);
        }
    }
    return total;
}

static double mean_others(const struct objective *o, const double *s, int side, int a) {
    double sum = 0.0;
    for (int c = 0; c < B; c++) {
        const double zeta = o->zeta[1 - side][c];
        sum += c == a ? 0.0 : exp((at(s, side, a, c) - at(s, side, a, a) - zeta) / o->tau);
    }
    return sum / (B - 1);
}

/* Its gradient in S is that of the surrogate: d (tau/gamma) log((1-gamma) u + gamma g + offset). */
static double global_value(const struct objective *o, const double *s) {
    double total = 0.0;
    for (int side = 0; side < 2; side++) {
        for (int a = 0; a < B; a++) {
            const double g = mean_others(o, s, side, a);
            const double u = o->old_u[side][a];
            total += u < 0.0
                         ? o->tau * log(g + o->offset)
                         : o->tau / o->gamma * log((1.0 - o->gamma) * u + o->gamma * g + o->offset);
        }
    }
    return total / B;
}

static void assert_gradient(const struct fixture *f, const struct objective *o) {
    double s[B * B];
    for (int i = 0; i < B * B; i++) {
        s[i] = (double)f->similarity[i];
    }
    double error = 0.0;
    double norm = 0.0;
    for (int i = 0; i < B * B; i++) {
        const double h = 1e-4 * o->tau;
        const double keep = s[i];
        double d[4];
        for (int k = 0; k < 4; k++) {
            static const double steps[] = {1.0, -1.0, 2.0, -2.0};
            s[i] = keep + steps[k] * h;
            d[k] = o->value(o, s);
        }
        s[i] = keep;
        const double expected = (8.0 * (d[0] - d[1]) - (d[2] - d[3])) / (12.0 * h);
        error += pow((double)f->gradient[i] - expected, 2.0);
        norm += expected * expected;
    }
    assert_true(norm > 0.0);
    assert_true(sqrt(error / norm) < 1e-6);
}

static struct objective fresh(const struct fixture *f,
                              double (*value)(const struct objective *, const double *)) {
    struct objective o = {.value = value, .tau = f->options.tau, .gamma = f->options.gamma};
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < B; i++) {
            o.old_u[side][i] = -1.0;
        }
    }
    return o;
}

static void remember_u(struct objective *o, const struct fixture *f) {
    static const char *const names[] = {"image.log_u", "text.log_u"};
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < B; i++) {
            o->old_u[side][i] = exp((double)column(f, names[side])[f->ids[i]]);
        }
    }
}

static void change_similarity(struct fixture *f) {
    for (int i = 0; i < B * B; i++) {
        f->similarity[i] = f->similarity[i] * 0.75f + 0.0625f * (float)(i % 3);
    }
}

TEST(clip_gradient_is_that_of_the_value) {
    struct fixture f;
    open_fixture(&f, "clip", 0.25, 1000);
    const struct loss_output out = step(&f);
    struct objective o = fresh(&f, clip_value);
    assert_gradient(&f, &o);
    double s[B * B];
    for (int i = 0; i < B * B; i++) {
        s[i] = (double)f.similarity[i];
    }
    assert_true(fabs(out.value - clip_value(&o, s)) < 1e-12);
    assert_int_equal(sample_state_count(f.state), 1); /* visits */
    close_fixture(&f);
}

TEST(sogclr_gradient_is_that_of_the_global_loss) {
    struct fixture f;
    open_fixture(&f, "sogclr", 0.25, 1000);
    step(&f);
    struct objective o = fresh(&f, global_value);
    assert_gradient(&f, &o);
    remember_u(&o, &f);
    change_similarity(&f);
    step(&f);
    assert_gradient(&f, &o);
    close_fixture(&f);
}

TEST(sogclr_weights_sum_to_one_at_the_first_visit) {
    struct fixture f;
    open_fixture(&f, "sogclr", 0.005, 1000);
    step(&f);
    double diagonal = 0.0;
    for (int a = 0; a < B; a++) {
        diagonal += (double)f.gradient[a * B + a];
    }
    /* Every anchor of both sides gives -1/B to its own pair. */
    assert_true(fabs(diagonal + 2.0) < 1e-6);
    close_fixture(&f);
}

TEST(nuclr_gradient_is_that_of_the_global_loss) {
    struct fixture f;
    open_fixture(&f, "nuclr", 0.25, 40);
    float *zeta[] = {column(&f, "image.zeta"), column(&f, "text.zeta")};
    struct objective o = fresh(&f, global_value);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < B; i++) {
            zeta[side][f.ids[i]] = 0.125f * (float)(i - side);
            o.zeta[side][i] = 0.125 * (i - side);
        }
    }
    o.offset = exp(-f.options.xi0 / f.options.tau) / 39.0;
    step(&f);
    assert_gradient(&f, &o);
    remember_u(&o, &f);
    change_similarity(&f);
    step(&f);
    assert_gradient(&f, &o);
    close_fixture(&f);
}

TEST(nuclr_with_zero_zeta_and_many_samples_is_sogclr) {
    struct fixture a;
    struct fixture b;
    open_fixture(&a, "sogclr", 0.25, UINT64_C(1) << 60);
    open_fixture(&b, "nuclr", 0.25, UINT64_C(1) << 60);
    for (int i = 0; i < 100; i++) {
        column(&b, "image.zeta")[i] = 0.0f;
        column(&b, "text.zeta")[i] = 0.0f;
    }
    for (int k = 0; k < 3; k++) {
        step(&a);
        step(&b);
        for (int i = 0; i < B * B; i++) {
            assert_true(fabsf(a.gradient[i] - b.gradient[i]) <= 1e-7f);
        }
        change_similarity(&a);
        change_similarity(&b);
    }
    close_fixture(&a);
    close_fixture(&b);
}

/* Phi(zeta) = -tau mean_i log(1 / sum_j exp((Delta_ij - zeta_j)/tau)) - zeta_i + mean zeta, with
 * the anchor's own term exp(-zeta_i/tau) in the sum: equation (10), whole dataset in one batch. */
static double phi(const double *s, const double *zeta, int side, double tau) {
    double total = 0.0;
    for (int a = 0; a < B; a++) {
        double sum = 0.0;
        for (int c = 0; c < B; c++) {
            sum += exp((at(s, side, a, c) - at(s, side, a, a) - zeta[c]) / tau);
        }
        total += (tau * log(sum) + zeta[a]) / B;
    }
    return total;
}

static void assert_zeta_step_descends_phi(bool unbiased) {
    struct fixture f;
    open_fixture(&f, "nuclr", 0.25, B);
    loss_destroy(f.loss);
    sample_state_destroy(f.state);
    struct error err = {0};
    f.options.gamma = 1.0;
    f.options.zeta_gradient = unbiased ? LOSS_ZETA_UNBIASED : LOSS_ZETA_PAPER;
    assert_ok(sample_state_create(&f.state, 100, NULL, &err), err);
    assert_ok(loss_create(&f.loss, &f.options, f.state, B, B, &err), err);
    double s[B * B];
    double zeta[B];
    for (int i = 0; i < B * B; i++) {
        s[i] = (double)f.similarity[i];
    }
    for (int i = 0; i < B; i++) {
        zeta[i] = 0.0625 * i;
        column(&f, "text.zeta")[f.ids[i]] = (float)zeta[i];
    }
    const double rate = 0.5;
    step_rates(&f, rate);
    for (int j = 0; j < B; j++) {
        const double h = 1e-5;
        const double keep = zeta[j];
        zeta[j] = keep + h;
        const double above = phi(s, zeta, 0, f.options.tau);
        zeta[j] = keep - h;
        const double below = phi(s, zeta, 0, f.options.tau);
        zeta[j] = keep;
        const double expected = keep - rate * B * (above - below) / (2.0 * h);
        assert_true(fabs((double)column(&f, "text.zeta")[f.ids[j]] - expected) < 1e-5);
    }
    close_fixture(&f);
}

TEST(zeta_descends_its_objective_when_the_batch_is_the_dataset) {
    assert_zeta_step_descends_phi(false);
    assert_zeta_step_descends_phi(true);
}

/* Over all batches of 3 of 6 samples that hold j, with exact u: the unbiased gradient averages to
 * the exact one, the published one does not. */
TEST(unbiased_zeta_gradient_is_unbiased) {
    enum { N = 6, K = 3 };
    double s[N][N];
    float zeta[N];
    struct rng r;
    rng_init(&r, 11, RNG_INIT, 0, 0);
    for (int i = 0; i < N; i++) {
        zeta[i] = 0.03125f * (float)i;
        for (int j = 0; j < N; j++) {
            s[i][j] = rint((2.0 * rng_uniform(&r) - 1.0) * 1024.0) / 1024.0;
        }
    }
    const double tau = 0.5;
    double exact[N] = {0};
    float log_u[N];
    for (int i = 0; i < N; i++) {
        double sum = 0.0;
        for (int j = 0; j < N; j++) {
            sum += j == i ? 0.0 : exp((s[i][j] - s[i][i] - (double)zeta[j]) / tau);
        }
        log_u[i] = (float)log(sum / (N - 1));
        const double norm = sum + exp(-(double)zeta[i] / tau);
        for (int j = 0; j < N; j++) {
            exact[j] += exp((s[i][j] - s[i][i] - (double)zeta[j]) / tau) / norm;
        }
    }
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        double mean[N] = {0};
        int visits[N] = {0};
        for (unsigned mask = 0; mask < 1u << N; mask++) {
            if (__builtin_popcount(mask) != K) {
                continue;
            }
            struct error err = {0};
            struct sample_state *samples = NULL;
            struct loss *loss = NULL;
            struct loss_options options;
            loss_options_default(&options);
            options.tau = tau;
            options.gamma = 1e-9;
            options.zeta_gradient = unbiased == 1 ? LOSS_ZETA_UNBIASED : LOSS_ZETA_PAPER;
            assert_ok(sample_state_create(&samples, N, NULL, &err), err);
            assert_ok(loss_create(&loss, &options, samples, N, K, &err), err);
            struct fixture view = {.state = samples};
            memcpy(column(&view, "image.log_u"), log_u, sizeof log_u);
            memcpy(column(&view, "text.zeta"), zeta, sizeof zeta);
            uint64_t ids[K];
            float batch[K * K];
            float gradient[K * K];
            for (int i = 0, k = 0; i < N; i++) {
                if (mask >> i & 1u) {
                    ids[k++] = (uint64_t)i;
                }
            }
            for (int i = 0; i < K * K; i++) {
                batch[i] = (float)s[ids[i / K]][ids[i % K]];
            }
            const struct loss_input in = {.similarity = batch,
                                          .sample_ids = ids,
                                          .batch_count = K,
                                          .zeta_lr_text = 1.0,
                                          .zeta_lr_image = 0.0};
            struct loss_output out = {.gradient = gradient};
            assert_ok(loss_step(loss, &in, &out, &err), err);
            for (int k = 0; k < K; k++) {
                const int j = (int)ids[k];
                mean[j] += (double)zeta[j] - (double)column(&view, "text.zeta")[j];
                visits[j]++;
            }
            loss_destroy(loss);
            sample_state_destroy(samples);
        }
        double largest = 0.0;
        for (int j = 0; j < N; j++) {
            largest = fmax(largest, fabs(mean[j] / visits[j] - (1.0 - exact[j])));
        }
        assert_true(unbiased == 1 ? largest < 1e-5 : largest > 1e-2);
    }
}

/* By how much the last of visits + 1 steps in one epoch moves a zeta, in tau times its momentum. */
static double step_by_visit(double tau, double scale, uint64_t epoch, int visits) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f, "nuclr", tau * scale, 100);
    loss_destroy(f.loss);
    sample_state_destroy(f.state);
    f.options.zeta_by_visit = true;
    f.options.zeta_freeze_epochs = 2;
    f.options.zeta0 = -0.0625 * scale;
    assert_ok(sample_state_create(&f.state, 100, NULL, &err), err);
    assert_ok(loss_create(&f.loss, &f.options, f.state, 100, B, &err), err);
    for (int i = 0; i < B * B; i++) {
        f.similarity[i] *= (float)scale;
    }
    const struct loss_input in = {.similarity = f.similarity,
                                  .sample_ids = f.ids,
                                  .batch_count = B,
                                  .epoch = epoch,
                                  .zeta_lr_text = 1.0,
                                  .zeta_lr_image = 1.0};
    double moved = 0.0;
    for (int k = 0; k <= visits; k++) {
        struct loss_output out = {.gradient = f.gradient};
        const float before = column(&f, "text.zeta")[f.ids[0]];
        assert_ok(loss_step(f.loss, &in, &out, &err), err);
        moved = (double)(column(&f, "text.zeta")[f.ids[0]] - before) /
                (tau * scale * (double)column(&f, "text.zeta_momentum")[f.ids[0]]);
    }
    close_fixture(&f);
    return moved;
}

TEST(automatic_zeta_steps_fall_with_visits_and_scale_with_tau) {
    assert_true(fabs(step_by_visit(0.5, 1.0, 10, 0) + 0.5) < 1e-5);
    assert_true(fabs(step_by_visit(0.5, 1.0, 10, 3) + 1.0 / 5.0) < 1e-5);
    assert_true(fabs(step_by_visit(0.5, 1.0, 3, 3) + 1.0 / 3.0) < 1e-5); /* 2 epochs are frozen */
    assert_true(fabs(step_by_visit(0.5, 1.0, 1000, 40) + 0.1) < 1e-4);
    assert_true(fabs(step_by_visit(0.5, 0.25, 10, 3) + 1.0 / 5.0) < 1e-5);
}

TEST(an_automatic_zeta_step_is_at_most_tau) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f, "nuclr", 0.05, 100);
    loss_destroy(f.loss);
    f.options.zeta_by_visit = true;
    sample_state_destroy(f.state);
    assert_ok(sample_state_create(&f.state, 100, NULL, &err), err);
    assert_ok(loss_create(&f.loss, &f.options, f.state, 100, B, &err), err);
    for (int i = 0; i < B * B; i++) { /* text 0 is the most similar to every image */
        f.similarity[i] = i % B == 0 ? 1.0f : -1.0f;
    }
    const float before = f.options.zeta0 == 0.0 ? 0.0f : (float)f.options.zeta0;
    (void)step_rates(&f, 1.0);
    assert_true((double)column(&f, "text.zeta_momentum")[f.ids[0]] < -2.0);
    assert_true(fabs((double)(column(&f, "text.zeta")[f.ids[0]] - before) - 0.05) < 1e-7);
    close_fixture(&f);
}

/* The saturated pair of the public NUCLR log: z = 1 - N/B = -5465.58 for N = 2,798,889, B = 512. */
TEST(saturated_zeta_gradient_is_that_of_the_public_log) {
    struct error err = {0};
    struct sample_state *samples = NULL;
    struct loss *loss = NULL;
    struct loss_options options;
    loss_options_default(&options);
    options.zeta_gradient = LOSS_ZETA_PAPER;
    assert_ok(sample_state_create(&samples, MAX_B, NULL, &err), err);
    assert_ok(loss_create(&loss, &options, samples, 2798889, MAX_B, &err), err);
    float *s = malloc(sizeof *s * MAX_B * MAX_B);
    float *g = malloc(sizeof *g * MAX_B * MAX_B);
    uint64_t ids[MAX_B];
    for (int i = 0; i < MAX_B * MAX_B; i++) {
        s[i] = i % (MAX_B + 1) == 0 ? 1.0f : -1.0f;
    }
    for (int i = 0; i < MAX_B; i++) {
        ids[i] = (uint64_t)i;
    }
    const struct loss_input in = {.similarity = s,
                                  .sample_ids = ids,
                                  .batch_count = MAX_B,
                                  .zeta_lr_text = 5e-6,
                                  .zeta_lr_image = 5e-7};
    struct loss_output out = {.gradient = g};
    assert_ok(loss_step(loss, &in, &out, &err), err);
    struct fixture view = {.state = samples};
    assert_true(fabs((double)column(&view, "text.zeta_momentum")[3] + 5465.58) < 0.01);
    assert_true(fabs((double)column(&view, "text.zeta")[3] - (-0.05 + 5e-6 * 5465.58)) < 1e-6);
    assert_true(fabs((double)column(&view, "image.zeta")[3] - (-0.05 + 5e-7 * 5465.58)) < 1e-6);
    const struct loss_scalar *scalars = NULL;
    assert_int_equal(loss_scalars(loss, &scalars), 2);
    assert_string_equal(scalars[1].name, "text.xi");
    assert_true(*scalars[1].value == 0.0);
    for (int i = 0; i < MAX_B * MAX_B; i++) {
        assert_true(isfinite(g[i]));
    }
    free(s);
    free(g);
    loss_destroy(loss);
    sample_state_destroy(samples);
}

/* Means over distinct samples of what the step stored; nothing where the loss keeps nothing. */
TEST(a_step_reports_the_means_of_its_batch) {
    static const char *const names[] = {"clip", "sogclr", "isogclr", "nuclr"};
    static const char *const columns[] = {"image.log_u", "text.log_u", "image.zeta", "text.zeta"};
    for (size_t k = 0; k < 4; k++) {
        struct fixture f;
        open_fixture(&f, names[k], 0.05, 1000);
        f.ids[3] = f.ids[1];
        (void)step_rates(&f, 1e-3);
        const struct loss_output out = step_rates(&f, 1e-3);
        const double got[] = {out.batch.log_u[0], out.batch.log_u[1], out.batch.zeta[0],
                              out.batch.zeta[1]};
        for (int i = 0; i < 4; i++) {
            if (sample_state_find(f.state, columns[i]) < 0) {
                assert_true(isnan(got[i]));
                assert_true(strstr(columns[i], "zeta") != NULL ? k < 3 : k == 0);
                continue;
            }
            const float *values = column(&f, columns[i]);
            double sum = 0.0;
            for (int a = 0; a < B; a++) {
                sum += a == 3 ? 0.0 : (double)values[f.ids[a]];
            }
            assert_true(fabs(got[i] - sum / (B - 1)) <= 1e-12);
        }
        close_fixture(&f);
    }
}

static void assert_same_step(struct fixture *a, struct fixture *b, double tolerance) {
    step(a);
    step(b);
    double error = 0.0;
    double norm = 0.0;
    for (int i = 0; i < B * B; i++) {
        error += pow((double)a->gradient[i] - (double)b->gradient[i], 2.0);
        norm += pow((double)a->gradient[i], 2.0);
    }
    assert_true(norm > 0.0 && sqrt(error / norm) <= tolerance);
}

/* Opens `name` anew with the fixture's changed options. */
static void reopen(struct fixture *f) {
    struct error err = {0};
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
    assert_ok(sample_state_create(&f->state, 100, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &f->options, f->state, 1000, B, &err), err);
}

TEST(losses_become_each_other_at_their_limits) {
    struct fixture a;
    struct fixture b;
    open_fixture(&a, "hcl", 0.25, 1000);
    open_fixture(&b, "dcl", 0.25, 1000);
    a.options.beta = 0.0;
    reopen(&a);
    assert_same_step(&a, &b, 0.0);
    close_fixture(&a);

    open_fixture(&a, "clip", 0.25, 1000);
    b.options.tau_plus = 0.0;
    reopen(&b);
    assert_same_step(&a, &b, 1e-7);
    close_fixture(&b);

    open_fixture(&b, "rince", 0.25, 1000);
    b.options.q = 1e-7;
    reopen(&b);
    assert_same_step(&a, &b, 1e-5);
    close_fixture(&a);
    close_fixture(&b);

    open_fixture(&a, "nuclr", 0.25, 1000);
    open_fixture(&b, "nuclr-frozen", 0.25, 1000);
    step_rates(&b, 1.0);
    step(&a);
    assert_same_step(&a, &b, 0.0);
    close_fixture(&a);
    close_fixture(&b);
}

/* max zeta of texts and images as the public log of the CC3M run prints them after epochs 5, 6,
 * ...: pairs so well separated that every gradient is the saturated one. */
TEST(reference_nuclr_follows_the_published_zeta) {
    enum { EPOCHS = 30, FREEZE = 5 };
    static const double logged[] = {-0.02267, 0.00455, 0.0314, 0.0577, 0.0832};
    struct error err = {0};
    struct fixture f;
    open_fixture(&f, "nuclr", 0.01, 1000);
    loss_destroy(f.loss);
    sample_state_destroy(f.state);
    f.options.parity = LOSS_PARITY_REFERENCE;
    assert_ok(sample_state_create(&f.state, MAX_B, NULL, &err), err);
    assert_ok(loss_create(&f.loss, &f.options, f.state, 2798889, MAX_B, &err), err);
    float *s = malloc(sizeof *s * MAX_B * MAX_B);
    float *g = malloc(sizeof *g * MAX_B * MAX_B);
    uint64_t ids[MAX_B];
    for (int i = 0; i < MAX_B * MAX_B; i++) {
        s[i] = i % (MAX_B + 1) == 0 ? 1.0f : -1.0f;
    }
    for (int i = 0; i < MAX_B; i++) {
        ids[i] = (uint64_t)i;
    }
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        const double rate = schedule_reference_zeta_lr(5e-6, FREEZE, EPOCHS, epoch);
        const struct loss_input in = {.similarity = s,
                                      .sample_ids = ids,
                                      .batch_count = MAX_B,
                                      .epoch = epoch,
                                      .zeta_lr_text = rate,
                                      .zeta_lr_image = 0.1 * rate};
        struct loss_output out = {.gradient = g};
        assert_ok(loss_step(f.loss, &in, &out, &err), err);
        if (epoch >= FREEZE && epoch < FREEZE + 5) {
            assert_true(fabs((double)column(&f, "text.zeta")[3] - logged[epoch - FREEZE]) < 1e-4);
        }
    }
    assert_true(fabs((double)column(&f, "text.zeta")[3] - 0.2009) < 1e-4);
    assert_true(fabs((double)column(&f, "image.zeta")[3] - -0.02491) < 1e-5);
    free(s);
    free(g);
    close_fixture(&f);
}

TEST(wrong_options_are_refused) {
    struct error err = {0};
    struct sample_state *samples = NULL;
    struct loss *loss = NULL;
    struct loss_options options;
    assert_ok(sample_state_create(&samples, 10, NULL, &err), err);
    loss_options_default(&options);
    options.name = "no-such-loss";
    assert_status(loss_create(&loss, &options, samples, 10, 4, &err), STATUS_USAGE, err);
    loss_options_default(&options);
    options.tau = -0.1;
    assert_status(loss_create(&loss, &options, samples, 10, 4, &err), STATUS_USAGE, err);
    loss_options_default(&options);
    options.parity = LOSS_PARITY_REFERENCE;
    options.gamma_schedule = LOSS_GAMMA_COSINE; /* of no published code */
    assert_status(loss_create(&loss, &options, samples, 10, 4, &err), STATUS_USAGE, err);
    loss_options_default(&options);
    options.temperature = LOSS_TEMPERATURE_GLOBAL; /* not of nuclr */
    assert_status(loss_create(&loss, &options, samples, 10, 4, &err), STATUS_USAGE, err);
    sample_state_destroy(samples);
}
