/*
 * onednn: the only interface to oneDNN (C API, 2.6 and 3.x): convolutions over plain NHWC
 * activations and OHWI weights, and matrix products, in F32 and BF16.
 *
 * Primitives and the buffer for their blocked weights are created at the first use of a shape and
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
#include "kernels/ops.h"

struct onednn;

/* Shapes kept of each kind. One more convolution is an error; one more product replaces the least
 * recently used. */
enum { ONEDNN_MAX_CONVOLUTIONS = 1024, ONEDNN_MAX_PRODUCTS = 512 };

struct conv_shape {
    int64_t n, h, w, in, out, kernel_h, kernel_w, stride, pad, out_h, out_w;
    int64_t dtype;     /* enum dtype, F32 or BF16; gradients of weights are F32 */
    int64_t transpose; /* 0 or 1, forward only: weight is (in, kernel_h, kernel_w, out) */
    int64_t add;       /* 0 or 1, forward only: dst += instead of dst = */
};

enum status onednn_create(struct onednn **out, struct error *err);
void onednn_destroy(struct onednn *o); /* accepts NULL */

enum conv_direction { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHT, CONV_DIRECTIONS };

/* dst (n, out_h, out_w, out) = src (n, h, w, in) * weight (out, kernel_h, kernel_w, in), or
 * backward the gradient of src or of weight (F32) from the other two: in every direction the fields
 * have the roles of the forward pass. */
struct convolution {
    struct conv_shape shape;
    enum conv_direction direction;
    enum write_mode mode; /* of what the direction computes */
    void *dst, *src, *weight;
};

/* Requires mode SET; `shape.add` adds. Returns OK, NOMEM, LIMIT (too many shapes) or DEVICE. */
enum status convolve(struct onednn *o, const struct convolution *c, struct error *err);

/* op(a) is (m, k), op(b) is (k, n), row-major. */
struct product_shape {
    int64_t m, n, k;
    int64_t transpose_a, transpose_b; /* 0 or 1 */
    int64_t dtype;                    /* of a and b: F32 or BF16 */
    int64_t out_dtype;                /* F32 for F32; F32 or BF16 for BF16 */
    int64_t add;                      /* 0: out = product; 1: out += product */
    int64_t biased;                   /* 0 or 1; only BF16 to BF16: a row of n floats is added */
};

/* out (m, n) = or += op(a) op(b) + bias; bias NULL unless biased. Returns OK, NOMEM or DEVICE. */
enum status matrix_product(struct onednn *o,
                           const struct product_shape *shape,
                           void *out,
                           const void *a,
                           const void *b,
                           const float *bias,
                           struct error *err);

#endif
