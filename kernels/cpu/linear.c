/*
 * linear: matrix products by oneDNN; bias, GELU and their gradients by own loops.
 *
 * erf is Abramowitz and Stegun's 7.1.26 (error below 1.5e-7), with the exp of exp_negative.h: both
 * inline into loops that the compiler vectorises. GELU agrees with the reference within 1e-6. The
 * quick GELU and the tanh GELU are x sigmoid(z) with another z: (1 + tanh(z/2))/2 = sigmoid(z).
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/exp_negative.h"
#include "kernels/cpu/onednn.h"

/* Phi(x), the cumulative normal distribution, and density = phi(x) sqrt(2 pi). */
static inline float normal_cumulative(float x, float *density) {
    const float z = fabsf(x) * 0.70710678f;
    const float e = exp_negative(-z * z);
    const float t = 1.0f / (1.0f + 0.3275911f * z);
    const float poly =
        t * (0.254829592f +
             t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = 0.5f * poly * e;
    *density = e;
    return x >= 0.0f ? 1.0f - tail : tail;
}

CPU_CLONES static void exact_gelu(float *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float density;
        out[i] = in[i] * normal_cumulative(in[i], &density);
    }
}

CPU_CLONES static void gelu_gradient(float *restrict dpre,
                                     const float *restrict dout,
                                     const float *restrict pre,
                                     int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float density;
        const float cumulative = normal_cumulative(pre[i], &density);
        dpre[i] = dout[i] * (cumulative + pre[i] * 0.39894228f * density);
    }
}

CPU_CLONES static void
add_rows(double *restrict sums, const float *restrict in, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < columns; i++) {
            sums[i] += (double)in[r * columns + i];
        }
    }
}

/* sums += rows [from, from + count) of `in` */
static void add_row_block(double *sums, const struct tensor *in, int64_t from, int64_t count) {
    const int64_t columns = in->shape[1];
    float buffer[CPU_STRETCH];
    if (in->dtype == DTYPE_F32) {
        add_rows(sums, (const float *)in->data + from * columns, count, columns);
        return;
    }
    for (int64_t r = from; r < from + count; r++) {
        for (int64_t e = 0; e < columns; e += CPU_STRETCH) {
            const int64_t size = columns - e < CPU_STRETCH ? columns - e : CPU_STRETCH;
            add_rows(sums + e, cpu_read(in, r * columns + e, size, buffer), 1, size);
        }
    }
}

/* out (columns) = or += column sums of in (rows, columns), in double, in a fixed order. */
static enum status column_sums(struct device *dev,
                               float *out,
                               enum write_mode mode,
                               const struct tensor *in,
                               struct error *err) {
    enum { BLOCKS = 16 };
    const int64_t rows = in->shape[0];
    const int64_t columns = in->shape[1];
    const int64_t size = (rows + BLOCKS - 1) / BLOCKS;
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)(BLOCKS * columns) * sizeof(double), &workspace, err));
    double *sums = workspace;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        const int64_t from = b * size < rows ? b * size : rows;
        const int64_t count = rows - from < size ? rows - from : size;
        memset(sums + b * columns, 0, (size_t)columns * sizeof *sums);
        add_row_block(sums + b * columns, in, from, count);
    }
    for (int64_t i = 0; i < columns; i++) {
        double total = mode == WRITE_ADD ? (double)out[i] : 0.0;
        for (int64_t b = 0; b < BLOCKS; b++) {
            total += sums[b * columns + i];
        }
        out[i] = (float)total;
    }
    return STATUS_OK;
}

enum status cpu_matmul(struct device *dev, const struct matmul *op, struct error *err) {
    struct product_shape p = {.m = op->out.shape[0],
                              .n = op->out.shape[1],
                              .k = op->a.shape[op->transpose_a ? 0 : 1],
                              .transpose_a = op->transpose_a ? 1 : 0,
                              .transpose_b = op->transpose_b ? 1 : 0,
                              .dtype = op->a.dtype,
                              .out_dtype = op->out.dtype,
                              .add = op->mode == WRITE_ADD ? 1 : 0};
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    if (op->alpha == 1.0f) {
        return matrix_product(onednn, &p, op->out.data, op->a.data, op->b.data, NULL, err);
    }
    void *product;
    p.add = 0;
    p.out_dtype = DTYPE_F32;
    TRY(cpu_workspace(dev, (size_t)(p.m * p.n) * sizeof(float), &product, err));
    TRY(matrix_product(onednn, &p, product, op->a.data, op->b.data, NULL, err));
    const struct tensor plain = tensor_2d(product, DTYPE_F32, p.m, p.n);
    cpu_scale_into(&op->out, op->mode, &plain, op->alpha);
    return STATUS_OK;
}

/* z = a x + b x^3 of such a GELU */
struct share {
    float a, b;
};

static struct share share_of(enum activation act) {
    const float a = 1.5957691216f; /* 2 sqrt(2/pi) */
    return act == ACTIVATION_QUICK_GELU ? (struct share){1.702f, 0.0f}
                                        : (struct share){a, 0.044715f * a};
}

/* x^2, finite: beyond that the sigmoid is 0 or 1. */
static inline float square_of(float x) {
    const float square = x * x;
    return square < 1e30f ? square : 1e30f;
}

static inline float sigmoid(float z) {
    const float e = exp_negative(-fabsf(z));
    const float s = 1.0f / (1.0f + e);
    return z >= 0.0f ? s : e * s;
}

CPU_CLONES static void
sigmoid_gelu(float *restrict out, const float *restrict in, int64_t count, struct share c) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = in[i] * sigmoid(in[i] * (c.a + c.b * square_of(in[i])));
    }
}

CPU_CLONES static void sigmoid_gelu_gradient(float *restrict dpre,
                                             const float *restrict dout,
                                             const float *restrict pre,
                                             int64_t count,
                                             struct share c) {
    for (int64_t i = 0; i < count; i++) {
        const float square = square_of(pre[i]);
        const float s = sigmoid(pre[i] * (c.a + c.b * square));
        dpre[i] = dout[i] * (s + pre[i] * s * (1.0f - s) * (c.a + 3.0f * c.b * square));
    }
}

/* out = act(pre), or, with a dout, dpre = dout act'(pre). */
static void gelu_walk(const struct tensor *out,
                      const struct tensor *pre,
                      const struct tensor *dout,
                      enum activation act) {
    const bool exact = act == ACTIVATION_GELU;
    const struct share share = share_of(act);
    const int64_t columns = pre->shape[1];
    const int64_t step = cpu_stretch(pre, columns);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < pre->shape[0]; r++) {
        float values[CPU_STRETCH];
        float gradient[CPU_STRETCH];
        float result[CPU_STRETCH];
        for (int64_t e = 0; e < columns; e += step) {
            const int64_t size = columns - e < step ? columns - e : step;
            const int64_t at = r * columns + e;
            const float *x = cpu_read(pre, at, size, values);
            float *to = cpu_target(out, at, result);
            const float *d = dout != NULL ? cpu_read(dout, at, size, gradient) : NULL;
            if (d == NULL && exact) {
                exact_gelu(to, x, size);
            } else if (d == NULL) {
                sigmoid_gelu(to, x, size, share);
            } else if (exact) {
                gelu_gradient(to, d, x, size);
            } else {
                sigmoid_gelu_gradient(to, d, x, size, share);
            }
            cpu_store(out, at, size, to);
        }
    }
}

enum status cpu_gelu(struct device *dev, const struct gelu *op, struct error *err) {
    gelu_walk(&op->out, &op->pre, NULL, op->act);
    return STATUS_OK;
}

enum status cpu_linear(struct device *dev, const struct linear *op, struct error *err) {
    const struct tensor *sum = op->act != ACTIVATION_NONE ? &op->pre : &op->out;
    const bool biased = tensor_present(&op->bias);
    const bool narrow = op->in.dtype == DTYPE_BF16;
    const int64_t columns = op->out.shape[1];
    if (biased && !narrow) {
        float *rows = sum->data;
#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < op->out.shape[0]; r++) {
            memcpy(rows + r * columns, op->bias.data, (size_t)columns * sizeof *rows);
        }
    }
    const struct product_shape p = {.m = op->out.shape[0],
                                    .n = columns,
                                    .k = op->in.shape[1],
                                    .transpose_b = 1,
                                    .dtype = op->in.dtype,
                                    .out_dtype = op->in.dtype,
                                    .add = biased && !narrow ? 1 : 0,
                                    .biased = biased && narrow ? 1 : 0};
    TRY(matrix_product(cpu_device_of(dev)->onednn, &p, sum->data, op->in.data, op->weight.data,
                       p.biased != 0 ? op->bias.data : NULL, err));
    if (op->act != ACTIVATION_NONE) {
        gelu_walk(&op->out, &op->pre, NULL, op->act);
    }
    return STATUS_OK;
}

enum status cpu_linear_bwd(struct device *dev, const struct linear_bwd *op, struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    const struct tensor *d = &op->dout;
    if (op->act != ACTIVATION_NONE) {
        gelu_walk(&op->dpre, &op->pre, &op->dout, op->act);
        d = &op->dpre;
    }
    const struct product_shape weights = {.m = op->dout.shape[1],
                                          .n = op->in.shape[1],
                                          .k = op->dout.shape[0],
                                          .transpose_a = 1,
                                          .dtype = op->in.dtype,
                                          .out_dtype = DTYPE_F32,
                                          .add = op->param_mode == WRITE_ADD ? 1 : 0};
    TRY(matrix_product(onednn, &weights, op->dweight.data, d->data, op->in.data, NULL, err));
    if (tensor_present(&op->dbias)) {
        TRY(column_sums(dev, op->dbias.data, op->param_mode, d, err));
    }
    if (!tensor_present(&op->din)) {
        return STATUS_OK;
    }
    const struct product_shape inputs = {.m = op->dout.shape[0],
                                         .n = op->in.shape[1],
                                         .k = op->dout.shape[1],
                                         .dtype = op->in.dtype,
                                         .out_dtype = op->in.dtype,
                                         .add = op->din_mode == WRITE_ADD ? 1 : 0};
    return matrix_product(onednn, &inputs, op->din.data, d->data, op->weight.data, NULL, err);
}
