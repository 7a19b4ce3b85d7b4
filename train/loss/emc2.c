/*
 * emc2: negatives sampled by one Markov chain per sample, so that the gradient is the global loss's
 * for any batch size (Yau et al., "EMC2: efficient MCMC negative sampling for contrastive learning
 * with global convergence", ICML 2024). In each step R negatives are proposed, as many as the batch
 * has for an anchor; proposal c is accepted with probability min(1, exp((S_ac - S_state) / tau));
 * the states after the first P = floor(burn_in R) proposals are recorded:
 *
 *   L = mean over anchors a of [ mean over recorded S_ar - S_a,own ] / tau,  r constant
 *
 * Two views, as published: the R = 2B - 2 views of other samples; both views of a sample are
 * anchors, and the second continues the chain of the first. Pairs, generalised: image i has a chain
 * over the R = B - 1 other texts, text j one over images; half the mean of each side.
 *
 * A chain continues from its state: the sample it was at when its own sample was last in a batch.
 * If that is in the batch, its score is the current one. Otherwise, by --emc2-off-batch:
 *
 *   view
 *     Algorithm 1. The caller re-encodes that sample (loss_carried) as the same view, which is
 *     stored with it. Its score is current, every state after the first P proposals is recorded,
 *     and it gets a gradient too. If the caller does not have it any more, the chain restarts.
 *     Proposals are uniform (line 5) over the batch and that sample, which has as many entries as
 *     other samples have views. Only then do chains sample the softmax, by detailed balance within
 *     this set. If each negative were proposed once, in order, as in the published code, the mean
 *     gradient of two views would be off by 0.15 of its length instead of 0.03 (64 samples of
 *     fixed features, B = 8, tau = 0.07; ccstudy chains).
 *   encode
 *     The same, but the sample is encoded without augmentation (footnote 2). The loss is over
 *     augmented views, so the gradient has a bias: 1.3e-2 of squared norm instead of 1e-4 in
 *     figure 7 (ccstudy gradient).
 *   skip
 *     The score stays (S / tau), and nothing is recorded until a proposal is accepted. An anchor
 *     without any record is skipped. Negatives are proposed once each, in order. Mostly hard
 *     negatives are missing, at which chains stay long: of those 64 samples as pairs, the
 *     negatives' weights add up to 0.79 instead of 2.
 *
 * State: per sample, and for pairs per side, the chain's last score, its sample's id, and 2 epoch +
 * view of that sample's view. Random numbers are keyed by (seed, step, sample id, side).
 */
#include "formats/base/rng.h"
#include "train/loss/loss_internal.h"

enum { CHAIN_SCORE, CHAIN_ID, CHAIN_VIEW };
static const struct loss_column emc2_columns[] = {
    {"chain_log_score", .first = SAMPLE_STATE_UNVISITED},
    {"chain_id", .kind = SAMPLE_STATE_ID},
    {"chain_view", .first = 0.0f},
    {0}};

/* A chain's state if it is not a negative in the batch. */
enum {
    STATE_OUTSIDE = -1, /* off-batch, or not started yet: not recorded */
    STATE_CARRIED = -2  /* the re-encoded sample */
};

/* One anchor's similarities, and the candidates that its chain excludes. */
struct walk {
    const float *similarity;
    float *gradient; /* of them */
    int64_t stride, count;
    int64_t anchor, own; /* positions of the anchor and its positive; equal for pairs */
    int64_t row;         /* the anchor's row of carried similarities */
    int64_t burn_in;     /* proposals that are not recorded */
    double tau;
    bool draws_places; /* proposals are random; else each negative is proposed once, in order */
    bool has_carried;  /* an off-batch sample is a negative too, with this similarity: */
    double carried;
    uint32_t views; /* its number of entries among the proposals */
    struct rng draws;
};

static double score_of(const struct walk *w, int64_t state) {
    const double s = state >= 0 ? (double)w->similarity[state * w->stride] : w->carried;
    return s / w->tau;
}

/* Negative number k, skipping the anchor and its positive. */
static int64_t contrast_at(const struct walk *w, int64_t k) {
    const int64_t low = w->anchor < w->own ? w->anchor : w->own;
    const int64_t high = w->anchor < w->own ? w->own : w->anchor;
    k += k >= low;
    return low == high ? k : k + (k >= high);
}

/* The r-th of `count` proposals, as a state. */
static int64_t propose(struct walk *w, int64_t r, int64_t count) {
    if (!w->draws_places) {
        return contrast_at(w, r);
    }
    const uint32_t carried = w->has_carried ? w->views : 0;
    const int64_t k = rng_below(&w->draws, (uint32_t)count + carried);
    return k >= count ? STATE_CARRIED : contrast_at(w, k);
}

/* How often states were recorded: each candidate (count), the off-batch sample, total. */
struct records {
    double *contrasts;
    double carried, all;
};

/* Continues from *state; an off-batch state has the score in *log_score. */
static void walk_on(struct walk *w, int64_t *state, float *log_score, struct records *r) {
    const int64_t count = w->count - (w->anchor == w->own ? 1 : 2);
    for (int64_t c = 0; c < w->count; c++) {
        r->contrasts[c] = 0.0;
    }
    r->carried = 0.0;
    r->all = 0.0;
    if (*state != STATE_OUTSIDE) {
        *log_score = (float)score_of(w, *state);
    }
    for (int64_t k = 0; k < count; k++) {
        const int64_t c = propose(w, k, count);
        const double score = score_of(w, c);
        const double u = rng_uniform(&w->draws);
        if (!sample_state_visited(*log_score) || log(u) < score - (double)*log_score) {
            *state = c;
            *log_score = (float)score;
        }
        if (k >= w->burn_in && *state != STATE_OUTSIDE) {
            *(*state >= 0 ? &r->contrasts[*state] : &r->carried) += 1.0;
            r->all += 1.0;
        }
    }
}

/* The chains of one side. */
struct chains {
    float *log_score; /* (B) */
    uint64_t *ids;    /* (B) */
    float *views;     /* (B) 2 epoch + view: exact to epoch 2^23 */
};

static struct chains chains_of(const struct loss *l, int side) {
    return (struct chains){loss_window(l, CHAIN_SCORE, side), loss_window_u64(l, CHAIN_ID, side),
                           loss_window(l, CHAIN_VIEW, side)};
}

static uint64_t
emc2_carried(const struct loss *l, uint64_t *view, int side, int64_t place, int64_t count) {
    const struct chains chains = chains_of(l, side);
    const uint64_t id = chains.ids[place];
    *view = (uint64_t)chains.views[place];
    return id == SAMPLE_STATE_NO_ID || loss_find_id(l, count, id) >= 0 ? SAMPLE_STATE_NO_ID : id;
}

/* Sets the state of entry i's chain: view `view` of the sample at position `place`. */
static void stand_on(const struct loss *l,
                     const struct chains *chains,
                     const struct loss_input *in,
                     int64_t i,
                     int64_t place,
                     int64_t view) {
    chains->ids[i] = in->sample_ids[place];
    if (loss_carries(l)) {
        chains->views[i] = (float)(2 * in->epoch + (uint64_t)view);
    }
}

/* The state of entry i's chain before the step. */
static int64_t begin(const struct loss *l,
                     const struct loss_input *in,
                     const struct chains *chains,
                     int side,
                     int64_t i) {
    const int64_t b = in->batch_count;
    const int64_t place = loss_find_id(l, b, chains->ids[i]);
    if (place >= 0 || !loss_carries(l)) {
        return place;
    }
    const bool carried =
        in->carried_ids != NULL && in->carried_ids[side * b + i] != SAMPLE_STATE_NO_ID;
    if (!carried) { /* the chain has no state yet, or its sample was removed */
        chains->log_score[i] = SAMPLE_STATE_UNVISITED;
    }
    return carried ? STATE_CARRIED : STATE_OUTSIDE;
}

/* Runs the chain, and adds the anchor's gradient and value. */
static void step_anchor(const struct loss *l,
                        struct walk *w,
                        int64_t *state,
                        float *log_score,
                        double share,
                        const struct loss_input *in,
                        struct loss_output *out) {
    const int64_t row = w->anchor % in->batch_count;
    struct records r = {.contrasts = l->sums[0]};
    share *= in->weights != NULL ? (double)in->weights[row] : 1.0;
    w->draws_places = loss_carries(l);
    w->carried = w->has_carried ? (double)in->carried_similarity[w->row] : 0.0;
    walk_on(w, state, log_score, &r);
    for (int64_t c = 0; c < w->count && r.all > 0.0; c++) {
        const double g = share * (r.contrasts[c] / r.all - (c == w->own ? 1.0 : 0.0));
        float *to = &w->gradient[c * w->stride];
        *to = (float)((double)*to + g);
        loss_add(out, row, g * (double)w->similarity[c * w->stride]);
    }
    if (r.carried > 0.0) {
        const double g = share * r.carried / r.all;
        out->carried_gradient[w->row] = (float)g;
        loss_add(out, row, g * w->carried);
    }
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
                             .gradient = s.gradient + side_place(&s, a, 0),
                             .stride = s.contrast_stride,
                             .count = b,
                             .anchor = a,
                             .own = a,
                             .row = side * b + a,
                             .views = 1,
                             .burn_in = (int64_t)(l->options.burn_in * (double)(b - 1)),
                             .tau = tau};
            int64_t state = begin(l, in, &chains, side, a);
            w.has_carried = state == STATE_CARRIED;
            rng_init(&w.draws, l->options.seed, RNG_CHAIN, in->step,
                     2 * in->sample_ids[a] + (uint64_t)side);
            step_anchor(l, &w, &state, &chains.log_score[a], share, in, out);
            if (state >= 0) {
                stand_on(l, &chains, in, a, state, 0);
            }
            out->objective += 0.5 * side_weight(&s, a) * side_info_nce(&s, a, tau) / (double)b;
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
        int64_t state = begin(l, in, &chains, SIDE_IMAGE, i);
        const bool has_carried = state == STATE_CARRIED;
        if (state >= 0 &&
            l->options.emc2_carry == LOSS_EMC2_VIEW) { /* the same view in this batch */
            state += (uint64_t)chains.views[i] % 2 * (uint64_t)b;
        }
        for (int64_t view = 0; view < 2; view++) {
            const int64_t a = i + view * b;
            struct walk w = {.similarity = in->similarity + a * n,
                             .gradient = out->gradient + a * n,
                             .stride = 1,
                             .count = n,
                             .anchor = a,
                             .own = i + (1 - view) * b,
                             .row = a,
                             .views = 2,
                             .has_carried = has_carried,
                             .burn_in = (int64_t)(l->options.burn_in * (double)(n - 2)),
                             .tau = tau};
            rng_init(&w.draws, l->options.seed, RNG_CHAIN, in->step,
                     2 * in->sample_ids[i] + (uint64_t)view);
            step_anchor(l, &w, &state, &chains.log_score[i], share, in, out);
            const struct loss_side row = loss_take_view(l, in, a);
            out->objective += side_weight(&row, 0) * side_info_nce(&row, 0, tau) / (double)n;
        }
        if (state >= 0) {
            stand_on(l, &chains, in, i, state % b, state / b);
        }
    }
}

const struct loss_row loss_emc2 = {
    .name = "emc2",
    .paper = "Yau, ICML 2024",
    .what = "negatives sampled by one Markov chain per sample, also from outside the batch "
            "(--emc2-off-batch)",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_BURN_IN) | LOSS_BIT(LOSS_EMC2_CARRY),
    .defaults = {.tau = 0.07},
    .columns = emc2_columns,
    .carried = emc2_carried,
    .step = emc2_step,
    .device = DEVICE_LOSS_EMC2,
};

const struct loss_row loss_emc2_views = {
    .name = "emc2",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_BURN_IN) | LOSS_BIT(LOSS_EMC2_CARRY),
    .defaults = {.tau = 0.07},
    .columns = emc2_columns,
    .carried = emc2_carried,
    .step = emc2_step_views,
    .device = DEVICE_LOSS_EMC2,
};
