/* What is due in a step, and how often each sample is drawn. */
#include <math.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/state/feature_cache.h"
#include "train/state/sample_state.h"

enum { IDS = 12, DIM = 4, ANCHORS = 3, HOLE = 7, DRAWS = 20000 };

static struct device *dev;
static float features[IDS][DIM];
static float anchors[ANCHORS][DIM];
static const uint64_t own_ids[ANCHORS] = {0, 5, 11};
static const double tau = 0.5;

static struct feature_cache *new_cache(uint64_t id_count, int64_t dim, double share) {
    const struct feature_cache_options how = {id_count, dim, share, ANCHORS};
    struct feature_cache *c = NULL;
    struct error err = {0};
    if (dev == NULL) {
        assert_ok(device_open(&dev, "cpu", 1, &err), err);
    }
    assert_ok(feature_cache_create(&c, dev, &how, &err), err);
    return c;
}

static void close_all(struct feature_cache *c) {
    feature_cache_destroy(c);
    device_close(dev);
}

static void draw_rows(float *rows, int count, uint64_t stream) {
    struct rng r;
    rng_init(&r, 3, RNG_INIT, stream, 0);
    for (int i = 0; i < count; i++) {
        rows[i] = (float)rng_normal(&r) / 2.0f;
    }
}

/* All but the hole. */
static struct feature_cache *full_cache(void) {
    struct feature_cache *c = new_cache(IDS, DIM, 0.25);
    draw_rows(&features[0][0], IDS * DIM, 0);
    draw_rows(&anchors[0][0], ANCHORS * DIM, 1);
    for (uint64_t id = 0; id < IDS; id++) {
        feature_cache_put(c, id, id == HOLE ? NULL : features[id]);
    }
    return c;
}

static void draw(struct feature_cache *c, uint64_t out[ANCHORS], uint64_t step, int stream) {
    const struct tensor x = tensor_2d(anchors, DTYPE_F32, ANCHORS, DIM);
    struct error err = {0};
    assert_ok(feature_cache_draw(c, out, &x, own_ids, tau, 9, step, stream, &err), err);
}

TEST(all_are_due_first_then_a_share_in_turn) {
    uint64_t first;
    uint64_t count;
    int seen[10] = {0};
    const float feature[1] = {1.0f};
    struct feature_cache *c = new_cache(10, 1, 0.25);
    feature_cache_due(c, 6, &first, &count);
    assert_true(first == 0 && count == 10);
    assert_false(feature_cache_filled(c));
    for (uint64_t id = 0; id < 10; id++) {
        feature_cache_put(c, id, id % 2 == 0 ? feature : NULL);
    }
    assert_true(feature_cache_filled(c));
    for (uint64_t step = 17; step < 27; step++) {
        feature_cache_due(c, step, &first, &count);
        assert_int_equal(count, 3); /* 0.25 * 10, rounded up */
        assert_int_equal(first, step * 3 % 10);
        for (uint64_t i = 0; i < count; i++) {
            seen[(first + i) % 10]++;
        }
    }
    for (int id = 0; id < 10; id++) {
        assert_int_equal(seen[id], 3);
    }
    close_all(c);
}

/* Chi-square of 20,000 draws of each anchor: of 9 degrees of freedom 27.9 is exceeded once in
 * 1,000. */
TEST(negatives_are_drawn_by_the_softmax) {
    static double counts[ANCHORS][IDS];
    struct feature_cache *c = full_cache();
    for (uint64_t step = 0; step < DRAWS; step++) {
        uint64_t out[ANCHORS];
        draw(c, out, step, 0);
        for (int a = 0; a < ANCHORS; a++) {
            assert_true(out[a] < IDS && out[a] != own_ids[a] && out[a] != HOLE);
            counts[a][out[a]] += 1.0;
        }
    }
    for (int a = 0; a < ANCHORS; a++) {
        double p[IDS];
        double sum = 0.0;
        double chi_square = 0.0;
        for (uint64_t j = 0; j < IDS; j++) {
            double s = 0.0;
            for (int d = 0; d < DIM; d++) {
                s += (double)anchors[a][d] * (double)features[j][d];
            }
            p[j] = j == own_ids[a] || j == HOLE ? 0.0 : exp(s / tau);
            sum += p[j];
        }
        for (int j = 0; j < IDS; j++) {
            const double expected = DRAWS * p[j] / sum;
            chi_square += p[j] > 0.0 ? pow(counts[a][j] - expected, 2.0) / expected : 0.0;
        }
        assert_true(chi_square < 27.9);
    }
    close_all(c);
}

/* A draw is a function of its keys, over more ids than one product has. */
TEST(draws_repeat_and_streams_differ) {
    enum { MANY = 10000 };
    struct feature_cache *c = new_cache(MANY, DIM, 1.0);
    uint64_t out[3][ANCHORS];
    int beyond = 0;
    int differ = 0;
    float row[DIM];
    draw_rows(&anchors[0][0], ANCHORS * DIM, 1);
    draw(c, out[0], 0, 0);
    assert_true(out[0][0] == SAMPLE_STATE_NO_ID); /* none is there */
    for (uint64_t id = 0; id < MANY; id++) {
        draw_rows(row, DIM, id);
        feature_cache_put(c, id, row);
    }
    for (uint64_t step = 0; step < 5; step++) {
        draw(c, out[0], step, 0);
        draw(c, out[1], step, 0);
        draw(c, out[2], step, 1);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        for (int a = 0; a < ANCHORS; a++) {
            beyond += out[0][a] >= 4096 && out[0][a] < MANY;
            differ += out[0][a] != out[2][a];
        }
    }
    assert_true(beyond > 3 && differ > 10);
    close_all(c);
}
