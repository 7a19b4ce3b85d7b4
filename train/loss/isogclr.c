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
 *
 * Two views: both share tau and u; each goes on from the old u, the mean of both is kept; h is the
 * mean of both, within [-3, 3].
 */
#include "train/loss/loss_internal.h"

static const double largest_gradient = 5.0;
static const double largest_view_gradient = 3.0;

static enum status isogclr_create(struct loss *l, struct error *err) {
    TRY(loss_add_columns(l, "log_u", SAMPLE_STATE_UNVISITED, l->log_u, err));
    TRY(loss_add_columns(l, "tau", (float)l->options.tau, l->tau, err));
    return loss_add_columns(l, "tau_gradient", 0.0f, l->tau_gradient, err);
}

static void isogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    const double share = 1.0 / (double)b;
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
            const double updated = log_running_mean(log_u[a], log_g, loss_gamma(l, in->epoch));
            const double value =
                side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)), share);
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

static void
isogclr_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    const double log_count = log((double)(2 * b - 2));
    const double share = 0.5 / (double)b;
    float *log_u = l->gathered[0];
    float *taus = l->gathered[1];
    float *gradients = l->gathered[2];
    sample_state_gather(l->state, l->log_u[SIDE_IMAGE], log_u, in->sample_ids, b);
    sample_state_gather(l->state, l->tau[SIDE_IMAGE], taus, in->sample_ids, b);
    sample_state_gather(l->state, l->tau_gradient[SIDE_IMAGE], gradients, in->sample_ids, b);
    out->tau = 0.0;
    for (int64_t i = 0; i < b; i++) {
        const double tau = (double)taus[i];
        double updated[2];
        double h = 0.0;
        for (int view = 0; view < 2; view++) {
            const struct loss_side s = loss_take_view(l, in, i + view * b);
            const double log_g = side_log_mean(&s, 0, tau, NULL);
            updated[view] = log_running_mean(log_u[i], log_g, loss_gamma(l, in->epoch));
            const double value =
                side_add_surrogate(&s, 0, tau, NULL, updated[view] + log_count, share);
            h += 0.5 * (updated[view] + o->rho - value / (share * tau));
            out->value += value;
            out->objective += share * tau * (updated[view] + o->rho);
            loss_put_view(&s, in, out, i + view * b);
        }
        const double bounded = fmax(-largest_view_gradient, fmin(largest_view_gradient, h));
        const double v = (1.0 - o->tau_momentum) * (double)gradients[i] + o->tau_momentum * bounded;
        log_u[i] = (float)(log_add(updated[0], updated[1]) + log(0.5));
        gradients[i] = (float)v;
        taus[i] = (float)fmax(o->tau_min, fmin(o->tau_max, tau - o->tau_lr * v));
        out->tau += tau / (double)b;
    }
    sample_state_scatter(l->state, l->log_u[SIDE_IMAGE], log_u, in->sample_ids, b);
    sample_state_scatter(l->state, l->tau[SIDE_IMAGE], taus, in->sample_ids, b);
    sample_state_scatter(l->state, l->tau_gradient[SIDE_IMAGE], gradients, in->sample_ids, b);
}

const struct loss_method loss_method_isogclr = {.name = "isogclr",
                                                .tau = 0.01,
                                                .views_tau = 0.1,
                                                .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                                                .create = isogclr_create,
                                                .step = isogclr_step,
                                                .step_views = isogclr_step_views};
