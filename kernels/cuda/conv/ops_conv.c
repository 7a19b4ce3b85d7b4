/*
 * ops_conv: convolution with batch norm, residual and ReLU, and the way back. Each arrow is one
 * pass over activations:
 *
 *     forward    in --convolution--> pre --statistics--> mean, rstd;  pre --apply--> out
 *     backward   dout, out, pre --sums--> dgamma, dbeta;  dout, out, pre --apply--> dpre, dresidual
 *                dpre, in --convolution--> dweight;  dpre, weight --convolution--> din
 *
 * cuDNN runs the convolutions. A 1x1 convolution in a half type can also run on our own products
 * (conv_1x1.cu): they make an in that was left to them while they read, take the statistics, and
 * with a handoff the sums of the unit before, while they write; they add to din, and write dweight
 * in f32. In fp16 cuDNN has plans that take the same sums (conv_fused.c). conv_variant.c says which
 * runs. Where cuDNN has no engine for a shape, the plain kernels of conv_direct.cu do the work.
 *
 * A din that is added is added by the convolution (cuDNN's beta); where cuDNN has no engine for
 * that, and for dweight, the gradient is computed beside and added after.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv/conv_fused_internal.h"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/conv/conv_variant_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

static struct conv_problem problem_of(enum conv_pass pass,
                                      const struct tensor *in,
                                      const struct tensor *weight,
                                      const struct tensor *pre,
                                      const struct conv_bn_params *p) {
    return (struct conv_problem){.pass = pass,
                                 .dtype = in->dtype,
                                 .n = in->shape[0],
                                 .h = in->shape[1],
                                 .w = in->shape[2],
                                 .c = in->shape[3],
                                 .k = weight->shape[0],
                                 .r = weight->shape[1],
                                 .s = weight->shape[2],
                                 .oh = pre->shape[1],
                                 .ow = pre->shape[2],
                                 .stride = p->stride,
                                 .pad = p->pad};
}

/* cuDNN, or the plain kernels where it has nothing. */
static enum status convolve(struct cuda_device *dev,
                            const struct conv_problem *p,
                            void *x,
                            void *w,
                            void *y,
                            struct error *err) {
    struct error why = {0};
    const enum status s = conv_run(dev, p, x, w, y, &why);
    if (s != STATUS_UNSUPPORTED) {
        return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
    }
    return launched(dev, launch_conv_direct(dev->stream, p, x, w, y), "conv_direct", err);
}

/* What takes a problem that our own products fit. */
static conv_variants own_takers(const struct cuda_device *dev, bool fits) {
    return conv_variant_bit(VARIANT_OWN, fits) |
           conv_variant_bit(VARIANT_WGMMA, fits && conv_1x1_has_wgmma(dev->sm));
}

/* ---- forward: pre, and in training mean and rstd from it ---- */

struct forward {
    struct conv_problem problem;
    const struct tensor *in, *weight, *pre, *mean, *rstd, *running_mean, *running_var;
    const struct conv_bn_params *params;
};

static struct launch_norm norm_of(const struct conv_bn_deferral *d) {
    return (struct launch_norm){d->mean, d->rstd, d->gamma, d->beta};
}

/* An in that was left unwritten: the pass that writes it. */
static enum status take_in(struct cuda_device *dev, const struct forward *f, struct error *err) {
    struct conv_bn_deferral *take = f->params->take_in;
    if (take == NULL || !take->given) {
        return STATUS_OK;
    }
    const struct launch_norm norm = norm_of(take);
    const int64_t channels = f->in->shape[3];
    take->given = false;
    return launched(dev,
                    launch_batch_norm_apply(dev->stream, f->in->dtype, f->in->data, take->pre.data,
                                            &norm, NULL, NULL, take->act,
                                            tensor_count(f->in) / channels, channels),
                    "batch_norm_apply", err);
}

/* Whether the convolution itself writes it. */
static bool takes_in(const struct forward *f, enum conv_variant variant, struct launch_take *out) {
    const struct conv_bn_deferral *take = f->params->take_in;
    if (take == NULL || !take->given || (variant != VARIANT_OWN && variant != VARIANT_WGMMA)) {
        return false;
    }
    *out = (struct launch_take){take->pre.data, norm_of(take), take->act};
    return conv_1x1_take_fits(&f->problem, out);
}

/* The pass over what a convolution wrote. */
static enum status statistics(struct cuda_device *dev, const struct forward *f, struct error *err) {
    const int64_t channels = f->pre->shape[3];
    const int64_t rows = tensor_count(f->pre) / channels;
    const bool moves = tensor_wanted(f->running_mean);
    void *work;
    TRY(cuda_workspace(dev, launch_batch_norm_statistics_workspace_bytes(rows, channels), &work,
                       err));
    return launched(dev,
                    launch_batch_norm_statistics(
                        dev->stream, f->pre->dtype, f->mean->data, f->rstd->data,
                        moves ? f->running_mean->data : NULL, moves ? f->running_var->data : NULL,
                        f->pre->data, rows, channels, f->params->eps, f->params->momentum, work),
                    "batch_norm_statistics", err);
}

static enum status
forward_library(struct cuda_device *dev, const struct forward *f, struct error *err) {
    TRY(convolve(dev, &f->problem, f->in->data, f->weight->data, f->pre->data, err));
    return f->params->training ? statistics(dev, f, err) : STATUS_OK;
}

static enum status
forward_fused(struct cuda_device *dev, const struct forward *f, struct error *err) {
    const int64_t channels = f->pre->shape[3];
    const bool moves = tensor_wanted(f->running_mean);
    void *sums;
    TRY(cuda_workspace(dev, 2 * (size_t)channels * sizeof(float), &sums, err));
    TRY(conv_fused_statistics(dev, &f->problem, f->in->data, f->weight->data, f->pre->data, sums,
                              err));
    return launched(dev,
                    launch_batch_norm_statistics_sums(dev->stream, f->mean->data, f->rstd->data,
                                                      moves ? f->running_mean->data : NULL,
                                                      moves ? f->running_var->data : NULL, sums,
                                                      tensor_count(f->pre) / channels, channels,
                                                      f->params->eps, f->params->momentum),
                    "batch_norm_statistics_sums", err);
}

static enum status forward_own(struct cuda_device *dev,
                               enum conv_variant variant,
                               const struct forward *f,
                               struct error *err) {
    const int64_t channels = f->pre->shape[3];
    const struct conv_1x1_chunks chunks = conv_1x1_chunks_of(&f->problem);
    const bool moves = tensor_wanted(f->running_mean);
    void *partials = NULL;
    struct launch_take take;
    const bool takes = takes_in(f, variant, &take);
    if (f->params->training) {
        TRY(cuda_workspace(dev, conv_1x1_partials_bytes(&f->problem), &partials, err));
    }
    TRY(launched(dev,
                 launch_conv_1x1_forward(dev->stream, variant, &f->problem, f->pre->data,
                                         f->in->data, takes ? &take : NULL, f->weight->data,
                                         partials),
                 "conv_1x1_forward", err));
    if (takes) {
        f->params->take_in->given = false;
    }
    if (!f->params->training) {
        return STATUS_OK;
    }
    return launched(dev,
                    launch_batch_norm_statistics_merge(
                        dev->stream, f->pre->dtype, f->mean->data, f->rstd->data,
                        moves ? f->running_mean->data : NULL, moves ? f->running_var->data : NULL,
                        f->pre->data, tensor_count(f->pre) / channels, channels, f->params->eps,
                        f->params->momentum, partials, chunks.rows_per_chunk, chunks.count),
                    "batch_norm_statistics_merge", err);
}

static enum status forward_variant(struct cuda_device *dev,
                                   enum conv_variant variant,
                                   const void *cookie,
                                   struct error *err) {
    return variant == VARIANT_FUSED     ? forward_fused(dev, cookie, err)
           : variant == VARIANT_LIBRARY ? forward_library(dev, cookie, err)
                                        : forward_own(dev, variant, cookie, err);
}

static enum status forward(struct cuda_device *dev, const struct forward *f, struct error *err) {
    static const struct tensor none = {0};
    struct forward trial = *f; /* which moves no running statistics */
    enum conv_variant variant;
    trial.running_mean = &none;
    trial.running_var = &none;
    const conv_variants takers =
        own_takers(dev, conv_1x1_fits(&f->problem, f->in->data, f->weight->data, f->pre->data)) |
        conv_variant_bit(VARIANT_FUSED,
                         f->params->training && conv_fused_statistics_fits(&f->problem));
    const bool training = f->params->training;
    const char *const form = training ? "statistics" : "inference";
    if (conv_variant_to_time(dev, &f->problem, form, takers)) { /* each from an in as it is */
        TRY(take_in(dev, f, err));
    }
    const struct conv_variant_trial compared = {.run = forward_variant,
                                                .cookie = &trial,
                                                .outputs = {{.name = "the result",
                                                             .data = f->pre->data,
                                                             .dtype = f->pre->dtype,
                                                             .count = tensor_count(f->pre)},
                                                            {.name = "the mean",
                                                             .data = f->mean->data,
                                                             .dtype = DTYPE_F32,
                                                             .count = f->pre->shape[3]},
                                                            {.name = "the deviation",
                                                             .data = f->rstd->data,
                                                             .dtype = DTYPE_F32,
                                                             .count = f->pre->shape[3]}},
                                                .outputs_count = training ? 3 : 1};
    TRY(conv_variant_choose(dev, &variant, &f->problem, form, takers, &compared, err));
    struct launch_take take;
    if (!takes_in(f, variant, &take)) {
        TRY(take_in(dev, f, err));
    }
    struct error why = {0};
    enum status s = forward_variant(dev, variant, f, &why);
    if (s == STATUS_UNSUPPORTED && variant == VARIANT_FUSED) { /* a choice of another time */
        s = forward_library(dev, f, &why);
    }
    if (s != STATUS_OK) {
        return error_set(err, s, "%s", why.text);
    }
    return f->params->training
               ? STATUS_OK
               : launched(dev,
                          launch_batch_norm_running(dev->stream, f->mean->data, f->rstd->data,
                                                    f->running_mean->data, f->running_var->data,
                                                    f->pre->shape[3], f->params->eps),
                          "batch_norm_running", err);
}

/* out from pre, and from a residual that may be left to this. */
static enum status apply(struct cuda_device *dev,
                         const struct tensor *out,
                         const struct tensor *pre,
                         const struct launch_norm *norm,
                         const struct tensor *residual,
                         const struct conv_bn_params *p,
                         struct error *err) {
    struct conv_bn_deferral *take = p->take_residual;
    const bool taken = take != NULL && take->given;
    const struct launch_norm residual_norm = taken ? norm_of(take) : *norm;
    const void *added = taken ? take->pre.data : tensor_wanted(residual) ? residual->data : NULL;
    const int64_t channels = pre->shape[3];
    if (taken) {
        take->given = false;
    }
    return launched(dev,
                    launch_batch_norm_apply(dev->stream, pre->dtype, out->data, pre->data, norm,
                                            added, taken ? &residual_norm : NULL, p->act,
                                            tensor_count(pre) / channels, channels),
                    "batch_norm_apply", err);
}

static enum status cuda_conv_bn(struct device *device,
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
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("conv_bn", in, err));
    TRY(check_conv_bn(out, pre, mean, rstd, running_mean, running_var, in, weight, gamma, beta,
                      residual, p, err));
    const struct forward f = {problem_of(CONV_FORWARD, in, weight, pre, p),
                              in,
                              weight,
                              pre,
                              mean,
                              rstd,
                              running_mean,
                              running_var,
                              p};
    TRY(forward(dev, &f, err));
    const struct launch_norm norm = {mean->data, rstd->data, gamma->data, beta->data};
    if (p->defer != NULL) {
        *p->defer = (struct conv_bn_deferral){.given = true,
                                              .pre = *pre,
                                              .mean = norm.mean,
                                              .rstd = norm.rstd,
                                              .gamma = norm.gamma,
                                              .beta = norm.beta,
                                              .act = p->act};
        return STATUS_OK;
    }
    return apply(dev, out, pre, &norm, residual, p, err);
}

/* ---- backward: a gradient of the convolution, `to` = or += ---- */

struct gradient {
    struct conv_problem problem;
    void *to;
    int64_t count; /* its elements */
    enum dtype dtype;
    bool add;
    const struct tensor *in, *weight, *pre, *dpre;
    struct conv_bn_handoff *give; /* of the data gradient; NULL: none */
    float *total;                 /* of a trial: the sums that are given, added up */
};

static size_t gradient_bytes(const struct gradient *g) {
    return (size_t)g->count * dtype_size_bytes(g->dtype);
}

/* What the taker of din would do, that other variants do while they write: for a fair timing, and
 * to compare. */
static enum status sums_of_taker(struct cuda_device *dev,
                                 const struct gradient *g,
                                 int32_t *count,
                                 struct error *err) {
    const struct tensor *pre = g->give->pre;
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    void *sums;
    TRY(cuda_scratch(dev, SCRATCH_HANDOFF, launch_batch_norm_bwd_sums_bytes(rows, channels), &sums,
                     err));
    return launched(dev,
                    launch_batch_norm_bwd_sums(dev->stream, pre->dtype, sums, count, g->to,
                                               g->in->data, pre->data, g->give->mean->data,
                                               g->give->rstd->data, g->give->act, rows, channels),
                    "batch_norm_bwd_sums", err);
}

static enum status
data_library(struct cuda_device *dev, const struct gradient *g, struct error *err) {
    void *sum = g->to;
    if (g->add) {
        struct conv_problem adding = g->problem;
        struct error why = {0};
        adding.add = true;
        const enum status s = conv_run(dev, &adding, g->to, g->weight->data, g->dpre->data, &why);
        if (s != STATUS_UNSUPPORTED) {
            return s == STATUS_OK ? s : error_set(err, s, "%s", why.text);
        }
        TRY(cuda_scratch(dev, SCRATCH_SUM, gradient_bytes(g), &sum, err));
    }
    TRY(convolve(dev, &g->problem, sum, g->weight->data, g->dpre->data, err));
    return g->add
               ? launched(dev,
                          launch_add(dev->stream, g->dtype, g->to, g->dtype, sum, g->count, 1.0f),
                          "add", err)
               : STATUS_OK;
}

static enum status data_own(struct cuda_device *dev,
                            enum conv_variant variant,
                            const struct gradient *g,
                            struct error *err) {
    struct launch_handoff handoff = {0};
    void *partials = NULL;
    if (g->give != NULL) {
        handoff =
            (struct launch_handoff){.out = g->give->act == ACTIVATION_RELU ? g->in->data : NULL,
                                    .pre = g->give->pre->data,
                                    .mean = g->give->mean->data,
                                    .rstd = g->give->rstd->data};
        TRY(cuda_scratch(dev, SCRATCH_HANDOFF, conv_1x1_partials_bytes(&g->problem), &partials,
                         err));
    }
    return launched(dev,
                    launch_conv_1x1_data(dev->stream, variant, &g->problem, g->to, g->add,
                                         g->dpre->data, g->weight->data,
                                         g->give != NULL ? &handoff : NULL, partials),
                    "conv_1x1_data", err);
}

static enum status
data_fused(struct cuda_device *dev, const struct gradient *g, struct error *err) {
    struct conv_problem p = g->problem;
    p.add = g->add;
    return conv_fused_handover(dev, &p, g->to, g->weight->data, g->dpre->data, g->give, g->in->data,
                               err);
}

/* cuDNN 9 has no engine that writes f32 from a half type, so there the sum is rounded once, as in
 * other frameworks, and widened. */
static enum status
weight_library(struct cuda_device *dev, const struct gradient *g, struct error *err) {
    const enum dtype narrow = g->problem.dtype;
    void *sum = g->to;
    if (g->add || dtype_is_half(narrow)) {
        TRY(cuda_scratch(dev, SCRATCH_SUM, (size_t)g->count * dtype_size_bytes(narrow), &sum, err));
    }
    TRY(convolve(dev, &g->problem, g->in->data, sum, g->dpre->data, err));
    if (g->add) {
        return launched(dev, launch_add(dev->stream, DTYPE_F32, g->to, narrow, sum, g->count, 1.0f),
                        "add", err);
    }
    return sum == g->to
               ? STATUS_OK
               : launched(dev, launch_cast(dev->stream, DTYPE_F32, g->to, narrow, sum, g->count),
                          "cast", err);
}

static enum status weight_own(struct cuda_device *dev,
                              enum conv_variant variant,
                              const struct gradient *g,
                              struct error *err) {
    void *work;
    TRY(cuda_workspace(dev, launch_conv_1x1_weight_workspace_bytes(&g->problem), &work, err));
    return launched(dev,
                    launch_conv_1x1_weight(dev->stream, variant, &g->problem, g->to, g->add,
                                           g->dpre->data, g->in->data, work),
                    "conv_1x1_weight", err);
}

static enum status gradient_variant(struct cuda_device *dev,
                                    enum conv_variant variant,
                                    const void *cookie,
                                    struct error *err) {
    const struct gradient *g = cookie;
    if (g->problem.pass == CONV_WEIGHT) {
        return variant == VARIANT_LIBRARY ? weight_library(dev, g, err)
                                          : weight_own(dev, variant, g, err);
    }
    return variant == VARIANT_FUSED     ? data_fused(dev, g, err)
           : variant == VARIANT_LIBRARY ? data_library(dev, g, err)
                                        : data_own(dev, variant, g, err);
}

static enum status gradient_trial(struct cuda_device *dev,
                                  enum conv_variant variant,
                                  const void *cookie,
                                  struct error *err) {
    const struct gradient *g = cookie;
    int32_t count = variant == VARIANT_FUSED ? 1 : conv_1x1_chunks_of(&g->problem).count;
    TRY(gradient_variant(dev, variant, g, err));
    if (g->give == NULL) {
        return STATUS_OK;
    }
    if (variant == VARIANT_LIBRARY) {
        TRY(sums_of_taker(dev, g, &count, err));
    }
    return launched(dev,
                    launch_conv_1x1_total(dev->stream, g->total, dev->scratch[SCRATCH_HANDOFF].data,
                                          2 * g->give->pre->shape[3], count),
                    "conv_1x1_total", err);
}

/* Trials write beside what is added to. In place of dpre, which may be all zeros (a batch norm that
 * begins as zero makes it so), they read pre. */
static enum status choose_by_trial(struct cuda_device *dev,
                                   enum conv_variant *out,
                                   struct gradient *g,
                                   const char *form,
                                   conv_variants takers,
                                   struct error *err) {
    const int64_t sums_count = g->give != NULL ? 2 * g->give->pre->shape[3] : 0;
    const bool masked = g->give != NULL && g->give->act == ACTIVATION_RELU;
    const void *before = g->add ? g->to : NULL;
    g->dpre = g->pre;
    if (g->add) {
        TRY(cuda_memory(dev, gradient_bytes(g), &g->to, err));
    }
    enum status s = g->give != NULL ? cuda_memory(dev, (size_t)sums_count * sizeof(float),
                                                  (void **)&g->total, err)
                                    : STATUS_OK;
    const struct conv_variant_trial trial = {.run = gradient_trial,
                                             .cookie = g,
                                             .outputs = {{.name = "the gradient",
                                                          .data = g->to,
                                                          .dtype = g->dtype,
                                                          .count = g->count,
                                                          .mask = masked ? g->in->data : NULL,
                                                          .before = before},
                                                         {.name = "its sums",
                                                          .data = g->total,
                                                          .dtype = DTYPE_F32,
                                                          .count = sums_count}},
                                             .outputs_count = g->give != NULL ? 2 : 1};
    if (s == STATUS_OK) {
        s = conv_variant_choose(dev, out, &g->problem, form, takers, &trial, err);
    }
    (void)cudaFree(g->total);
    (void)cudaFree(g->add ? g->to : NULL);
    return s;
}

static enum status choose_gradient(struct cuda_device *dev,
                                   enum conv_variant *out,
                                   const struct gradient *g,
                                   const char *form,
                                   conv_variants takers,
                                   struct error *err) {
    *out = VARIANT_LIBRARY;
    if (!conv_variant_to_time(dev, &g->problem, form, takers)) {
        return conv_variant_choose(dev, out, &g->problem, form, takers, NULL, err);
    }
    struct gradient trial = *g;
    return choose_by_trial(dev, out, &trial, form, takers, err);
}

static enum status weight_gradient(struct cuda_device *dev,
                                   const struct tensor *dweight,
                                   enum write_mode mode,
                                   const struct tensor *pre,
                                   const struct tensor *dpre,
                                   const struct tensor *in,
                                   const struct conv_bn_params *params,
                                   struct error *err) {
    enum conv_variant variant;
    const struct gradient g = {.problem = problem_of(CONV_WEIGHT, in, dweight, dpre, params),
                               .to = dweight->data,
                               .count = tensor_count(dweight),
                               .dtype = dweight->dtype,
                               .add = mode == WRITE_ADD,
                               .in = in,
                               .pre = pre,
                               .dpre = dpre};
    const conv_variants takers =
        own_takers(dev, conv_1x1_fits(&g.problem, in->data, dweight->data, dpre->data));
    TRY(choose_gradient(dev, &variant, &g, g.add ? "added" : "set", takers, err));
    return gradient_variant(dev, variant, &g, err);
}

static enum status data_gradient(struct cuda_device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *pre,
                                 const struct tensor *dpre,
                                 const struct tensor *in,
                                 const struct tensor *weight,
                                 const struct conv_bn_params *params,
                                 struct error *err) {
    enum conv_variant variant;
    struct conv_bn_handoff *give = params->give;
    const struct gradient g = {.problem = problem_of(CONV_DATA, din, weight, dpre, params),
                               .to = din->data,
                               .count = tensor_count(din),
                               .dtype = din->dtype,
                               .add = mode == WRITE_ADD,
                               .in = in,
                               .weight = weight,
                               .pre = pre,
                               .dpre = dpre,
                               .give = give};
    const char *const form = g.add          ? give != NULL ? "added,given" : "added"
                             : give != NULL ? "set,given"
                                            : "set";
    const bool fits = conv_1x1_fits(&g.problem, din->data, weight->data, dpre->data) &&
                      (give == NULL || conv_1x1_handoff_fits(in->data, give->pre->data,
                                                             give->mean->data, give->rstd->data));
    const bool fused = give != NULL && conv_fused_handover_fits(&g.problem, give, in->data);
    TRY(choose_gradient(dev, &variant, &g, form,
                        own_takers(dev, fits) | conv_variant_bit(VARIANT_FUSED, fused), err));
    struct error why = {0};
    enum status s = gradient_variant(dev, variant, &g, &why);
    if (s == STATUS_UNSUPPORTED && variant == VARIANT_FUSED) { /* a choice of another time */
        variant = VARIANT_LIBRARY;
        s = data_library(dev, &g, &why);
    }
    if (s != STATUS_OK) {
        return error_set(err, s, "%s", why.text);
    }
    if (give != NULL) {
        give->given = variant != VARIANT_LIBRARY;
        give->sums_count = variant == VARIANT_FUSED ? 1
                           : give->given            ? conv_1x1_chunks_of(&g.problem).count
                                                    : 0;
    }
    return STATUS_OK;
}

/* The batch norm's part: dgamma, dbeta, dpre, dresidual. */
static enum status backward_norm(struct cuda_device *dev,
                                 const struct tensor *dresidual,
                                 enum write_mode dresidual_mode,
                                 const struct tensor *dgamma,
                                 const struct tensor *dbeta,
                                 enum write_mode param_mode,
                                 const struct tensor *dpre,
                                 const struct tensor *dout,
                                 const struct tensor *out,
                                 const struct tensor *pre,
                                 const struct tensor *mean,
                                 const struct tensor *rstd,
                                 const struct tensor *gamma,
                                 const struct conv_bn_params *p,
                                 struct error *err) {
    const int64_t channels = pre->shape[3];
    const int64_t rows = tensor_count(pre) / channels;
    const bool taken = p->take != NULL && p->take->given;
    const enum activation act = taken ? ACTIVATION_NONE : p->act;
    const size_t work_bytes = launch_batch_norm_bwd_workspace_bytes(channels);
    const size_t sums_bytes = taken ? 0 : launch_batch_norm_bwd_sums_bytes(rows, channels);
    void *work;
    float *sums = dev->scratch[SCRATCH_HANDOFF].data;
    int32_t sums_count = taken ? p->take->sums_count : 0;
    TRY(cuda_workspace(dev, work_bytes + sums_bytes, &work, err));
    if (!taken) {
        sums = (float *)((char *)work + work_bytes);
        TRY(launched(dev,
                     launch_batch_norm_bwd_sums(dev->stream, pre->dtype, sums, &sums_count,
                                                dout->data, out->data, pre->data, mean->data,
                                                rstd->data, act, rows, channels),
                     "batch_norm_bwd_sums", err));
    }
    if (p->take != NULL) {
        p->take->given = false;
    }
    return launched(dev,
                    launch_batch_norm_bwd(dev->stream, pre->dtype, dpre->data,
                                          tensor_wanted(dresidual) ? dresidual->data : NULL,
                                          dresidual_mode, dgamma->data, dbeta->data, param_mode,
                                          dout->data, out->data, pre->data, mean->data, rstd->data,
                                          gamma->data, act, rows, channels, sums, sums_count, work),
                    "batch_norm_bwd", err);
}

static enum status cuda_conv_bn_bwd(struct device *device,
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
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("conv_bn_bwd", in, err));
    TRY(check_conv_bn_bwd(din, dresidual, dweight, dgamma, dbeta, dpre, dout, out, pre, mean, rstd,
                          in, weight, gamma, p, err));
    TRY(backward_norm(dev, dresidual, dresidual_mode, dgamma, dbeta, param_mode, dpre, dout, out,
                      pre, mean, rstd, gamma, p, err));
    TRY(weight_gradient(dev, dweight, param_mode, pre, dpre, in, p, err));
    return tensor_wanted(din) ? data_gradient(dev, din, din_mode, pre, dpre, in, weight, p, err)
                              : STATUS_OK;
}

void cuda_put_conv(struct ops *t) {
    t->conv_bn = cuda_conv_bn;
    t->conv_bn_bwd = cuda_conv_bn_bwd;
}
