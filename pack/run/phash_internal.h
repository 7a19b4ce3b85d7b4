/*
 * phash: a perceptual hash of 64 bits. Images that look alike (another size, another quality,
 * small changes) have hashes that differ in few bits.
 *
 * It is the DCT hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash
 * Functions" (2010), as the Python package ImageHash computes it (phash with its defaults), and is
 * written as that one writes it: the image in gray, reduced to 32 x 32 pixels (Lanczos), its
 * DCT-II along both axes, and a bit for each of the 8 x 8 lowest frequencies: whether it is above
 * their median. Row by row, the highest bit first.
 *
 * Everything but the filter's weights is computed with integers, so the same pixels give the same
 * hash on every machine.
 *
 * Threading : stateless.
 */
#ifndef PACK_RUN_PHASH_INTERNAL_H
#define PACK_RUN_PHASH_INTERNAL_H

#include "augment/resize.h"

/* A JPEG may be decoded at 1/2, 1/4 or 1/8 as long as its sides stay at least this long. */
enum { PHASH_MIN_SIDE_PX = 64 };

/* Of the part `box` of an image. Returns OK or NOMEM. */
enum status pack_phash(uint64_t *out,
                       const struct image_view *view,
                       const struct image_box *box,
                       struct resize_workspace *workspace,
                       struct error *err);

#endif
