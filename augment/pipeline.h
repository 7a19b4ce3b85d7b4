/*
 * pipeline: from a stored picture to the pixels of one batch slot, in two halves around the
 * decoder: augment_draw says which part of the picture is wanted, the caller decodes it, and
 * augment_apply makes the (size, size, 3) pixels of it.
 *
 *     augment_draw(&params, &opt, width, height, seed, epoch, sample_id);
 *     decode.region = params.region;  decode.min_width_px = decode.min_height_px = opt.size_px;
 *     image_decode(decoder, &view, &box, data, size_bytes, &decode, err);
 *     augment_apply(slot, &view, &box, &params, &opt, &scratch, err);
 *
 * Threading : pure functions of their arguments; a scratch has one owner.
 * Ownership : the caller's storage. Once the scratch has grown nothing is allocated.
 */
#ifndef AUGMENT_PIPELINE_H
#define AUGMENT_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "augment/crop.h"
#include "augment/resize.h"
#include "formats/base/image.h"
#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AUGMENT_MAX_SIZE_PX = 4096 };

enum augment_kind {
    AUGMENT_TRAIN = 1,  /* random resized crop, then a mirror image with flip_probability */
    AUGMENT_SQUASH = 2, /* the whole picture to size x size, its shape not kept: evaluation */
};

struct augment_options {
    int32_t size_px;           /* side of the result, [1, AUGMENT_MAX_SIZE_PX]; 256 */
    enum augment_kind kind;    /* AUGMENT_TRAIN */
    struct crop_options crop;  /* of AUGMENT_TRAIN */
    double flip_probability;   /* of AUGMENT_TRAIN, [0, 1]; 0.5 */
    enum resize_filter filter; /* RESIZE_BICUBIC */
};

void augment_options_default(struct augment_options *opt);

/* What was drawn for one view of one sample: all that augment_apply needs to know of chance. The
 * order of the draws (crop, then flip, then whatever is added later) is part of what makes runs
 * repeat. */
struct augment_params {
    struct image_rect region; /* in pixels of the picture as it is looked at */
    bool flip;
};

/* A pure function of its inputs. Requires sides in [1, IMAGE_MAX_SIDE_PX]. The region lies inside
 * the picture. */
void augment_draw(struct augment_params *params,
                  const struct augment_options *opt,
                  int32_t width_px,
                  int32_t height_px,
                  uint64_t seed,
                  uint64_t epoch,
                  uint64_t sample_id);

struct augment_scratch {
    struct resize_scratch resize;
};

void augment_scratch_init(struct augment_scratch *s);
void augment_scratch_fini(struct augment_scratch *s);

/* Writes size_px * size_px * 3 bytes at `out`, rows without padding. `box` is where params->region
 * lies in `view`. Returns OK or NOMEM. */
enum status augment_apply(uint8_t *out,
                          const struct image_view *view,
                          const struct image_box *box,
                          const struct augment_params *params,
                          const struct augment_options *opt,
                          struct augment_scratch *scratch,
                          struct error *err);

#ifdef __cplusplus
}
#endif

#endif
