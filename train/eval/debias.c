/*
 * debias: in double: P0 by an orthonormal basis of the spurious prompts; the inverse through the
 * pairs' Gram matrix (Woodbury), (I + c Z Z^T)^-1 = I - Z (I/c + Z^T Z)^-1 Z^T, because there are
 * fewer pairs than dimensions, and by Cholesky, because it is positive definite.
 */
#include "train/eval/debias.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Embeddings are f32: what is left of a vector of length 1 below this is rounding. */
static const double nothing = 1e-5;

struct projection {
    int64_t dim;
    double *basis; /* (basis_count, dim), orthonormal */
    int64_t basis_count;
    double *differences; /* (pair_count, dim): Z^T */
    double *factor;      /* (pair_count, pair_count): lower triangle of I/c + Z^T Z */
    double *solved;      /* (pair_count) */
    double *row;         /* (dim) */
    int64_t pair_count;
};

static double dot(const double *a, const double *b, int64_t count) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(double *out, const double *x, double scale, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] += scale * x[i];
    }
}

/* Takes the basis out of a row, twice, so that rounding does not bring it back. */
static void take_out_basis(const struct projection *p, double *row) {
    for (int round = 0; round < 2; round++) {
        for (int64_t k = 0; k < p->basis_count; k++) {
            const double *b = p->basis + k * p->dim;
            add_scaled(row, b, -dot(b, row, p->dim), p->dim);
        }
    }
}

/* Gram-Schmidt; a prompt that others already span adds nothing. */
static void span_spurious(struct projection *p, const struct debias_prompts *prompts) {
    for (int64_t i = 0; i < prompts->spurious_count; i++) {
        double *row = p->basis + p->basis_count * p->dim;
        for (int64_t d = 0; d < p->dim; d++) {
            row[d] = (double)prompts->spurious[i * p->dim + d];
        }
        const double before = sqrt(dot(row, row, p->dim));
        take_out_basis(p, row);
        const double after = sqrt(dot(row, row, p->dim));
        if (after > nothing * before && p->basis_count < p->dim) {
            for (int64_t d = 0; d < p->dim; d++) {
                row[d] /= after;
            }
            p->basis_count++;
        }
    }
}

/* Cholesky's factor of I/c + Z^T Z, c = lambda / pairs. */
static void factor_pairs(struct projection *p, const struct debias_prompts *prompts) {
    const int64_t n = p->pair_count;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t d = 0; d < p->dim; d++) {
            p->differences[i * p->dim + d] = (double)prompts->pairs[2 * i * p->dim + d] -
                                             (double)prompts->pairs[(2 * i + 1) * p->dim + d];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        double *row = p->factor + i * n;
        for (int64_t j = 0; j <= i; j++) {
            const double *other = p->factor + j * n;
            const double gram =
                dot(p->differences + i * p->dim, p->differences + j * p->dim, p->dim);
            const double left = gram - dot(row, other, j);
            row[j] = i == j ? sqrt(left + (double)n / prompts->lambda) : left / other[j];
        }
    }
}

/* row <- (I + c Z Z^T)^-1 row */
static void calibrate(const struct projection *p, double *row) {
    const int64_t n = p->pair_count;
    double *x = p->solved;
    for (int64_t i = 0; i < n; i++) {
        const double right = dot(p->differences + i * p->dim, row, p->dim);
        x[i] = (right - dot(p->factor + i * n, x, i)) / p->factor[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) {
            x[i] -= p->factor[k * n + i] * x[k];
        }
        x[i] /= p->factor[i * n + i];
    }
    for (int64_t i = 0; i < n; i++) {
        add_scaled(row, p->differences + i * p->dim, -x[i], p->dim);
    }
}

static void projection_fini(struct projection *p) {
    free(p->basis);
    free(p->differences);
    free(p->factor);
    free(p->solved);
    free(p->row);
}

static enum status
projection_init(struct projection *p, const struct debias_prompts *prompts, struct error *err) {
    const size_t dim = (size_t)p->dim;
    const size_t pairs = (size_t)p->pair_count;
    p->basis = calloc((size_t)prompts->spurious_count + 1, dim * sizeof *p->basis);
    p->differences = calloc(pairs + 1, dim * sizeof *p->differences);
    p->factor = calloc(pairs + 1, (pairs + 1) * sizeof *p->factor);
    p->solved = calloc(pairs + 1, sizeof *p->solved);
    p->row = calloc(dim, sizeof *p->row);
    FAIL_IF(p->basis == NULL || p->differences == NULL || p->factor == NULL || p->solved == NULL ||
                p->row == NULL,
            err, STATUS_NOMEM, "no memory for %" PRId64 " prompts and %zu pairs",
            prompts->spurious_count, pairs);
    span_spurious(p, prompts);
    factor_pairs(p, prompts);
    return STATUS_OK;
}

static enum status
project(const struct projection *p, float *vector, int64_t index, struct error *err) {
    double *row = p->row;
    for (int64_t d = 0; d < p->dim; d++) {
        row[d] = (double)vector[d];
    }
    const double before = sqrt(dot(row, row, p->dim));
    calibrate(p, row);
    take_out_basis(p, row);
    const double length = sqrt(dot(row, row, p->dim));
    FAIL_IF(!(length > nothing * before), err, STATUS_USAGE,
            "nothing is left of class vector %" PRId64 " without the spurious prompts", index);
    for (int64_t d = 0; d < p->dim; d++) {
        vector[d] = (float)(row[d] / length);
    }
    return STATUS_OK;
}

enum status debias_vectors(float *vectors,
                           int64_t count,
                           int64_t dim,
                           const struct debias_prompts *prompts,
                           int64_t *of,
                           struct error *err) {
    REQUIRE(vectors != NULL && prompts != NULL && count >= 1 && dim >= 1 && prompts->lambda >= 0.0);
    FAIL_IF(prompts->spurious_count > DEBIAS_MAX_PROMPTS ||
                prompts->pair_count > DEBIAS_MAX_PROMPTS,
            err, STATUS_LIMIT,
            "%" PRId64 " spurious prompts and %" PRId64 " pairs: more than %d of one kind",
            prompts->spurious_count, prompts->pair_count, DEBIAS_MAX_PROMPTS);
    struct projection p = {.dim = dim,
                           .pair_count = prompts->lambda > 0.0 ? prompts->pair_count : 0};
    enum status s = projection_init(&p, prompts, err);
    for (int64_t i = 0; s == STATUS_OK && i < count; i++) {
        s = project(&p, vectors + i * dim, i, err);
        if (s != STATUS_OK && of != NULL) {
            *of = i;
        }
    }
    projection_fini(&p);
    return s;
}
