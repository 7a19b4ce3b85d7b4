/*
 * cyclip: clip with two cyclic-consistency terms (Goel et al., "CyCLIP: cyclic contrastive
 * language-image pretraining", NeurIPS 2022). X and T are the embeddings, S = X T^T:
 *
 *   L = L_clip + self/B |X X^T - T T^T|^2 + cross/B |S - S^T|^2        (Frobenius norms)
 *   dL/dS += 4 cross/B (S - S^T),  dL/d(X X^T) = 2 self/B A = -dL/d(T T^T),  A = X X^T - T T^T
 *
 * The two terms do not depend on the temperature. It keeps no per-sample state.
 */
#include "train/loss/loss_internal.h"

static void cyclip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double self = l->options.cyclic_self / (double)b;
    const double cross = l->options.cyclic_cross / (double)b;
    loss_step_anchors(l, in, out);
    for (int64_t i = 0; i < b; i++) {
        for (int64_t j = 0; j < b; j++) {
            const int64_t at = i * b + j;
            const double a = (double)in->image_similarity[at] - (double)in->text_similarity[at];
            const double c = (double)in->similarity[at] - (double)in->similarity[j * b + i];
            loss_add(out, i, self * a * a + cross * c * c); /* the same with i and j exchanged */
            out->gradient[at] = (float)((double)out->gradient[at] + 4.0 * cross * c);
            out->image_gradient[at] = (float)(2.0 * self * a);
            out->text_gradient[at] = (float)(-2.0 * self * a);
        }
    }
    out->objective = out->value;
}

const struct loss_row loss_cyclip = {
    .name = "cyclip",
    .paper = "Goel, NeurIPS 2022",
    .what = "clip with two cyclic-consistency terms",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_CYCLIC_SELF) | LOSS_BIT(LOSS_CYCLIC_CROSS),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.01},
    .uses_self = true,
    .step = cyclip_step,
    .anchor = loss_clip_anchor,
    .device = DEVICE_LOSS_CYCLIP,
};
