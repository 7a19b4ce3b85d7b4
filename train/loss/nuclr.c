/*
 * nuclr: Algorithm 1 of Wang et al., "On discriminative probabilistic modeling for self-supervised
 * representation learning" (ICLR 2025), section 3.4, in both directions. A contrast c has a
 * popularity zeta_c; anchors of images use that of texts and the other way round.
 *
 *   g_i = 1/(B-1) sum_{j != i} exp((Delta_ij - zeta_j) / tau),  u_i <- (1 - gamma) u_i + gamma g_i
 *   w_ij = exp((Delta_ij - zeta_j) / tau) / ((B-1) (u_i + exp(-xi / tau) / (n-1)))
 *   L = mean_i sum_{j != i} w_ij Delta_ij, w constant
 *
 * which is eq. (15) with xi in the place of zeta_i, and step 6 of Algorithm 1 in the workshop
 * version of the paper. For zeta, with p_ij = exp((Delta_ij - zeta_j) / tau) / ((n-1) u_i +
 * exp(-zeta_i / tau)), the softmax over the dataset, the gradient of the workshop's step 8 times n
 * (ICLR's eq. (14) is garbled in print):
 *
 *   q_j = 1 - n/B sum_{i in B} p_ij                                  as published
 *   q_j = 1 - p_jj - (n-1)/(B-1) sum_{i in B, i != j} p_ij           unbiased given j in B
 *   z_j <- (1 - theta) z_j + theta q_j (first time z_j = q_j),  zeta_j <- zeta_j - eta z_j
 *
 * and then, in every iteration, xi in the form that --xi names:
 *
 *   signed  xi <- max(xi, max_j zeta_j)      the published code takes the sign, but once an epoch
 *   norm    xi <- max(xi, max_j |zeta_j|)    ICLR's line 7, max{xi, ||zeta||_inf}
 *   all     xi <- max(xi0, max_j zeta_j)     the workshop's step 10, over all n: it can fall
 *
 * The first two need no j outside the batch, because no other zeta has changed. xi starts at --xi0,
 * or at zeta0 (norm: |zeta0|) where that is larger (line 1).
 *
 * All with the zeta and xi of before the step. State per sample and side: log u, zeta and z.
 *
 * The paper's ablations: nuclr-frozen never moves zeta, nuclr-noxi has the anchor's own zeta in the
 * place of xi (the softmax itself, without the conservative start).
 */
#include "train/loss/loss_internal.h"

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

/* What zeta counts for in xi. */
static double size_of(const struct loss *l, double zeta) {
    return l->options.xi == LOSS_XI_NORM ? fabs(zeta) : zeta;
}

static double first_xi(const struct loss *l) {
    return fmax(l->options.xi0, size_of(l, l->options.zeta0));
}

static void nuclr_begin(struct loss *l) {
    struct nuclr *state = l->own;
    for (int side = 0; side < SIDE_COUNT; side++) {
        state->xi[side] = first_xi(l);
    }
}

/* The largest zeta of all samples, or the first xi. Ids without a sample hold zeta0, which is not
 * above the first xi. */
static double largest_of_all(const struct loss *l, int side) {
    return fmax(first_xi(l), sample_state_largest(l->state, l->columns[ZETA][side]));
}

/* One anchor's part of n/B sum p (published) or of its unbiased twin, added to sums (B). */
static void add_popularity(const struct loss *l,
                           const struct loss_side *s,
                           int64_t anchor,
                           const float *zeta,
                           double own_zeta,
                           double log_u,
                           double *sums) {
    const double n = (double)l->samples_count;
    const double b = (double)s->count;
    const double tau = l->options.tau;
    const double log_norm = log_add(log(n - 1.0) + log_u, -own_zeta / tau);
    for (int64_t c = 0; c < s->count; c++) {
        const double p = exp(side_exponent(s, anchor, c, tau, zeta) - log_norm);
        if (l->options.zeta_gradient == LOSS_ZETA_PAPER) {
            sums[c] += p * n / b;
        } else {
            sums[c] += c == anchor ? p : p * (n - 1.0) / (b - 1.0);
        }
    }
}

/* zeta of the contrasts of one side, stepped along 1 - sums; xi follows. */
static void
step_zeta(struct loss *l, const struct loss_input *in, int contrasts, float *zeta, double rate) {
    struct nuclr *state = l->own;
    const int64_t b = in->batch_count;
    const double theta = l->options.zeta_momentum;
    const double old_xi = state->xi[contrasts];
    double largest = -HUGE_VAL; /* of the batch */
    bool held_xi = false;       /* the batch has a sample that xi was taken from */
    float *momentum = loss_window(l, ZETA_MOMENTUM, contrasts);
    for (int64_t c = 0; c < b; c++) {
        const double q = 1.0 - l->sums[c];
        const double z =
            sample_state_visited(momentum[c]) ? (1.0 - theta) * (double)momentum[c] + theta * q : q;
        momentum[c] = (float)z;
        held_xi = held_xi || (double)zeta[c] == old_xi;
        zeta[c] = (float)((double)zeta[c] - rate * z);
        largest = fmax(largest, size_of(l, (double)zeta[c]));
    }
    state->xi[contrasts] = fmax(old_xi, largest);
    if (l->options.xi == LOSS_XI_ALL && held_xi && largest < old_xi && old_xi > first_xi(l)) {
        state->xi[contrasts] = largest_of_all(l, contrasts);
    }
}

static void nuclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = l->options.tau;
    const double n = (double)l->samples_count;
    const int64_t b = in->batch_count;
    const struct nuclr *state = l->own;
    const double rates[] = {in->zeta_lr_image, in->zeta_lr_text};
    for (int anchors = 0; anchors < SIDE_COUNT; anchors++) {
        const int contrasts = SIDE_COUNT - 1 - anchors;
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)anchors);
        const bool moves = rates[contrasts] > 0.0 && !l->row->zeta_frozen; /* zeta, that is */
        float *log_u = loss_window(l, LOG_U, anchors);
        float *zeta = loss_window(l, ZETA, contrasts);
        for (int64_t c = 0; c < b; c++) {
            l->sums[c] = 0.0;
        }
        for (int64_t a = 0; a < b; a++) {
            const double log_g = side_log_mean(&s, a, tau, zeta);
            const double updated = log_running_mean(log_u[a], log_g, loss_gamma(l, in->epoch));
            const double own = (double)zeta[a];
            const double xi = l->row->own_xi ? own : state->xi[contrasts];
            const double log_norm = log_add(updated, -xi / tau - log(n - 1.0));
            out->value += side_add_surrogate(&s, a, tau, zeta, log_norm + log((double)(b - 1)),
                                             1.0 / (double)b);
            out->objective += (tau * log_add(log(n - 1.0) + updated, -own / tau) + own) / (double)b;
            if (moves) {
                add_popularity(l, &s, a, zeta, own, updated, l->sums);
            }
            log_u[a] = (float)updated;
        }
        if (moves) {
            step_zeta(l, in, contrasts, zeta, rates[contrasts]);
        }
    }
}

enum {
    READS = LOSS_READS_TAU | LOSS_READS_GAMMA | LOSS_BIT(LOSS_ZETA0),
    READS_XI = LOSS_BIT(LOSS_XI0) | LOSS_BIT(LOSS_XI),
    READS_RATES = LOSS_BIT(LOSS_ZETA_LR) | LOSS_BIT(LOSS_ZETA_LR_IMAGE_RATIO) |
                  LOSS_BIT(LOSS_ZETA_MOMENTUM) | LOSS_BIT(LOSS_ZETA_FREEZE_EPOCHS) |
                  LOSS_BIT(LOSS_ZETA_GRADIENT),
};

#define NUCLR_ROW                                                                                  \
    .paper = "Wang, ICLR 2025", .own = {.tau = 0.01}, .columns = nuclr_columns,                    \
    .private_bytes = sizeof(struct nuclr), .scalars = nuclr_scalars, .begin = nuclr_begin,         \
    .surrogate = true, .step = nuclr_step, .device = DEVICE_LOSS_NUCLR

const struct loss_row loss_nuclr = {
    .name = "nuclr",
    .what = "sogclr with a learned popularity zeta of every sample (Algorithm 1)",
    .reads = READS | READS_XI | READS_RATES,
    NUCLR_ROW,
};

const struct loss_row loss_nuclr_frozen = {
    .name = "nuclr-frozen",
    .what = "ablation: zeta stays",
    .reads = READS | READS_XI,
    .zeta_frozen = true,
    NUCLR_ROW,
};

const struct loss_row loss_nuclr_noxi = {
    .name = "nuclr-noxi",
    .what = "ablation: each sample's own zeta in the place of xi",
    .reads = READS | READS_RATES,
    .own_xi = true,
    NUCLR_ROW,
};
