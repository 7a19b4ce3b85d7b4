/*
 * sogclr: the global contrastive loss with a running estimate u of every anchor's denominator
 * (Yuan et al., "Provable stochastic optimization for global contrastive learning", ICML 2022):
 *
 *   g_i = 1/(B-1) sum_{j != i} exp(Delta_ij / tau),   u_i <- (1 - gamma) u_i + gamma g_i
 *   w_ij = exp(Delta_ij / tau) / ((B-1) u_i),         L = mean_i sum_{j != i} w_ij Delta_ij
 *
 * summed over both sides, w constant. The first visit of a sample takes u = g. State: log u per
 * sample and side, so that nothing over- or underflows. Objective: mean_i tau log((n-1) u_i).
 */
#include "train/loss_internal.h"

static enum status sogclr_create(struct loss *l, struct error *err) {
    TRY(sample_state_add(l->state, "image.log_u", SAMPLE_STATE_UNVISITED, &l->log_u[SIDE_IMAGE],
                         err));
    return sample_state_add(l->state, "text.log_u", SAMPLE_STATE_UNVISITED, &l->log_u[SIDE_TEXT],
                            err);
}

static void sogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = l->options.tau;
    const int64_t b = in->batch_count;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        float *log_u = l->gathered[0];
        sample_state_gather(l->state, l->log_u[side], log_u, in->sample_ids, b);
        for (int64_t a = 0; a < b; a++) {
            const double log_g = side_log_mean(&s, a, tau, NULL);
            const double updated = log_running_mean(log_u[a], log_g, l->options.gamma);
            out->value += side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)));
            out->objective += tau * (updated + log((double)(l->samples_count - 1))) / (double)b;
            log_u[a] = (float)updated;
        }
        sample_state_scatter(l->state, l->log_u[side], log_u, in->sample_ids, b);
    }
}

const struct loss_method loss_method_sogclr = {"sogclr", sogclr_create, sogclr_step};
