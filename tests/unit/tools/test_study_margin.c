/*
 * Margins normalised by k-variance: the assignment against every permutation, the margins against
 * an example worked out by hand.
 */
#include <math.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "tools/ccstudy/assignment.h"
#include "tools/ccstudy/correlation.h"
#include "tools/ccstudy/margin_model.h"

enum { MOST = 7 };

/* The cheapest of all ways to match rows `row` to n - 1 with the columns that are not taken. */
static double cheapest(const double *cost, size_t n, size_t row, unsigned taken) {
    double best = row == n ? 0.0 : HUGE_VAL;
    for (size_t c = 0; row < n && c < n; c++) {
        if ((taken >> c & 1u) == 0) {
            best = fmin(best, cost[row * n + c] + cheapest(cost, n, row + 1, taken | 1u << c));
        }
    }
    return best;
}

TEST(assignments_are_the_cheapest_of_all_permutations) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_STUDY, 0, 0);
    for (int round = 0; round < 200; round++) {
        const size_t n = 1 + rng_below(&r, MOST);
        double cost[MOST * MOST];
        double found;
        struct error err = {0};
        for (size_t i = 0; i < n * n; i++) { /* every second round with many equal costs */
            cost[i] = round % 2 == 0 ? 4.0 * rng_uniform(&r) - 2.0 : (double)rng_below(&r, 3);
        }
        assert_ok(assignment_solve(&found, cost, n, &err), err);
        assert_true(fabs(found - cheapest(cost, n, 0, 0)) < 1e-12);
    }
}

/* On a line the cheapest matching pairs sorted points. */
TEST(assignments_of_points_on_a_line_pair_them_in_order) {
    enum { N = 60 };
    static double cost[N * N];
    double expected = 0.0;
    double found;
    struct error err = {0};
    for (int i = 0; i < N; i++) {
        const double x = (double)((i * 37) % N);
        expected += fabs(0.9 * i + 3.0 - i);
        for (int j = 0; j < N; j++) {
            cost[i * N + j] = fabs(x - (0.9 * ((j * 23) % N) + 3.0));
        }
    }
    assert_ok(assignment_solve(&found, cost, N, &err), err);
    assert_true(fabs(found - expected) < 1e-9);
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-5 * fabs(b);
}

/* f_0 = s z, f_1 = -s z on the line. Margins of z = 1, 3 (class 0) and -2, -2 (class 1): 2, 6, 4, 4
 * times s; gradients 2 s; k = 1: Var_0 = 2, Var_1 = 0, so E[Var] = 1 and E[Var Lip] = 2 s. */
TEST(margins_are_those_worked_out_by_hand) {
    const float rows[] = {1, 3, -2, -2, 50, 60};
    const int32_t labels[] = {0, 0, 1, 1, -1, 2};
    const struct classify_set set = {.rows = rows, .labels = labels, .count = 6, .dim = 1};
    for (int scale = 1; scale <= 8; scale *= 8) {
        const float s = (float)scale;
        const float weight[] = {s, -s};
        const float bias[] = {0, 0};
        const struct margin_classifier f = {weight, bias, 2};
        struct margin_result r;
        struct error err = {0};
        assert_ok(margin_measure(&r, &set, &f, 4, test_seed(), &err), err);
        assert_true(near(r.median[MARGIN_PLAIN], 4.0 * scale));
        assert_true(near(r.median[MARGIN_GN], 2.0));
        assert_true(near(r.median[MARGIN_KV], 2.0));
        assert_true(near(r.median[MARGIN_KV_GN], 2.0));
        assert_true(near(r.variance, 1.0) && near(r.lipschitz, 2.0 * scale));
    }
}

/* Three classes: the rival is the best wrong class, and a bias counts. Rows (1, 0) and (3, 0) of
 * class 0: f = (z_0, 0.5, z_1 - 9), so the rival is class 1, margins 0.5 and 2.5, gradient 1. */
TEST(the_rival_is_the_best_wrong_class) {
    const float rows[] = {1, 0, 3, 0};
    const int32_t labels[] = {0, 0};
    const float weight[] = {1, 0, 0, 0, 0, 1};
    const float bias[] = {0, 0.5f, -9};
    const struct classify_set set = {.rows = rows, .labels = labels, .count = 2, .dim = 2};
    const struct margin_classifier f = {weight, bias, 3};
    struct margin_result r;
    struct error err = {0};
    assert_ok(margin_measure(&r, &set, &f, 1, test_seed(), &err), err);
    assert_true(near(r.median[MARGIN_PLAIN], 1.5) && near(r.lipschitz, 1.0));
    assert_true(near(r.variance, 2.0) && near(r.median[MARGIN_KV], 0.75));
}

TEST(classes_of_one_image_have_no_variance) {
    const float rows[] = {1, -1};
    const int32_t labels[] = {0, 1};
    const float weight[] = {1, -1};
    const float bias[] = {0, 0};
    const struct classify_set set = {.rows = rows, .labels = labels, .count = 2, .dim = 1};
    const struct margin_classifier f = {weight, bias, 2};
    struct margin_result r;
    struct error err = {0};
    assert_status(margin_measure(&r, &set, &f, 1, 0, &err), STATUS_USAGE, err);
}

TEST(equal_values_share_their_ranks) {
    const double values[] = {5, 1, 5, 9};
    double ranks[4];
    ranks_of(ranks, values, 4);
    assert_true(ranks[0] == 1.5 && ranks[1] == 0.0 && ranks[2] == 1.5 && ranks[3] == 3.0);
}
