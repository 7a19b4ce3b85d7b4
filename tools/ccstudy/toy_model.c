/*
 * toy_model: in double. exp(E / tau) stays within e^(+-8) for tau = 0.2, so nothing here needs
 * logarithms.
 */
#include "tools/ccstudy/toy_model.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/correlation.h"
#include "tools/ccstudy/popularity.h"

enum { QUADRATURE_POINTS = 256 };

static const double pi = 3.14159265358979323846;

/* The integral of exp(a t / tau) over t in [0, 1]. */
static double partition_of(double tau, double a) {
    const double s = a / tau;
    return fabs(s) < 1e-4 ? 1.0 + s / 2.0 + s * s / 6.0 : expm1(s) / s;
}

/* E[t] under the density exp(a t / tau) on [0, 1]. */
static double mean_of(double tau, double a) {
    const double s = a / tau;
    return fabs(s) < 1e-3 ? 0.5 + s / 12.0 - s * s * s / 720.0 : -1.0 / expm1(-s) - 1.0 / s;
}

double toy_partition(double tau, const double x[2]) {
    return partition_of(tau, x[0]) * partition_of(tau, x[1]);
}

/* Both coordinates contribute tau log phi(a) - a E[t], an even function of a, and a = sin(angle)
 * has the density (4 / pi) cos^2 over [0, pi / 2]: the trapezoidal rule over a whole period
 * converges exponentially. */
double toy_true_risk(double tau) {
    double sum = 0.0;
    for (int i = 0; i < QUADRATURE_POINTS; i++) {
        const double angle = 2.0 * pi * i / QUADRATURE_POINTS;
        const double a = fabs(sin(angle));
        const double part = tau * log(partition_of(tau, a)) - a * mean_of(tau, a);
        sum += cos(angle) * cos(angle) * part;
    }
    return 2.0 * 2.0 * sum / QUADRATURE_POINTS;
}

static double draw_coordinate(struct rng *r, double tau, double a) {
    const double u = rng_uniform(r);
    const double s = a / tau;
    return fabs(s) < 1e-12 ? u : log1p(u * expm1(s)) / s;
}

void toy_draw(struct toy_pair *pairs, size_t count, double tau, uint64_t seed, uint64_t repeat) {
    struct rng r;
    rng_init(&r, seed, RNG_STUDY, count, repeat);
    for (size_t i = 0; i < count; i++) {
        const double radius = sqrt(rng_uniform(&r));
        const double angle = pi * rng_uniform(&r);
        struct toy_pair *p = &pairs[i];
        p->x[0] = radius * cos(angle);
        p->x[1] = radius * sin(angle);
        p->y[0] = draw_coordinate(&r, tau, p->x[0]);
        p->y[1] = draw_coordinate(&r, tau, p->x[1]);
    }
}

static void fill(struct toy_problem *p) {
    const size_t n = p->count;
    for (size_t i = 0; i < n; i++) {
        const double *x = p->pairs[i].x;
        const double z = toy_partition(p->tau, x);
        for (size_t j = 0; j < n; j++) {
            const double *y = p->pairs[j].y;
            const double k = exp((x[0] * y[0] + x[1] * y[1]) / p->tau);
            p->kernel[i * n + j] = k;
            p->popularity[j] += k / z;
        }
    }
}

/* Scales the estimate to the largest popularity. */
static void scale(struct toy_problem *p) {
    double most = 0.0;
    double most_estimated = 0.0;
    for (size_t j = 0; j < p->count; j++) {
        most = fmax(most, p->popularity[j]);
        most_estimated = fmax(most_estimated, p->estimate[j]);
    }
    for (size_t j = 0; j < p->count; j++) {
        p->estimate[j] *= most / most_estimated;
        p->logs[j] = log(p->popularity[j]);
        p->logs[p->count + j] = log(p->estimate[j]);
    }
}

enum status toy_solve(struct toy_problem *p,
                      const struct toy_pair *pairs,
                      size_t count,
                      double tau,
                      struct error *err) {
    REQUIRE(p != NULL && pairs != NULL && count >= 2 && count <= TOY_MAX_PAIRS && tau > 0.0);
    *p = (struct toy_problem){.count = count, .tau = tau, .pairs = pairs};
    p->kernel = malloc(count * count * sizeof *p->kernel);
    p->popularity = calloc(count, sizeof *p->popularity);
    p->estimate = malloc(count * sizeof *p->estimate);
    p->logs = malloc(2 * count * sizeof *p->logs);
    if (p->kernel == NULL || p->popularity == NULL || p->estimate == NULL || p->logs == NULL) {
        toy_problem_fini(p);
        return error_set(err, STATUS_NOMEM, "no memory for a problem of %zu pairs", count);
    }
    fill(p);
    const enum status s = popularity_solve(p->estimate, p->kernel, count, err);
    if (s != STATUS_OK) {
        toy_problem_fini(p);
        return s;
    }
    scale(p);
    return STATUS_OK;
}

void toy_problem_fini(struct toy_problem *p) {
    free(p->kernel);
    free(p->popularity);
    free(p->estimate);
    free(p->logs);
    *p = (struct toy_problem){0};
}

/* One pair's risk, where `sum` stands for the partition function. */
static double risk_of(const struct toy_problem *p, size_t i, double sum) {
    return -p->tau * log(p->kernel[i * p->count + i] / sum);
}

struct toy_result toy_compare(const struct toy_problem *p, double true_risk) {
    const size_t n = p->count;
    const double count = (double)n;
    const double smallest = exp(-1.0 / p->tau);
    struct toy_result r = {.correlation = correlation(p->logs, p->logs + n, n)};
    for (size_t i = 0; i < n; i++) {
        double by_nuclr = 0.0;
        double by_gcl = 0.0;
        for (size_t j = 0; j < n; j++) {
            const double k = p->kernel[i * n + j];
            const double inverse = 1.0 / p->popularity[j];
            by_nuclr += k / p->estimate[j];
            by_gcl += k / count;
            r.error_nuclr += fabs(1.0 / p->estimate[j] - inverse) * k * smallest / count;
            r.error_gcl += fabs(1.0 / count - inverse) * k * smallest / count;
        }
        r.nuclr += risk_of(p, i, by_nuclr) / count;
        r.gcl += risk_of(p, i, by_gcl) / count;
        r.mle += risk_of(p, i, toy_partition(p->tau, p->pairs[i].x)) / count;
    }
    r.nuclr = fabs(r.nuclr - true_risk);
    r.gcl = fabs(r.gcl - true_risk);
    r.mle = fabs(r.mle - true_risk);
    return r;
}
