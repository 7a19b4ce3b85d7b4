/*
 * conv_bn: pre = conv(in, weight); out = act((pre - mean) rstd gamma + beta + residual).
 *
 * in (N,H,W,I), weight (O,KH,KW,I), pre and out (N,OH,OW,O); vectors (O). The backward pass has the
 * same three stages in reverse order: activation and residual, batch norm, convolution.
 */
#include <math.h>
#include <stdlib.h>

#include "formats/base/image_norm.h"
#include "kernels/batch_norm_group.h"
#include "kernels/cpu_ref/ref_internal.h"

enum status ref_normalize_u8(struct device *dev, const struct normalize_u8 *op, struct error *err) {
    const uint8_t *pixels = op->in.data;
    const int64_t side = op->patch;
    const int64_t across = op->out.shape[2];
    const int64_t count = tensor_count(&op->in);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % 3;
        const int64_t x = i / 3 % op->in.shape[2];
        const int64_t y = i / 3 / op->in.shape[2]; /* of all images below each other */
        const int64_t row = y / side * across + x / side;
        put(&op->out, (row * side + y % side) * 3 * side + x % side * 3 + c,
            (pixels[i] / 255.0 - (double)op->norm->mean[c]) / (double)op->norm->deviation[c]);
    }
    return STATUS_OK;
}

/* The input pixel under kernel cell (ky, kx) of output (oy, ox), or false in the padding. */
static bool input_place(const struct tensor *in,
                        const struct conv_params *p,
                        int64_t oy,
                        int64_t ox,
                        int64_t ky,
                        int64_t kx,
                        int64_t *y,
                        int64_t *x) {
    *y = oy * p->stride - p->pad + ky;
    *x = ox * p->stride - p->pad + kx;
    return *y >= 0 && *y < in->shape[1] && *x >= 0 && *x < in->shape[2];
}

static double convolve_at(const struct tensor *in,
                          const struct tensor *weight,
                          const struct conv_params *p,
                          int64_t n,
                          int64_t oy,
                          int64_t ox,
                          int64_t o) {
    double sum = 0.0;
    for (int64_t ky = 0; ky < weight->shape[1]; ky++) {
        for (int64_t kx = 0; kx < weight->shape[2]; kx++) {
            int64_t y;
            int64_t x;
            if (!input_place(in, p, oy, ox, ky, kx, &y, &x)) {
                continue;
            }
            for (int64_t i = 0; i < in->shape[3]; i++) {
                sum += get(in, at4(in, n, y, x, i)) * get(weight, at4(weight, o, ky, kx, i));
            }
        }
    }
    return sum;
}

void ref_convolve(const struct tensor *pre,
                  const struct tensor *in,
                  const struct tensor *weight,
                  const struct conv_params *p) {
    for (int64_t n = 0; n < pre->shape[0]; n++) {
        for (int64_t oy = 0; oy < pre->shape[1]; oy++) {
            for (int64_t ox = 0; ox < pre->shape[2]; ox++) {
                for (int64_t o = 0; o < pre->shape[3]; o++) {
                    put(pre, at4(pre, n, oy, ox, o), convolve_at(in, weight, p, n, oy, ox, o));
                }
            }
        }
    }
}

/* Memory of batch_norm_group, for the caller to free. */
static enum status take_memory(double **out,
                               const struct batch_norm_group *group,
                               int64_t channels,
                               struct error *err) {
    *out = calloc((size_t)batch_norm_group_doubles(group, channels), sizeof **out);
    return *out != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for batch norm");
}

/* Mean of channel c in this call, and the sum of its squared deviations. */
static void moments(const struct tensor *pre, int64_t c, double *mean, double *squares) {
    const int64_t channels = pre->shape[3];
    const int64_t count = tensor_count(pre) / channels;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += get(pre, i * channels + c);
    }
    *mean = sum / (double)count;
    *squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = get(pre, i * channels + c) - *mean;
        *squares += d * d;
    }
}

/* Statistics of channel c over `count` rows, and the update of the running ones unless omitted. */
static void
set_statistics(const struct conv_bn *op, int64_t c, double count, double m, double squares) {
    const double variance = squares / count;
    const double unbiased = count > 1.0 ? squares / (count - 1.0) : variance;
    const double weight_new = (double)op->momentum;
    put(&op->mean, c, m);
    put(&op->rstd, c, 1.0 / sqrt(variance + (double)op->eps));
    if (!tensor_present(&op->running_mean)) {
        return;
    }
    put(&op->running_mean, c, (1.0 - weight_new) * get(&op->running_mean, c) + weight_new * m);
    put(&op->running_var, c, (1.0 - weight_new) * get(&op->running_var, c) + weight_new * unbiased);
}

static enum status batch_statistics(const struct conv_bn *op, struct error *err) {
    const int64_t channels = op->pre.shape[3];
    double *numbers;
    TRY(take_memory(&numbers, op->group, channels, err));
    double *count = numbers + 2 * channels;
    *count = (double)(tensor_count(&op->pre) / channels);
    for (int64_t c = 0; c < channels; c++) {
        moments(&op->pre, c, &numbers[c], &numbers[channels + c]);
    }
    const enum status s = batch_norm_group_merge(op->group, numbers, channels, err);
    for (int64_t c = 0; s == STATUS_OK && c < channels; c++) {
        set_statistics(op, c, *count, numbers[c], numbers[channels + c]);
    }
    free(numbers);
    return s;
}

static void running_statistics(const struct conv_bn *op) {
    for (int64_t c = 0; c < op->pre.shape[3]; c++) {
        put(&op->mean, c, get(&op->running_mean, c));
        put(&op->rstd, c, 1.0 / sqrt(get(&op->running_var, c) + (double)op->eps));
    }
}

enum status ref_conv_bn(struct device *dev, const struct conv_bn *op, struct error *err) {
    ref_convolve(&op->pre, &op->in, &op->weight, &op->conv);
    if (op->training) {
        TRY(batch_statistics(op, err));
    } else {
        running_statistics(op);
    }
    const int64_t channels = op->pre.shape[3];
    const int64_t count = tensor_count(&op->pre);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        double y = (get(&op->pre, i) - get(&op->mean, c)) * get(&op->rstd, c) * get(&op->gamma, c) +
                   get(&op->beta, c);
        if (tensor_present(&op->residual)) {
            y += get(&op->residual, i);
        }
        put(&op->out, i, op->conv.act == ACTIVATION_RELU && y < 0.0 ? 0.0 : y);
    }
    return STATUS_OK;
}

/* dy of one element: the gradient before the activation. */
static double masked(const struct conv_bn_bwd *op, int64_t i) {
    const int64_t c = i % op->pre.shape[3];
    const double y = tensor_present(&op->out) ? get(&op->out, i)
                                              : (get(&op->pre, i) - get(&op->mean, c)) *
                                                        get(&op->rstd, c) * get(&op->gamma, c) +
                                                    get(&op->beta, c);
    return op->conv.act == ACTIVATION_RELU && y <= 0.0 ? 0.0 : get(&op->dout, i);
}

/* Sums over this call's rows of channel c. */
static void
sum_gradients(const struct conv_bn_bwd *op, int64_t c, double *sum_dy, double *sum_dy_xhat) {
    const int64_t channels = op->pre.shape[3];
    const double m = get(&op->mean, c);
    const double r = get(&op->rstd, c);
    *sum_dy = 0.0;
    *sum_dy_xhat = 0.0;
    for (int64_t e = c; e < tensor_count(&op->pre); e += channels) {
        const double dy = masked(op, e);
        *sum_dy += dy;
        *sum_dy_xhat += dy * (get(&op->pre, e) - m) * r;
    }
}

/* dpre of channel c from the sums over the `count` rows of the batch. */
static void spread_gradient(const struct conv_bn_bwd *op,
                            int64_t c,
                            double count,
                            double sum_dy,
                            double sum_dy_xhat) {
    const int64_t channels = op->pre.shape[3];
    const double m = get(&op->mean, c);
    const double r = get(&op->rstd, c);
    for (int64_t e = c; e < tensor_count(&op->pre); e += channels) {
        const double xhat = (get(&op->pre, e) - m) * r;
        const double centred = masked(op, e) - (sum_dy + xhat * sum_dy_xhat) / count;
        put(&op->dpre, e, get(&op->gamma, c) * r * centred);
    }
}

/* With xhat = (pre - mean) rstd: dbeta = sum dy, dgamma = sum dy xhat,
 * dpre = gamma rstd (dy - dbeta / M - xhat dgamma / M), M = N OH OW. In dpre, sums and M are those
 * of the group. */
static enum status batch_norm_bwd(const struct conv_bn_bwd *op, struct error *err) {
    const int64_t channels = op->pre.shape[3];
    double *sums;
    TRY(take_memory(&sums, op->group, channels, err));
    double *count = sums + 2 * channels;
    *count = (double)(tensor_count(&op->pre) / channels);
    for (int64_t c = 0; c < channels; c++) {
        sum_gradients(op, c, &sums[c], &sums[channels + c]);
        put_mode(&op->dgamma, c, sums[channels + c], op->param_mode);
        put_mode(&op->dbeta, c, sums[c], op->param_mode);
    }
    const enum status s = batch_norm_group_add(op->group, sums, channels, err);
    for (int64_t c = 0; s == STATUS_OK && c < channels; c++) {
        spread_gradient(op, c, *count, sums[c], sums[channels + c]);
    }
    free(sums);
    return s;
}

void ref_convolve_bwd_weight(const struct tensor *dweight,
                             enum write_mode mode,
                             const struct tensor *dpre,
                             const struct tensor *in,
                             const struct conv_params *p) {
    for (int64_t o = 0; o < dweight->shape[0]; o++) {
        for (int64_t ky = 0; ky < dweight->shape[1]; ky++) {
            for (int64_t kx = 0; kx < dweight->shape[2]; kx++) {
                for (int64_t i = 0; i < dweight->shape[3]; i++) {
                    double sum = 0.0;
                    for (int64_t n = 0; n < dpre->shape[0]; n++) {
                        for (int64_t oy = 0; oy < dpre->shape[1]; oy++) {
                            for (int64_t ox = 0; ox < dpre->shape[2]; ox++) {
                                int64_t y;
                                int64_t x;
                                if (input_place(in, p, oy, ox, ky, kx, &y, &x)) {
                                    sum += get(dpre, at4(dpre, n, oy, ox, o)) *
                                           get(in, at4(in, n, y, x, i));
                                }
                            }
                        }
                    }
                    put_mode(dweight, at4(dweight, o, ky, kx, i), sum, mode);
                }
            }
        }
    }
}

/* The sum of dpre * weight over every output that read input (n, y, x, i). */
static double convolve_bwd_data_at(const struct tensor *dpre,
                                   const struct tensor *weight,
                                   const struct conv_params *p,
                                   int64_t n,
                                   int64_t y,
                                   int64_t x,
                                   int64_t i) {
    double sum = 0.0;
    for (int64_t ky = 0; ky < weight->shape[1]; ky++) {
        for (int64_t kx = 0; kx < weight->shape[2]; kx++) {
            const int64_t sy = y + p->pad - ky;
            const int64_t sx = x + p->pad - kx;
            if (sy < 0 || sx < 0 || sy % p->stride != 0 || sx % p->stride != 0 ||
                sy / p->stride >= dpre->shape[1] || sx / p->stride >= dpre->shape[2]) {
                continue;
            }
            for (int64_t o = 0; o < weight->shape[0]; o++) {
                sum += get(dpre, at4(dpre, n, sy / p->stride, sx / p->stride, o)) *
                       get(weight, at4(weight, o, ky, kx, i));
            }
        }
    }
    return sum;
}

void ref_convolve_bwd_data(const struct tensor *din,
                           enum write_mode mode,
                           const struct tensor *dpre,
                           const struct tensor *weight,
                           const struct conv_params *p) {
    for (int64_t n = 0; n < din->shape[0]; n++) {
        for (int64_t y = 0; y < din->shape[1]; y++) {
            for (int64_t x = 0; x < din->shape[2]; x++) {
                for (int64_t i = 0; i < din->shape[3]; i++) {
                    put_mode(din, at4(din, n, y, x, i),
                             convolve_bwd_data_at(dpre, weight, p, n, y, x, i), mode);
                }
            }
        }
    }
}

enum status ref_conv_bn_bwd(struct device *dev, const struct conv_bn_bwd *op, struct error *err) {
    TRY(batch_norm_bwd(op, err));
    ref_convolve_bwd_weight(&op->dweight, op->param_mode, &op->dpre, &op->in, &op->conv);
    if (tensor_present(&op->din)) {
        ref_convolve_bwd_data(&op->din, op->din_mode, &op->dpre, &op->weight, &op->conv);
    }
    if (tensor_present(&op->dresidual)) {
        const int64_t count = tensor_count(&op->dout);
        for (int64_t i = 0; i < count; i++) {
            put(&op->dresidual, i, masked(op, i));
        }
    }
    return STATUS_OK;
}
