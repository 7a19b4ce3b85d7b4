/*
 * gradient_run: a step is encode, estimate, backward, optimise; a measurement is the same over all
 * rows with the exact loss in the place of the estimator, and without the optimiser.
 */
#include "tools/ccstudy/gradient_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"

enum { VIEW_KINDS = 2, ADVANCE_STEPS = 50 };

static const double pi = 3.14159265358979323846;

/* ---- life ---- */

static enum status open_problem(struct gradient_problem *p, struct error *err) {
    struct device *dev = p->dev;
    const uint32_t n = p->data->count;
    const size_t image_bytes = (size_t)p->data->size_px * p->data->size_px * 3;
    const uint32_t step_rows = gradient_estimator_max_rows(p->o.batch);
    struct gradient_net_options net = p->o.net;
    net.size_px = (int32_t)p->data->size_px;
    net.max_rows = (int32_t)(GRADIENT_KINDS * n);
    TRY(gradient_net_create(&p->net, dev, &net, p->data->pixels, err));
    TRY(gradient_exact_create(&p->exact, dev, n, gradient_net_dim(p->net), p->o.tau, err));
    const size_t embeddings = GRADIENT_KINDS * (size_t)n * (size_t)gradient_net_dim(p->net);
    p->pixels = malloc(step_rows * image_bytes);
    p->rows = calloc(step_rows, sizeof *p->rows);
    p->x = calloc(embeddings, sizeof *p->x);
    p->dx = calloc(embeddings, sizeof *p->dx);
    bool all = p->pixels != NULL && p->rows != NULL && p->x != NULL && p->dx != NULL;
    for (int i = 0; i < 3; i++) {
        p->gradients[i] =
            calloc((size_t)gradient_net_parameter_count(p->net), sizeof *p->gradients[i]);
        all = all && p->gradients[i] != NULL;
    }
    return all ? STATUS_OK : error_set(err, STATUS_NOMEM, "no memory for %u pictures", n);
}

enum status gradient_problem_init(struct gradient_problem *p,
                                  const struct gradient_data *data,
                                  struct device *dev,
                                  const struct gradient_problem_options *o,
                                  struct error *err) {
    REQUIRE(data->count % 2 == 0 && o->batch >= 2 && 2 * o->batch <= data->count);
    *p = (struct gradient_problem){.o = *o, .dev = dev, .data = data};
    const enum status s = open_problem(p, err);
    if (s != STATUS_OK) {
        gradient_problem_fini(p);
    }
    return s;
}

void gradient_problem_fini(struct gradient_problem *p) {
    gradient_net_destroy(p->net);
    gradient_exact_destroy(p->exact);
    free(p->pixels);
    free(p->rows);
    free(p->x);
    free(p->dx);
    for (int i = 0; i < 3; i++) {
        free(p->gradients[i]);
    }
    *p = (struct gradient_problem){0};
}

/* ---- measurements ---- */

enum status gradient_problem_exact(struct gradient_problem *p,
                                   double *loss,
                                   const float **gradient,
                                   enum gradient_objective objective,
                                   struct error *err) {
    const uint32_t kinds = objective == GRADIENT_UNAUGMENTED ? GRADIENT_KINDS : VIEW_KINDS;
    const int32_t rows = (int32_t)(kinds * p->data->count);
    TRY(gradient_net_forward(p->net, p->x, p->data->pixels, rows, err));
    TRY(gradient_exact_evaluate(p->exact, loss, p->dx, p->x, objective, err));
    TRY(gradient_net_backward(p->net, p->dx, p->data->pixels, rows, err));
    TRY(gradient_net_read(p->net, PARAM_GRAD, p->gradients[0], err));
    *gradient = p->gradients[0];
    return STATUS_OK;
}

static double squares(const float *v, int64_t count) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)v[i] * (double)v[i];
    }
    return sum;
}

static enum status exact_norm2(struct gradient_problem *p,
                               double *loss,
                               double *norm2,
                               enum gradient_objective objective,
                               struct error *err) {
    const float *gradient;
    TRY(gradient_problem_exact(p, loss, &gradient, objective, err));
    *norm2 = squares(gradient, gradient_net_parameter_count(p->net));
    return STATUS_OK;
}

static enum status length_of(struct gradient_problem *p, double *out, struct error *err) {
    TRY(gradient_net_read(p->net, PARAM_VALUE, p->gradients[0], err));
    *out = sqrt(squares(p->gradients[0], gradient_net_parameter_count(p->net)));
    return STATUS_OK;
}

/* ---- the estimator where the model stays ---- */

/* The embeddings of all rows are in p->x. */
static enum status
look_up(void *cookie, float *x, const uint32_t *rows, int32_t count, struct error *err) {
    const struct gradient_problem *p = cookie;
    const size_t dim = (size_t)gradient_net_dim(p->net);
    (void)err;
    for (int32_t i = 0; i < count; i++) {
        memcpy(x + (size_t)i * dim, p->x + rows[i] * dim, dim * sizeof *x);
    }
    return STATUS_OK;
}

/* p->gradients[into] = mean over `steps` steps from `first`; x: the embeddings of all rows. */
static enum status mean_gradient(struct gradient_problem *p,
                                 struct gradient_estimator *e,
                                 int into,
                                 uint64_t first,
                                 uint64_t steps,
                                 struct error *err) {
    const size_t dim = (size_t)gradient_net_dim(p->net);
    const uint32_t n = p->data->count;
    const uint32_t step_rows = gradient_estimator_max_rows(p->o.batch);
    double *sum = calloc(GRADIENT_KINDS * n * dim, sizeof *sum);
    float *x = calloc(2 * step_rows * dim, sizeof *x);
    enum status s;
    const struct gradient_encoder table = {look_up, p};
    if (sum == NULL || x == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for %u pictures", n);
        goto fail;
    }
    float *dx = x + step_rows * dim;
    for (uint64_t step = first; step < first + steps; step++) {
        int32_t rows = 0;
        TRY_OR_FAIL(s, gradient_estimator_begin(e, p->rows, &rows, step, &table, err));
        TRY_OR_FAIL(s, look_up(p, x, p->rows, rows, err));
        TRY_OR_FAIL(s, gradient_estimator_end(e, dx, x, err));
        for (int32_t i = 0; i < rows; i++) {
            for (size_t d = 0; d < dim; d++) {
                sum[p->rows[i] * dim + d] += (double)dx[(size_t)i * dim + d];
            }
        }
    }
    for (size_t i = 0; i < GRADIENT_KINDS * n * dim; i++) {
        p->dx[i] = (float)(sum[i] / (double)steps);
    }
    /* Every backward pass has a forward pass of its own: the encoder keeps one micro-batch. */
    TRY_OR_FAIL(
        s, gradient_net_forward(p->net, p->x, p->data->pixels, (int32_t)(GRADIENT_KINDS * n), err));
    TRY_OR_FAIL(s, gradient_net_backward(p->net, p->dx, p->data->pixels,
                                         (int32_t)(GRADIENT_KINDS * n), err));
    s = gradient_net_read(p->net, PARAM_GRAD, p->gradients[into], err);
fail:
    free(sum);
    free(x);
    return s;
}

enum status gradient_bias(double *out,
                          struct gradient_problem *p,
                          const struct gradient_method *method,
                          enum gradient_objective objective,
                          uint64_t steps,
                          struct error *err) {
    const int32_t rows = (int32_t)(GRADIENT_KINDS * p->data->count);
    struct gradient_estimator *e = NULL;
    const float *exact;
    double loss;
    enum status s;
    TRY(gradient_estimator_create(&e, p->dev, method, p->data->count, p->o.batch,
                                  gradient_net_dim(p->net), p->o.tau, p->o.seed, err));
    TRY_OR_FAIL(s, gradient_net_forward(p->net, p->x, p->data->pixels, rows, err));
    const uint64_t burn = steps / 4;
    TRY_OR_FAIL(s, burn > 0 ? mean_gradient(p, e, 1, 0, burn, err) : STATUS_OK);
    TRY_OR_FAIL(s, mean_gradient(p, e, 1, burn, steps, err));
    TRY_OR_FAIL(s, mean_gradient(p, e, 2, burn + steps, steps, err));
    TRY_OR_FAIL(s, gradient_problem_exact(p, &loss, &exact, objective, err));
    *out = 0.0;
    for (int64_t i = 0; i < gradient_net_parameter_count(p->net); i++) {
        *out += ((double)p->gradients[1][i] - (double)exact[i]) *
                ((double)p->gradients[2][i] - (double)exact[i]);
    }
fail:
    gradient_estimator_destroy(e);
    return s;
}

/* ---- training ---- */

/* With the model as it is. */
static enum status
encode(void *cookie, float *x, const uint32_t *rows, int32_t count, struct error *err) {
    struct gradient_problem *p = cookie;
    const size_t image_bytes = (size_t)p->data->size_px * p->data->size_px * 3;
    for (int32_t i = 0; i < count; i++) {
        memcpy(p->pixels + (size_t)i * image_bytes, p->data->pixels + rows[i] * image_bytes,
               image_bytes);
    }
    return gradient_net_forward(p->net, x, p->pixels, count, err);
}

static enum status train_step(struct gradient_problem *p,
                              struct gradient_estimator *e,
                              const struct gradient_run *run,
                              uint64_t step,
                              struct error *err) {
    const double share = 0.5 * (1.0 + cos(pi * (double)step / (double)run->steps));
    const struct gradient_encoder encoder = {encode, p};
    int32_t rows = 0;
    TRY(gradient_estimator_begin(e, p->rows, &rows, step, &encoder, err));
    TRY(encode(p, p->x, p->rows, rows, err));
    TRY(gradient_estimator_end(e, p->dx, p->x, err));
    TRY(gradient_net_backward(p->net, p->dx, p->pixels, rows, err));
    return gradient_net_step(p->net, run->lr * (run->decay ? share : 1.0), step, err);
}

/* Steps up to the point's; `seconds` is the time of the steps before. */
static enum status train_to(struct gradient_problem *p,
                            struct gradient_estimator *e,
                            const struct gradient_run *run,
                            const struct gradient_progress *progress,
                            struct gradient_point *point,
                            uint64_t from,
                            double seconds,
                            struct error *err) {
    const int64_t begun = clock_now_ns();
    uint64_t reported = from;
    for (uint64_t step = from; step < point->step; step++) {
        TRY(train_step(p, e, run, step, err));
        if (progress->advance != NULL &&
            (step + 1 - reported >= ADVANCE_STEPS || step + 1 == point->step)) {
            TRY(progress->advance(progress->cookie, (double)(step + 1 - reported), err));
            reported = step + 1;
        }
    }
    point->seconds = seconds + 1e-9 * (double)(clock_now_ns() - begun);
    return STATUS_OK;
}

static enum status
measure(struct gradient_point *point, struct gradient_problem *p, double first, struct error *err) {
    TRY(length_of(p, &point->length, err));
    point->length /= first;
    return exact_norm2(p, &point->loss, &point->norm2, GRADIENT_GLOBAL, err);
}

static enum status train(struct gradient_curve *c,
                         struct gradient_problem *p,
                         struct gradient_estimator *e,
                         const struct gradient_run *run,
                         double first_length,
                         const struct gradient_progress *progress,
                         struct error *err) {
    for (size_t k = 0; k < run->points; k++) {
        struct gradient_point *point = &c->points[k];
        const struct gradient_point *last = k > 0 ? point - 1 : NULL;
        point->step = run->steps * k / (run->points - 1);
        if (last != NULL) {
            const enum status s =
                train_to(p, e, run, progress, point, last->step, last->seconds, err);
            if (s == STATUS_CORRUPT) { /* similarities that are not finite */
                point->loss = INFINITY;
                point->norm2 = INFINITY;
                point->length = INFINITY;
                c->point_count = k + 1;
                return s;
            }
            TRY(s);
        }
        TRY(measure(point, p, first_length, err));
        c->point_count = k + 1;
    }
    return STATUS_OK;
}

static enum status measure_end(struct gradient_curve *c,
                               struct gradient_problem *p,
                               const struct gradient_run *run,
                               struct error *err) {
    double loss;
    for (int k = 0; k < GRADIENT_OBJECTIVES; k++) {
        TRY(exact_norm2(p, &loss, &c->norm2[k], (enum gradient_objective)k, err));
    }
    c->bias2 = NAN;
    return run->bias_steps > 0
               ? gradient_bias(&c->bias2, p, run->method, GRADIENT_GLOBAL, run->bias_steps, err)
               : STATUS_OK;
}

enum status gradient_run(struct gradient_curve *out,
                         struct gradient_problem *p,
                         const struct gradient_run *run,
                         const struct gradient_progress *progress,
                         struct error *err) {
    REQUIRE(run->points >= 2 && run->points <= GRADIENT_MAX_POINTS &&
            run->steps >= run->points - 1);
    struct gradient_estimator *e = NULL;
    double first_length = 1.0;
    *out = (struct gradient_curve){.lr = run->lr, .bias2 = NAN};
    for (int k = 0; k < GRADIENT_OBJECTIVES; k++) {
        out->norm2[k] = INFINITY;
    }
    TRY(gradient_net_restart(p->net, err));
    TRY(length_of(p, &first_length, err));
    TRY(gradient_estimator_create(&e, p->dev, run->method, p->data->count, p->o.batch,
                                  gradient_net_dim(p->net), p->o.tau, p->o.seed, err));
    enum status s = train(out, p, e, run, first_length, progress, err);
    gradient_estimator_destroy(e);
    if (s == STATUS_OK) {
        s = measure_end(out, p, run, err);
    } else if (s == STATUS_CORRUPT) {
        s = STATUS_OK;
    }
    return s;
}
