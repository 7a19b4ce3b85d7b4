/*
 * pipeline: the two halves of an augmentation. All random choices are made before the decode, in a
 * fixed order from one stream per (seed, epoch, sample id, view); the pixel work after it is a pure
 * function of them.
 */
#include "augment/pipeline.h"

#include <math.h>
#include <string.h>

#include "augment/resize_internal.h"
#include "augment/steps_internal.h"
#include "formats/base/rng.h"

enum {
    MOST_REDUCTION = 8, /* of a decoder: pixels of the image per decoded pixel */
    /* For evaluation the decoder may reduce to twice the size: 0.3 levels from a full decode, on
     * average over the worst of 190 photographs; reduced to the size itself it would be 3. */
    EVAL_MIN_TIMES = 2,
};

const char *const AUGMENT_KIND_NAMES[] = {"crop", "eval-squash", "eval-crop",    "paper", "simclr",
                                          "clip", "eval-clip",   "eval-longest", NULL};

const char *augment_kind_name(enum augment_kind kind) {
    return AUGMENT_KIND_NAMES[kind - AUGMENT_TRAIN];
}

bool augment_kind_of(enum augment_kind *out, const char *name) {
    if (strcmp(name, "none") == 0) {
        *out = AUGMENT_EVAL_SQUASH;
        return true;
    }
    for (int i = 0; AUGMENT_KIND_NAMES[i] != NULL; i++) {
        if (strcmp(name, AUGMENT_KIND_NAMES[i]) == 0) {
            *out = (enum augment_kind)(AUGMENT_TRAIN + i);
            return true;
        }
    }
    return false;
}

void augment_options_default(struct augment_options *opt, enum augment_kind kind) {
    *opt = (struct augment_options){
        .size_px = 256,
        .kind = kind,
        .flip_probability = 0.5,
        .filter = kind == AUGMENT_EVAL_CROP ? RESIZE_BILINEAR : RESIZE_BICUBIC,
        .shorter_ratio = 1.0,
    };
    crop_options_default(&opt->crop);
    if (kind == AUGMENT_SIMCLR) {
        opt->crop.scale_min = 0.08;
    } else if (kind == AUGMENT_CLIP) {
        opt->crop.scale_min = 0.9;
        opt->flip_probability = 0.0;
    }
    simclr_options_default(&opt->simclr);
}

/* ---------------------------------------------------------------------------- random choices */

/* torchvision's Resize and CenterCrop as one box of the image. The region is larger by the
 * support of the filter, so that pixels at the edge of the crop use those beyond it. */
static void centre_part(struct augment_params *p,
                        const struct augment_options *opt,
                        int32_t width_px,
                        int32_t height_px) {
    int32_t shorter = width_px < height_px ? width_px : height_px;
    int32_t longer = width_px < height_px ? height_px : width_px;
    int64_t to = (int64_t)nearbyint(opt->size_px * opt->shorter_ratio);
    int64_t other = to * longer / shorter;
    double scale_x = (double)width_px / (double)(width_px <= height_px ? to : other);
    double scale_y = (double)height_px / (double)(width_px <= height_px ? other : to);
    double left =
        nearbyint((width_px <= height_px ? to - opt->size_px : other - opt->size_px) / 2.0);
    double top =
        nearbyint((width_px <= height_px ? other - opt->size_px : to - opt->size_px) / 2.0);
    p->shown = (struct image_box){left * scale_x, top * scale_y, opt->size_px * scale_x,
                                  opt->size_px * scale_y};
    double reach = opt->filter == RESIZE_BICUBIC ? 2.0 : 1.0;
    double margin_x = reach * fmax(scale_x, 1.0) + MOST_REDUCTION;
    double margin_y = reach * fmax(scale_y, 1.0) + MOST_REDUCTION;
    int32_t x = (int32_t)fmax(floor(p->shown.x - margin_x), 0.0);
    int32_t y = (int32_t)fmax(floor(p->shown.y - margin_y), 0.0);
    double end_x = fmin(ceil(p->shown.x + p->shown.width + margin_x), width_px);
    double end_y = fmin(ceil(p->shown.y + p->shown.height + margin_y), height_px);
    p->region = (struct image_rect){x, y, (int32_t)end_x - x, (int32_t)end_y - y};
}

static struct image_box box_of(const struct image_rect *r) {
    return (struct image_box){r->x, r->y, r->width, r->height};
}

void augment_draw(struct augment_params *params,
                  const struct augment_options *opt,
                  int32_t width_px,
                  int32_t height_px,
                  uint64_t seed,
                  uint64_t epoch,
                  uint64_t sample_id,
                  uint32_t view) {
    int32_t min_px = opt->size_px;
    *params = (struct augment_params){.region = {0, 0, width_px, height_px}};
    params->shown = box_of(&params->region);
    if (opt->kind == AUGMENT_EVAL_CROP || opt->kind == AUGMENT_EVAL_CLIP) {
        centre_part(params, opt, width_px, height_px);
        min_px *= EVAL_MIN_TIMES;
    } else if (opt->kind == AUGMENT_EVAL_SQUASH || opt->kind == AUGMENT_EVAL_LONGEST) {
        min_px *= EVAL_MIN_TIMES;
    } else {
        struct rng rng;
        /* Views from the third on have the second one's streams of epochs that no run reaches. */
        const uint64_t later = view > 1 ? (uint64_t)(view - 1) << 56 : 0;
        rng_init(&rng, seed, view == 0 ? RNG_AUGMENT : RNG_AUGMENT_SECOND, epoch + later,
                 sample_id);
        params->region = crop_random(width_px, height_px, &opt->crop, &rng);
        params->shown = box_of(&params->region);
        params->flip = rng_uniform(&rng) < opt->flip_probability;
        if (opt->kind == AUGMENT_PAPER) {
            randaugment_draw(params->steps, &rng);
        } else if (opt->kind == AUGMENT_SIMCLR) {
            simclr_draw(&params->simclr, &opt->simclr, &rng);
        }
    }
    params->min_width_px = (int32_t)ceil(min_px * (params->region.width / params->shown.width));
    params->min_height_px = (int32_t)ceil(min_px * (params->region.height / params->shown.height));
}

static int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* The smallest side of the whole for which a part of it has `min` pixels. */
static int32_t min_of_whole(int32_t min, int32_t part, int32_t whole) {
    return (int32_t)(((int64_t)min * whole + part - 1) / part);
}

void augment_decode(struct augment_part *part, const struct augment_params *params, int count) {
    struct image_rect all = params[0].region;
    for (int i = 1; i < count; i++) {
        const struct image_rect *r = &params[i].region;
        int32_t end_x = most(all.x + all.width, r->x + r->width);
        int32_t end_y = most(all.y + all.height, r->y + r->height);
        all.x = least(all.x, r->x);
        all.y = least(all.y, r->y);
        all.width = end_x - all.x;
        all.height = end_y - all.y;
    }
    *part = (struct augment_part){.region = all};
    for (int i = 0; i < count; i++) {
        const struct augment_params *p = &params[i];
        int32_t w = min_of_whole(p->min_width_px, p->region.width, all.width);
        int32_t h = min_of_whole(p->min_height_px, p->region.height, all.height);
        part->min_width_px = most(part->min_width_px, w);
        part->min_height_px = most(part->min_height_px, h);
    }
}

/* --------------------------------------------------------------------------------- the pixels */

void augment_workspace_init(struct augment_workspace *s) {
    resize_workspace_init(&s->resize);
    resize_workspace_init(&s->spare);
}

void augment_workspace_fini(struct augment_workspace *s) {
    resize_workspace_fini(&s->resize);
    resize_workspace_fini(&s->spare);
}

/* The position of a box of the image in the decoded pixels. */
static struct image_box box_in_pixels(const struct image_box *of,
                                      const struct image_box *decoded,
                                      const struct image_rect *region) {
    double scale_x = decoded->width / region->width;
    double scale_y = decoded->height / region->height;
    return (struct image_box){decoded->x + (of->x - region->x) * scale_x,
                              decoded->y + (of->y - region->y) * scale_y, of->width * scale_x,
                              of->height * scale_y};
}

static struct image_view square(uint8_t *data, int32_t size_px) {
    return (struct image_view){.data = data,
                               .width_px = size_px,
                               .height_px = size_px,
                               .stride_bytes = (size_t)size_px * 3};
}

/* The part of a square that a whole image fills with its aspect ratio kept: open_clip's
 * ResizeKeepRatio and CenterCropOrPad. */
static struct image_view middle(struct image_view v, int32_t width_px, int32_t height_px) {
    const double ratio = (double)most(width_px, height_px) / v.width_px;
    const int32_t width = most((int32_t)nearbyint(width_px / ratio), 1);
    const int32_t height = most((int32_t)nearbyint(height_px / ratio), 1);
    v.data += (size_t)((v.height_px - height) / 2) * v.stride_bytes +
              (size_t)((v.width_px - width) / 2) * 3;
    v.width_px = width;
    v.height_px = height;
    return v;
}

/* Resizes the shown part to `to`. */
static enum status show(const struct image_view *to,
                        const struct image_view *pixels,
                        const struct image_box *box,
                        const struct augment_part *part,
                        const struct augment_params *params,
                        const struct augment_options *opt,
                        struct augment_workspace *workspace,
                        struct error *err) {
    struct image_box counts = box_of(&params->region);
    struct image_box within = box_in_pixels(&counts, box, &part->region);
    struct image_box shown = box_in_pixels(&params->shown, box, &part->region);
    return resize_image(to, pixels, &shown, &within, opt->filter, params->flip, &workspace->resize,
                        err);
}

static int steps_apart(const struct augment_params *params, const struct augment_options *opt) {
    int n = 0;
    for (int i = 0; opt->kind == AUGMENT_PAPER && i < RANDAUGMENT_STEPS; i++) {
        const struct randaugment_step *s = &params->steps[i];
        n += !randaugment_is_noop(s) && !randaugment_works_in_place(s);
    }
    return n;
}

/* Steps that do not work in place alternate between `now` and `other`. */
static void
apply_steps(const struct randaugment_step *steps, struct image_view now, struct image_view other) {
    for (int i = 0; i < RANDAUGMENT_STEPS; i++) {
        if (randaugment_is_noop(&steps[i])) {
            continue;
        }
        if (randaugment_works_in_place(&steps[i])) {
            randaugment_apply(&steps[i], (struct op_pass){op_loops_fastest(), &now, &now});
        } else {
            randaugment_apply(&steps[i], (struct op_pass){op_loops_fastest(), &other, &now});
            struct image_view t = now;
            now = other;
            other = t;
        }
    }
}

enum status augment_apply(uint8_t *out,
                          const struct image_view *pixels,
                          const struct image_box *box,
                          const struct augment_part *part,
                          const struct augment_params *params,
                          const struct augment_options *opt,
                          struct augment_workspace *workspace,
                          struct error *err) {
    REQUIRE(out != NULL && opt->size_px >= 1 && opt->size_px <= AUGMENT_MAX_SIZE_PX);
    REQUIRE(part->region.width > 0 && part->region.height > 0);
    struct image_view slot = square(out, opt->size_px);
    if (opt->kind == AUGMENT_EVAL_LONGEST) {
        memset(out, 0, slot.stride_bytes * (size_t)opt->size_px);
        slot = middle(slot, params->region.width, params->region.height);
    }
    int apart = steps_apart(params, opt);
    if (apart > 0) {
        TRY(resize_workspace_reserve(&workspace->spare, slot.stride_bytes * (size_t)opt->size_px,
                                     err));
    }
    /* Chosen so that the last step that does not work in place writes to the slot. */
    struct image_view spare = square(workspace->spare.data, opt->size_px);
    const struct image_view *first = apart % 2 == 1 ? &spare : &slot;
    TRY(show(first, pixels, box, part, params, opt, workspace, err));
    if (opt->kind == AUGMENT_PAPER) {
        apply_steps(params->steps, *first, first == &slot ? spare : slot);
    } else if (opt->kind == AUGMENT_SIMCLR) {
        TRY(simclr_apply(&params->simclr, &opt->simclr, op_loops_fastest(), &slot,
                         &workspace->resize, err));
    }
    return STATUS_OK;
}
