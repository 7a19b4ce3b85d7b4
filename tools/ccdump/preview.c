/*
 * A character cell is about twice as high as wide, so half a cell is about a square pixel. Colour
 * codes are written only where a colour changes, which halves the size of flat areas.
 */
#include "tools/ccdump/preview.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *text, const char *a, const char *b) {
    return text && (strcmp(text, a) == 0 || strcmp(text, b) == 0);
}

enum preview_colours preview_colours_wanted(void) {
    const char *none = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    if ((none && none[0] != '\0') || !terminal || is_one_of(terminal, "dumb", "")) {
        return PREVIEW_NONE;
    }
    return is_one_of(getenv("COLORTERM"), "truecolor", "24bit") ? PREVIEW_TRUE : PREVIEW_256;
}

static int32_t scaled(int64_t a, int64_t by, int64_t part) {
    int64_t v = (2 * a * by + part) / (2 * part);
    return v < 1 ? 1 : (int32_t)v;
}

void preview_size(int32_t *out_width_px,
                  int32_t *out_height_px,
                  int32_t width_px,
                  int32_t height_px,
                  int32_t max_columns,
                  int32_t max_lines) {
    int32_t max_height = 2 * max_lines;
    *out_width_px = max_columns;
    *out_height_px = scaled(max_columns, height_px, width_px);
    if (*out_height_px > max_height) {
        *out_height_px = max_height;
        *out_width_px = scaled(max_height, width_px, height_px);
    }
    *out_width_px = *out_width_px > max_columns ? max_columns : *out_width_px;
    *out_height_px += *out_height_px % 2;
}

static int square(int v) {
    return v * v;
}

/* The nearest step of the colour cube (0, 95, 135, 175, 215, 255). */
static int cube_step(int level) {
    return level < 48 ? 0 : level < 115 ? 1 : (level - 35) / 40;
}

int preview_nearest_256(uint8_t red, uint8_t green, uint8_t blue) {
    static const int levels[] = {0, 95, 135, 175, 215, 255};
    int r = cube_step(red);
    int g = cube_step(green);
    int b = cube_step(blue);
    int cube = square(levels[r] - red) + square(levels[g] - green) + square(levels[b] - blue);
    int mean = (red + green + blue) / 3;
    int step = mean < 4 ? 0 : mean > 238 ? 23 : (mean - 3) / 10; /* greys: 8, 18, ... 238 */
    int level = 8 + 10 * step;
    int grey = square(level - red) + square(level - green) + square(level - blue);
    return grey < cube ? 232 + step : 16 + 36 * r + 6 * g + b;
}

/* `what`: "38" for the colour of the character, "48" for its background. */
static enum status put_colour(struct byte_buffer *out,
                              const char *what,
                              const uint8_t *pixel,
                              enum preview_colours colours,
                              struct error *err) {
    char text[32];
    int n = colours == PREVIEW_TRUE ? snprintf(text, sizeof(text), "\x1b[%s;2;%d;%d;%dm", what,
                                               pixel[0], pixel[1], pixel[2])
                                    : snprintf(text, sizeof(text), "\x1b[%s;5;%dm", what,
                                               preview_nearest_256(pixel[0], pixel[1], pixel[2]));
    return byte_buffer_append(out, text, (size_t)n, err);
}

/* Rows 2 * line and 2 * line + 1; without a lower row the background stays as it is. */
static enum status put_line(struct byte_buffer *out,
                            const struct image_view *pixels,
                            int32_t line,
                            enum preview_colours colours,
                            struct error *err) {
    const uint8_t *upper = pixels->data + (size_t)line * 2 * pixels->stride_bytes;
    const uint8_t *lower = 2 * line + 1 < pixels->height_px ? upper + pixels->stride_bytes : NULL;
    for (int32_t x = 0; x < pixels->width_px; x++) {
        const uint8_t *a = upper + (size_t)x * 3;
        const uint8_t *b = lower ? lower + (size_t)x * 3 : NULL;
        if (x == 0 || memcmp(a, a - 3, 3) != 0) {
            TRY(put_colour(out, "38", a, colours, err));
        }
        if (b && (x == 0 || memcmp(b, b - 3, 3) != 0)) {
            TRY(put_colour(out, "48", b, colours, err));
        }
        TRY(byte_buffer_append(out, "\xE2\x96\x80", 3, err));
    }
    return byte_buffer_append(out, "\x1b[0m\n", 5, err);
}

enum status preview_render(struct byte_buffer *out,
                           const struct image_view *pixels,
                           enum preview_colours colours,
                           struct error *err) {
    for (int32_t line = 0; 2 * line < pixels->height_px; line++) {
        TRY(put_line(out, pixels, line, colours, err));
    }
    return STATUS_OK;
}
