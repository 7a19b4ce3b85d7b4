/*
 * filter: rows that the options exclude, and the size that an image is brought to.
 */
#ifndef PACK_RUN_FILTER_INTERNAL_H
#define PACK_RUN_FILTER_INTERNAL_H

#include "pack/pack.h"

void pack_filter_captions(struct source_row *row, const struct pack_filter *f);
void pack_filter_image(struct source_row *row,
                       const struct pack_filter *f,
                       int32_t width_px,
                       int32_t height_px);

/* Replaces an image's size by its size after the resize. Returns whether it differs. */
bool pack_resize_size(int32_t *width_px, int32_t *height_px, const struct pack_resize *r);

#endif
