/*
 * gradient_whiten: eigenvectors of the covariance by Jacobi's rotations.
 */
#include "tools/ccstudy/gradient_whiten.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MAX_SWEEPS = 30 };

static const double enough = 1e-9; /* of the diagonal, left beside it */

static void covariance(double *c, double *mean, const float *rows, size_t count, size_t dim) {
    for (size_t d = 0; d < dim; d++) {
        mean[d] = 0.0;
        for (size_t r = 0; r < count; r++) {
            mean[d] += (double)rows[r * dim + d] / (double)count;
        }
    }
    for (size_t i = 0; i < dim * dim; i++) {
        c[i] = 0.0;
    }
    for (size_t r = 0; r < count; r++) {
        const float *row = rows + r * dim;
        for (size_t i = 0; i < dim; i++) {
            const double a = ((double)row[i] - mean[i]) / (double)count;
            for (size_t j = 0; j < dim; j++) {
                c[i * dim + j] += a * ((double)row[j] - mean[j]);
            }
        }
    }
}

/* Rows p and q of m turned by the angle whose cosine and sine are given. */
static void turn_rows(double *m, size_t dim, size_t p, size_t q, double cosine, double sine) {
    for (size_t k = 0; k < dim; k++) {
        const double a = m[p * dim + k];
        const double b = m[q * dim + k];
        m[p * dim + k] = cosine * a - sine * b;
        m[q * dim + k] = sine * a + cosine * b;
    }
}

static void turn_columns(double *m, size_t dim, size_t p, size_t q, double cosine, double sine) {
    for (size_t k = 0; k < dim; k++) {
        const double a = m[k * dim + p];
        const double b = m[k * dim + q];
        m[k * dim + p] = cosine * a - sine * b;
        m[k * dim + q] = sine * a + cosine * b;
    }
}

/* Rows of v become eigenvectors of the symmetric c, whose diagonal becomes their eigenvalues. */
static void diagonalise(double *c, double *v, size_t dim) {
    for (size_t i = 0; i < dim * dim; i++) {
        v[i] = i % (dim + 1) == 0 ? 1.0 : 0.0;
    }
    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        double beside = 0.0;
        double diagonal = 0.0;
        for (size_t i = 0; i < dim * dim; i++) {
            *(i % (dim + 1) == 0 ? &diagonal : &beside) += c[i] * c[i];
        }
        if (beside <= enough * enough * diagonal) {
            return;
        }
        for (size_t p = 0; p < dim; p++) {
            for (size_t q = p + 1; q < dim; q++) {
                const double off = c[p * dim + q];
                if (off != 0.0) {
                    const double angle = 0.5 * atan2(2.0 * off, c[q * dim + q] - c[p * dim + p]);
                    turn_rows(c, dim, p, q, cos(angle), sin(angle));
                    turn_columns(c, dim, p, q, cos(angle), sin(angle));
                    turn_rows(v, dim, p, q, cos(angle), sin(angle));
                }
            }
        }
    }
}

/* The largest eigenvalue that is not taken yet. */
static size_t next_largest(const double *c, bool *taken, size_t dim) {
    size_t best = dim;
    for (size_t i = 0; i < dim; i++) {
        if (!taken[i] && (best == dim || c[i * dim + i] > c[best * dim + best])) {
            best = i;
        }
    }
    taken[best] = true;
    return best;
}

enum status gradient_whiten(float *weight,
                            float *bias,
                            size_t components,
                            const float *rows,
                            size_t count,
                            size_t dim,
                            struct error *err) {
    REQUIRE(components <= dim && count > 0);
    double *c = calloc(2 * dim * dim + dim, sizeof *c);
    bool *taken = calloc(dim, sizeof *taken);
    if (c == NULL || taken == NULL) {
        free(c);
        free(taken);
        return error_set(err, STATUS_NOMEM, "no memory for principal components of %zu", dim);
    }
    double *v = c + dim * dim;
    double *mean = v + dim * dim;
    covariance(c, mean, rows, count, dim);
    diagonalise(c, v, dim);
    for (size_t k = 0; k < components; k++) {
        const size_t i = next_largest(c, taken, dim);
        const double variance = c[i * dim + i];
        const double scale = variance > enough * enough ? 1.0 / sqrt(variance) : 0.0;
        double at_mean = 0.0;
        for (size_t d = 0; d < dim; d++) {
            weight[k * dim + d] = (float)(scale * v[i * dim + d]);
            at_mean += scale * v[i * dim + d] * mean[d];
        }
        bias[k] = (float)-at_mean;
    }
    free(c);
    free(taken);
    return STATUS_OK;
}
