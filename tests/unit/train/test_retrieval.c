/*
 * Recall on examples small enough to count by hand.
 */
#include <math.h>

#include "tests/support/test.h"
#include "train/eval/retrieval.h"

static struct retrieval_result ranks(const float *images,
                                     int64_t images_count,
                                     const float *texts,
                                     int64_t texts_count,
                                     const int32_t *owner,
                                     int64_t embed_dim) {
    struct error err = {0};
    struct device *dev = NULL;
    struct retrieval_result r;
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    assert_ok(
        retrieval_ranks(&r, dev, images, images_count, texts, texts_count, owner, embed_dim, &err),
        err);
    device_close(dev);
    return r;
}

/* Three images at 0, 120 and 240 degrees, two captions each. */
TEST(the_best_of_several_captions_counts) {
    const float images[] = {1.0f, 0.0f, -0.5f, 0.866f, -0.5f, -0.866f};
    const int32_t owner[] = {0, 0, 1, 1, 2, 2};
    const float texts[] = {
        0.9f,  0.1f,  /* image 0: found */
        -0.5f, 0.8f,  /* image 0, but looks like image 1 */
        -0.4f, 0.9f,  /* image 1: found */
        0.0f,  1.0f,  /* image 1: found */
        1.0f,  0.05f, /* image 2, but looks like image 0 most of all */
        -0.4f, -0.8f, /* image 2: found */
    };
    const struct retrieval_result r = ranks(images, 3, texts, 6, owner, 2);
    /* Image 0 prefers text 4 (image 2's); image 1 and 2 find their own. */
    assert_true(fabs(r.value[RETRIEVAL_I2T][RETRIEVAL_R1] - 200.0 / 3.0) < 1e-9);
    assert_true(r.value[RETRIEVAL_I2T][RETRIEVAL_R5] == 100.0 &&
                r.value[RETRIEVAL_I2T][RETRIEVAL_R10] == 100.0);
    assert_true(fabs(r.value[RETRIEVAL_T2I][RETRIEVAL_R1] - 400.0 / 6.0) < 1e-9);
    assert_true(r.value[RETRIEVAL_T2I][RETRIEVAL_R5] == 100.0);
    assert_true(fabs(r.value[RETRIEVAL_MEAN][RETRIEVAL_R1] - 200.0 / 3.0) < 1e-9);
    assert_int_equal(r.images, 3);
    assert_int_equal(r.texts, 6);
}

TEST(equal_scores_find_nothing) {
    float images[20 * 2];
    float texts[20 * 2];
    int32_t owner[20];
    for (int i = 0; i < 20; i++) {
        images[2 * i] = texts[2 * i] = 1.0f;
        images[2 * i + 1] = texts[2 * i + 1] = 0.0f;
        owner[i] = i;
    }
    const struct retrieval_result r = ranks(images, 20, texts, 20, owner, 2);
    assert_true(r.value[RETRIEVAL_I2T][RETRIEVAL_R10] == 0.0 &&
                r.value[RETRIEVAL_T2I][RETRIEVAL_R10] == 0.0 &&
                r.value[RETRIEVAL_MEAN][RETRIEVAL_R1] == 0.0);
}

TEST(an_image_without_captions_is_no_query) {
    const float images[] = {1.0f, 0.0f, 0.0f, 1.0f};
    const float texts[] = {0.0f, 1.0f};
    const int32_t owner[] = {1};
    const struct retrieval_result r = ranks(images, 2, texts, 1, owner, 2);
    assert_true(r.value[RETRIEVAL_I2T][RETRIEVAL_R1] == 100.0 &&
                r.value[RETRIEVAL_T2I][RETRIEVAL_R1] == 100.0);
}

/* More rows than one block of scores. */
TEST(many_rows_go_through_several_blocks) {
    enum { N = 600 };
    static float points[N * 2];
    static int32_t owner[N];
    for (int i = 0; i < N; i++) {
        const double angle = 6.283185307179586 * i / N;
        points[2 * i] = (float)cos(angle);
        points[2 * i + 1] = (float)sin(angle);
        owner[i] = i;
    }
    const struct retrieval_result same = ranks(points, N, points, N, owner, 2);
    assert_true(same.value[RETRIEVAL_I2T][RETRIEVAL_R1] == 100.0 &&
                same.value[RETRIEVAL_T2I][RETRIEVAL_R1] == 100.0);
    for (int i = 0; i < N; i++) {
        owner[i] = (i + 3) % N; /* three steps off: six neighbours lie closer or as close */
    }
    const struct retrieval_result off = ranks(points, N, points, N, owner, 2);
    assert_true(off.value[RETRIEVAL_I2T][RETRIEVAL_R5] == 0.0 &&
                off.value[RETRIEVAL_I2T][RETRIEVAL_R10] == 100.0 &&
                off.value[RETRIEVAL_T2I][RETRIEVAL_R10] == 100.0);
}
