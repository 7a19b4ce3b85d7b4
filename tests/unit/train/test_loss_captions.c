/*
 * The numbers of texts by caption: in every loss that keeps some, those of a caption are what a
 * loss by sample keeps for a sample with this caption alone.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/loss/loss.h"

enum { B = 6, SAMPLES = 12, EACH = 3, STEPS = 40 };

static void draw(float *m, uint64_t stream) {
    struct rng r;
    rng_init(&r, 5, RNG_INIT, stream, 0);
    for (int i = 0; i < B * B; i++) {
        m[i] = (float)(2.0 * rng_uniform(&r) - 1.0);
    }
}

/* Distinct samples, and one of the captions of each; `repeated`: but for the last, which is the
 * first one again. */
static void draw_rows(uint64_t *ids, uint64_t *captions, uint64_t stream, bool repeated) {
    struct rng r;
    rng_init(&r, 5, RNG_ORDER, stream, 0);
    const uint64_t first = rng_below(&r, SAMPLES);
    for (int i = 0; i < B; i++) {
        ids[i] = (first + (uint64_t)i) % SAMPLES;
        captions[i] = ids[i] * EACH + rng_below(&r, EACH);
    }
    if (repeated) {
        ids[B - 1] = ids[0];
        captions[B - 1] = captions[0];
    }
}

/* zeta of texts reads u of images, which have other numbers: of nuclr gamma is 1, which remembers
 * nothing, and zeta of images stays. */
static void compare(const char *name, enum loss_parity parity, double gamma) {
    struct loss_options o;
    struct sample_state *by_sample;
    struct sample_state *images;
    struct sample_state *texts;
    struct loss *plain;
    struct loss *split;
    struct error err = {0};
    float s[B * B];
    float g[2][B * B];
    loss_options_default(&o);
    o.name = name;
    o.tau = 0.25;
    o.tau_max = 1.0;
    o.gamma = gamma;
    o.parity = parity;
    o.zeta_by_visit = parity == LOSS_PARITY_ALGORITHM;
    assert_ok(sample_state_create(&by_sample, SAMPLES * EACH, NULL, &err), err);
    assert_ok(sample_state_create(&images, SAMPLES, NULL, &err), err);
    assert_ok(sample_state_create(&texts, SAMPLES * EACH, NULL, &err), err);
    assert_ok(loss_create(&plain, &o, by_sample, SAMPLES, B, &err), err);
    assert_ok(loss_create_by_caption(&split, &o, images, texts, SAMPLES, B, &err), err);
    for (uint64_t k = 0; k < STEPS; k++) {
        uint64_t ids[B];
        uint64_t captions[B];
        draw(s, k);
        draw_rows(ids, captions, k, k % 5 == 4);
        struct loss_input in = {.similarity = s,
                                .sample_ids = captions,
                                .batch_count = B,
                                .step = k,
                                .epoch = k / 3,
                                .zeta_lr_text = 1.0};
        struct loss_output out = {.gradient = g[0]};
        assert_ok(loss_step(plain, &in, &out, &err), err);
        in.sample_ids = ids;
        in.caption_ids = captions;
        out.gradient = g[1];
        assert_ok(loss_step(split, &in, &out, &err), err);
    }
    int compared = 0;
    for (int32_t c = 0; c < sample_state_count(texts); c++) {
        const char *column = sample_state_name(texts, c);
        const bool visits = strcmp(column, "text.visits") == 0;
        const int32_t other = sample_state_find(by_sample, visits ? "visits" : column);
        size_t bytes;
        const void *own = sample_state_values(texts, c, &bytes);
        assert_true(other >= 0);
        assert_true(memcmp(own, sample_state_values(by_sample, other, &bytes), bytes) == 0);
        compared++;
    }
    assert_true(compared >= 2 && sample_state_find(images, "visits") >= 0);
    assert_true(sample_state_find(images, "text.log_u") < 0);
    loss_destroy(plain);
    loss_destroy(split);
    sample_state_destroy(by_sample);
    sample_state_destroy(images);
    sample_state_destroy(texts);
}

TEST(a_caption_has_the_numbers_of_a_sample_that_has_it_alone) {
    static const char *const any_gamma[] = {"sogclr", "isogclr", "fastclip-v1", "fastclip-v2"};
    for (int i = 0; i < 4; i++) {
        compare(any_gamma[i], LOSS_PARITY_ALGORITHM, 0.3);
    }
    compare("nuclr", LOSS_PARITY_ALGORITHM, 1.0);
    compare("nuclr-noxi", LOSS_PARITY_ALGORITHM, 1.0);
    compare("sogclr", LOSS_PARITY_REFERENCE, 0.3);
}

TEST(losses_without_numbers_of_texts_keep_none_by_caption) {
    static const struct {
        const char *name;
        bool views;
        uint64_t positives;
        bool keeps;
    } cases[] = {{"nuclr", false, 0, true},  {"clip", false, 0, false},
                 {"emc2", false, 0, false},  {"nuclr", false, 2, false},
                 {"sogclr", true, 0, false}, {"sogclr", false, 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loss_options o;
        loss_options_default(&o);
        o.name = cases[i].name;
        o.views = cases[i].views;
        o.positives = cases[i].positives;
        if (loss_keeps_texts(&o) != cases[i].keeps) {
            fail_msg("loss %s, case %d", cases[i].name, (int)i);
        }
    }
}
