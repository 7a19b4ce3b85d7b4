/*
 * The toy problem of NUCLR: its closed forms against values from independent quadrature, and that
 * the fixed point is one.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/support/test.h"
#include "tools/ccstudy/toy_model.h"

/* Computed by two-dimensional quadrature, apart from this code. */
static const struct {
    double tau, x[2], z;
} known_partitions[] = {
    {0.2, {0.5, 0.5}, 20.007707389},    {0.2, {-0.6, 0.8}, 4.24413793942},
    {0.2, {0.0, 1.0}, 29.4826318205},   {0.2, {1.0, 0.0}, 29.4826318205},
    {0.2, {-1.0, 0.0}, 0.1986524106},   {0.2, {0.3, 0.4}, 7.41490226314},
    {1.0, {0.5, 0.5}, 1.68335714824},   {1.0, {-0.6, 0.8}, 1.15197876339},
    {1.0, {1.0, 0.0}, 1.71828182846},   {1.0, {-1.0, 0.0}, 0.632120558829},
    {0.2, {1e-6, 1e-6}, 1.00000500001},
};

TEST(partitions_are_the_known_ones) {
    for (size_t i = 0; i < sizeof known_partitions / sizeof known_partitions[0]; i++) {
        const double z = toy_partition(known_partitions[i].tau, known_partitions[i].x);
        assert_true(fabs(z / known_partitions[i].z - 1.0) < 1e-9);
    }
}

TEST(true_risks_are_the_known_ones) {
    assert_true(fabs(toy_true_risk(0.2) - -0.0808944502) < 1e-10);
    assert_true(fabs(toy_true_risk(1.0) - -0.0205771449) < 1e-10);
}

/* E[y | x] = d log phi / d (x / tau): the mean of many draws, coordinate by coordinate. */
TEST(draws_have_the_density) {
    enum { COUNT = 1 << 14 };
    struct toy_pair *pairs = malloc(COUNT * sizeof *pairs);
    assert_true(pairs != NULL);
    const double tau = 0.2;
    double off = 0.0;
    double risk = 0.0;
    toy_draw(pairs, COUNT, tau, test_seed(), 0);
    for (size_t i = 0; i < COUNT; i++) {
        const struct toy_pair *p = &pairs[i];
        const double radius = p->x[0] * p->x[0] + p->x[1] * p->x[1];
        assert_true(radius <= 1.0 && p->x[1] >= 0.0);
        assert_true(p->y[0] >= 0.0 && p->y[0] <= 1.0 && p->y[1] >= 0.0 && p->y[1] <= 1.0);
        off += radius / COUNT; /* of a uniform disc: a half */
        risk -=
            (p->x[0] * p->y[0] + p->x[1] * p->y[1] - tau * log(toy_partition(tau, p->x))) / COUNT;
    }
    assert_true(fabs(off - 0.5) < 5.0 * 0.29 / sqrt(COUNT));
    assert_true(fabs(risk - toy_true_risk(tau)) < 5.0 * 0.17 / sqrt(COUNT));
    free(pairs);
}

/* sum_i P_ij = 1 for every j, with P by its definition from the estimate. */
TEST(estimate_is_a_fixed_point) {
    enum { COUNT = 60 };
    struct toy_pair pairs[COUNT];
    struct toy_problem p;
    double sums[COUNT] = {0};
    toy_draw(pairs, COUNT, 0.2, test_seed(), 3);
    struct error err = {0};
    assert_ok(toy_solve(&p, pairs, COUNT, 0.2, &err), err);
    for (size_t i = 0; i < COUNT; i++) {
        double row = 0.0;
        for (size_t j = 0; j < COUNT; j++) {
            row += exp((pairs[i].x[0] * pairs[j].y[0] + pairs[i].x[1] * pairs[j].y[1]) / 0.2) /
                   p.estimate[j];
        }
        for (size_t j = 0; j < COUNT; j++) {
            sums[j] += exp((pairs[i].x[0] * pairs[j].y[0] + pairs[i].x[1] * pairs[j].y[1]) / 0.2) /
                       p.estimate[j] / row;
        }
    }
    for (size_t j = 0; j < COUNT; j++) {
        assert_true(fabs(sums[j] - 1.0) < 1e-10);
    }
    toy_problem_fini(&p);
}

/* What the figure shows: with 400 pairs GCL is far off at tau 0.2, NUCLR is not. */
TEST(popularity_brings_the_risk_near) {
    enum { COUNT = 400 };
    struct toy_pair pairs[COUNT];
    struct toy_problem p;
    toy_draw(pairs, COUNT, 0.2, test_seed(), 0);
    struct error err = {0};
    assert_ok(toy_solve(&p, pairs, COUNT, 0.2, &err), err);
    const struct toy_result r = toy_compare(&p, toy_true_risk(0.2));
    assert_true(r.nuclr < 0.04 && r.gcl > 0.03 && r.nuclr < r.gcl);
    assert_true(r.error_nuclr < 0.01 && r.error_gcl > 0.03);
    assert_true(r.correlation > 0.99);
    toy_problem_fini(&p);
}
