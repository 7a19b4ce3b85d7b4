/*
 * sogclr: the global contrastive loss with a running estimate u of every anchor's denominator
 * (Yuan et al., "Provable stochastic optimization for global contrastive learning", ICML 2022):
 *
 *   g_i = 1/(B-1) sum_{j != i} exp(Delta_ij / tau),   u_i <- (1 - gamma) u_i + gamma g_i
 *   w_ij = exp(Delta_ij / tau) / ((B-1) u_i),         L = mean_i sum_{j != i} w_ij Delta_ij
 *
 * summed over both sides, w constant. The first visit of a sample takes u = g. State: log u per
 * sample and side, so that nothing over- or underflows. Objective: mean_i tau log((n-1) u_i).
 *
 * With a global temperature (Wei et al., "FastCLIP", 2024, its third version) tau is learned on
 * F = tau (mean_i log u_i over both sides) + 2 rho tau:
 *
 *   dF/dtau = sum over sides of mean_i [ log u_i - sum_j w_ij Delta_ij / tau ] + 2 rho
 */
#include "train/loss_internal.h"

static enum status sogclr_create(struct loss *l, struct error *err) {
    loss_add_scale(l);
    return loss_add_columns(l, "log_u", SAMPLE_STATE_UNVISITED, l->log_u, err);
}

static void sogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = loss_tau(l);
    const int64_t b = in->batch_count;
    double tau_gradient = 2.0 * l->options.rho;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        float *log_u = l->gathered[0];
        sample_state_gather(l->state, l->log_u[side], log_u, in->sample_ids, b);
        for (int64_t a = 0; a < b; a++) {
            const double log_g = side_log_mean(&s, a, tau, NULL);
            const double updated = log_running_mean(log_u[a], log_g, l->options.gamma);
            const double value =
                side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)));
            out->value += value;
            out->objective += tau * (updated + log((double)(l->samples_count - 1))) / (double)b;
            tau_gradient += updated / (double)b - value / tau;
            log_u[a] = (float)updated;
        }
        sample_state_scatter(l->state, l->log_u[side], log_u, in->sample_ids, b);
    }
    loss_learn_scale(l, in, -tau * tau_gradient);
}

const struct loss_method loss_method_sogclr = {.name = "sogclr",
                                               .tau = 0.01,
                                               .temperature = LOSS_TEMPERATURE_CONSTANT,
                                               .may_learn_tau = true,
                                               .create = sogclr_create,
                                               .step = sogclr_step};
