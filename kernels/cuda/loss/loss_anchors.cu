/*
 * loss_anchors: one anchor of every loss except siglip and emc2: its sums of exponentials, and from
 * them the divisor of its gradient, its value and the sample's new state. Formulas and names are
 * those of train/loss/NAME.c.
 */
#include "kernels/cuda/loss/loss.cuh"

struct anchor_result {
    double log_norm, aux, diagonal, value, objective, extra;
};

/* The gradient of negatives is exp(e - log_norm) share / tau. */
static __device__ __forceinline__ struct anchor_result
softmax_anchor(const struct device_loss &l,
               const struct loss_workspace &w,
               const struct anchor_view &v) {
    const double tau = w.head->tau;
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const double log_others = log_mean(anchor_sum(l, w, v, tau, NULL), count) + log(count);
    struct anchor_result r = {};
    r.log_norm = log_add(0.0, log_others);
    r.diagonal = -exp(log_others - r.log_norm) * share / tau;
    r.value = share * r.log_norm;
    return r;
}

/* log sum of exp(factor Delta / tau) */
static __device__ __forceinline__ double log_power_sum(const struct device_loss &l,
                                                       const struct loss_workspace &w,
                                                       const struct anchor_view &v,
                                                       double factor) {
    const double count = contrasts_count(l, w.head);
    if (factor == 0.0) {
        return log(count);
    }
    const struct anchor_sums s = anchor_sum(l, w, v, l.constants.tau / factor, NULL);
    return log_mean(s, count) + log(count);
}

static __device__ __forceinline__ struct anchor_result
debiased_anchor(const struct device_loss &l,
                const struct loss_workspace &w,
                const struct anchor_view &v) {
    const double tau = l.constants.tau;
    const double tau_plus = l.constants.tau_plus;
    const double share = anchor_share(l, w.head);
    const double log_n = log(contrasts_count(l, w.head));
    const double log_importance = log_power_sum(l, w, v, l.constants.beta);
    const double log_power = log_power_sum(l, w, v, 1.0 + l.constants.beta);
    const double log_m = log_power - log_importance;
    const double log_floor = log_n - (1.0 + v.positive) / tau;
    const double log_plus = log(tau_plus); /* -inf for 0 */
    double log_g = -INFINITE;
    if (log_m > log_plus) {
        log_g = log_n + log_m + log1p(-exp(log_plus - log_m)) - log1p(-tau_plus);
    }
    struct anchor_result r = {};
    r.aux = log_m;
    if (log_g < log_floor) {
        const double value = log_add(0.0, log_floor);
        r.log_norm = INFINITE; /* only the positive has a gradient */
        r.diagonal = -share / tau * exp(log_floor - value);
        r.value = share * value;
        return r;
    }
    const double value = log_add(0.0, log_g);
    r.log_norm = log_importance + value + log1p(-tau_plus) - log_n;
    /* sum of (1 + beta) e^{(1 + beta) d - log_norm} - beta e^{beta d + log_m - log_norm} */
    r.diagonal = -share / tau * exp(log_power - r.log_norm);
    r.value = share * value;
    return r;
}

static __device__ __forceinline__ struct anchor_result rince_anchor(const struct device_loss &l,
                                                                    const struct loss_workspace &w,
                                                                    const struct anchor_view &v) {
    const struct device_loss_constants &o = l.constants;
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const double own = v.positive / o.tau;
    const double log_others = log_mean(anchor_sum(l, w, v, o.tau, NULL), count) + log(count);
    const double log_d = own + log_add(0.0, log_others);
    const double log_scale = o.q * log(o.lambda) + (o.q - 1.0) * log_d;
    struct anchor_result r = {};
    r.log_norm = -(log_scale + own);
    r.diagonal = share / o.tau * (exp(log_scale + own) - exp(o.q * own));
    r.value = share * (exp(o.q * (log(o.lambda) + log_d)) - exp(o.q * own)) / o.q;
    return r;
}

/* The moving average u <- (1 - gamma) u + gamma g in log space; NaN: never visited. */
static __device__ __forceinline__ double log_running_mean(float log_u, double log_g, double gamma) {
    if (isnan(log_u) || gamma >= 1.0) {
        return log_g;
    }
    return log_add(log1p(-gamma) + (double)log_u, log(gamma) + log_g);
}

/* As loss_updated_u. */
static __device__ __forceinline__ double
updated_u(const struct device_loss &l, float log_u, double log_g) {
    const struct device_loss_constants &o = l.constants;
    const double log_estimate = o.u_eps > 0.0 ? log_add(log_g, log(o.u_eps)) : log_g;
    if (!o.anchor_gamma || isnan(log_u)) {
        return log_running_mean(log_u, log_estimate, gamma_now(l));
    }
    const double logit = o.gamma_log_alpha + o.gamma_slope * (double)log_u;
    return log_add((double)log_u - log_add(0.0, logit), log_estimate - log_add(0.0, -logit));
}

/* A surrogate sum of w Delta with w = exp(e - log_norm) share constant. */
static __device__ __forceinline__ void
put_surrogate(struct anchor_result *r, const struct anchor_sums &s, double log_norm, double share) {
    const double scale = exp(s.largest - log_norm) * share;
    r->log_norm = log_norm;
    r->diagonal = -scale * s.sum;
    r->value = scale * s.weighted;
}

static __device__ __forceinline__ struct anchor_result sogclr_anchor(const struct device_loss &l,
                                                                     const struct loss_workspace &w,
                                                                     const struct anchor_view &v,
                                                                     float log_u,
                                                                     double *updated) {
    const double tau = w.head->tau;
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const struct anchor_sums s = anchor_sum(l, w, v, tau, NULL);
    const double others = l.constants.samples_count - 1.0;
    struct anchor_result r = {};
    if (!l.views) {
        *updated = log_running_mean(log_u, log_mean(s, count), gamma_now(l));
        put_surrogate(&r, s, *updated + log(count), share);
        r.objective = tau * (*updated + log(others)) * share;
        r.extra = *updated * share - r.value / tau;
        return r;
    }
    const double log_g = log_mean(s, count) + v.positive / tau;
    *updated = log_running_mean(log_u, log_g, gamma_now(l));
    put_surrogate(&r, s, *updated + log(count) - v.positive / tau, share);
    const double weight = exp(log_g - *updated);
    r.diagonal += share * (weight - 1.0);
    r.value += share * (weight - 1.0) * v.positive;
    r.objective = share * (tau * (*updated + log(2.0 * others)) - v.positive);
    return r;
}

/* *h: the gradient of the sample's temperature, before clipping. */
static __device__ __forceinline__ struct anchor_result
isogclr_anchor(const struct device_loss &l,
               const struct loss_workspace &w,
               const struct anchor_view &v,
               float log_u,
               double tau,
               double *updated,
               double *h) {
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const struct anchor_sums s = anchor_sum(l, w, v, tau, NULL);
    struct anchor_result r = {};
    *updated = log_running_mean(log_u, log_mean(s, count), gamma_now(l));
    put_surrogate(&r, s, *updated + log(count), share);
    *h = *updated + l.constants.rho - r.value / (share * tau);
    r.objective = share * tau * (*updated + l.constants.rho);
    r.extra = 0.5 * tau / (double)w.head->count;
    return r;
}

/* *h: as isogclr_anchor's. */
static __device__ __forceinline__ struct anchor_result
fastclip_anchor(const struct device_loss &l,
                const struct loss_workspace &w,
                const struct anchor_view &v,
                float log_u,
                double tau,
                double *updated,
                double *h) {
    const struct device_loss_constants &o = l.constants;
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const double scale = o.times_tau ? share : share / tau;
    const struct anchor_sums s = anchor_sum(l, w, v, tau, NULL);
    struct anchor_result r = {};
    *updated = updated_u(l, log_u, log_mean(s, count));
    put_surrogate(&r, s, *updated + log(count), scale);
    r.log_norm += o.times_tau ? 0.0 : log(tau); /* negatives: `share` is their only factor */
    const double mean = r.value / (scale * tau);
    *h = *updated + o.rho - mean;
    r.objective = share * (o.times_tau || o.own_tau ? tau * (*updated + o.rho)
                                                    : *updated + log(o.samples_count - 1.0));
    r.extra = share * (o.own_tau ? tau : *updated - mean);
    return r;
}

static __device__ __forceinline__ struct anchor_result nuclr_anchor(const struct device_loss &l,
                                                                    const struct loss_workspace &w,
                                                                    const struct anchor_view &v,
                                                                    int contrasts,
                                                                    float log_u,
                                                                    double *updated) {
    const double tau = l.constants.tau;
    const double log_n = log(l.constants.samples_count - 1.0);
    const double share = anchor_share(l, w.head);
    const double count = contrasts_count(l, w.head);
    const float *zeta = w.columns[DEVICE_LOSS_ZETA][contrasts];
    const struct anchor_sums s = anchor_sum(l, w, v, tau, zeta);
    const double own = (double)zeta[v.anchor];
    const double xi = l.constants.own_xi ? own : l.scalars->xi[contrasts];
    struct anchor_result r = {};
    *updated = log_running_mean(log_u, log_mean(s, count), gamma_now(l));
    put_surrogate(&r, s, log_add(*updated, -xi / tau - log_n) + log(count), share);
    r.aux = log_add(log_n + *updated, -own / tau);
    r.objective = (tau * r.aux + own) * share;
    return r;
}

static __device__ __forceinline__ void put_result(const struct loss_workspace &w,
                                                  const struct anchor_view &v,
                                                  double tau,
                                                  const struct anchor_result &r) {
    if (threadIdx.x == 0) {
        w.positive[v.number] = v.positive;
        w.tau[v.number] = tau;
        w.log_norm[v.number] = r.log_norm;
        w.aux[v.number] = r.aux;
        w.diagonal[v.number] = r.diagonal;
        w.value[v.number] = r.value;
        w.objective[v.number] = r.objective;
        w.extra[v.number] = r.extra;
    }
}

/* Updates a sample's own temperature: h enters the moments of its gradient, then one step. */
static __device__ __forceinline__ void step_tau(const struct device_loss &l,
                                                const struct loss_workspace &w,
                                                int side,
                                                int64_t position,
                                                double tau,
                                                double h,
                                                double most) {
    const struct device_loss_constants &o = l.constants;
    float *gradient = &w.columns[DEVICE_LOSS_TAU_GRADIENT][side][position];
    const double bounded = fmax(-most, fmin(most, h));
    if (l.kind == DEVICE_LOSS_FASTCLIP) {
        float *square = &w.columns[DEVICE_LOSS_TAU_SQUARE][side][position];
        struct device_loss_learned x = {tau, (double)*gradient, (double)*square};
        adam(&x, o, bounded, o.tau_lr, (double)(w.visits[position] + 1));
        *gradient = (float)x.m;
        *square = (float)x.v;
        w.columns[DEVICE_LOSS_TAU][side][position] =
            (float)fmax(o.tau_min, fmin(o.tau_max, x.value));
        return;
    }
    const double v = (1.0 - o.tau_momentum) * (double)*gradient + o.tau_momentum * bounded;
    *gradient = (float)v;
    w.columns[DEVICE_LOSS_TAU][side][position] =
        (float)fmax(o.tau_min, fmin(o.tau_max, tau - o.tau_lr * v));
}

/* One sample: one side of a pair, or both of two views, which share its state. */
static __device__ __forceinline__ void
do_sample(const struct device_loss &l, const struct loss_workspace &w, int side, int64_t position) {
    const bool keeps_u = w.columns[DEVICE_LOSS_LOG_U][side] != NULL;
    const bool own_tau = w.columns[DEVICE_LOSS_TAU][side] != NULL;
    const float log_u = keeps_u ? w.columns[DEVICE_LOSS_LOG_U][side][position] : 0.0f;
    const double tau = own_tau ? (double)w.columns[DEVICE_LOSS_TAU][side][position] : w.head->tau;
    double updated[2] = {};
    double h[2] = {};
    const int views = l.views ? 2 : 1;
    for (int i = 0; i < views; i++) {
        const struct anchor_view v = anchor_at(l, position, l.views ? i : side);
        struct anchor_result r = {};
        switch (l.kind) {
        case DEVICE_LOSS_DEBIASED:
            r = debiased_anchor(l, w, v);
            break;
        case DEVICE_LOSS_RINCE:
            r = rince_anchor(l, w, v);
            break;
        case DEVICE_LOSS_SOGCLR:
            r = sogclr_anchor(l, w, v, log_u, &updated[i]);
            break;
        case DEVICE_LOSS_ISOGCLR:
            r = isogclr_anchor(l, w, v, log_u, tau, &updated[i], &h[i]);
            break;
        case DEVICE_LOSS_FASTCLIP:
            r = fastclip_anchor(l, w, v, log_u, tau, &updated[i], &h[i]);
            break;
        case DEVICE_LOSS_NUCLR:
            r = nuclr_anchor(l, w, v, DEVICE_LOSS_SIDES - 1 - side, log_u, &updated[i]);
            break;
        default: /* clip, cyclip */
            r = softmax_anchor(l, w, v);
        }
        put_result(w, v, tau, r);
    }
    __syncthreads(); /* all threads have read the old state */
    if (threadIdx.x != 0) {
        return;
    }
    if (keeps_u) {
        w.columns[DEVICE_LOSS_LOG_U][side][position] =
            (float)(l.views ? log_add(updated[0], updated[1]) + log(0.5) : updated[0]);
    }
    if (own_tau) {
        step_tau(l, w, side, position, tau, l.views ? 0.5 * h[0] + 0.5 * h[1] : h[0],
                 l.views ? 3.0 : 5.0);
    }
}

static __global__ void anchors(struct device_loss l, struct loss_workspace w) {
    const int64_t b = l.batch_count;
    const int64_t position = blockIdx.x % b;
    const int side = (int)(blockIdx.x / b);
    if (has_contrasts(w.head) && w.rank[position] >= 0) {
        do_sample(l, w, side, position);
        return;
    }
    for (int i = 0; i < (l.views ? 2 : 1); i++) {
        put_result(w, anchor_at(l, position, l.views ? i : side), 1.0, {});
    }
}

cudaError_t launch_loss_anchors(cudaStream_t stream,
                                const struct device_loss &l,
                                const struct loss_workspace &w) {
    const int64_t blocks = l.views ? l.batch_count : 2 * l.batch_count;
    return launch(stream, dim3((unsigned)blocks), anchors, l, w);
}

/* ---- nuclr: zeta ---- */

/* zeta's gradient: the candidate's softmax probabilities, for all anchors of the other side. */
static __global__ void popularity(struct device_loss l, struct loss_workspace w) {
    __shared__ double room[WARPS];
    const int64_t b = l.batch_count;
    const int64_t c = blockIdx.x % b;
    const int side = (int)(blockIdx.x / b); /* of the candidate */
    const double rate = zeta_rate(l, side);
    if (!has_contrasts(w.head) || w.rank[c] < 0 || !(rate > 0.0)) {
        return;
    }
    const double n = l.constants.samples_count;
    const double count = (double)w.head->count;
    const double zeta = (double)w.columns[DEVICE_LOSS_ZETA][side][c];
    const int anchors_side = DEVICE_LOSS_SIDES - 1 - side;
    double sum = 0.0;
    for (int64_t a = threadIdx.x; a < b; a += THREADS) {
        if (w.rank[a] >= 0) {
            const int64_t number = anchors_side * b + a;
            const float s = anchors_side == DEVICE_LOSS_IMAGE ? l.similarity[a * b + c]
                                                              : l.similarity[c * b + a];
            const double e = ((double)s - w.positive[number] - zeta) / l.constants.tau;
            const double p = exp(e - w.aux[number]);
            if (!l.constants.zeta_unbiased) {
                sum += p * n / count;
            } else {
                sum += c == a ? p : p * (n - 1.0) / (count - 1.0);
            }
        }
    }
    sum = block_sum_once(sum, room);
    if (threadIdx.x == 0) {
        float *momentum = &w.columns[DEVICE_LOSS_ZETA_MOMENTUM][side][c];
        const double theta = l.constants.zeta_momentum;
        const double q = 1.0 - sum;
        const double z = isnan(*momentum) ? q : (1.0 - theta) * (double)*momentum + theta * q;
        *momentum = (float)z;
        double step = rate * z;
        if (l.constants.zeta_by_visit) { /* as in train/loss/nuclr.c */
            const double tau = l.constants.tau;
            const uint64_t freeze = l.constants.zeta_freeze_epochs;
            const uint64_t epoch = l.values->epoch;
            const uint64_t epochs = epoch > freeze ? epoch - freeze : 0;
            const uint64_t t = w.visits[c] < epochs ? w.visits[c] : epochs;
            step *= tau * fmax(1.0 / ((double)t + 2.0), 0.1);
            step = fmax(-tau, fmin(step, tau));
        }
        w.columns[DEVICE_LOSS_ZETA][side][c] = (float)(zeta - step);
    }
}

cudaError_t launch_loss_popularity(cudaStream_t stream,
                                   const struct device_loss &l,
                                   const struct loss_workspace &w) {
    return launch(stream, dim3((unsigned)(2 * l.batch_count)), popularity, l, w);
}
