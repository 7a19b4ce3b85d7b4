/*
 * linear: matrix products by oneDNN; bias, GELU and their gradients around them.
 *
 * erf is Abramowitz and Stegun's 7.1.26 (error below 1.5e-7), with the exp of exp_negative.h: both
 * inline into loops that the compiler vectorises. GELU agrees with the reference within 1e-6.
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

CPU_CLONES static void gelu(float *restrict out, const float *restrict in, int64_t count) {
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

enum status cpu_column_sums(struct device *dev,
                            float *out,
                            enum write_mode mode,
                            const float *in,
                            int64_t rows,
                            int64_t columns,
                            struct error *err) {
    enum { BLOCKS = 16 };
    const int64_t size = (rows + BLOCKS - 1) / BLOCKS;
    void *scratch;
    TRY(cpu_scratch(dev, (size_t)(BLOCKS * columns) * sizeof(double), &scratch, err));
    double *sums = scratch;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        const int64_t from = b * size < rows ? b * size : rows;
        const int64_t count = rows - from < size ? rows - from : size;
        memset(sums + b * columns, 0, (size_t)columns * sizeof *sums);
        add_rows(sums + b * columns, in + from * columns, count, columns);
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

enum status cpu_matmul(struct device *dev,
                       const struct tensor *out,
                       enum write_mode mode,
                       const struct tensor *a,
                       bool transpose_a,
                       const struct tensor *b,
                       bool transpose_b,
                       float alpha,
                       struct error *err) {
    (void)dev;
    TRY(cpu_real("matmul", a, err));
    TRY(check_matmul(out, a, transpose_a, b, transpose_b, err));
    return matrix_product(out->data, out->shape[0], out->shape[1], a->shape[transpose_a ? 0 : 1],
                          a->data, transpose_a, b->data, transpose_b, alpha,
                          mode == WRITE_ADD ? 1.0f : 0.0f, err);
}

enum status cpu_linear(struct device *dev,
                       const struct tensor *out,
                       const struct tensor *pre,
                       const struct tensor *in,
                       const struct tensor *weight,
                       const struct tensor *bias,
                       enum activation act,
                       struct error *err) {
    (void)dev;
    TRY(cpu_real("linear", in, err));
    TRY(check_linear(out, pre, in, weight, bias, act, err));
    const int64_t rows = out->shape[0];
    const int64_t columns = out->shape[1];
    float *sum = act == ACTIVATION_GELU ? pre->data : out->data;
    const bool biased = tensor_wanted(bias);
    if (biased) {
#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            memcpy(sum + r * columns, bias->data, (size_t)columns * sizeof *sum);
        }
    }
    TRY(matrix_product(sum, rows, columns, in->shape[1], in->data, false, weight->data, true, 1.0f,
                       biased ? 1.0f : 0.0f, err));
    if (act == ACTIVATION_GELU) {
#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            gelu((float *)out->data + r * columns, sum + r * columns, columns);
        }
    }
    return STATUS_OK;
}

enum status cpu_linear_bwd(struct device *dev,
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
    TRY(cpu_real("linear_bwd", in, err));
    TRY(check_linear_bwd(din, dweight, dbias, dpre, dout, in, weight, pre, act, err));
    const int64_t rows = dout->shape[0];
    const int64_t columns = dout->shape[1];
    const int64_t inner = in->shape[1];
    const float *d = dout->data;
    if (act == ACTIVATION_GELU) {
        const float *x = pre->data;
#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            gelu_gradient((float *)dpre->data + r * columns, d + r * columns, x + r * columns,
                          columns);
        }
        d = dpre->data;
    }
    const float param_beta = param_mode == WRITE_ADD ? 1.0f : 0.0f;
    TRY(matrix_product(dweight->data, columns, inner, rows, d, true, in->data, false, 1.0f,
                       param_beta, err));
    if (tensor_wanted(dbias)) {
        TRY(cpu_column_sums(dev, dbias->data, param_mode, d, rows, columns, err));
    }
    if (tensor_wanted(din)) {
        const float din_beta = din_mode == WRITE_ADD ? 1.0f : 0.0f;
        TRY(matrix_product(din->data, rows, inner, columns, d, false, weight->data, false, 1.0f,
                           din_beta, err));
    }
    return STATUS_OK;
}
