/*
 * simclr: random choices of SimCLR's colour jitter, gray and blur, and their application.
 */
#include "augment/simclr.h"

#include "augment/steps_internal.h"

void simclr_options_default(struct simclr_options *opt) {
    *opt = (struct simclr_options){
        .jitter_probability = 0.8,
        .brightness = 0.8,
        .contrast = 0.8,
        .saturation = 0.8,
        .hue = 0.2,
        .gray_probability = 0.2,
        .blur_probability = 0.5,
        .blur_sigma_min_px = 0.1,
        .blur_sigma_max_px = 2.0,
        .blur_share = 0.1,
    };
}

static double between(struct rng *rng, double low, double high) {
    return low + (high - low) * rng_uniform(rng);
}

void simclr_draw(struct simclr_draws *out, const struct simclr_options *opt, struct rng *rng) {
    const double strength[3] = {opt->brightness, opt->contrast, opt->saturation};
    *out = (struct simclr_draws){.jitter = rng_uniform(rng) < opt->jitter_probability};
    out->gray = rng_uniform(rng) < opt->gray_probability;
    out->blur = rng_uniform(rng) < opt->blur_probability;
    for (uint32_t i = 0; i < SIMCLR_JITTER_COUNT; i++) {
        uint32_t j = rng_below(rng, i + 1);
        out->order[i] = out->order[j];
        out->order[j] = (uint8_t)i;
    }
    for (int i = 0; i < 3; i++) {
        double low = strength[i] < 1.0 ? 1.0 - strength[i] : 0.0;
        out->factor[i] = (float)between(rng, low, 1.0 + strength[i]);
    }
    out->hue_shift = (uint8_t)(int32_t)(between(rng, -opt->hue, opt->hue) * 255.0);
    out->sigma_px = between(rng, opt->blur_sigma_min_px, opt->blur_sigma_max_px);
}

static void jitter(const struct simclr_draws *d, struct op_pass p) {
    for (int i = 0; i < SIMCLR_JITTER_COUNT; i++) {
        switch (d->order[i]) {
        case SIMCLR_BRIGHTNESS:
            op_brightness(p, d->factor[SIMCLR_BRIGHTNESS]);
            break;
        case SIMCLR_CONTRAST:
            op_contrast(p, d->factor[SIMCLR_CONTRAST]);
            break;
        case SIMCLR_SATURATION:
            op_saturation(p, d->factor[SIMCLR_SATURATION]);
            break;
        default:
            op_hue(p, d->hue_shift);
            break;
        }
    }
}

enum status simclr_apply(const struct simclr_draws *d,
                         const struct simclr_options *opt,
                         const struct op_loops *loops,
                         const struct image_view *v,
                         struct resize_workspace *workspace,
                         struct error *err) {
    const struct op_pass p = {loops, v, v};
    if (d->jitter) {
        jitter(d, p);
    }
    if (d->gray) {
        op_gray(p);
    }
    if (d->blur) {
        const int32_t taps = (int32_t)(opt->blur_share * v->width_px);
        return op_blur(v, v, d->sigma_px, taps / 2, workspace, err);
    }
    return STATUS_OK;
}
