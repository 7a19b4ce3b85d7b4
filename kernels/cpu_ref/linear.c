/*
 * linear: out (M,OUT) = act(in (M,IN) weight (OUT,IN)^T + bias), and the plain matrix product.
 *
 * gelu(x) = x/2 (1 + erf(x/sqrt 2)); gelu'(x) = Phi(x) + x phi(x), Phi and phi those of the normal
 * distribution (Hendrycks and Gimpel, arXiv 1606.08415).
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

static double gelu(double x) {
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
}

static double gelu_slope(double x) {
    const double cumulative = 0.5 * (1.0 + erf(x * 0.70710678118654752440));
    const double density = 0.39894228040143267794 * exp(-0.5 * x * x);
    return cumulative + x * density;
}

/* Element (i, j) of op(t). */
static double element(const struct tensor *t, bool transpose, int64_t i, int64_t j) {
    return transpose ? get(t, j * t->shape[1] + i) : get(t, i * t->shape[1] + j);
}

/* out = or += alpha op(a) op(b) + bias of the column, which may be NULL */
static void product(const struct tensor *out,
                    enum write_mode mode,
                    const struct tensor *a,
                    bool transpose_a,
                    const struct tensor *b,
                    bool transpose_b,
                    double alpha,
                    const struct tensor *bias) {
    const int64_t inner = a->shape[transpose_a ? 0 : 1];
    for (int64_t i = 0; i < out->shape[0]; i++) {
        for (int64_t j = 0; j < out->shape[1]; j++) {
            double sum = 0.0;
            const double shift = bias != NULL ? get(bias, j) : 0.0;
            for (int64_t k = 0; k < inner; k++) {
                sum += element(a, transpose_a, i, k) * element(b, transpose_b, k, j);
            }
            put_mode(out, i * out->shape[1] + j, alpha * sum + shift, mode);
        }
    }
}

enum status ref_matmul(struct device *dev,
                       const struct tensor *out,
                       enum write_mode mode,
                       const struct tensor *a,
                       bool transpose_a,
                       const struct tensor *b,
                       bool transpose_b,
                       float alpha,
                       struct error *err) {
    (void)dev;
    TRY(ref_real("matmul", a, err));
    TRY(check_matmul(out, a, transpose_a, b, transpose_b, err));
    product(out, mode, a, transpose_a, b, transpose_b, (double)alpha, NULL);
    return STATUS_OK;
}

enum status ref_linear(struct device *dev,
                       const struct tensor *out,
                       const struct tensor *pre,
                       const struct tensor *in,
                       const struct tensor *weight,
                       const struct tensor *bias,
                       enum activation act,
                       struct error *err) {
    (void)dev;
    TRY(ref_real("linear", in, err));
    TRY(check_linear(out, pre, in, weight, bias, act, err));
    const struct tensor *sum = act == ACTIVATION_GELU ? pre : out;
    product(sum, WRITE_SET, in, false, weight, true, 1.0, tensor_wanted(bias) ? bias : NULL);
    const int64_t count = act == ACTIVATION_GELU ? tensor_count(out) : 0;
    for (int64_t e = 0; e < count; e++) {
        put(out, e, gelu(get(pre, e)));
    }
    return STATUS_OK;
}

enum status ref_linear_bwd(struct device *dev,
                           const struct tensor *din,
                           enum write_mode din_mode,
                           const struct tensor *dweight,
                           const struct tensor *dbias,
                           enum write_mode param_mode,
                           const struct tensor *dpre,
                           const struct tensor *dout,
                           const struct tensor *in,
                           const struct tensor *weight,
                           const struct tensor *pre,
                           enum activation act,
                           struct error *err) {
    (void)dev;
    TRY(ref_real("linear_bwd", in, err));
    TRY(check_linear_bwd(din, dweight, dbias, dpre, dout, in, weight, pre, act, err));
    const struct tensor *d = dout;
    if (act == ACTIVATION_GELU) {
        const int64_t count = tensor_count(dout);
        for (int64_t e = 0; e < count; e++) {
            put(dpre, e, get(dout, e) * gelu_slope(get(pre, e)));
        }
        d = dpre;
    }
    product(dweight, param_mode, d, true, in, false, 1.0, NULL);
    if (tensor_wanted(dbias)) {
        for (int64_t j = 0; j < d->shape[1]; j++) {
            double sum = 0.0;
            for (int64_t i = 0; i < d->shape[0]; i++) {
                sum += get(d, i * d->shape[1] + j);
            }
            put_mode(dbias, j, sum, param_mode);
        }
    }
    if (tensor_wanted(din)) {
        product(din, din_mode, d, false, weight, false, 1.0, NULL);
    }
    return STATUS_OK;
}
