/*
 * hcl: the debiased loss with larger weights for harder negatives (Robinson et al., "Contrastive
 * learning with hard negative samples", ICLR 2021), in both directions, or over two views. With d_j
 * = Delta_j / tau of the N negatives (B - 1; two views 2B - 2), everything divided by the
 * positive's exponential:
 *
 *   a_j = softmax_j(beta d_j),  m = sum_j a_j e^{d_j}
 *   G = max( N (m - tau_plus) / (1 - tau_plus),  N e^{-(1 + S_aa) / tau} ),   l = log(1 + G)
 *   L = 1/2 mean_rows l + 1/2 mean_columns l
 *
 * The second argument of max is the smallest value that the sum can have. Gradients go through a_j.
 * Above this minimum l depends only on differences, so the positive's gradient is minus the sum of
 * the others:
 *
 *   dl/dS_j = N a_j ((1 + beta) e^{d_j} - beta m) / ((1 - tau_plus) (1 + G) tau)
 *
 * at the minimum only dl/dS_aa = -G / ((1 + G) tau) remains.
 *
 * beta can be annealed (Robinson et al., appendix "Annealing beta Method"): over e epochs in l
 * equal steps, beta_1 = beta, beta_{i+1} = beta_i - beta / l from epoch i e / l on, and 0 from
 * epoch e on. The published code has 9 steps of floor(e / 9) epochs, the first two with beta, then
 * lowered by an eighth each.
 *
 * dcl: the debiased contrastive loss (Chuang et al., "Debiased contrastive learning", NeurIPS
 * 2020): hcl with beta = 0, which dcl does not read. From the sum over negatives the expected part
 * of false negatives, tau_plus, is subtracted.
 *
 * dcl with M positives (--positives; Chuang et al., section 4): the pairs p of the anchor's sample
 * replace the single positive in the estimate above, and are not negatives, N = B - M:
 *
 *   G = max( N (m - tau_plus 1/M sum_p e^{d_p}) / (1 - tau_plus),  N e^{-(1 + S_aa) / tau} )
 *   dl/dS_p = -N tau_plus e^{d_p} / (M (1 - tau_plus) (1 + G) tau),  p not the positive
 *
 * They keep no per-sample state.
 */
#include "train/loss/loss_internal.h"

/* log sum over negatives of exp(factor d_c). */
static double log_sum(const struct loss_side *s, int64_t anchor, double tau, double factor) {
    return factor == 0.0 ? log(side_contrasts(s))
                         : side_log_mean(s, anchor, tau / factor, NULL) + log(side_contrasts(s));
}

/* log of the mean over the anchor's positives of e^{d_p}; 0 with one positive. */
static double log_positives(const struct loss_side *s, int64_t anchor, double tau) {
    const int64_t first = side_first(s, anchor);
    double sum = -HUGE_VAL;
    for (int64_t p = first; p < first + s->positives; p++) {
        sum = log_add(sum, side_exponent(s, anchor, p, tau, NULL));
    }
    return sum - log((double)s->positives);
}

struct debiased {
    double beta; /* in this step */
};

/* beta in an epoch; dcl: 0. */
static double beta_at(const struct loss_options *o, uint64_t epoch) {
    if (o->beta_stairs == 0) {
        return o->beta;
    }
    const uint64_t epochs = o->beta_epochs > 0 ? o->beta_epochs : 1;
    const uint64_t stair = epoch < epochs ? epoch * o->beta_stairs / epochs : o->beta_stairs;
    return o->beta * (1.0 - (double)stair / (double)o->beta_stairs);
}

static void debiased_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    struct debiased *now = l->private_state;
    now->beta = beta_at(&l->options, in->epoch);
    loss_step_anchors(l, in, out);
}

static double
debiased_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    const double tau = l->options.tau;
    const double tau_plus = l->options.tau_plus;
    const double beta = ((const struct debiased *)l->private_state)->beta;
    const double log_n = log(side_contrasts(s));
    const double own = side_positive(s, anchor);
    const double log_importance = log_sum(s, anchor, tau, beta);
    const double log_m = log_sum(s, anchor, tau, 1.0 + beta) - log_importance;
    const double log_floor = log_n - (1.0 + own) / tau;
    const double log_plus = log(tau_plus) + log_positives(s, anchor, tau); /* -inf for 0 */
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
    const double log_share = log_importance - log_norm + log(tau_plus / (double)s->positives);
    const int64_t first = side_first(s, anchor);
    double total = 0.0;
    if (s->lines != NULL) { /* beta is 0 */
        total = side_add_weights(s, anchor, tau, NULL, log_norm, 1.0, share / tau).total;
    }
    for (int64_t c = 0; c < s->count && s->lines == NULL; c++) {
        if (c == anchor) {
            continue;
        }
        const double d = side_exponent(s, anchor, c, tau, NULL);
        const double g = side_is_positive(s, first, c)
                             ? -exp(d + log_share)
                             : (1.0 + beta) * exp((1.0 + beta) * d - log_norm) -
                                   beta * exp(beta * d + log_m - log_norm);
        side_add(s, anchor, c, share / tau * g);
        total += g;
    }
    side_add(s, anchor, anchor, -share / tau * total);
    return share * value;
}

#define READS_BETA (LOSS_BIT(LOSS_BETA) | LOSS_BIT(LOSS_BETA_STAIRS) | LOSS_BIT(LOSS_BETA_EPOCHS))

const struct loss_row loss_dcl = {
    .name = "dcl",
    .paper = "Chuang, NeurIPS 2020",
    .what = "clip corrected for false negatives",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_TAU_PLUS) | LOSS_BIT(LOSS_POSITIVES),
    .defaults = {.tau = 0.01},
    .private_bytes = sizeof(struct debiased),
    .step = debiased_step,
    .tiles = true,
    .anchor = debiased_anchor,
    .device = DEVICE_LOSS_DEBIASED,
};

const struct loss_row loss_dcl_views = {
    .name = "dcl",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_TAU_PLUS),
    .defaults = {.tau = 0.5},
    .private_bytes = sizeof(struct debiased),
    .step = debiased_step,
    .anchor = debiased_anchor,
    .device = DEVICE_LOSS_DEBIASED,
};

const struct loss_row loss_hcl = {
    .name = "hcl",
    .paper = "Robinson, ICLR 2021",
    .what = "dcl with hard negatives upweighted",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_TAU_PLUS) | READS_BETA,
    .defaults = {.tau = 0.01},
    .private_bytes = sizeof(struct debiased),
    .step = debiased_step,
    .tiles = true,
    .anchor = debiased_anchor,
    .device = DEVICE_LOSS_DEBIASED,
};

const struct loss_row loss_hcl_views = {
    .name = "hcl",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_TAU_PLUS) | READS_BETA,
    .defaults = {.tau = 0.5},
    .private_bytes = sizeof(struct debiased),
    .step = debiased_step,
    .anchor = debiased_anchor,
    .device = DEVICE_LOSS_DEBIASED,
};
