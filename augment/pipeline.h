/*
 * pipeline: turns a stored image into the pixels of one batch slot, in two halves around the
 * decoder: augment_draw makes all random choices, including the part of the image that is needed,
 * the caller decodes that part, and augment_apply computes the (size, size, 3) pixels from it.
 *
 *     augment_draw(&params, &opt, width, height, seed, epoch, sample_id, view);
 *     augment_decode(&part, &params, 1);
 *     how.region = part.region;
 *     how.min_width_px = part.min_width_px;  how.min_height_px = part.min_height_px;
 *     image_decode(decoder, &pixels, &box, data, size_bytes, &how, err);
 *     augment_apply(slot, &pixels, &box, &part, &params, &opt, &workspace, err);
 *
 * For two views of one sample augment_draw is called for views 0 and 1, augment_decode with both
 * results, the image is decoded once, and augment_apply is called once per view.
 *
 * Threading : pure functions of their arguments; a workspace (augment_workspace) has one owner.
 * Ownership : the caller's storage. Nothing is allocated after the workspace has grown.
 */
#ifndef AUGMENT_PIPELINE_H
#define AUGMENT_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "augment/crop.h"
#include "augment/randaugment.h"
#include "augment/resize.h"
#include "augment/simclr.h"
#include "formats/base/image.h"
#include "formats/base/status.h"

enum { AUGMENT_MAX_SIZE_PX = 4096, AUGMENT_MAX_VIEWS = 2 };

enum augment_kind {
    AUGMENT_TRAIN = 1,        /* "crop": random resized crop, horizontal flip with p 0.5 */
    AUGMENT_EVAL_SQUASH = 2,  /* "eval-squash", "none": the whole image resized to size x size,
                               * bicubic, its aspect ratio not kept; deterministic, as all eval-* */
    AUGMENT_EVAL_CROP = 3,    /* "eval-crop": the shorter side resized to
                               * round(size * shorter_ratio), bilinear, then the centre size x
                               * size */
    AUGMENT_PAPER = 4,        /* "paper": crop, flip, RandAugment; see randaugment.h */
    AUGMENT_SIMCLR = 5,       /* "simclr": crop, flip, colour jitter, gray, blur; see simclr.h */
    AUGMENT_CLIP = 6,         /* "clip": random resized crop of 0.9 to 1 of the area, never flipped,
                               * as in open_clip */
    AUGMENT_EVAL_CLIP = 7,    /* "eval-clip": as eval-crop, but bicubic, as in CLIP and open_clip */
    AUGMENT_EVAL_LONGEST = 8, /* "eval-longest": the longer side resized, bicubic, on black */
};

/* NULL-terminated names for help texts and messages, in the order of the kinds. */
extern const char *const AUGMENT_KIND_NAMES[];
const char *augment_kind_name(enum augment_kind kind);
bool augment_kind_of(enum augment_kind *out, const char *name); /* false: no such name */

struct augment_options {
    int32_t size_px;           /* side of the result, [1, AUGMENT_MAX_SIZE_PX]; default 256 */
    enum augment_kind kind;    /* as passed to augment_options_default */
    struct crop_options crop;  /* of the training kinds; default scale_min 0.08 for AUGMENT_SIMCLR,
                                * 0.9 for AUGMENT_CLIP, else as in crop.h */
    double flip_probability;   /* of the training kinds, [0, 1]; default 0.5; AUGMENT_CLIP: 0 */
    enum resize_filter filter; /* default RESIZE_BICUBIC; AUGMENT_EVAL_CROP: RESIZE_BILINEAR */
    double shorter_ratio;      /* of AUGMENT_EVAL_CROP, _CLIP, [1, 4]; default 1, as in the papers'
                                * zero-shot evaluation; 256.0 / 224 is also common */
    struct simclr_options simclr; /* of AUGMENT_SIMCLR */
};

/* Sets the papers' constants for `kind`. */
void augment_options_default(struct augment_options *opt, enum augment_kind kind);

/* All random choices for one view of one sample. Their order (crop, flip, steps) is fixed, so that
 * runs are reproducible. Coordinates are pixels of the upright image. */
struct augment_params {
    struct image_box shown;   /* the part that the result shows */
    struct image_rect region; /* the pixels that are used: around `shown`, inside the image */
    int32_t min_width_px;     /* a decoder may scale `region` down, but not below this */
    int32_t min_height_px;
    bool flip;
    struct randaugment_step steps[RANDAUGMENT_STEPS]; /* of AUGMENT_PAPER */
    struct simclr_draws simclr;                       /* of AUGMENT_SIMCLR */
};

/* A pure function of its inputs. Requires sides in [1, IMAGE_MAX_SIDE_PX] and a view below
 * 128. */
void augment_draw(struct augment_params *params,
                  const struct augment_options *opt,
                  int32_t width_px,
                  int32_t height_px,
                  uint64_t seed,
                  uint64_t epoch,
                  uint64_t sample_id,
                  uint32_t view);

/* The part to decode: its fields are those of struct image_decode_options. */
struct augment_part {
    struct image_rect region;
    int32_t min_width_px, min_height_px;
};

/* The smallest part that contains the regions of `count` views of one sample, at the smallest size
 * that suffices for each. Requires count in [1, AUGMENT_MAX_VIEWS]. */
void augment_decode(struct augment_part *part, const struct augment_params *params, int count);

struct augment_workspace {
    struct resize_workspace resize; /* also used by the blur */
    struct resize_workspace spare;  /* a second image, for steps that do not work in place */
};

void augment_workspace_init(struct augment_workspace *s);
void augment_workspace_fini(struct augment_workspace *s);

/* Writes size_px * size_px * 3 bytes at `out`, rows without padding. `box` is the position of
 * part->region in `pixels`; `params` is one of those from which the part was made. `out` overlaps
 * neither pixels nor workspace. Returns OK or NOMEM. */
enum status augment_apply(uint8_t *out,
                          const struct image_view *pixels,
                          const struct image_box *box,
                          const struct augment_part *part,
                          const struct augment_params *params,
                          const struct augment_options *opt,
                          struct augment_workspace *workspace,
                          struct error *err);

#endif
