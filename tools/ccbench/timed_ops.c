/*
 * One wrapper per operator, all of one form: clock, the real operator, sync, clock.
 */
#include "tools/ccbench/timed_ops.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/device_loss.h"

static struct {
    const struct ops *real;
    struct ops table;
    const struct device_losses *real_losses; /* NULL: the device has none */
    struct device_losses losses;
    struct op_time times[TIMED_MAX_OPS];
    size_t count;
    struct timed_convolution convolutions[TIMED_MAX_CONVOLUTIONS];
    size_t convolution_count;
} timed;

static enum status finish(struct device *dev,
                          const char *name,
                          int64_t start_ns,
                          double flops,
                          double bytes,
                          enum status s) {
    if (s == STATUS_OK) {
        s = timed.real->sync(dev, NULL);
    }
    const int64_t ns = clock_now_ns() - start_ns;
    size_t i = 0;
    while (i < timed.count && timed.times[i].name != name) {
        i++;
    }
    if (i == timed.count) {
        if (i == TIMED_MAX_OPS) {
            return s;
        }
        timed.times[i] = (struct op_time){.name = name};
        timed.count++;
    }
    timed.times[i].calls++;
    timed.times[i].ns += ns;
    timed.times[i].flops += flops;
    timed.times[i].bytes += bytes;
    return s;
}

static double count(const struct tensor *t) {
    return (double)tensor_count(t);
}

static bool wanted(const struct tensor *t) {
    return t->data != NULL;
}

/* Bytes of all that are wanted. */
static double moved(const struct tensor *const *list) {
    double bytes = 0.0;
    for (; *list != NULL; list++) {
        bytes += wanted(*list) ? (double)tensor_size_bytes(*list) : 0.0;
    }
    return bytes;
}
#define MOVED(...) moved((const struct tensor *const[]){__VA_ARGS__, NULL})

static double conv_flops(const struct tensor *pre, const struct tensor *weight) {
    return 2.0 * count(pre) * count(weight) / (double)weight->shape[0];
}

static void note_convolution(const struct tensor *pre,
                             const struct tensor *in,
                             const struct tensor *weight,
                             const struct conv_bn_params *p,
                             bool backward,
                             bool data) {
    if (timed.convolution_count == TIMED_MAX_CONVOLUTIONS) {
        return;
    }
    timed.convolutions[timed.convolution_count++] =
        (struct timed_convolution){.n = in->shape[0],
                                   .h = in->shape[1],
                                   .w = in->shape[2],
                                   .in = in->shape[3],
                                   .out = weight->shape[0],
                                   .kernel = weight->shape[1],
                                   .stride = p->stride,
                                   .pad = p->pad,
                                   .out_h = pre->shape[1],
                                   .out_w = pre->shape[2],
                                   .dtype = in->dtype,
                                   .backward = backward,
                                   .data = data};
}

/* The fixed name of a wrapper is also what its times are found by. */
#define TIMED(name, parameters, arguments, flops, bytes)                                           \
    static enum status timed_##name parameters {                                                   \
        static const char own[] = #name;                                                           \
        const int64_t start_ns = clock_now_ns();                                                   \
        const enum status s = timed.real->name arguments;                                          \
        return finish(dev, own, start_ns, flops, bytes, s);                                        \
    }

/* What operators take, in one word: the lists below are long enough. */
#define view const struct tensor

TIMED(fill,
      (struct device * dev, view *out, double value, struct error *err),
      (dev, out, value, err),
      0.0,
      MOVED(out))
TIMED(cast,
      (struct device * dev, view *out, view *in, struct error *err),
      (dev, out, in, err),
      0.0,
      MOVED(out, in))
TIMED(upload,
      (struct device * dev, void *dst, const void *host, size_t size, struct error *err),
      (dev, dst, host, size, err),
      0.0,
      (double)size)
TIMED(download,
      (struct device * dev, void *host, const void *src, size_t size, struct error *err),
      (dev, host, src, size, err),
      0.0,
      (double)size)
TIMED(normalize_u8,
      (struct device * dev,
       view *out,
       view *in,
       const float mean[3],
       const float std[3],
       struct error *err),
      (dev, out, in, mean, std, err),
      0.0,
      MOVED(out, in))

static enum status timed_conv_bn(struct device *dev,
                                 view *out,
                                 view *pre,
                                 view *mean,
                                 view *rstd,
                                 view *running_mean,
                                 view *running_var,
                                 view *in,
                                 view *weight,
                                 view *gamma,
                                 view *beta,
                                 view *residual,
                                 const struct conv_bn_params *p,
                                 struct error *err) {
    static const char own[] = "conv_bn";
    const int64_t start_ns = clock_now_ns();
    const enum status s = timed.real->conv_bn(dev, out, pre, mean, rstd, running_mean, running_var,
                                              in, weight, gamma, beta, residual, p, err);
    note_convolution(pre, in, weight, p, false, false);
    return finish(dev, own, start_ns, conv_flops(pre, weight),
                  MOVED(out, pre, in, weight, residual), s);
}

static enum status timed_conv_bn_bwd(struct device *dev,
                                     view *din,
                                     enum write_mode din_mode,
                                     view *dresidual,
                                     enum write_mode dresidual_mode,
                                     view *dweight,
                                     view *dgamma,
                                     view *dbeta,
                                     enum write_mode param_mode,
                                     view *dpre,
                                     view *dout,
                                     view *out,
                                     view *pre,
                                     view *mean,
                                     view *rstd,
                                     view *in,
                                     view *weight,
                                     view *gamma,
                                     const struct conv_bn_params *p,
                                     struct error *err) {
    static const char own[] = "conv_bn_bwd";
    const int64_t start_ns = clock_now_ns();
    const enum status s = timed.real->conv_bn_bwd(dev, din, din_mode, dresidual, dresidual_mode,
                                                  dweight, dgamma, dbeta, param_mode, dpre, dout,
                                                  out, pre, mean, rstd, in, weight, gamma, p, err);
    note_convolution(pre, in, weight, p, true, wanted(din));
    return finish(dev, own, start_ns, (wanted(din) ? 2.0 : 1.0) * conv_flops(pre, weight),
                  MOVED(din, dresidual, dweight, dpre, dout, out, pre, in, weight), s);
}

TIMED(maxpool,
      (struct device * dev,
       view *out,
       view *argmax,
       view *in,
       const struct pool_params *p,
       struct error *err),
      (dev, out, argmax, in, p, err),
      0.0,
      MOVED(out, argmax, in))
TIMED(maxpool_bwd,
      (struct device * dev,
       view *din,
       enum write_mode mode,
       view *dout,
       view *argmax,
       const struct pool_params *p,
       struct error *err),
      (dev, din, mode, dout, argmax, p, err),
      0.0,
      MOVED(din, dout, argmax))
TIMED(avgpool,
      (struct device * dev, view *out, view *in, const struct pool_params *p, struct error *err),
      (dev, out, in, p, err),
      0.0,
      MOVED(out, in))
TIMED(avgpool_bwd,
      (struct device * dev,
       view *din,
       enum write_mode mode,
       view *dout,
       const struct pool_params *p,
       struct error *err),
      (dev, din, mode, dout, p, err),
      0.0,
      MOVED(din, dout))
TIMED(global_avgpool,
      (struct device * dev, view *out, view *in, struct error *err),
      (dev, out, in, err),
      0.0,
      MOVED(out, in))
TIMED(global_avgpool_bwd,
      (struct device * dev, view *din, enum write_mode mode, view *dout, struct error *err),
      (dev, din, mode, dout, err),
      0.0,
      MOVED(din, dout))
TIMED(linear,
      (struct device * dev,
       view *out,
       view *pre,
       view *in,
       view *weight,
       view *bias,
       enum activation act,
       struct error *err),
      (dev, out, pre, in, weight, bias, act, err),
      2.0 * count(in) * (double)weight->shape[0],
      MOVED(out, pre, in, weight, bias))
TIMED(linear_bwd,
      (struct device * dev,
       view *din,
       enum write_mode din_mode,
       view *dweight,
       view *dbias,
       enum write_mode param_mode,
       view *dpre,
       view *dout,
       view *in,
       view *weight,
       view *pre,
       enum activation act,
       struct error *err),
      (dev, din, din_mode, dweight, dbias, param_mode, dpre, dout, in, weight, pre, act, err),
      (wanted(din) ? 4.0 : 2.0) * count(in) * (double)weight->shape[0],
      MOVED(din, dweight, dbias, dpre, dout, in, weight, pre))
TIMED(matmul,
      (struct device * dev,
       view *out,
       enum write_mode mode,
       view *a,
       bool transpose_a,
       view *b,
       bool transpose_b,
       float alpha,
       struct error *err),
      (dev, out, mode, a, transpose_a, b, transpose_b, alpha, err),
      2.0 * count(out) * (double)a->shape[transpose_a ? 0 : 1],
      MOVED(out, a, b))
TIMED(embedding,
      (struct device * dev,
       view *out,
       view *tokens,
       const struct segments *seg,
       view *table,
       view *positions,
       struct error *err),
      (dev, out, tokens, seg, table, positions, err),
      0.0,
      MOVED(out, out, tokens))
TIMED(embedding_bwd,
      (struct device * dev,
       view *dtable,
       view *dpositions,
       enum write_mode mode,
       view *dout,
       view *tokens,
       const struct segments *seg,
       struct error *err),
      (dev, dtable, dpositions, mode, dout, tokens, seg, err),
      0.0,
      MOVED(dtable, dpositions, dout, tokens))
TIMED(layernorm,
      (struct device * dev,
       view *out,
       view *sum,
       view *mean,
       view *rstd,
       view *a,
       view *b,
       view *gamma,
       view *beta,
       float eps,
       struct error *err),
      (dev, out, sum, mean, rstd, a, b, gamma, beta, eps, err),
      0.0,
      MOVED(out, sum, mean, rstd, a, b, gamma, beta))
TIMED(layernorm_bwd,
      (struct device * dev,
       view *dsum,
       enum write_mode dsum_mode,
       view *dgamma,
       view *dbeta,
       enum write_mode param_mode,
       view *dout,
       view *sum,
       view *mean,
       view *rstd,
       view *gamma,
       struct error *err),
      (dev, dsum, dsum_mode, dgamma, dbeta, param_mode, dout, sum, mean, rstd, gamma, err),
      0.0,
      MOVED(dsum, dgamma, dbeta, dout, sum, mean, rstd, gamma))
/* Two products of (T, Dh) with (T, Dh) a head, all T x T; four in the backward pass. */
TIMED(attention,
      (struct device * dev,
       view *out,
       view *probs,
       view *qkv,
       const struct segments *seg,
       const struct attention_params *p,
       struct error *err),
      (dev, out, probs, qkv, seg, p, err),
      4.0 * count(probs) * (double)out->shape[1] / (double)p->heads,
      MOVED(out, probs, qkv))
TIMED(attention_bwd,
      (struct device * dev,
       view *dqkv,
       view *dout,
       view *probs,
       view *qkv,
       const struct segments *seg,
       const struct attention_params *p,
       struct error *err),
      (dev, dqkv, dout, probs, qkv, seg, p, err),
      8.0 * count(probs) * (double)dout->shape[1] / (double)p->heads,
      MOVED(dqkv, dout, probs, qkv))
TIMED(dropout,
      (struct device * dev,
       view *out,
       view *in,
       const struct segments *seg,
       const struct dropout_params *p,
       struct error *err),
      (dev, out, in, seg, p, err),
      0.0,
      MOVED(out, in))
TIMED(segment_mean,
      (struct device * dev, view *out, view *in, const struct segments *seg, struct error *err),
      (dev, out, in, seg, err),
      0.0,
      MOVED(out, in))
TIMED(segment_mean_bwd,
      (struct device * dev,
       view *din,
       enum write_mode mode,
       view *dout,
       const struct segments *seg,
       struct error *err),
      (dev, din, mode, dout, seg, err),
      0.0,
      MOVED(din, dout))
TIMED(gather_rows,
      (struct device * dev, view *out, view *in, view *rows, struct error *err),
      (dev, out, in, rows, err),
      0.0,
      MOVED(out, out, rows))
TIMED(
    scatter_rows,
    (struct device * dev, view *out, enum write_mode mode, view *in, view *rows, struct error *err),
    (dev, out, mode, in, rows, err),
    0.0,
    MOVED(in, in, rows))
TIMED(l2_normalize,
      (struct device * dev, view *out, view *norm, view *in, struct error *err),
      (dev, out, norm, in, err),
      0.0,
      MOVED(out, norm, in))
TIMED(l2_normalize_bwd,
      (struct device * dev, view *din, view *dout, view *out, view *norm, struct error *err),
      (dev, din, dout, out, norm, err),
      0.0,
      MOVED(din, dout, out, norm))
TIMED(add,
      (struct device * dev, view *out, view *in, float alpha, struct error *err),
      (dev, out, in, alpha, err),
      0.0,
      MOVED(out, out, in))
TIMED(sum_squares,
      (struct device * dev, double *out, view *in, struct error *err),
      (dev, out, in, err),
      2.0 * count(in),
      MOVED(in))
TIMED(grad_scale,
      (struct device * dev,
       struct step_values *values,
       int32_t sums,
       double clip_norm,
       struct error *err),
      (dev, values, sums, clip_norm, err),
      0.0,
      0.0)
TIMED(adamw,
      (struct device * dev,
       view *value,
       view *working,
       view *grad,
       view *m,
       view *v,
       const struct adamw_params *p,
       struct error *err),
      (dev, value, working, grad, m, v, p, err),
      0.0,
      MOVED(value, value, working, grad, m, m, v, v))
TIMED(sgdm,
      (struct device * dev,
       view *value,
       view *working,
       view *grad,
       view *m,
       const struct sgdm_params *p,
       struct error *err),
      (dev, value, working, grad, m, p, err),
      0.0,
      MOVED(value, value, working, grad, m, m))

/* All launches of a step of a loss on the device. S and G are read or written once each; entries of
 * the samples' state, read and written, are not counted. */
static enum status timed_loss(struct device *dev, const struct device_loss *l, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    const double rows = (l->views ? 2.0 : 1.0) * (double)l->batch_count;
    const double matrices = l->image_similarity != NULL ? 3.0 : 1.0;
    const enum status s = timed.real_losses->step(dev, l, err);
    return finish(dev, "loss", start_ns, 0.0, 2.0 * matrices * rows * rows * sizeof(float), s);
}

void timed_ops_install(struct device *dev) {
    memset(&timed, 0, sizeof timed);
    timed.real_losses = dev->losses;
    if (dev->losses != NULL) {
        timed.losses = *dev->losses;
        timed.losses.step = timed_loss;
        dev->losses = &timed.losses;
    }
    timed.real = dev->ops;
    timed.table = *dev->ops;
#define USE(name) timed.table.name = timed_##name
    USE(fill);
    USE(cast);
    USE(upload);
    USE(download);
    USE(normalize_u8);
    USE(conv_bn);
    USE(conv_bn_bwd);
    USE(maxpool);
    USE(maxpool_bwd);
    USE(avgpool);
    USE(avgpool_bwd);
    USE(global_avgpool);
    USE(global_avgpool_bwd);
    USE(linear);
    USE(linear_bwd);
    USE(matmul);
    USE(embedding);
    USE(embedding_bwd);
    USE(layernorm);
    USE(layernorm_bwd);
    USE(attention);
    USE(attention_bwd);
    USE(dropout);
    USE(segment_mean);
    USE(segment_mean_bwd);
    USE(gather_rows);
    USE(scatter_rows);
    USE(l2_normalize);
    USE(l2_normalize_bwd);
    USE(add);
    USE(sum_squares);
    USE(grad_scale);
    USE(adamw);
    USE(sgdm);
    dev->ops = &timed.table;
}

void timed_ops_remove(struct device *dev) {
    dev->ops = timed.real;
    dev->losses = timed.real_losses;
}

static int by_time(const void *a, const void *b) {
    const int64_t x = ((const struct op_time *)a)->ns;
    const int64_t y = ((const struct op_time *)b)->ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

size_t timed_ops_times(struct op_time out[TIMED_MAX_OPS]) {
    memcpy(out, timed.times, timed.count * sizeof *out);
    qsort(out, timed.count, sizeof *out, by_time);
    return timed.count;
}

size_t timed_ops_convolutions(const struct timed_convolution **out) {
    *out = timed.convolutions;
    return timed.convolution_count;
}
