/*
 * conv_fused: convolutions by plans with channel sums. See conv_fused_internal.h.
 */
#include "kernels/cuda/conv_fused_internal.h"

#include <math.h>
#include <stdlib.h>

static bool has_plans(const struct conv_problem *p) {
    return p->dtype == DTYPE_F16 && p->c % 8 == 0 && p->k % 8 == 0;
}

static bool lies_well(const void *data) {
    return (uintptr_t)data % ALIGNMENT_BYTES == 0;
}

bool conv_fused_statistics_fits(const struct conv_problem *p) {
    return has_plans(p);
}

bool conv_fused_handover_fits(const struct conv_problem *p,
                              const struct conv_bn_handoff *give,
                              const void *out) {
    return has_plans(p) && p->stride == 1 && give->act == ACTIVATION_RELU && lies_well(out) &&
           lies_well(give->pre->data) && lies_well(give->mean->data) && lies_well(give->rstd->data);
}

enum status conv_fused_statistics(struct cuda_device *dev,
                                  const struct conv_problem *p,
                                  void *x,
                                  void *w,
                                  void *y,
                                  float *sums,
                                  struct error *err) {
    struct conv_problem fused = *p;
    void *const data[CONV_ROLES_COUNT] = {
        [CONV_X] = x, [CONV_W] = w, [CONV_Y] = y, [CONV_SUM] = sums, [CONV_SQUARES] = sums + p->k};
    fused.fusion = CONV_STATISTICS;
    return conv_run_fused(dev, &fused, data, err);
}

/* Vectors (c) of a handover in its scratch memory. */
enum { VECTOR_DBETA, VECTOR_DGAMMA, VECTOR_UNUSED, VECTOR_ZEROS = 5, VECTORS_COUNT };

enum status conv_fused_handover(struct cuda_device *dev,
                                const struct conv_problem *p,
                                void *x,
                                void *w,
                                void *y,
                                const struct conv_bn_handoff *give,
                                void *out,
                                struct error *err) {
    struct conv_problem fused = *p;
    const size_t vector_bytes = (size_t)p->c * sizeof(float);
    void *scratch;
    TRY(cuda_scratch(dev, SCRATCH_HANDOFF, VECTORS_COUNT * vector_bytes, &scratch, err));
    float *const vectors = scratch;
    float *const unused = vectors + VECTOR_UNUSED * p->c;
    float *const zeros = vectors + VECTOR_ZEROS * p->c;
    void *const data[CONV_ROLES_COUNT] = {[CONV_X] = x,
                                          [CONV_W] = w,
                                          [CONV_Y] = y,
                                          [CONV_PRE] = give->pre->data,
                                          [CONV_OUT] = out,
                                          [CONV_BRANCH] = p->add ? x : NULL,
                                          [CONV_MEAN] = give->mean->data,
                                          [CONV_RSTD] = give->rstd->data,
                                          [CONV_GAMMA] = zeros,
                                          [CONV_BETA] = zeros,
                                          [CONV_DGAMMA] = vectors + VECTOR_DGAMMA * p->c,
                                          [CONV_DBETA] = vectors + VECTOR_DBETA * p->c,
                                          [CONV_DY_SCALE] = unused,
                                          [CONV_PRE_SCALE] = unused + p->c,
                                          [CONV_BIAS] = unused + 2 * p->c};
    fused.fusion = CONV_HANDOVER_OUT;
    TRY_CUDA(cudaMemsetAsync(zeros, 0, vector_bytes, dev->stream));
    return conv_run_fused(dev, &fused, data, err);
}

/* ---- agreement ---- */

static const double tolerance = 2e-2;
static const double rounding = 1e-3; /* of a number in fp16, and some */

bool conv_fused_statistics_agree(const float *a, const float *b, int64_t channels) {
    for (int64_t i = 0; i < channels; i++) {
        const double mean = (double)a[i];
        const double rstd = (double)a[channels + i];
        const double allowed = tolerance + rounding * fabs(mean) * rstd;
        const double moved = fabs((double)b[i] - mean) * rstd;
        const double scaled = fabs((double)b[channels + i] / rstd - 1.0);
        if (!(moved <= allowed && scaled <= allowed)) {
            return false;
        }
    }
    return true;
}

bool conv_fused_sums_agree(const float *a, const float *b, int64_t channels) {
    for (int half = 0; half < 2; half++) {
        double size = 0.0;
        double difference = 0.0;
        for (int64_t i = half * channels; i < (half + 1) * channels; i++) {
            size += (double)a[i] * (double)a[i];
            difference += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]);
        }
        if (!(sqrt(difference) <= tolerance * sqrt(size))) {
            return false;
        }
    }
    return true;
}

static enum status compare(struct cuda_device *dev,
                           conv_fused_probe *probe,
                           const void *cookie,
                           int64_t channels,
                           conv_fused_agree *agree,
                           float *host,
                           struct error *err) {
    float *const other = host + 2 * channels;
    TRY(probe(dev, PROBE_PLAIN, cookie, host, err));
    for (int what = PROBE_FUSED; what <= PROBE_STORED; what++) {
        TRY(probe(dev, (enum conv_probe)what, cookie, other, err));
        if (!agree(host, other, channels)) {
            return error_set(err, STATUS_UNSUPPORTED, "cuDNN: a fused plan computes otherwise");
        }
    }
    return STATUS_OK;
}

enum status conv_fused_check(struct cuda_device *dev,
                             conv_fused_probe *probe,
                             const void *cookie,
                             int64_t channels,
                             conv_fused_agree *agree,
                             struct error *err) {
    float *host = malloc(4 * (size_t)channels * sizeof *host);
    if (host == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory to compare two convolutions");
    }
    const enum status s = compare(dev, probe, cookie, channels, agree, host, err);
    free(host);
    return s;
}
