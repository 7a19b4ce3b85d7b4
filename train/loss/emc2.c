/*
 * emc2: negatives drawn by a Markov chain per sample, so that the gradient is that of the global
 * loss however small the batch (Yau et al., "EMC2: efficient MCMC negative sampling for contrastive
 * learning with global convergence", ICML 2024). In each step the R other contrasts of the batch
 * are proposed in turn; proposal c is accepted with probability min(1, exp((S_ac - S_state) /
 * tau)); the states after the first P = floor(burn_in R) proposals are recorded:
 *
 *   L = mean over anchors a of [ mean over recorded S_ar - S_a,own ] / tau,  r constant
 *
 * Two views, as published: the R = 2B - 2 views of other samples; both views of a sample are
 * anchors, and the second continues the chain of the first. Pairs, lifted: image i keeps a chain
 * over the R = B - 1 other texts, text j one over images; half the mean of each side.
 *
 * A chain continues where the sample was last seen. If the sample that it stands on is in the
 * batch, its score is computed anew; otherwise its embedding is not available: the score stays as
 * it was (S / tau), and nothing is recorded until a proposal is accepted. An anchor without any
 * record is skipped. State: per sample, and for pairs per side, that score and that sample's id.
 * The draws are keyed by (seed, step, sample id, side).
 *
 * Algorithm 1 differs there: its line 7 records such a state too, with an embedding made anew. What
 * is missing here are mostly hard negatives, on which chains stay long: with fixed features of 64
 * pairs, B = 8 and tau = 0.07, the negatives' weights add up to 0.61 in the place of 2, and the
 * mean gradient is 0.81 of its length off (0.07 with those records).
 */
#include "formats/base/rng.h"
#include "train/loss/loss_internal.h"

enum { CHAIN_SCORE, CHAIN_ID };
static const struct loss_column emc2_columns[] = {
    {"chain_log_score", .first = SAMPLE_STATE_UNVISITED},
    {"chain_id", .kind = SAMPLE_STATE_ID},
    {0}};

/* One anchor's similarities and what its chain may not stand on. */
struct walk {
    const float *similarity;
    int64_t stride, count;
    int64_t anchor, partner; /* equal for pairs */
    int64_t burn_in;         /* proposals that are not recorded */
    double tau;
    struct rng draws;
};

static double score_of(const struct walk *w, int64_t c) {
    return (double)w->similarity[c * w->stride] / w->tau;
}

/* Walks on from *state (-1: a sample of an earlier batch, with *log_score); counts (count) how
 * often each contrast was recorded. Returns the number of records. */
static int64_t walk_on(struct walk *w, int64_t *state, float *log_score, double *counts) {
    int64_t recorded = 0;
    int64_t proposal = 0;
    for (int64_t c = 0; c < w->count; c++) {
        counts[c] = 0.0;
    }
    if (*state >= 0) {
        *log_score = (float)score_of(w, *state);
    }
    for (int64_t c = 0; c < w->count; c++) {
        if (c == w->anchor || c == w->partner) {
            continue;
        }
        const double score = score_of(w, c);
        const double u = rng_uniform(&w->draws);
        if (!sample_state_visited(*log_score) || log(u) < score - (double)*log_score) {
            *state = c;
            *log_score = (float)score;
        }
        if (proposal++ >= w->burn_in && *state >= 0) {
            counts[*state] += 1.0;
            recorded++;
        }
    }
    return recorded;
}

/* The chains of one side. */
struct chains {
    float *log_score; /* (B) */
    uint64_t *ids;    /* (B) */
};

static struct chains chains_of(const struct loss *l, int side) {
    return (struct chains){loss_window(l, CHAIN_SCORE, side), loss_window_u64(l, CHAIN_ID, side)};
}

static void emc2_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double tau = l->options.tau;
    const double share = 0.5 / ((double)b * tau);
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        const struct chains chains = chains_of(l, side);
        for (int64_t a = 0; a < b; a++) {
            struct walk w = {.similarity = s.similarity + side_place(&s, a, 0),
                             .stride = s.contrast_stride,
                             .count = b,
                             .anchor = a,
                             .partner = a,
                             .burn_in = (int64_t)(l->options.burn_in * (double)(b - 1)),
                             .tau = tau};
            int64_t state = loss_find_id(l, b, chains.ids[a]);
            rng_init(&w.draws, l->options.seed, RNG_CHAIN, in->step,
                     2 * in->sample_ids[a] + (uint64_t)side);
            const int64_t recorded = walk_on(&w, &state, &chains.log_score[a], l->sums);
            for (int64_t c = 0; c < b && recorded > 0; c++) {
                const double g = share * (l->sums[c] / (double)recorded - (c == a ? 1.0 : 0.0));
                side_add(&s, a, c, g);
                out->value += g * (double)s.similarity[side_place(&s, a, c)];
            }
            chains.ids[a] = state >= 0 ? in->sample_ids[state] : chains.ids[a];
            const double log_others = side_log_mean(&s, a, tau, NULL) + log((double)(b - 1));
            out->objective += 0.5 * log_add(0.0, log_others) / (double)b;
        }
    }
}

static void emc2_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const int64_t n = 2 * b;
    const double tau = l->options.tau;
    const double share = 1.0 / ((double)n * tau);
    const struct chains chains = chains_of(l, SIDE_IMAGE);
    for (int64_t i = 0; i < b; i++) {
        int64_t state = loss_find_id(l, b, chains.ids[i]);
        for (int64_t view = 0; view < 2; view++) {
            const int64_t a = i + view * b;
            struct walk w = {.similarity = in->similarity + a * n,
                             .stride = 1,
                             .count = n,
                             .anchor = a,
                             .partner = i + (1 - view) * b,
                             .burn_in = (int64_t)(l->options.burn_in * (double)(n - 2)),
                             .tau = tau};
            rng_init(&w.draws, l->options.seed, RNG_CHAIN, in->step,
                     2 * in->sample_ids[i] + (uint64_t)view);
            const int64_t recorded = walk_on(&w, &state, &chains.log_score[i], l->sums);
            for (int64_t c = 0; c < n && recorded > 0; c++) {
                const double own = c == w.partner ? 1.0 : 0.0;
                const double g = share * (l->sums[c] / (double)recorded - own);
                out->gradient[a * n + c] = (float)g;
                out->value += g * (double)w.similarity[c];
            }
            const struct loss_side row = loss_take_view(l, in, a);
            const double log_others = side_log_mean(&row, 0, tau, NULL) + log((double)(n - 2));
            out->objective += log_add(0.0, log_others) / (double)n;
        }
        chains.ids[i] = state >= 0 ? in->sample_ids[state % b] : chains.ids[i];
    }
}

const struct loss_row loss_emc2 = {
    .name = "emc2",
    .paper = "Yau, ICML 2024",
    .what =
        "negatives drawn by a Markov chain of every sample; differs from Algorithm 1: a chain "
        "that stands on a sample outside the batch records nothing until it moves, so negatives "
        "weigh too little (with 64 samples and batch 8, 0.61 in the place of 2)",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_BURN_IN),
    .own = {.tau = 0.07},
    .columns = emc2_columns,
    .step = emc2_step,
    .device = DEVICE_LOSS_EMC2,
};

const struct loss_row loss_emc2_views = {
    .name = "emc2",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_BURN_IN),
    .own = {.tau = 0.07},
    .columns = emc2_columns,
    .step = emc2_step_views,
    .device = DEVICE_LOSS_EMC2,
};
