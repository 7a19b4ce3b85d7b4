/*
 * Debiased class vectors on examples small enough to work out by hand.
 */
#include <math.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/eval/debias.h"

static bool near(float a, double b) {
    return fabs((double)a - b) < 1e-6;
}

/* Class vectors lean on the third axis, the background. One spurious prompt, its direction: what
 * is left is the class alone. */
TEST(a_spurious_direction_is_removed) {
    struct error err = {0};
    const float background[] = {0, 0, 5, 0, 0, -2}; /* the second adds nothing */
    float vectors[] = {0.6f, 0, 0.8f, 0, 0.28f, 0.96f};
    const struct debias_prompts how = {.spurious = background, .spurious_count = 2, .lambda = 1000};
    assert_ok(debias_vectors(vectors, 2, 3, &how, NULL, &err), err);
    const double expected[] = {1, 0, 0, 0, 1, 0};
    for (int i = 0; i < 6; i++) {
        assert_true(near(vectors[i], expected[i]));
    }
}

/* One pair with the difference d = (0, 2): (I + lambda d d^T)^-1 divides the second coordinate by
 * 1 + 4 lambda = 5. Of (3, 20) the direction of (3, 4) is left. */
TEST(a_pair_shrinks_its_difference) {
    struct error err = {0};
    const float pair[] = {1, 1, 1, -1};
    float vector[] = {3, 20};
    struct debias_prompts how = {.pairs = pair, .pair_count = 1, .lambda = 1.0};
    assert_ok(debias_vectors(vector, 1, 2, &how, NULL, &err), err);
    assert_true(near(vector[0], 0.6) && near(vector[1], 0.8));
    /* The mean over two pairs: the same pair twice changes nothing. */
    const float twice[] = {1, 1, 1, -1, 1, 1, 1, -1};
    float again[] = {3, 20};
    how.pairs = twice;
    how.pair_count = 2;
    assert_ok(debias_vectors(again, 1, 2, &how, NULL, &err), err);
    assert_true(near(again[0], 0.6) && near(again[1], 0.8));
    /* Without weight pairs have no effect. */
    float alone[] = {3, 4};
    how.lambda = 0.0;
    assert_ok(debias_vectors(alone, 1, 2, &how, NULL, &err), err);
    assert_true(near(alone[0], 0.6) && near(alone[1], 0.8));
}

TEST(a_class_that_is_the_spurious_thing_is_named) {
    struct error err = {0};
    const float background[] = {0, 1};
    float vectors[] = {1, 1, 0, 3};
    int64_t of = -1;
    struct debias_prompts how = {.spurious = background, .spurious_count = 1, .lambda = 1};
    assert_status(debias_vectors(vectors, 2, 2, &how, &of, &err), STATUS_USAGE, err);
    assert_int_equal(of, 1);
    how.spurious_count = DEBIAS_MAX_PROMPTS + 1;
    assert_status(debias_vectors(vectors, 2, 2, &how, NULL, &err), STATUS_LIMIT, err);
}
