/*
 * crop: chooses at random the part of an image that a training view shows.
 *
 * Threading : pure functions of their arguments and the state of the generator.
 */
#ifndef AUGMENT_CROP_H
#define AUGMENT_CROP_H

#include <stdint.h>

#include "formats/base/image.h"
#include "formats/base/rng.h"

struct crop_options {
    double scale_min, scale_max; /* fraction of the area, 0 < min <= max <= 1; default 0.5 to 1 */
    double ratio_min, ratio_max; /* width / height, 0 < min <= max; default 3/4 to 4/3 */
};

void crop_options_default(struct crop_options *opt);

/* torchvision's random resized crop: area uniform in the scale, width / height log-uniform in the
 * ratio, sides rounded half to even, position uniform; after ten tries that do not fit, the largest
 * centred part whose shape is within the ratio. Requires sides of at least 1. The result is inside
 * the image. Each try uses two 64-bit random numbers, the position two bounded 32-bit ones. */
struct image_rect
crop_random(int32_t width_px, int32_t height_px, const struct crop_options *opt, struct rng *rng);

#endif
