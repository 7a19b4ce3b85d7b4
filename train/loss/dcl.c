/*
 * dcl: the debiased contrastive loss (Chuang et al., NeurIPS 2020), in both directions or over two
 * views: the sum over negatives less the share tau_plus of it that are positives unknown to us. It
 * is hcl with beta = 0; the formulas are in loss/hcl.c. It keeps no state of samples.
 */
#include "train/loss/loss_internal.h"

static enum status dcl_create(struct loss *l, struct error *err) {
    (void)l;
    (void)err;
    return STATUS_OK;
}

static double
dcl_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share) {
    return side_add_debiased(s, anchor, l->options.tau, l->options.tau_plus, 0.0, share);
}

static void dcl_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < s.count; a++) {
            out->value += dcl_anchor(l, &s, a, 0.5 / (double)s.count);
        }
    }
    out->objective = out->value;
}

static void dcl_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    loss_step_views(l, in, out, dcl_anchor);
}

const struct loss_method loss_method_dcl = {.name = "dcl",
                                            .tau = 0.01,
                                            .views_tau = 0.5,
                                            .temperature = LOSS_TEMPERATURE_CONSTANT,
                                            .create = dcl_create,
                                            .step = dcl_step,
                                            .step_views = dcl_step_views};
