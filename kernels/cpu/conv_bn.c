/*
 * conv_bn: oneDNN's convolution, then batch norm + residual + ReLU in two passes over its output:
 * one for the statistics, one that writes the result. The backward pass mirrors it.
 *
 * Seen as a matrix, pre has M = N OH OW rows and C columns. Statistics are taken in a fixed number
 * of row blocks, in double, and added in order: the same bits for any number of threads.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/im2col.h"
#include "kernels/cpu/onednn.h"

enum { BLOCKS = 64 };

/* sums[0] += x, sums[1] += x x, over rows of x (rows, c). */
CPU_CLONES static void add_moments(double *restrict sum,
                                   double *restrict squares,
                                   const float *restrict x,
                                   int64_t rows,
                                   int64_t c) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c; i++) {
            const double v = (double)x[r * c + i];
            sum[i] += v;
            squares[i] += v * v;
        }
    }
}

/* out = act((x - mean) scale + beta + residual); residual may be NULL. The mean is taken off first:
 * folded into beta it would cancel badly where it is large against the deviation. */
CPU_CLONES static void apply(float *restrict out,
                             const float *restrict x,
                             const float *restrict residual,
                             const float *restrict mean,
                             const float *restrict scale,
                             const float *restrict beta,
                             int64_t rows,
                             int64_t c,
                             bool relu) {
    const float floor = relu ? 0.0f : -INFINITY;
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * c;
        float *to = out + r * c;
        if (residual == NULL) {
            for (int64_t i = 0; i < c; i++) {
                const float y = (in[i] - mean[i]) * scale[i] + beta[i];
                to[i] = y > floor ? y : floor;
            }
        } else {
            const float *add = residual + r * c;
            for (int64_t i = 0; i < c; i++) {
                const float y = (in[i] - mean[i]) * scale[i] + beta[i] + add[i];
                to[i] = y > floor ? y : floor;
            }
        }
    }
}

/* dy is dout where out > 0 (or everywhere): adds dy and dy x over rows. */
CPU_CLONES static void add_gradient_moments(double *restrict sum_dy,
                                            double *restrict sum_dy_x,
                                            const float *restrict dout,
                                            const float *restrict out,
                                            const float *restrict x,
                                            int64_t rows,
                                            int64_t c,
                                            bool relu) {
    const float floor = relu ? 0.0f : -INFINITY;
    for (int64_t e = 0; e < rows * c; e += c) {
        for (int64_t i = 0; i < c; i++) {
            const float d = dout[e + i]; /* read either way, so that the loop has no branch */
            const double dy = (double)(out[e + i] > floor ? d : 0.0f);
            sum_dy[i] += dy;
            sum_dy_x[i] += dy * (double)x[e + i];
        }
    }
}

/* dx = a dy + b (x - mean) + k per channel, and dresidual = or += dy. dresidual may be dout itself.
 */
CPU_CLONES static void apply_gradient(float *restrict dx,
                                      float *dresidual,
                                      bool add_residual,
                                      const float *dout,
                                      const float *restrict out,
                                      const float *restrict x,
                                      const float *restrict mean,
                                      const float *restrict a,
                                      const float *restrict b,
                                      const float *restrict k,
                                      int64_t rows,
                                      int64_t c,
                                      bool relu) {
    const float floor = relu ? 0.0f : -INFINITY;
    for (int64_t e = 0; e < rows * c; e += c) {
        for (int64_t i = 0; i < c; i++) {
            const float d = dout[e + i];
            const float dy = out[e + i] > floor ? d : 0.0f;
            dx[e + i] = a[i] * dy + b[i] * (x[e + i] - mean[i]) + k[i];
            if (dresidual != NULL) {
                dresidual[e + i] = add_residual ? dresidual[e + i] + dy : dy;
            }
        }
    }
}

static struct conv_shape shape_of(const struct tensor *pre,
                                  const struct tensor *in,
                                  const struct tensor *weight,
                                  const struct conv_bn_params *p) {
    struct conv_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.n = in->shape[0];
    s.h = in->shape[1];
    s.w = in->shape[2];
    s.in = in->shape[3];
    s.out = weight->shape[0];
    s.kernel_h = weight->shape[1];
    s.kernel_w = weight->shape[2];
    s.stride = p->stride;
    s.pad = p->pad;
    s.out_h = pre->shape[1];
    s.out_w = pre->shape[2];
    return s;
}

/* Rows [*from, *from + rows) of block b of M. */
static int64_t block_rows(int64_t m, int64_t b, int64_t *from) {
    const int64_t size = (m + BLOCKS - 1) / BLOCKS;
    *from = b * size < m ? b * size : m;
    return m - *from < size ? m - *from : size;
}

/* Adds the blocks' pairs of column sums in order into those of block 0. */
static void add_blocks(double *sums, int64_t c) {
    for (int64_t b = 1; b < BLOCKS; b++) {
        for (int64_t i = 0; i < 2 * c; i++) {
            sums[i] += sums[b * 2 * c + i];
        }
    }
}

/* mean, rstd and the running statistics from the sums of pre and its squares. */
static void set_statistics(const double *sums,
                           int64_t m,
                           int64_t c,
                           const struct tensor *mean,
                           const struct tensor *rstd,
                           const struct tensor *running_mean,
                           const struct tensor *running_var,
                           const struct conv_bn_params *p) {
    const double fresh = (double)p->momentum;
    float *rm = tensor_wanted(running_mean) ? running_mean->data : NULL;
    float *rv = tensor_wanted(running_var) ? running_var->data : NULL;
    for (int64_t i = 0; i < c; i++) {
        const double mu = sums[i] / (double)m;
        const double variance = fmax(sums[c + i] / (double)m - mu * mu, 0.0);
        const double unbiased = m > 1 ? variance * (double)m / (double)(m - 1) : variance;
        ((float *)mean->data)[i] = (float)mu;
        ((float *)rstd->data)[i] = (float)(1.0 / sqrt(variance + (double)p->eps));
        if (rm != NULL) {
            rm[i] = (float)((1.0 - fresh) * (double)rm[i] + fresh * mu);
            rv[i] = (float)((1.0 - fresh) * (double)rv[i] + fresh * unbiased);
        }
    }
}

enum status cpu_conv_bn(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *pre,
                        const struct tensor *mean,
                        const struct tensor *rstd,
                        const struct tensor *running_mean,
                        const struct tensor *running_var,
                        const struct tensor *in,
                        const struct tensor *weight,
                        const struct tensor *gamma,
                        const struct tensor *beta,
                        const struct tensor *residual,
                        const struct conv_bn_params *p,
                        struct error *err) {
    TRY(cpu_real("conv_bn", in, err));
    TRY(check_conv_bn(out, pre, mean, rstd, running_mean, running_var, in, weight, gamma, beta,
                      residual, p, err));
    const struct conv_shape shape = shape_of(pre, in, weight, p);
    if (im2col_pays(&shape, false)) {
        TRY(im2col_forward(dev, &shape, pre->data, in->data, weight->data, err));
    } else {
        TRY(convolve_forward(cpu_device_of(dev)->convolutions, &shape, pre->data, in->data,
                             weight->data, err));
    }
    const int64_t c = pre->shape[3];
    const int64_t m = tensor_count(pre) / c;
    void *scratch;
    TRY(cpu_scratch(dev, (size_t)(BLOCKS * 2 * c) * sizeof(double), &scratch, err));
    const float *x = pre->data;
    if (p->training) {
        double *sums = scratch;
#pragma omp parallel for schedule(static)
        for (int64_t b = 0; b < BLOCKS; b++) {
            int64_t from;
            const int64_t rows = block_rows(m, b, &from);
            memset(sums + b * 2 * c, 0, (size_t)(2 * c) * sizeof *sums);
            add_moments(sums + b * 2 * c, sums + b * 2 * c + c, x + from * c, rows, c);
        }
        add_blocks(sums, c);
        set_statistics(sums, m, c, mean, rstd, running_mean, running_var, p);
    } else {
        memcpy(mean->data, running_mean->data, (size_t)c * sizeof(float));
        for (int64_t i = 0; i < c; i++) {
            const double variance = (double)((const float *)running_var->data)[i];
            ((float *)rstd->data)[i] = (float)(1.0 / sqrt(variance + (double)p->eps));
        }
    }
    float *scale = scratch;
    for (int64_t i = 0; i < c; i++) {
        scale[i] = ((const float *)gamma->data)[i] * ((const float *)rstd->data)[i];
    }
    const float *add = tensor_wanted(residual) ? residual->data : NULL;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        const int64_t rows = block_rows(m, b, &from);
        apply((float *)out->data + from * c, x + from * c, add != NULL ? add + from * c : NULL,
              mean->data, scale, beta->data, rows, c, p->act == ACTIVATION_RELU);
    }
    return STATUS_OK;
}

/* dgamma and dbeta from the sums, and the factors of dx = a dy + b (x - mean) + k. */
static void set_factors(double *sums,
                        float *factors,
                        int64_t m,
                        int64_t c,
                        const struct tensor *dgamma,
                        const struct tensor *dbeta,
                        enum write_mode mode,
                        const struct tensor *mean,
                        const struct tensor *rstd,
                        const struct tensor *gamma) {
    float *dg = dgamma->data;
    float *db = dbeta->data;
    for (int64_t i = 0; i < c; i++) {
        const double mu = (double)((const float *)mean->data)[i];
        const double r = (double)((const float *)rstd->data)[i];
        const double g = (double)((const float *)gamma->data)[i];
        const double sum_dy = sums[i];
        const double sum_dy_xhat = (sums[c + i] - mu * sum_dy) * r;
        dg[i] = (float)(sum_dy_xhat + (mode == WRITE_ADD ? (double)dg[i] : 0.0));
        db[i] = (float)(sum_dy + (mode == WRITE_ADD ? (double)db[i] : 0.0));
        /* dx = g r (dy - sum_dy/m - (x - mu) r sum_dy_xhat/m) */
        factors[i] = (float)(g * r);
        factors[c + i] = (float)(-g * r * r * sum_dy_xhat / (double)m);
        factors[2 * c + i] = (float)(-g * r * sum_dy / (double)m);
    }
}

static enum status convolution_gradients(struct device *dev,
                                         const struct conv_shape *shape,
                                         const struct tensor *din,
                                         enum write_mode din_mode,
                                         const struct tensor *dweight,
                                         enum write_mode param_mode,
                                         const struct tensor *dpre,
                                         const struct tensor *in,
                                         const struct tensor *weight,
                                         struct error *err) {
    struct convolutions *conv = cpu_device_of(dev)->convolutions;
    void *scratch;
    if (im2col_pays(shape, true)) {
        TRY(im2col_backward_weight(dev, shape, dweight->data, param_mode, dpre->data, in->data,
                                   err));
        return tensor_wanted(din) ? im2col_backward_data(dev, shape, din->data, din_mode,
                                                         dpre->data, weight->data, err)
                                  : STATUS_OK;
    }
    if (param_mode == WRITE_SET) {
        TRY(convolve_backward_weight(conv, shape, dweight->data, dpre->data, in->data, err));
    } else {
        TRY(cpu_scratch(dev, tensor_size_bytes(dweight), &scratch, err));
        TRY(convolve_backward_weight(conv, shape, scratch, dpre->data, in->data, err));
        cpu_add_to(dweight->data, scratch, tensor_count(dweight), 1.0f);
    }
    if (!tensor_wanted(din)) {
        return STATUS_OK;
    }
    if (din_mode == WRITE_SET) {
        return convolve_backward_data(conv, shape, din->data, dpre->data, weight->data, err);
    }
    TRY(cpu_scratch(dev, tensor_size_bytes(din), &scratch, err));
    TRY(convolve_backward_data(conv, shape, scratch, dpre->data, weight->data, err));
    cpu_add_to(din->data, scratch, tensor_count(din), 1.0f);
    return STATUS_OK;
}

enum status cpu_conv_bn_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode din_mode,
                            const struct tensor *dresidual,
                            enum write_mode dresidual_mode,
                            const struct tensor *dweight,
                            const struct tensor *dgamma,
                            const struct tensor *dbeta,
                            enum write_mode param_mode,
                            const struct tensor *dpre,
                            const struct tensor *dout,
                            const struct tensor *out,
                            const struct tensor *pre,
                            const struct tensor *mean,
                            const struct tensor *rstd,
                            const struct tensor *in,
                            const struct tensor *weight,
                            const struct tensor *gamma,
                            const struct conv_bn_params *p,
                            struct error *err) {
    TRY(cpu_real("conv_bn_bwd", in, err));
    TRY(check_conv_bn_bwd(din, dresidual, dweight, dgamma, dbeta, dpre, dout, out, pre, mean, rstd,
                          in, weight, gamma, p, err));
    const int64_t c = pre->shape[3];
    const int64_t m = tensor_count(pre) / c;
    const bool relu = p->act == ACTIVATION_RELU;
    void *scratch;
    TRY(cpu_scratch(dev,
                    (size_t)(BLOCKS * 2 * c) * sizeof(double) + (size_t)(3 * c) * sizeof(float),
                    &scratch, err));
    double *sums = scratch;
    float *factors = (float *)(sums + BLOCKS * 2 * c);
    const float *x = pre->data;
    const float *y = out->data;
    const float *dy = dout->data;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        const int64_t rows = block_rows(m, b, &from);
        double *mine = sums + b * 2 * c;
        memset(mine, 0, (size_t)(2 * c) * sizeof *mine);
        add_gradient_moments(mine, mine + c, dy + from * c, y + from * c, x + from * c, rows, c,
                             relu);
    }
    add_blocks(sums, c);
    set_factors(sums, factors, m, c, dgamma, dbeta, param_mode, mean, rstd, gamma);
    float *dr = tensor_wanted(dresidual) ? dresidual->data : NULL;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        const int64_t rows = block_rows(m, b, &from);
        apply_gradient((float *)dpre->data + from * c, dr != NULL ? dr + from * c : NULL,
                       dresidual_mode == WRITE_ADD, dy + from * c, y + from * c, x + from * c,
                       mean->data, factors, factors + c, factors + 2 * c, rows, c, relu);
    }
    const struct conv_shape shape = shape_of(pre, in, weight, p);
    return convolution_gradients(dev, &shape, din, din_mode, dweight, param_mode, dpre, in, weight,
                                 err);
}
