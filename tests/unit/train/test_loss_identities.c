/*
 * Identities of single losses: finite differences of learned temperatures, sides that change places
 * with the transpose, losses that equal others at their limits, bounds of weights and of zeta's
 * gradient. What every loss must satisfy is in test_loss_rows.c.
 */
#include <math.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"

enum { MAX_B = 9, SAMPLES = 64 };

struct fixture {
    struct loss_options options;
    struct sample_state *state;
    struct loss *loss;
    int b;
    uint64_t steps;
    float similarity[MAX_B * MAX_B], self[2][MAX_B * MAX_B];
    float gradient[MAX_B * MAX_B], self_gradient[2][MAX_B * MAX_B];
    uint64_t ids[MAX_B];
};

/* Multiples of 2^-12, so that finite differences step between exact floats. */
static void draw(float *m, int b, uint64_t stream) {
    struct rng r;
    rng_init(&r, 21, RNG_INIT, stream, 0);
    for (int i = 0; i < b * b; i++) {
        m[i] = (float)(rint((2.0 * rng_uniform(&r) - 1.0) * 4096.0) / 4096.0);
    }
}

static void fixture_open(struct fixture *f, uint64_t samples_count) {
    struct error err = {0};
    assert_ok(sample_state_create(&f->state, SAMPLES, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &f->options, f->state, samples_count, f->b, &err), err);
    f->steps = 0;
}

static void fixture_close(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

static void fixture_init(struct fixture *f, const char *name, double tau, int b) {
    memset(f, 0, sizeof *f);
    loss_options_default(&f->options);
    f->options.name = name;
    f->options.tau = tau;
    f->b = b;
    draw(f->similarity, b, 0);
    for (int k = 0; k < 2; k++) {
        draw(f->self[k], b, (uint64_t)(1 + k));
        for (int i = 0; i < b; i++) {
            f->self[k][i * b + i] = 1.0f;
            for (int j = 0; j < i; j++) {
                f->self[k][i * b + j] = f->self[k][j * b + i];
            }
        }
    }
    for (int i = 0; i < b; i++) {
        f->ids[i] = (uint64_t)(60 - 5 * i);
    }
}

static struct loss_output step_rates(struct fixture *f, double text_rate, double image_rate) {
    struct error err = {0};
    const struct loss_input in = {.similarity = f->similarity,
                                  .image_similarity = f->self[0],
                                  .text_similarity = f->self[1],
                                  .sample_ids = f->ids,
                                  .batch_count = f->b,
                                  .step = f->steps,
                                  .lr = 1e-3,
                                  .zeta_lr_text = text_rate,
                                  .zeta_lr_image = image_rate};
    struct loss_output out = {.gradient = f->gradient,
                              .image_gradient = f->self_gradient[0],
                              .text_gradient = f->self_gradient[1]};
    assert_ok(loss_step(f->loss, &in, &out, &err), err);
    f->steps++;
    return out;
}

static struct loss_output step(struct fixture *f) {
    return step_rates(f, 0.0, 0.0);
}

/* The first step of a new loss. */
static struct loss_output first_step(struct fixture *f, uint64_t samples_count) {
    fixture_open(f, samples_count);
    const struct loss_output out = step(f);
    fixture_close(f);
    return out;
}

static float *column(const struct fixture *f, const char *name) {
    for (int32_t i = 0; i < sample_state_count(f->state); i++) {
        if (strcmp(sample_state_name(f->state, i), name) == 0) {
            return sample_state_column(f->state, i);
        }
    }
    fail_msg("no column %s", name);
    return NULL;
}

static double scalar(const struct fixture *f, const char *name) {
    const struct loss_scalar *scalars = NULL;
    const int32_t count = loss_scalars(f->loss, &scalars);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(scalars[i].name, name) == 0) {
            return *scalars[i].value;
        }
    }
    fail_msg("no scalar %s", name);
    return 0.0;
}

static double distance(const float *a, const float *b, int count) {
    double error = 0.0;
    double norm = 0.0;
    for (int i = 0; i < count; i++) {
        error += pow((double)a[i] - (double)b[i], 2.0);
        norm += pow((double)a[i], 2.0);
    }
    assert_true(norm > 0.0);
    return sqrt(error / norm);
}

static void assert_same_gradient(const struct fixture *a, const struct fixture *b, double at_most) {
    const double d = distance(a->gradient, b->gradient, a->b * a->b);
    if (!(d <= at_most)) {
        fail_msg("%s and %s differ by %g", a->options.name, b->options.name, d);
    }
}

/* ---- scent ---- */

/* The published arithmetic (SCENT's contrastive run): sums of exponentials divided by B inside the
 * logarithm, by B - 1 in the weights; sides are added. That divides our g by B / (B - 1), which
 * other values of eps and log alpha make good. */
struct published {
    double nu[2][SAMPLES]; /* NaN: never visited */
    double gradient[MAX_B * MAX_B];
};

static void
published_step(struct published *p, const struct fixture *f, double eps, double log_alpha) {
    const int b = f->b;
    const double tau = f->options.tau;
    memset(p->gradient, 0, sizeof p->gradient);
    for (int side = 0; side < 2; side++) {
        const int anchors = side == 0 ? b : 1;
        const int contrasts = side == 0 ? 1 : b;
        for (int a = 0; a < b; a++) {
            double *nu = &p->nu[side][f->ids[a]];
            double e[MAX_B];
            double sum = 0.0;
            for (int c = 0; c < b; c++) {
                e[c] = exp(((double)f->similarity[a * anchors + c * contrasts] -
                            (double)f->similarity[a * b + a]) /
                           tau);
                sum += c == a ? 0.0 : e[c];
            }
            const double estimate = eps + sum / b;
            const double gamma = 1.0 / (1.0 + exp(-log_alpha) / exp(*nu));
            *nu = isnan(*nu) ? log(estimate) : log((1.0 - gamma) * exp(*nu) + gamma * estimate);
            for (int c = 0; c < b; c++) {
                const double w = e[c] / exp(*nu) / (b - 1) / b;
                p->gradient[a * anchors + c * contrasts] += c == a ? 0.0 : w;
                p->gradient[a * b + a] -= c == a ? 0.0 : w;
            }
        }
    }
}

/* Similarities of embeddings that drift, as in training. */
static void draw_drifting(struct fixture *f, int k) {
    struct rng r;
    for (int i = 0; i < f->b; i++) {
        for (int j = 0; j < f->b; j++) {
            rng_init(&r, 33, RNG_INIT, f->ids[i], f->ids[j]);
            const double phase = 6.283 * rng_uniform(&r);
            const double height = 0.4 * rng_uniform(&r) - (i == j ? -0.4 : 0.2);
            f->similarity[i * f->b + j] = (float)(height + 0.2 * sin(phase + 0.01 * k));
        }
    }
}

TEST(scent_agrees_with_the_published_arithmetic_over_1000_steps) {
    static struct fixture f;
    static struct published p;
    const double eps = 1e-6;
    for (int run = 0; run < 2; run++) {
        const double log_alpha = run == 0 ? 10.0 : 3.0;
        fixture_init(&f, "scent", 0.07, 8);
        const double excess = 8.0 / 7.0;
        f.options.temperature = LOSS_TEMPERATURE_CONSTANT;
        f.options.u_eps = eps * excess;
        f.options.gamma_log_alpha = log_alpha - log(excess);
        fixture_open(&f, SAMPLES);
        for (int i = 0; i < SAMPLES; i++) {
            p.nu[0][i] = p.nu[1][i] = NAN;
        }
        for (int k = 0; k < 1000; k++) {
            for (int i = 0; i < f.b; i++) {
                f.ids[i] = (uint64_t)((k * 5 + i * 7 + k / SAMPLES) % SAMPLES);
            }
            draw_drifting(&f, k);
            step(&f);
            published_step(&p, &f, eps, log_alpha);
            double error = 0.0;
            double norm = 0.0;
            for (int i = 0; i < f.b * f.b; i++) {
                error += pow(2.0 * excess * (double)f.gradient[i] - p.gradient[i], 2.0);
                norm += pow(p.gradient[i], 2.0);
            }
            if (!(sqrt(error / norm) < 1e-5)) {
                fail_msg("step %d: the gradient differs by %g", k, sqrt(error / norm));
            }
            for (int i = 0; i < f.b; i++) {
                for (int side = 0; side < 2; side++) {
                    const double nu = p.nu[side][f.ids[i]] + log(excess);
                    const float *got = column(&f, side == 0 ? "image.log_u" : "text.log_u");
                    assert_true(fabs((double)got[f.ids[i]] - nu) < 1e-5);
                }
            }
        }
        fixture_close(&f);
    }
}

TEST(scent_without_slope_has_one_gamma_and_with_large_alpha_no_memory) {
    static struct fixture ours;
    static struct fixture other;
    for (int memory = 0; memory < 2; memory++) {
        fixture_init(&ours, "scent", 0.3, 7);
        fixture_init(&other, "fastclip-v3", 0.3, 7);
        ours.options.temperature = other.options.temperature = LOSS_TEMPERATURE_CONSTANT;
        ours.options.u_eps = other.options.u_eps = 1e-6;
        ours.options.gamma_log_alpha = memory != 0 ? log(0.7 / 0.3) : 60.0;
        ours.options.gamma_slope = memory != 0 ? 0.0 : 1.0;
        other.options.gamma = memory != 0 ? 0.7 : 1.0;
        other.options.gamma_schedule = LOSS_GAMMA_CONSTANT;
        fixture_open(&ours, SAMPLES);
        fixture_open(&other, SAMPLES);
        for (int k = 0; k < 4; k++) {
            draw(ours.similarity, 7, (uint64_t)(k + 5));
            memcpy(other.similarity, ours.similarity, sizeof other.similarity);
            step(&ours);
            step(&other);
            assert_same_gradient(&ours, &other, 1e-6);
        }
        fixture_close(&ours);
        fixture_close(&other);
    }
}

/* ---- glofnd ---- */

/* Two of the others match each anchor as its own pair does. */
TEST(glofnd_finds_the_false_negatives_and_gives_them_no_gradient) {
    enum { B = 9 };
    static struct fixture f;
    fixture_init(&f, "glofnd", 0.2, B);
    f.options.false_negative_start = 0;
    f.options.false_negative_share = 0.25;
    for (int i = 0; i < B * B; i++) {
        f.similarity[i] = i / B % 3 == i % B % 3 ? 0.75f : 0.25f * f.similarity[i];
    }
    fixture_open(&f, SAMPLES);
    double early = 0.0;
    for (int k = 0; k < 60; k++) {
        step(&f);
        early = k == 0 ? (double)f.gradient[3] : early;
    }
    assert_true(early > 0.0);
    for (int i = 0; i < B * B; i++) {
        const bool alike = i / B % 3 == i % B % 3 && i / B != i % B;
        assert_true((f.gradient[i] == 0.0f) == alike);
    }
    for (int i = 0; i < B; i++) {
        const double threshold = (double)column(&f, "text.threshold")[f.ids[i]];
        assert_true(threshold > 0.25 && threshold <= 0.85);
    }
    fixture_close(&f);
}

TEST(glofnd_without_a_share_or_before_its_epoch_is_fastclip_v3) {
    static struct fixture ours;
    static struct fixture other;
    for (int before = 0; before < 2; before++) {
        fixture_init(&ours, "glofnd", 0.2, 7);
        fixture_init(&other, "fastclip-v3", 0.2, 7);
        ours.options.false_negative_start = (uint64_t)before;
        ours.options.false_negative_share = before != 0 ? 0.5 : 0.0;
        fixture_open(&ours, SAMPLES);
        fixture_open(&other, SAMPLES);
        for (int k = 0; k < 4; k++) {
            draw(ours.similarity, 7, (uint64_t)(k + 5));
            memcpy(other.similarity, ours.similarity, sizeof other.similarity);
            step(&ours);
            step(&other);
            assert_same_gradient(&ours, &other, before != 0 ? 0.0 : 1e-6);
            assert_float_equal(column(&ours, "image.threshold")[ours.ids[0]], 1.0f, 0.0f);
        }
        fixture_close(&ours);
        fixture_close(&other);
    }
}

/* ---- learned temperatures ---- */

/* Adam's first moment after one step is a tenth of the gradient in log(1/tau). */
static void assert_temperature_slope(struct fixture *f, double (*value)(struct fixture *f)) {
    const double tau = f->options.tau;
    const double h = 1e-4 * tau;
    double at[4];
    for (int k = 0; k < 4; k++) {
        static const double steps[] = {1.0, -1.0, 2.0, -2.0};
        f->options.tau = tau + steps[k] * h;
        at[k] = value(f);
    }
    f->options.tau = tau;
    const double expected = (8.0 * (at[0] - at[1]) - (at[2] - at[3])) / (12.0 * h);
    fixture_open(f, 1000);
    step(f);
    const double got = -10.0 * scalar(f, "log_scale.m") / tau;
    fixture_close(f);
    if (!(fabs(got - expected) < 1e-6 * fmax(1.0, fabs(expected)))) {
        fail_msg("%s: slope in tau is %.9g, not %.9g", f->options.name, got, expected);
    }
}

static double value_of(struct fixture *f) {
    return first_step(f, 1000).value;
}

/* F = tau (mean log u of images + of texts) + 2 rho tau, u of the first visit. */
static double fastclip_value(struct fixture *f) {
    const int b = f->b;
    const double tau = f->options.tau;
    double total = 2.0 * 6.5 * tau;
    for (int side = 0; side < 2; side++) {
        for (int a = 0; a < b; a++) {
            double sum = 0.0;
            for (int c = 0; c < b; c++) {
                const int at = side == 0 ? a * b + c : c * b + a;
                const double delta = (double)f->similarity[at] - (double)f->similarity[a * b + a];
                sum += c == a ? 0.0 : exp(delta / tau);
            }
            total += tau * log(sum / (b - 1)) / b;
        }
    }
    return total;
}

/* That of v3, which takes means over both sides. */
static double half_fastclip_value(struct fixture *f) {
    return 0.5 * fastclip_value(f);
}

/* That of v0: without the factor tau. */
static double unscaled_value(struct fixture *f) {
    return (half_fastclip_value(f) - 6.5 * f->options.tau) / f->options.tau;
}

TEST(learned_temperatures_descend_their_objective) {
    static const char *const names[] = {"clip", "cyclip", "siglip"};
    static struct fixture f;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        fixture_init(&f, names[n], 0.25, 5);
        f.options.temperature = LOSS_TEMPERATURE_GLOBAL;
        assert_temperature_slope(&f, value_of);
    }
    fixture_init(&f, "sogclr", 0.25, 5);
    f.options.temperature = LOSS_TEMPERATURE_GLOBAL;
    assert_temperature_slope(&f, fastclip_value);
    fixture_init(&f, "fastclip-v3", 0.25, 5);
    assert_temperature_slope(&f, half_fastclip_value);
    fixture_init(&f, "scent", 0.25, 5);
    f.options.rho = 6.5; /* as in half_fastclip_value, which has no eps */
    f.options.u_eps = 1e-15;
    assert_temperature_slope(&f, half_fastclip_value);
    fixture_init(&f, "fastclip-v0", 0.25, 5);
    assert_temperature_slope(&f, unscaled_value);
}

/* FastCLIP: from tau 0.03 on v3 learns it at a third of its rate. */
TEST(a_small_temperature_moves_at_a_third_of_its_rate) {
    static struct fixture f;
    double moved[2];
    for (int k = 0; k < 2; k++) {
        fixture_init(&f, "fastclip-v3", k == 0 ? 0.0301 : 0.0299, 5);
        f.options.tau_lr = 1e-3;
        fixture_open(&f, 1000);
        step(&f);
        moved[k] = fabs(scalar(&f, "log_scale") + log(f.options.tau));
        fixture_close(&f);
    }
    assert_true(fabs(moved[0] - 1e-3) < 1e-9 && fabs(moved[1] - 1e-3 / 3.0) < 1e-9);
}

/* v1 is sogclr but for a factor, while gamma is the same. */
TEST(fastclip_with_a_constant_temperature_is_sogclr) {
    static struct fixture f;
    static float gradient[3][MAX_B * MAX_B];
    fixture_init(&f, "sogclr", 0.125, 5);
    f.options.gamma = 0.4;
    f.options.gamma_schedule = LOSS_GAMMA_CONSTANT;
    for (int other = 0; other < 2; other++) {
        f.options.name = other == 0 ? "sogclr" : "fastclip-v1";
        fixture_open(&f, 1000);
        for (uint64_t k = 0; k < 3; k++) {
            draw(f.similarity, f.b, k);
            step(&f);
            for (int i = 0; i < f.b * f.b && other == 1; i++) {
                const double wanted = (double)gradient[k][i] * 0.5 / 0.125;
                assert_true(fabs((double)f.gradient[i] - wanted) <= 1e-6 * fabs(wanted));
            }
            if (other == 0) {
                memcpy(gradient[k], f.gradient, sizeof f.gradient);
            }
        }
        fixture_close(&f);
    }
}

TEST(bias_of_siglip_descends_its_value) {
    static struct fixture f;
    fixture_init(&f, "siglip", 0.25, 5);
    f.options.bias0 = -1.0;
    fixture_open(&f, 1000);
    step(&f);
    const double got = 10.0 * scalar(&f, "bias.m");
    fixture_close(&f);
    f.options.bias0 = -1.0 + 1e-5;
    const double above = value_of(&f);
    f.options.bias0 = -1.0 - 1e-5;
    assert_true(fabs(got - (above - value_of(&f)) / 2e-5) < 1e-7);
}

/* Of every sample and side: d/dtau of tau (log u(tau) + rho), u of the first visit. */
/* share: of the gradient in what is kept after one step. */
static void assert_individual_slopes(const char *name, double share) {
    static struct fixture f;
    fixture_init(&f, name, 0.04, 5);
    f.options.tau_momentum = 1.0;
    f.options.rho = 1.5;
    f.options.tau_max = 1.0;
    fixture_open(&f, 1000);
    step(&f);
    const float *gradients[] = {column(&f, "image.tau_gradient"), column(&f, "text.tau_gradient")};
    for (int side = 0; side < 2; side++) {
        for (int a = 0; a < f.b; a++) {
            double at[2];
            for (int k = 0; k < 2; k++) {
                const double tau = f.options.tau + (k == 0 ? 1e-6 : -1e-6);
                double sum = 0.0;
                for (int c = 0; c < f.b; c++) {
                    const int e = side == 0 ? a * f.b + c : c * f.b + a;
                    sum += c == a
                               ? 0.0
                               : exp(((double)f.similarity[e] - (double)f.similarity[a * f.b + a]) /
                                     tau);
                }
                at[k] = tau * (log(sum / (f.b - 1)) + 1.5);
            }
            const double h = fmax(-5.0, fmin(5.0, (at[0] - at[1]) / 2e-6));
            assert_true(fabs((double)gradients[side][f.ids[a]] / share - h) < 1e-5);
        }
    }
    fixture_close(&f);
}

TEST(individual_temperatures_descend_their_objective) {
    assert_individual_slopes("isogclr", 1.0);
    assert_individual_slopes("fastclip-v2", 0.1); /* Adam's first moment */
}

/* ---- sides ---- */

static void transpose(float *m, int b) {
    for (int i = 0; i < b; i++) {
        for (int j = 0; j < i; j++) {
            const float keep = m[i * b + j];
            m[i * b + j] = m[j * b + i];
            m[j * b + i] = keep;
        }
    }
}

/* Images instead of texts: the transposed gradient and the same value, of every loss of pairs.
 * emc2 draws other numbers for the other side, and negcache needs drawn samples: they are skipped.
 */
TEST(sides_change_places_with_the_transpose) {
    static struct fixture a;
    static struct fixture b;
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        const bool draws =
            strcmp((*row)->name, "emc2") == 0 || loss_may_read(*row, LOSS_CACHE_REFRESH);
        if ((*row)->views || draws) {
            continue;
        }
        fixture_init(&a, (*row)->name, 0.05, 6);
        a.options.parity = (*row)->parity;
        a.options.q = 0.4;
        b = a;
        fixture_open(&a, 1000);
        fixture_open(&b, 1000);
        for (int k = 0; k < 3; k++) {
            draw(a.similarity, a.b, (uint64_t)(5 + k));
            memcpy(b.similarity, a.similarity, sizeof a.similarity);
            transpose(b.similarity, b.b);
            memcpy(b.self[0], a.self[1], sizeof a.self[0]);
            memcpy(b.self[1], a.self[0], sizeof a.self[0]);
            const struct loss_output first = step_rates(&a, 1e-4, 3e-5);
            const struct loss_output second = step_rates(&b, 3e-5, 1e-4);
            assert_true(fabs(first.value - second.value) <= 1e-9 * fmax(1.0, fabs(first.value)));
            assert_true(fabs(first.objective - second.objective) <=
                        1e-9 * fmax(1.0, fabs(first.objective)));
            transpose(b.gradient, b.b);
            assert_same_gradient(&a, &b, 1e-6);
        }
        fixture_close(&a);
        fixture_close(&b);
    }
}

/* ---- losses that are others ---- */

TEST(cyclic_terms_do_not_depend_on_the_temperature) {
    static struct fixture f;
    float extra[2][MAX_B * MAX_B];
    static const double taus[] = {0.05, 0.5};
    for (int k = 0; k < 2; k++) {
        fixture_init(&f, "clip", taus[k], 6);
        first_step(&f, 1000);
        memcpy(extra[k], f.gradient, sizeof extra[k]);
        f.options.name = "cyclip";
        first_step(&f, 1000);
        for (int i = 0; i < f.b * f.b; i++) {
            extra[k][i] = f.gradient[i] - extra[k][i];
        }
    }
    assert_true(distance(extra[0], extra[1], f.b * f.b) < 1e-5);
}

TEST(rince_becomes_info_nce_and_a_constant) {
    static struct fixture a;
    static struct fixture b;
    fixture_init(&a, "clip", 0.25, 6);
    b = a;
    b.options.name = "rince";
    b.options.q = 1e-6;
    b.options.lambda = 0.05;
    const double info_nce = first_step(&a, 1000).value;
    const double value = first_step(&b, 1000).value;
    assert_true(fabs(value - info_nce - log(0.05)) < 1e-4);
    assert_same_gradient(&a, &b, 1e-5);
    /* q = 1 is the symmetric one, whose gradient is that of the sum itself: lambda e^s - [own] e^s.
     */
    b.options.q = 1.0;
    first_step(&b, 1000);
    const double share = 0.5 / (6 * 0.25);
    for (int i = 0; i < 36; i++) {
        const double e = exp((double)b.similarity[i] / 0.25);
        const double expected = share * 2.0 * (0.05 * e - (i % 7 == 0 ? e : 0.0));
        assert_true(fabs((double)b.gradient[i] - expected) <= 1e-6 * fmax(1.0, fabs(expected)));
    }
}

/* nuclr with zeta = xi = 0 is sogclr with 1/(n-1) beside u: each side's weights are smaller by
 * u / (u + 1/(n-1)). With one side alone moved by the other's transpose the factor shows per
 * anchor. */
TEST(nuclr_without_zeta_is_sogclr_and_an_offset) {
    static struct fixture a;
    static struct fixture b;
    const double n = 40.0;
    fixture_init(&a, "sogclr", 0.1, 6);
    b = a;
    b.options.name = "nuclr";
    b.options.zeta0 = 0.0;
    fixture_open(&a, 40);
    fixture_open(&b, 40);
    for (int k = 0; k < 3; k++) {
        draw(a.similarity, a.b, (uint64_t)(9 + k));
        memcpy(b.similarity, a.similarity, sizeof a.similarity);
        step(&a);
        step(&b);
        const float *log_u[] = {column(&a, "image.log_u"), column(&a, "text.log_u")};
        for (int i = 0; i < a.b; i++) {
            assert_true(log_u[0][a.ids[i]] == column(&b, "image.log_u")[b.ids[i]]);
            for (int j = 0; j < a.b; j++) {
                if (i == j) {
                    continue;
                }
                const double s = (double)a.similarity[i * a.b + j];
                const double row = exp((s - (double)a.similarity[i * a.b + i]) / 0.1);
                const double col = exp((s - (double)a.similarity[j * a.b + j]) / 0.1);
                const double u = exp((double)log_u[0][a.ids[i]]);
                const double v = exp((double)log_u[1][a.ids[j]]);
                const double share = 1.0 / (a.b * (a.b - 1.0));
                const double plain = share * (row / u + col / v);
                const double offset =
                    share * (row / (u + 1.0 / (n - 1)) + col / (v + 1.0 / (n - 1)));
                assert_true(fabs((double)a.gradient[i * a.b + j] - plain) < 3e-6 * plain);
                assert_true(fabs((double)b.gradient[i * a.b + j] - offset) < 3e-6 * offset);
            }
        }
    }
    fixture_close(&a);
    fixture_close(&b);
}

/* Where there is no offset to speak of, a constant zeta cancels; and zeta and xi shifted together
 * leave a fresh state's weights as they are. In the published code too, whose first steps are those
 * of sogclr: its log has the same loss for both in the first iteration. */
TEST(a_constant_zeta_has_no_effect) {
    static struct fixture a;
    static struct fixture b;
    for (int parity = 0; parity < 2; parity++) {
        fixture_init(&a, "sogclr", 0.05, 6);
        a.options.parity = parity == 1 ? LOSS_PARITY_REFERENCE : LOSS_PARITY_ALGORITHM;
        b = a;
        b.options.name = "nuclr";
        first_step(&a, UINT64_C(1) << 60);
        first_step(&b, UINT64_C(1) << 60);
        assert_same_gradient(&a, &b, 1e-6);

        a.options.name = "nuclr";
        a.options.zeta0 = -0.05;
        a.options.xi0 = 0.0;
        b.options.zeta0 = 0.02;
        b.options.xi0 = 0.07;
        first_step(&a, 40);
        first_step(&b, 40);
        assert_same_gradient(&a, &b, 1e-6);
    }
}

/* ---- bounds ---- */

/* Weights of an anchor sum up to at most 1/gamma, 1 at the first visit and in the published code's
 * first epoch; an own pair gets minus both sums. */
TEST(weights_are_bounded_by_gamma) {
    static const char *const names[] = {"sogclr", "isogclr", "nuclr"};
    static struct fixture f;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        for (int parity = 0; parity < 2; parity++) {
            fixture_init(&f, names[n], 0.02, 7);
            f.options.gamma = 0.3;
            f.options.parity = parity == 1 ? LOSS_PARITY_REFERENCE : LOSS_PARITY_ALGORITHM;
            fixture_open(&f, UINT64_C(1) << 50);
            for (int k = 0; k < 6; k++) {
                draw(f.similarity, f.b, (uint64_t)(20 + k));
                step(&f);
                const double most = (k == 0 || parity == 1 ? 2.0 / 1.0 : 2.0 / 0.3) + 1e-5;
                for (int i = 0; i < f.b && (k == 0 || parity == 0 || n < 2); i++) {
                    const double sums = -(double)f.gradient[i * f.b + i] * f.b;
                    assert_true(sums >= 0.0 && sums <= most);
                    assert_true(k > 0 || fabs(sums - 2.0) < 1e-5);
                }
            }
            fixture_close(&f);
        }
    }
}

/* Every iteration: xi is the largest zeta so far, of each side alone, and divides the next weights.
 * zeta never falls by more than its step size, because its gradient is at most 1. */
TEST(xi_follows_the_largest_zeta_of_its_side_at_once) {
    static struct fixture f;
    const double tau = 0.1;
    fixture_init(&f, "nuclr", tau, 6);
    f.options.zeta0 = -0.05;
    f.options.zeta_gradient = LOSS_ZETA_PAPER;
    fixture_open(&f, 400);
    double xi[2] = {0.0, 0.0};
    bool moved[2] = {false, false};
    for (int k = 0; k < 12; k++) {
        float before[2][SAMPLES];
        draw(f.similarity, f.b, (uint64_t)(40 + k));
        for (int i = 0; i < f.b; i++) {
            f.similarity[i * f.b + i] = 1.0f; /* saturated: zeta rises */
        }
        float *zeta[] = {column(&f, "image.zeta"), column(&f, "text.zeta")};
        memcpy(before[0], zeta[0], sizeof before[0]);
        memcpy(before[1], zeta[1], sizeof before[1]);
        step_rates(&f, 1e-3, 4e-4);
        /* Weights of the first row's own anchor, from u after the step and xi before it. */
        double row_and_column = 0.0;
        for (int c = 1; c < f.b; c++) {
            const double own = (double)f.similarity[0];
            const double u = exp((double)column(&f, "image.log_u")[f.ids[0]]);
            const double v = exp((double)column(&f, "text.log_u")[f.ids[0]]);
            const double e =
                exp(((double)f.similarity[c] - own - (double)before[1][f.ids[c]]) / tau);
            const double d =
                exp(((double)f.similarity[c * f.b] - own - (double)before[0][f.ids[c]]) / tau);
            row_and_column += e / (f.b - 1) / (u + exp(-xi[1] / tau) / 399.0);
            row_and_column += d / (f.b - 1) / (v + exp(-xi[0] / tau) / 399.0);
        }
        assert_true(fabs((double)f.gradient[0] * f.b + row_and_column) < 1e-5 * row_and_column);
        static const double rates[] = {4e-4, 1e-3};
        static const char *const names[] = {"image.xi", "text.xi"};
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < f.b; i++) {
                const double now = (double)zeta[side][f.ids[i]];
                assert_true((double)before[side][f.ids[i]] - now <= rates[side] * 1.0001);
                xi[side] = fmax(xi[side], now);
            }
            assert_true(fabs(scalar(&f, names[side]) - xi[side]) < 1e-12);
            moved[side] = moved[side] || xi[side] > 0.0;
        }
    }
    assert_true(moved[0] && moved[1] && xi[0] < xi[1]);
    fixture_close(&f);
}

/* Forms of xi where zeta starts below 0, rises and falls again, of a batch that has not all
 * samples. */
static void check_form(enum loss_xi form) {
    static struct fixture f;
    static const double rates[] = {2e-3, 5e-3};
    static const char *const names[] = {"image.xi", "text.xi"};
    fixture_init(&f, "nuclr", 0.1, 6);
    f.options.zeta0 = -0.05;
    f.options.xi = form;
    f.options.zeta_gradient = LOSS_ZETA_PAPER;
    fixture_open(&f, 400);
    const double first = form == LOSS_XI_NORM ? 0.05 : 0.0;
    double xi[2] = {first, first};
    int fell = 0;
    for (int k = 0; k < 40; k++) {
        draw(f.similarity, f.b, (uint64_t)(40 + k));
        for (int i = 0; i < f.b; i++) {
            f.ids[i] = (uint64_t)(k % 3 + 4 * i);
            f.similarity[i * f.b + i] = k < 12 ? 1.0f : -1.0f; /* zeta rises, then falls */
        }
        step_rates(&f, rates[1], rates[0]);
        const float *zeta[] = {column(&f, "image.zeta"), column(&f, "text.zeta")};
        for (int side = 0; side < 2; side++) {
            double largest = form == LOSS_XI_ALL ? first : xi[side];
            for (int id = 0; id < SAMPLES; id++) {
                const double z = (double)zeta[side][id];
                largest = fmax(largest, form == LOSS_XI_NORM ? fabs(z) : z);
            }
            fell += largest < xi[side];
            xi[side] = largest;
            assert_true(fabs(scalar(&f, names[side]) - largest) < 1e-7);
        }
    }
    assert_true(form == LOSS_XI_ALL ? fell > 2 : fell == 0);
    fixture_close(&f);
}

TEST(xi_is_the_largest_zeta_the_largest_size_or_the_largest_of_now) {
    check_form(LOSS_XI_SIGNED);
    check_form(LOSS_XI_NORM);
    check_form(LOSS_XI_ALL);
}

/* At n of CC3M and zeta0 = -0.05, the size of zeta0 in xi changes the gradient of fitted pairs. */
TEST(forms_of_xi_are_different_gradients) {
    static struct fixture f[2];
    double norm = 0.0;
    double difference = 0.0;
    for (int k = 0; k < 2; k++) {
        fixture_init(&f[k], "nuclr", 0.01, 8);
        f[k].options.xi = k == 0 ? LOSS_XI_SIGNED : LOSS_XI_NORM;
        for (int i = 0; i < 8 * 8; i++) { /* contrasts 0.15 below the pair, and less */
            f[k].similarity[i] = i % 9 == 0 ? 0.5f : 0.2f + 0.15f * f[k].similarity[i];
        }
        fixture_open(&f[k], 2723200);
        step_rates(&f[k], 0.0, 0.0);
        fixture_close(&f[k]);
    }
    for (int i = 0; i < 8 * 8; i++) {
        const double a = (double)f[0].gradient[i];
        norm += a * a;
        difference += (a - (double)f[1].gradient[i]) * (a - (double)f[1].gradient[i]);
    }
    const double share = sqrt(difference / norm);
    if (!(share > 0.2)) {
        fail_msg("the gradients differ by %g", share);
    }
}

TEST(xi_starts_no_lower_than_zeta) {
    static struct fixture f;
    fixture_init(&f, "nuclr", 0.1, 4);
    f.options.zeta0 = 0.25;
    fixture_open(&f, 400);
    assert_true(scalar(&f, "text.xi") == 0.25 && scalar(&f, "image.xi") == 0.25);
    fixture_close(&f);
    f.options.xi0 = 0.5;
    fixture_open(&f, 400);
    assert_true(scalar(&f, "text.xi") == 0.5);
    fixture_close(&f);
}
