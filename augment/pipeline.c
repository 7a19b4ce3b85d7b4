/*
 * The two halves of an augmentation. All that chance decides is drawn here, before the decode, in a
 * fixed order from one stream per (seed, epoch, sample id); the pixel work that follows is a pure
 * function of it. What works on pixels and is drawn too (colour, warps, a second view) adds its
 * draws behind the flip and its steps behind the resize.
 */
#include "augment/pipeline.h"

#include "formats/base/rng.h"

void augment_options_default(struct augment_options *opt) {
    *opt = (struct augment_options){
        .size_px = 256, .kind = AUGMENT_TRAIN, .flip_probability = 0.5, .filter = RESIZE_BICUBIC};
    crop_options_default(&opt->crop);
}

void augment_draw(struct augment_params *params,
                  const struct augment_options *opt,
                  int32_t width_px,
                  int32_t height_px,
                  uint64_t seed,
                  uint64_t epoch,
                  uint64_t sample_id) {
    *params = (struct augment_params){.region = {0, 0, width_px, height_px}};
    if (opt->kind == AUGMENT_TRAIN) {
        struct rng rng;
        rng_init(&rng, seed, RNG_AUGMENT, epoch, sample_id);
        params->region = crop_random(width_px, height_px, &opt->crop, &rng);
        params->flip = rng_uniform(&rng) < opt->flip_probability;
    }
}

void augment_scratch_init(struct augment_scratch *s) {
    resize_scratch_init(&s->resize);
}

void augment_scratch_fini(struct augment_scratch *s) {
    resize_scratch_fini(&s->resize);
}

enum status augment_apply(uint8_t *out,
                          const struct image_view *view,
                          const struct image_box *box,
                          const struct augment_params *params,
                          const struct augment_options *opt,
                          struct augment_scratch *scratch,
                          struct error *err) {
    REQUIRE(out != NULL && opt->size_px >= 1 && opt->size_px <= AUGMENT_MAX_SIZE_PX);
    struct image_view slot = {.data = out,
                              .width_px = opt->size_px,
                              .height_px = opt->size_px,
                              .stride_bytes = (size_t)opt->size_px * 3};
    return resize_image(&slot, view, box, opt->filter, params->flip, &scratch->resize, err);
}
