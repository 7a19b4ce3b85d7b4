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

struct conv_shape conv_shape_of(const struct tensor *pre,
                                const struct tensor *in,
                                const struct tensor *weight,
                                const struct conv_params *p);

/* Tensors are those of conv_bn and conv_bn_bwd. Each may use the device's scratch. Returns as the
 * functions of onednn.h.
 */
enum status conv_forward(struct device *dev,
                         const struct conv_shape *shape,
                         const struct tensor *pre,
                         const struct tensor *in,
                         const struct tensor *weight,
                         struct error *err);
enum status conv_weight_gradient(struct device *dev,
                                 const struct conv_shape *shape,
                                 const struct tensor *dweight,
                                 enum write_mode mode,
                                 const struct tensor *dpre,
                                 const struct tensor *in,
                                 struct error *err);
enum status conv_input_gradient(struct device *dev,
                                const struct conv_shape *shape,
                                const struct tensor *din,
                                enum write_mode mode,
                                const struct tensor *dpre,
                                const struct tensor *weight,
                                struct error *err);

#endif
