/*
 * gradient_estimator: a loss of train/loss on small batches, as an estimator of the gradient of the
 * global loss (gradient_exact.h): which pictures a step encodes, and the gradient in their
 * embeddings.
 *
 *   gradient_estimator_begin(e, rows, step)  -> rows of struct gradient_data to encode
 *   x = embeddings of those rows             (the model, or a table where the model stays)
 *   gradient_estimator_end(e, dx, x, dim)    -> dx, and the samples' state moves on
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_ESTIMATOR_H
#define TOOLS_CCSTUDY_GRADIENT_ESTIMATOR_H

#include <stdint.h>

#include "formats/base/status.h"

/* What a sample outside the batch is encoded from, for losses that carry. */
enum gradient_carry {
    GRADIENT_CARRY_NONE,  /* --emc2-carry skip, and losses that never carry */
    GRADIENT_CARRY_PLAIN, /* the image un-augmented: --emc2-carry encode, as ccstream-train does */
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
};

struct gradient_estimator;

/* Borrows the method. count: n; batch in [2, n]. Returns OK, NOMEM or what loss_create returns. */
enum status gradient_estimator_create(struct gradient_estimator **out,
                                      const struct gradient_method *method,
                                      uint32_t count,
                                      uint32_t batch,
                                      double tau,
                                      uint64_t seed,
                                      struct error *err);
void gradient_estimator_destroy(struct gradient_estimator *e); /* accepts NULL */

/* Rows of one step at most: 3B, rounded up to an even number. */
static inline uint32_t gradient_estimator_max_rows(uint32_t batch) {
    return 3 * batch + batch % 2;
}

/* Fills rows, an even number of them; returns OK or what loss_carried returns. Batches are those of
 * epochs, each a permutation of all samples by the seed. */
enum status gradient_estimator_begin(struct gradient_estimator *e,
                                     uint32_t *rows,
                                     int32_t *row_count,
                                     uint64_t step,
                                     struct error *err);

/* dx (row_count, dim) from x (row_count, dim) of the rows of begin. Every loss is scaled such that
 * dx estimates the gradient of L: those of train/loss that omit 1 / tau are multiplied by it.
 * Returns OK or what loss_step returns. */
enum status gradient_estimator_end(struct gradient_estimator *e,
                                   float *dx,
                                   const float *x,
                                   int64_t dim,
                                   struct error *err);

#endif
