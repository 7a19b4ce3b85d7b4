/*
 * objective: the definition of the global losses, and their values over a whole dataset, exactly.
 * `global_loss` of a training step estimates the same sums from moving averages: GCL for sogclr,
 * NUCLR for nuclr. With Delta_ij = S_ij - S_ii over n pairs, summed over both sides:
 *
 *   GCL    mean_i tau log sum_{j != i} exp(Delta_ij / tau)
 *   NUCLR  mean_i [ tau log sum_j exp((Delta_ij - zeta_j) / tau) + zeta_i ], j = i included:
 *          equation (10) of the paper
 *   CLIP   mean_i log sum_j exp(Delta_ij / tau), halved: InfoNCE with the dataset as its batch
 *
 * All are sums over candidates, not means, so they can be compared: GCL and NUCLR with zeta = 0
 * differ only in the positive's term. A mean over the n - 1 negatives (GCL in some papers) is
 * smaller by tau log(n - 1) on each side.
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
