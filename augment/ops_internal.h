/*
 * ops_internal: single steps on an image that already has its final size, u8 in and u8 out, and
 * the inner loops they share.
 *
 * The libraries whose results they reproduce, byte for byte unless noted otherwise:
 *   Pillow 10 and later  autocontrast, equalize, brightness, contrast, saturation, gray
 *   Pillow, rounded      hue: without the rounding errors of Pillow's single precision, so 0.3 % of
 *                        all colours differ by one of 255 steps
 *   OpenCV 4.8           shear, translate, rotate: warpAffine, bilinear, constant border
 *   the papers' code     sharpness, with its uint8 wrap-around, and the order of the calls
 *   torchvision          blur, within one level: two passes with 8 bits in between
 *
 * Images     : sides in [1, OPS_MAX_SIDE_PX], any stride of at least a row. `out` has the sides of
 *              `in`; strides may differ. Bytes between rows are neither read into results nor
 *              written.
 * Overlap    : ops under "in place" accept out == in and images that do not overlap; the others
 *              only the latter.
 * Loops      : the plain C functions are the specification; vector code is byte-identical.
 * Threading  : stateless. Only the blur allocates memory, in its workspace.
 */
#ifndef AUGMENT_OPS_INTERNAL_H
#define AUGMENT_OPS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "augment/resize.h"
#include "formats/base/image.h"
#include "formats/base/status.h"

struct resize_kernels; /* augment/resize_internal.h */

enum { OPS_MAX_SIDE_PX = 4096 };

/* One table per channel. */
struct op_tables {
    uint8_t value[3][256];
    bool same; /* all three are equal */
};

/* Inner loops over `count` consecutive pixels of three bytes, from `in` to `out`, which is `in` or
 * does not overlap it. Nothing beyond them is read or written. */
struct op_loops {
    const char *name;
    void (*table)(uint8_t *out, const uint8_t *in, size_t count, const struct op_tables *tables);
    /* Extends [low, high] of each channel to include its values. */
    void (*range)(uint8_t low[3], uint8_t high[3], const uint8_t *in, size_t count);
    /* The sum of the gray levels. */
    uint64_t (*gray_sum)(const uint8_t *in, size_t count);
    void (*gray)(uint8_t *out, const uint8_t *in, size_t count);
    void (*saturation)(uint8_t *out, const uint8_t *in, size_t count, float factor);
    void (*hue)(uint8_t *out, const uint8_t *in, size_t count, uint8_t shift);
    /* `size_bytes` bytes of a row inside the image: three bytes to the left and right, and a row
     * of stride_bytes above and below, may be read. out and in do not overlap. */
    void (*sharpness)(uint8_t *out, const uint8_t *in, size_t stride_bytes, size_t size_bytes);
    /* Interpolates between `from` and `to` in thirty-seconds, one fraction per byte; out overlaps
     * neither. */
    void (*between)(uint8_t *out,
                    const uint8_t *from,
                    const uint8_t *to,
                    const uint8_t *fractions,
                    size_t size_bytes);
    /* Bilinear samples of `in` at (x + dx[i], y + dy[i]) >> 10, with 5 bits of fraction; up to 8
     * bytes in two rows are read per sample, all inside the image. */
    void (*warp)(uint8_t *out,
                 const uint8_t *in,
                 size_t stride_bytes,
                 int32_t x,
                 int32_t y,
                 const int32_t *dx,
                 const int32_t *dy,
                 size_t count);
};

const struct op_loops *op_loops_plain(void);
const struct op_loops *op_loops_avx2(void);   /* NULL if the CPU lacks AVX2 */
const struct op_loops *op_loops_avx512(void); /* NULL if the CPU lacks AVX-512 F, BW, VL or VBMI */

/* What an op reads, writes and computes with. */
struct op_pass {
    const struct op_loops *loops;
    const struct image_view *out, *in;
};

const struct op_loops *op_loops_fastest(void);

/* --- in place --- */

/* Stretches each channel so that its darkest value becomes 0 and its brightest 255. */
void op_autocontrast(struct op_pass p);

/* Equalises the histogram of each channel. */
void op_equalize(struct op_pass p);

/* Blend the image with black (brightness), with its mean gray (contrast), with each pixel's gray
 * (saturation): factor 0 gives that, 1 the image, and more extrapolates. factor >= 0; results are
 * clamped to [0, 255] and rounded down. */
void op_brightness(struct op_pass p, float factor);
void op_contrast(struct op_pass p, float factor);
void op_saturation(struct op_pass p, float factor);

/* Rotates the hue by shift / 255 of a circle, in 8-bit HSV; that conversion alone changes some
 * values. */
void op_hue(struct op_pass p, uint8_t shift);

/* Sets all channels to the gray level (299 R + 587 G + 114 B) / 1000, in 16-bit fixed point. */
void op_gray(struct op_pass p);

/* Gaussian blur of 2 * radius + 1 pixels in both directions; the image is reflected at its
 * border, without repeating the edge. sigma > 0, radius in [0, OPS_MAX_SIDE_PX]. The only op that
 * needs memory. Returns OK or NOMEM. */
enum status op_blur_with(const struct resize_kernels *kernels,
                         const struct image_view *out,
                         const struct image_view *in,
                         double sigma,
                         int32_t radius,
                         struct resize_workspace *workspace,
                         struct error *err);
enum status op_blur(const struct image_view *out,
                    const struct image_view *in,
                    double sigma,
                    int32_t radius,
                    struct resize_workspace *workspace,
                    struct error *err);

/* --- not in place --- */

/* The papers' sharpening by 1.36 against a smoothed image. The outermost pixels are unchanged;
 * values below 0 and above 255 wrap around, as in the papers' code. */
void op_sharpness(struct op_pass p);

/* Maps positions of `in` to positions of `out`: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y +
 * m[5]; pixels from outside are `fill`. If the map cannot be inverted, or a position with ten bits
 * of fraction exceeds 32 bits, all pixels are `fill`. */
void op_affine(struct op_pass p, const double m[6], uint8_t fill);
void op_shear_x(struct op_pass p, float factor, uint8_t fill);
void op_shear_y(struct op_pass p, float factor, uint8_t fill);

/* About the centre (width / 2, height / 2); positive is counter-clockwise. */
void op_rotate(struct op_pass p, double degrees, uint8_t fill);

/* By whole pixels: (x, y) of `in` moves to (x + right_px, y + down_px). */
void op_translate(const struct image_view *out,
                  const struct image_view *in,
                  int32_t right_px,
                  int32_t down_px,
                  uint8_t fill);

#endif
