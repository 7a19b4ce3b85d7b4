/*
 * conv_fused: convolutions by plans with channel sums. See conv_fused_internal.h.
 */
#include "kernels/cuda/conv/conv_fused_internal.h"

static bool in_eights(const struct conv_problem *p) {
    return p->c % 8 == 0 && p->k % 8 == 0;
}

static bool lies_well(const void *data) {
    return (uintptr_t)data % ALIGNMENT_BYTES == 0;
}

bool conv_fused_statistics_fits(const struct conv_problem *p) {
    return dtype_is_half(p->dtype) && in_eights(p);
}

bool conv_fused_handover_fits(const struct conv_problem *p,
                              const struct conv_bn_handoff *give,
                              const void *out) {
    return p->dtype == DTYPE_F16 && in_eights(p) && p->stride == 1 &&
           give->act == ACTIVATION_RELU && lies_well(out) && lies_well(give->pre->data) &&
           lies_well(give->mean->data) && lies_well(give->rstd->data);
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
