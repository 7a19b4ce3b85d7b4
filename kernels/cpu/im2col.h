/*
 * im2col: convolution as one matrix product, for planes of a few pixels and for the gradients of
 * 1 x 1 kernels. There oneDNN's kernels run along very short rows, and the weights that they
 * reorder weigh as much as the image; a product over all pixels of the batch does neither, and adds
 * to a gradient without a second pass.
 *
 * Threading : as the device.
 */
#ifndef KERNELS_CPU_IM2COL_H
#define KERNELS_CPU_IM2COL_H

#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

/* True where these functions are faster than those of onednn.h. */
bool im2col_pays(const struct conv_shape *shape, bool backward);

/* In the type of the shape; only F32 where the kernel is not 1 x 1. Each may use the device's
 * scratch. Returns OK, NOMEM or DEVICE. */
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
