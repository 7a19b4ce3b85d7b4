/*
 * hcl: the debiased loss with harder negatives weighing more (Robinson et al., "Contrastive
 * learning with hard negative samples", ICLR 2021), in both directions, or over two views. With d_j
 * = Delta_j / tau of the N negatives (B - 1, of two views 2B - 2) and everything divided by the
 * positive's exponential:
 *
 *   a_j = softmax_j(beta d_j),  m = sum_j a_j e^{d_j}
 *   G = max( N (m - tau_plus) / (1 - tau_plus),  N e^{-(1 + S_aa) / tau} ),   l = log(1 + G)
 *   L = 1/2 mean_rows l + 1/2 mean_columns l
 *
 * The second argument of max is the smallest value that the sum can have. Gradients go through a_j.
 * Above the floor l depends on differences alone, so the positive takes minus the sum of the
 * others:
 *
 *   dl/dS_j = N a_j ((1 + beta) e^{d_j} - beta m) / ((1 - tau_plus) (1 + G) tau)
 *
 * at the floor only dl/dS_aa = -G / ((1 + G) tau) is left. It keeps no state of samples.
 */
#include "train/loss/loss_internal.h"

/* log sum over contrasts of exp(factor d_c). */
static double log_sum(const struct loss_side *s, int64_t anchor, double tau, double factor) {
    return factor == 0.0
               ? log((double)(s->count - 1))
               : side_log_mean(s, anchor, tau / factor, NULL) + log((double)(s->count - 1));
}

double side_add_debiased(const struct loss_side *s,
                         int64_t anchor,
                         double tau,
                         double tau_plus,
                         double beta,
                         double share) {
    const double log_n = log((double)(s->count - 1));
    const double own = (double)s->similarity[side_place(s, anchor, anchor)];
    const double log_importance = log_sum(s, anchor, tau, beta);
    const double log_m = log_sum(s, anchor, tau, 1.0 + beta) - log_importance;
    const double log_floor = log_n - (1.0 + own) / tau;
    const double log_plus = log(tau_plus); /* -inf for 0 */
    double log_sum_g = -HUGE_VAL;
    if (log_m > log_plus) {
        log_sum_g = log_n + log_m + log1p(-exp(log_plus - log_m)) - log1p(-tau_plus);
    }
    const bool floored = log_sum_g < log_floor;
    const double log_g = floored ? log_floor : log_sum_g;
    const double value = log_add(0.0, log_g);
    if (floored) {
        side_add(s, anchor, anchor, -share / tau * exp(log_g - value));
        return share * value;
    }
    const double log_norm = log_importance + value + log1p(-tau_plus) - log_n;
    double total = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        if (c == anchor) {
            continue;
        }
        const double d = side_exponent(s, anchor, c, tau, NULL);
        const double g = (1.0 + beta) * exp((1.0 + beta) * d - log_norm) -
                         beta * exp(beta * d + log_m - log_norm);
        side_add(s, anchor, c, share / tau * g);
        total += g;
    }
    side_add(s, anchor, anchor, -share / tau * total);
    return share * value;
}

static double
hcl_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    const struct loss_options *o = &l->options;
    return side_add_debiased(s, anchor, o->tau, o->tau_plus, o->beta, share);
}

static void hcl_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    loss_step_views(l, in, out, hcl_anchor);
}

static void hcl_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < s.count; a++) {
            out->value += hcl_anchor(l, &s, a, 0.5 / (double)s.count);
        }
    }
    out->objective = out->value;
}

static enum status hcl_create(struct loss *l, struct error *err) {
    return loss_method_dcl.create(l, err);
}

const struct loss_method loss_method_hcl = {.name = "hcl",
                                            .tau = 0.01,
                                            .views_tau = 0.5,
                                            .temperature = LOSS_TEMPERATURE_CONSTANT,
                                            .create = hcl_create,
                                            .step = hcl_step,
                                            .step_views = hcl_step_views};
