/*
 * Popularity and how Algorithm 1 learns it: the exact minimiser against a closed form and the
 * slopes of eq. (8), the learned one against the exact one.
 */
#include <math.h>
#include <string.h>

#include "tests/support/test.h"
#include "tools/ccstudy/correlation.h"
#include "tools/ccstudy/popularity.h"
#include "tools/ccstudy/zeta_model.h"

enum { IMAGE, TEXT };

TEST(correlations_are_those_counted_by_hand) {
    const double x[] = {1, 2, 3, 4};
    const double y[] = {2, 1, 4, 3}; /* both vary by 5, together by 3 */
    const double down[] = {8, 6, 4, 2};
    const double flat[] = {7, 7, 7, 7};
    assert_true(fabs(correlation(x, y, 4) - 0.6) < 1e-15);
    assert_true(fabs(correlation(x, down, 4) + 1.0) < 1e-15);
    assert_true(isnan(correlation(x, flat, 4)));
}

/* Of two pairs with similarities a b / c d the columns' shares add up to 1 where
 * zeta_2 - zeta_1 = (b - a + d - c) / 2. */
TEST(popularity_of_two_pairs_has_a_closed_form) {
    const double tau = 0.3;
    const double e[4] = {0.9, 0.2, -0.4, 0.7};
    double kernel[4];
    double q[2];
    struct error err = {0};
    for (int i = 0; i < 4; i++) {
        kernel[i] = exp(e[i] / tau);
    }
    assert_ok(popularity_solve(q, kernel, 2, &err), err);
    const double expected = (e[1] - e[0] + e[3] - e[2]) / 2.0;
    assert_true(fabs(tau * log(q[1] / q[0]) - expected) < 1e-12);
}

/* Eq. (8) by its definition; images are the contrasts of texts on the other side. */
static double objective(const struct zeta_problem *p, int side, const double *zeta) {
    const size_t n = p->count;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double row = 0.0;
        for (size_t j = 0; j < n; j++) {
            const float s = side == TEXT ? p->similarity[i * n + j] : p->similarity[j * n + i];
            row += exp(((double)s - zeta[j]) / p->tau);
        }
        sum += (p->tau * log(row) - (double)p->similarity[i * n + i] + zeta[i]) / (double)n;
    }
    return sum;
}

TEST(minimisers_have_no_slope) {
    enum { COUNT = 40 };
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        struct zeta_problem p;
        struct error err = {0};
        assert_ok(zeta_problem_init(&p, (enum zeta_kind)kind, COUNT, test_seed(), &err), err);
        for (int side = 0; side < ZETA_SIDES; side++) {
            double zeta[COUNT];
            memcpy(zeta, p.minimiser[side], sizeof zeta);
            const double least = objective(&p, side, zeta);
            for (int j = 0; j < COUNT; j++) {
                const double h = 1e-4;
                zeta[j] += h;
                const double above = objective(&p, side, zeta);
                zeta[j] -= 2.0 * h;
                const double below = objective(&p, side, zeta);
                zeta[j] += h;
                assert_true(above > least && below > least);
                assert_true(fabs(above - below) < 1e-3 * (above + below - 2.0 * least));
            }
        }
        zeta_problem_fini(&p);
    }
}

/* The sums of shares tell the two problems apart: about 1 by chance, more where pairs are fitted.
 */
TEST(fitted_pairs_have_larger_own_shares) {
    double share[ZETA_KINDS];
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        struct zeta_problem p;
        struct error err = {0};
        assert_ok(zeta_problem_init(&p, (enum zeta_kind)kind, ZETA_PAIRS, test_seed(), &err), err);
        share[kind] = p.own_share;
        zeta_problem_fini(&p);
    }
    assert_true(share[ZETA_DRAWN] > 0.5 && share[ZETA_DRAWN] < 2.5);
    assert_true(share[ZETA_FITTED] > 5.0);
}

static struct zeta_point
learn(enum zeta_kind kind, enum loss_zeta_gradient gradient, size_t batch, uint64_t epochs) {
    struct zeta_problem p;
    struct zeta_learner *l;
    struct zeta_point at;
    struct error err = {0};
    const struct zeta_options o = {
        .gradient = gradient, .batch = batch, .epochs = epochs, .seed = test_seed()};
    assert_ok(zeta_problem_init(&p, kind, ZETA_PAIRS, test_seed(), &err), err);
    assert_ok(zeta_learner_create(&l, &p, &o, &err), err);
    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        assert_ok(zeta_learner_epoch(l, &err), err);
        zeta_learner_measure(l, &at);
        for (int side = 0; side < ZETA_SIDES; side++) {
            /* Each form of xi by its definition; zeta begins at -0.05. */
            const double *xi_signed = at.xi[LOSS_XI_SIGNED];
            assert_true(at.xi[LOSS_XI_ALL][side] == fmax(0.0, at.largest[side]));
            assert_true(xi_signed[side] >= at.xi[LOSS_XI_ALL][side]);
            assert_true(at.xi[LOSS_XI_NORM][side] >= fmax(0.05, xi_signed[side]));
        }
    }
    zeta_learner_destroy(l);
    zeta_problem_fini(&p);
    return at;
}

TEST(algorithm_1_learns_popularity_where_pairs_are_as_drawn) {
    for (int gradient = 0; gradient < 2; gradient++) {
        const struct zeta_point p = learn(ZETA_DRAWN, (enum loss_zeta_gradient)gradient, 20, 100);
        assert_true(p.correlation[IMAGE] > 0.99 && p.correlation[TEXT] > 0.99);
        assert_true(p.distance[IMAGE] < 0.02 && p.distance[TEXT] < 0.02);
    }
}

/* Of fitted pairs only the unbiased gradient does; as published all zeta rise. */
TEST(the_published_gradient_drifts_where_pairs_are_fitted) {
    const struct zeta_point paper = learn(ZETA_FITTED, LOSS_ZETA_PAPER, 20, 100);
    const struct zeta_point unbiased = learn(ZETA_FITTED, LOSS_ZETA_UNBIASED, 20, 100);
    for (int side = 0; side < ZETA_SIDES; side++) {
        assert_true(unbiased.correlation[side] > 0.98 && fabs(unbiased.mean[side]) < 0.1);
        assert_true(paper.correlation[side] < 0.5 && paper.mean[side] > 0.3);
    }
}

/* norm weakens the own pair from the first step on, and the model's gradient notices. */
TEST(the_form_of_xi_changes_the_gradient) {
    const struct zeta_point p = learn(ZETA_FITTED, LOSS_ZETA_UNBIASED, 20, 5);
    assert_true(p.change[LOSS_XI_SIGNED] == 0.0 && p.change[LOSS_XI_NORM] > 1e-3);
}
