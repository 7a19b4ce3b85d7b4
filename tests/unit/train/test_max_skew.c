/*
 * MaxSkew on rankings that are counted by hand.
 */
#include <math.h>

#include "tests/support/test.h"
#include "train/eval/debias.h"

static double
skew(const float *scores, const int32_t *values, int64_t count, int32_t kinds, int64_t top) {
    struct error err = {0};
    double out = NAN;
    assert_ok(max_skew(&out, scores, values, count, kinds, top, &err), err);
    return out;
}

/* In the order of scores the values are 1 0 1 1 0 0. */
TEST(skew_is_that_of_the_first_k) {
    const float scores[] = {0.1f, 0.9f, 0.7f, 0.5f, -0.3f, 0.8f};
    const int32_t values[] = {0, 1, 1, 1, 0, 0};
    assert_true(fabs(skew(scores, values, 6, 2, 1) - log(2.0)) < 1e-12);
    assert_true(fabs(skew(scores, values, 6, 2, 2)) < 1e-12);
    assert_true(fabs(skew(scores, values, 6, 2, 3) - log(4.0 / 3.0)) < 1e-12);
    assert_true(fabs(skew(scores, values, 6, 2, 4) - log(1.5)) < 1e-12);
    assert_true(fabs(skew(scores, values, 6, 2, 6)) < 1e-12);
    assert_true(skew(scores, values, 6, 2, 1000) == skew(scores, values, 6, 2, 6));
}

/* A value that is not found still counts among the values. */
TEST(values_that_are_not_found_count) {
    const float scores[] = {4, 3, 2, 1};
    const int32_t values[] = {0, 2, 0, 2};
    assert_true(fabs(skew(scores, values, 4, 3, 4) - log(1.5)) < 1e-12);
}

TEST(images_without_a_value_are_not_ranked) {
    const float scores[] = {9, 8, 3, 2};
    const int32_t values[] = {-1, 2, 0, 1};
    assert_true(fabs(skew(scores, values, 4, 2, 2)) < 1e-12);
    const int32_t none[] = {-1, -1, 2, 7};
    double out;
    struct error err = {0};
    assert_status(max_skew(&out, scores, none, 4, 2, 1, &err), STATUS_USAGE, err);
}

TEST(of_equal_scores_the_first_image_counts) {
    const float scores[] = {0.5f, 0.5f, 0.5f};
    const int32_t values[] = {1, 0, 0};
    assert_true(fabs(skew(scores, values, 3, 2, 1) - log(2.0)) < 1e-12);
    assert_true(fabs(skew(scores, values, 3, 2, 2)) < 1e-12);
}
