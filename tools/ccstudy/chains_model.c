/*
 * chains_model: batches through the loss emc2 or negcache, whose gradients are added up by anchor
 * and contrast over the whole dataset, and the softmax that they should be.
 */
#include "tools/ccstudy/chains_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "train/state/feature_cache.h"

enum { DIM = 16, ADVANCE_STEPS = 100, THIN_VISITS = 40 };

/* What is drawn, of (seed, this). */
enum { DRAW_FEATURES, DRAW_PLACES };

static const float overwhelming = 1e6f; /* the similarity that holds the other side's chains */

struct chains {
    const struct chains_setting *setting;
    enum chains_side side;
    struct sample_state *state;
    struct loss *loss;
    struct device *dev;          /* of the cache */
    struct feature_cache *cache; /* of contrasts; NULL: chains */
    float *anchors;              /* (n, DIM), with a cache */
    struct tensor drawing;       /* (B, DIM) of them */
    double *s;                   /* (n, n) similarities of anchors with contrasts */
    double *p;                   /* (n, n) the softmax over other samples */
    double *mean;                /* (n, n) sums of the gradient's weights, then their means */
    uint64_t *visits;            /* (n) */
    struct rng places;
    double bins[CHAINS_BINS];
    uint64_t *ids, *carried_ids;       /* (B), (2, B) */
    float *similarity, *gradient;      /* (R, R), R = B or 2B */
    float *carried, *carried_gradient; /* (2, B) */
};

static uint32_t row_count(const struct chains_setting *o) {
    return o->views ? 2 * o->batch : o->batch;
}

/* ---- what is true ---- */

static void draw_feature(struct rng *r, double f[DIM], const double *near) {
    double norm = 0.0;
    for (int d = 0; d < DIM; d++) {
        f[d] = (near != NULL ? 2.0 * near[d] : 0.0) + rng_normal(r) / sqrt(DIM);
        norm += f[d] * f[d];
    }
    for (int d = 0; d < DIM; d++) {
        f[d] /= sqrt(norm);
    }
}

static enum status make_similarities(struct chains *c, struct error *err) {
    const uint32_t n = c->setting->n;
    double(*images)[DIM] = calloc(2 * (size_t)n, sizeof *images);
    if (images == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %u samples", n);
    }
    double(*texts)[DIM] = images + n;
    struct rng r;
    rng_init(&r, c->setting->seed, RNG_STUDY, n, DRAW_FEATURES);
    for (uint32_t i = 0; i < n; i++) {
        draw_feature(&r, images[i], NULL);
        draw_feature(&r, texts[i], images[i]);
    }
    const bool columns = !c->setting->views && c->side == CHAINS_SECOND;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const double *a = columns ? texts[i] : images[i];
            const double *b = columns || c->setting->views ? images[j] : texts[j];
            double sum = 0.0;
            for (int d = 0; d < DIM; d++) {
                sum += a[d] * b[d];
            }
            c->s[i * n + j] = sum;
        }
    }
    for (uint32_t i = 0; i < n && c->cache != NULL; i++) {
        const double *contrast = columns || c->setting->views ? images[i] : texts[i];
        float row[DIM];
        for (int d = 0; d < DIM; d++) {
            c->anchors[i * DIM + (uint32_t)d] = (float)(columns ? texts[i][d] : images[i][d]);
            row[d] = (float)contrast[d];
        }
        feature_cache_put(c->cache, i, row);
    }
    free(images);
    return STATUS_OK;
}

static void make_softmax(struct chains *c) {
    const uint32_t n = c->setting->n;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (uint32_t j = 0; j < n; j++) {
            c->p[i * n + j] = j == i ? 0.0 : exp((c->s[i * n + j] - 1.0) / c->setting->tau);
            sum += c->p[i * n + j];
        }
        for (uint32_t j = 0; j < n; j++) {
            c->p[i * n + j] /= sum;
        }
    }
}

/* ---- steps ---- */

/* Chains of the other side of pairs: on sample n, which is in no batch. */
static enum status hold_other_side(struct chains *c, struct error *err) {
    const uint32_t n = c->setting->n;
    const char *other = c->side == CHAINS_FIRST ? "text" : "image";
    for (int k = 0; k < 2 && !c->setting->views && c->cache == NULL; k++) {
        char name[SAMPLE_STATE_NAME_BYTES];
        const float score = overwhelming;
        const uint64_t id = n;
        (void)snprintf(name, sizeof name, "%s.%s", other, k == 0 ? "chain_log_score" : "chain_id");
        const int32_t column = sample_state_find(c->state, name);
        if (column < 0) {
            return error_set(err, STATUS_INVALID, "loss emc2 has no column %s", name);
        }
        for (uint32_t i = 0; i < n; i++) {
            sample_state_put(c->state, column, i, k == 0 ? (const void *)&score : &id, 1);
        }
    }
    return STATUS_OK;
}

static void fill_batch(struct chains *c, uint64_t step) {
    const struct chains_setting *o = c->setting;
    const uint32_t rows = row_count(o);
    const uint64_t per_epoch = o->n / o->batch;
    struct permutation order;
    permutation_init(&order, o->n, o->seed, step / per_epoch);
    for (uint32_t i = 0; i < o->batch; i++) {
        c->ids[i] = permutation_at(&order, step % per_epoch * o->batch + i);
    }
    const bool columns = !o->views && c->side == CHAINS_SECOND;
    for (uint32_t a = 0; a < rows; a++) {
        for (uint32_t k = 0; k < rows; k++) {
            const double s = c->s[c->ids[a % o->batch] * o->n + c->ids[k % o->batch]];
            c->similarity[columns ? k * rows + a : a * rows + k] = (float)s;
        }
    }
}

/* Negatives from the cache, of this side alone. */
static enum status draw_carried(struct chains *c, uint64_t step, struct error *err) {
    const struct chains_setting *o = c->setting;
    const uint64_t first = c->side * (uint64_t)o->batch;
    float *to = c->drawing.data;
    for (uint32_t r = 0; r < 2 * o->batch; r++) {
        c->carried_ids[r] = SAMPLE_STATE_NO_ID;
    }
    for (uint32_t i = 0; i < o->batch; i++) {
        memcpy(to + i * DIM, c->anchors + c->ids[i] * DIM, DIM * sizeof *to);
    }
    return feature_cache_draw(c->cache, c->carried_ids + first, &c->drawing, c->ids, o->tau,
                              o->seed, step, (int)c->side, err);
}

/* The similarities with samples outside the batch. */
static enum status fill_carried(struct chains *c, uint64_t step, struct error *err) {
    const struct chains_setting *o = c->setting;
    TRY(c->cache != NULL ? draw_carried(c, step, err)
                         : loss_carried(c->loss, c->carried_ids, c->ids, o->batch, err));
    for (uint32_t r = 0; r < 2 * o->batch; r++) {
        const uint64_t id = c->carried_ids[r];
        c->carried[r] = id >= o->n ? overwhelming : (float)c->s[c->ids[r % o->batch] * o->n + id];
    }
    return STATUS_OK;
}

/* Adds the weights of one step: the gradient over (0.5 / (B tau)), anchor by anchor. */
static void add_weights(struct chains *c) {
    const struct chains_setting *o = c->setting;
    const uint32_t b = o->batch;
    const uint32_t rows = row_count(o);
    const double unit = 2.0 * b * o->tau;
    const bool columns = !o->views && c->side == CHAINS_SECOND;
    for (uint32_t i = 0; i < b; i++) {
        const uint32_t a = o->views ? i + c->side * b : i;
        double *to = c->mean + c->ids[i] * o->n;
        for (uint32_t k = 0; k < rows; k++) {
            const float g = c->gradient[columns ? k * rows + a : a * rows + k];
            to[c->ids[k % b]] += unit * (double)g;
        }
        const uint64_t carried = c->carried_ids[c->side * b + i];
        if (o->method != CHAINS_SKIP && carried < o->n) {
            to[carried] += unit * (double)c->carried_gradient[c->side * b + i];
        }
        if (o->method == CHAINS_ENCODE && !o->views) {
            to[c->ids[i]] += 1.0; /* the other side's own pair, whose negatives are outside */
        }
        c->visits[c->ids[i]]++;
    }
}

static enum status one_step(struct chains *c, uint64_t step, struct error *err) {
    const bool carries = loss_carries(c->loss);
    fill_batch(c, step);
    if (carries) {
        TRY(fill_carried(c, step, err));
    }
    const struct loss_input in = {.similarity = c->similarity,
                                  .carried_ids = carries ? c->carried_ids : NULL,
                                  .carried_similarity = c->carried,
                                  .sample_ids = c->ids,
                                  .batch_count = c->setting->batch,
                                  .step = step};
    struct loss_output out = {.gradient = c->gradient, .carried_gradient = c->carried_gradient};
    TRY(loss_step(c->loss, &in, &out, err));
    add_weights(c);
    return STATUS_OK;
}

/* ---- the states of chains ---- */

/* The place of a state in the distribution of its anchor's contrasts by id: uniform in [0, 1) if
 * the state is drawn from it. */
static void count_state(struct chains *c, uint64_t anchor, uint64_t state) {
    const uint32_t n = c->setting->n;
    const double *p = c->p + anchor * n;
    double before = 0.0;
    for (uint64_t j = 0; j < state; j++) {
        before += p[j];
    }
    const double at = before + p[state] * rng_uniform(&c->places);
    const int bin = (int)(at * CHAINS_BINS);
    c->bins[bin < CHAINS_BINS ? bin : CHAINS_BINS - 1] += 1.0;
}

static void count_states(struct chains *c) {
    const struct chains_setting *o = c->setting;
    const bool texts = !o->views && c->side == CHAINS_SECOND;
    const int32_t column = sample_state_find(c->state, texts ? "text.chain_id" : "image.chain_id");
    const uint64_t *chain = column >= 0 ? sample_state_column_u64(c->state, column) : NULL;
    for (uint32_t i = 0; i < o->batch; i++) {
        if (c->visits[c->ids[i]] % THIN_VISITS == 0) {
            count_state(c, c->ids[i],
                        chain != NULL ? chain[c->ids[i]] : c->carried_ids[c->side * o->batch + i]);
        }
    }
}

/* ---- the result ---- */

static struct chains_result compare(struct chains *c) {
    const uint32_t n = c->setting->n;
    struct chains_result r = {0};
    double difference = 0.0;
    double exact = 0.0;
    double samples = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const double want = c->p[i * n + j] - (i == j ? 1.0 : 0.0);
            const double got = c->visits[i] > 0 ? c->mean[i * n + j] / (double)c->visits[i] : 0.0;
            difference += (got - want) * (got - want);
            exact += want * want;
            r.mass += i == j ? 0.0 : got / n;
        }
    }
    r.error = sqrt(difference / exact);
    for (int k = 0; k < CHAINS_BINS; k++) {
        samples += c->bins[k];
    }
    for (int k = 0; k < CHAINS_BINS && samples > 0.0; k++) {
        const double expected = samples / CHAINS_BINS;
        r.chi_square += (c->bins[k] - expected) * (c->bins[k] - expected) / expected;
    }
    return r;
}

/* ---- life ---- */

static enum status open_cache(struct chains *c, struct error *err) {
    const struct chains_setting *o = c->setting;
    const struct feature_cache_options how = {
        .id_count = o->n, .dim = DIM, .share = 1.0, .max_anchors = o->batch};
    void *data = NULL;
    c->anchors = calloc((size_t)o->n * DIM, sizeof *c->anchors);
    if (c->anchors == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %u samples", o->n);
    }
    TRY(device_open(&c->dev, "cpu", 1, err));
    TRY(c->dev->ops->alloc(c->dev, (size_t)o->batch * DIM * sizeof(float), &data, err));
    c->drawing = tensor_2d(data, DTYPE_F32, o->batch, DIM);
    return feature_cache_create(&c->cache, c->dev, &how, err);
}

static enum status open(struct chains *c, struct error *err) {
    const struct chains_setting *o = c->setting;
    const size_t n = o->n;
    const size_t rows = row_count(o);
    struct loss_options options;
    loss_options_default(&options);
    options.name = o->method == CHAINS_CACHE ? "negcache" : "emc2";
    options.views = o->views;
    options.tau = o->tau;
    options.emc2_carry = o->method == CHAINS_SKIP ? LOSS_EMC2_SKIP : LOSS_EMC2_ENCODE;
    options.seed = o->seed;
    c->s = calloc(n * n, sizeof *c->s);
    c->p = calloc(n * n, sizeof *c->p);
    c->mean = calloc(n * n, sizeof *c->mean);
    c->visits = calloc(n, sizeof *c->visits);
    c->ids = calloc(o->batch, sizeof *c->ids);
    c->carried_ids = calloc(2 * (size_t)o->batch, sizeof *c->carried_ids);
    c->similarity = calloc(rows * rows, sizeof *c->similarity);
    c->gradient = calloc(rows * rows, sizeof *c->gradient);
    c->carried = calloc(2 * (size_t)o->batch, sizeof *c->carried);
    c->carried_gradient = calloc(2 * (size_t)o->batch, sizeof *c->carried_gradient);
    if (c->s == NULL || c->p == NULL || c->mean == NULL || c->visits == NULL || c->ids == NULL ||
        c->carried_ids == NULL || c->similarity == NULL || c->gradient == NULL ||
        c->carried == NULL || c->carried_gradient == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for %u samples", o->n);
    }
    TRY(sample_state_create(&c->state, n + 1, NULL, err));
    TRY(loss_create(&c->loss, &options, c->state, n, o->batch, err));
    TRY(o->method == CHAINS_CACHE ? open_cache(c, err) : STATUS_OK);
    rng_init(&c->places, o->seed, RNG_STUDY, o->n, DRAW_PLACES);
    TRY(make_similarities(c, err));
    make_softmax(c);
    return hold_other_side(c, err);
}

static void fini(struct chains *c) {
    loss_destroy(c->loss);
    sample_state_destroy(c->state);
    feature_cache_destroy(c->cache);
    if (c->dev != NULL) {
        c->dev->ops->free(c->dev, c->drawing.data);
        device_close(c->dev);
    }
    free(c->anchors);
    free(c->s);
    free(c->p);
    free(c->mean);
    free(c->visits);
    free(c->ids);
    free(c->carried_ids);
    free(c->similarity);
    free(c->gradient);
    free(c->carried);
    free(c->carried_gradient);
}

static enum status run(struct chains *c,
                       enum status (*advance)(void *cookie, double steps, struct error *err),
                       void *cookie,
                       struct error *err) {
    TRY(open(c, err));
    for (uint64_t step = 0; step < c->setting->steps; step++) {
        TRY(one_step(c, step, err));
        count_states(c);
        if (advance != NULL && (step + 1) % ADVANCE_STEPS == 0) {
            TRY(advance(cookie, ADVANCE_STEPS, err));
        }
    }
    return STATUS_OK;
}

enum status chains_run(struct chains_result *out,
                       const struct chains_setting *setting,
                       enum chains_side side,
                       enum status (*advance)(void *cookie, double steps, struct error *err),
                       void *cookie,
                       struct error *err) {
    if (setting->n > CHAINS_MAX_SAMPLES || setting->batch < 2 || setting->batch > setting->n ||
        setting->n % setting->batch != 0) {
        return error_set(err, STATUS_USAGE, "--samples %u is not a multiple of --batch %u",
                         setting->n, setting->batch);
    }
    struct chains c = {.setting = setting, .side = side};
    const enum status s = run(&c, advance, cookie, err);
    if (s == STATUS_OK) {
        *out = compare(&c);
    }
    fini(&c);
    return s;
}
