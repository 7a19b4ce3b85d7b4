/*
 * Several pairs of a sample in one batch (--positives): which rows count, that equal pairs are one,
 * and that zeta descends its objective. Values and gradients are in test_loss_golden.c, slopes in
 * test_loss_rows.c.
 */
#include <math.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss.h"

enum { MAX_B = 12, ID_SPACE = 64 };

struct fixture {
    struct loss_options options;
    struct sample_state *state;
    struct loss *loss;
    int b;
    float similarity[MAX_B * MAX_B], gradient[MAX_B * MAX_B];
    uint64_t ids[MAX_B];
};

/* b pairs, `each` of every sample. */
static void fixture_init(struct fixture *f, const char *name, int b, int each) {
    memset(f, 0, sizeof *f);
    loss_options_default(&f->options);
    f->options.name = name;
    f->options.tau = 0.25;
    f->options.positives = (uint64_t)each;
    f->b = b;
    for (int i = 0; i < b; i++) {
        f->ids[i] = (uint64_t)(60 - 5 * (i / each));
    }
}

static void fixture_open(struct fixture *f, uint64_t samples_count) {
    struct error err = {0};
    assert_ok(sample_state_create(&f->state, ID_SPACE, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &f->options, f->state, samples_count, f->b, &err), err);
}

static void fixture_close(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

static void draw(float *m, int b, uint64_t stream) {
    struct rng r;
    rng_init(&r, 21, RNG_INIT, stream, 0);
    for (int i = 0; i < b * b; i++) {
        m[i] = (float)(2.0 * rng_uniform(&r) - 1.0);
    }
}

static struct loss_output step(struct fixture *f, double zeta_lr) {
    struct error err = {0};
    const struct loss_input in = {.similarity = f->similarity,
                                  .sample_ids = f->ids,
                                  .batch_count = f->b,
                                  .zeta_lr_text = zeta_lr,
                                  .zeta_lr_image = zeta_lr};
    struct loss_output out = {.gradient = f->gradient};
    assert_ok(loss_step(f->loss, &in, &out, &err), err);
    return out;
}

static float *column(const struct fixture *f, const char *name) {
    const int32_t at = sample_state_find(f->state, name);
    if (at < 0) {
        fail_msg("no column %s", name);
    }
    return sample_state_column(f->state, at);
}

/* Three samples of two pairs, and the same between a sample whose pairs have different ids and one
 * that returns. */
TEST(rows_of_a_sample_count_together_or_not_at_all) {
    enum { SMALL = 6, LARGE = 10 };
    static const int places[SMALL] = {0, 1, 4, 5, 6, 7};
    static const uint64_t ids[LARGE] = {9, 9, 4, 9, 30, 30, 7, 7, 30, 30};
    static const char *const names[] = {"dcl", "nuclr"};
    static struct fixture small;
    static struct fixture large;
    for (int k = 0; k < 2; k++) {
        fixture_init(&small, names[k], SMALL, 2);
        fixture_init(&large, names[k], LARGE, 2);
        memcpy(large.ids, ids, sizeof ids);
        draw(large.similarity, LARGE, 3);
        for (int i = 0; i < SMALL * SMALL; i++) {
            small.similarity[i] = large.similarity[places[i / SMALL] * LARGE + places[i % SMALL]];
            small.ids[i / SMALL] = ids[places[i / SMALL]];
        }
        fixture_open(&small, 50);
        fixture_open(&large, 50);
        const struct loss_output part = step(&small, 0.01);
        const struct loss_output whole = step(&large, 0.01);
        assert_true(part.value != 0.0 && part.value == whole.value);
        double left = 0.0; /* gradient that is not of the three samples */
        for (int i = 0; i < LARGE * LARGE; i++) {
            left += fabs((double)large.gradient[i]);
        }
        for (int i = 0; i < SMALL * SMALL; i++) {
            const float same = large.gradient[places[i / SMALL] * LARGE + places[i % SMALL]];
            assert_true(small.gradient[i] == same);
            left -= fabs((double)same);
        }
        assert_true(fabs(left) < 1e-9);
        const int32_t visits = sample_state_find(large.state, "visits");
        const uint64_t *seen = sample_state_column_u64(large.state, visits);
        assert_true(seen[9] == 1 && seen[30] == 1 && seen[7] == 1 && seen[4] == 0);
        fixture_close(&small);
        fixture_close(&large);
    }
}

static void assert_equal_columns(const struct fixture *one,
                                 const struct fixture *several,
                                 const char *name,
                                 const char *of_pair) {
    for (int i = 0; i < one->b; i++) {
        const double want = (double)column(one, name)[one->ids[i]];
        const double got = (double)column(several, of_pair)[one->ids[i]];
        assert_true(fabs(want - got) < 1e-5 || (isnan(want) && isnan(got)));
    }
}

/* A sample whose pairs are all the same is a sample of one pair. */
TEST(equal_pairs_of_a_sample_are_one_pair) {
    enum { EACH = 3, G = 3, B = G * EACH };
    static const char *const names[] = {"nuclr", "nuclr-frozen", "nuclr-noxi"};
    static struct fixture one;
    static struct fixture several;
    for (int k = 0; k < 3; k++) {
        fixture_init(&one, names[k], G, 1);
        fixture_init(&several, names[k], B, EACH);
        fixture_open(&one, 50);
        fixture_open(&several, 50);
        for (int s = 0; s < 3; s++) {
            draw(one.similarity, G, (uint64_t)(70 + s));
            for (int i = 0; i < B * B; i++) {
                several.similarity[i] = one.similarity[i / B / EACH * G + i % B / EACH];
            }
            const struct loss_output a = step(&one, 0.01);
            const struct loss_output b = step(&several, 0.01);
            assert_true(fabs(a.value - b.value) < 1e-6 && fabs(a.objective - b.objective) < 1e-6);
            assert_true(fabs(a.batch.zeta[0] - b.batch.zeta[0]) < 1e-6);
            double sums[G * G] = {0};
            for (int i = 0; i < B * B; i++) {
                sums[i / B / EACH * G + i % B / EACH] += (double)several.gradient[i];
            }
            for (int i = 0; i < G * G; i++) {
                assert_true(fabs(sums[i] - (double)one.gradient[i]) < 1e-6);
            }
        }
        assert_equal_columns(&one, &several, "image.zeta", "image.zeta");
        assert_equal_columns(&one, &several, "image.zeta", "image.zeta.3");
        assert_equal_columns(&one, &several, "text.zeta", "text.zeta.2");
        assert_equal_columns(&one, &several, "text.log_u", "text.log_u.3");
        assert_equal_columns(&one, &several, "image.zeta_momentum", "image.zeta_momentum.2");
        fixture_close(&one);
        fixture_close(&several);
    }
}

/* Phi(zeta) = mean over anchors of tau log 1/m sum_c exp((Delta_c - zeta_c) / tau), and the mean of
 * zeta: the denominator of Remark 2, the whole dataset in one batch. Images are the anchors. */
static double phi(const struct fixture *f, const double *zeta) {
    const double tau = f->options.tau;
    double total = 0.0;
    for (int a = 0; a < f->b; a++) {
        const float *row = &f->similarity[a * f->b];
        double sum = 0.0;
        for (int c = 0; c < f->b; c++) {
            sum += exp(((double)row[c] - (double)row[a] - zeta[c]) / tau);
        }
        total += tau * log(sum / (double)f->options.positives) + zeta[a];
    }
    return total / f->b;
}

TEST(zeta_of_every_pair_descends_the_objective) {
    enum { EACH = 3, G = 4, B = G * EACH };
    static const char *const columns[] = {"text.zeta", "text.zeta.2", "text.zeta.3"};
    static struct fixture f;
    const double rate = 0.5;
    const double h = 1e-5;
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        double zeta[B];
        fixture_init(&f, "nuclr", B, EACH);
        f.options.gamma = 1.0;
        f.options.zeta_gradient = unbiased ? LOSS_ZETA_UNBIASED : LOSS_ZETA_PAPER;
        draw(f.similarity, B, 9);
        fixture_open(&f, G);
        for (int c = 0; c < B; c++) {
            zeta[c] = 0.0625 * c - 0.25;
            column(&f, columns[c % EACH])[f.ids[c]] = (float)zeta[c];
        }
        step(&f, rate);
        for (int c = 0; c < B; c++) {
            const double keep = zeta[c];
            zeta[c] = keep + h;
            const double above = phi(&f, zeta);
            zeta[c] = keep - h;
            const double below = phi(&f, zeta);
            zeta[c] = keep;
            const double expected = keep - rate * B * (above - below) / (2.0 * h);
            assert_true(fabs((double)column(&f, columns[c % EACH])[f.ids[c]] - expected) < 1e-5);
        }
        fixture_close(&f);
    }
}
