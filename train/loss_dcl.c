/*
 * dcl: the debiased contrastive loss (Chuang et al., NeurIPS 2020), in both directions: the sum
 * over negatives less the share tau_plus of it that are positives unknown to us. It is hcl with
 * beta = 0; the formulas are in loss_hcl.c. It keeps no state of samples.
 */
#include "train/loss_internal.h"

static enum status dcl_create(struct loss *l, struct error *err) {
    (void)l;
    (void)err;
    return STATUS_OK;
}

static void dcl_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < s.count; a++) {
            out->value += side_add_debiased(&s, a, l->options.tau, l->options.tau_plus, 0.0);
        }
    }
    out->objective = out->value;
}

const struct loss_method loss_method_dcl = {.name = "dcl",
                                            .tau = 0.01,
                                            .temperature = LOSS_TEMPERATURE_CONSTANT,
                                            .create = dcl_create,
                                            .step = dcl_step};
