/*
 * toy_model: the toy problem of NUCLR (Wang et al., ICLR 2025, section 3.3 and appendix G), where
 * everything is known: x is uniform on the upper half of the unit disc, y lies in the unit square
 * with density p(y | x) = exp(<x, y> / tau) / Z(x), and similarities are E = <x, y>. No model is
 * trained; what is compared is how well three objectives know the partition function:
 *
 *   L(q) = -1/n sum_i tau log( exp(E_ii / tau) / sum_j exp(E_ij / tau) / q_j )
 *
 *   MLE    Z(x_i) itself in the place of the sum
 *   GCL    q_j = n for all j
 *   NUCLR  q from the data alone: the popularity zeta that minimises eq. (8)
 *
 * Coordinates of y are independent given x, so Z is a product of two integrals in closed form, and
 * the true risk one integral over an angle.
 *
 * Threading : pure functions; a struct toy_problem has one owner.
 */
#ifndef TOOLS_CCSTUDY_TOY_MODEL_H
#define TOOLS_CCSTUDY_TOY_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum { TOY_MAX_PAIRS = 1 << 14 };

struct toy_pair {
    double x[2], y[2];
};

/* Z(x), the integral of exp(<x, y> / tau) over the unit square. */
double toy_partition(double tau, const double x[2]);

/* E[-tau log p(y | x)] over x and y. */
double toy_true_risk(double tau);

/* count pairs drawn by (seed, count, repeat). */
void toy_draw(struct toy_pair *pairs, size_t count, double tau, uint64_t seed, uint64_t repeat);

/* One set of pairs and what the objectives make of it. */
struct toy_problem {
    size_t count; /* n */
    double tau;
    const struct toy_pair *pairs; /* (n), borrowed */
    double *kernel;               /* (n, n): exp(E_ij / tau) */
    double *popularity;           /* (n): q_j = sum_i p(y_j | x_i) */
    double *estimate;             /* (n): NUCLR's q_j, of the same largest value */
    double *logs;                 /* (2, n): of both */
};

/* Solves for the estimate (popularity.h). count in [2, TOY_MAX_PAIRS]. Returns OK, NOMEM or INVALID
 * (no convergence). */
enum status toy_solve(struct toy_problem *p,
                      const struct toy_pair *pairs,
                      size_t count,
                      double tau,
                      struct error *err);
void toy_problem_fini(struct toy_problem *p); /* accepts an all-zero one */

struct toy_result {
    double nuclr, gcl, mle;        /* |L - true risk| */
    double error_nuclr, error_gcl; /* 1/n sum_ij |1/q~_j - 1/q_j| exp((E_ij - 1) / tau) */
    double correlation;            /* of log q and its estimate's logarithm */
};

struct toy_result toy_compare(const struct toy_problem *p, double true_risk);

#endif
