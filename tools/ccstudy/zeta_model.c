/*
 * zeta_model: one loss and one sample state for each form of xi. zeta does not depend on xi as long
 * as the similarities are fixed, so all three hold the same one.
 */
#include "tools/ccstudy/zeta_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/correlation.h"
#include "tools/ccstudy/popularity.h"
#include "tools/ccstudy/toy_model.h"
#include "train/optim/schedule.h"

enum { IMAGE, TEXT, DIM = 16, TOPICS = 12 };

static const double temperature = 0.2; /* of both problems */
static const double peak_rate = 0.02;  /* of zeta, for the gradient times n */

static const char *const column_names[ZETA_SIDES] = {"image.zeta", "text.zeta"};
static const char *const scalar_names[ZETA_SIDES] = {"image.xi", "text.xi"};

/* ---- similarities ---- */

static void draw_toy(float *similarity, size_t n, uint64_t seed, struct toy_pair *pairs) {
    toy_draw(pairs, n, temperature, seed, 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            similarity[i * n + j] =
                (float)(pairs[i].x[0] * pairs[j].y[0] + pairs[i].x[1] * pairs[j].y[1]);
        }
    }
}

static void normalise(double v[DIM]) {
    double sum = 0.0;
    for (int d = 0; d < DIM; d++) {
        sum += v[d] * v[d];
    }
    for (int d = 0; d < DIM; d++) {
        v[d] /= sqrt(sum);
    }
}

/* A topic's centre, what a pair shares, and what its image and its text have alone. */
static void draw_embeddings(double (*images)[DIM], double (*texts)[DIM], size_t n, uint64_t seed) {
    static const double shared = 0.8;
    static const double alone = 0.5;
    double centres[TOPICS][DIM];
    double weight[TOPICS]; /* that a pair is of this topic or an earlier one; sizes like 1/rank */
    double total = 0.0;
    struct rng r;
    rng_init(&r, seed, RNG_STUDY, n, 0);
    for (int t = 0; t < TOPICS; t++) {
        for (int d = 0; d < DIM; d++) {
            centres[t][d] = rng_normal(&r);
        }
        normalise(centres[t]);
        total += 1.0 / (t + 1);
        weight[t] = total;
    }
    for (size_t i = 0; i < n; i++) {
        const double at = rng_uniform(&r) * total;
        int t = 0;
        while (t < TOPICS - 1 && at >= weight[t]) {
            t++;
        }
        for (int d = 0; d < DIM; d++) {
            const double pair = centres[t][d] + shared * rng_normal(&r) / sqrt(DIM);
            images[i][d] = pair + alone * rng_normal(&r) / sqrt(DIM);
            texts[i][d] = pair + alone * rng_normal(&r) / sqrt(DIM);
        }
        normalise(images[i]);
        normalise(texts[i]);
    }
}

static void draw_fitted(float *similarity, size_t n, uint64_t seed, double (*rows)[DIM]) {
    draw_embeddings(rows, rows + n, n, seed);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int d = 0; d < DIM; d++) {
                sum += rows[i][d] * rows[n + j][d];
            }
            similarity[i * n + j] = (float)sum;
        }
    }
}

/* ---- the exact minimiser ---- */

static void take_out_mean(double *values, size_t count) {
    double mean = 0.0;
    for (size_t j = 0; j < count; j++) {
        mean += values[j] / (double)count;
    }
    for (size_t j = 0; j < count; j++) {
        values[j] -= mean;
    }
}

/* Of one side: zeta of texts with images as anchors, of images with texts as anchors. */
static enum status minimise(struct zeta_problem *p, int side, double *kernel, struct error *err) {
    const size_t n = p->count;
    double *zeta = p->minimiser[side];
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            kernel[side == TEXT ? i * n + j : j * n + i] =
                exp((double)p->similarity[i * n + j] / p->tau);
        }
    }
    TRY(popularity_solve(zeta, kernel, n, err));
    for (size_t i = 0; side == TEXT && i < n; i++) {
        double row = 0.0;
        for (size_t j = 0; j < n; j++) {
            row += kernel[i * n + j] / zeta[j];
        }
        p->own_share += kernel[i * n + i] / zeta[i] / row;
    }
    for (size_t j = 0; j < n; j++) {
        zeta[j] = p->tau * log(zeta[j]);
    }
    take_out_mean(zeta, n);
    return STATUS_OK;
}

/* `scratch` has room for what is drawn, and for the kernel. */
static enum status draw_and_solve(struct zeta_problem *p,
                                  enum zeta_kind kind,
                                  uint64_t seed,
                                  void *scratch,
                                  struct error *err) {
    if (kind == ZETA_DRAWN) {
        draw_toy(p->similarity, p->count, seed, scratch);
    } else {
        draw_fitted(p->similarity, p->count, seed, scratch);
    }
    TRY(minimise(p, IMAGE, scratch, err));
    return minimise(p, TEXT, scratch, err);
}

enum status zeta_problem_init(struct zeta_problem *p,
                              enum zeta_kind kind,
                              size_t count,
                              uint64_t seed,
                              struct error *err) {
    REQUIRE(p != NULL && count >= 2 * DIM && count <= TOY_MAX_PAIRS);
    *p = (struct zeta_problem){.count = count, .tau = temperature};
    void *scratch = malloc(count * count * sizeof(double)); /* rows of both sides: 2 n DIM */
    p->similarity = malloc(count * count * sizeof *p->similarity);
    bool fits = scratch != NULL && p->similarity != NULL;
    for (int side = 0; side < ZETA_SIDES; side++) {
        p->minimiser[side] = malloc(count * sizeof *p->minimiser[side]);
        fits = fits && p->minimiser[side] != NULL;
    }
    const enum status s = fits ? draw_and_solve(p, kind, seed, scratch, err)
                               : error_set(err, STATUS_NOMEM, "no memory for %zu pairs", count);
    free(scratch);
    if (s != STATUS_OK) {
        zeta_problem_fini(p);
    }
    return s;
}

void zeta_problem_fini(struct zeta_problem *p) {
    free(p->similarity);
    for (int side = 0; side < ZETA_SIDES; side++) {
        free(p->minimiser[side]);
    }
    *p = (struct zeta_problem){0};
}

/* ---- Algorithm 1 ---- */

struct zeta_learner {
    const struct zeta_problem *problem;
    struct zeta_options options;
    uint64_t epoch;
    struct sample_state *state[ZETA_FORMS];
    struct loss *loss[ZETA_FORMS];
    uint64_t *ids;                           /* (B) */
    float *similarity;                       /* (B, B) */
    float *gradient[ZETA_FORMS];             /* (B, B) */
    double *zeta;                            /* (n) */
    double squares, differences[ZETA_FORMS]; /* of gradients in this epoch */
};

static enum status create_losses(struct zeta_learner *l, struct error *err) {
    const uint64_t n = l->problem->count;
    for (int form = 0; form < ZETA_FORMS; form++) {
        struct loss_options o;
        loss_options_default(&o);
        o.name = "nuclr";
        o.tau = l->problem->tau;
        o.xi = (enum loss_xi)form;
        o.zeta_gradient = l->options.gradient;
        TRY(sample_state_create(&l->state[form], n, NULL, err));
        TRY(loss_create(&l->loss[form], &o, l->state[form], n, (int64_t)l->options.batch, err));
    }
    return STATUS_OK;
}

enum status zeta_learner_create(struct zeta_learner **out,
                                const struct zeta_problem *p,
                                const struct zeta_options *o,
                                struct error *err) {
    REQUIRE(out != NULL && p != NULL && o != NULL && o->batch >= 2 && o->epochs >= 1 &&
            p->count % o->batch == 0);
    const size_t batch = o->batch;
    struct zeta_learner *l = calloc(1, sizeof *l);
    enum status s = STATUS_NOMEM;
    *out = NULL;
    if (l == NULL) {
        return error_set(err, s, "out of memory");
    }
    l->problem = p;
    l->options = *o;
    l->ids = malloc(batch * sizeof *l->ids);
    l->similarity = malloc(batch * batch * sizeof *l->similarity);
    l->zeta = malloc(p->count * sizeof *l->zeta);
    bool fits = l->ids != NULL && l->similarity != NULL && l->zeta != NULL;
    for (int form = 0; form < ZETA_FORMS; form++) {
        l->gradient[form] = malloc(batch * batch * sizeof *l->gradient[form]);
        fits = fits && l->gradient[form] != NULL;
    }
    s = fits ? create_losses(l, err)
             : error_set(err, STATUS_NOMEM, "no memory for batches of %zu", batch);
    if (s != STATUS_OK) {
        zeta_learner_destroy(l);
        return s;
    }
    *out = l;
    return STATUS_OK;
}

void zeta_learner_destroy(struct zeta_learner *l) {
    if (l == NULL) {
        return;
    }
    for (int form = 0; form < ZETA_FORMS; form++) {
        loss_destroy(l->loss[form]);
        sample_state_destroy(l->state[form]);
        free(l->gradient[form]);
    }
    free(l->ids);
    free(l->similarity);
    free(l->zeta);
    free(l);
}

/* Adds the squares of one step's gradient, and of how far each form is from LOSS_XI_SIGNED. */
static void add_gradients(struct zeta_learner *l) {
    const size_t count = l->options.batch * l->options.batch;
    const float *first = l->gradient[LOSS_XI_SIGNED];
    for (size_t i = 0; i < count; i++) {
        l->squares += (double)first[i] * (double)first[i];
        for (int form = 0; form < ZETA_FORMS; form++) {
            const double d = (double)l->gradient[form][i] - (double)first[i];
            l->differences[form] += d * d;
        }
    }
}

static enum status step(struct zeta_learner *l, uint64_t number, struct error *err) {
    const size_t n = l->problem->count;
    const size_t b = l->options.batch;
    const uint64_t steps = l->options.epochs * (n / b);
    const double rate = schedule_zeta_lr(peak_rate, 0, steps, number);
    for (size_t i = 0; i < b; i++) {
        for (size_t j = 0; j < b; j++) {
            l->similarity[i * b + j] = l->problem->similarity[l->ids[i] * n + l->ids[j]];
        }
    }
    const struct loss_input in = {.similarity = l->similarity,
                                  .sample_ids = l->ids,
                                  .batch_count = (int64_t)b,
                                  .step = number,
                                  .epoch = l->epoch,
                                  .zeta_lr_text = rate,
                                  .zeta_lr_image = rate};
    for (int form = 0; form < ZETA_FORMS; form++) {
        struct loss_output out = {.gradient = l->gradient[form]};
        TRY(loss_step(l->loss[form], &in, &out, err));
    }
    add_gradients(l);
    return STATUS_OK;
}

enum status zeta_learner_epoch(struct zeta_learner *l, struct error *err) {
    const uint64_t steps = l->problem->count / l->options.batch;
    struct permutation order;
    permutation_init(&order, l->problem->count, l->options.seed, l->epoch);
    l->squares = 0.0;
    memset(l->differences, 0, sizeof l->differences);
    for (uint64_t k = 0; k < steps; k++) {
        for (size_t i = 0; i < l->options.batch; i++) {
            l->ids[i] = permutation_at(&order, k * l->options.batch + i);
        }
        TRY(step(l, l->epoch * steps + k, err));
    }
    l->epoch++;
    return STATUS_OK;
}

static const float *column(const struct zeta_learner *l, int side) {
    const struct sample_state *s = l->state[LOSS_XI_SIGNED];
    return sample_state_column(s, sample_state_find(s, column_names[side]));
}

const double *zeta_learner_zeta(struct zeta_learner *l, int side) {
    const float *zeta = column(l, side);
    for (size_t j = 0; j < l->problem->count; j++) {
        l->zeta[j] = (double)zeta[j];
    }
    take_out_mean(l->zeta, l->problem->count);
    return l->zeta;
}

static double scalar(const struct zeta_learner *l, int form, const char *name) {
    const struct loss_scalar *scalars;
    const int32_t count = loss_scalars(l->loss[form], &scalars);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(scalars[i].name, name) == 0) {
            return *scalars[i].value;
        }
    }
    return (double)NAN;
}

void zeta_learner_measure(struct zeta_learner *l, struct zeta_point *out) {
    const size_t n = l->problem->count;
    *out = (struct zeta_point){.epoch = l->epoch};
    for (int side = 0; side < ZETA_SIDES; side++) {
        const float *raw = column(l, side);
        const double *zeta = zeta_learner_zeta(l, side);
        const double *exact = l->problem->minimiser[side];
        double sum = 0.0;
        out->largest[side] = -HUGE_VAL;
        for (size_t j = 0; j < n; j++) {
            out->mean[side] += (double)raw[j] / (double)n;
            out->largest[side] = fmax(out->largest[side], (double)raw[j]);
            sum += (zeta[j] - exact[j]) * (zeta[j] - exact[j]);
        }
        out->distance[side] = sqrt(sum / (double)n);
        out->correlation[side] = correlation(zeta, exact, n);
        for (int form = 0; form < ZETA_FORMS; form++) {
            out->xi[form][side] = scalar(l, form, scalar_names[side]);
        }
    }
    for (int form = 0; form < ZETA_FORMS; form++) {
        out->change[form] = l->squares > 0.0 ? sqrt(l->differences[form] / l->squares) : 0.0;
    }
}
