/*
 * conv_variant: the choice between cuDNN and our own products. See conv_variant_internal.h.
 */
#include "kernels/cuda/conv_variant_internal.h"

enum { TIMED_RUNS = 5 };

static bool has(conv_variants takers, enum conv_variant variant) {
    return (takers & conv_variant_bit(variant, true)) != 0;
}

static bool is_open(const struct cuda_device *dev, conv_variants takers) {
    return takers != 0 && dev->options.own_convolutions == OWN_WHERE_FASTER &&
           dev->options.autotune;
}

/* What the options alone say. */
static enum conv_variant told(enum own_convolutions own, conv_variants takers) {
    if (own == OWN_WGMMA && has(takers, VARIANT_WGMMA)) {
        return VARIANT_WGMMA;
    }
    return (own == OWN_ALWAYS || own == OWN_WGMMA) && has(takers, VARIANT_OWN) ? VARIANT_OWN
                                                                               : VARIANT_LIBRARY;
}

bool conv_variant_to_time(struct cuda_device *dev,
                          const struct conv_problem *p,
                          const char *form,
                          conv_variants takers) {
    return is_open(dev, takers) && conv_plans_recall(dev->convs, p, form) < 0;
}

static float time_once(struct cuda_device *dev,
                       enum conv_variant variant,
                       conv_variant_run *run,
                       const void *cookie,
                       cudaEvent_t begin,
                       cudaEvent_t end) {
    struct error why = {0};
    float ms = -1.0f;
    if (cudaEventRecord(begin, dev->stream) != cudaSuccess ||
        run(dev, variant, cookie, &why) != STATUS_OK ||
        cudaEventRecord(end, dev->stream) != cudaSuccess ||
        cudaEventSynchronize(end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1.0f;
    }
    return ms;
}

static float time_variant(struct cuda_device *dev,
                          enum conv_variant variant,
                          conv_variant_run *run,
                          const void *cookie,
                          cudaEvent_t begin,
                          cudaEvent_t end) {
    float best = time_once(dev, variant, run, cookie, begin, end); /* finds plans, loads code */
    for (int i = 0; i < TIMED_RUNS && best >= 0.0f; i++) {
        const float ms = time_once(dev, variant, run, cookie, begin, end);
        best = i == 0 || ms < best ? ms : best;
    }
    return best;
}

static enum status measure(struct cuda_device *dev,
                           enum conv_variant *out,
                           conv_variants takers,
                           conv_variant_run *run,
                           const void *cookie,
                           struct error *err) {
    cudaEvent_t begin;
    cudaEvent_t end;
    float best = -1.0f;
    TRY(cuda_not_recorded(dev, "time a convolution", err));
    TRY_CUDA(cudaEventCreate(&begin));
    if (cudaEventCreate(&end) != cudaSuccess) {
        (void)cudaEventDestroy(begin);
        return cuda_failed(cudaGetLastError(), "cudaEventCreate", err);
    }
    for (int v = 0; v < VARIANTS_COUNT; v++) {
        if (v != VARIANT_LIBRARY && !has(takers, (enum conv_variant)v)) {
            continue;
        }
        const float ms = time_variant(dev, (enum conv_variant)v, run, cookie, begin, end);
        if (ms >= 0.0f && (best < 0.0f || ms < best)) {
            *out = (enum conv_variant)v;
            best = ms;
        }
    }
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return STATUS_OK;
}

enum status conv_variant_choose(struct cuda_device *dev,
                                enum conv_variant *out,
                                const struct conv_problem *p,
                                const char *form,
                                conv_variants takers,
                                conv_variant_run *run,
                                const void *cookie,
                                struct error *err) {
    *out = VARIANT_LIBRARY;
    if (!is_open(dev, takers)) {
        *out = told(dev->options.own_convolutions, takers);
        return STATUS_OK;
    }
    const int32_t known = conv_plans_recall(dev->convs, p, form);
    if (known >= 0) { /* it may not take these addresses */
        const bool takes = has(takers, (enum conv_variant)known);
        *out = takes ? (enum conv_variant)known : VARIANT_LIBRARY;
        return STATUS_OK;
    }
    TRY(measure(dev, out, takers, run, cookie, err));
    conv_plans_remember(dev->convs, p, form, *out);
    return STATUS_OK;
}
