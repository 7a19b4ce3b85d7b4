/*
 * isogclr: sogclr with a temperature for every sample and side, learned by distributionally robust
 * optimisation (Qiu et al., "Not all semantics are created equal: contrastive self-supervised
 * learning with automatic temperature individualization", ICML 2023). Its objective is mean_i tau_i
 * (log u_i + rho), summed over both sides. u and w are sogclr's with tau_i, then
 *
 *   h_i = log u_i + rho - sum_j w_ij Delta_ij / tau_i,   within [-5, 5]
 *   v_i <- (1 - theta) v_i + theta h_i (first time v_i = theta h_i),  tau_i <- tau_i - eta v_i
 *
 * within [tau_min, tau_max]. The gradient of S uses the old tau_i. State per sample and side: log
 * u, tau and v.
 *
 * Two views: both views of a sample share tau and u; each updates the old u, and the mean of the
 * results is stored; h is the mean of both, within [-3, 3].
 */
#include "train/loss/loss_internal.h"

static const double largest_gradient = 5.0;
static const double largest_view_gradient = 3.0;

enum { LOG_U, TAU, TAU_GRADIENT };
static const struct loss_column isogclr_columns[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED},
                                                     {"tau", .first_option = LOSS_TAU},
                                                     {"tau_gradient", .first = 0.0f},
                                                     {0}};

static void isogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    const double share = 1.0 / (double)b;
    double tau_sum = 0.0;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        float *log_u = loss_window(l, LOG_U, side);
        float *taus = loss_window(l, TAU, side);
        float *gradients = loss_window(l, TAU_GRADIENT, side);
        for (int64_t a = 0; a < b; a++) {
            const double tau = (double)taus[a];
            const double log_g = side_log_mean(&s, a, tau, NULL);
            const double updated = log_running_mean(log_u[a], log_g, loss_gamma(l, in->epoch));
            const double value =
                side_add_surrogate(&s, a, tau, NULL, updated + log((double)(b - 1)), share);
            const double h = updated + o->rho - value * (double)b / tau;
            loss_add(out, a, side_weight(&s, a) * value);
            out->objective += side_weight(&s, a) * tau * (updated + o->rho) / (double)b;
            tau_sum += tau;
            log_u[a] = (float)updated;
            loss_step_own_tau(o, &taus[a], &gradients[a], h, largest_gradient);
        }
    }
    out->tau = tau_sum / (double)(SIDE_COUNT * b);
}

static void
isogclr_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    const double log_count = log((double)(2 * b - 2));
    const double share = 0.5 / (double)b;
    float *log_u = loss_window(l, LOG_U, SIDE_IMAGE);
    float *taus = loss_window(l, TAU, SIDE_IMAGE);
    float *gradients = loss_window(l, TAU_GRADIENT, SIDE_IMAGE);
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
            loss_add(out, i, side_weight(&s, 0) * value);
            out->objective += side_weight(&s, 0) * share * tau * (updated[view] + o->rho);
            loss_put_view(&s, in, out, i + view * b);
        }
        log_u[i] = (float)(log_add(updated[0], updated[1]) + log(0.5));
        loss_step_own_tau(o, &taus[i], &gradients[i], h, largest_view_gradient);
        out->tau += tau / (double)b;
    }
}

const struct loss_row loss_isogclr = {
    .name = "isogclr",
    .paper = "Qiu, ICML 2023",
    .what = "sogclr with one learned temperature per sample and side",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_TAU_MOMENTUM) | LOSS_BIT(LOSS_RHO),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_INDIVIDUAL,
    .defaults = {.tau = 0.01,
                 .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                 .tau_min = 0.005,
                 .tau_max = 0.05,
                 .tau_lr = 1e-3,
                 .rho = 8.0},
    .columns = isogclr_columns,
    .surrogate = true,
    .step = isogclr_step,
    .tiles = true,
    .device = DEVICE_LOSS_ISOGCLR,
};

const struct loss_row loss_isogclr_views = {
    .name = "isogclr",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_TAU_MOMENTUM) | LOSS_BIT(LOSS_RHO),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_INDIVIDUAL,
    .defaults = {.tau = 0.1,
                 .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                 .tau_min = 0.05,
                 .tau_lr = 0.03,
                 .rho = 0.4},
    .columns = isogclr_columns,
    .surrogate = true,
    .step = isogclr_step_views,
    .device = DEVICE_LOSS_ISOGCLR,
};
