/*
 * fastclip-v0 to -v3, scent and glofnd: the global contrastive loss with other temperatures (Wei et
 * al., "FastCLIP: a suite of optimization techniques to accelerate CLIP training with limited
 * resources", 2024). g, u and w are sogclr's; both sides are averaged. gamma falls from 1 to its
 * final value on a cosine schedule, by epoch (schedule_gamma).
 *
 *   v0  L = 1/2 sum over sides of mean_i sum_j w_ij Delta_ij / tau, one tau, learned:
 *       dL/dlog(1/tau) = L
 *   v1  the same with a constant tau
 *   v2  the same with tau_i of each sample and side, learned by Adam (0.9, 0.999, 1e-8) along
 *           h_i = log u_i + rho - sum_j w_ij Delta_ij / tau_i,   within [-5, 5]
 *       within [tau_min, tau_max]; bias correction counts the visits of the sample
 *   v3  L = 1/2 sum over sides of mean_i sum_j w_ij Delta_ij, one tau, learned on
 *       F = tau (1/2 sum over sides of mean_i log u_i + rho):
 *           dF/dtau = 1/2 sum over sides of mean_i [log u_i - sum_j w_ij Delta_ij / tau] + rho
 *       at a third of its rate if tau is 0.03 or less
 *
 * eps > 0 (as published: 1e-14, on larger data 1e-6) is added to every g.
 *
 * scent: v3 with u updated by a proximal mirror step on the dual of log (eps + g) (Wei et al., "A
 * geometry-aware efficient algorithm for compositional entropic risk minimization", 2026). The step
 * has a closed form, a moving average with one gamma per anchor:
 *
 *   u_i <- (1 - gamma_i) u_i + gamma_i (eps + g_i),   gamma_i = sigmoid(log alpha + slope log u_i)
 *
 * slope 1 is the paper's; 0: one gamma for all anchors. Hard anchors (large u) forget at once; easy
 * ones average long. eps bounds log u from below, and so 1 / gamma_i, the largest sum of an
 * anchor's weights.
 *
 * glofnd: v3 without false negatives, which match the anchor as well as its positive (Balmaseda et
 * al., "Discovering global false negatives on the fly", ICML 2025). From epoch
 * --false-negative-start on each anchor has a threshold lambda_i, initially 1, to be exceeded by
 * the fraction alpha of all its negatives:
 *
 *   h_i = alpha - (fraction of the batch's negatives with S_ij > lambda_i)
 *
 * by Adam (0.9, 0.98, 1e-8), within [-1, 1]; then negatives with S_ij > lambda_i are excluded from
 * g, its mean, and L. An anchor without other negatives keeps them all (published: 0 / 0).
 *
 * One tau is learned as log(1/tau). The gradient of S uses the tau from before the step.
 *
 * Differences from the published code, which differs from its formulas: there the pairwise part of
 * v3's dF/dtau counts twice; v2 divides by Adam's second moment without its root, and corrects its
 * bias by epochs, as does glofnd; in v3 and scent the mean inside the logarithm divides by B, the
 * weights by B - 1; and tau's learning rate has a warmup (here only v0's, which is the model's).
 */
#include <string.h>

#include "train/loss/loss_internal.h"

static const double largest_gradient = 5.0;

enum { LOG_U, TAU, TAU_GRADIENT, TAU_SQUARE };
static const struct loss_column u_column[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED}, {0}};
static const struct loss_column v2_columns[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED},
                                                {"tau", .first_option = LOSS_TAU},
                                                {"tau_gradient", .first = 0.0f},
                                                {"tau_square", .first = 0.0f},
                                                {0}};
enum { THRESHOLD = 1, SHARE_GRADIENT, SHARE_SQUARE };
static const struct loss_column glofnd_columns[] = {{"log_u", .first = SAMPLE_STATE_UNVISITED},
                                                    {"threshold", .first = 1.0f},
                                                    {"share_gradient", .first = 0.0f},
                                                    {"share_square", .first = 0.0f},
                                                    {0}};

/* The temperatures of a side's samples, and Adam's moments of their gradients. */
struct side_taus {
    float *tau, *m, *v;
    const uint64_t *visits; /* this one included */
};

static struct side_taus taus_of(const struct loss *l, int side) {
    return (struct side_taus){.tau = loss_window(l, TAU, side),
                              .m = loss_window(l, TAU_GRADIENT, side),
                              .v = loss_window(l, TAU_SQUARE, side),
                              .visits = loss_visits(l, side)};
}

static void step_tau(const struct loss_options *o, const struct side_taus *t, int64_t a, double h) {
    struct loss_learned tau = {(double)t->tau[a], (double)t->m[a], (double)t->v[a]};
    loss_adam(&tau, o, fmax(-largest_gradient, fmin(largest_gradient, h)), o->tau_lr,
              (double)t->visits[a]);
    t->tau[a] = (float)fmax(o->tau_min, fmin(o->tau_max, tau.value));
    t->m[a] = (float)tau.m;
    t->v[a] = (float)tau.v;
}

/* ---- false negatives ---- */

static bool is_kept(const struct loss_side *s, int64_t a, int64_t c, double threshold) {
    return c != a && (double)s->similarity[side_place(s, a, c)] <= threshold;
}

/* The anchor's positive and the negatives that it keeps, as a separate row. */
static struct loss_side
take_kept(const struct loss *l, const struct loss_side *s, int64_t a, double threshold) {
    struct loss_side row = *s;
    row.similarity = l->view_row[0];
    row.gradient = l->view_row[1];
    row.anchor_stride = 1;
    row.contrast_stride = 1;
    row.weights = s->weights != NULL ? s->weights + a : NULL;
    row.count = 1;
    l->view_row[0][0] = (float)side_positive(s, a);
    for (int64_t c = 0; c < s->count; c++) {
        if (is_kept(s, a, c, threshold)) {
            l->view_row[0][row.count++] = s->similarity[side_place(s, a, c)];
        }
    }
    memset(row.gradient, 0, (size_t)row.count * sizeof *row.gradient);
    return row;
}

static void
put_kept(const struct loss_side *row, const struct loss_side *s, int64_t a, double threshold) {
    int64_t k = 0;
    side_add(s, a, a, (double)row->gradient[k++]);
    for (int64_t c = 0; c < s->count; c++) {
        if (is_kept(s, a, c, threshold)) {
            side_add(s, a, c, (double)row->gradient[k++]);
        }
    }
}

/* Steps the anchor's threshold. Returns it, or if it would keep nothing a value that keeps all. */
static double step_threshold(struct loss *l, const struct loss_side *s, int side, int64_t a) {
    static const struct loss_options adam = {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8};
    const struct loss_options *o = &l->options;
    float *threshold = &loss_window(l, THRESHOLD, side)[a];
    float *m = &loss_window(l, SHARE_GRADIENT, side)[a];
    float *v = &loss_window(l, SHARE_SQUARE, side)[a];
    const double steps = (double)loss_visits(l, side)[a] - (double)o->false_negative_start;
    struct loss_learned x = {(double)*threshold, (double)*m, (double)*v};
    const struct loss_side kept = take_kept(l, s, a, x.value);
    const double above = 1.0 - side_contrasts(&kept) / side_contrasts(s);
    loss_adam(&x, &adam, o->false_negative_share - above, o->false_negative_lr, fmax(1.0, steps));
    *threshold = (float)fmax(-1.0, fmin(1.0, x.value));
    *m = (float)x.m;
    *v = (float)x.v;
    return take_kept(l, s, a, (double)*threshold).count > 1 ? (double)*threshold : HUGE_VAL;
}

static void fastclip_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const bool individual = o->temperature == LOSS_TEMPERATURE_INDIVIDUAL;
    const bool times_tau = l->row->times_tau;
    const bool robust = times_tau || individual; /* tau is regularised */
    const bool finds = l->row->finds_false && in->epoch >= o->false_negative_start;
    const double gamma = loss_gamma(l, in->epoch);
    const double global = loss_tau(l);
    const int64_t b = in->batch_count;
    const double share = 0.5 / (double)b;
    double tau_gradient = in->weights == NULL ? o->rho : 0.0;
    double tau_sum = 0.0;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        struct side_taus taus = {0};
        float *log_u = loss_window(l, LOG_U, side);
        if (individual) {
            taus = taus_of(l, side);
        }
        for (int64_t a = 0; a < b; a++) {
            const double tau = individual ? (double)taus.tau[a] : global;
            const double scale = times_tau ? share : share / tau;
            const double threshold = finds ? step_threshold(l, &s, side, a) : 0.0;
            const struct loss_side row = finds ? take_kept(l, &s, a, threshold) : s;
            const int64_t at = finds ? 0 : a;
            const double log_g = side_log_mean(&row, at, tau, NULL);
            const double updated = loss_updated_u(l, log_u[a], log_g, gamma);
            const double value =
                side_add_surrogate(&row, at, tau, NULL, updated + log(side_contrasts(&row)), scale);
            if (finds) {
                put_kept(&row, &s, a, threshold);
            }
            const double mean = value / (scale * tau); /* sum of w Delta / tau */
            const double weight = side_weight(&s, a);
            loss_add(out, a, weight * value);
            out->objective +=
                weight * share *
                (robust ? tau * (updated + o->rho) : updated + log((double)(l->samples_count - 1)));
            tau_gradient +=
                weight * share * (updated - mean + (in->weights != NULL ? o->rho : 0.0));
            tau_sum += share * tau;
            log_u[a] = (float)updated;
            if (individual) {
                step_tau(o, &taus, a, updated + o->rho - mean);
            }
        }
    }
    out->tau = individual ? tau_sum : global;
    loss_learn_scale(l, in, times_tau ? -global * tau_gradient : out->value);
}

const struct loss_row loss_fastclip_v0 = {
    .name = "fastclip-v0",
    .paper = "Wei, 2024",
    .what = "sogclr with one learned temperature",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_U_EPS),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.07,
                 .temperature = LOSS_TEMPERATURE_GLOBAL,
                 .gamma = 0.2,
                 .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = u_column,
    .surrogate = true,
    .step = fastclip_step,
    .tiles = true,
    .device = DEVICE_LOSS_FASTCLIP,
};

const struct loss_row loss_fastclip_v1 = {
    .name = "fastclip-v1",
    .paper = "Wei, 2024",
    .what = "sogclr with a constant temperature",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_U_EPS),
    .defaults = {.tau = 0.07, .gamma = 0.2, .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = u_column,
    .surrogate = true,
    .step = fastclip_step,
    .tiles = true,
    .device = DEVICE_LOSS_FASTCLIP,
};

const struct loss_row loss_fastclip_v2 = {
    .name = "fastclip-v2",
    .paper = "Wei, 2024",
    .what = "sogclr with one temperature per sample and side, learned by Adam",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_RHO) | LOSS_BIT(LOSS_U_EPS),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_INDIVIDUAL,
    .defaults = {.tau = 0.03,
                 .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                 .tau_lr = 0.0133,
                 .rho = 7.0,
                 .gamma = 0.2,
                 .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = v2_columns,
    .surrogate = true,
    .step = fastclip_step,
    .tiles = true,
    .device = DEVICE_LOSS_FASTCLIP,
};

const struct loss_row loss_fastclip_v3 = {
    .name = "fastclip-v3",
    .paper = "Wei, 2024",
    .what = "sogclr with one learned, regularised temperature",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_RHO) | LOSS_BIT(LOSS_U_EPS),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.07,
                 .temperature = LOSS_TEMPERATURE_GLOBAL,
                 .tau_lr = 2e-4,
                 .gamma = 0.2,
                 .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = u_column,
    .surrogate = true,
    .step = fastclip_step,
    .tiles = true,
    .times_tau = true,
    .slow_tau = 0.03,
    .device = DEVICE_LOSS_FASTCLIP,
};

const struct loss_row loss_scent = {
    .name = "scent",
    .paper = "Wei, 2026",
    .what =
        "fastclip-v3 whose moving-average weight adapts to each anchor, larger for hard anchors",
    .reads = LOSS_READS_TAU | LOSS_BIT(LOSS_RHO) | LOSS_BIT(LOSS_GAMMA_LOG_ALPHA) |
             LOSS_BIT(LOSS_GAMMA_SLOPE) | LOSS_BIT(LOSS_U_EPS),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.07,
                 .temperature = LOSS_TEMPERATURE_GLOBAL,
                 .tau_lr = 6.25e-5,
                 .rho = 11.0,
                 .u_eps = 1e-6},
    .columns = u_column,
    .surrogate = true,
    .step = fastclip_step,
    .tiles = true,
    .times_tau = true,
    .anchor_gamma = true,
    .slow_tau = 0.03,
    .device = DEVICE_LOSS_FASTCLIP,
};

const struct loss_row loss_glofnd = {
    .name = "glofnd",
    .paper = "Balmaseda, ICML 2025",
    .what = "fastclip-v3 without false negatives, by a learned threshold per anchor",
    .reads = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_RHO) | LOSS_BIT(LOSS_U_EPS) |
             LOSS_BIT(LOSS_FALSE_NEGATIVE_SHARE) | LOSS_BIT(LOSS_FALSE_NEGATIVE_LR) |
             LOSS_BIT(LOSS_FALSE_NEGATIVE_START),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_CONSTANT | LOSS_GLOBAL,
    .defaults = {.tau = 0.07,
                 .temperature = LOSS_TEMPERATURE_GLOBAL,
                 .tau_lr = 2e-4,
                 .gamma = 0.2,
                 .gamma_schedule = LOSS_GAMMA_COSINE},
    .columns = glofnd_columns,
    .surrogate = true,
    .step = fastclip_step,
    .times_tau = true,
    .finds_false = true,
    .slow_tau = 0.03,
};
