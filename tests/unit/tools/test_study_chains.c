/* EMC2's chains against the softmax of fixed features: n = 64, B = 8, tau 0.07, 20,000 steps. */
#include <math.h>
#include <stdio.h>

#include "tests/support/test.h"
#include "tools/ccstudy/chains_model.h"

static struct chains_result run(bool views, enum loss_emc2_carry carry, enum chains_side side) {
    struct error err = {0};
    struct chains_result r = {0};
    const struct chains_setting setting = {
        .views = views, .carry = carry, .n = 64, .batch = 8, .tau = 0.07, .steps = 20000};
    assert_ok(chains_run(&r, &setting, side, NULL, NULL, &err), err);
    printf("%s side %d: mass %.6f, error %.4f, chi-square %.1f\n", views ? "views" : "pairs",
           (int)side, r.mass, r.error, r.chi_square);
    return r;
}

static void check_exact(bool views) {
    for (int side = 0; side < CHAINS_SIDE_COUNT; side++) {
        const struct chains_result r = run(views, LOSS_EMC2_ENCODE, (enum chains_side)side);
        assert_true(fabs(r.mass - 1.0) < 1e-6);
        assert_true(r.error < 0.1);
        assert_true(r.chi_square < 27.9); /* 9 degrees of freedom, 0.1 % */
    }
}

TEST(chains_of_pairs_sample_the_softmax) {
    check_exact(false);
}

TEST(chains_of_two_views_sample_the_softmax) {
    check_exact(true);
}

/* What --emc2-carry skip is said to be. */
TEST(chains_that_skip_lose_most_of_the_mass) {
    const struct chains_result images = run(false, LOSS_EMC2_SKIP, CHAINS_FIRST);
    const struct chains_result texts = run(false, LOSS_EMC2_SKIP, CHAINS_SECOND);
    assert_true(images.mass + texts.mass < 1.0);
    assert_true(images.error > 0.3 && texts.error > 0.3);
}
