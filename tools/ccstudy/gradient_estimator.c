/*
 * gradient_estimator: rows of a step are B first views, B second views, then samples outside the
 * batch that the loss asks for.
 */
#include "tools/ccstudy/gradient_estimator.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/gradient_data.h"
#include "train/loss/loss.h"
#include "train/state/feature_cache.h"

struct gradient_estimator {
    const struct gradient_method *method;
    struct device *dev;
    uint32_t count, batch;
    int64_t dim;
    double tau, scale;
    uint64_t seed, step;
    struct sample_state *state;
    struct loss *loss;
    struct feature_cache *cache;   /* of negcache; NULL */
    float *encoded;                /* (4B, dim): of what the cache needs */
    int32_t chain_id, chain_score; /* columns; -1: the loss has no chains */
    uint8_t *views;                /* (n): the view on which a sample's chain stands */
    int32_t row_count;
    uint64_t *ids, *carried_ids;       /* (B), (2, B) */
    int32_t *carried_row;              /* (2B): an anchor's, among the rows of the step; -1 */
    float *similarity, *gradient;      /* (2B, 2B) */
    float *carried, *carried_gradient; /* (2, B) */
};

/* ---- life ---- */

static enum status open(struct gradient_estimator *e, struct error *err) {
    const size_t b = e->batch;
    struct loss_options o;
    e->views = calloc(e->count, sizeof *e->views);
    e->ids = calloc(b, sizeof *e->ids);
    e->carried_ids = calloc(2 * b, sizeof *e->carried_ids);
    e->carried_row = calloc(2 * b, sizeof *e->carried_row);
    e->similarity = calloc(4 * b * b, sizeof *e->similarity);
    e->gradient = calloc(4 * b * b, sizeof *e->gradient);
    e->carried = calloc(2 * b, sizeof *e->carried);
    e->carried_gradient = calloc(2 * b, sizeof *e->carried_gradient);
    e->encoded = calloc(4 * b * (size_t)e->dim, sizeof *e->encoded);
    if (e->views == NULL || e->ids == NULL || e->carried_ids == NULL || e->carried_row == NULL ||
        e->similarity == NULL || e->gradient == NULL || e->carried == NULL ||
        e->carried_gradient == NULL || e->encoded == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for batches of %u", e->batch);
    }
    loss_options_default(&o);
    o.name = e->method->loss;
    o.views = true;
    o.tau = e->tau;
    o.gamma = e->method->gamma;
    o.burn_in = e->method->burn_in;
    o.cache_refresh = e->method->refresh;
    o.emc2_carry = e->method->carry == GRADIENT_CARRY_NONE ? LOSS_EMC2_SKIP : LOSS_EMC2_ENCODE;
    o.seed = e->seed;
    TRY(sample_state_create(&e->state, e->count, NULL, err));
    TRY(loss_create(&e->loss, &o, e->state, e->count, e->batch, err));
    e->chain_id = sample_state_find(e->state, "image.chain_id");
    e->chain_score = sample_state_find(e->state, "image.chain_log_score");
    const struct feature_cache_options cache = {.id_count = e->count,
                                                .dim = e->dim,
                                                .share = loss_cache_refresh(e->loss),
                                                .max_anchors = e->batch};
    return cache.share > 0.0 ? feature_cache_create(&e->cache, e->dev, &cache, err) : STATUS_OK;
}

enum status gradient_estimator_create(struct gradient_estimator **out,
                                      struct device *dev,
                                      const struct gradient_method *method,
                                      uint32_t count,
                                      uint32_t batch,
                                      int64_t dim,
                                      double tau,
                                      uint64_t seed,
                                      struct error *err) {
    struct gradient_estimator *e = calloc(1, sizeof *e);
    *out = NULL;
    if (e == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for loss %s", method->loss);
    }
    *e = (struct gradient_estimator){.method = method,
                                     .count = count,
                                     .batch = batch,
                                     .dev = dev,
                                     .dim = dim,
                                     .tau = tau,
                                     .scale = strcmp(method->loss, "sogclr") == 0 ? 1.0 / tau : 1.0,
                                     .seed = seed};
    const enum status s = open(e, err);
    if (s != STATUS_OK) {
        gradient_estimator_destroy(e);
        return s;
    }
    *out = e;
    return STATUS_OK;
}

void gradient_estimator_destroy(struct gradient_estimator *e) {
    if (e == NULL) {
        return;
    }
    feature_cache_destroy(e->cache);
    loss_destroy(e->loss);
    free(e->encoded);
    sample_state_destroy(e->state);
    free(e->views);
    free(e->ids);
    free(e->carried_ids);
    free(e->carried_row);
    free(e->similarity);
    free(e->gradient);
    free(e->carried);
    free(e->carried_gradient);
    free(e);
}

/* ---- a step ---- */

static uint32_t carried_kind(const struct gradient_estimator *e, uint64_t anchor) {
    struct rng r;
    switch (e->method->carry) {
    case GRADIENT_CARRY_VIEW:
        return e->views[anchor];
    case GRADIENT_CARRY_FRESH:
        rng_init(&r, e->seed, RNG_STUDY, e->step, anchor);
        return rng_below(&r, 2) == 0 ? GRADIENT_FIRST : GRADIENT_SECOND;
    default:
        return GRADIENT_PLAIN;
    }
}

/* ---- the negative cache ---- */

/* Encodes un-augmented what this step owes to the cache, a pass at a time. */
static enum status refresh(struct gradient_estimator *e,
                           uint32_t *rows,
                           const struct gradient_encoder *encoder,
                           struct error *err) {
    const uint64_t most = gradient_estimator_max_rows(e->batch);
    uint64_t first;
    uint64_t due;
    feature_cache_due(e->cache, e->step, &first, &due);
    for (uint64_t done = 0; done < due; done += most) {
        const uint64_t left = due - done < most ? due - done : most;
        for (uint64_t i = 0; i < left + left % 2; i++) {
            rows[i] = GRADIENT_PLAIN * e->count + (uint32_t)((first + done + i) % e->count);
        }
        TRY(encoder->encode(encoder->cookie, e->encoded, rows, (int32_t)(left + left % 2), err));
        for (uint64_t i = 0; i < left; i++) {
            feature_cache_put(e->cache, (first + done + i) % e->count,
                              e->encoded + (int64_t)i * e->dim);
        }
    }
    return STATUS_OK;
}

/* The samples that the views of the batch draw from the cache. */
static enum status draw_cached(struct gradient_estimator *e,
                               const uint32_t *rows,
                               const struct gradient_encoder *encoder,
                               struct error *err) {
    const int64_t b = e->batch;
    TRY(encoder->encode(encoder->cookie, e->encoded, rows, (int32_t)(2 * b), err));
    for (int view = 0; view < 2; view++) {
        const struct tensor anchors =
            tensor_2d(e->encoded + view * b * e->dim, DTYPE_F32, b, e->dim);
        TRY(feature_cache_draw(e->cache, e->carried_ids + view * b, &anchors, e->ids, e->tau,
                               e->seed, e->step, view, err));
    }
    return STATUS_OK;
}

/* ---- begin ---- */

/* Rows after those of the batch. The chain of a sample is one for both of its views. */
static void add_carried_rows(struct gradient_estimator *e, uint32_t *rows) {
    const uint32_t b = e->batch;
    for (uint32_t a = 0; a < 2 * b; a++) {
        const uint64_t id = e->carried_ids[a];
        e->carried_row[a] = -1;
        if (!loss_carries(e->loss) || id == SAMPLE_STATE_NO_ID) {
            continue;
        }
        if (e->cache == NULL && a >= b) {
            e->carried_row[a] = e->carried_row[a - b];
            continue;
        }
        e->carried_row[a] = e->row_count;
        rows[e->row_count++] = carried_kind(e, e->ids[a % b]) * e->count + (uint32_t)id;
    }
}

enum status gradient_estimator_begin(struct gradient_estimator *e,
                                     uint32_t *rows,
                                     int32_t *row_count,
                                     uint64_t step,
                                     const struct gradient_encoder *encoder,
                                     struct error *err) {
    const uint32_t b = e->batch;
    const uint64_t per_epoch = e->count / b;
    struct permutation order;
    permutation_init(&order, e->count, e->seed, step / per_epoch);
    e->step = step;
    if (e->cache != NULL) {
        TRY(refresh(e, rows, encoder, err));
    }
    for (uint32_t i = 0; i < 2 * b; i++) {
        e->ids[i % b] = permutation_at(&order, step % per_epoch * b + i % b);
        rows[i] = (i < b ? 0 : e->count) + (uint32_t)e->ids[i % b];
    }
    if (e->cache != NULL) {
        TRY(draw_cached(e, rows, encoder, err));
    } else if (loss_carries(e->loss)) {
        TRY(loss_carried(e->loss, e->carried_ids, e->ids, b, err));
    }
    e->row_count = (int32_t)(2 * b);
    add_carried_rows(e, rows);
    if (e->row_count % 2 != 0) {
        rows[e->row_count++] = rows[0];
    }
    *row_count = e->row_count;
    return STATUS_OK;
}

/* ---- end ---- */

static float dot(const float *x, int64_t dim, int64_t a, int64_t b) {
    double sum = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        sum += (double)x[a * dim + d] * (double)x[b * dim + d];
    }
    return (float)sum;
}

/* dx of both rows of a pair. */
static void add_pair(float *dx, const float *x, int64_t dim, int64_t a, int64_t b, double weight) {
    for (int64_t d = 0; d < dim; d++) {
        dx[a * dim + d] += (float)(weight * (double)x[b * dim + d]);
        dx[b * dim + d] += (float)(weight * (double)x[a * dim + d]);
    }
}

/* Which view of a sample in the batch a chain stands on: the last score is that of the second view
 * of its anchor with it. A chain that did not move keeps its view. */
static void follow_chains(struct gradient_estimator *e) {
    const uint32_t b = e->batch;
    const uint64_t *ids = sample_state_column_u64(e->state, e->chain_id);
    const float *scores = sample_state_column(e->state, e->chain_score);
    for (uint32_t i = 0; i < b; i++) {
        const uint64_t anchor = e->ids[i];
        for (uint32_t c = 0; c < 2 * b; c++) {
            const double s = (double)e->similarity[(i + b) * 2 * b + c];
            if (e->ids[c % b] == ids[anchor] && (float)(s / e->tau) == scores[anchor]) {
                e->views[anchor] = c >= b;
            }
        }
    }
}

enum status
gradient_estimator_end(struct gradient_estimator *e, float *dx, const float *x, struct error *err) {
    const uint32_t b = e->batch;
    const int64_t dim = e->dim;
    for (uint32_t a = 0; a < 2 * b; a++) {
        for (uint32_t c = 0; c < 2 * b; c++) {
            e->similarity[a * 2 * b + c] = dot(x, dim, a, c);
        }
        const int32_t row = e->carried_row[a];
        e->carried[a] = row >= 0 ? dot(x, dim, a, row) : 0.0f;
    }
    const struct loss_input in = {.similarity = e->similarity,
                                  .sample_ids = e->ids,
                                  .carried_ids = loss_carries(e->loss) ? e->carried_ids : NULL,
                                  .carried_similarity = e->carried,
                                  .batch_count = b,
                                  .step = e->step,
                                  .epoch = e->step / (e->count / b)};
    struct loss_output out = {.gradient = e->gradient, .carried_gradient = e->carried_gradient};
    TRY(loss_step(e->loss, &in, &out, err));
    memset(dx, 0, (size_t)e->row_count * (size_t)dim * sizeof *dx);
    for (uint32_t a = 0; a < 2 * b; a++) {
        for (uint32_t c = 0; c < 2 * b; c++) {
            if (a != c) {
                add_pair(dx, x, dim, a, c, e->scale * (double)e->gradient[a * 2 * b + c]);
            }
        }
        const int32_t row = e->carried_row[a];
        if (row >= 0) {
            add_pair(dx, x, dim, a, row, e->scale * (double)e->carried_gradient[a]);
        }
    }
    if (e->method->carry == GRADIENT_CARRY_VIEW) {
        follow_chains(e);
    }
    return STATUS_OK;
}
