/*
 * gradient_run: training with one estimator at one step size, measured by the exact gradient; and
 * how far an estimator's mean is from the exact gradient where the model stays.
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_RUN_H
#define TOOLS_CCSTUDY_GRADIENT_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "tools/ccstudy/gradient_data.h"
#include "tools/ccstudy/gradient_estimator.h"
#include "tools/ccstudy/gradient_exact.h"
#include "tools/ccstudy/gradient_net.h"

enum { GRADIENT_MAX_POINTS = 41 };

struct gradient_problem_options {
    struct gradient_net_options net; /* size_px and max_rows are set by the problem */
    uint32_t batch;
    double tau;
    uint64_t seed;
};

struct gradient_problem {
    struct gradient_problem_options o;
    struct device *dev;
    const struct gradient_data *data;
    struct gradient_net *net;
    struct gradient_exact *exact;
    uint8_t *pixels;     /* of a batch's rows */
    uint32_t *rows;      /* the same */
    float *x, *dx;       /* (3n, E) */
    float *gradients[3]; /* (P) */
};

/* Borrows data and dev. data->count even, at least
 * twice the batch. Returns OK, NOMEM, USAGE or what the device returns; on
 * failure nothing leaks. */
enum status gradient_problem_init(struct gradient_problem *p,
                                  const struct gradient_data *data,
                                  struct device *dev,
                                  const struct gradient_problem_options *o,
                                  struct error *err);
void gradient_problem_fini(struct gradient_problem *p); /* accepts an all-zero one */

/* L and its gradient at the model as it is: *gradient (P), the problem's, until the next call. */
enum status gradient_problem_exact(struct gradient_problem *p,
                                   double *loss,
                                   const float **gradient,
                                   enum gradient_objective objective,
                                   struct error *err);

struct gradient_point {
    uint64_t step;
    double seconds; /* of the steps so far, without measuring */
    double loss, norm2;
    double length; /* of the parameters, over that of the start */
};

struct gradient_curve {
    double lr;
    size_t point_count;
    struct gradient_point points[GRADIENT_MAX_POINTS];
    double norm2[GRADIENT_OBJECTIVES]; /* at the end, of each objective */
    /* Of the estimator at the end, the model held: |mean - exact gradient|^2, without the share of
     * what the mean has not averaged out; NaN: not measured. */
    double bias2;
};

/* Called after `steps` steps, NULL: never. Anything but OK ends the run. */
struct gradient_progress {
    enum status (*advance)(void *cookie, double steps, struct error *err);
    void *cookie;
};

/* From the start. points in [2, GRADIENT_MAX_POINTS], steps at least points - 1; decay: the step
 * size falls to 0 along half a cosine. A run whose numbers are not finite ends early, its last
 * point being infinite. */
struct gradient_run {
    const struct gradient_method *method;
    double lr;
    uint64_t steps;
    size_t points;
    bool decay;
    uint64_t bias_steps; /* of each of two halves, 0: not measured */
};
enum status gradient_run(struct gradient_curve *out,
                         struct gradient_problem *p,
                         const struct gradient_run *run,
                         const struct gradient_progress *progress,
                         struct error *err);

/* |mean of the estimator - exact gradient of the objective|^2 at the model as it is, over two
 * halves of `steps` steps each after a quarter as many: the product of their deviations, whose
 * noise is independent.
 */
enum status gradient_bias(double *out,
                          struct gradient_problem *p,
                          const struct gradient_method *method,
                          enum gradient_objective objective,
                          uint64_t steps,
                          struct error *err);

#endif
