/*
 * isogclr: sogclr with a temperature for every sample and side, learned by distributionally robust
 * optimisation (Qiu et al., "Not all semantics are created equal: contrastive self-supervised
 * learning with automatic temperature individualization", ICML 2023). Its objective is
 * mean_i tau_i (log u_i + rho), summed over both sides. u and w are those of sogclr with tau_i,
 * then
 *
 *   h_i = log u_i + rho - sum_j w_ij Delta_ij / tau_i,   within [-5, 5]
 *   v_i <- (1 - theta) v_i + theta h_i (first time v_i = theta h_i),  tau_i <- tau_i - eta v_i
 *
 * within [tau_min, tau_max]. The gradient of S uses the old tau_i. State per sample and side: log
 * u, tau and v.
 */
#include "train/loss_internal.h"

static const double largest_gradient = 5.0;

static enum status isogclr_create(struct loss *l, struct error *err) {
    TRY(loss_add_columns(l, "log_u", SAMPLE_STATE_UNVISITED, l->log_u, err));
    TRY(loss_add_columns(l, "tau", (float)l->options.tau, l->tau, err));
    return loss_add_columns(l, "tau_gradient", 0.0f, l->tau_gradient, err);
}

static void isogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    double tau_sum = 0.0;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        float *log_u = l->gathered[0];
        float *taus = l->gathered[1];
        float *gradients = l->gathered[2];
        sample_state_gather(l->state, l->log_u[side], log_u, in->sample_ids, b);
        sample_state_gather(l->state, l->tau[side], taus, in->sample_ids, b);
        sample_state_gather(l->state, l->tau_gradient[side], gradients, in->sample_ids, b);
        for (int64_t a = 0; a < b; a++) {
            const double tau = (double)taus[a];
            const double log_g = side_log_mean(&s, a, tau, NULL);
            const double updated = log_running_mean(log_u[a], log_g, o->gamma);
            const double value =
                side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)));
            const double h = updated + o->rho - value * (double)b / tau;
            const double bounded = fmax(-largest_gradient, fmin(largest_gradient, h));
            const double v =
                (1.0 - o->tau_momentum) * (double)gradients[a] + o->tau_momentum * bounded;
            out->value += value;
            out->objective += tau * (updated + o->rho) / (double)b;
            tau_sum += tau;
            log_u[a] = (float)updated;
            gradients[a] = (float)v;
            taus[a] = (float)fmax(o->tau_min, fmin(o->tau_max, tau - o->tau_lr * v));
        }
        sample_state_scatter(l->state, l->log_u[side], log_u, in->sample_ids, b);
        sample_state_scatter(l->state, l->tau[side], taus, in->sample_ids, b);
        sample_state_scatter(l->state, l->tau_gradient[side], gradients, in->sample_ids, b);
    }
    out->tau = tau_sum / (double)(SIDE_COUNT * b);
}

const struct loss_method loss_method_isogclr = {.name = "isogclr",
                                                .tau = 0.01,
                                                .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                                                .create = isogclr_create,
                                                .step = isogclr_step};
