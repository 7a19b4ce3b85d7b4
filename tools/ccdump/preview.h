/*
 * preview: a picture as text for a terminal. Each character shows two pixels, one above the other:
 * an upper half block in the colour of the upper pixel, with the colour of the lower as background.
 *
 * Threading : pure functions.
 * Ownership : the caller's buffers.
 * Untrusted : the pixels; they only become colour numbers.
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

/* What the environment asks for: none if NO_COLOR is set or TERM is "dumb", 24 bits if COLORTERM is
 * truecolor or 24bit, else 256 colours. */
enum preview_colours preview_colours_wanted(void);

/* The size in pixels of the preview of a picture of this size, in at most max_columns x max_lines
 * characters: the same aspect ratio and an even height. Requires positive sizes and limits. */
void preview_size(int32_t *out_width_px,
                  int32_t *out_height_px,
                  int32_t width_px,
                  int32_t height_px,
                  int32_t max_columns,
                  int32_t max_lines);

/* The nearest of the 256 colours: 16..255. */
int preview_nearest_256(uint8_t red, uint8_t green, uint8_t blue);

/* Appends the text; each line ends with the code for normal colours and a line feed. Requires
 * colours other than PREVIEW_NONE. Returns OK, NOMEM or LIMIT. */
enum status preview_render(struct byte_buffer *out,
                           const struct image_view *pixels,
                           enum preview_colours colours,
                           struct error *err);

#endif
