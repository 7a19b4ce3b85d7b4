/*
 * clip: InfoNCE in both directions (Radford et al., "Learning transferable visual models from
 * natural language supervision", ICML 2021), with a constant temperature or a learned one:
 *
 *   L = 1/2 [ mean_i -log softmax_j(S_ij / tau) at j = i  +  the same along columns ]
 *   dL/dS_ij = (P_row_ij + P_col_ij - 2 [i = j]) / (2 B tau)
 *   dL/dlog(1/tau) = sum_ij dL/dS_ij S_ij
 *
 * It keeps no state of samples.
 */
#include "train/loss/loss_internal.h"

static enum status clip_create(struct loss *l, struct error *err) {
    (void)err;
    loss_add_scale(l);
    return STATUS_OK;
}

static void clip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = loss_tau(l);
    const double share = 0.5 / (double)in->batch_count;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < s.count; a++) {
            out->value += share * side_add_softmax(&s, a, tau, share);
        }
    }
    out->objective = out->value;
    loss_learn_scale(l, in, loss_scale_gradient(l, in, out));
}

const struct loss_method loss_method_clip = {.name = "clip",
                                             .tau = 0.01,
                                             .temperature = LOSS_TEMPERATURE_CONSTANT,
                                             .may_learn_tau = true,
                                             .create = clip_create,
                                             .step = clip_step};
