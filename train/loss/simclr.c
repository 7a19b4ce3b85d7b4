/*
 * simclr: InfoNCE over two views of every image (Chen et al., "A simple framework for contrastive
 * learning of visual representations", ICML 2020), with a constant temperature or a learned one.
 * Every one of the 2B views is an anchor, the other view of its image the positive:
 *
 *   L = mean over anchors a of -log( exp(S_ap / tau) / sum_{c != a} exp(S_ac / tau) )
 *
 * It keeps no state of samples but visits.
 */
#include "train/loss/loss_internal.h"

static enum status simclr_create(struct loss *l, struct error *err) {
    (void)err;
    loss_add_scale(l);
    return STATUS_OK;
}

static double
simclr_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    return share * side_add_softmax(s, anchor, loss_tau(l), share);
}

static void simclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    loss_step_views(l, in, out, simclr_anchor);
    loss_learn_scale(l, in, loss_scale_gradient(l, in, out));
}

const struct loss_method loss_method_simclr = {.name = "simclr",
                                               .tau = 0.5,
                                               .views_tau = 0.5,
                                               .temperature = LOSS_TEMPERATURE_CONSTANT,
                                               .may_learn_tau = true,
                                               .create = simclr_create,
                                               .step_views = simclr_step};
