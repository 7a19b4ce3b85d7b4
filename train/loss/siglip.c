/*
 * siglip: a sigmoid loss for every pair separately (Zhai et al., "Sigmoid loss for language image
 * pre-training", ICCV 2023), with learned temperature and bias:
 *
 *   l_ij = S_ij / tau + bias,  z_ij = 1 for i = j, else -1
 *   L = 1/B sum_ij log(1 + exp(-z_ij l_ij)),  dL/dl_ij = -z_ij sigmoid(-z_ij l_ij) / B
 *
 * S is of normalised embeddings, as in the paper. The bias is learned with the temperature, and
 * constant if that is. It keeps no per-sample state.
 */
#include "train/loss/loss_internal.h"

struct siglip {
    struct loss_learned bias;
};

static const struct loss_private_scalar siglip_scalars[] = {
    {"bias", offsetof(struct siglip, bias.value)},
    {"bias.m", offsetof(struct siglip, bias.m)},
    {"bias.v", offsetof(struct siglip, bias.v)},
    {0}};

static void siglip_begin(struct loss *l) {
    struct siglip *own = l->private_state;
    own->bias.value = l->options.bias0;
}

static void siglip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double tau = loss_tau(l);
    struct siglip *own = l->private_state;
    const struct loss_side s = loss_side(l, in, out, SIDE_IMAGE);
    double bias_gradient = 0.0;
    for (int64_t i = 0; i < b; i++) {
        for (int64_t j = 0; j < b; j++) {
            const int64_t at = i * b + j;
            const double z = i == j ? 1.0 : -1.0;
            const double t = -z * ((double)in->similarity[at] / tau + own->bias.value);
            const double softplus = log_add(0.0, t);
            const double weight = 0.5 * (side_weight(&s, i) + side_weight(&s, j));
            const double g = -z * exp(t - softplus) / (double)b * weight;
            loss_add(out, i, 0.5 * side_weight(&s, i) * softplus / (double)b);
            loss_add(out, j, 0.5 * side_weight(&s, j) * softplus / (double)b);
            out->gradient[at] = (float)(g / tau);
            bias_gradient += g;
        }
    }
    out->objective = out->value;
    if (l->options.temperature == LOSS_TEMPERATURE_GLOBAL) {
        loss_learn_scale(l, in, loss_scale_gradient(l, in, out));
        loss_adam(&own->bias, &l->options, bias_gradient, loss_scalar_lr(l, in), l->learned_steps);
    }
}

const struct loss_row loss_siglip = {
    .name = "siglip",
    .paper = "Zhai, ICCV 2023",
    .what = "pairwise sigmoid loss with a learned bias",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_BIAS0),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.1, .temperature = LOSS_TEMPERATURE_GLOBAL},
    .private_bytes = sizeof(struct siglip),
    .scalars = siglip_scalars,
    .begin = siglip_begin,
    .step = siglip_step,
    .device = DEVICE_LOSS_SIGLIP,
};
