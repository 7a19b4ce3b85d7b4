/*
 * im2col: convolution as one matrix product, where that beats oneDNN's kernels: planes of a few
 * pixels, whose rows are too short for those kernels; gradients of 1 x 1 kernels; and gradients of
 * wide weights in bf16, which oneDNN 2.6 computes far more slowly than its matrix products. A
 * product over all pixels of the batch has no rows, reorders no weights, and adds to a gradient
 * without a second pass.
 *
 * Threading : as the device.
 */
#ifndef KERNELS_CPU_IM2COL_H
#define KERNELS_CPU_IM2COL_H

#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

/* True where these functions are faster than those of onednn.h. */
bool im2col_pays(const struct conv_shape *shape, enum conv_direction direction);

/* In the type of the shape. Each may use the device's scratch. Returns OK, NOMEM or DEVICE. */
enum status im2col_forward(struct device *dev,
                           const struct conv_shape *shape,
                           void *dst,
                           const void *src,
                           const void *weight,
                           struct error *err);
enum status im2col_backward_data(struct device *dev,
                                 const struct conv_shape *shape,
                                 void *dsrc,
                                 enum write_mode mode,
                                 const void *ddst,
                                 const void *weight,
                                 struct error *err);
enum status im2col_backward_weight(struct device *dev,
                                   const struct conv_shape *shape,
                                   float *dweight,
                                   enum write_mode mode,
                                   const void *ddst,
                                   const void *src,
                                   struct error *err);

#endif
