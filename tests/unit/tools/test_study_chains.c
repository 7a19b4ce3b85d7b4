/* EMC2's chains against the softmax of fixed features: n = 64, B = 8, tau 0.07, 20,000 steps. */
#include <math.h>
#include <stdio.h>

#include "tests/support/test.h"
#include "tools/ccstudy/chains_model.h"

static struct chains_result run(bool views, enum chains_method method, enum chains_side side) {
    struct error err = {0};
    struct chains_result r = {0};
    const struct chains_setting setting = {
        .views = views, .method = method, .n = 64, .batch = 8, .tau = 0.07, .steps = 20000};
    assert_ok(chains_run(&r, &setting, side, NULL, NULL, &err), err);
    printf("%s side %d: mass %.6f, error %.4f, chi-square %.1f\n", views ? "views" : "pairs",
           (int)side, r.mass, r.error, r.chi_square);
    return r;
}

static void check_side(enum chains_method method, bool views, enum chains_side side) {
    const struct chains_result r = run(views, method, side);
    assert_true(fabs(r.mass - 1.0) < 1e-6);
    assert_true(r.error < 0.1);
    assert_true(r.chi_square < 27.9); /* 9 degrees of freedom, 0.1 % */
}

static void check_chains(bool views) {
    check_side(CHAINS_ENCODE, views, CHAINS_FIRST);
    check_side(CHAINS_ENCODE, views, CHAINS_SECOND);
}

TEST(chains_of_pairs_sample_the_softmax) {
    check_chains(false);
}

TEST(chains_of_two_views_sample_the_softmax) {
    check_chains(true);
}

TEST(a_negative_cache_of_todays_features_samples_the_softmax) {
    check_side(CHAINS_CACHE, false, CHAINS_FIRST);
    check_side(CHAINS_CACHE, true, CHAINS_SECOND);
}

/* What --emc2-carry skip is said to be. */
TEST(chains_that_skip_lose_most_of_the_mass) {
    const struct chains_result images = run(false, CHAINS_SKIP, CHAINS_FIRST);
    const struct chains_result texts = run(false, CHAINS_SKIP, CHAINS_SECOND);
    assert_true(images.mass + texts.mass < 1.0);
    assert_true(images.error > 0.3 && texts.error > 0.3);
}
