/*
 * popularity: with v_j = exp(-zeta_j / tau) and P_ij = K_ij v_j / sum_k K_ik v_k the gradient of
 * eq. (8) is (1 - sum_i P_ij) / n, and v_j <- v_j / sum_i P_ij is a fixed-point iteration towards
 * zero (Sinkhorn's).
 */
#include "tools/ccstudy/popularity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITERATIONS = 10000 };

static const double largest_gradient = 1e-14;

/* sums (n) = sum_i P_ij; returns the largest |1 - sums| / n. */
static double add_shares(double *sums, const double *kernel, const double *v, size_t n) {
    double largest = 0.0;
    memset(sums, 0, n * sizeof *sums);
    for (size_t i = 0; i < n; i++) {
        const double *k = kernel + i * n;
        double row = 0.0;
        for (size_t j = 0; j < n; j++) {
            row += k[j] * v[j];
        }
        for (size_t j = 0; j < n; j++) {
            sums[j] += k[j] * v[j] / row;
        }
    }
    for (size_t j = 0; j < n; j++) {
        largest = fmax(largest, fabs(1.0 - sums[j]) / (double)n);
    }
    return largest;
}

enum status popularity_solve(double *q, const double *kernel, size_t n, struct error *err) {
    REQUIRE(q != NULL && kernel != NULL && n >= 2);
    double *v = q; /* until the end */
    double *sums = malloc(n * sizeof *sums);
    if (sums == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    for (size_t j = 0; j < n; j++) {
        v[j] = 1.0;
    }
    int iterations = 0;
    while (add_shares(sums, kernel, v, n) >= largest_gradient) {
        if (iterations++ == MAX_ITERATIONS) {
            free(sums);
            return error_set(err, STATUS_INVALID, "%zu pairs: no fixed point after %d iterations",
                             n, MAX_ITERATIONS);
        }
        for (size_t j = 0; j < n; j++) {
            v[j] /= sums[j];
        }
    }
    for (size_t j = 0; j < n; j++) {
        q[j] = 1.0 / v[j];
    }
    free(sums);
    return STATUS_OK;
}
