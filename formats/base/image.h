/*
 * image: a view of 8-bit pixels in memory, rows from the top.
 */
#ifndef FORMATS_BASE_IMAGE_H
#define FORMATS_BASE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* (height, width, 3) u8 RGB; stride_bytes between rows, at least 3 * width. */
struct image_view {
    uint8_t *data;
    int32_t width_px;
    int32_t height_px;
    size_t stride_bytes;
};

static inline uint8_t *image_row(const struct image_view *v, size_t y) {
    return v->data + y * v->stride_bytes;
}

/* Pixels x in [x, x + width), y in [y, y + height). */
struct image_rect {
    int32_t x, y, width, height;
};

/* A part of an image in fractional pixels: pixel i covers [i, i + 1). */
struct image_box {
    double x, y, width, height;
};

enum { IMAGE_MAX_SIDE_PX = 65500 };

#endif
