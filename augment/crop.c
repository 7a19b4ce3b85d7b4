/*
 * crop: torchvision's random resized crop with the counter-based generator, in double arithmetic.
 * Sides are rounded half to even, as by Python's round.
 */
#include "augment/crop.h"

#include <math.h>

enum { CROP_TRIES = 10 };

void crop_options_default(struct crop_options *opt) {
    *opt = (struct crop_options){
        .scale_min = 0.5, .scale_max = 1.0, .ratio_min = 3.0 / 4.0, .ratio_max = 4.0 / 3.0};
}

static double uniform(struct rng *rng, double low, double high) {
    return low + (high - low) * rng_uniform(rng);
}

/* Rounds a side; saturates, so that any options are safe. */
static int32_t rounded(double side) {
    return side < (double)INT32_MAX ? (int32_t)nearbyint(side) : INT32_MAX;
}

static int32_t within(int32_t side, int32_t most) {
    return side < 1 ? 1 : side > most ? most : side;
}

static struct image_rect
centre_crop(int32_t width_px, int32_t height_px, const struct crop_options *opt) {
    double ratio = (double)width_px / height_px;
    int32_t w = width_px;
    int32_t h = height_px;
    if (ratio < opt->ratio_min) {
        h = within(rounded(w / opt->ratio_min), height_px);
    } else if (ratio > opt->ratio_max) {
        w = within(rounded(h * opt->ratio_max), width_px);
    }
    return (struct image_rect){(width_px - w) / 2, (height_px - h) / 2, w, h};
}

struct image_rect
crop_random(int32_t width_px, int32_t height_px, const struct crop_options *opt, struct rng *rng) {
    double area = (double)width_px * height_px;
    double log_min = log(opt->ratio_min);
    double log_max = log(opt->ratio_max);
    for (int i = 0; i < CROP_TRIES; i++) {
        double target = area * uniform(rng, opt->scale_min, opt->scale_max);
        double ratio = exp(uniform(rng, log_min, log_max));
        int32_t w = rounded(sqrt(target * ratio));
        int32_t h = rounded(sqrt(target / ratio));
        if (w > 0 && w <= width_px && h > 0 && h <= height_px) {
            int32_t y = (int32_t)rng_below(rng, (uint32_t)(height_px - h + 1));
            int32_t x = (int32_t)rng_below(rng, (uint32_t)(width_px - w + 1));
            return (struct image_rect){x, y, w, h};
        }
    }
    return centre_crop(width_px, height_px, opt);
}
