/*
 * gradient_exact: the global contrastive loss of n images with two fixed views each, and its
 * gradient, over all negatives (Yau et al., ICML 2024, eqs. 1 and 4). Every one of the 2n views is
 * an anchor a, the other view of its image the positive p:
 *
 *   L = mean over anchors of [ log sum_c exp(S_ac / tau) - S_ap / tau ]
 *
 * Threading : one owner.
 */
#ifndef TOOLS_CCSTUDY_GRADIENT_EXACT_H
#define TOOLS_CCSTUDY_GRADIENT_EXACT_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

/* What c runs over. */
enum gradient_objective {
    GRADIENT_GLOBAL,      /* the 2n - 2 views of other images: eq. (1) */
    GRADIENT_WITH_OWN,    /* the positive too: InfoNCE over all images, what published code logs */
    GRADIENT_UNAUGMENTED, /* the n - 1 other images, un-augmented */
    GRADIENT_OBJECTIVES
};

struct gradient_exact;

/* dev: a CPU device, borrowed. Returns OK or NOMEM. */
enum status gradient_exact_create(struct gradient_exact **out,
                                  struct device *dev,
                                  uint32_t count,
                                  int64_t dim,
                                  double tau,
                                  struct error *err);
void gradient_exact_destroy(struct gradient_exact *e); /* accepts NULL */

/* L and dL/dx of x (3n, E): first views, second views, images; un-augmented images are read and
 * given a gradient by GRADIENT_UNAUGMENTED alone, with the others 2n rows suffice. Returns OK or
 * what the device returns. */
enum status gradient_exact_evaluate(struct gradient_exact *e,
                                    double *loss,
                                    float *dx,
                                    const float *x,
                                    enum gradient_objective objective,
                                    struct error *err);

#endif
