/*
 * clip: InfoNCE in both directions (Radford et al., "Learning transferable visual models from
 * natural language supervision", ICML 2021), with a constant temperature or a learned one:
 *
 *   L = 1/2 [ mean_i -log softmax_j(S_ij / tau) at j = i  +  the same along columns ]
 *   dL/dS_ij = (P_row_ij + P_col_ij - 2 [i = j]) / (2 B tau)
 *   dL/dlog(1/tau) = sum_ij dL/dS_ij S_ij
 *
 * simclr: the same over two views of every image (Chen et al., "A simple framework for contrastive
 * learning of visual representations", ICML 2020). Every one of the 2B views is an anchor a, the
 * other view of its image the positive p:
 *
 *   L = mean over anchors of -log( exp(S_ap / tau) / sum_{c != a} exp(S_ac / tau) )
 *
 * They keep no per-sample state.
 */
#include "train/loss/loss_internal.h"

double
loss_clip_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    const double tau = loss_tau(l);
    /* log sum_c exp(Delta_c / tau), the positive included as exp(0). */
    const double log_others = side_log_mean(s, anchor, tau, NULL) + log((double)(s->count - 1));
    const double log_sum = log_add(0.0, log_others);
    (void)side_add_weights(s, anchor, tau, NULL, log_sum, share / tau, 1.0);
    /* P_aa - 1 = -exp(log_others - log_sum), without cancellation. */
    side_add(s, anchor, anchor, -exp(log_others - log_sum) * share / tau);
    return share * log_sum;
}

const struct loss_row loss_clip = {
    .name = "clip",
    .paper = "Radford, ICML 2021",
    .what = "InfoNCE in both directions",
    .reads = LOSS_READS_TAU,
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.01},
    .step = loss_step_anchors,
    .tiles = true,
    .anchor = loss_clip_anchor,
    .device = DEVICE_LOSS_CLIP,
};

const struct loss_row loss_simclr = {
    .name = "simclr",
    .views = true,
    .paper = "Chen, ICML 2020",
    .what = "InfoNCE of two views of every image",
    .reads = LOSS_READS_TAU,
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.5},
    .step = loss_step_anchors,
    .anchor = loss_clip_anchor,
    .device = DEVICE_LOSS_CLIP,
};
