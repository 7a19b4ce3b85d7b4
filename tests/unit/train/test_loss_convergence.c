/*
 * The setting of figure 7 of the EMC2 paper (Yau et al., ICML 2024) with a linear model: a fixed
 * set of samples with two views each, SGD with batches of 4, and the gradient of the global loss
 * over all of them, exactly.
 *
 * CCSTREAM_TEST_THOROUGH set: 500 samples, as there, and a line for every tenth of the run.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss.h"

enum { MAX_N = 500, IN = 24, DIM = 8, B = 4 };

static const double tau = 0.2;

struct problem {
    int n;
    double x[3 * MAX_N][IN]; /* view v of sample i in row v * n + i; the sample itself: v = 2 */
    double w[DIM][IN];
    double z[3 * MAX_N][DIM], length[3 * MAX_N]; /* normalised rows and what they were divided by */
};

static void problem_init(struct problem *p, int n) {
    struct rng r;
    rng_init(&r, 3, RNG_INIT, 0, 0);
    p->n = n;
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < IN; d++) {
            const double base = rng_normal(&r);
            p->x[i][d] = base + 0.5 * rng_normal(&r);
            p->x[n + i][d] = base + 0.5 * rng_normal(&r);
            p->x[2 * n + i][d] = base;
        }
    }
    for (int k = 0; k < DIM; k++) {
        for (int d = 0; d < IN; d++) {
            p->w[k][d] = rng_normal(&r) / sqrt(IN);
        }
    }
}

static void encode(struct problem *p, int row) {
    double sum = 0.0;
    for (int k = 0; k < DIM; k++) {
        p->z[row][k] = 0.0;
        for (int d = 0; d < IN; d++) {
            p->z[row][k] += p->w[k][d] * p->x[row][d];
        }
        sum += p->z[row][k] * p->z[row][k];
    }
    p->length[row] = sqrt(sum);
    for (int k = 0; k < DIM; k++) {
        p->z[row][k] /= p->length[row];
    }
}

static double product(const struct problem *p, int a, int b) {
    double sum = 0.0;
    for (int k = 0; k < DIM; k++) {
        sum += p->z[a][k] * p->z[b][k];
    }
    return sum;
}

/* out += of one row the gradient in w, from dz, that of its normalised embedding. */
static void add_row(double out[DIM][IN], const struct problem *p, int row, const double dz[DIM]) {
    double along = 0.0;
    for (int k = 0; k < DIM; k++) {
        along += dz[k] * p->z[row][k];
    }
    for (int k = 0; k < DIM; k++) {
        const double g = (dz[k] - along * p->z[row][k]) / p->length[row];
        for (int d = 0; d < IN; d++) {
            out[k][d] += g * p->x[row][d];
        }
    }
}

/* Squared norm of the gradient of mean_a -log exp(S_a,own / tau) / sum over the views of all other
 * samples exp(S_ac / tau). */
static double exact_gradient(struct problem *p) {
    const int rows = 2 * p->n;
    static double dz[2 * MAX_N][DIM];
    double gradient[DIM][IN] = {{0}};
    memset(dz, 0, sizeof dz);
    for (int a = 0; a < rows; a++) {
        encode(p, a);
    }
    for (int a = 0; a < rows; a++) {
        const int own = (a + p->n) % rows;
        static double e[2 * MAX_N];
        double sum = 0.0;
        for (int c = 0; c < rows; c++) {
            e[c] = c == a || c == own ? 0.0 : exp(product(p, a, c) / tau);
            sum += e[c];
        }
        for (int c = 0; c < rows; c++) {
            const double g = (e[c] / sum - (c == own ? 1.0 : 0.0)) / (tau * rows);
            for (int k = 0; k < DIM; k++) {
                dz[a][k] += g * p->z[c][k];
                dz[c][k] += g * p->z[a][k];
            }
        }
    }
    for (int a = 0; a < rows; a++) {
        add_row(gradient, p, a, dz[a]);
    }
    double norm = 0.0;
    for (int k = 0; k < DIM; k++) {
        for (int d = 0; d < IN; d++) {
            norm += gradient[k][d] * gradient[k][d];
        }
    }
    return norm;
}

/* The samples outside the batch that the loss needs, un-augmented: their similarities with rows. */
struct carry {
    uint64_t ids[2 * B];
    float similarity[2 * B], gradient[2 * B];
};

static void find_carried(struct carry *c,
                         struct problem *p,
                         struct loss *loss,
                         const uint64_t ids[B],
                         const int row[2 * B]) {
    struct error err = {0};
    assert_ok(loss_carried(loss, c->ids, NULL, ids, B, &err), err);
    for (int i = 0; i < 2 * B; i++) {
        if (c->ids[i] != SAMPLE_STATE_NO_ID) {
            const int other = 2 * p->n + (int)c->ids[i];
            encode(p, other);
            c->similarity[i] = (float)product(p, row[i], other);
        }
    }
}

static void add_carried(double gradient[DIM][IN],
                        const struct carry *c,
                        const struct problem *p,
                        const int row[2 * B]) {
    for (int i = 0; i < 2 * B; i++) {
        if (c->ids[i] == SAMPLE_STATE_NO_ID) {
            continue;
        }
        const int other = 2 * p->n + (int)c->ids[i];
        double dz[2][DIM];
        for (int k = 0; k < DIM; k++) {
            dz[0][k] = (double)c->gradient[i] * p->z[other][k];
            dz[1][k] = (double)c->gradient[i] * p->z[row[i]][k];
        }
        add_row(gradient, p, row[i], dz[0]);
        add_row(gradient, p, other, dz[1]);
    }
}

/* One step of SGD along the loss of a batch. */
static void
sgd_step(struct problem *p, struct loss *loss, const uint64_t ids[B], uint64_t step, double lr) {
    struct error err = {0};
    int row[2 * B];
    float s[4 * B * B];
    float g[4 * B * B];
    double gradient[DIM][IN] = {{0}};
    for (int i = 0; i < 2 * B; i++) {
        row[i] = (int)ids[i % B] + (i < B ? 0 : p->n);
        encode(p, row[i]);
    }
    for (int i = 0; i < 4 * B * B; i++) {
        s[i] = (float)product(p, row[i / (2 * B)], row[i % (2 * B)]);
    }
    struct carry carry = {0};
    const bool carries = loss_carries(loss);
    if (carries) {
        find_carried(&carry, p, loss, ids, row);
    }
    const struct loss_input in = {.similarity = s,
                                  .carried_ids = carries ? carry.ids : NULL,
                                  .carried_similarity = carry.similarity,
                                  .sample_ids = ids,
                                  .batch_count = B,
                                  .step = step};
    struct loss_output out = {.gradient = g, .carried_gradient = carry.gradient};
    assert_ok(loss_step(loss, &in, &out, &err), err);
    if (carries) {
        add_carried(gradient, &carry, p, row);
    }
    for (int i = 0; i < 2 * B; i++) {
        double dz[DIM] = {0};
        for (int j = 0; j < 2 * B; j++) {
            const double both = (double)g[i * 2 * B + j] + (double)g[j * 2 * B + i];
            for (int k = 0; k < DIM; k++) {
                dz[k] += both * p->z[row[j]][k];
            }
        }
        add_row(gradient, p, row[i], dz);
    }
    for (int k = 0; k < DIM; k++) {
        for (int d = 0; d < IN; d++) {
            p->w[k][d] -= lr * gradient[k][d];
        }
    }
}

/* Trains from the same start; returns the squared gradient norm of the end over that of the start.
 */
static double fall(const char *name, enum loss_emc2_carry carry, int n, int epochs, double scale) {
    static struct problem p;
    struct error err = {0};
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    struct loss_options options;
    problem_init(&p, n);
    loss_options_default(&options);
    options.name = name;
    options.views = true;
    options.tau = tau;
    options.emc2_carry = carry;
    assert_ok(sample_state_create(&state, (uint64_t)n, NULL, &err), err);
    assert_ok(loss_create(&loss, &options, state, (uint64_t)n, B, &err), err);
    const int steps = epochs * (n / B);
    const double start = exact_gradient(&p);
    for (int step = 0; step < steps; step++) {
        const int per_epoch = n / B;
        struct permutation order;
        uint64_t ids[B];
        permutation_init(&order, (uint64_t)n, 1, (uint64_t)(step / per_epoch));
        for (int i = 0; i < B; i++) {
            ids[i] = permutation_at(&order, (uint64_t)(step % per_epoch * B + i));
        }
        const double lr = 0.05 * scale * (1.0 - (double)step / steps);
        sgd_step(&p, loss, ids, (uint64_t)step, lr);
        if (getenv("CCSTREAM_TEST_THOROUGH") != NULL && step % (steps / 10) == 0) {
            printf("%s step %d of %d: squared norm %.6g\n", name, step, steps, exact_gradient(&p));
        }
    }
    const double end = exact_gradient(&p);
    printf("%s: squared norm of the exact gradient %.6g, at the start %.6g\n", name, end, start);
    loss_destroy(loss);
    sample_state_destroy(state);
    return end / start;
}

TEST(the_exact_gradient_falls_with_small_batches) {
    const bool thorough = getenv("CCSTREAM_TEST_THOROUGH") != NULL;
    const int n = thorough ? MAX_N : 80;
    const int epochs = thorough ? 200 : 300;
    const double simclr = fall("simclr", LOSS_EMC2_ENCODE, n, epochs, 1.0);
    const double emc2 = fall("emc2", LOSS_EMC2_ENCODE, n, epochs, 1.0);
    const double skips = fall("emc2", LOSS_EMC2_SKIP, n, epochs, 1.0);
    const double sogclr = fall("sogclr", LOSS_EMC2_ENCODE, n, epochs, 1.0 / tau);
    assert_true(simclr < 0.05 && emc2 < 0.05 && skips < 0.05 && sogclr < 0.05);
    /* The batch's own softmax is biased; those that remember come nearer. */
    assert_true(emc2 < 0.8 * simclr && skips < 0.8 * simclr && sogclr < 0.8 * simclr);
}
