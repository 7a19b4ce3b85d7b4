/*
 * onednn: the one door to oneDNN (C API, 2.6 and 3.x): convolutions over plain NHWC activations and
 * OHWI weights, and matrix products.
 *
 * Primitives and the buffers for their blocked weights are made at the first use of a shape and
 * kept; weights are reordered at every call, since they change at every step.
 *
 * Threading : as the device. oneDNN runs on the process's OpenMP threads.
 * Ownership : create/destroy.
 */
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct convolutions;

enum { CONVOLUTIONS_MAX_SHAPES = 1024 };

struct conv_shape {
    int64_t n, h, w, in, out, kernel_h, kernel_w, stride, pad, out_h, out_w;
};

enum status convolutions_create(struct convolutions **out, struct error *err);
void convolutions_destroy(struct convolutions *c); /* accepts NULL */

/* dst (n, out_h, out_w, out) = src (n, h, w, in) * weight (out, kernel_h, kernel_w, in). Each
 * returns OK, NOMEM, LIMIT (too many shapes) or DEVICE. */
enum status convolve_forward(struct convolutions *c,
                             const struct conv_shape *shape,
                             float *dst,
                             const float *src,
                             const float *weight,
                             struct error *err);
enum status convolve_backward_data(struct convolutions *c,
                                   const struct conv_shape *shape,
                                   float *dsrc,
                                   const float *ddst,
                                   const float *weight,
                                   struct error *err);
enum status convolve_backward_weight(struct convolutions *c,
                                     const struct conv_shape *shape,
                                     float *dweight,
                                     const float *ddst,
                                     const float *src,
                                     struct error *err);

/* out (m, n) = alpha op(a) op(b) + beta out, row-major. Returns OK or DEVICE. */
enum status matrix_product(float *out,
                           int64_t m,
                           int64_t n,
                           int64_t k,
                           const float *a,
                           bool transpose_a,
                           const float *b,
                           bool transpose_b,
                           float alpha,
                           float beta,
                           struct error *err);

#endif
