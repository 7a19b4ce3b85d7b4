/*
 * linear: out (M,OUT) = act(in (M,IN) weight (OUT,IN)^T + bias), and the plain matrix product.
 *
 * gelu(x) = x/2 (1 + erf(x/sqrt 2)); gelu'(x) = Phi(x) + x phi(x), Phi and phi those of the normal
 * distribution (Hendrycks and Gimpel, arXiv 1606.08415). The quick one is x s with s =
 * sigmoid(1.702 x), its slope s + 1.702 x s (1 - s). The tanh one is x/2 (1 + t), t = tanh(u) with
 * u = sqrt(2/pi) (x + 0.044715 x^3), its slope (1 + t)/2 + x/2 (1 - t^2) u'.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

static const double sqrt_2_by_pi = 0.79788456080286535588;

static double tanh_part(double x) {
    return tanh(sqrt_2_by_pi * (x + 0.044715 * x * x * x));
}

static double gelu_of(double x, enum activation act) {
    return act == ACTIVATION_QUICK_GELU  ? x / (1.0 + exp(-1.702 * x))
           : act == ACTIVATION_TANH_GELU ? 0.5 * x * (1.0 + tanh_part(x))
                                         : 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
}

static double gelu_slope(double x, enum activation act) {
    if (act == ACTIVATION_QUICK_GELU) {
        const double s = 1.0 / (1.0 + exp(-1.702 * x));
        return s + 1.702 * x * s * (1.0 - s);
    }
    if (act == ACTIVATION_TANH_GELU) {
        const double t = tanh_part(x);
        return 0.5 * (1.0 + t) +
               0.5 * x * (1.0 - t * t) * sqrt_2_by_pi * (1.0 + 3.0 * 0.044715 * x * x);
    }
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

enum status ref_matmul(struct device *dev, const struct matmul *op, struct error *err) {
    product(&op->out, op->mode, &op->a, op->transpose_a, &op->b, op->transpose_b, (double)op->alpha,
            NULL);
    return STATUS_OK;
}

enum status ref_linear(struct device *dev, const struct linear *op, struct error *err) {
    const bool gelus = op->act != ACTIVATION_NONE;
    const struct tensor *sum = gelus ? &op->pre : &op->out;
    product(sum, WRITE_SET, &op->in, false, &op->weight, true, 1.0,
            tensor_present(&op->bias) ? &op->bias : NULL);
    return gelus ? ref_gelu(dev, &(struct gelu){op->out, op->pre, op->act}, err) : STATUS_OK;
}

enum status ref_gelu(struct device *dev, const struct gelu *op, struct error *err) {
    const int64_t count = tensor_count(&op->out);
    for (int64_t e = 0; e < count; e++) {
        put(&op->out, e, gelu_of(get(&op->pre, e), op->act));
    }
    return STATUS_OK;
}

enum status ref_linear_bwd(struct device *dev, const struct linear_bwd *op, struct error *err) {
    const struct tensor *d = &op->dout;
    if (op->act != ACTIVATION_NONE) {
        const int64_t count = tensor_count(&op->dout);
        for (int64_t e = 0; e < count; e++) {
            put(&op->dpre, e, get(&op->dout, e) * gelu_slope(get(&op->pre, e), op->act));
        }
        d = &op->dpre;
    }
    product(&op->dweight, op->param_mode, d, true, &op->in, false, 1.0, NULL);
    if (tensor_present(&op->dbias)) {
        for (int64_t j = 0; j < d->shape[1]; j++) {
            double sum = 0.0;
            for (int64_t i = 0; i < d->shape[0]; i++) {
                sum += get(d, i * d->shape[1] + j);
            }
            put_mode(&op->dbias, j, sum, op->param_mode);
        }
    }
    if (tensor_present(&op->din)) {
        product(&op->din, op->din_mode, d, false, &op->weight, false, 1.0, NULL);
    }
    return STATUS_OK;
}
