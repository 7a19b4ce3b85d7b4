/*
 * toy_model: in double. exp(E / tau) stays within e^(+-8) for tau = 0.2, so nothing here needs
 * logarithms.
 *
 * The minimiser of eq. (8): with v_j = exp(-zeta_j / tau) and P_ij = K_ij v_j / sum_k K_ik v_k its
 * gradient is (1 - sum_i P_ij) / n, and v_j <- v_j / sum_i P_ij is a fixed-point iteration towards
 * zero (Sinkhorn's). zeta is unique but for a constant, which the scale of the estimate removes.
 */
#include "tools/ccstudy/toy_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"

enum { QUADRATURE_POINTS = 256, MAX_ITERATIONS = 1000 };

static const double pi = 3.14159265358979323846;
static const double largest_gradient = 1e-14;

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

/* sums (n) = sum_i P_ij for v = p->estimate; returns the largest |1 - sums| / n. */
static double step(const struct toy_problem *p, double *sums) {
    const size_t n = p->count;
    const double *v = p->estimate;
    double largest = 0.0;
    memset(sums, 0, n * sizeof *sums);
    for (size_t i = 0; i < n; i++) {
        const double *k = p->kernel + i * n;
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

/* v to q: 1 / v, scaled to the largest popularity. */
static void scale(struct toy_problem *p) {
    double most = 0.0;
    double most_estimated = 0.0;
    for (size_t j = 0; j < p->count; j++) {
        p->estimate[j] = 1.0 / p->estimate[j];
        most = fmax(most, p->popularity[j]);
        most_estimated = fmax(most_estimated, p->estimate[j]);
    }
    for (size_t j = 0; j < p->count; j++) {
        p->estimate[j] *= most / most_estimated;
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
    p->scratch = malloc(count * sizeof *p->scratch);
    if (p->kernel == NULL || p->popularity == NULL || p->estimate == NULL || p->scratch == NULL) {
        toy_problem_fini(p);
        return error_set(err, STATUS_NOMEM, "no memory for a problem of %zu pairs", count);
    }
    fill(p);
    for (size_t j = 0; j < count; j++) {
        p->estimate[j] = 1.0;
    }
    while (step(p, p->scratch) >= largest_gradient) {
        if (p->iterations++ == MAX_ITERATIONS) {
            toy_problem_fini(p);
            return error_set(err, STATUS_INVALID, "%zu pairs: no fixed point after %d iterations",
                             count, MAX_ITERATIONS);
        }
        for (size_t j = 0; j < count; j++) {
            p->estimate[j] /= p->scratch[j];
        }
    }
    scale(p);
    return STATUS_OK;
}

void toy_problem_fini(struct toy_problem *p) {
    free(p->kernel);
    free(p->popularity);
    free(p->estimate);
    free(p->scratch);
    *p = (struct toy_problem){0};
}

/* One pair's risk, where `sum` stands for the partition function. */
static double risk_of(const struct toy_problem *p, size_t i, double sum) {
    return -p->tau * log(p->kernel[i * p->count + i] / sum);
}

static double correlation(const struct toy_problem *p) {
    double a = 0.0;
    double b = 0.0;
    double aa = 0.0;
    double bb = 0.0;
    double ab = 0.0;
    const double n = (double)p->count;
    for (size_t j = 0; j < p->count; j++) {
        const double x = log(p->popularity[j]);
        const double y = log(p->estimate[j]);
        a += x / n;
        b += y / n;
    }
    for (size_t j = 0; j < p->count; j++) {
        const double x = log(p->popularity[j]) - a;
        const double y = log(p->estimate[j]) - b;
        aa += x * x;
        bb += y * y;
        ab += x * y;
    }
    return ab / sqrt(aa * bb);
}

struct toy_result toy_compare(const struct toy_problem *p, double true_risk) {
    const size_t n = p->count;
    const double count = (double)n;
    const double smallest = exp(-1.0 / p->tau);
    struct toy_result r = {.correlation = correlation(p)};
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
