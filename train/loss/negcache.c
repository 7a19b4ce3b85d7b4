/*
 * negcache: one negative per anchor, sampled from the softmax over cached features of all samples
 * (Lindgren et al., "Efficient training of retrieval models using negative cache", NeurIPS 2021; as
 * the baseline of Yau et al., EMC2, ICML 2024, table 1 and section 4):
 *
 *   L = mean over anchors a of [ S_a,r - S_a,own ] / tau,  r constant,
 *   P(r = j) = exp(<a, c_j> / tau) / sum over k != a of exp(<a, c_k> / tau)
 *
 * c_j is sample j without augmentation, as of its last re-encoding. The caller keeps these
 * features, samples r (feature_cache.h) and re-encodes sample r without augmentation: S_a,r is the
 * current similarity, and sample r gets a gradient too. So the gradient is EMC2's eq. (11) with a
 * single record, unbiased if features were current. Sample r may be in the batch: it is re-encoded
 * anyway, because negatives are samples without augmentation.
 *
 * Two views: both views of every sample are anchors. Pairs: each image has a text as negative and
 * each text an image; half the mean of each side. An anchor without a negative is skipped.
 *
 * State: only visits.
 */
#include "train/loss/loss_internal.h"

/* One anchor, in row `row` of the carried ones. similarity, gradient: with its positive. */
static void step_anchor(const struct loss_input *in,
                        struct loss_output *out,
                        int64_t row,
                        float similarity,
                        float *gradient,
                        double weight) {
    if (in->carried_ids[row] == SAMPLE_STATE_NO_ID) {
        return;
    }
    *gradient = (float)((double)*gradient - weight);
    out->carried_gradient[row] = (float)weight;
    loss_add(out, row % in->batch_count,
             weight * ((double)in->carried_similarity[row] - (double)similarity));
}

static void negcache_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    const double share = 0.5 / (double)b;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < b; a++) {
            const int64_t own = side_place(&s, a, a);
            step_anchor(in, out, side * b + a, s.similarity[own], &s.gradient[own],
                        side_weight(&s, a) * share / l->options.tau);
            out->objective += side_weight(&s, a) * share * side_info_nce(&s, a, l->options.tau);
        }
    }
}

static void
negcache_step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t n = 2 * in->batch_count;
    const double share = 1.0 / (double)n;
    for (int64_t a = 0; a < n; a++) {
        const struct loss_side row = loss_take_view(l, in, a); /* its positive is first */
        step_anchor(in, out, a, row.similarity[0], &row.gradient[0],
                    side_weight(&row, 0) * share / l->options.tau);
        out->objective += side_weight(&row, 0) * share * side_info_nce(&row, 0, l->options.tau);
        loss_put_view(&row, in, out, a);
    }
}

const struct loss_row loss_negcache = {
    .name = "negcache",
    .paper = "Lindgren, NeurIPS 2021",
    .what = "one negative per anchor, sampled from cached features of all samples, part of which "
            "is re-encoded every step (--cache-refresh)",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_CACHE_REFRESH),
    .defaults = {.tau = 0.07},
    .step = negcache_step,
};

const struct loss_row loss_negcache_views = {
    .name = "negcache",
    .views = true,
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_CACHE_REFRESH),
    .defaults = {.tau = 0.07},
    .step = negcache_step_views,
};
