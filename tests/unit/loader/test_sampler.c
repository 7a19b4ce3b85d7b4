/* The order of samples: every position once, for any cut into ranks, and well mixed. */
#include "loader/sampler.h"

#include <stdlib.h>

#include "tests/support/test.h"

static struct loader_options options(uint32_t batch, uint32_t rank, uint32_t world) {
    struct loader_options opt;
    loader_options_default(&opt);
    opt.batch_count = batch;
    opt.rank = rank;
    opt.world = world;
    opt.seed = test_seed();
    opt.epochs = 2;
    return opt;
}

static enum status
init_one(struct sampler *s, uint64_t n, const struct loader_options *opt, struct error *err) {
    const double no_weight = 0;
    return sampler_init(s, &n, &no_weight, 1, opt, err);
}

static uint64_t
position_at(const struct sampler *s, const struct sampler_batch *b, uint32_t index) {
    struct sampler_place place = sampler_place_at(s, b, index);
    assert_int_equal(place.source, 0);
    return place.ordinal;
}

/* Counts into seen[position] what all ranks deliver in `epoch`; returns the samples delivered. */
static uint64_t
count_epoch(uint8_t *seen, uint64_t n, const struct loader_options *base, uint64_t epoch) {
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < base->world; rank++) {
        struct loader_options opt = *base;
        struct sampler s;
        struct error err = {0};
        opt.rank = rank;
        assert_ok(init_one(&s, n, &opt, &err), err);
        for (uint64_t t = 0; t < s.steps_per_epoch; t++) {
            struct sampler_batch b;
            assert_int_equal(sampler_batch_at(&s, epoch * s.steps_per_epoch + t, &b), STATUS_OK);
            assert_int_equal(b.epoch, epoch);
            assert_int_equal(b.step, t);
            assert_true(b.count <= sampler_max_count(&s));
            for (uint32_t i = 0; i < b.count; i++) {
                uint64_t at = position_at(&s, &b, i);
                assert_true(at < n);
                seen[at]++;
                total++;
            }
        }
    }
    return total;
}

TEST(ranks_together_deliver_every_position_once) {
    const uint64_t sizes[] = {1, 7, 64, 1000, 1031};
    const uint32_t batches[] = {1, 24, 64, 100};
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        for (size_t j = 0; j < sizeof(batches) / sizeof(batches[0]); j++) {
            for (uint32_t world = 1; world <= 64; world += world < 8 ? 1 : 14) {
                uint64_t n = sizes[k];
                struct loader_options opt = options(batches[j], 0, world);
                opt.drop_last = false;
                uint8_t *seen = calloc(n, 1);
                assert_int_equal(count_epoch(seen, n, &opt, 1), n);
                for (uint64_t i = 0; i < n; i++) {
                    assert_int_equal(seen[i], 1);
                }
                free(seen);
            }
        }
    }
}

TEST(drop_last_leaves_out_less_than_a_batch) {
    uint64_t n = 1031;
    struct loader_options opt = options(100, 0, 3);
    uint8_t *seen = calloc(n, 1);
    assert_int_equal(count_epoch(seen, n, &opt, 0), 1000);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(seen[i] <= 1);
    }
    free(seen);
}

TEST(ranks_cut_the_one_rank_batch_into_neighbours) {
    uint64_t n = 500;
    for (uint32_t world = 1; world <= 8; world++) {
        struct loader_options opt = options(48, 0, 1);
        struct sampler whole;
        struct error err = {0};
        assert_ok(init_one(&whole, n, &opt, &err), err);
        struct sampler_batch all;
        assert_int_equal(sampler_batch_at(&whole, 13, &all), STATUS_OK);
        uint32_t at = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            struct loader_options part_opt = options(48, rank, world);
            struct sampler part;
            struct sampler_batch b;
            assert_ok(init_one(&part, n, &part_opt, &err), err);
            assert_int_equal(sampler_batch_at(&part, 13, &b), STATUS_OK);
            assert_int_equal(at, rank * 48u / world);
            for (uint32_t i = 0; i < b.count; i++) {
                assert_int_equal(position_at(&part, &b, i), position_at(&whole, &all, at));
                at++;
            }
        }
        assert_int_equal(at, 48);
    }
}

TEST(sequential_order_is_the_positions) {
    struct loader_options opt = options(10, 1, 2);
    opt.order = LOADER_ORDER_SEQUENTIAL;
    opt.drop_last = false;
    struct sampler s;
    struct sampler_batch b;
    struct error err = {0};
    assert_ok(init_one(&s, 25, &opt, &err), err);
    assert_int_equal(s.steps_per_epoch, 3);
    assert_int_equal(sampler_batch_at(&s, 1, &b), STATUS_OK);
    assert_int_equal(b.count, 5);
    assert_int_equal(position_at(&s, &b, 0), 15);
    assert_int_equal(sampler_batch_at(&s, 2, &b), STATUS_OK);
    assert_int_equal(b.count, 3);
    assert_int_equal(position_at(&s, &b, 0), 22);
    assert_int_equal(sampler_batch_at(&s, 6, &b), STATUS_END);
}

TEST(too_few_samples_are_refused) {
    struct loader_options opt = options(10, 0, 1);
    struct sampler s;
    struct error err = {0};
    assert_status(init_one(&s, 9, &opt, &err), STATUS_USAGE, err);
    opt.drop_last = false;
    assert_ok(init_one(&s, 9, &opt, &err), err);
    assert_status(init_one(&s, 0, &opt, &err), STATUS_USAGE, err);
    opt.epochs = UINT64_MAX;
    assert_status(init_one(&s, 11, &opt, &err), STATUS_LIMIT, err);
}

/* Chi-square of the place of one position over many epochs, and of the distance between samples
 * that are neighbours in the dataset: both as of a fair shuffle. */
TEST(the_shuffle_is_a_real_one) {
    enum { N = 4000, BINS = 20, EPOCHS = 2000 };
    struct loader_options opt = options(100, 0, 1);
    opt.epochs = 0;
    struct sampler s;
    struct error err = {0};
    assert_ok(init_one(&s, N, &opt, &err), err);
    uint32_t place[BINS] = {0};
    uint32_t near = 0;
    uint32_t pairs = 0;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        struct sampler_batch b;
        assert_int_equal(sampler_batch_at(&s, e * s.steps_per_epoch + 7, &b), STATUS_OK);
        uint64_t before = 0;
        for (uint32_t i = 0; i < b.count; i++) {
            uint64_t at = position_at(&s, &b, i);
            if (i == 11) {
                place[at * BINS / N]++;
            }
            if (i > 0) {
                near += (at > before ? at - before : before - at) <= N / 100;
                pairs++;
            }
            before = at;
        }
    }
    double chi = 0;
    double expected = (double)EPOCHS / BINS;
    for (int i = 0; i < BINS; i++) {
        chi += (place[i] - expected) * (place[i] - expected) / expected;
    }
    assert_true(chi < 43.8); /* 19 degrees of freedom, p = 0.001 */
    /* |difference| <= 1 % of N has probability 0.02 - 0.0001; five deviations around it. */
    double share = (double)near / pairs;
    assert_true(share > 0.0199 - 0.0016 && share < 0.0199 + 0.0016);
}

TEST(replacements_are_fixed_by_seed_epoch_and_id) {
    struct loader_options opt = options(10, 0, 1);
    struct sampler a;
    struct sampler b;
    struct error err = {0};
    assert_ok(init_one(&a, 1000, &opt, &err), err);
    opt.batch_count = 20;
    opt.world = 4;
    assert_ok(init_one(&b, 1000, &opt, &err), err);
    uint32_t same = 0;
    for (uint64_t id = 0; id < 100; id++) {
        uint64_t first = sampler_replacement(&a, 0, 3, id, 0);
        assert_true(first < 1000);
        assert_int_equal(first, sampler_replacement(&b, 0, 3, id, 0));
        same += first == sampler_replacement(&a, 0, 4, id, 0);
        same += first == sampler_replacement(&a, 0, 3, id, 1);
    }
    assert_true(same < 5);
}
