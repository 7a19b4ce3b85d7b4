/*
 * feature_cache: rows in one block. A draw reads them once, in pieces: one product computes the
 * similarities of all anchors with a piece, then each anchor keeps the largest S / tau + Gumbel so
 * far. Rows without a sample are NaN, and so are their similarities.
 */
#include "train/state/feature_cache.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/checked.h"
#include "formats/base/rng.h"
#include "train/state/sample_state.h"

enum { PIECE_ROWS = 4096 };

/* The state of an anchor's draw. */
struct draw {
    struct rng noise;
    double best;
};

struct feature_cache {
    struct device *dev;
    struct feature_cache_options options;
    uint64_t put_count; /* until all are there */
    float *rows;        /* (id_count, dim) */
    float *scores;      /* (max_anchors, PIECE_ROWS) */
    struct draw *draws; /* (max_anchors) */
};

enum status feature_cache_create(struct feature_cache **out,
                                 struct device *dev,
                                 const struct feature_cache_options *opt,
                                 struct error *err) {
    REQUIRE(out != NULL && dev != NULL && dev->stream == NULL && opt != NULL && opt->dim > 0);
    REQUIRE(opt->id_count > 0 && opt->max_anchors > 0 && opt->share > 0.0 && opt->share <= 1.0);
    *out = NULL;
    size_t count = 0;
    size_t size_bytes = 0;
    void *rows = NULL;
    void *scores = NULL;
    struct feature_cache *c = calloc(1, sizeof *c);
    if (c == NULL || !checked_size(opt->id_count, &count) ||
        !checked_mul_size(count, (size_t)opt->dim * sizeof(float), &size_bytes)) {
        free(c);
        return error_set(err, STATUS_NOMEM, "no memory for features of %llu samples",
                         (unsigned long long)opt->id_count);
    }
    enum status s;
    *c = (struct feature_cache){.dev = dev, .options = *opt};
    TRY_OR_FAIL(s, dev->ops->alloc(dev, size_bytes, &rows, err));
    c->rows = rows;
    TRY_OR_FAIL(s, dev->ops->alloc(dev, (size_t)opt->max_anchors * PIECE_ROWS * sizeof *c->scores,
                                   &scores, err));
    c->scores = scores;
    c->draws = calloc((size_t)opt->max_anchors, sizeof *c->draws);
    if (c->draws == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for %lld anchors", (long long)opt->max_anchors);
        goto fail;
    }
    for (uint64_t id = 0; id < opt->id_count; id++) {
        feature_cache_put(c, id, NULL);
    }
    c->put_count = 0;
fail:
    RETURN_CREATED(s, out, c, feature_cache_destroy);
}

void feature_cache_destroy(struct feature_cache *c) {
    if (c == NULL) {
        return;
    }
    c->dev->ops->free(c->dev, c->rows);
    c->dev->ops->free(c->dev, c->scores);
    free(c->draws);
    free(c);
}

bool feature_cache_filled(const struct feature_cache *c) {
    return c->put_count >= c->options.id_count;
}

void feature_cache_set_filled(struct feature_cache *c) {
    c->put_count = c->options.id_count;
}

float *feature_cache_rows(const struct feature_cache *c) {
    return c->rows;
}

const struct feature_cache_options *feature_cache_shape(const struct feature_cache *c) {
    return &c->options;
}

void feature_cache_due(const struct feature_cache *c,
                       uint64_t step,
                       uint64_t *first,
                       uint64_t *count) {
    const uint64_t n = c->options.id_count;
    const uint64_t part = (uint64_t)ceil(c->options.share * (double)n);
    *count = !feature_cache_filled(c) || part > n ? n : part;
    *first = feature_cache_filled(c) ? step % n * *count % n : 0; /* counts are below 2^48 */
}

void feature_cache_put(struct feature_cache *c, uint64_t id, const float *feature) {
    float *row = c->rows + id * (uint64_t)c->options.dim;
    for (int64_t k = 0; k < c->options.dim; k++) {
        row[k] = feature != NULL ? feature[k] : (float)NAN;
    }
    c->put_count += feature_cache_filled(c) ? 0 : 1;
}

/* Compares a piece's ids from `first` on with the best so far. All ids get noise, so that it does
 * not depend on which of them have a sample. */
static void race(struct draw *d,
                 uint64_t *out,
                 const float *scores,
                 uint64_t first,
                 uint64_t count,
                 uint64_t own_id,
                 double tau) {
    for (uint64_t i = 0; i < count; i++) {
        const double gumbel = -log(-log(rng_uniform(&d->noise)));
        const double score = (double)scores[i] / tau + gumbel;
        if (score > d->best && first + i != own_id) { /* false for NaN */
            d->best = score;
            *out = first + i;
        }
    }
}

enum status feature_cache_draw(struct feature_cache *c,
                               uint64_t *out,
                               const struct tensor *anchors,
                               const uint64_t *own_ids,
                               double tau,
                               uint64_t seed,
                               uint64_t step,
                               int stream,
                               struct error *err) {
    REQUIRE(c != NULL && out != NULL && anchors != NULL && own_ids != NULL && tau > 0.0);
    REQUIRE(anchors->shape[0] <= c->options.max_anchors && anchors->shape[1] == c->options.dim);
    const int64_t r = anchors->shape[0];
    for (int64_t i = 0; i < r; i++) {
        out[i] = SAMPLE_STATE_NO_ID;
        c->draws[i].best = -HUGE_VAL;
        rng_init(&c->draws[i].noise, seed, RNG_CACHE, step, 2 * own_ids[i] + (uint64_t)stream);
    }
    for (uint64_t first = 0; first < c->options.id_count; first += PIECE_ROWS) {
        const uint64_t left = c->options.id_count - first;
        const uint64_t count = left < PIECE_ROWS ? left : PIECE_ROWS;
        float *rows = c->rows + first * (uint64_t)c->options.dim;
        const struct matmul s = {.out = tensor_2d(c->scores, DTYPE_F32, r, (int64_t)count),
                                 .a = *anchors,
                                 .b = tensor_2d(rows, DTYPE_F32, (int64_t)count, c->options.dim),
                                 .transpose_b = true,
                                 .alpha = 1.0f};
        TRY(c->dev->ops->matmul(c->dev, &s, err));
        for (int64_t i = 0; i < r; i++) {
            race(&c->draws[i], &out[i], c->scores + (uint64_t)i * count, first, count, own_ids[i],
                 tau);
        }
    }
    return STATUS_OK;
}
