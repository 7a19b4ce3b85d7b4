/*
 * amx: gradients of convolution weights in bf16 on Intel's tile registers (AMX); the kernels of
 * oneDNN 2.6 reach only a fraction of the tiles' speed.
 *
 * Threading : as the device.
 */
#ifndef KERNELS_CPU_AMX_H
#define KERNELS_CPU_AMX_H

#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

/* Whether the processor has AMX and the system permits its use. */
bool amx_works(void);

/* The gradient of the weights of a BF16 shape, set or added. Requires amx_works(). Uses the
 * device's workspace. Returns OK or NOMEM. */
enum status amx_weight_gradient(struct device *dev, const struct convolution *c, struct error *err);

#endif
