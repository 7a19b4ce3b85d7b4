/*
 * conv_gradients: a convolution and the gradients of its weights and input, each by the fastest
 * method for the shape.
 *
 * Threading : as the device.
 */
#ifndef KERNELS_CPU_CONV_GRADIENTS_H
#define KERNELS_CPU_CONV_GRADIENTS_H

#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

/* The convolution of an operator: `out` is pre or dpre, `in` is in or din, `weight` is weight or
 * dweight. */
struct convolution cpu_convolution(enum conv_direction direction,
                                   enum write_mode mode,
                                   const struct tensor *out,
                                   const struct tensor *in,
                                   const struct tensor *weight,
                                   const struct conv_params *p);

/* May use the device's workspace. Returns as convolve. */
enum status cpu_convolve(struct device *dev, const struct convolution *c, struct error *err);

#endif
