/*
 * pixels: images as batches have them, from the bytes of the augmentation: type, normalisation and
 * order of the channels.
 *
 * Threading : pixel_table_write is a pure function; a table is immutable after pixel_table_init.
 */
#ifndef BINDINGS_C_PIXELS_INTERNAL_H
#define BINDINGS_C_PIXELS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "bindings/c/ccstream.h"
#include "formats/base/status.h"

/* What each value of each channel becomes. */
struct pixel_table {
    enum ccs_pixels type;
    bool planar;
    uint32_t side_px;
    uint32_t element_bytes;
    union {
        uint8_t u8[256];
        uint16_t u16[256]; /* bits of float16 and bfloat16 */
        float f32[256];
    } values[3];
};

/* Returns OK or USAGE. */
enum status
pixel_table_init(struct pixel_table *t, const struct ccs_loader_options *opt, struct error *err);

/* Whether the images are those of the loader: uint8 (S, S, 3). */
bool pixel_table_is_plain(const struct pixel_table *t);

/* Writes side * side * 3 elements at `out`; rgb is (side, side, 3). */
void pixel_table_write(const struct pixel_table *t, void *out, const uint8_t *rgb);

#endif
