/*
 * Rows that the options exclude, and the size of an image after the resize.
 */
#include "pack/run/filter_internal.h"

#include <inttypes.h>

#include "augment/resize.h"

void pack_filter_captions(struct source_row *row, const struct pack_filter *f) {
    for (uint32_t i = 0; i < row->caption_count; i++) {
        if (row->caption_size_bytes[i] > f->max_caption_bytes) {
            source_row_reject(row, REASON_CAPTION_LONG, "%" PRIu32 " bytes, the limit is %" PRIu32,
                              row->caption_size_bytes[i], f->max_caption_bytes);
        }
    }
}

void pack_filter_image(struct source_row *row,
                       const struct pack_filter *f,
                       int32_t width_px,
                       int32_t height_px) {
    int32_t shorter = width_px < height_px ? width_px : height_px;
    int32_t longer = width_px < height_px ? height_px : width_px;
    if ((uint32_t)shorter < f->min_side_px) {
        source_row_reject(row, REASON_IMAGE_SMALL,
                          "%" PRId32 " x %" PRId32 " pixels, the shorter side must have %" PRIu32,
                          width_px, height_px, f->min_side_px);
    }
    if (f->max_aspect > 0 && (double)longer > f->max_aspect * (double)shorter) {
        source_row_reject(row, REASON_IMAGE_ASPECT,
                          "%" PRId32 " x %" PRId32 " pixels, sides may differ by %g times",
                          width_px, height_px, f->max_aspect);
    }
    if ((uint64_t)width_px * (uint64_t)height_px > f->max_pixels) {
        source_row_reject(row, REASON_IMAGE_LARGE,
                          "%" PRId32 " x %" PRId32 " pixels, the limit is %" PRIu64, width_px,
                          height_px, f->max_pixels);
    }
}

/* Reduces the longer side to `long_px` and the shorter one in proportion. */
static void long_size(int32_t *longer, int32_t *shorter, int32_t long_px) {
    if (*longer <= long_px) {
        return;
    }
    int64_t scaled = ((int64_t)*shorter * long_px * 2 + *longer) / (2 * (int64_t)*longer);
    *shorter = scaled < 1 ? 1 : (int32_t)scaled;
    *longer = long_px;
}

bool pack_resize_size(int32_t *width_px, int32_t *height_px, const struct pack_resize *r) {
    const int32_t width = *width_px;
    const int32_t height = *height_px;
    switch (r->kind) {
    case PACK_RESIZE_NONE:
        return false;
    case PACK_RESIZE_SHORT:
        return resize_short_size(width_px, height_px, width, height, r->width_px);
    case PACK_RESIZE_LONG:
        if (width >= height) {
            long_size(width_px, height_px, r->width_px);
        } else {
            long_size(height_px, width_px, r->width_px);
        }
        break;
    case PACK_RESIZE_EXACT:
        *width_px = width < r->width_px ? width : r->width_px;
        *height_px = height < r->height_px ? height : r->height_px;
        break;
    }
    return *width_px != width || *height_px != height;
}
