/*
 * conv_gn: pre = conv(in, weight); out = act((pre - mean) rstd gamma + beta + residual), statistics
 * by image and group of channels; or, without groups, out = act(pre + residual).
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

/* The elements of image n and group g: element(i) for i below count. */
struct group {
    int64_t first, channels, width, count; /* width: channels of the group */
};

static struct group group_of(const struct tensor *x, int32_t groups, int64_t n, int64_t g) {
    const int64_t channels = x->shape[3];
    const int64_t pixels = x->shape[1] * x->shape[2];
    const int64_t width = channels / groups;
    return (struct group){n * pixels * channels + g * width, channels, width, pixels * width};
}

static int64_t element(const struct group *g, int64_t i) {
    return g->first + i / g->width * g->channels + i % g->width;
}

static void statistics(const struct conv_gn *op, int64_t n, int64_t g) {
    const struct group all = group_of(&op->pre, op->groups, n, g);
    double mean = 0.0;
    double variance = 0.0;
    for (int64_t i = 0; i < all.count; i++) {
        mean += get(&op->pre, element(&all, i)) / (double)all.count;
    }
    for (int64_t i = 0; i < all.count; i++) {
        variance += pow(get(&op->pre, element(&all, i)) - mean, 2.0) / (double)all.count;
    }
    put(&op->mean, n * op->groups + g, mean);
    put(&op->rstd, n * op->groups + g, 1.0 / sqrt(variance + (double)op->eps));
}

/* Element i of out before residual and activation. */
static double normalised(const struct conv_gn *op, int64_t i) {
    if (op->groups == 0) {
        return get(&op->out, i);
    }
    const int64_t c = i % op->out.shape[3];
    const int64_t n = i / (tensor_count(&op->out) / op->out.shape[0]);
    const int64_t at = n * op->groups + c / (op->out.shape[3] / op->groups);
    return (get(&op->pre, i) - get(&op->mean, at)) * get(&op->rstd, at) * get(&op->gamma, c) +
           get(&op->beta, c);
}

enum status ref_conv_gn(struct device *dev, const struct conv_gn *op, struct error *err) {
    ref_convolve(op->groups > 0 ? &op->pre : &op->out, &op->in, &op->weight, &op->conv);
    for (int64_t i = 0; i < op->out.shape[0] * op->groups; i++) {
        statistics(op, i / op->groups, i % op->groups);
    }
    for (int64_t i = 0; i < tensor_count(&op->out); i++) {
        double y = normalised(op, i);
        if (tensor_present(&op->residual)) {
            y += get(&op->residual, i);
        }
        put(&op->out, i, op->conv.act == ACTIVATION_RELU && y < 0.0 ? 0.0 : y);
    }
    return STATUS_OK;
}

/* dy of one element: the gradient before the activation. */
static double masked(const struct conv_gn_bwd *op, int64_t i) {
    return op->conv.act == ACTIVATION_RELU && get(&op->out, i) <= 0.0 ? 0.0 : get(&op->dout, i);
}

/* With xhat = (pre - mean) rstd and h = gamma dy: dpre = rstd (h - mean h - xhat mean(h xhat)), the
 * means over image and group. */
static void spread_gradient(const struct conv_gn_bwd *op, int64_t n, int64_t g) {
    const struct group all = group_of(&op->pre, op->groups, n, g);
    const double mean = get(&op->mean, n * op->groups + g);
    const double rstd = get(&op->rstd, n * op->groups + g);
    double mean_h = 0.0;
    double mean_h_xhat = 0.0;
    for (int64_t i = 0; i < all.count; i++) {
        const int64_t e = element(&all, i);
        const double h = get(&op->gamma, e % all.channels) * masked(op, e);
        mean_h += h / (double)all.count;
        mean_h_xhat += h * (get(&op->pre, e) - mean) * rstd / (double)all.count;
    }
    for (int64_t i = 0; i < all.count; i++) {
        const int64_t e = element(&all, i);
        const double h = get(&op->gamma, e % all.channels) * masked(op, e);
        const double xhat = (get(&op->pre, e) - mean) * rstd;
        put(&op->dpre, e, rstd * (h - mean_h - xhat * mean_h_xhat));
    }
}

/* dbeta = sum dy, dgamma = sum dy xhat, of channel c */
static void vector_gradients(const struct conv_gn_bwd *op, int64_t c) {
    const int64_t channels = op->pre.shape[3];
    const int64_t image = tensor_count(&op->pre) / op->pre.shape[0];
    double sum_dy = 0.0;
    double sum_dy_xhat = 0.0;
    for (int64_t e = c; e < tensor_count(&op->pre); e += channels) {
        const int64_t at = e / image * op->groups + c / (channels / op->groups);
        const double xhat = (get(&op->pre, e) - get(&op->mean, at)) * get(&op->rstd, at);
        sum_dy += masked(op, e);
        sum_dy_xhat += masked(op, e) * xhat;
    }
    put_mode(&op->dbeta, c, sum_dy, op->param_mode);
    put_mode(&op->dgamma, c, sum_dy_xhat, op->param_mode);
}

enum status ref_conv_gn_bwd(struct device *dev, const struct conv_gn_bwd *op, struct error *err) {
    const int64_t count = tensor_count(&op->dout);
    if (op->groups == 0) {
        for (int64_t i = 0; i < count; i++) {
            put(&op->dpre, i, masked(op, i));
        }
    } else {
        for (int64_t i = 0; i < op->out.shape[0] * op->groups; i++) {
            spread_gradient(op, i / op->groups, i % op->groups);
        }
        for (int64_t c = 0; c < op->out.shape[3]; c++) {
            vector_gradients(op, c);
        }
    }
    ref_convolve_bwd_weight(&op->dweight, op->param_mode, &op->dpre, &op->in, &op->conv);
    if (tensor_present(&op->din)) {
        ref_convolve_bwd_data(&op->din, op->din_mode, &op->dpre, &op->weight, &op->conv);
    }
    for (int64_t i = 0; i < count && tensor_present(&op->dresidual); i++) {
        put(&op->dresidual, i, masked(op, i));
    }
    return STATUS_OK;
}
