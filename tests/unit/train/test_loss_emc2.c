/* Chains of emc2: their states, which samples they ask for, and what becomes of those they lack. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss.h"

enum { B = 5 };

struct fixture {
    struct sample_state *state;
    struct loss *loss;
    float similarity[4 * B * B], gradient[4 * B * B];
    uint64_t ids[B];
    uint64_t epoch;
};

static void open_fixture(struct fixture *f, double tau, enum loss_emc2_carry carry, bool views) {
    struct error err = {0};
    struct loss_options options;
    struct rng r;
    memset(f, 0, sizeof *f);
    loss_options_default(&options);
    options.name = "emc2";
    options.tau = tau;
    options.emc2_carry = carry;
    options.views = views;
    assert_ok(sample_state_create(&f->state, 100, NULL, &err), err);
    assert_ok(loss_create(&f->loss, &options, f->state, 1000, B, &err), err);
    rng_init(&r, 7, RNG_INIT, 0, 0);
    for (int i = 0; i < 4 * B * B; i++) {
        f->similarity[i] = (float)(2.0 * rng_uniform(&r) - 1.0);
    }
    for (int i = 0; i < B; i++) {
        f->ids[i] = (uint64_t)(90 - 7 * i);
    }
}

static void close_fixture(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
}

/* Without samples outside the batch. */
static void step(struct fixture *f) {
    struct error err = {0};
    const struct loss_input in = {.similarity = f->similarity,
                                  .sample_ids = f->ids,
                                  .batch_count = B,
                                  .step = f->epoch,
                                  .epoch = f->epoch};
    struct loss_output out = {.gradient = f->gradient};
    assert_ok(loss_step(f->loss, &in, &out, &err), err);
}

static float *log_scores(const struct fixture *f, const char *side) {
    char name[SAMPLE_STATE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s.chain_log_score", side);
    return sample_state_column(f->state, sample_state_find(f->state, name));
}

/* emc2 that skips; test_study_chains.c has the one that encodes. A frozen model: over batches drawn
 * from 60 samples, the states in which anchor 0's chain is found come in the proportions of the
 * softmax over the 59 contrasts. Scores are distinct, so the stored one identifies the state. Six
 * bins of equal counts by score; chi-square at 0.1 %. */
TEST(a_chain_samples_the_softmax) {
    enum { N = 60, K = 4, ROUNDS = 60000, THIN = 10, BINS = 6 };
    struct fixture f;
    struct rng r;
    struct error err = {0};
    float scores[N];
    double weights[BINS] = {0};
    double seen[BINS] = {0};
    double sum = 0.0;
    open_fixture(&f, 1.0, LOSS_EMC2_SKIP, false);
    rng_init(&r, 5, RNG_INIT, 0, 0);
    for (int i = 1; i < N; i++) {
        scores[i] = -1.0f + 2.0f * (float)i / N; /* rising: bin of i is (i - 1) * BINS / (N - 1) */
        weights[(i - 1) * BINS / (N - 1)] += exp((double)scores[i]);
        sum += exp((double)scores[i]);
    }
    float *chain = log_scores(&f, "image");
    for (uint64_t k = 0; k < ROUNDS; k++) {
        uint64_t ids[K] = {0};
        float s[K * K] = {0};
        for (int i = 1; i < K; i++) {
            bool taken;
            do {
                ids[i] = 1 + rng_below(&r, N - 1);
                taken = false;
                for (int j = 1; j < i; j++) {
                    taken = taken || ids[j] == ids[i];
                }
            } while (taken);
            s[i] = scores[ids[i]];
        }
        const struct loss_input in = {
            .similarity = s, .sample_ids = ids, .batch_count = K, .step = k};
        struct loss_output out = {.gradient = f.gradient};
        assert_ok(loss_step(f.loss, &in, &out, &err), err);
        if (k % THIN == THIN - 1) {
            const int at_sample = (int)lrintf((chain[0] + 1.0f) * N / 2.0f);
            assert_true(at_sample >= 1 && at_sample < N && scores[at_sample] == chain[0]);
            seen[(at_sample - 1) * BINS / (N - 1)] += 1.0;
        }
    }
    double chi_square = 0.0;
    for (int i = 0; i < BINS; i++) {
        const double expected = weights[i] / sum * ROUNDS / THIN;
        chi_square += pow(seen[i] - expected, 2.0) / expected;
    }
    assert_true(chi_square < 20.5);
    close_fixture(&f);
}

TEST(an_anchor_whose_chain_is_outside_the_batch_is_omitted) {
    struct fixture f;
    open_fixture(&f, 0.05, LOSS_EMC2_SKIP, false);
    float *chain = log_scores(&f, "image");
    chain[f.ids[2]] = 1e6f; /* nothing in this batch is ever accepted */
    for (int i = 0; i < B; i++) {
        log_scores(&f, "text")[f.ids[i]] = 1e6f;
    }
    step(&f);
    for (int c = 0; c < B; c++) {
        assert_true(f.gradient[2 * B + c] == 0.0f);
    }
    assert_true(chain[f.ids[2]] == 1e6f);
    assert_true(f.gradient[0] < 0.0f);
    close_fixture(&f);
}

/* Two steps of pairs whose second batch shares half of its samples with the first. */
TEST(chains_ask_for_samples_outside_the_batch) {
    struct fixture f;
    struct error err = {0};
    uint64_t carried[2 * B];
    float similarity[2 * B];
    float gradient[2 * B];
    open_fixture(&f, 0.05, LOSS_EMC2_ENCODE, false);
    assert_true(loss_carries(f.loss));
    assert_ok(loss_carried(f.loss, carried, NULL, f.ids, B, &err), err);
    for (int i = 0; i < 2 * B; i++) {
        assert_true(carried[i] == SAMPLE_STATE_NO_ID); /* no chain yet */
    }
    step(&f);
    const uint64_t kept = f.ids[1];
    f.ids[0] = 1;
    f.ids[2] = 2;
    f.ids[3] = kept; /* a repeated id needs nothing */
    assert_ok(loss_carried(f.loss, carried, NULL, f.ids, B, &err), err);
    int needed = 0;
    for (int i = 0; i < 2 * B; i++) {
        similarity[i] = 50.0f; /* no proposal is ever accepted */
        gradient[i] = NAN;
        needed += carried[i] != SAMPLE_STATE_NO_ID;
        assert_true(carried[i] == SAMPLE_STATE_NO_ID || i % B == 1 || i % B == 4);
    }
    assert_true(needed > 0);
    struct loss_input in = {.similarity = f.similarity, .sample_ids = f.ids, .batch_count = B};
    struct loss_output out = {.gradient = f.gradient, .carried_gradient = gradient};
#ifdef NDEBUG /* a broken contract ends other builds */
    assert_status(loss_step(f.loss, &in, &out, &err), STATUS_INVALID, err);
#endif
    in.carried_ids = carried;
    in.carried_similarity = similarity;
    similarity[1] = INFINITY;
    similarity[B + 1] = INFINITY;
    similarity[4] = INFINITY;
    similarity[B + 4] = INFINITY;
    assert_status(loss_step(f.loss, &in, &out, &err), STATUS_CORRUPT, err);
    for (int i = 0; i < 2 * B; i++) {
        similarity[i] = 50.0f;
    }
    assert_ok(loss_step(f.loss, &in, &out, &err), err);
    for (int i = 0; i < 2 * B; i++) { /* four distinct samples; all of an anchor's mass is there */
        const double mass = carried[i] == SAMPLE_STATE_NO_ID ? 0.0 : 0.5 / (4 * 0.05);
        assert_true(fabs((double)gradient[i] - mass) < 1e-6);
    }
    /* One that the caller does not have: the chain restarts, in the batch. */
    for (int i = 0; i < 2 * B; i++) {
        carried[i] = SAMPLE_STATE_NO_ID;
    }
    assert_ok(loss_step(f.loss, &in, &out, &err), err);
    assert_ok(loss_carried(f.loss, carried, NULL, f.ids, B, &err), err);
    for (int i = 0; i < 2 * B; i++) {
        assert_true(carried[i] == SAMPLE_STATE_NO_ID && gradient[i] == 0.0f);
    }
    close_fixture(&f);
}

/* And for the view on which it stands, of the epoch in which it came there. */
TEST(both_views_ask_for_the_sample_of_their_chain) {
    struct fixture f;
    struct error err = {0};
    uint64_t carried[2 * B];
    uint64_t views[2 * B];
    bool seen[2] = {false, false};
    int needed = 0;
    open_fixture(&f, 0.05, LOSS_EMC2_VIEW, true);
    for (f.epoch = 1; f.epoch < 20; f.epoch++) {
        uint64_t asking[B];
        step(&f);
        for (int i = 0; i < B; i++) {
            asking[i] = i < 2 ? f.ids[i] : (uint64_t)i;
        }
        assert_ok(loss_carried(f.loss, carried, views, asking, B, &err), err);
        for (int i = 0; i < B; i++) {
            assert_true(carried[i] == carried[B + i] && views[i] == views[B + i]);
            if (carried[i] != SAMPLE_STATE_NO_ID) {
                needed++;
                assert_int_equal(views[i] / 2, f.epoch);
                seen[views[i] % 2] = true;
            }
        }
    }
    assert_true(needed > 0 && seen[0] && seen[1]);
    close_fixture(&f);
}
