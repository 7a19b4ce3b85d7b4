/*
 * sogclr: the global contrastive loss with a moving average u of every anchor's denominator (Yuan
 * et al., "Provable stochastic optimization for global contrastive learning", ICML 2022):
 *
 *   g_i = 1/(B-1) sum_{j != i} exp(Delta_ij / tau),   u_i <- (1 - gamma) u_i + gamma g_i
 *   w_ij = exp(Delta_ij / tau) / ((B-1) u_i),         L = mean_i sum_{j != i} w_ij Delta_ij
 *
 * summed over both sides, w constant; a reference (loss_takes_reference) subtracts its Delta. At
 * the first visit of a sample u = g. State: log u per sample and side, so that nothing over- or
 * underflows. Objective: mean_i tau log((n-1) u_i).
 *
 * With a global temperature (Wei et al., "FastCLIP", 2024, its third version) tau is learned on
 * F = tau (mean_i log u_i over both sides) + 2 rho tau:
 *
 *   dF/dtau = sum over sides of mean_i [ log u_i - sum_j w_ij Delta_ij / tau ] + 2 rho
 *
 * Two views, as first published: u is the moving average of exp(S_aj / tau) itself over the 2B - 2
 * views of other samples; each view of a sample updates their shared u, and uses its result as
 * weight; the mean of the two results is stored:
 *
 *   L = mean over the 2B anchors a of [ sum_j w_aj S_aj - S_a,own ],   w = exp(S_aj/tau)/((2B-2) u)
 */
#include "train/loss/loss_internal.h"

enum { LOG_U };
static const struct loss_column sogclr_columns[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED},
                                                    {0}};

static void sogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = loss_tau(l);
    const int64_t b = in->batch_count;
    const double share = 1.0 / (double)b;
    double tau_gradient = 2.0 * l->options.rho;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        float *log_u = loss_window(l, LOG_U, side);
        for (int64_t a = 0; a < b; a++) {
            const double log_g = side_log_mean(&s, a, tau, NULL);
            const double updated = log_running_mean(log_u[a], log_g, loss_gamma(l, in->epoch));
            const double value =
                side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)), share);
            const double weight = side_weight(&s, a);
            loss_add(out, a, weight * value);
            out->objective +=
                weight * tau * (updated + log((double)(l->samples_count - 1))) / (double)b;
            tau_gradient += weight * (updated / (double)b - value / tau);
            log_u[a] = (float)updated;
        }
    }
    loss_learn_scale(l, in, -tau * tau_gradient);
}

static void
sogclr_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = l->options.tau;
    const int64_t b = in->batch_count;
    const double log_count = log((double)(2 * b - 2));
    const double share = 0.5 / (double)b;
    float *log_u = loss_window(l, LOG_U, SIDE_IMAGE);
    for (int64_t i = 0; i < b; i++) {
        double mean_u = log(0.5);
        double updated[2];
        for (int view = 0; view < 2; view++) {
            const struct loss_side s = loss_take_view(l, in, i + view * b);
            const double own = (double)s.similarity[0];
            const double log_g = side_log_mean(&s, 0, tau, NULL) + own / tau;
            updated[view] = log_running_mean(log_u[i], log_g, loss_gamma(l, in->epoch));
            /* w exp(S / tau) / ((2B - 2) u), the exponent being Delta / tau here. */
            const double value =
                side_add_surrogate(&s, 0, tau, NULL, updated[view] + log_count - own / tau, share);
            const double total = exp(log_g - updated[view]);
            const double weight = side_weight(&s, 0);
            side_add(&s, 0, 0, weight * share * (total - 1.0)); /* the positive: -1, not -sum w */
            loss_add(out, i, weight * (value + share * (total - 1.0) * own));
            out->objective +=
                weight * share *
                (tau * (updated[view] + log(2.0 * (double)(l->samples_count - 1))) - own);
            loss_put_view(&s, in, out, i + view * b);
        }
        mean_u += log_add(updated[0], updated[1]);
        log_u[i] = (float)mean_u;
    }
}

const struct loss_row loss_sogclr = {
    .name = "sogclr",
    .paper = "Yuan, ICML 2022",
    .what =
        "contrasts with the whole dataset through a moving average of each anchor's denominator",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA,
    .reads_learned = LOSS_READS_LEARNED_TAU | LOSS_BIT(LOSS_RHO),
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.01},
    .columns = sogclr_columns,
    .surrogate = true,
    .step = sogclr_step,
    .tiles = true,
    .device = DEVICE_LOSS_SOGCLR,
};

const struct loss_row loss_sogclr_views = {
    .name = "sogclr",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA,
    .defaults = {.tau = 0.1},
    .columns = sogclr_columns,
    .surrogate = true,
    .step = sogclr_step_views,
    .device = DEVICE_LOSS_SOGCLR,
};
