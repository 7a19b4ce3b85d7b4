/*
 * emc2: negatives drawn by a Markov chain per anchor, so that the gradient is that of the global
 * loss however small the batch (Yau et al., "EMC2: efficient MCMC negative sampling for contrastive
 * learning with global convergence", ICML 2024), lifted to pairs: image i keeps a chain over texts,
 * text j one over images. In each step the R = B - 1 other contrasts of the batch are proposed in
 * turn; proposal c is taken with probability min(1, exp((S_ac - S_state) / tau)); the states behind
 * the first P = floor(burn_in R) proposals are recorded:
 *
 *   L = 1/2 sum over sides of mean_a [ mean over recorded S_ar - S_aa ] / tau,  r constant
 *
 * A chain goes on where the anchor was last seen: its state is the logarithm of the score that the
 * state had then (S / tau, one column per side). While it still stands on a sample of an earlier
 * batch, whose embedding is not at hand, nothing is recorded; an anchor without any record is left
 * out. The draws are keyed by (seed, step, sample id, side).
 */
#include "formats/base/rng.h"
#include "train/loss_internal.h"

static enum status emc2_create(struct loss *l, struct error *err) {
    return loss_add_columns(l, "chain_log_score", SAMPLE_STATE_UNVISITED, l->chain, err);
}

/* Walks the anchor's chain over the batch; counts (B) how often each contrast was recorded. Returns
 * the number of records. */
static int64_t walk(const struct loss *l,
                    const struct loss_side *s,
                    int64_t anchor,
                    struct rng *draws,
                    float *log_score,
                    double *counts) {
    const int64_t burn_in = (int64_t)(l->options.burn_in * (double)(s->count - 1));
    int64_t state = -1; /* a sample of an earlier batch */
    int64_t recorded = 0;
    int64_t proposal = 0;
    for (int64_t c = 0; c < s->count; c++) {
        counts[c] = 0.0;
    }
    for (int64_t c = 0; c < s->count; c++) {
        if (c == anchor) {
            continue;
        }
        const double score = (double)s->similarity[side_place(s, anchor, c)] / l->options.tau;
        const double u = rng_uniform(draws);
        if (!sample_state_visited(*log_score) || log(u) < score - (double)*log_score) {
            state = c;
            *log_score = (float)score;
        }
        if (proposal++ >= burn_in && state >= 0) {
            counts[state] += 1.0;
            recorded++;
        }
    }
    return recorded;
}

static void emc2_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double tau = l->options.tau;
    const double share = 0.5 / ((double)b * tau);
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(in, out, (enum loss_side_index)side);
        float *log_score = l->gathered[0];
        sample_state_gather(l->state, l->chain[side], log_score, in->sample_ids, b);
        for (int64_t a = 0; a < b; a++) {
            struct rng draws;
            rng_init(&draws, l->options.seed, RNG_CHAIN, in->step,
                     2 * in->sample_ids[a] + (uint64_t)side);
            const int64_t recorded = walk(l, &s, a, &draws, &log_score[a], l->sums);
            for (int64_t c = 0; c < b && recorded > 0; c++) {
                const double g = share * (l->sums[c] / (double)recorded - (c == a ? 1.0 : 0.0));
                side_add(&s, a, c, g);
                out->value += g * (double)s.similarity[side_place(&s, a, c)];
            }
            const double log_others = side_log_mean(&s, a, tau, NULL) + log((double)(b - 1));
            out->objective += 0.5 * log_add(0.0, log_others) / (double)b;
        }
        sample_state_scatter(l->state, l->chain[side], log_score, in->sample_ids, b);
    }
}

const struct loss_method loss_method_emc2 = {.name = "emc2",
                                             .tau = 0.07,
                                             .temperature = LOSS_TEMPERATURE_CONSTANT,
                                             .create = emc2_create,
                                             .step = emc2_step};
