/*
 * ops: the ops on single pixels, and sharpness. This file computes statistics and tables once per
 * image; the loops process the pixels.
 */
#include "augment/ops_internal.h"

#include <assert.h>
#include <string.h>

#include "augment/ops_pixel_internal.h"

const struct op_loops *op_loops_fastest(void) {
    const struct op_loops *wide = op_loops_avx512() != NULL ? op_loops_avx512() : op_loops_avx2();
    return wide != NULL ? wide : op_loops_plain();
}

/* An image as runs of pixels: its rows, or the whole image if rows are contiguous. */
struct runs {
    size_t rows;
    size_t pixels; /* of a run */
};

static struct runs runs_of(const struct image_view *out, const struct image_view *in) {
    assert(out->width_px == in->width_px && out->height_px == in->height_px);
    size_t row_bytes = (size_t)in->width_px * 3;
    if (out->stride_bytes == row_bytes && in->stride_bytes == row_bytes) {
        return (struct runs){1, (size_t)in->width_px * (size_t)in->height_px};
    }
    return (struct runs){(size_t)in->height_px, (size_t)in->width_px};
}

static void apply_tables(struct op_pass p, const struct op_tables *tables) {
    struct runs r = runs_of(p.out, p.in);
    for (size_t y = 0; y < r.rows; y++) {
        p.loops->table(image_row(p.out, y), image_row(p.in, y), r.pixels, tables);
    }
}

/* -------------------------------------------------------------------------- stretch and spread */

/* Python's int(i * scale + offset): both steps rounded to double, in two statements. */
static void stretch_table(uint8_t table[256], int32_t low, int32_t high) {
    double scale = high > low ? 255.0 / (high - low) : 1.0;
    double offset = high > low ? -(double)low * scale : 0.0;
    for (int32_t i = 0; i < 256; i++) {
        double v = i * scale;
        v += offset;
        table[i] = (uint8_t)(v <= 0.0 ? 0 : v >= 255.0 ? 255 : v);
    }
}

void op_autocontrast(struct op_pass p) {
    struct runs r = runs_of(p.out, p.in);
    uint8_t low[3] = {255, 255, 255};
    uint8_t high[3] = {0, 0, 0};
    for (size_t y = 0; y < r.rows; y++) {
        p.loops->range(low, high, image_row(p.in, y), r.pixels);
    }
    struct op_tables tables = {.same = false};
    for (int c = 0; c < 3; c++) {
        stretch_table(tables.value[c], low[c], high[c]);
    }
    apply_tables(p, &tables);
}

/* Neighbouring pixels are often equal, and successive increments of one counter stall, so pixels
 * alternate between two sets of counters. */
static void count_values(uint32_t counts[2][3][256], const uint8_t *in, size_t pixels) {
    size_t i = 0;
    for (; i + 2 <= pixels; i += 2) {
        for (int c = 0; c < 3; c++) {
            counts[0][c][in[3 * i + c]]++;
            counts[1][c][in[3 * i + 3 + c]]++;
        }
    }
    for (; i < pixels; i++) {
        for (int c = 0; c < 3; c++) {
            counts[0][c][in[3 * i + c]]++;
        }
    }
}

static void spread_table(uint8_t table[256], const uint32_t counts[256]) {
    uint32_t sum = 0;
    uint32_t last = 0;
    for (int i = 0; i < 256; i++) {
        sum += counts[i];
        last = counts[i] != 0 ? counts[i] : last;
    }
    uint32_t step = (sum - last) / 255;
    uint32_t n = step / 2;
    for (int i = 0; i < 256; i++) {
        uint32_t v = step > 0 ? n / step : (uint32_t)i;
        table[i] = (uint8_t)(v < 255 ? v : 255);
        n += counts[i];
    }
}

void op_equalize(struct op_pass p) {
    struct runs r = runs_of(p.out, p.in);
    uint32_t counts[2][3][256] = {{{0}}};
    for (size_t y = 0; y < r.rows; y++) {
        count_values(counts, image_row(p.in, y), r.pixels);
    }
    struct op_tables tables = {.same = false};
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++) {
            counts[0][c][i] += counts[1][c][i];
        }
        spread_table(tables.value[c], counts[0][c]);
    }
    apply_tables(p, &tables);
}

/* -------------------------------------------------------------------------------------- blends */

static void blend_with_value(struct op_pass p, int32_t value, float factor) {
    struct op_tables tables = {.same = true};
    for (int32_t i = 0; i < 256; i++) {
        tables.value[0][i] = pixel_blend(value, i, factor);
    }
    memcpy(tables.value[1], tables.value[0], sizeof(tables.value[0]));
    memcpy(tables.value[2], tables.value[0], sizeof(tables.value[0]));
    apply_tables(p, &tables);
}

void op_brightness(struct op_pass p, float factor) {
    blend_with_value(p, 0, factor);
}

void op_contrast(struct op_pass p, float factor) {
    struct runs r = runs_of(p.out, p.in);
    uint64_t sum = 0;
    for (size_t y = 0; y < r.rows; y++) {
        sum += p.loops->gray_sum(image_row(p.in, y), r.pixels);
    }
    uint64_t count = (uint64_t)p.in->width_px * (uint64_t)p.in->height_px;
    blend_with_value(p, (int32_t)((2 * sum + count) / (2 * count)), factor);
}

void op_saturation(struct op_pass p, float factor) {
    struct runs r = runs_of(p.out, p.in);
    for (size_t y = 0; y < r.rows; y++) {
        p.loops->saturation(image_row(p.out, y), image_row(p.in, y), r.pixels, factor);
    }
}

void op_hue(struct op_pass p, uint8_t shift) {
    struct runs r = runs_of(p.out, p.in);
    for (size_t y = 0; y < r.rows; y++) {
        p.loops->hue(image_row(p.out, y), image_row(p.in, y), r.pixels, shift);
    }
}

void op_gray(struct op_pass p) {
    struct runs r = runs_of(p.out, p.in);
    for (size_t y = 0; y < r.rows; y++) {
        p.loops->gray(image_row(p.out, y), image_row(p.in, y), r.pixels);
    }
}

/* ---------------------------------------------------------------------------------- sharpening */

void op_sharpness(struct op_pass p) {
    assert(p.out->width_px == p.in->width_px && p.out->height_px == p.in->height_px);
    assert(p.out->data != p.in->data);
    size_t row_bytes = (size_t)p.in->width_px * 3;
    for (int32_t y = 0; y < p.in->height_px; y++) {
        const uint8_t *from = image_row(p.in, y);
        uint8_t *to = image_row(p.out, y);
        if (y == 0 || y == p.in->height_px - 1 || p.in->width_px < 3) {
            memcpy(to, from, row_bytes);
            continue;
        }
        memcpy(to, from, 3);
        p.loops->sharpness(to + 3, from + 3, p.in->stride_bytes, row_bytes - 6);
        memcpy(to + row_bytes - 3, from + row_bytes - 3, 3);
    }
}
