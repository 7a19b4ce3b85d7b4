/*
 * hgcl: the hinged global contrastive loss of TuneCLIP ("Breaking the limits of open-weight CLIP",
 * arXiv 2601.09859, 2026), for models that are already trained: a negative that is less similar
 * than the positive by more than the margin m has no gradient.
 *
 *   h_ij = max(0, Delta_ij + m),   g_i = 1/(B-1) sum_{j != i} exp(h_ij^2 / tau)
 *   u_i <- (1 - gamma) u_i + gamma g_i,   w_ij = exp(h_ij^2 / tau) / ((B-1) u_i)
 *   F = tau (1/2 sum over sides of mean_i log u_i + rho)
 *   dF/dS_ij = w_ij 2 h_ij / (2B),   positive minus the sum
 *   dF/dtau = 1/2 sum over sides of mean_i [log u_i - sum_j w_ij h_ij^2 / tau] + rho
 *
 * Everything else is fastclip-v3's (fastclip.c). g >= 1, so log u >= 0; if all negatives of a batch
 * are beyond the margin its gradient is 0. The value is 1/2 sum of mean_i sum_j w_ij h_ij^2.
 */
#include "train/loss/loss_internal.h"

enum { LOG_U };
static const struct loss_column hgcl_columns[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED}, {0}};

static double hinged(const struct loss *l, const struct loss_side *s, int64_t a, int64_t c) {
    return fmax(0.0, side_delta(s, a, c) + l->options.margin);
}

/* log of the mean over negatives of exp(h^2 / tau) */
static double log_mean(const struct loss *l, const struct loss_side *s, int64_t a, double tau) {
    double log_sum = -HUGE_VAL;
    for (int64_t c = 0; c < s->count; c++) {
        if (c != a) {
            const double h = hinged(l, s, a, c);
            log_sum = log_add(log_sum, h * h / tau);
        }
    }
    return log_sum - log(side_contrasts(s));
}

/* Adds the gradient of one anchor times share and weight; returns share sum_j w_ij h_ij^2. */
static double add_anchor(const struct loss *l,
                         const struct loss_side *s,
                         int64_t a,
                         double tau,
                         double log_norm,
                         double share) {
    double total = 0.0;
    double value = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        const double h = c == a ? 0.0 : hinged(l, s, a, c);
        const double w = exp(h * h / tau - log_norm) * share;
        const double g = 2.0 * h * w * side_weight(s, a);
        if (c != a) {
            side_add(s, a, c, g);
        }
        total += g;
        value += h * h * w;
    }
    side_add(s, a, a, -total);
    return value;
}

static void hgcl_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const double tau = loss_tau(l);
    const double gamma = loss_gamma(l, in->epoch);
    const double share = 0.5 / (double)in->batch_count;
    double tau_gradient = in->weights == NULL ? o->rho : 0.0;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        float *log_u = loss_window(l, LOG_U, side);
        for (int64_t a = 0; a < in->batch_count; a++) {
            const double weight = side_weight(&s, a);
            const double updated = loss_updated_u(l, log_u[a], log_mean(l, &s, a, tau), gamma);
            const double value =
                add_anchor(l, &s, a, tau, updated + log(side_contrasts(&s)), share);
            loss_add(out, a, weight * value);
            out->objective += weight * share * tau * (updated + o->rho);
            tau_gradient += weight * (share * updated - value / tau +
                                      (in->weights != NULL ? share * o->rho : 0.0));
            log_u[a] = (float)updated;
        }
    }
    loss_learn_scale(l, in, -tau * tau_gradient);
}

const struct loss_row loss_hgcl = {
    .name = "hgcl",
    .paper = "TuneCLIP, 2026",
    .what = "fastclip-v3 with a squared hinge, for fine-tuning trained models",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_RHO) | LOSS_BIT(LOSS_U_EPS) |
             LOSS_BIT(LOSS_MARGIN),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.07,
                 .temperature = LOSS_TEMPERATURE_GLOBAL,
                 .tau_lr = 2e-4,
                 .gamma = 0.2,
                 .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = hgcl_columns,
    .surrogate = true,
    .step = hgcl_step,
    .slow_tau = 0.03,
};
