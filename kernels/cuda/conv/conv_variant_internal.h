/*
 * conv_variant: which of several ways runs a convolution with what belongs to it: cuDNN and passes
 * of our own, or our own product that does both (conv_1x1.cu).
 *
 *     own_convolutions   never or always: that.
 *     autotune           all are timed on the device at the first use of a shape; the fastest one
 *                        is kept, and remembered in the plan cache beside cuDNN's engines.
 *     else               cuDNN, as while a step is recorded.
 *
 * Threading : one owner.
 */
#ifndef KERNELS_CUDA_CONV_CONV_VARIANT_INTERNAL_H
#define KERNELS_CUDA_CONV_CONV_VARIANT_INTERNAL_H

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* What a trial's run writes and every variant must agree in. */
struct conv_variant_output {
    const char *name;
    void *data;
    enum dtype dtype;
    int64_t count;
    const void *mask;   /* like data: cuDNN's way leaves out to put zeros where this is not above 0;
                           NULL: it leaves out nothing */
    const void *before; /* what data is to hold before a run that adds; NULL: it does not matter */
};
enum { CONV_MAX_OUTPUTS = 3 };

struct conv_variant_trial {
    conv_variant_run *run;
    const void *cookie;
    struct conv_variant_output outputs[CONV_MAX_OUTPUTS];
    int32_t outputs_count;
};

/* `form`: a word for what else the work is, such as what it leaves beside its result. Returns OK,
 * or DEVICE where events cannot be made. A variant that fails while it is timed is not chosen;
 * neither is one of ours whose outputs, run once before that, are not cuDNN's: stderr says so in a
 * line. */
enum status conv_variant_choose(struct cuda_device *dev,
                                enum conv_variant *out,
                                const struct conv_problem *p,
                                const char *form,
                                conv_variants takers,
                                const struct conv_variant_trial *trial,
                                struct error *err);

/* Whether conv_variant_choose would run anything. */
bool conv_variant_to_time(struct cuda_device *dev,
                          const struct conv_problem *p,
                          const char *form,
                          conv_variants takers);

/* ---- comparing (conv_compare.c, conv_compare.cu) ---- */

/* cuDNN's way, run once: copies of its outputs. */
enum { COMPARE_BLOCKS = 256 };
struct conv_reference {
    void *copies[CONV_MAX_OUTPUTS];
    double *partials;                /* on the device */
    double sums[3 * COMPARE_BLOCKS]; /* the same here */
};
/* Returns OK, NOMEM or DEVICE; then too *out wants freeing. */
enum status conv_reference_make(struct cuda_device *dev,
                                struct conv_reference *out,
                                const struct conv_variant_trial *trial,
                                struct error *err);
void conv_reference_free(struct conv_reference *r);
/* Runs `variant` once. Returns OK, INVALID (err says what is how far off), or what the run does. */
enum status conv_reference_compare(struct cuda_device *dev,
                                   struct conv_reference *r,
                                   enum conv_variant variant,
                                   const struct conv_variant_trial *trial,
                                   struct error *err);

/* partials (COMPARE_BLOCKS, 3): sums of squared differences of o->data from `want`, of squares of
 * `want` as masked, and how many differ by more than tolerance of both (and of what was before) and
 * slack. */
cudaError_t launch_conv_compare(cudaStream_t stream,
                                double *partials,
                                const struct conv_variant_output *o,
                                const void *want,
                                double tolerance,
                                double slack);

#ifdef __cplusplus
}
#endif

#endif
