/*
 * conv_variant: which of several ways runs a convolution with what belongs to it: cuDNN and passes
 * of our own, or our own product that does both (conv_1x1.cu).
 *
 *     own_convolutions   never or always: that.
 *     autotune           all are timed on the device at the first use of a shape; the fastest one
 *                        is kept, and remembered in the plan cache beside cuDNN's engines.
 *     else               cuDNN.
 *
 * Threading : one owner.
 */
#ifndef KERNELS_CUDA_CONV_VARIANT_INTERNAL_H
#define KERNELS_CUDA_CONV_VARIANT_INTERNAL_H

#include "kernels/cuda/conv_plan_internal.h"
#include "kernels/cuda/cuda_internal.h"

/* Does the work once. Called several times it must do no harm. */
typedef enum status conv_variant_run(struct cuda_device *dev,
                                     enum conv_variant variant,
                                     const void *cookie,
                                     struct error *err);

/* Variants that take a problem, beside VARIANT_LIBRARY, which always does: a set of
 * conv_variant_bit. */
typedef uint32_t conv_variants;

static inline conv_variants conv_variant_bit(enum conv_variant variant, bool fits) {
    return fits ? 1u << (unsigned)variant : 0u;
}

/* `form`: a word for what else the work is, such as what it leaves beside its result. Returns OK,
 * or DEVICE where events cannot be made; a variant that fails while it is timed is not chosen. */
enum status conv_variant_choose(struct cuda_device *dev,
                                enum conv_variant *out,
                                const struct conv_problem *p,
                                const char *form,
                                conv_variants takers,
                                conv_variant_run *run,
                                const void *cookie,
                                struct error *err);

/* Whether conv_variant_choose would run anything. */
bool conv_variant_to_time(struct cuda_device *dev,
                          const struct conv_problem *p,
                          const char *form,
                          conv_variants takers);

#endif
