/*
 * pipeline: from a stored picture to the pixels of one batch slot, in two halves around the
 * decoder: augment_draw says what chance decides and which part of the picture is wanted, the
 * caller decodes that, and augment_apply makes the (size, size, 3) pixels of it.
 *
 *     augment_draw(&params, &opt, width, height, seed, epoch, sample_id, view);
 *     augment_decode(&part, &params, 1);
 *     how.region = part.region;
 *     how.min_width_px = part.min_width_px;  how.min_height_px = part.min_height_px;
 *     image_decode(decoder, &pixels, &box, data, size_bytes, &how, err);
 *     augment_apply(slot, &pixels, &box, &part, &params, &opt, &scratch, err);
 *
 * For two views of one sample augment_draw is called for views 0 and 1, augment_decode with both
 * results, the picture is decoded once, and augment_apply is called once per view.
 *
 * Threading : pure functions of their arguments; a scratch has one owner.
 * Ownership : the caller's storage. Once the scratch has grown nothing is allocated.
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

#ifdef __cplusplus
extern "C" {
#endif

enum { AUGMENT_MAX_SIZE_PX = 4096, AUGMENT_MAX_VIEWS = 2 };

enum augment_kind {
    AUGMENT_TRAIN = 1,       /* "crop": random resized crop, then a mirror image half of the time */
    AUGMENT_EVAL_SQUASH = 2, /* "eval-squash", "none": the whole picture to size x size, bicubic,
                              * its shape not kept; nothing is drawn */
    AUGMENT_EVAL_CROP = 3,   /* "eval-crop": the shorter side to round(size * shorter_ratio),
                              * bilinear, then the centre size x size; nothing is drawn */
    AUGMENT_PAPER = 4,       /* "paper": crop, mirror, RandAugment; see randaugment.h */
    AUGMENT_SIMCLR = 5,      /* "simclr": crop, mirror, colour jitter, gray, blur; see simclr.h */
};

/* NULL-terminated names for help texts and messages, in the order of the kinds. */
extern const char *const AUGMENT_KIND_NAMES[];
const char *augment_kind_name(enum augment_kind kind);
bool augment_kind_of(enum augment_kind *out, const char *name); /* false: no such name */

struct augment_options {
    int32_t size_px;              /* side of the result, [1, AUGMENT_MAX_SIZE_PX]; 256 */
    enum augment_kind kind;       /* as given to augment_options_default */
    struct crop_options crop;     /* of the training kinds; see crop.h. Areas from 0.08 on for
                                   * AUGMENT_SIMCLR */
    double flip_probability;      /* of the training kinds, [0, 1]; 0.5 */
    enum resize_filter filter;    /* RESIZE_BICUBIC; RESIZE_BILINEAR for AUGMENT_EVAL_CROP */
    double shorter_ratio;         /* of AUGMENT_EVAL_CROP, [1, 4]; 1, as the papers' zero-shot
                                   * evaluation; 256.0 / 224 is the other usual one */
    struct simclr_options simclr; /* of AUGMENT_SIMCLR */
};

/* The constants of `kind`, as the papers have them. */
void augment_options_default(struct augment_options *opt, enum augment_kind kind);

/* What was drawn for one view of one sample: all that augment_apply needs to know of chance. The
 * order of the draws (crop, then flip, then the steps) is part of what makes runs repeat. Places
 * are in pixels of the picture as it is looked at. */
struct augment_params {
    struct image_box shown;   /* what the result shows */
    struct image_rect region; /* the pixels that count: around `shown`, inside the picture */
    int32_t min_width_px;     /* a decoder may scale `region` down, but not below this */
    int32_t min_height_px;
    bool flip;
    struct randaugment_step steps[RANDAUGMENT_STEPS]; /* of AUGMENT_PAPER */
    struct simclr_draws simclr;                       /* of AUGMENT_SIMCLR */
};

/* A pure function of its inputs. Requires sides in [1, IMAGE_MAX_SIDE_PX] and a view below
 * AUGMENT_MAX_VIEWS. */
void augment_draw(struct augment_params *params,
                  const struct augment_options *opt,
                  int32_t width_px,
                  int32_t height_px,
                  uint64_t seed,
                  uint64_t epoch,
                  uint64_t sample_id,
                  uint32_t view);

/* What has to be decoded: field by field what struct image_decode_options takes. */
struct augment_part {
    struct image_rect region;
    int32_t min_width_px, min_height_px;
};

/* The smallest part that holds the regions of `count` views of one sample, at the smallest size
 * that is enough for each. Requires count in [1, AUGMENT_MAX_VIEWS]. */
void augment_decode(struct augment_part *part, const struct augment_params *params, int count);

struct augment_scratch {
    struct resize_scratch resize; /* and of the blur */
    struct resize_scratch spare;  /* a second picture, for steps that do not work in place */
};

void augment_scratch_init(struct augment_scratch *s);
void augment_scratch_fini(struct augment_scratch *s);

/* Writes size_px * size_px * 3 bytes at `out`, rows without padding. `box` is where part->region
 * lies in `pixels`; `params` is one of those that the part was made for. `out` overlaps neither
 * pixels nor scratch. Returns OK or NOMEM. */
enum status augment_apply(uint8_t *out,
                          const struct image_view *pixels,
                          const struct image_box *box,
                          const struct augment_part *part,
                          const struct augment_params *params,
                          const struct augment_options *opt,
                          struct augment_scratch *scratch,
                          struct error *err);

#ifdef __cplusplus
}
#endif

#endif
