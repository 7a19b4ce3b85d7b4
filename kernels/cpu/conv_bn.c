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

enum { BLOCKS = 64, TILE = 2048 /* floats: rows of four wide channels at a time */ };

/* Where tiles of BF16 tensors are read and made. */
static _Thread_local float tile_buffers[5][TILE];

/* sums[0] += x, sums[1] += x x, over rows of x (rows, c). Four rows at a time: the sums are then
 * loaded and stored a quarter as often. */
CPU_CLONES static void add_moments(double *restrict sum,
                                   double *restrict squares,
                                   const float *restrict x,
                                   int64_t rows,
                                   int64_t c) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *in = x + r * c;
        for (int64_t i = 0; i < c; i++) {
            const double v0 = (double)in[i];
            const double v1 = (double)in[c + i];
            const double v2 = (double)in[2 * c + i];
            const double v3 = (double)in[3 * c + i];
            sum[i] = (((sum[i] + v0) + v1) + v2) + v3;
            squares[i] = (((squares[i] + v0 * v0) + v1 * v1) + v2 * v2) + v3 * v3;
        }
    }
    for (; r < rows; r++) {
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
                             float floor) {
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

/* dy is dout where out > floor: adds dy and dy x over rows. Four rows at a time, as above. */
CPU_CLONES static void add_gradient_moments(double *restrict sum_dy,
                                            double *restrict sum_dy_x,
                                            const float *restrict dout,
                                            const float *restrict out,
                                            const float *restrict x,
                                            int64_t rows,
                                            int64_t c,
                                            float floor) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *d = dout + r * c; /* read either way, so that the loop has no branch */
        const float *y = out + r * c;
        const float *in = x + r * c;
        for (int64_t i = 0; i < c; i++) {
            const double d0 = (double)(y[i] > floor ? d[i] : 0.0f);
            const double d1 = (double)(y[c + i] > floor ? d[c + i] : 0.0f);
            const double d2 = (double)(y[2 * c + i] > floor ? d[2 * c + i] : 0.0f);
            const double d3 = (double)(y[3 * c + i] > floor ? d[3 * c + i] : 0.0f);
            sum_dy[i] = (((sum_dy[i] + d0) + d1) + d2) + d3;
            sum_dy_x[i] = (((sum_dy_x[i] + d0 * (double)in[i]) + d1 * (double)in[c + i]) +
                           d2 * (double)in[2 * c + i]) +
                          d3 * (double)in[3 * c + i];
        }
    }
    for (; r < rows; r++) {
        for (int64_t i = 0; i < c; i++) {
            const float d = dout[r * c + i];
            const double dy = (double)(out[r * c + i] > floor ? d : 0.0f);
            sum_dy[i] += dy;
            sum_dy_x[i] += dy * (double)x[r * c + i];
        }
    }
}

/* What one stretch of the gradient is made of; all but dx and dresidual is read. */
struct gradient_tile {
    float *dx, *dresidual; /* dresidual may be NULL, or dout itself */
    const float *dout, *out, *x;
    const float *mean, *a, *b, *k; /* by channel */
    int64_t rows, c;
    float floor;
};

/* dx = a dy + b (x - mean) + k per channel, dy = dout where out > floor */
CPU_CLONES static void apply_gradient(const struct gradient_tile *t) {
    const struct gradient_tile g = *t;
    for (int64_t e = 0; e < g.rows * g.c; e += g.c) {
#pragma omp simd
        for (int64_t i = 0; i < g.c; i++) {
            const float d = g.dout[e + i];
            const float dy = g.out[e + i] > g.floor ? d : 0.0f;
            g.dx[e + i] = g.a[i] * dy + g.b[i] * (g.x[e + i] - g.mean[i]) + g.k[i];
        }
    }
}

/* dresidual = or += dy. Element by element, so that it may be dout itself. */
CPU_CLONES static void apply_residual(const struct gradient_tile *t, bool add) {
    const struct gradient_tile g = *t;
    if (add) {
#pragma omp simd
        for (int64_t e = 0; e < g.rows * g.c; e++) {
            const float d = g.dout[e];
            g.dresidual[e] += g.out[e] > g.floor ? d : 0.0f;
        }
        return;
    }
#pragma omp simd
    for (int64_t e = 0; e < g.rows * g.c; e++) {
        const float d = g.dout[e];
        g.dresidual[e] = g.out[e] > g.floor ? d : 0.0f;
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
    s.dtype = in->dtype;
    return s;
}

/* Rows [*from, *from + rows) of block b of M. */
static int64_t block_rows(int64_t m, int64_t b, int64_t *from) {
    const int64_t size = (m + BLOCKS - 1) / BLOCKS;
    *from = b * size < m ? b * size : m;
    return m - *from < size ? m - *from : size;
}

/* A walk over block b of a matrix (m, c): all of it for f32; for BF16 as many rows as a buffer
 * holds, or parts of one. */
struct tile {
    int64_t at, rows, column, columns; /* first element, and the rectangle */
    int64_t c, end_row, row, height, width;
};

static struct tile first_tile(const struct tensor *t, int64_t b) {
    const int64_t c = t->shape[3];
    struct tile w = {.c = c};
    w.end_row = block_rows(tensor_count(t) / c, b, &w.row);
    w.end_row += w.row;
    const bool narrow = t->dtype != DTYPE_F32;
    w.width = narrow && c > TILE ? TILE : c;
    w.height = narrow ? TILE / w.width : w.end_row - w.row;
    w.column = -w.width;
    if (w.width < c) {
        w.height = 1;
    }
    return w;
}

static bool next_tile(struct tile *w) {
    w->column += w->width;
    if (w->column >= w->c) {
        w->column = 0;
        w->row += w->height;
    }
    w->rows = w->end_row - w->row < w->height ? w->end_row - w->row : w->height;
    w->columns = w->c - w->column < w->width ? w->c - w->column : w->width;
    w->at = w->row * w->c + w->column;
    return w->rows > 0;
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

/* Column sums of pre and its squares into sums (2, c), the first of BLOCKS. */
static void sum_moments(double *sums, const struct tensor *pre) {
    const int64_t c = pre->shape[3];
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        float *buffer = tile_buffers[0];
        double *mine = sums + b * 2 * c;
        memset(mine, 0, (size_t)(2 * c) * sizeof *mine);
        for (struct tile w = first_tile(pre, b); next_tile(&w);) {
            const float *x = cpu_read(pre, w.at, w.rows * w.columns, buffer);
            add_moments(mine + w.column, mine + c + w.column, x, w.rows, w.columns);
        }
    }
    add_blocks(sums, c);
}

static void normalise(const struct tensor *out,
                      const struct tensor *pre,
                      const struct tensor *residual,
                      const float *mean,
                      const float *scale,
                      const float *beta,
                      float floor) {
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        for (struct tile w = first_tile(pre, b); next_tile(&w);) {
            const int64_t count = w.rows * w.columns;
            const float *x = cpu_read(pre, w.at, count, tile_buffers[0]);
            const float *add =
                tensor_wanted(residual) ? cpu_read(residual, w.at, count, tile_buffers[1]) : NULL;
            float *to = cpu_target(out, w.at, tile_buffers[2]);
            apply(to, x, add, mean + w.column, scale + w.column, beta + w.column, w.rows, w.columns,
                  floor);
            cpu_store(out, w.at, count, to);
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
    if (im2col_pays(&shape, CONV_FORWARD)) {
        TRY(im2col_forward(dev, &shape, pre->data, in->data, weight->data, err));
    } else {
        TRY(convolve_forward(cpu_device_of(dev)->onednn, &shape, pre->data, in->data, weight->data,
                             err));
    }
    const int64_t c = pre->shape[3];
    void *scratch;
    TRY(cpu_scratch(dev, (size_t)(BLOCKS * 2 * c) * sizeof(double), &scratch, err));
    if (p->training) {
        double *sums = scratch;
        sum_moments(sums, pre);
        set_statistics(sums, tensor_count(pre) / c, c, mean, rstd, running_mean, running_var, p);
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
    normalise(out, pre, residual, mean->data, scale, beta->data,
              p->act == ACTIVATION_RELU ? 0.0f : -INFINITY);
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

static enum status weight_gradient(struct device *dev,
                                   const struct conv_shape *shape,
                                   const struct tensor *dweight,
                                   enum write_mode mode,
                                   const struct tensor *dpre,
                                   const struct tensor *in,
                                   struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    if (im2col_pays(shape, CONV_BACKWARD_WEIGHT)) {
        return im2col_backward_weight(dev, shape, dweight->data, mode, dpre->data, in->data, err);
    }
    if (mode == WRITE_SET) {
        return convolve_backward_weight(onednn, shape, dweight->data, dpre->data, in->data, err);
    }
    void *scratch;
    TRY(cpu_scratch(dev, tensor_size_bytes(dweight), &scratch, err));
    TRY(convolve_backward_weight(onednn, shape, scratch, dpre->data, in->data, err));
    cpu_add_to(dweight->data, scratch, tensor_count(dweight), 1.0f);
    return STATUS_OK;
}

static enum status input_gradient(struct device *dev,
                                  const struct conv_shape *shape,
                                  const struct tensor *din,
                                  enum write_mode mode,
                                  const struct tensor *dpre,
                                  const struct tensor *weight,
                                  struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    if (im2col_pays(shape, CONV_BACKWARD_DATA)) {
        return im2col_backward_data(dev, shape, din->data, mode, dpre->data, weight->data, err);
    }
    if (mode == WRITE_SET) {
        return convolve_backward_data(onednn, shape, din->data, dpre->data, weight->data, err);
    }
    struct tensor added = *din;
    TRY(cpu_scratch(dev, tensor_size_bytes(din), &added.data, err));
    TRY(convolve_backward_data(onednn, shape, added.data, dpre->data, weight->data, err));
    return cpu_add(dev, din, &added, 1.0f, err);
}

static void sum_gradient_moments(double *sums,
                                 const struct tensor *dout,
                                 const struct tensor *out,
                                 const struct tensor *pre,
                                 float floor) {
    const int64_t c = pre->shape[3];
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        double *mine = sums + b * 2 * c;
        memset(mine, 0, (size_t)(2 * c) * sizeof *mine);
        for (struct tile w = first_tile(pre, b); next_tile(&w);) {
            const int64_t count = w.rows * w.columns;
            const float *dy = cpu_read(dout, w.at, count, tile_buffers[0]);
            const float *y = cpu_read(out, w.at, count, tile_buffers[1]);
            const float *x = cpu_read(pre, w.at, count, tile_buffers[2]);
            add_gradient_moments(mine + w.column, mine + c + w.column, dy, y, x, w.rows, w.columns,
                                 floor);
        }
    }
    add_blocks(sums, c);
}

/* dpre, and dresidual where it is wanted. factors: a, b, k of apply_gradient, c floats each. */
static void spread_gradient(const struct tensor *dpre,
                            const struct tensor *dresidual,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct tensor *out,
                            const struct tensor *pre,
                            const float *mean,
                            const float *factors,
                            float floor) {
    const int64_t c = pre->shape[3];
    const bool wanted = tensor_wanted(dresidual);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        for (struct tile w = first_tile(pre, b); next_tile(&w);) {
            const int64_t count = w.rows * w.columns;
            struct gradient_tile g = {.rows = w.rows, .c = w.columns, .floor = floor};
            g.dout = cpu_read(dout, w.at, count, tile_buffers[0]);
            g.out = cpu_read(out, w.at, count, tile_buffers[1]);
            g.x = cpu_read(pre, w.at, count, tile_buffers[2]);
            g.mean = mean + w.column;
            g.a = factors + w.column;
            g.b = g.a + c;
            g.k = g.b + c;
            g.dx = cpu_target(dpre, w.at, tile_buffers[3]);
            apply_gradient(&g);
            cpu_store(dpre, w.at, count, g.dx);
            if (wanted) {
                g.dresidual = cpu_target(dresidual, w.at, tile_buffers[4]);
                if (mode == WRITE_ADD) {
                    (void)cpu_read(dresidual, w.at, count, tile_buffers[4]);
                }
                apply_residual(&g, mode == WRITE_ADD);
                cpu_store(dresidual, w.at, count, g.dresidual);
            }
        }
    }
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
    const float floor = p->act == ACTIVATION_RELU ? 0.0f : -INFINITY;
    void *scratch;
    TRY(cpu_scratch(dev,
                    (size_t)(BLOCKS * 2 * c) * sizeof(double) + (size_t)(3 * c) * sizeof(float),
                    &scratch, err));
    double *sums = scratch;
    float *factors = (float *)(sums + BLOCKS * 2 * c);
    sum_gradient_moments(sums, dout, out, pre, floor);
    set_factors(sums, factors, m, c, dgamma, dbeta, param_mode, mean, rstd, gamma);
    spread_gradient(dpre, dresidual, dresidual_mode, dout, out, pre, mean->data, factors, floor);
    const struct conv_shape shape = shape_of(pre, in, weight, p);
    TRY(weight_gradient(dev, &shape, dweight, param_mode, dpre, in, err));
    return tensor_wanted(din) ? input_gradient(dev, &shape, din, din_mode, dpre, weight, err)
                              : STATUS_OK;
}
