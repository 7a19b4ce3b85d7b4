/*
 * gradient_estimator: a loss of train/loss on small batches, as an estimator of the gradient of the
 * global loss (gradient_exact.h): which pictures a step encodes, and the gradient in their
 * embeddings.
 *
 *   gradient_estimator_begin(e, rows, step)  -> rows of struct gradient_data to encode
 *   x = embeddings of those rows             (the model, or a table where the model stays)
 *   gradient_estimator_end(e, dx, x)         -> dx, and the samples' state moves on
 *
 * The negative cache has to encode rows before it knows which: begin calls the encoder.
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_ESTIMATOR_H
#define TOOLS_CCSTUDY_GRADIENT_ESTIMATOR_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

/* What a sample outside the batch is encoded from, for losses that carry. */
enum gradient_carry {
    GRADIENT_CARRY_NONE,  /* --emc2-off-batch skip, and losses that never carry */
    GRADIENT_CARRY_PLAIN, /* the image un-augmented: --emc2-off-batch encode, as ccstream-train does
                           */
    GRADIENT_CARRY_FRESH, /* one of its views, drawn anew in every step */
    GRADIENT_CARRY_VIEW,  /* the very view on which the chain stands: published code of figure 7 */
};

struct gradient_method {
    const char *key;  /* in JSON: "emc2-view" */
    const char *name; /* for people */
    const char *loss; /* of train/loss, with two views */
    enum gradient_carry carry;
    double gamma;   /* of sogclr; else 0 */
    double burn_in; /* of emc2: the share of proposals that are not recorded; else 0 */
    double refresh; /* of negcache: the share of the cache that a step encodes; else 0 */
};

/* x (count, dim) of rows, an even number of them, at most gradient_estimator_max_rows. */
struct gradient_encoder {
    enum status (
        *encode)(void *cookie, float *x, const uint32_t *rows, int32_t count, struct error *err);
    void *cookie;
};

struct gradient_estimator;

/* Borrows the method and dev, a CPU device. count: n; batch in [2, n]; dim: of embeddings. Returns
 * OK, NOMEM or what loss_create returns. */
enum status gradient_estimator_create(struct gradient_estimator **out,
                                      struct device *dev,
                                      const struct gradient_method *method,
                                      uint32_t count,
                                      uint32_t batch,
                                      int64_t dim,
                                      double tau,
                                      uint64_t seed,
                                      struct error *err);
void gradient_estimator_destroy(struct gradient_estimator *e); /* accepts NULL */

/* Rows of one pass at most: a batch's views and a sample for each. */
static inline uint32_t gradient_estimator_max_rows(uint32_t batch) {
    return 4 * batch;
}

/* Fills rows, an even number of them; returns OK or what loss_carried or the encoder returns.
 * Batches are those of epochs, each a permutation of all samples by the seed. */
enum status gradient_estimator_begin(struct gradient_estimator *e,
                                     uint32_t *rows,
                                     int32_t *row_count,
                                     uint64_t step,
                                     const struct gradient_encoder *encoder,
                                     struct error *err);

/* dx (row_count, dim) from x (row_count, dim) of the rows of begin. Every loss is scaled such that
 * dx estimates the gradient of L: those of train/loss that omit 1 / tau are multiplied by it.
 * Returns OK or what loss_step returns. */
enum status
gradient_estimator_end(struct gradient_estimator *e, float *dx, const float *x, struct error *err);

#endif
