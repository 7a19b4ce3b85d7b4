/*
 * preview: a picture as text for a terminal: each character is two pixels, one above the
 * other, as the upper half block in the colour of the upper pixel on a ground in that of the lower.
 *
 * Threading : pure functions.
 * Ownership : the caller's buffers.
 * Untrusted : the pixels, which cannot do harm: only colour numbers are made of them.
 */
#ifndef TOOLS_CCDUMP_PREVIEW_H
#define TOOLS_CCDUMP_PREVIEW_H

#include "formats/base/bytes.h"
#include "formats/base/image.h"
#include "formats/base/status.h"

enum preview_colours {
    PREVIEW_NONE,
    PREVIEW_256,  /* the 6x6x6 cube and the greys of xterm */
    PREVIEW_TRUE, /* 24 bits */
};

/* What the environment asks for: nothing where NO_COLOR is set or TERM is "dumb", 24 bits where
 * COLORTERM is truecolor or 24bit. */
enum preview_colours preview_colours_wanted(void);

/* The pixels of a preview of a picture of this size, in at most max_columns x max_lines characters:
 * the same shape, and height even where the room allows it. Requires positive sides and limits. */
void preview_size(int32_t *out_width_px,
                  int32_t *out_height_px,
                  int32_t width_px,
                  int32_t height_px,
                  int32_t max_columns,
                  int32_t max_lines);

/* The number of the nearest of the 256 colours: 16..255. */
int preview_nearest_256(uint8_t red, uint8_t green, uint8_t blue);

/* Appends the text, a line feed and the return to normal colours at the end of each line. Requires
 * colours other than PREVIEW_NONE. Returns OK, NOMEM or LIMIT. */
enum status preview_render(struct byte_buffer *out,
                           const struct image_view *pixels,
                           enum preview_colours colours,
                           struct error *err);

#endif
