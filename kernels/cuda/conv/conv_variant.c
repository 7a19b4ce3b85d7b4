/*
 * conv_variant: the choice between cuDNN and our own products. See conv_variant_internal.h.
 */
#include <stdio.h>

#include "kernels/cuda/conv/conv_variant_internal.h"

enum { TIMED_RUNS = 5 };

static bool has(conv_variants takers, enum conv_variant variant) {
    return (takers & conv_variant_bit(variant, true)) != 0;
}

static bool is_open(const struct cuda_device *dev, conv_variants takers) {
    return takers != 0 && dev->options.own_convolutions == OWN_WHERE_FASTER &&
           dev->options.autotune;
}

static const char *name_of(enum conv_variant variant) {
    static const char *const names[VARIANTS_COUNT] = {[VARIANT_LIBRARY] = "cuDNN",
                                                      [VARIANT_OWN] = "mma.sync",
                                                      [VARIANT_WGMMA] = "wgmma",
                                                      [VARIANT_FUSED] = "cuDNN with sums"};
    return names[variant];
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
    return is_open(dev, takers) && !dev->recording && conv_plans_recall(dev->convs, p, form) < 0;
}

static float time_once(struct cuda_device *dev,
                       enum conv_variant variant,
                       const struct conv_variant_trial *trial,
                       cudaEvent_t begin,
                       cudaEvent_t end) {
    struct error why = {0};
    float ms = -1.0f;
    if (cudaEventRecord(begin, dev->stream) != cudaSuccess ||
        trial->run(dev, variant, trial->cookie, &why) != STATUS_OK ||
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
                          const struct conv_variant_trial *trial,
                          cudaEvent_t begin,
                          cudaEvent_t end) {
    float best = time_once(dev, variant, trial, begin, end); /* finds plans, loads code */
    for (int i = 0; i < TIMED_RUNS && best >= 0.0f; i++) {
        const float ms = time_once(dev, variant, trial, begin, end);
        best = i == 0 || ms < best ? ms : best;
    }
    return best;
}

/* Those of `takers` whose outputs are cuDNN's. That cuDNN has no plan with sums is no surprise. */
static conv_variants agreeing(struct cuda_device *dev,
                              conv_variants takers,
                              const struct conv_problem *p,
                              const struct conv_variant_trial *trial) {
    static const char *const passes[] = {"forward", "data gradient", "weight gradient"};
    struct conv_reference reference;
    struct error why = {0};
    conv_variants agree = 0;
    enum status made = conv_reference_make(dev, &reference, trial, &why);
    for (int v = 0; v < VARIANTS_COUNT; v++) {
        const enum conv_variant variant = (enum conv_variant)v;
        enum status s = made;
        if (v == VARIANT_LIBRARY || !has(takers, variant)) {
            continue;
        }
        if (made == STATUS_OK) {
            s = conv_reference_compare(dev, &reference, variant, trial, &why);
        }
        agree |= conv_variant_bit(variant, s == STATUS_OK);
        if (s != STATUS_OK && s != STATUS_UNSUPPORTED) {
            (void)fprintf(stderr,
                          "ccstream: warning: convolution %lldx%lldx%lldx%lld to %lld, %s, by %s "
                          "is left to cuDNN: %s\n",
                          (long long)p->n, (long long)p->h, (long long)p->w, (long long)p->c,
                          (long long)p->k, passes[p->pass], name_of(variant), why.text);
        }
    }
    conv_reference_free(&reference);
    return agree;
}

static enum status measure(struct cuda_device *dev,
                           enum conv_variant *out,
                           conv_variants takers,
                           const struct conv_variant_trial *trial,
                           struct error *err) {
    cudaEvent_t begin;
    cudaEvent_t end;
    float best = -1.0f;
    TRY_CUDA(cudaEventCreate(&begin));
    if (cudaEventCreate(&end) != cudaSuccess) {
        (void)cudaEventDestroy(begin);
        return cuda_failed(cudaGetLastError(), "cudaEventCreate", err);
    }
    for (int v = 0; v < VARIANTS_COUNT; v++) {
        if (v != VARIANT_LIBRARY && !has(takers, (enum conv_variant)v)) {
            continue;
        }
        const float ms = time_variant(dev, (enum conv_variant)v, trial, begin, end);
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
                                const struct conv_variant_trial *trial,
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
    if (dev->recording) {
        return STATUS_OK;
    }
    TRY(measure(dev, out, agreeing(dev, takers, p, trial), trial, err));
    conv_plans_remember(dev->convs, p, form, *out);
    return STATUS_OK;
}
