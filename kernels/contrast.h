/*
 * contrast: a contrastive loss over tiles of its similarities, for devices that have it
 * (`device.contrasts`), so that a batch of B pairs needs no (B, B) matrix. train/loss/loss_tiled.c
 * is the loop over tiles:
 *
 *   every tile    S = X_r T_c^T,  sums     sums of exponentials of its rows and of its columns
 *   (the loss)                             from the sums: value, state, the weight of every anchor
 *   every tile    S again,  gradient       G = dL/dS in its place;  dX_r += G T_c,  dT_c += G^T X_r
 *
 * Each row of a tile is an anchor, whose contrasts are the tile's columns, and the other way round.
 * Of anchor a and contrast c, shift being the contrast's and the rest the anchor's:
 *
 *   e_ac = rate_a (S_ac - shift_c),  p_ac = exp(e_ac - largest_a),  G_ac = weight_a p_ac
 *
 * An anchor's own pair, on the diagonal of S, has none of that: its similarity is reported, its
 * gradient given. Exponents and sums are taken in double; each exponential is an f32 of relative
 * error 2e-7. The order of additions depends on the shape of the tile alone.
 *
 * Threading : as the device.
 * Ownership : every pointer is borrowed, in the device's memory.
 */
#ifndef KERNELS_CONTRAST_H
#define KERNELS_CONTRAST_H

#include "kernels/ops.h"

/* An element of each for every row of S, or for every column. */
struct contrast_lines {
    double *rate, *shift; /* shift: -CONTRAST_HIDDEN: not a contrast of any anchor */
    double *largest, *sum,
        *weighted; /* largest e; sum of p; sum of p S. `gradient` reads largest */
    double *weight, *popularity;
    double *taken; /* of a contrast: sum over the other side's anchors of popularity_a p_ac */
    double *own,
        *own_gradient; /* similarity of the own pair, of rows alone; its gradient, as own */
};

struct contrast_tile {
    struct tensor s;                             /* (R, C) F32; its own pairs are overwritten */
    int64_t row, column;                         /* of S, where the tile begins */
    const struct contrast_lines *rows, *columns; /* of S */
};

struct device_contrasts {
    /* Adds the tile to largest (before the first tile -inf), sum and weighted (0), and fills own.
     * Returns OK or NOMEM, as the next. */
    enum status (*sums)(struct device *, const struct contrast_tile *, struct error *);
    /* Replaces S by G, and adds to taken of all lines. */
    enum status (*gradient)(struct device *, const struct contrast_tile *, struct error *);
};

/* Elements of s that are no contrasts: their exponentials are 0. Not larger, so that the rounding
 * of a product with a rate stays far below 1. */
#define CONTRAST_HIDDEN (-1e9f)

extern const struct device_contrasts cpu_contrasts;

#endif
