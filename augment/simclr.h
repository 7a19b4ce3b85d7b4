/*
 * simclr: SimCLR's steps after crop and flip (Chen et al., 2020, appendix A): colour jitter, gray,
 * blur, each with its own probability. The two views of a sample are independent.
 *
 * As in torchvision: the four steps of the jitter come in random order. Brightness, contrast and
 * saturation change by factors uniform in [1 - s, 1 + s] (not below 0), and hue by a fraction of
 * the circle uniform in [-s, s]. The blur has an odd number of taps and reflects the image at its
 * border.
 *
 * Threading : pure functions of their arguments and the state of the generator.
 */
#ifndef AUGMENT_SIMCLR_H
#define AUGMENT_SIMCLR_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/rng.h"

enum simclr_jitter {
    SIMCLR_BRIGHTNESS,
    SIMCLR_CONTRAST,
    SIMCLR_SATURATION,
    SIMCLR_HUE,
    SIMCLR_JITTER_COUNT,
};

struct simclr_options {
    double jitter_probability;               /* [0, 1]; default 0.8 */
    double brightness, contrast, saturation; /* strengths s >= 0; default 0.8 each */
    double hue;                              /* strength s in [0, 0.5]; default 0.2 */
    double gray_probability;                 /* [0, 1]; default 0.2 */
    double blur_probability;                 /* [0, 1]; default 0.5 */
    double blur_sigma_min_px;                /* 0 < min <= max; default 0.1 */
    double blur_sigma_max_px;                /* default 2 */
    double blur_share; /* taps / side of the result, (0, 1]; default 0.1 (25 taps for 256 px) */
};

void simclr_options_default(struct simclr_options *opt);

/* The random choices for one view. */
struct simclr_draws {
    bool jitter, gray, blur;
    uint8_t order[SIMCLR_JITTER_COUNT]; /* a permutation of enum simclr_jitter */
    float factor[3];                    /* of brightness, contrast, saturation */
    uint8_t hue_shift;                  /* in 1/255 of the circle, modulo 256 */
    double sigma_px;
};

/* Chooses all fields in their order, even those that are not used. */
void simclr_draw(struct simclr_draws *out, const struct simclr_options *opt, struct rng *rng);

#endif
