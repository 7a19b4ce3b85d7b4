/*
 * crop: draws the part of an image that a training view shows.
 *
 * Threading : pure functions of their arguments and the state of the generator.
 */
#ifndef AUGMENT_CROP_H
#define AUGMENT_CROP_H

#include <stdint.h>

#include "formats/base/image.h"
#include "formats/base/rng.h"

struct crop_options {
    double scale_min, scale_max; /* share of the image's area, 0 < min <= max <= 1; 0.5, 1 */
    double ratio_min, ratio_max; /* width / height, 0 < min <= max; 3/4, 4/3 */
};

void crop_options_default(struct crop_options *opt);

/* torchvision's random resized crop: area uniform in the scale, width / height log-uniform in the
 * ratio, sides rounded half to even, position uniform; after ten tries that do not fit, the largest
 * centred part whose shape is within the ratio. Requires sides of at least 1. The result lies
 * inside the image. Each try uses two 64-bit draws, and the position two bounded 32-bit draws. */
struct image_rect
crop_random(int32_t width_px, int32_t height_px, const struct crop_options *opt, struct rng *rng);

#endif
