/*
 * conv_compare: a variant that is about to be timed runs once and is compared with cuDNN's way. See
 * conv_variant_internal.h.
 */
#include <math.h>

#include "kernels/cuda/conv/conv_variant_internal.h"

/* Two roundings to 16 bits lie within a step of each other, which is 1/128 in bf16; a weight's
 * gradient in f32 within half a step of one rounded. An element may be off by a few of them, one
 * beside which all others are small by a fraction of those; all together by far less. */
static const double ELEMENT_TOLERANCE = 1.0 / 64.0;
static const double NORM_TOLERANCE = 1.0 / 128.0;

static size_t size_of(const struct conv_variant_output *o) {
    return (size_t)o->count * dtype_size_bytes(o->dtype);
}

/* Runs a variant once on outputs that hold what they held before. */
static enum status run_once(struct cuda_device *dev,
                            enum conv_variant variant,
                            const struct conv_variant_trial *trial,
                            struct error *err) {
    for (int32_t i = 0; i < trial->outputs_count; i++) {
        const struct conv_variant_output *o = &trial->outputs[i];
        if (o->before != NULL) {
            TRY_CUDA(cudaMemcpyAsync(o->data, o->before, size_of(o), cudaMemcpyDeviceToDevice,
                                     dev->stream));
        }
    }
    return trial->run(dev, variant, trial->cookie, err);
}

enum status conv_reference_make(struct cuda_device *dev,
                                struct conv_reference *out,
                                const struct conv_variant_trial *trial,
                                struct error *err) {
    *out = (struct conv_reference){0};
    TRY(cuda_memory(dev, sizeof out->sums, (void **)&out->partials, err));
    TRY(run_once(dev, VARIANT_LIBRARY, trial, err));
    for (int32_t i = 0; i < trial->outputs_count; i++) {
        const struct conv_variant_output *o = &trial->outputs[i];
        TRY(cuda_memory(dev, size_of(o), &out->copies[i], err));
        TRY_CUDA(cudaMemcpyAsync(out->copies[i], o->data, size_of(o), cudaMemcpyDeviceToDevice,
                                 dev->stream));
    }
    return STATUS_OK;
}

void conv_reference_free(struct conv_reference *r) {
    for (int32_t i = 0; i < CONV_MAX_OUTPUTS; i++) {
        (void)cudaFree(r->copies[i]);
    }
    (void)cudaFree(r->partials);
    *r = (struct conv_reference){0};
}

struct distance {
    double difference, size, far;
};

static enum status measure(struct cuda_device *dev,
                           struct distance *out,
                           struct conv_reference *r,
                           const struct conv_variant_output *o,
                           const void *want,
                           double slack,
                           struct error *err) {
    *out = (struct distance){0};
    TRY(launched(dev,
                 launch_conv_compare(dev->stream, r->partials, o, want, ELEMENT_TOLERANCE, slack),
                 "conv_compare", err));
    TRY_CUDA(
        cudaMemcpyAsync(r->sums, r->partials, sizeof r->sums, cudaMemcpyDeviceToHost, dev->stream));
    TRY_CUDA(cudaStreamSynchronize(dev->stream));
    for (int32_t i = 0; i < COMPARE_BLOCKS; i++) {
        out->difference += r->sums[3 * i];
        out->size += r->sums[3 * i + 1];
        out->far += r->sums[3 * i + 2];
    }
    return STATUS_OK;
}

enum status conv_reference_compare(struct cuda_device *dev,
                                   struct conv_reference *r,
                                   enum conv_variant variant,
                                   const struct conv_variant_trial *trial,
                                   struct error *err) {
    struct distance d;
    TRY(run_once(dev, variant, trial, err));
    for (int32_t i = 0; i < trial->outputs_count; i++) {
        const struct conv_variant_output *o = &trial->outputs[i];
        TRY(measure(dev, &d, r, o, r->copies[i], 0.0, err));
        const double typical = sqrt(d.size / (double)o->count);
        if (!isfinite(d.size) || d.size == 0.0) {
            return error_set(err, STATUS_INVALID, "%s: all zeros or not finite in this batch",
                             o->name);
        }
        TRY(measure(dev, &d, r, o, r->copies[i], ELEMENT_TOLERANCE * typical, err));
        const double off = sqrt(d.difference / d.size);
        if (d.far != 0.0 || !(off <= NORM_TOLERANCE)) {
            return error_set(err, STATUS_INVALID,
                             "%s: %.2g of the norm away from cuDNN's, %.0f of %lld numbers too far",
                             o->name, off, d.far, (long long)o->count);
        }
    }
    return STATUS_OK;
}
