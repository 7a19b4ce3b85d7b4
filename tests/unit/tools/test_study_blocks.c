/* Towers of ccstudy blocks on the drawn mixture. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"
#include "tools/ccstudy/blocks_model.h"

static struct blocks_result run(const struct blocks_data *d, int64_t size, bool pairs, int steps) {
    struct error err = {0};
    struct blocks_result r;
    const struct blocks_setting setting = {
        .loss = {.blocks = 16, .size = size, .negatives = 3, .pairs = pairs},
        .steps = steps,
        .lr = 1e-3,
        .seed = 7};
    assert_ok(blocks_run(&r, d, &setting, NULL, NULL, &err), err);
    printf("b %d, %d steps: AVG-2 %.2f, mu-5 %.2f, losses %.3f %.3f %.3f %.3f, mean %.3f\n",
           (int)size, steps, r.avg2, r.avg2_few, r.block_loss[0], r.block_loss[1], r.block_loss[2],
           r.block_loss[3], r.mean_loss);
    return r;
}

/* Proposition 6.2: the loss falls with the size of blocks, and bounds that of the mean classifier.
 */
static void check_bound(const struct blocks_data *d, const struct blocks_result *r) {
    const double tau = 1.0 / (double)d->classes;
    for (int k = 0; k < BLOCKS_SIZES; k++) {
        assert_true(k == 0 || r->block_loss[k] < r->block_loss[k - 1]);
        assert_true(r->mean_loss < (r->block_loss[k] - tau) / (1.0 - tau));
    }
}

TEST(towers_learn_and_larger_blocks_bound_more_tightly) {
    struct error err = {0};
    struct blocks_data d;
    assert_ok(blocks_data_draw(&d, 3, &err), err);
    const struct blocks_result first = run(&d, 1, false, 0);
    const struct blocks_result pairs = run(&d, 1, false, 300);
    const struct blocks_result blocks = run(&d, BLOCKS_LARGEST, false, 300);
    assert_true(pairs.avg2 > first.avg2 + 5.0 && blocks.avg2 > pairs.avg2);
    assert_true(pairs.avg2_few > first.avg2_few + 3.0 && pairs.avg2_few < pairs.avg2);
    check_bound(&d, &first);
    check_bound(&d, &pairs);
    check_bound(&d, &blocks);
    const struct blocks_result again = run(&d, BLOCKS_LARGEST, false, 300);
    assert_int_equal(memcmp(&blocks, &again, sizeof again), 0);
    const struct blocks_result apart = run(&d, BLOCKS_LARGEST, true, 300);
    assert_true(apart.avg2 != blocks.avg2);
    blocks_data_fini(&d);
}

TEST(parts_are_sorted_by_class_and_hold_different_points) {
    struct error err = {0};
    struct blocks_data d;
    assert_ok(blocks_data_draw(&d, 3, &err), err);
    const struct blocks_part *const parts[] = {&d.train, &d.test};
    for (int p = 0; p < 2; p++) {
        assert_int_equal(parts[p]->first[d.classes], parts[p]->count);
        for (int32_t c = 0; c < d.classes; c++) {
            assert_true(parts[p]->first[c] < parts[p]->first[c + 1]);
            for (int64_t i = parts[p]->first[c]; i < parts[p]->first[c + 1]; i++) {
                assert_int_equal(parts[p]->labels[i], c);
            }
        }
    }
    /* Noise of deviation 2 in 58 directions, 1 around means of deviation 1 in 6. */
    double squares = 0.0;
    for (int64_t i = 0; i < d.test.count * d.dim; i++) {
        squares += (double)d.test.rows[i] * (double)d.test.rows[i];
    }
    assert_true(fabs(squares / (double)d.test.count - (58.0 * 4.0 + 6.0 * 2.0)) < 6.0);
    for (int64_t i = 0; i < d.train.count; i++) {
        assert_true(memcmp(d.train.rows + i * d.dim, d.test.rows, sizeof(float)) != 0);
    }
    blocks_data_fini(&d);
}

/* Its captions are "A tree in the city, view 1; number 20!" and the like: 75 of every fourth
 * sample, 75 of the others. */
TEST(captions_are_grouped_by_the_word_of_their_topic) {
    /* The other words of two letters and more, in order; view and number are in all captions. */
    enum {
        AT,
        CAR,
        CUP,
        DOG,
        HOUSE,
        IN,
        MOUNTAIN,
        NEAR,
        NUMBER,
        OLD,
        ON,
        RED,
        THE,
        TREE,
        VIEW,
        DIM
    };
    static const int32_t own[] = {
        [0] = ON, [1] = NEAR, [2] = IN, [3] = AT}; /* of a topic's place */
    struct error err = {0};
    struct blocks_data d;
    struct picture_dataset how;
    picture_dataset_default(&how);
    const char *dir = test_temp_path("d");
    picture_dataset_make(dir, &how);
    assert_ok(blocks_data_read_captions(&d, dir, "grass,lake,horse,city,night", 2, &err), err);
    assert_int_equal(d.classes, 4); /* no caption has a horse */
    assert_int_equal(d.dim, DIM);
    assert_int_equal(d.train.count, 75);
    assert_int_equal(d.test.count, 75);
    for (int64_t i = 0; i < d.train.count; i++) {
        const float *row = d.train.rows + i * DIM;
        double squares = 0.0;
        for (int k = 0; k < DIM; k++) {
            squares += (double)row[k] * (double)row[k];
        }
        assert_true(fabs(squares - DIM) < 1e-4);
        assert_true(row[NUMBER] == 0.0F && row[VIEW] == 0.0F);
        for (int32_t c = 0; c < d.classes; c++) {
            assert_int_equal(row[own[c]] > 0.0F, c == d.train.labels[i]);
        }
    }
    blocks_data_fini(&d);
    static const char *const wrong[][2] = {{"grass", "2 to 256 words"},
                                           {"horse,grass", "1 of the --topics"},
                                           {"city,in", "0 of the --topics"}}; /* always both */
    for (int i = 0; i < 3; i++) {
        err = (struct error){0};
        assert_status(blocks_data_read_captions(&d, dir, wrong[i][0], 2, &err), STATUS_USAGE, err);
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
}
