/*
 * objective: the global losses over a whole dataset, exactly, where training sees only estimates.
 * With Delta_ij = S_ij - S_ii over n pairs, summed over both sides:
 *
 *   GCL    mean_i tau log( 1/(n-1) sum_{j != i} exp(Delta_ij / tau) )
 *   NUCLR  mean_i [ tau log sum_j exp((Delta_ij - zeta_j) / tau) + zeta_i ], its own term included:
 *          equation (10) of the paper without the term that does not depend on the model
 *   CLIP   mean_i log sum_j exp(Delta_ij / tau), halved: InfoNCE with the dataset as its batch
 *
 * Threading : as the device. Ownership: everything is borrowed for the call.
 */
#ifndef TRAIN_EVAL_OBJECTIVE_H
#define TRAIN_EVAL_OBJECTIVE_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

struct objective_result {
    double gcl, gcl_image, gcl_text; /* image: images are the anchors */
    double clip;
    double nuclr; /* NaN without zeta */
};

/* images, texts (n, dim), pair by pair; zeta_image, zeta_text (n) or both NULL; n at least 2.
 * Returns OK, NOMEM or what the device returns. */
enum status objective_compute(struct objective_result *out,
                              struct device *dev,
                              const float *images,
                              const float *texts,
                              int64_t count,
                              int64_t dim,
                              double tau,
                              const float *zeta_image,
                              const float *zeta_text,
                              struct error *err);

#endif
