/*
 * rince: a contrastive loss that is robust to noisy pairs (Chuang et al., "Robust contrastive
 * learning against noisy views", CVPR 2022), in both directions. D = sum_j exp(S_ij / tau),
 * including the positive:
 *
 *   l_i = -exp(q S_ii / tau) / q + (lambda D)^q / q,   L = 1/2 mean_rows l + 1/2 mean_columns l
 *   dl_i/dS_ij = lambda^q D^(q-1) exp(S_ij / tau) / tau - [i = j] exp(q S_ii / tau) / tau
 *
 * For q -> 0 it is InfoNCE (plus log lambda). Values grow like exp(q / tau), which must stay within
 * f32. It keeps no per-sample state.
 */
#include "train/loss/loss_internal.h"

enum { MAX_EXPONENT = 80 }; /* q / tau: e^80 is 5e34 */

static enum status rince_check(const struct loss_options *o, struct error *err) {
    return o->q / o->tau <= MAX_EXPONENT
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "loss rince: gradients of size exp(q / tau) = exp(%.0f) overflow; "
                           "increase --tau or decrease --q (q / tau at most %d)",
                           o->q / o->tau, MAX_EXPONENT);
}

static double
rince_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    const struct loss_options *o = &l->options;
    const double own = side_positive(s, anchor) / o->tau;
    const double log_others = side_log_mean(s, anchor, o->tau, NULL) + log((double)(s->count - 1));
    const double log_d = own + log_add(0.0, log_others);
    const double log_scale = o->q * log(o->lambda) + (o->q - 1.0) * log_d;
    (void)side_add_weights(s, anchor, o->tau, NULL, -(log_scale + own), share / o->tau, 1.0);
    side_add(s, anchor, anchor, share / o->tau * (exp(log_scale + own) - exp(o->q * own)));
    return share * (exp(o->q * (log(o->lambda) + log_d)) - exp(o->q * own)) / o->q;
}

const struct loss_row loss_rince = {
    .name = "rince",
    .paper = "Chuang, CVPR 2022",
    .what = "InfoNCE that is robust to noisy pairs",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_Q) | LOSS_BIT(LOSS_LAMBDA),
    .defaults = {.tau = 0.01},
    .check = rince_check,
    .step = loss_step_anchors,
    .tiles = true,
    .anchor = rince_anchor,
    .device = DEVICE_LOSS_RINCE,
};

const struct loss_row loss_rince_views = {
    .name = "rince",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_Q) | LOSS_BIT(LOSS_LAMBDA),
    .defaults = {.tau = 0.1},
    .check = rince_check,
    .step = loss_step_anchors,
    .anchor = rince_anchor,
    .device = DEVICE_LOSS_RINCE,
};
