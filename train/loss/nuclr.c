/*
 * nuclr: Algorithm 1 of Wang et al., "On discriminative probabilistic modeling for self-supervised
 * representation learning" (ICLR 2025), section 3.4, in both directions. A candidate c has a
 * popularity zeta_c; image anchors use the texts', text anchors the images'.
 *
 *   g_i = 1/(B-1) sum_{j != i} exp((Delta_ij - zeta_j) / tau),  u_i <- (1 - gamma) u_i + gamma g_i
 *   w_ij = exp((Delta_ij - zeta_j) / tau) / ((B-1) (u_i + exp(-xi / tau) / (n-1)))
 *   L = mean_i sum_{j != i} w_ij Delta_ij, w constant
 *
 * which is eq. (15) with xi instead of zeta_i, and step 6 of Algorithm 1 in the workshop
 * version of the paper. For zeta, with p_ij = exp((Delta_ij - zeta_j) / tau) / ((n-1) u_i +
 * exp(-zeta_i / tau)), the softmax over the dataset, the gradient of the workshop's step 8 times n
 * (ICLR's eq. (14) is garbled in print):
 *
 *   q_j = 1 - n/B sum_{i in B} p_ij                                  as published
 *   q_j = 1 - p_jj - (n-1)/(B-1) sum_{i in B, i != j} p_ij           unbiased given j in B
 *   z_j <- (1 - theta) z_j + theta q_j (first time z_j = q_j),  zeta_j <- zeta_j - eta z_j
 *
 * With options.zeta_by_visit (--zeta-lr auto) the step is relative to tau and falls with t, the
 * sample's earlier visits since zeta was unfrozen:
 *
 *   zeta_j <- zeta_j - clamp(eta tau max(1 / (t + 2), 0.1) z_j, -tau, tau),  eta = 1
 *
 * The Hessian of n Phi, which zeta minimises (eq. (8)), has eigenvalues in [0, 1] / tau, so tau is
 * Newton's shortest step for any n, B and number of steps; 1 / (t + 2) is Robbins and Monro's
 * averaging, which removes the noise of small batches; 0.1 follows towers that still change. The
 * clamp limits the change of a popularity to a factor e per visit.
 *
 * and then, in every iteration, xi, by --xi:
 *
 *   signed  xi <- max(xi, max_j zeta_j)      the published code takes the sign, but once an epoch
 *   norm    xi <- max(xi, max_j |zeta_j|)    ICLR's line 7, max{xi, ||zeta||_inf}
 *   all     xi <- max(xi0, max_j zeta_j)     the workshop's step 10, over all n: it can fall
 *
 * The first two need no j outside the batch, because no other zeta has changed. The initial xi is
 * --xi0, or zeta0 (norm: |zeta0|) if that is larger (line 1).
 *
 * All use zeta and xi from before the step. State per sample and side: log u, zeta and z.
 *
 * With m positives (--positives; Remark 2) sample j has m pairs, each of them an anchor and a
 * candidate with its own zeta, z and log u. The positive of an anchor a, one of B, is its own
 * pair (each view is a positive in turn), and all m pairs p of its sample are in the denominator:
 *
 *   g_a = mean over pairs c of other samples of exp((Delta_ac - zeta_c) / tau), u_a as above
 *   o_a(zeta) = 1/m sum_p exp((Delta_ap - zeta_p) / tau),  Delta_aa = 0
 *   D_a = u_a + o_a(xi) / (n-1)
 *   w_ac = exp((Delta_ac - zeta_c) / tau) / ((B-m) D_a)
 *   w_ap = exp((Delta_ap - xi) / tau) / (m (n-1) D_a)
 *   p_ac = exp((Delta_ac - zeta_c) / tau) / ((n-1) u_a + o_a(zeta))
 *
 * and in q_c the sums over i become means over the m anchors of each sample. Except for xi this is
 * tau times the log of 1/m sum_j sum_l exp((E(a, y_jl) - zeta_jl - E(a, own)) / tau).
 *
 * The paper's ablations: in nuclr-frozen zeta is constant, nuclr-noxi uses the anchor's own zeta
 * instead of xi (the softmax itself, without the conservative start).
 */
#include "train/loss/loss_internal.h"
#include "train/optim/schedule.h"

enum { LOG_U, ZETA, ZETA_MOMENTUM };
static const struct loss_column nuclr_columns[] = {
    {"log_u", .first = SAMPLE_STATE_UNVISITED},
    {"zeta", .first_option = LOSS_ZETA0},
    {"zeta_momentum", .first = SAMPLE_STATE_UNVISITED},
    {0}};

struct nuclr {
    double xi[SIDE_COUNT];
};

static const struct loss_private_scalar nuclr_scalars[] = {
    {"image.xi", offsetof(struct nuclr, xi[SIDE_IMAGE])},
    {"text.xi", offsetof(struct nuclr, xi[SIDE_TEXT])},
    {0}};

/* The quantity of which xi is the maximum. */
static double size_of(const struct loss *l, double zeta) {
    return l->options.xi == LOSS_XI_NORM ? fabs(zeta) : zeta;
}

static double first_xi(const struct loss *l) {
    return fmax(l->options.xi0, size_of(l, l->options.zeta0));
}

static void nuclr_begin(struct loss *l) {
    struct nuclr *state = l->private_state;
    for (int side = 0; side < SIDE_COUNT; side++) {
        state->xi[side] = first_xi(l);
    }
}

/* The largest zeta of all samples, at least the initial xi. Ids without a sample hold zeta0, which
 * is not above it. */
static double largest_of_all(const struct loss *l, int side) {
    double largest = first_xi(l);
    for (int64_t pair = 0; pair < loss_rows_each(l); pair++) {
        const int32_t column = l->columns[ZETA][side] + (int32_t)pair;
        largest = fmax(largest, sample_state_largest(l->states[side], column));
    }
    return largest;
}

/* log o_a(zeta), over the pairs of the anchor's sample; zeta NULL: xi instead. */
static double
log_positives(const struct loss_side *s, int64_t anchor, double tau, const float *zeta, double xi) {
    const int64_t first = side_first(s, anchor);
    double sum = -HUGE_VAL;
    for (int64_t p = first; p < first + s->positives; p++) {
        const double z = zeta != NULL ? (double)zeta[p] : xi;
        sum = log_add(sum, (side_delta(s, anchor, p) - z) / tau);
    }
    return sum - log((double)s->positives);
}

/* The part of the surrogate of the other pairs of the anchor's sample, w_ap Delta_ap: adds its
 * gradient times `share`, returns its value times share. zeta as in log_positives; log_d: log D_a.
 */
static double add_positives(const struct loss *l,
                            const struct loss_side *s,
                            int64_t anchor,
                            const float *zeta,
                            double xi,
                            double log_d,
                            double share) {
    const double tau = l->options.tau;
    const double log_norm = log_d + log((double)s->positives * ((double)l->samples_count - 1.0));
    const int64_t first = side_first(s, anchor);
    double value = 0.0;
    for (int64_t p = first; p < first + s->positives; p++) {
        if (p != anchor) {
            const double delta = side_delta(s, anchor, p);
            const double z = zeta != NULL ? (double)zeta[p] : xi;
            const double w = share * exp((delta - z) / tau - log_norm);
            side_add(s, anchor, p, w);
            side_add(s, anchor, anchor, -w);
            value += w * delta;
        }
    }
    return value;
}

/* One anchor's part of n/B sum p (published) or of the unbiased sum, added to sums (B). */
static void add_popularity(const struct loss *l,
                           const struct loss_side *s,
                           int64_t anchor,
                           const float *zeta,
                           double log_u,
                           double *sums) {
    const double n = (double)l->samples_count;
    const double b = (double)s->count;
    const double tau = l->options.tau;
    const double m = (double)s->positives;
    const int64_t first = side_first(s, anchor);
    const double log_norm = log_add(log(n - 1.0) + log_u, log_positives(s, anchor, tau, zeta, 0.0));
    if (s->lines != NULL) { /* the negatives' part is added after the second pass */
        const bool paper = l->options.zeta_gradient == LOSS_ZETA_PAPER;
        sums[anchor] +=
            exp(side_exponent(s, anchor, anchor, tau, zeta) - log_norm) * (paper ? n / b : 1.0);
        s->lines->popularity[anchor] =
            exp(s->lines->largest[anchor] - s->lines->positive[anchor] / tau - log_norm) *
            (paper ? n / b : (n - 1.0) / (b - m));
        return;
    }
    for (int64_t c = 0; c < s->count; c++) {
        const double p = exp(side_exponent(s, anchor, c, tau, zeta) - log_norm);
        if (l->options.zeta_gradient == LOSS_ZETA_PAPER) {
            sums[c] += p * n / b;
        } else {
            sums[c] += side_is_positive(s, first, c) ? p / m : p * (n - 1.0) / (b - m);
        }
    }
}

/* The rate of row c of the batch. */
static double
rate_of(const struct loss *l, const struct loss_input *in, int contrasts, int64_t c, double rate) {
    const uint64_t freeze = l->options.zeta_freeze_epochs;
    if (!l->options.zeta_by_visit) {
        return rate;
    }
    const uint64_t visits = loss_visits(l, contrasts)[c / loss_rows_each(l)] - 1;
    const uint64_t epochs = in->epoch > freeze ? in->epoch - freeze : 0;
    return l->options.tau * schedule_zeta_visit_rate(rate, visits < epochs ? visits : epochs);
}

/* The rate of a side's zeta; 0: frozen. */
static double zeta_rate(const struct loss *l, const struct loss_input *in, int contrasts) {
    const double rate = contrasts == SIDE_IMAGE ? in->zeta_lr_image : in->zeta_lr_text;
    return l->row->zeta_frozen ? 0.0 : rate;
}

/* Steps zeta of one side's candidates along 1 - sums, then updates xi. */
static void step_zeta(struct loss *l, const struct loss_input *in, int contrasts, double rate) {
    float *momentum = l->rows[2];
    float *zeta = l->rows[1];
    struct nuclr *state = l->private_state;
    const int64_t b = in->batch_count;
    const double theta = l->options.zeta_momentum;
    const double old_xi = state->xi[contrasts];
    double largest = -HUGE_VAL; /* of the batch */
    bool held_xi = false;       /* the batch has the sample whose zeta is xi */
    loss_take_rows(l, zeta, ZETA, contrasts, b);
    loss_take_rows(l, momentum, ZETA_MOMENTUM, contrasts, b);
    for (int64_t c = 0; c < b; c++) {
        const double q = 1.0 - l->sums[contrasts][c];
        const double z =
            sample_state_visited(momentum[c]) ? (1.0 - theta) * (double)momentum[c] + theta * q : q;
        momentum[c] = (float)z;
        held_xi = held_xi || (double)zeta[c] == old_xi;
        const double step = rate_of(l, in, contrasts, c, rate) * z;
        const double limit = l->options.zeta_by_visit ? l->options.tau : HUGE_VAL;
        zeta[c] = (float)((double)zeta[c] - fmax(-limit, fmin(step, limit)));
        largest = fmax(largest, size_of(l, (double)zeta[c]));
    }
    loss_put_rows(l, momentum, ZETA_MOMENTUM, contrasts, b);
    loss_put_rows(l, zeta, ZETA, contrasts, b);
    state->xi[contrasts] = fmax(old_xi, largest);
    if (l->options.xi == LOSS_XI_ALL && held_xi && largest < old_xi && old_xi > first_xi(l)) {
        state->xi[contrasts] = largest_of_all(l, contrasts);
    }
}

static void nuclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = l->options.tau;
    const double n = (double)l->samples_count;
    const int64_t b = in->batch_count;
    const struct nuclr *state = l->private_state;
    for (int anchors = 0; anchors < SIDE_COUNT; anchors++) {
        const int contrasts = SIDE_COUNT - 1 - anchors;
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)anchors);
        const bool moves = zeta_rate(l, in, contrasts) > 0.0; /* zeta, that is */
        float *log_u = l->rows[0];
        float *zeta = l->rows[1];
        loss_take_rows(l, log_u, LOG_U, anchors, b);
        loss_take_rows(l, zeta, ZETA, contrasts, b);
        for (int64_t c = 0; c < b; c++) {
            l->sums[contrasts][c] = 0.0;
        }
        for (int64_t a = 0; a < b; a++) {
            const double log_g = side_log_mean(&s, a, tau, zeta);
            const double updated = log_running_mean(log_u[a], log_g, loss_gamma(l, in->epoch));
            const double own = (double)zeta[a];
            const float *in_place_of_xi = l->row->own_xi ? zeta : NULL;
            const double xi = state->xi[contrasts];
            const double positives_sum = log_positives(&s, a, tau, in_place_of_xi, xi);
            const double log_d = log_add(updated, positives_sum - log(n - 1.0));
            const double weight = side_weight(&s, a);
            loss_add(out, a,
                     weight * side_add_surrogate(&s, a, tau, zeta, log_d + log(side_contrasts(&s)),
                                                 1.0 / (double)b));
            loss_add(out, a,
                     add_positives(l, &s, a, in_place_of_xi, xi, log_d, weight / (double)b));
            out->objective +=
                weight *
                (tau * log_add(log(n - 1.0) + updated, log_positives(&s, a, tau, zeta, 0.0)) +
                 own) /
                (double)b;
            if (moves) {
                add_popularity(l, &s, a, zeta, updated, l->sums[contrasts]);
            }
            log_u[a] = (float)updated;
        }
        loss_put_rows(l, log_u, LOG_U, anchors, b);
    }
}

static void nuclr_finish(struct loss *l, const struct loss_input *in) {
    for (int contrasts = SIDE_COUNT - 1; contrasts >= 0; contrasts--) {
        const double rate = zeta_rate(l, in, contrasts);
        if (rate > 0.0) {
            step_zeta(l, in, contrasts, rate);
        }
    }
}

#define READS    (LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_ZETA0) | LOSS_BIT(LOSS_POSITIVES))
#define READS_XI (LOSS_BIT(LOSS_XI0) | LOSS_BIT(LOSS_XI))
#define READS_RATES                                                                                \
    (LOSS_BIT(LOSS_ZETA_LR) | LOSS_BIT(LOSS_ZETA_LR_IMAGE_RATIO) | LOSS_BIT(LOSS_ZETA_MOMENTUM) |  \
     LOSS_BIT(LOSS_ZETA_FREEZE_EPOCHS) | LOSS_BIT(LOSS_ZETA_GRADIENT))

#define NUCLR_ROW                                                                                  \
    .paper = "Wang, ICLR 2025", .defaults = {.tau = 0.01}, .columns = nuclr_columns,               \
    .private_bytes = sizeof(struct nuclr), .scalars = nuclr_scalars, .begin = nuclr_begin,         \
    .surrogate = true, .step = nuclr_step, .finish = nuclr_finish, .tiles = true,                  \
    .device = DEVICE_LOSS_NUCLR

const struct loss_row loss_nuclr = {
    .name = "nuclr",
    .what = "sogclr with a learned popularity zeta per sample (Algorithm 1)",
    .reads = READS | READS_XI | READS_RATES,
    NUCLR_ROW,
};

const struct loss_row loss_nuclr_frozen = {
    .name = "nuclr-frozen",
    .what = "ablation: zeta stays at its initial value",
    .reads = READS | READS_XI,
    .zeta_frozen = true,
    NUCLR_ROW,
};

const struct loss_row loss_nuclr_noxi = {
    .name = "nuclr-noxi",
    .what = "ablation: uses each sample's own zeta instead of xi",
    .reads = READS | READS_RATES,
    .own_xi = true,
    NUCLR_ROW,
};
