/*
 * clip: InfoNCE in both directions with a fixed temperature (Radford et al., "Learning transferable
 * visual models from natural language supervision", ICML 2021):
 *
 *   L = 1/2 [ mean_i -log softmax_j(S_ij / tau) at j = i  +  the same along columns ]
 *   dL/dS_ij = (P_row_ij + P_col_ij - 2 [i = j]) / (2 B tau)
 *
 * It keeps no state.
 */
#include "train/loss_internal.h"

static enum status clip_create(struct loss *l, struct error *err) {
    (void)l;
    (void)err;
    return STATUS_OK;
}

/* Half of the loss: the anchors of one side. */
static double clip_side(const struct loss_side *s, double tau) {
    const double share = 0.5 / (double)s->count;
    double value = 0.0;
    for (int64_t a = 0; a < s->count; a++) {
        /* log sum_c exp(Delta_c / tau), the anchor's own pair being exp(0). */
        const double log_others = side_log_mean(s, a, tau, NULL) + log((double)(s->count - 1));
        const double log_sum = log_add(0.0, log_others);
        for (int64_t c = 0; c < s->count; c++) {
            if (c != a) {
                side_add(s, a, c, exp(side_exponent(s, a, c, tau, NULL) - log_sum) * share / tau);
            }
        }
        /* P_aa - 1 = -exp(log_others - log_sum), without cancellation. */
        side_add(s, a, a, -exp(log_others - log_sum) * share / tau);
        value += log_sum * share;
    }
    return value;
}

static void clip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        out->value += clip_side(&s, l->options.tau);
    }
    out->objective = out->value;
}

const struct loss_method loss_method_clip = {"clip", clip_create, clip_step};
