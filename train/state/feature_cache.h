/*
 * feature_cache: features of all samples of a dataset, from which a loss samples its negatives
 * (negcache): one row per id, a fraction of which is re-encoded every step.
 *
 *   ids     0 ........................ id_count - 1
 *   step 0  |ccccccccccccccccccccccccccccccccccccc|   all, because the cache is empty
 *   step 1  |    |cccc|                           |   ceil(share * id_count) of them; the position
 *   step 2  |         |cccc|                      |   is a function of the step
 *
 * Threading : single-owner.
 * Ownership : the cache owns its rows and borrows its device, whose memory is the host's.
 * Size      : 4 bytes for each of id_count * dim numbers.
 */
#ifndef TRAIN_STATE_FEATURE_CACHE_H
#define TRAIN_STATE_FEATURE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

struct feature_cache; /* opaque */

struct feature_cache_options {
    uint64_t id_count;   /* largest id + 1, at least 1 */
    int64_t dim;         /* of a feature */
    double share;        /* fraction re-encoded per step, (0, 1] */
    int64_t max_anchors; /* in one feature_cache_draw */
};

/* Creates an empty cache. Returns OK, INVALID or NOMEM. */
enum status feature_cache_create(struct feature_cache **out,
                                 struct device *dev,
                                 const struct feature_cache_options *opt,
                                 struct error *err);
void feature_cache_destroy(struct feature_cache *c); /* accepts NULL */

/* The ids that a step re-encodes before it samples: *count in [1, id_count], beginning with *first;
 * 0 follows the largest id. */
void feature_cache_due(const struct feature_cache *c,
                       uint64_t step,
                       uint64_t *first,
                       uint64_t *count);

/* Stores the feature (dim) of a sample; NULL: the id has no sample and is never chosen. */
void feature_cache_put(struct feature_cache *c, uint64_t id, const float *feature);

/* Chooses a sample for each of the anchors (R, dim), R <= max_anchors: id j with probability
 * proportional to exp(<anchor, feature of j> / tau), over all except own_ids[i] (R), by the
 * Gumbel-max trick; SAMPLE_STATE_NO_ID if there is none. A function of the features, the anchor and
 * (seed, step, own id, stream); stream, 0 or 1, distinguishes anchors of one id: images and texts,
 * or first and second views. Returns OK, INVALID or what the device returns. */
enum status feature_cache_draw(struct feature_cache *c,
                               uint64_t *out,
                               const struct tensor *anchors,
                               const uint64_t *own_ids,
                               double tau,
                               uint64_t seed,
                               uint64_t step,
                               int stream,
                               struct error *err);

/* ---- saving and loading ---- */

/* Whether every id was put once; until then there is nothing to save. Set it after loading. */
bool feature_cache_filled(const struct feature_cache *c);
void feature_cache_set_filled(struct feature_cache *c);

/* All rows (id_count, dim), in id order; NaN: no sample. */
float *feature_cache_rows(const struct feature_cache *c);
const struct feature_cache_options *feature_cache_shape(const struct feature_cache *c);

#endif
