/*
 * siglip: every pair judged alone by a sigmoid (Zhai et al., "Sigmoid loss for language image
 * pre-training", ICCV 2023), with learned temperature and bias:
 *
 *   l_ij = S_ij / tau + bias,  z_ij = 1 for i = j, else -1
 *   L = 1/B sum_ij log(1 + exp(-z_ij l_ij)),  dL/dl_ij = -z_ij sigmoid(-z_ij l_ij) / B
 *
 * S is of normalised embeddings, as the paper has it. The bias is learned with the temperature, and
 * stays where the temperature does. It keeps no state of samples.
 */
#include "train/loss/loss_internal.h"

static enum status siglip_create(struct loss *l, struct error *err) {
    (void)err;
    static const char *const names[] = {"bias", "bias.m", "bias.v"};
    l->bias.value = l->options.bias0;
    loss_add_scale(l);
    loss_add_scalar(l, names[0], &l->bias.value);
    loss_add_scalar(l, names[1], &l->bias.m);
    loss_add_scalar(l, names[2], &l->bias.v);
    return STATUS_OK;
}

static void siglip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double tau = loss_tau(l);
    double bias_gradient = 0.0;
    for (int64_t i = 0; i < b; i++) {
        for (int64_t j = 0; j < b; j++) {
            const int64_t at = i * b + j;
            const double z = i == j ? 1.0 : -1.0;
            const double t = -z * ((double)in->similarity[at] / tau + l->bias.value);
            const double softplus = log_add(0.0, t);
            const double g = -z * exp(t - softplus) / (double)b;
            out->value += softplus / (double)b;
            out->gradient[at] = (float)(g / tau);
            bias_gradient += g;
        }
    }
    out->objective = out->value;
    if (l->options.temperature == LOSS_TEMPERATURE_GLOBAL) {
        loss_learn_scale(l, in, loss_scale_gradient(l, in, out));
        loss_adam(&l->bias, bias_gradient, loss_scalar_lr(l, in), l->learned_steps);
    }
}

const struct loss_method loss_method_siglip = {.name = "siglip",
                                               .tau = 0.1,
                                               .temperature = LOSS_TEMPERATURE_GLOBAL,
                                               .may_learn_tau = true,
                                               .create = siglip_create,
                                               .step = siglip_step};
