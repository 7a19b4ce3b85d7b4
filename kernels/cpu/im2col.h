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

/* Any direction and mode. Uses the device's scratch. Returns OK, NOMEM or DEVICE. */
enum status im2col(struct device *dev, const struct convolution *c, struct error *err);

#endif
