/*
 * ops_blur: the Gaussian blur. The first pass, along the rows, writes an image with reflected rows
 * above and below it; the second goes across. Both use the column loop of resize: neighbours along
 * a row of RGB pixels are "rows" three bytes apart.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "augment/ops_internal.h"
#include "augment/resize_internal.h"

enum { MAX_WEIGHT_BITS = 14 }; /* a weight of 1 fits 16 bits */

/* Weights from the middle outwards, which depend only on sigma; those that round to 0 are
 * omitted. */
struct kernel {
    int16_t *weights;
    int32_t radius;
};

static double bell(int32_t x, double sigma) {
    double q = x / sigma;
    return exp(-0.5 * q * q);
}

/* Fills kernel->weights, which has room for 2 * radius + 1 + RESIZE_TAP_GROUP. The rounding
 * error of the sum is added to the middle, so that flat areas keep their value. */
static void fill_kernel(struct kernel *k, double sigma, int32_t radius) {
    double sum = 1.0;
    for (int32_t x = 1; x <= radius; x++) {
        sum += 2.0 * bell(x, sigma);
    }
    const int32_t one = 1 << MAX_WEIGHT_BITS;
    while (radius > 0 && lrint(bell(radius, sigma) / sum * one) == 0) {
        radius--;
    }
    k->radius = radius;
    memset(k->weights, 0, ((size_t)radius * 2 + 1 + RESIZE_TAP_GROUP) * sizeof(k->weights[0]));
    int32_t left = one;
    for (int32_t x = 1; x <= radius; x++) {
        int32_t w = (int32_t)lrint(bell(x, sigma) / sum * one);
        k->weights[radius - x] = k->weights[radius + x] = (int16_t)w;
        left -= 2 * w;
    }
    k->weights[radius] = (int16_t)left;
}

/* The index of x in a line of n that is reflected at its ends repeatedly. */
static int32_t reflected(int32_t x, int32_t n) {
    int32_t period = 2 * (n - 1);
    if (period == 0) {
        return 0;
    }
    x %= period;
    x = x < 0 ? x + period : x;
    return x < n ? x : period - x;
}

/* Copies a row with `radius` more pixels on each side. */
static void widen_row(uint8_t *out, const uint8_t *in, int32_t width_px, int32_t radius) {
    for (int32_t x = -radius; x < 0; x++) {
        memcpy(out + (size_t)(x + radius) * 3, in + (size_t)reflected(x, width_px) * 3, 3);
    }
    memcpy(out + (size_t)radius * 3, in, (size_t)width_px * 3);
    for (int32_t x = width_px; x < width_px + radius; x++) {
        memcpy(out + (size_t)(x + radius) * 3, in + (size_t)reflected(x, width_px) * 3, 3);
    }
}

enum status op_blur_with(const struct resize_kernels *loops,
                         const struct image_view *out,
                         const struct image_view *in,
                         double sigma,
                         int32_t radius,
                         struct resize_workspace *workspace,
                         struct error *err) {
    assert(sigma > 0 && radius >= 0 && radius <= OPS_MAX_SIDE_PX);
    assert(out->width_px == in->width_px && out->height_px == in->height_px);
    size_t row_bytes = (size_t)in->width_px * 3;
    size_t weights_bytes = ((size_t)radius * 2 + 1 + RESIZE_TAP_GROUP) * sizeof(int16_t);
    size_t wide_bytes = row_bytes + (size_t)radius * 6;
    size_t middle_rows = (size_t)in->height_px + 2 * (size_t)radius;
    TRY(resize_workspace_reserve(workspace, weights_bytes + wide_bytes + middle_rows * row_bytes,
                                 err));
    struct kernel k = {.weights = (int16_t *)(void *)workspace->data};
    uint8_t *wide = workspace->data + weights_bytes;
    uint8_t *middle = wide + wide_bytes;
    fill_kernel(&k, sigma, radius);
    struct resize_axis axis = {.used = 2 * k.radius + 1, .bits = MAX_WEIGHT_BITS};
    for (int32_t y = 0; y < in->height_px; y++) {
        widen_row(wide, image_row(in, y), in->width_px, k.radius);
        loops->column(middle + (size_t)(y + k.radius) * row_bytes, wide, 3, axis.used, row_bytes,
                      k.weights, &axis);
    }
    for (int32_t y = -k.radius; y < in->height_px + k.radius; y++) {
        if (y < 0 || y >= in->height_px) {
            memcpy(middle + (size_t)(y + k.radius) * row_bytes,
                   middle + (size_t)(reflected(y, in->height_px) + k.radius) * row_bytes,
                   row_bytes);
        }
    }
    for (int32_t y = 0; y < in->height_px; y++) {
        loops->column(image_row(out, y), middle + (size_t)y * row_bytes, row_bytes, axis.used,
                      row_bytes, k.weights, &axis);
    }
    return STATUS_OK;
}

enum status op_blur(const struct image_view *out,
                    const struct image_view *in,
                    double sigma,
                    int32_t radius,
                    struct resize_workspace *workspace,
                    struct error *err) {
    return op_blur_with(resize_kernels_fastest(), out, in, sigma, radius, workspace, err);
}
