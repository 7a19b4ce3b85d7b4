/* The block loss in the trainer: value and gradient of embeddings, in double and straight from the
 * embeddings, against what is made of S = X X^T; what does not go with blocks. */
#include <math.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/device_stream.h"
#include "tests/support/test.h"
#include "train/run/trainer_internal.h"

enum { BLOCKS = 4, SIZE = 2, EACH = SIZE + 1, B = BLOCKS * EACH, E = 5, NEGATIVES = 2 };

/* CURL, eq. (12), with NEGATIVES blocks after the anchor's: x (B, E). */
static double reference(const double *x, enum block_kind kind) {
    double total = 0.0;
    for (int i = 0; i < BLOCKS; i++) {
        double sum = 1.0;
        double worst = -INFINITY;
        for (int m = 1; m <= NEGATIVES; m++) {
            const int other = (i + m) % BLOCKS;
            double v = 0.0;
            for (int l = 1; l <= SIZE; l++) {
                for (int e = 0; e < E; e++) {
                    v += x[i * EACH * E + e] *
                         (x[(i * EACH + l) * E + e] - x[(other * EACH + l) * E + e]) / SIZE;
                }
            }
            sum += exp(-v);
            worst = fmax(worst, -v);
        }
        total += kind == BLOCK_HINGE ? fmax(0.0, 1.0 + worst) : log2(sum);
    }
    return total / BLOCKS;
}

static void check(enum block_kind kind) {
    struct error err = {0};
    struct rng r;
    double x[B * E];
    float similarity[B * B];
    float gradient[B * B];
    uint64_t ids[B];
    struct device dev = {0}; /* computes nothing here */
    struct trainer t = {.dev = &dev};
    struct step_flight f = {.ids = ids};
    t.options.task = TRAINER_BLOCKS;
    t.options.batch_count = B;
    t.options.blocks =
        (struct trainer_blocks_options){.kind = kind, .size = SIZE, .negatives = NEGATIVES};
    t.pairs[PAIR_CROSS] = (struct pair_matrix){similarity, gradient};
    assert_ok(sample_state_create(&t.state, B, NULL, &err), err);
    assert_ok(trainer_open_blocks(&t, &err), err);
    rng_init(&r, test_seed(), RNG_INIT, 1, 0);
    for (int i = 0; i < B * E; i++) {
        x[i] = rng_normal(&r);
        ids[i / E] = (uint64_t)(B - 1 - i / E);
    }
    for (int i = 0; i < B * B; i++) {
        double sum = 0.0;
        for (int e = 0; e < E; e++) {
            sum += x[i / B * E + e] * x[i % B * E + e];
        }
        similarity[i] = (float)sum;
        gradient[i] = NAN; /* every element is written */
    }
    assert_ok(trainer_step_blocks(&t, &f, &err), err);
    assert_true(fabs(f.report.loss - reference(x, kind)) < 1e-5);
    for (int i = 0; i < B * E; i++) { /* dX = (G + G^T) X, against differences */
        const double kept = x[i];
        double slope = 0.0;
        for (int j = 0; j < B; j++) {
            slope += ((double)gradient[i / E * B + j] + (double)gradient[j * B + i / E]) *
                     x[j * E + i % E];
        }
        x[i] = kept + 1e-6;
        const double above = reference(x, kind);
        x[i] = kept - 1e-6;
        const double below = reference(x, kind);
        x[i] = kept;
        assert_true(fabs(slope - (above - below) / 2e-6) < 1e-5);
    }
    trainer_close_blocks(&t);
    sample_state_destroy(t.state);
}

TEST(logistic_step_is_the_loss_of_the_embeddings) {
    check(BLOCK_LOGISTIC);
}

TEST(hinge_step_is_the_loss_of_the_embeddings) {
    check(BLOCK_HINGE);
}

TEST(a_device_with_a_stream_is_refused) {
    struct error err = {0};
    const struct ops ops = {.name = "streamed"};
    const struct device_stream stream = {0};
    struct device dev = {.ops = &ops, .stream = &stream};
    struct trainer t = {.dev = &dev};
    assert_int_equal(trainer_open_blocks(&t, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "not tested on device streamed; use --device cpu"));
}
