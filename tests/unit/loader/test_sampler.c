/* The order of samples: every sample once, for any order, mix and number of ranks, and well mixed.
 */
#include "loader/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "loader/classes_internal.h"
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

TEST(rows_of_a_sample_are_consecutive_in_every_order) {
    enum { SAMPLES = 50, EACH = 3, BATCH = 24 };
    for (int order = LOADER_ORDER_GLOBAL; order <= LOADER_ORDER_BLOCK; order++) {
        struct loader_options opt = options(BATCH, 0, 1);
        struct loader_options single = options(BATCH / EACH, 0, 1);
        struct sampler all;
        struct sampler samples;
        struct error err = {0};
        opt.positives = EACH;
        opt.order = (enum loader_order)order;
        single.order = opt.order;
        assert_ok(init_one(&all, SAMPLES, &opt, &err), err);
        assert_ok(init_one(&samples, SAMPLES, &single, &err), err);
        assert_int_equal(all.steps_per_epoch, samples.steps_per_epoch);
        for (uint32_t rank = 0; rank < 5; rank++) {
            struct sampler part;
            struct sampler_batch rows;
            struct sampler_batch expected;
            opt.rank = rank;
            opt.world = 5; /* does not divide the batch: samples are split between ranks */
            assert_ok(init_one(&part, SAMPLES, &opt, &err), err);
            assert_int_equal(sampler_batch_at(&part, 9, &rows), STATUS_OK);
            assert_int_equal(sampler_batch_at(&samples, 9, &expected), STATUS_OK);
            assert_true(rows.count >= BATCH / 5);
            for (uint32_t i = 0; i < rows.count; i++) {
                const uint32_t row = rank * BATCH / 5 + i;
                assert_int_equal(position_at(&part, &rows, i),
                                 position_at(&samples, &expected, row / EACH));
                assert_int_equal(sampler_positive_at(&part, &rows, i), row % EACH);
            }
        }
    }
}

TEST(drop_last_omits_less_than_a_batch) {
    uint64_t n = 1031;
    struct loader_options opt = options(100, 0, 3);
    uint8_t *seen = calloc(n, 1);
    assert_int_equal(count_epoch(seen, n, &opt, 0), 1000);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(seen[i] <= 1);
    }
    free(seen);
}

TEST(ranks_take_consecutive_slices_of_the_global_batch) {
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

TEST(sequential_order_is_by_position) {
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
TEST(global_order_is_a_uniform_shuffle) {
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

/* --- orders and mixes --- */

struct plan {
    const char *order;
    uint32_t source_count;
    uint64_t live[3];
    double weights[3];
};

static const struct plan plans[] = {
    {"global", 1, {230}, {0}},
    {"sequential", 1, {230}, {0}},
    {"block:16:3", 1, {230}, {0}},  /* a rest of 6 */
    {"block:10:4", 1, {230}, {0}},  /* no rest */
    {"block:500:4", 1, {230}, {0}}, /* less than one block */
    {"block:1:1", 1, {230}, {0}},
    {"global", 3, {100, 7, 123}, {0}},
    {"sequential", 3, {100, 7, 123}, {0}},
    {"block:16:3", 3, {100, 7, 123}, {0}},
    {"global", 3, {100, 0, 130}, {0}}, /* one is empty */
    {"global", 2, {200, 30}, {1, 3}},
    {"block:8:2", 2, {200, 30}, {0.3, 0.1}},
    {"sequential", 3, {50, 90, 90}, {5, 1, 1}},
};
enum { PLANS = sizeof(plans) / sizeof(plans[0]) };

static void init_plan(struct sampler *s, const struct plan *plan, struct loader_options opt) {
    struct error err = {0};
    assert_ok(loader_order_parse(&opt, plan->order, &err), err);
    assert_ok(sampler_init(s, plan->live, plan->weights, plan->source_count, &opt, &err), err);
}

static uint64_t place_key(struct sampler_place place) {
    return (uint64_t)place.source << 48 | place.ordinal;
}

/* Over several epochs, every sample of a source comes equally often, but for one; without weights
 * once an epoch. */
TEST(every_order_delivers_every_sample_equally_often) {
    for (size_t k = 0; k < PLANS; k++) {
        struct sampler s;
        struct loader_options opt = options(24, 0, 1);
        uint32_t seen[3][256] = {{0}};
        opt.drop_last = false;
        opt.epochs = 4;
        init_plan(&s, &plans[k], opt);
        assert_int_equal(s.sample_count, 230);
        for (uint64_t step = 0; step < s.steps_total; step++) {
            struct sampler_batch b;
            assert_int_equal(sampler_batch_at(&s, step, &b), STATUS_OK);
            for (uint32_t i = 0; i < b.count; i++) {
                struct sampler_place place = sampler_place_at(&s, &b, i);
                assert_true(place.source < plans[k].source_count);
                assert_true(place.ordinal < plans[k].live[place.source]);
                seen[place.source][place.ordinal]++;
            }
        }
        for (uint32_t d = 0; d < plans[k].source_count; d++) {
            uint64_t draws = 4 * s.sources[d].share_count;
            for (uint64_t i = 0; i < plans[k].live[d]; i++) {
                uint64_t least = draws / plans[k].live[d];
                assert_in_range(seen[d][i], least, least + (draws % plans[k].live[d] != 0));
            }
        }
    }
}

TEST(weights_are_shares_of_an_epoch) {
    struct sampler s;
    init_plan(&s, &plans[10], options(23, 0, 1));
    assert_int_equal(s.sources[0].share_count, 58); /* 57.5, the first of equal remainders */
    assert_int_equal(s.sources[1].share_count, 172);
    init_plan(&s, &plans[12], options(23, 0, 1));
    assert_int_equal(s.sources[0].share_count, 164);
    assert_int_equal(s.sources[1].share_count + s.sources[2].share_count, 66);

    const uint64_t live[2] = {1000, 10};
    const double tiny[2] = {1, 1e-9};
    const uint64_t empty[2] = {1000, 0};
    const double even[2] = {1, 1};
    struct loader_options opt = options(10, 0, 1);
    struct error err = {0};
    assert_status(sampler_init(&s, live, tiny, 2, &opt, &err), STATUS_USAGE, err);
    assert_status(sampler_init(&s, empty, even, 2, &opt, &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "dataset 2"));
}

TEST(slices_of_all_ranks_are_the_global_batch_for_every_world) {
    for (size_t k = 0; k < PLANS; k++) {
        struct loader_options opt = options(48, 0, 1);
        opt.drop_last = false;
        struct sampler whole;
        init_plan(&whole, &plans[k], opt);
        for (uint64_t step = 0; step < 2 * whole.steps_per_epoch; step += 4) {
            struct sampler_batch all;
            assert_int_equal(sampler_batch_at(&whole, step, &all), STATUS_OK);
            for (uint32_t world = 1; world <= 64; world++) {
                uint32_t at = 0;
                for (uint32_t rank = 0; rank < world; rank++) {
                    struct sampler part = whole;
                    struct sampler_batch b;
                    part.rank = rank;
                    part.world = world;
                    assert_int_equal(sampler_batch_at(&part, step, &b), STATUS_OK);
                    for (uint32_t i = 0; i < b.count; i++, at++) {
                        assert_true(place_key(sampler_place_at(&part, &b, i)) ==
                                    place_key(sampler_place_at(&whole, &all, at)));
                    }
                }
                assert_int_equal(at, all.count);
            }
        }
    }
}

/* Chi-square of the place of one sample over many epochs: as of a fair shuffle. The sample at the
 * end of the list is the one that a short last block would hold. */
static double chi_of_places(const char *order, uint64_t sample, uint32_t bins, uint32_t epochs) {
    enum { N = 330, MAX_BINS = 40 };
    uint32_t place[MAX_BINS] = {0};
    struct plan plan = {order, 1, {N}, {0}};
    struct loader_options opt = options(N, 0, 1);
    struct sampler s;
    opt.epochs = 0;
    init_plan(&s, &plan, opt);
    for (uint64_t e = 0; e < epochs; e++) {
        struct sampler_batch b;
        assert_int_equal(sampler_batch_at(&s, e, &b), STATUS_OK);
        uint32_t i = 0;
        while (sampler_place_at(&s, &b, i).ordinal != sample) {
            i++;
        }
        place[(uint64_t)i * bins / N]++;
    }
    double chi = 0;
    double expected = (double)epochs / bins;
    for (uint32_t i = 0; i < bins; i++) {
        chi += (place[i] - expected) * (place[i] - expected) / expected;
    }
    return chi;
}

TEST(every_position_is_equally_likely_in_global_and_block_order) {
    /* 9 degrees of freedom, p = 0.001 */
    assert_true(chi_of_places("global", 200, 10, 400) < 27.9);
    assert_true(chi_of_places("block:32:4", 0, 10, 400) < 27.9);
    assert_true(chi_of_places("block:32:4", 329, 10, 400) < 27.9);
    assert_true(chi_of_places("block:100:2", 329, 10, 400) < 27.9);
}

/* What the header says of blocks: a window holds few neighbourhoods, and inside it neighbours are
 * not together. */
TEST(window_of_blocks_is_local_and_shuffled) {
    enum { N = 6400, BLOCK = 32, WINDOW = 8, PLACES = BLOCK * WINDOW };
    struct plan plan = {"block:32:8", 1, {N}, {0}};
    struct loader_options opt = options(PLACES, 0, 1);
    struct sampler s;
    init_plan(&s, &plan, opt);
    uint32_t adjacent = 0;
    uint64_t first_block[N / PLACES];
    for (uint64_t step = 0; step < s.steps_per_epoch; step++) {
        struct sampler_batch b;
        bool met[N] = {false};
        assert_int_equal(sampler_batch_at(&s, step, &b), STATUS_OK);
        uint64_t before = N;
        for (uint32_t i = 0; i < b.count; i++) {
            uint64_t at = sampler_place_at(&s, &b, i).ordinal;
            met[at] = true;
            adjacent += at == before + 1;
            before = at;
        }
        uint32_t runs = 0;
        for (uint32_t i = 0; i < N; i++) {
            runs += met[i] && !met[(i + N - 1) % N];
        }
        assert_in_range(runs, 1, WINDOW);
        first_block[step] = sampler_place_at(&s, &b, 0).ordinal / BLOCK;
    }
    /* About one in PLACES follows its neighbour by chance: 25 of 6400. */
    assert_in_range(adjacent, 5, 60);
    uint32_t rising = 0;
    for (uint32_t i = 1; i < N / PLACES; i++) {
        rising += first_block[i] > first_block[i - 1];
    }
    assert_in_range(rising, 3, N / PLACES - 4);
}

/* The sources of a mix are spread evenly: the share of each batch is as if drawn without putting
 * back. */
TEST(mix_is_spread_over_the_whole_epoch) {
    struct plan plan = {"global", 2, {9000, 1000}, {0.7, 0.3}};
    struct loader_options opt = options(100, 0, 1);
    struct sampler s;
    init_plan(&s, &plan, opt);
    assert_int_equal(s.sources[0].share_count, 7000);
    double chi = 0;
    uint64_t total = 0;
    for (uint64_t step = 0; step < s.steps_per_epoch; step++) {
        struct sampler_batch b;
        uint32_t first = 0;
        assert_int_equal(sampler_batch_at(&s, step, &b), STATUS_OK);
        for (uint32_t i = 0; i < b.count; i++) {
            first += sampler_place_at(&s, &b, i).source == 0;
        }
        chi += (first - 70.0) * (first - 70.0) / (100 * 0.7 * 0.3);
        total += first;
    }
    assert_int_equal(total, 7000);
    assert_true(chi > 54 && chi < 158); /* 99 degrees of freedom, p = 0.0001 on either side */
}

/* Every row of two epochs is where its sample is found, and no sample is found anywhere else.
 * Returns how often a sample was not delivered in a round. */
static uint64_t check_inverse(const struct sampler *s, const uint64_t *live) {
    uint64_t found = 0;
    uint64_t absent = 0;
    uint64_t rows = 0;
    for (uint64_t t = 0; t < s->steps_total; t++) {
        struct sampler_batch b;
        assert_int_equal(sampler_batch_at(s, t, &b), STATUS_OK);
        rows += b.count / s->positives;
    }
    for (uint32_t d = 0; d < s->source_count; d++) {
        for (uint64_t i = 0; i < live[d]; i++) {
            const struct sampler_place place = {d, i};
            enum status status = STATUS_OK;
            for (uint64_t round = 0; status != STATUS_END; round++) {
                struct sampler_visit v = {0};
                struct sampler_batch b;
                status = sampler_find(s, place, round, &v);
                absent += status == STATUS_NOTFOUND;
                if (status == STATUS_OK) {
                    assert_int_equal(sampler_batch_at(s, v.global_step, &b), STATUS_OK);
                    assert_int_equal(v.epoch, b.epoch);
                    assert_int_equal(v.step, b.step);
                    assert_int_equal(sampler_positive_at(s, &b, v.row), 0);
                    assert_int_equal(place_key(sampler_place_at(s, &b, v.row)), place_key(place));
                    found++;
                }
            }
        }
    }
    assert_int_equal(found, rows);
    return absent;
}

/* Ten samples of class 0, seven of 1, three of 2; sample i is of class label[i]. */
TEST(blocks_of_a_class_are_whole_and_new_in_every_epoch) {
    enum { N = 20, BLOCK = 3, BLOCKS = 3 + 2 + 1, WORLD = 2 };
    static const int label[N] = {1, 0, 0, 2, 1, 0, 1, 0, 0, 2, 1, 0, 1, 0, 0, 2, 1, 0, 1, 0};
    uint64_t members[N] = {1, 2, 5, 7, 8, 11, 13, 14, 17, 19, 0, 4, 6, 10, 12, 16, 18, 3, 9, 15};
    uint64_t starts[] = {0, 10, 17, 20};
    uint64_t blocks[] = {0, 3, 5, 6};
    const struct classes classes = {BLOCK, 3, members, starts, blocks};
    struct loader_options opt = options(2 * BLOCK, 0, 1);
    opt.order = LOADER_ORDER_CLASSES;
    opt.block_count = BLOCK;
    struct error err = {0};
    struct sampler s;
    assert_ok(init_one(&s, N, &opt, &err), err);
    assert_ok(sampler_use_classes(&s, &classes, &opt, &err), err);
    assert_int_equal(s.steps_per_epoch, BLOCKS / 2);
    uint64_t order[2][BLOCKS * BLOCK];
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        bool met[N] = {false};
        for (uint64_t k = 0; k < BLOCKS * BLOCK; k++) {
            struct sampler_batch b;
            const uint64_t step = epoch * s.steps_per_epoch + k / (2 * BLOCK);
            assert_int_equal(sampler_batch_at(&s, step, &b), STATUS_OK);
            const uint64_t at = position_at(&s, &b, (uint32_t)(k % (2 * BLOCK)));
            assert_true(at < N && !met[at]);
            met[at] = true;
            order[epoch][k] = at;
            assert_int_equal(label[at], label[order[epoch][k - k % BLOCK]]);
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);

    /* One of the ten of class 0 and one of the seven of class 1 is left over in each epoch. */
    const uint64_t live = N;
    assert_int_equal(check_inverse(&s, &live), (uint64_t)2 * 2);
}

TEST(sample_is_found_in_the_step_that_delivers_it_in_every_order) {
    for (size_t k = 0; k < PLANS; k++) {
        for (uint32_t positives = 1; positives <= 2; positives++) {
            for (int drop = 0; drop < 2; drop++) {
                struct loader_options opt = options(24, 0, 1);
                struct sampler s;
                opt.positives = positives;
                opt.drop_last = drop == 1;
                init_plan(&s, &plans[k], opt);
                const uint64_t absent = check_inverse(&s, plans[k].live);
                assert_true(drop == 1 ? absent > 0 : absent == 0);
            }
        }
    }
}

TEST(rank_of_a_row_is_the_one_whose_slice_holds_it) {
    for (uint32_t world = 1; world <= 9; world++) {
        for (uint32_t count = 1; count <= 48; count += 7) {
            for (uint32_t rank = 0; rank < world; rank++) {
                for (uint32_t row = rank * count / world; row < (rank + 1) * count / world; row++) {
                    assert_int_equal(sampler_rank_of(row, count, world), rank);
                }
            }
        }
    }
}

TEST(order_text_is_parsed) {
    struct loader_options opt = options(10, 0, 1);
    struct error err = {0};
    assert_ok(loader_order_parse(&opt, "block:64", &err), err);
    assert_int_equal(opt.order, LOADER_ORDER_BLOCK);
    assert_int_equal(opt.block_count, 64);
    assert_int_equal(opt.block_window, 16);
    assert_ok(loader_order_parse(&opt, "block:7:3", &err), err);
    assert_int_equal(opt.block_count, 7);
    assert_int_equal(opt.block_window, 3);
    assert_ok(loader_order_parse(&opt, "sequential", &err), err);
    assert_int_equal(opt.order, LOADER_ORDER_SEQUENTIAL);
    assert_ok(loader_order_parse(&opt, "global", &err), err);
    assert_int_equal(opt.order, LOADER_ORDER_GLOBAL);
    const char *const bad[] = {"",
                               "block",
                               "block:",
                               "block:0",
                               "block:-1",
                               "block:1:",
                               "block:1:0",
                               "block:1:2:3",
                               "block:1x",
                               "globally",
                               "block: 1",
                               "block:99999999999999999999",
                               "block:1:70000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_status(loader_order_parse(&opt, bad[i], &err), STATUS_USAGE, err);
        assert_int_equal(opt.order, LOADER_ORDER_GLOBAL);
        assert_int_equal(opt.block_count, 7);
    }
}
