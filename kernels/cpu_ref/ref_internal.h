/*
 * ref_internal: how the reference reads and writes elements: every value is a double, for every
 * type of tensor, so each op is written once for all types and accumulates in double.
 */
#ifndef KERNELS_CPU_REF_REF_INTERNAL_H
#define KERNELS_CPU_REF_REF_INTERNAL_H

#include "kernels/bf16.h"
#include "kernels/operands.h"

static inline double get(const struct tensor *t, int64_t i) {
    switch (t->dtype) {
    case DTYPE_F64:
        return ((const double *)t->data)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)t->data)[i]);
    default:
        return (double)((const float *)t->data)[i];
    }
}

static inline void put(const struct tensor *t, int64_t i, double value) {
    switch (t->dtype) {
    case DTYPE_F64:
        ((double *)t->data)[i] = value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->data)[i] = bf16_from_f32((float)value);
        break;
    default:
        ((float *)t->data)[i] = (float)value;
        break;
    }
}

/* Called once per element: a running sum in a bf16 tensor would be rounded at every step. */
static inline void put_mode(const struct tensor *t, int64_t i, double value, enum write_mode mode) {
    put(t, i, mode == WRITE_ADD ? get(t, i) + value : value);
}

/* Index of (a, b, c, d) in a dense tensor of four dimensions. */
static inline int64_t at4(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * t->shape[1] + b) * t->shape[2] + c) * t->shape[3] + d;
}

/* conv_bn.c: pre = conv(in, weight), and its gradients. */
void ref_convolve(const struct tensor *pre,
                  const struct tensor *in,
                  const struct tensor *weight,
                  const struct conv_params *p);
void ref_convolve_bwd_weight(const struct tensor *dweight,
                             enum write_mode mode,
                             const struct tensor *dpre,
                             const struct tensor *in,
                             const struct conv_params *p);
void ref_convolve_bwd_data(const struct tensor *din,
                           enum write_mode mode,
                           const struct tensor *dpre,
                           const struct tensor *weight,
                           const struct conv_params *p);

enum status ref_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err);
void ref_free(struct device *dev, void *data);
enum status
ref_upload(struct device *dev, void *dst, const void *host, size_t size_bytes, struct error *err);
enum status
ref_download(struct device *dev, void *host, const void *src, size_t size_bytes, struct error *err);
enum status ref_sync(struct device *dev, struct error *err);
enum status ref_supports(struct device *dev, enum dtype dtype, struct error *err);

#define REF_DECLARE(name) OPS_DECLARE(ref, name)
OPS_LIST(REF_DECLARE)
#undef REF_DECLARE

#endif
