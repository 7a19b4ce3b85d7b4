/*
 * loss_reference: the arithmetic of the published code of sogclr, isogclr and nuclr, to reproduce
 * its logs (--variant code). It differs from the published algorithms:
 *
 *   - moving sums s over the B - 1 negatives are shifted by b, the largest exponent that the
 *     anchor ever had (its own 0 included): b never falls, so easy anchors underflow against the
 *     additive 1e-10 (sogclr, isogclr) or the floor 1e-16 (nuclr) and are muted;
 *   - sogclr, isogclr: in the whole first epoch s is overwritten instead of averaged;
 *   - nuclr: b is a cosine, not divided by tau, yet the old s is rescaled by exp(b_old - b_new)
 *     without tau; s or z of exactly 0 means unvisited; xi follows the largest zeta of all
 *     samples, once per epoch;
 *   - nuclr's zeta gradient weighs the pair itself by n/B.
 *
 * State per sample and side: s, b; isogclr also tau and tau_gradient; nuclr also zeta and its
 * momentum z.
 */
#include "train/loss/loss_internal.h"

/* gamma is constant in the published code. */
#define READS_GAMMA (LOSS_BIT(LOSS_GAMMA) | LOSS_BIT(LOSS_GAMMA_SCHEDULE))

static const double added_to_sum = 1e-10;
static const double smallest_denominator = 1e-16;
static const double largest_tau_gradient = 5.0;

/* The columns of every row begin with these two. */
enum { SUM, SHIFT };
static const struct loss_column sogclr_columns[] = {{"s", .first = 0.0f},
                                                    {"b", .first = 0.0f},
                                                    {0}};

/* The largest Delta of the anchor, its own 0 included. */
static double largest_delta(const struct loss_side *s, int64_t anchor) {
    double largest = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        largest = fmax(largest, side_delta(s, anchor, c));
    }
    return largest;
}

/* sum over negatives of exp((Delta - zeta) / tau - shift) */
static double shifted_sum(const struct loss_side *s,
                          int64_t anchor,
                          double tau,
                          const float *zeta,
                          double shift) {
    double sum = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        sum += c == anchor ? 0.0 : exp(side_exponent(s, anchor, c, tau, zeta) - shift);
    }
    return sum;
}

/* ---- sogclr, isogclr ---- */

/* The moving sums of one side's anchors. */
struct sums {
    float *s, *b; /* (B) */
};

static struct sums sums_of(const struct loss *l, int side) {
    return (struct sums){loss_window(l, SUM, side), loss_window(l, SHIFT, side)};
}

/* s and b of one anchor, b in units of tau. Returns log of what weights are divided by. */
static double step_sum(const struct loss *l,
                       const struct sums *sums,
                       const struct loss_side *side,
                       int64_t a,
                       double tau,
                       uint64_t epoch) {
    float *s = &sums->s[a];
    float *b = &sums->b[a];
    const double gamma = l->options.gamma;
    const double shift = fmax((double)*b, largest_delta(side, a) / tau);
    const double g = shifted_sum(side, a, tau, NULL, shift);
    const double kept = (double)*s * exp((double)*b - shift);
    *s = (float)(epoch == 0 ? g : (1.0 - gamma) * kept + gamma * g);
    *b = (float)shift;
    return shift + log((double)*s + added_to_sum);
}

/* tau (log mean of the others' exponentials) of one anchor, from its sums. */
static double
sums_objective(const struct sums *sums, const struct loss_side *s, int64_t a, double tau) {
    const double sum = fmax((double)sums->s[a], smallest_denominator);
    return tau * (log(sum / (double)(s->count - 1)) + (double)sums->b[a]) / (double)s->count;
}

static void sogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau = l->options.tau;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        const struct sums sums = sums_of(l, side);
        for (int64_t a = 0; a < s.count; a++) {
            const double log_norm = step_sum(l, &sums, &s, a, tau, in->epoch);
            loss_add(out, a, side_add_surrogate(&s, a, tau, NULL, log_norm, 1.0 / (double)s.count));
            out->objective += sums_objective(&sums, &s, a, tau) +
                              tau * log((double)(l->samples_count - 1)) / (double)s.count;
        }
    }
}

const struct loss_row loss_sogclr_reference = {
    .name = "sogclr",
    .parity = LOSS_PARITY_REFERENCE,
    .reads = LOSS_READS_TAU | READS_GAMMA,
    .defaults = {.tau = 0.01},
    .columns = sogclr_columns,
    .surrogate = true,
    .step = sogclr_step,
};

enum { TAU = SHIFT + 1, TAU_GRADIENT };
static const struct loss_column isogclr_columns[] = {{"s", .first = 0.0f},
                                                     {"b", .first = 0.0f},
                                                     {"tau", .first_option = LOSS_TAU},
                                                     {"tau_gradient", .first = 0.0f},
                                                     {0}};

static void isogclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct loss_options *o = &l->options;
    const int64_t b = in->batch_count;
    double tau_sum = 0.0;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        const struct sums sums = sums_of(l, side);
        float *taus = loss_window(l, TAU, side);
        float *gradients = loss_window(l, TAU_GRADIENT, side);
        for (int64_t a = 0; a < b; a++) {
            const double tau = (double)taus[a];
            const double log_norm = step_sum(l, &sums, &s, a, tau, in->epoch);
            const double value = side_add_surrogate(&s, a, tau, NULL, log_norm, 1.0 / (double)b);
            const double log_mean = log((double)sums.s[a] / (double)(b - 1)) + (double)sums.b[a];
            const double h = log_mean + o->rho - value * (double)b / tau;
            loss_add(out, a, value);
            out->objective += sums_objective(&sums, &s, a, tau) + tau * o->rho / (double)b;
            tau_sum += tau;
            loss_step_own_tau(o, &taus[a], &gradients[a], h, largest_tau_gradient);
        }
    }
    out->tau = tau_sum / (double)(SIDE_COUNT * b);
}

const struct loss_row loss_isogclr_reference = {
    .name = "isogclr",
    .parity = LOSS_PARITY_REFERENCE,
    .reads = LOSS_READS_TAU | READS_GAMMA | LOSS_BIT(LOSS_TAU_MOMENTUM) | LOSS_BIT(LOSS_RHO),
    .reads_learned = LOSS_READS_LEARNED_TAU,
    .temperatures = LOSS_INDIVIDUAL,
    .defaults = {.tau = 0.01,
                 .temperature = LOSS_TEMPERATURE_INDIVIDUAL,
                 .tau_min = 0.005,
                 .tau_max = 0.05,
                 .tau_lr = 1e-3,
                 .rho = 8.0},
    .columns = isogclr_columns,
    .surrogate = true,
    .step = isogclr_step,
};

/* ---- nuclr ---- */

enum { ZETA = SHIFT + 1, ZETA_MOMENTUM };
static const struct loss_column nuclr_columns[] = {{"s", .first = 0.0f},
                                                   {"b", .first = 0.0f},
                                                   {"zeta", .first_option = LOSS_ZETA0},
                                                   {"zeta_momentum", .first = 0.0f},
                                                   {0}};

struct nuclr {
    double xi[SIDE_COUNT];
    double epoch; /* of the last step */
};

static const struct loss_private_scalar nuclr_scalars[] = {
    {"image.xi", offsetof(struct nuclr, xi[SIDE_IMAGE])},
    {"text.xi", offsetof(struct nuclr, xi[SIDE_TEXT])},
    {"xi_epoch", offsetof(struct nuclr, epoch)},
    {0}};

static void nuclr_begin(struct loss *l) {
    struct nuclr *state = l->private_state;
    state->xi[SIDE_IMAGE] = l->options.xi0;
    state->xi[SIDE_TEXT] = l->options.xi0;
}

/* At the first step of an epoch: the largest zeta after the previous epoch. */
static void refresh_xi(struct loss *l, uint64_t epoch) {
    struct nuclr *state = l->private_state;
    if ((double)epoch <= state->epoch) {
        return;
    }
    state->epoch = (double)epoch;
    for (int side = 0; side < SIDE_COUNT; side++) {
        state->xi[side] =
            fmax(l->options.xi0, sample_state_largest(l->states[side], l->columns[ZETA][side]));
    }
}

/* s and b of one anchor, b a cosine. */
static void step_cosine_sum(const struct loss *l,
                            const struct sums *sums,
                            const struct loss_side *side,
                            int64_t a,
                            const float *zeta) {
    float *s = &sums->s[a];
    float *b = &sums->b[a];
    const double tau = l->options.tau;
    const double gamma = l->options.gamma;
    const double shift = fmax((double)*b, largest_delta(side, a));
    const double g = shifted_sum(side, a, tau, zeta, shift / tau);
    const double kept = *s == 0.0f ? g : (double)*s * exp((double)*b - shift);
    *s = (float)((1.0 - gamma) * kept + gamma * g);
    *b = (float)shift;
}

/* One anchor's n/(n-1) times mean over the batch of w~, added to sums (B): the anchor's part of q,
 * c = a included. */
static void add_popularity(struct loss *l,
                           const struct sums *sums,
                           const struct loss_side *side,
                           int64_t a,
                           const float *zeta) {
    const double n = (double)l->samples_count;
    const double b = (double)side->count;
    const double tau = l->options.tau;
    const double s = (double)sums->s[a];
    const double shift = (double)sums->b[a];
    const double own = exp(-((double)zeta[a] + shift) / tau) / (n - 1.0);
    const double denominator = fmax(s / (b - 1.0) + own, smallest_denominator);
    for (int64_t c = 0; c < side->count; c++) {
        const double e = exp(side_exponent(side, a, c, tau, zeta) - shift / tau);
        l->sums[0][c] += n / (n - 1.0) / b * e / denominator;
    }
}

static void
step_zeta(struct loss *l, const struct loss_input *in, int contrasts, float *zeta, double rate) {
    const double theta = l->options.zeta_momentum;
    const int64_t b = in->batch_count;
    float *z = loss_window(l, ZETA_MOMENTUM, contrasts);
    for (int64_t c = 0; c < b; c++) {
        const double q = 1.0 - l->sums[0][c];
        const double old = z[c] == 0.0f ? q : (double)z[c];
        z[c] = (float)((1.0 - theta) * old + theta * q);
        zeta[c] = (float)((double)zeta[c] - rate * (double)z[c]);
    }
}

static void nuclr_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const struct nuclr *state = l->private_state;
    const double rates[] = {in->zeta_lr_image, in->zeta_lr_text};
    const double n = (double)l->samples_count;
    const double b = (double)in->batch_count;
    const double tau = l->options.tau;
    refresh_xi(l, in->epoch);
    for (int anchors = 0; anchors < SIDE_COUNT; anchors++) {
        const int contrasts = SIDE_COUNT - 1 - anchors;
        const struct loss_side side = loss_side(l, in, out, (enum loss_side_index)anchors);
        const struct sums sums = sums_of(l, anchors);
        float *zeta = loss_window(l, ZETA, contrasts);
        for (int64_t c = 0; c < side.count; c++) {
            l->sums[0][c] = 0.0;
        }
        for (int64_t a = 0; a < side.count; a++) {
            step_cosine_sum(l, &sums, &side, a, zeta);
            const double s = (double)sums.s[a];
            const double shift = (double)sums.b[a];
            const double offset =
                (b - 1.0) / (n - 1.0) * exp(-(state->xi[contrasts] + shift) / tau);
            const double log_norm = shift / tau + log(fmax(s + offset, smallest_denominator));
            loss_add(out, a,
                     side_add_surrogate(&side, a, tau, zeta, log_norm, 1.0 / (double)side.count));
            const double own = (double)zeta[a];
            const double log_others = log((n - 1.0) * s / (b - 1.0)) + shift / tau;
            out->objective += (tau * log_add(log_others, -own / tau) + own) / b;
            add_popularity(l, &sums, &side, a, zeta);
        }
        if (rates[contrasts] > 0.0) {
            step_zeta(l, in, contrasts, zeta, rates[contrasts]);
        }
    }
}

const struct loss_row loss_nuclr_reference = {
    .name = "nuclr",
    .parity = LOSS_PARITY_REFERENCE,
    .reads = LOSS_READS_TAU | READS_GAMMA | LOSS_BIT(LOSS_ZETA0) | LOSS_BIT(LOSS_XI0) |
             LOSS_BIT(LOSS_ZETA_LR) | LOSS_BIT(LOSS_ZETA_LR_IMAGE_RATIO) |
             LOSS_BIT(LOSS_ZETA_MOMENTUM) | LOSS_BIT(LOSS_ZETA_FREEZE_EPOCHS),
    .defaults = {.tau = 0.01},
    .columns = nuclr_columns,
    .private_bytes = sizeof(struct nuclr),
    .scalars = nuclr_scalars,
    .begin = nuclr_begin,
    .surrogate = true,
    .step = nuclr_step,
};
