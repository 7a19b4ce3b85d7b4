/*
 * conv_bn: pre = conv(in, weight); out = act((pre - mean) rstd gamma + beta + residual).
 *
 * in (N,H,W,I), weight (O,KH,KW,I), pre and out (N,OH,OW,O); vectors (O). The backward pass goes
 * through the same three stages from the end: activation and residual, batch norm, convolution.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

enum status ref_normalize_u8(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const float mean[3],
                             const float std[3],
                             struct error *err) {
    (void)dev;
    TRY(ref_real("normalize_u8", out, err));
    TRY(check_tensor("normalize_u8", "in", in, DTYPE_U8, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, 3, err));
    TRY(check_tensor("normalize_u8", "out", out, out->dtype, 4, in->shape[0], in->shape[1],
                     in->shape[2], 3, err));
    const uint8_t *pixels = in->data;
    const int64_t count = tensor_count(in);
    for (int64_t i = 0; i < count; i++) {
        put(out, i, (pixels[i] / 255.0 - (double)mean[i % 3]) / (double)std[i % 3]);
    }
    return STATUS_OK;
}

/* The input pixel under kernel cell (ky, kx) of output (oy, ox), or false in the padding. */
static bool input_place(const struct tensor *in,
                        const struct conv_bn_params *p,
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
                          const struct conv_bn_params *p,
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

static void convolve(const struct tensor *pre,
                     const struct tensor *in,
                     const struct tensor *weight,
                     const struct conv_bn_params *p) {
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

/* Batch statistics of channel c, and the running ones, where wanted, moved towards them. */
static void batch_statistics(const struct tensor *pre,
                             int64_t c,
                             const struct tensor *mean,
                             const struct tensor *rstd,
                             const struct tensor *running_mean,
                             const struct tensor *running_var,
                             const struct conv_bn_params *p) {
    const int64_t channels = pre->shape[3];
    const int64_t count = tensor_count(pre) / channels;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += get(pre, i * channels + c);
    }
    const double m = sum / (double)count;
    double squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = get(pre, i * channels + c) - m;
        squares += d * d;
    }
    const double variance = squares / (double)count;
    const double unbiased = count > 1 ? squares / (double)(count - 1) : variance;
    const double weight_new = (double)p->momentum;
    put(mean, c, m);
    put(rstd, c, 1.0 / sqrt(variance + (double)p->eps));
    if (!tensor_wanted(running_mean)) {
        return;
    }
    put(running_mean, c, (1.0 - weight_new) * get(running_mean, c) + weight_new * m);
    put(running_var, c, (1.0 - weight_new) * get(running_var, c) + weight_new * unbiased);
}

enum status ref_conv_bn(struct device *dev,
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
    (void)dev;
    TRY(ref_real("conv_bn", in, err));
    TRY(check_conv_bn(out, pre, mean, rstd, running_mean, running_var, in, weight, gamma, beta,
                      residual, p, err));
    convolve(pre, in, weight, p);
    const int64_t channels = pre->shape[3];
    for (int64_t c = 0; c < channels; c++) {
        if (p->training) {
            batch_statistics(pre, c, mean, rstd, running_mean, running_var, p);
        } else {
            put(mean, c, get(running_mean, c));
            put(rstd, c, 1.0 / sqrt(get(running_var, c) + (double)p->eps));
        }
    }
    const int64_t count = tensor_count(pre);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        double y = (get(pre, i) - get(mean, c)) * get(rstd, c) * get(gamma, c) + get(beta, c);
        if (tensor_wanted(residual)) {
            y += get(residual, i);
        }
        put(out, i, p->act == ACTIVATION_RELU && y < 0.0 ? 0.0 : y);
    }
    return STATUS_OK;
}

/* dy of one element: the gradient behind the activation. */
static double masked(const struct tensor *dout,
                     const struct tensor *out,
                     int64_t i,
                     const struct conv_bn_params *p) {
    return p->act == ACTIVATION_RELU && get(out, i) <= 0.0 ? 0.0 : get(dout, i);
}

/* With xhat = (pre - mean) rstd: dbeta = sum dy, dgamma = sum dy xhat,
 * dpre = gamma rstd (dy - dbeta / M - xhat dgamma / M), M = N OH OW. */
static void batch_norm_bwd(int64_t c,
                           const struct tensor *dpre,
                           const struct tensor *dgamma,
                           const struct tensor *dbeta,
                           enum write_mode param_mode,
                           const struct tensor *dout,
                           const struct tensor *out,
                           const struct tensor *pre,
                           const struct tensor *mean,
                           const struct tensor *rstd,
                           const struct tensor *gamma,
                           const struct conv_bn_params *p) {
    const int64_t channels = pre->shape[3];
    const int64_t count = tensor_count(pre) / channels;
    const double m = get(mean, c);
    const double r = get(rstd, c);
    double sum_dy = 0.0;
    double sum_dy_xhat = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double dy = masked(dout, out, i * channels + c, p);
        sum_dy += dy;
        sum_dy_xhat += dy * (get(pre, i * channels + c) - m) * r;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t e = i * channels + c;
        const double xhat = (get(pre, e) - m) * r;
        const double centred =
            masked(dout, out, e, p) - (sum_dy + xhat * sum_dy_xhat) / (double)count;
        put(dpre, e, get(gamma, c) * r * centred);
    }
    put_mode(dgamma, c, sum_dy_xhat, param_mode);
    put_mode(dbeta, c, sum_dy, param_mode);
}

static void convolve_bwd_weight(const struct tensor *dweight,
                                enum write_mode mode,
                                const struct tensor *dpre,
                                const struct tensor *in,
                                const struct conv_bn_params *p) {
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
                                   const struct conv_bn_params *p,
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

static void convolve_bwd_data(const struct tensor *din,
                              enum write_mode mode,
                              const struct tensor *dpre,
                              const struct tensor *weight,
                              const struct conv_bn_params *p) {
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

enum status ref_conv_bn_bwd(struct device *dev,
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
    (void)dev;
    TRY(ref_real("conv_bn_bwd", in, err));
    TRY(check_conv_bn_bwd(din, dresidual, dweight, dgamma, dbeta, dpre, dout, out, pre, mean, rstd,
                          in, weight, gamma, p, err));
    for (int64_t c = 0; c < pre->shape[3]; c++) {
        batch_norm_bwd(c, dpre, dgamma, dbeta, param_mode, dout, out, pre, mean, rstd, gamma, p);
    }
    convolve_bwd_weight(dweight, param_mode, dpre, in, p);
    if (tensor_wanted(din)) {
        convolve_bwd_data(din, din_mode, dpre, weight, p);
    }
    if (tensor_wanted(dresidual)) {
        const int64_t count = tensor_count(dout);
        for (int64_t i = 0; i < count; i++) {
            put_mode(dresidual, i, masked(dout, out, i, p), dresidual_mode);
        }
    }
    return STATUS_OK;
}
