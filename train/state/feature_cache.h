/*
 * feature_cache: features of all samples of a dataset, from which a loss draws its negatives
 * (negcache): one row per id, a fraction of which is re-encoded every step.
 *
 *   ids     0 ........................ id_count - 1
 *   step 0  |ccccccccccccccccccccccccccccccccccccc|   all, because none is there yet
 *   step 1  |    |cccc|                           |   ceil(share * id_count) of them, in turn; the
 *   step 2  |         |cccc|                      |   place is a function of the step
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
    double share;        /* in (0, 1]: see the drawing */
    int64_t max_anchors; /* of one draw */
};

/* Creates an empty cache. Returns OK, INVALID or NOMEM. */
enum status feature_cache_create(struct feature_cache **out,
                                 struct device *dev,
                                 const struct feature_cache_options *opt,
                                 struct error *err);
void feature_cache_destroy(struct feature_cache *c); /* accepts NULL */

/* The ids whose features a step re-encodes before it draws: *count of them, in [1, id_count], from
 * *first on; after the largest id follows 0. */
void feature_cache_due(const struct feature_cache *c,
                       uint64_t step,
                       uint64_t *first,
                       uint64_t *count);

/* The feature (dim) of a sample; NULL: no sample has this id (any more), it is not drawn. */
void feature_cache_put(struct feature_cache *c, uint64_t id, const float *feature);

/* For each of the anchors (R, dim), R <= max_anchors, the id of one sample: j with probability
 * proportional to exp(<anchor, feature of j> / tau) among all but own_ids[i] (R), by the Gumbel-max
 * trick; SAMPLE_STATE_NO_ID where there is none. A function of the features, the anchor and (seed,
 * step, own id, stream); stream, 0 or 1, distinguishes anchors of one id: images and texts, or
 * first and second views. Returns OK, INVALID or what the device returns. */
enum status feature_cache_draw(struct feature_cache *c,
                               uint64_t *out,
                               const struct tensor *anchors,
                               const uint64_t *own_ids,
                               double tau,
                               uint64_t seed,
                               uint64_t step,
                               int stream,
                               struct error *err);

/* ---- to save and to load ---- */

/* Whether every id was put once: before, there is nothing to save. After loading, it holds. */
bool feature_cache_filled(const struct feature_cache *c);
void feature_cache_set_filled(struct feature_cache *c);

/* All rows (id_count, dim), in the order of ids; NaN: no sample. */
float *feature_cache_rows(const struct feature_cache *c);
const struct feature_cache_options *feature_cache_shape(const struct feature_cache *c);

#endif
