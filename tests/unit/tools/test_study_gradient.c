/* The exact loss and gradient of ccstudy gradient against plain loops in double, finite differences
 * and the losses of train/loss on a batch of everything; and what estimators have on average. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "tools/ccstudy/gradient_run.h"
#include "tools/ccstudy/gradient_study.h"
#include "tools/ccstudy/gradient_whiten.h"

enum { N = 6, DIM = 5, ROWS = 3 * N };

static const double tau = 0.2;

static void check_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%.9g is not %.9g within %g", got, want, tolerance);
    }
}

static void draw_rows(float *x, uint64_t seed) {
    struct rng r;
    rng_init(&r, seed, RNG_STUDY, 0, 0);
    for (int i = 0; i < ROWS; i++) {
        double norm = 0.0;
        for (int d = 0; d < DIM; d++) {
            x[i * DIM + d] = (float)rng_normal(&r);
            norm += (double)x[i * DIM + d] * (double)x[i * DIM + d];
        }
        for (int d = 0; d < DIM; d++) {
            x[i * DIM + d] = (float)((double)x[i * DIM + d] / sqrt(norm));
        }
    }
}

/* The formula at the top of gradient_exact.h, as it is written there. */
static double loss_of(const double *x, enum gradient_objective objective) {
    double loss = 0.0;
    for (int a = 0; a < 2 * N; a++) {
        const int own = (a + N) % (2 * N);
        double sum = 0.0;
        double positive = 0.0;
        for (int c = 0; c < ROWS; c++) {
            double s = 0.0;
            for (int d = 0; d < DIM; d++) {
                s += x[a * DIM + d] * x[c * DIM + d];
            }
            const bool plain = c >= 2 * N;
            const bool other = c % N != a % N;
            const bool counts =
                objective == GRADIENT_UNAUGMENTED
                    ? plain && other
                    : !plain && (other || (objective == GRADIENT_WITH_OWN && c == own));
            sum += counts ? exp(s / tau) : 0.0;
            positive = c == own ? s : positive;
        }
        loss += (log(sum) - positive / tau) / (2 * N);
    }
    return loss;
}

TEST(global_losses_and_their_gradients_are_those_of_plain_loops) {
    struct error err = {0};
    struct device *dev = NULL;
    struct gradient_exact *e = NULL;
    float x[ROWS * DIM];
    float dx[ROWS * DIM];
    double wide[ROWS * DIM];
    draw_rows(x, 1);
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(gradient_exact_create(&e, dev, N, DIM, tau, &err), err);
    for (int k = 0; k < GRADIENT_OBJECTIVES; k++) {
        const enum gradient_objective objective = (enum gradient_objective)k;
        const int rows = objective == GRADIENT_UNAUGMENTED ? ROWS : 2 * N;
        double loss = 0.0;
        assert_ok(gradient_exact_evaluate(e, &loss, dx, x, objective, &err), err);
        for (int i = 0; i < ROWS * DIM; i++) {
            wide[i] = (double)x[i];
        }
        check_near(loss, loss_of(wide, objective), 1e-5);
        for (int i = 0; i < rows * DIM; i++) {
            const double h = 1e-5;
            wide[i] = (double)x[i] + h;
            const double up = loss_of(wide, objective);
            wide[i] = (double)x[i] - h;
            const double slope = (up - loss_of(wide, objective)) / (2.0 * h);
            wide[i] = (double)x[i];
            check_near((double)dx[i], slope, 1e-5);
        }
    }
    gradient_exact_destroy(e);
    device_close(dev);
}

/* ---- problems ---- */

struct setting {
    struct gradient_data data;
    struct device *dev;
    struct gradient_problem problem;
};

static void open_setting(struct setting *s, enum gradient_network network, uint32_t n) {
    struct error err = {0};
    struct gradient_problem_options o = {.batch = 4, .tau = tau, .seed = 3};
    o.net.network = network;
    o.net.norm = RESNET_NORM_NONE;
    optimizer_options_default(&o.net.optimizer);
    o.net.optimizer.kind = OPTIMIZER_SGDM;
    o.net.optimizer.momentum = 0.0;
    o.net.optimizer.weight_decay = 0.0;
    assert_ok(gradient_data_draw(&s->data, n, 8, 3, &err), err);
    assert_ok(device_open(&s->dev, "cpu", 1, &err), err);
    assert_ok(gradient_problem_init(&s->problem, &s->data, s->dev, &o, &err), err);
}

static void close_setting(struct setting *s) {
    gradient_problem_fini(&s->problem);
    device_close(s->dev);
    gradient_data_fini(&s->data);
}

static double squared(const float *v, int64_t count) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)v[i] * (double)v[i];
    }
    return sum;
}

/* A step of size h along the gradient lowers L by h |gradient|^2. */
static void check_slope(enum gradient_network network, uint32_t n, double h, double tolerance) {
    struct error err = {0};
    struct setting s;
    const float *gradient = NULL;
    double before = 0.0;
    double after = 0.0;
    open_setting(&s, network, n);
    const int64_t count = gradient_net_parameter_count(s.problem.net);
    assert_ok(gradient_problem_exact(&s.problem, &before, &gradient, GRADIENT_GLOBAL, &err), err);
    const double first = squared(gradient, count);
    assert_ok(gradient_net_step(s.problem.net, h, 0, &err), err);
    assert_ok(gradient_problem_exact(&s.problem, &after, &gradient, GRADIENT_GLOBAL, &err), err);
    const double last = squared(gradient, count);
    printf("slope %.6g, squared norms %.6g and %.6g\n", (before - after) / h, first, last);
    assert_true(first > 0.05);
    check_near((before - after) / h / (0.5 * (first + last)), 1.0, tolerance);
    close_setting(&s);
}

TEST(gradient_of_the_parameters_is_the_slope_of_the_loss) {
    check_slope(GRADIENT_LINEAR, 40, 0.002, 0.01);
    check_slope(GRADIENT_RESNET18, 20, 0.0005, 0.02);
}

/* 54 rows are two micro-batches of the encoder, the second smaller. */
TEST(bias_of_a_resnet_is_measured_in_micro_batches) {
    const struct gradient_method method = {.loss = "simclr"};
    struct error err = {0};
    struct setting s;
    double once = 0.0;
    double again = 0.0;
    open_setting(&s, GRADIENT_RESNET18, 18);
    assert_ok(gradient_bias(&once, &s.problem, &method, GRADIENT_GLOBAL, 40, &err), err);
    assert_ok(gradient_bias(&again, &s.problem, &method, GRADIENT_GLOBAL, 40, &err), err);
    assert_true(once > 0.0 && once == again);
    close_setting(&s);
}

static void check_whole_batch(const char *loss, double gamma, enum gradient_objective objective) {
    const struct gradient_method method = {.key = loss, .loss = loss, .gamma = gamma};
    struct error err = {0};
    struct device *dev = NULL;
    struct gradient_exact *exact = NULL;
    struct gradient_estimator *e = NULL;
    float x[ROWS * DIM];
    float own[ROWS * DIM];
    float batch_x[ROWS * DIM];
    float batch_dx[ROWS * DIM];
    uint32_t rows[4 * N];
    int32_t count = 0;
    double value = 0.0;
    draw_rows(x, 2);
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(gradient_exact_create(&exact, dev, N, DIM, tau, &err), err);
    assert_ok(gradient_exact_evaluate(exact, &value, own, x, objective, &err), err);
    assert_ok(gradient_estimator_create(&e, dev, &method, N, N, DIM, tau, 0, &err), err);
    assert_ok(gradient_estimator_begin(e, rows, &count, 0, NULL, &err), err);
    assert_int_equal(count, 2 * N);
    for (int i = 0; i < count; i++) {
        memcpy(batch_x + i * DIM, x + rows[i] * DIM, DIM * sizeof *x);
    }
    assert_ok(gradient_estimator_end(e, batch_dx, batch_x, &err), err);
    for (int i = 0; i < count * DIM; i++) {
        check_near((double)batch_dx[i], (double)own[rows[i / DIM] * DIM + (uint32_t)(i % DIM)],
                   1e-5);
    }
    gradient_estimator_destroy(e);
    gradient_exact_destroy(exact);
    device_close(dev);
}

TEST(estimators_are_exact_where_the_batch_is_everything) {
    check_whole_batch("simclr", 0.0, GRADIENT_WITH_OWN);
    check_whole_batch("sogclr", 0.9, GRADIENT_GLOBAL);
}

/* Runs of any length begin with the same steps, and measuring does not disturb them. */
TEST(curves_begin_and_end_at_the_exact_gradient) {
    const struct gradient_method method = {.key = "simclr", .loss = "simclr"};
    struct error err = {0};
    struct setting s;
    struct gradient_curve few;
    struct gradient_curve many;
    const struct gradient_progress silent = {0};
    struct gradient_run run = {.method = &method, .lr = 0.01, .steps = 60, .points = 3};
    const float *gradient = NULL;
    double loss = 0.0;
    open_setting(&s, GRADIENT_LINEAR, 40);
    const int64_t count = gradient_net_parameter_count(s.problem.net);
    assert_ok(gradient_problem_exact(&s.problem, &loss, &gradient, GRADIENT_GLOBAL, &err), err);
    const double first = squared(gradient, count);
    assert_ok(gradient_run(&few, &s.problem, &run, &silent, &err), err);
    run.points = 7;
    assert_ok(gradient_run(&many, &s.problem, &run, &silent, &err), err);
    assert_true(few.points[0].loss == loss && few.points[0].norm2 == first);
    assert_true(few.points[2].norm2 == many.points[6].norm2 && few.points[2].step == 60);
    assert_true(few.points[1].norm2 == many.points[3].norm2);
    assert_true(few.norm2[GRADIENT_GLOBAL] == few.points[2].norm2);
    assert_true(few.points[2].loss < few.points[0].loss);
    close_setting(&s);
}

/* The cause of the difference between --emc2-off-batch encode and the published figure. */
TEST(chains_that_encode_their_view_have_the_least_bias) {
    const struct gradient_method view = {
        .loss = "emc2", .carry = GRADIENT_CARRY_VIEW, .burn_in = 0.5};
    const struct gradient_method plain = {
        .loss = "emc2", .carry = GRADIENT_CARRY_PLAIN, .burn_in = 0.5};
    const struct gradient_method batch = {.loss = "simclr"};
    struct error err = {0};
    struct setting s;
    double bias[3];
    open_setting(&s, GRADIENT_LINEAR, 100);
    assert_ok(gradient_bias(&bias[0], &s.problem, &view, GRADIENT_GLOBAL, 4000, &err), err);
    assert_ok(gradient_bias(&bias[1], &s.problem, &plain, GRADIENT_GLOBAL, 4000, &err), err);
    assert_ok(gradient_bias(&bias[2], &s.problem, &batch, GRADIENT_GLOBAL, 4000, &err), err);
    printf("squared bias: view %.3g, un-augmented %.3g, simclr %.3g\n", bias[0], bias[1], bias[2]);
    assert_true(bias[0] < 0.2 * bias[1] && bias[0] < 0.2 * bias[2]);
    close_setting(&s);
}

/* Its negatives are the un-augmented images. */
TEST(the_negative_cache_is_unbiased_for_its_own_objective) {
    const struct gradient_method cache = {
        .loss = "negcache", .carry = GRADIENT_CARRY_PLAIN, .refresh = 0.1};
    struct error err = {0};
    struct setting s;
    double bias[2];
    open_setting(&s, GRADIENT_LINEAR, 40);
    assert_ok(gradient_bias(&bias[0], &s.problem, &cache, GRADIENT_UNAUGMENTED, 3000, &err), err);
    assert_ok(gradient_bias(&bias[1], &s.problem, &cache, GRADIENT_GLOBAL, 3000, &err), err);
    printf("squared bias: %.3g, for the global loss %.3g\n", bias[0], bias[1]);
    assert_true(bias[0] < 0.05 * bias[1]);
    close_setting(&s);
}

TEST(whitened_rows_have_covariance_one) {
    enum { COUNT = 200, IN = 12, OUT = 5 };
    struct error err = {0};
    struct rng r;
    static float rows[COUNT * IN];
    float weight[OUT * IN];
    float bias[OUT];
    double mean[OUT] = {0};
    double covariance[OUT][OUT] = {{0}};
    rng_init(&r, 4, RNG_STUDY, 0, 0);
    for (int i = 0; i < COUNT; i++) {
        const double shared = 3.0 * rng_normal(&r);
        for (int d = 0; d < IN; d++) {
            rows[i * IN + d] = (float)(7.0 + shared + (1.0 + d) * rng_normal(&r));
        }
    }
    assert_ok(gradient_whiten(weight, bias, OUT, rows, COUNT, IN, &err), err);
    for (int i = 0; i < COUNT; i++) {
        double y[OUT];
        for (int k = 0; k < OUT; k++) {
            y[k] = (double)bias[k];
            for (int d = 0; d < IN; d++) {
                y[k] += (double)weight[k * IN + d] * (double)rows[i * IN + d];
            }
            mean[k] += y[k] / COUNT;
        }
        for (int k = 0; k < OUT * OUT; k++) {
            covariance[k / OUT][k % OUT] += y[k / OUT] * y[k % OUT] / COUNT;
        }
    }
    for (int k = 0; k < OUT; k++) {
        check_near(mean[k], 0.0, 1e-4);
        for (int j = 0; j < OUT; j++) {
            check_near(covariance[k][j], j == k ? 1.0 : 0.0, 1e-4);
        }
    }
}

static void end_run(struct gradient_curve *c, double loss, double norm2) {
    c->point_count = 1;
    c->points[0] = (struct gradient_point){.loss = loss, .norm2 = norm2, .length = 1.0};
}

TEST(the_run_that_counts_has_the_least_loss) {
    struct gradient_study *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->rate_count = 3;
    end_run(&g->runs[3], 5.8, 4.4);
    end_run(&g->runs[4], log(998.0), 1e-6); /* all pictures are one point */
    end_run(&g->runs[5], (double)NAN, (double)NAN);
    assert_ptr_equal(gradient_best(g, 1), &g->runs[3]);
    end_run(&g->runs[3], (double)NAN, (double)NAN);
    assert_ptr_equal(gradient_best(g, 1), &g->runs[4]);
    end_run(&g->runs[4], (double)INFINITY, 1.0);
    assert_null(gradient_best(g, 1));
    free(g);
}
