/*
 * resize: antialiased resampling of a fractional box of an image to an exact size, and the
 * arithmetic of `short:N`.
 *
 * The method is that of Pillow's resize: two separable passes of fixed-point arithmetic with an
 * 8-bit image in between; the support of the filter grows with the reduction. Results
 * differ from Pillow's by at most one level. Results are byte-identical for all instruction sets.
 *
 * Threading : a workspace (resize_workspace) has one owner; everything else is stateless.
 * Ownership : the caller's storage; a workspace grows to the largest job and keeps that size.
 */
#ifndef AUGMENT_RESIZE_H
#define AUGMENT_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/image.h"
#include "formats/base/status.h"

enum resize_filter {
    RESIZE_BILINEAR = 1, /* triangle, support 1 */
    RESIZE_BICUBIC = 2,  /* Keys' cubic with a = -0.5, support 2 */
    RESIZE_LANCZOS = 3,  /* sinc(x) * sinc(x / 3), support 3 */
};

/* A workspace. Zero-initialise (or resize_workspace_init), release with resize_workspace_fini. */
struct resize_workspace {
    uint8_t *data;
    size_t capacity_bytes;
};

void resize_workspace_init(struct resize_workspace *s);
void resize_workspace_fini(struct resize_workspace *s);

/* Fills every pixel of `out` from `box` of `in`. Only pixels that `within` touches are used; with
 * NULL, only those that the box touches, as after a crop. `mirror` flips horizontally. Requires a
 * box of positive size inside `within`, which is inside `in`; sides of `out` in
 * [1, IMAGE_MAX_SIDE_PX]; and that out and in do not overlap. Returns OK or NOMEM. */
enum status resize_image(const struct image_view *out,
                         const struct image_view *in,
                         const struct image_box *box,
                         const struct image_box *within,
                         enum resize_filter filter,
                         bool mirror,
                         struct resize_workspace *workspace,
                         struct error *err);

/* The size of an image whose shorter side is reduced to `short_px` and whose other side is reduced
 * in proportion and rounded. An image that is already small enough keeps its size. Returns whether
 * the size changes. */
bool resize_short_size(int32_t *out_width_px,
                       int32_t *out_height_px,
                       int32_t width_px,
                       int32_t height_px,
                       int32_t short_px);

#endif
