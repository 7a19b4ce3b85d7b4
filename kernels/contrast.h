/*
 * contrast: a contrastive loss over tiles of its similarities, for devices that have it
 * (`device.contrasts`), so that a batch of B pairs needs no (B, B) matrix. train/loss/loss_tiled.c
 * is the loop over tiles:
 *
 *   every tile    S = X_r T_c^T,  sums     sums of exponentials over its rows and over its columns
 *   (the loss)                             from the sums: value, state, the weight of every anchor
 *   every tile    S again,  gradient       G = dL/dS replaces S;  dX_r += G T_c,  dT_c += G^T X_r
 *
 * Each row of a tile is an anchor whose negatives are the tile's columns, and each column an anchor
 * whose negatives are the rows. For anchor a and negative c, in both roles of an element:
 *
 *   e_ac = rate_a (S_ac - shift_c),  p_ac = exp(e_ac - largest_a),  G += weight_a p_ac
 *
 * Positive pairs, on the diagonal of S, are excluded: their similarity is reported, their gradient
 * is an input. Exponents and sums are taken in double; each exponential is an f32 with a relative
 * error of 2e-7. The order of additions depends only on the shape of the tile.
 *
 * Threading : as the device.
 * Ownership : every pointer is borrowed, in the device's memory.
 */
#ifndef KERNELS_CONTRAST_H
#define KERNELS_CONTRAST_H

#include "kernels/ops.h"

/* Arrays with one element per row of S, or per column. */
struct contrast_lines {
    double *rate, *shift; /* shift: -CONTRAST_HIDDEN: not a negative of any anchor */
    double *largest, *sum,
        *weighted; /* largest e; sum of p; sum of p S. `gradient` reads largest */
    double *weight, *popularity;
    double *taken; /* of a negative: sum over the other side's anchors of popularity_a p_ac */
    double *positive, *positive_gradient; /* similarity of the positive pair, and its gradient; used
                                             for rows only */
};

struct contrast_tile {
    struct tensor s;                             /* (R, C) F32; its positives are overwritten */
    int64_t row, column;                         /* of S, where the tile begins */
    const struct contrast_lines *rows, *columns; /* of S */
};

struct device_contrasts {
    /* Adds the tile to largest (initially -inf), sum and weighted (initially 0), and fills
     * positive. Both return OK, NOMEM or DEVICE. */
    enum status (*sums)(struct device *, const struct contrast_tile *, struct error *);
    /* Replaces S by G, and adds to `taken` of rows and columns. */
    enum status (*gradient)(struct device *, const struct contrast_tile *, struct error *);
};

/* Value of elements of s that are not negatives: their exponentials are 0. Its magnitude is limited
 * so that its product with a rate has a rounding error far below 1. */
#define CONTRAST_HIDDEN (-1e9f)

extern const struct device_contrasts cpu_contrasts;

#endif
