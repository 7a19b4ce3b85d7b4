/* Mixes, orders, filters and views through the whole loader: always the same batches, and a place
 * in a run that holds for any number of threads and ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "tests/support/batches.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { FIRST = 90, SECOND = 40, STEP = 3, FIRST_SPACE = (FIRST - 1) * STEP + 1 };

/* Two datasets that share one tokenizer: that of the first. */
static void make_pair(struct loader_source out[2], double first_weight, double second_weight) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = FIRST;
    const char *first = test_temp_path("first");
    const char *second = test_temp_path("second");
    image_dataset_make(first, &how);
    how.samples = SECOND;
    how.tokenizer = false;
    image_dataset_make(second, &how);
    out[0] = (struct loader_source){first, first_weight};
    out[1] = (struct loader_source){second, second_weight};
}

/* A run: its order, filter, views, and how many of the two datasets. */
struct kind {
    const char *order;
    const char *filter;
    uint32_t sources;
    uint32_t views;
    bool direct;
};

static const struct kind kinds[] = {
    {"global", NULL, 2, 1, false},
    {"block:8:3", NULL, 1, 1, false},
    {"block:16:1", "min-side=40", 2, 1, false},
    {"sequential", NULL, 2, 1, false},
    {"global", "label=0..,captions=1..", 2, 2, false},
    {"global", "caption-bytes=1..60", 1, 1, true},
    {"sequential", NULL, 1, 2, true},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct loader_options options_of(const struct kind *kind, uint32_t batch) {
    struct loader_options opt = batches_options(batch);
    struct error err = {0};
    assert_ok(loader_order_parse(&opt, kind->order, &err), err);
    if (kind->filter != NULL) {
        assert_ok(loader_filter_parse(&opt.filter, kind->filter, &err), err);
    }
    opt.views = kind->views;
    opt.direct = kind->direct;
    return opt;
}

static void check_same(enum loader_engine engine) {
    enum { STEPS = 14 };
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    /* Under sanitizers kinds 1 and 4, with two threads and with eight; 0, 3 and 6 in the test of
     * saved positions. */
    for (size_t k = test_step(2) - 1; k < KINDS; k += test_step(3)) {
        uint64_t expected[STEPS];
        uint64_t got[STEPS];
        struct loader_options opt = options_of(&kinds[k], 12);
        opt.engine = LOADER_ENGINE_PREAD;
        opt.threads = 1;
        opt.direct = false;
        batches_of(expected, STEPS, pair, kinds[k].sources, &opt);
        opt.engine = engine;
        opt.direct = kinds[k].direct;
        for (uint32_t threads = test_step(2); threads <= 8;
             threads = threads == 1 ? 2 : threads * 4) {
            opt.threads = threads;
            opt.read_depth = threads == 2 ? 1 : 40;
            batches_of(got, STEPS, pair, kinds[k].sources, &opt);
            assert_memory_equal(got, expected, sizeof(got));
        }
    }
}

TEST(every_order_and_mix_gives_the_same_batches_with_pread) {
    check_same(LOADER_ENGINE_PREAD);
}

TEST(every_order_and_mix_gives_the_same_batches_with_uring) {
    check_same(LOADER_ENGINE_URING);
}

/* One hash of a global batch, made by `world` ranks that each start at `from`. */
static void hash_ranks(uint64_t *out,
                       uint32_t steps,
                       const struct loader_source *pair,
                       uint32_t source_count,
                       struct loader_options opt,
                       const struct loader_state *from,
                       uint32_t world) {
    memset(out, 0, steps * sizeof(*out));
    for (uint32_t rank = 0; rank < world; rank++) {
        opt.rank = rank;
        opt.world = world;
        opt.start = from;
        struct loader *l = batches_open_mix(pair, source_count, &opt);
        for (uint32_t t = 0; t < steps; t++) {
            struct loader_batch b;
            struct error err = {0};
            assert_ok(loader_acquire(l, &b, &err), err);
            for (uint32_t i = 0; i < b.count; i++) {
                out[t] += batches_hash_sample(&b, &opt, i) * (b.global_step + 1);
            }
            loader_release(l, &b);
        }
        loader_close(l); /* an early break: batches made ahead are lost */
    }
}

TEST(saved_position_holds_on_any_world_size_and_repeatedly) {
    enum { STEPS = 16, TAIL = 3 };
    struct loader_source pair[2];
    make_pair(pair, 0.6, 0.4);
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 0, 0);
    /* Positions are arithmetic: under sanitizers a third of the kinds. */
    for (size_t k = 0; k < KINDS; k += test_step(3)) {
        struct loader_source solo = {pair[0].directory, 0};
        const struct loader_source *sources = kinds[k].sources == 2 ? pair : &solo;
        struct loader_options opt = options_of(&kinds[k], 12);
        struct loader_state states[STEPS + 1];
        uint64_t expected[STEPS + TAIL];
        hash_ranks(expected, STEPS + TAIL, sources, kinds[k].sources, opt, NULL, 1);
        struct loader *l = batches_open_mix(sources, kinds[k].sources, &opt);
        for (uint32_t i = 0; i <= STEPS; i++) {
            states[i] = loader_state(l);
            (void)batches_next(l, &opt);
        }
        loader_close(l);
        for (uint32_t world = 1; world <= 5; world += 2 * test_step(2)) {
            uint64_t got[TAIL];
            uint32_t at = rng_below(&r, STEPS + 1);
            hash_ranks(got, TAIL, sources, kinds[k].sources, opt, &states[at], world);
            assert_memory_equal(got, expected + at, sizeof(got));
            /* Once more from where that one stopped, or would have. */
            at = (at + 1) % (STEPS + 1);
            hash_ranks(got, TAIL, sources, kinds[k].sources, opt, &states[at], world + 1);
            assert_memory_equal(got, expected + at, sizeof(got));
        }
    }
}

TEST(end_of_an_epoch_equals_start_of_the_next) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(20);
    struct loader *l = batches_open_mix(pair, 2, &opt);
    struct loader_info info;
    struct error err = {0};
    loader_info(l, &info);
    assert_int_equal(info.steps_per_epoch, (FIRST + SECOND) / 20);
    struct loader_state end = loader_state(l);
    end.step = info.steps_per_epoch;
    struct loader_state begin = loader_state(l);
    begin.epoch = 1;
    assert_ok(loader_seek(l, &end, &err), err);
    assert_int_equal(loader_state(l).epoch, 1);
    assert_int_equal(loader_state(l).step, 0);
    uint64_t first = batches_next(l, &opt);
    assert_ok(loader_seek(l, &begin, &err), err);
    assert_int_equal(batches_next(l, &opt), first);
    loader_close(l);
}

TEST(ids_of_a_mix_follow_each_other) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(13);
    opt.epochs = 1;
    struct loader *l = batches_open_mix(pair, 2, &opt);
    struct loader_info info;
    loader_info(l, &info);
    uint64_t texts = dataset_text_count(loader_dataset(l, 0));
    assert_int_equal(info.source_count, 2);
    assert_int_equal(info.sample_count, FIRST + SECOND);
    assert_int_equal(info.id_space, FIRST_SPACE + (SECOND - 1) * STEP + 1);
    assert_int_equal(info.text_count, texts + dataset_text_count(loader_dataset(l, 1)));
    assert_null(loader_dataset(l, 2));
    uint32_t seen[FIRST + SECOND] = {0};
    struct loader_batch b;
    struct error err = {0};
    while (loader_acquire(l, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count; i++) {
            bool is_second = b.sample_ids[i] >= FIRST_SPACE;
            uint64_t number = (b.sample_ids[i] - (is_second ? FIRST_SPACE : 0)) / STEP;
            seen[number + (is_second ? FIRST : 0)]++;
            assert_int_equal(b.labels[i], number % 7 == 3 ? -1 : (int)(number % 10));
            if (b.text_ids[i] != LOADER_NO_TEXT) {
                assert_true((b.text_ids[i] >= texts) == is_second);
            }
        }
        loader_release(l, &b);
    }
    for (uint32_t i = 0; i < FIRST + SECOND; i++) {
        assert_int_equal(seen[i], 1);
    }
    loader_close(l);
}

/* by_number[n] gets the hash of sample n of epoch 1, of the first dataset. */
static uint32_t collect(uint64_t *by_number, const char *dir, struct loader_options opt) {
    uint32_t met = 0;
    struct loader_batch b;
    struct error err = {0};
    opt.epochs = 2;
    opt.drop_last = false;
    struct loader *l = batches_open(dir, &opt);
    while (loader_acquire(l, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count && b.epoch == 1; i++) {
            assert_int_equal(by_number[b.sample_ids[i] / STEP], 0);
            by_number[b.sample_ids[i] / STEP] = batches_hash_sample(&b, &opt, i);
            met++;
        }
        loader_release(l, &b);
    }
    loader_close(l);
    return met;
}

TEST(filter_keeps_ids_and_draws) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    uint64_t all[FIRST] = {0};
    uint64_t some[FIRST] = {0};
    struct loader_options opt = batches_options(16);
    struct error err = {0};
    assert_int_equal(collect(all, pair[0].directory, opt), FIRST);
    assert_ok(loader_filter_parse(&opt.filter, "label=2..5", &err), err);
    uint32_t met = collect(some, pair[0].directory, opt);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < FIRST; i++) {
        bool passes = i % 7 != 3 && i % 10 >= 2 && i % 10 <= 5;
        expected += passes;
        assert_true(some[i] == (passes ? all[i] : 0));
    }
    assert_int_equal(met, expected);
}

TEST(filter_by_caption_size_checks_every_caption) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(16);
    struct error err = {0};
    uint64_t none[FIRST] = {0};
    uint64_t some[FIRST] = {0};
    assert_ok(loader_filter_parse(&opt.filter, "caption-bytes=0", &err), err);
    /* Samples without captions: every fourth. */
    assert_int_equal(collect(none, pair[0].directory, opt), (FIRST + 3) / 4);
    assert_ok(loader_filter_parse(&opt.filter, "caption-bytes=1..,captions=2", &err), err);
    assert_int_equal(collect(some, pair[0].directory, opt), FIRST / 4);
    for (uint32_t i = 0; i < FIRST; i++) {
        assert_true((none[i] != 0) == (i % 4 == 0) && (some[i] != 0) == (i % 4 == 2));
    }
    assert_ok(loader_filter_parse(&opt.filter, "caption-bytes=5000..", &err), err);
    struct loader *l = NULL;
    assert_status(loader_open(&l, pair[0].directory, &opt, &err), STATUS_USAGE, err);
}

TEST(filter_over_a_damaged_index_is_refused) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(16);
    struct loader *l = NULL;
    struct error err = {0};
    image_dataset_damage_record(pair[1].directory, 7);
    opt.filter.min_side_px = 1;
    assert_status(loader_open_mix(&l, pair, 2, &opt, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "a filter requires an intact index"));
    assert_null(l);
}

TEST(two_views_are_drawn_independently) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(FIRST);
    opt.views = 2;
    opt.drop_last = false;
    opt.filter.max_aspect = 1.3; /* of long images every view is the centre */
    struct loader *l = batches_open(pair[0].directory, &opt);
    struct loader_batch b;
    struct error err = {0};
    size_t pixels = (size_t)BATCHES_SIDE * BATCHES_SIDE * 3;
    uint32_t same = 0;
    assert_ok(loader_acquire(l, &b, &err), err);
    assert_non_null(b.images2);
    for (size_t i = 0; i < b.count; i++) {
        same += memcmp(b.images + i * pixels, b.images2 + i * pixels, pixels) == 0;
    }
    assert_true(b.count > 15 && same < 2);
    loader_release(l, &b);
    loader_close(l);
    opt.views = 1;
    l = batches_open(pair[0].directory, &opt);
    assert_ok(loader_acquire(l, &b, &err), err);
    assert_null(b.images2);
    loader_close(l);
}

TEST(without_views_batches_have_ids_and_captions_alone) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(FIRST);
    struct loader_batch b[2];
    struct error err = {0};
    struct loader *l[2];
    for (uint32_t views = 0; views < 2; views++) {
        opt.views = views;
        l[views] = batches_open(pair[0].directory, &opt);
    }
    for (int i = 0; i < 8; i++) { /* more than there is room for: each is released */
        for (int views = 0; views < 2; views++) {
            assert_ok(loader_acquire(l[views], &b[views], &err), err);
        }
        assert_null(b[0].images);
        assert_non_null(b[1].images);
        assert_int_equal(b[0].count, b[1].count);
        assert_memory_equal(b[0].sample_ids, b[1].sample_ids, b[0].count * sizeof(uint64_t));
        assert_memory_equal(b[0].text_ids, b[1].text_ids, b[0].count * sizeof(uint64_t));
        assert_memory_equal(b[0].tokens, b[1].tokens,
                            b[0].count * opt.max_tokens * sizeof(int32_t));
        for (int views = 0; views < 2; views++) {
            loader_release(l[views], &b[views]);
        }
    }
    loader_close(l[0]);
    loader_close(l[1]);
}

/* --- places of other runs --- */

static void refuse(const struct loader_source *pair,
                   uint32_t source_count,
                   struct loader_options opt,
                   const struct loader_state *state,
                   const char *why) {
    struct loader *l = NULL;
    struct error err = {0};
    opt.start = state;
    assert_status(loader_open_mix(&l, pair, source_count, &opt, &err), STATUS_MISMATCH, err);
    if (strstr(err.text, why) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, why);
    }
    assert_null(l);
}

TEST(saved_position_of_another_run_is_refused_with_the_difference) {
    struct loader_source pair[2];
    struct error err = {0};
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(16);
    struct loader *l = batches_open_mix(pair, 2, &opt);
    struct loader_state good = loader_state(l);
    loader_close(l);
    struct loader_state bad = good;

    struct loader_options other = opt;
    other.filter.min_captions = 1;
    refuse(pair, 2, other, &good, "another filter");
    other = opt;
    assert_ok(loader_order_parse(&other, "block:64:2", &err), err);
    refuse(pair, 2, other, &good, "the global order, the loader has blocks of 64 in windows of 2");
    other = opt;
    other.batch_count = 8;
    refuse(pair, 2, other, &good, "counts batches of 16, the loader has 8");
    other = opt;
    other.seed++;
    refuse(pair, 2, other, &good, "belongs to seed");
    refuse(pair, 1, opt, &good, "belongs to 2 datasets, the loader has 1");
    struct loader_source turned[2] = {pair[1], pair[0]};
    refuse(turned, 2, opt, &good, "second: the saved position belongs to a dataset with");
    struct loader_source weighted[2] = {{pair[0].directory, 2}, {pair[1].directory, 1}};
    refuse(weighted, 2, opt, &good, "other weights");
    bad.sources[1].id_offset -= 5; /* as if the first had had fewer ids then */
    bad.fingerprint ^= 1;
    refuse(pair, 2, opt, &bad, "a dataset before it has grown");
    bad = good;
    bad.epoch = UINT64_MAX / 100;
    refuse(pair, 2, opt, &bad, "exceeds the limit");

    /* A caller that stored the four numbers only. */
    struct loader_state bare = {
        .fingerprint = good.fingerprint, .seed = good.seed, .epoch = 1, .step = 2};
    opt.start = &bare;
    l = batches_open_mix(pair, 2, &opt);
    assert_int_equal(loader_state(l).epoch, 1);
    assert_int_equal(loader_state(l).step, 2);
    loader_close(l);
    bare.fingerprint ^= 1;
    refuse(pair, 2, opt, &bare, "belongs to data with fingerprint");
}

TEST(invalid_mixes_are_refused) {
    struct loader_source pair[2];
    struct loader *l = NULL;
    struct error err = {0};
    make_pair(pair, 1, 0);
    struct loader_options opt = batches_options(16);
    assert_status(loader_open_mix(&l, pair, 2, &opt, &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "give weights to all datasets"));
    pair[0].weight = 0;
    pair[1].directory = pair[0].directory;
    assert_status(loader_open_mix(&l, pair, 2, &opt, &err), STATUS_USAGE, err);
    assert_non_null(strstr(err.text, "given twice"));
    pair[1].directory = "nowhere";
    assert_status(loader_open_mix(&l, pair, 2, &opt, &err), STATUS_NOTFOUND, err);
}

TEST(neighbouring_images_are_one_read) {
    struct loader_source pair[2];
    make_pair(pair, 0, 0);
    struct loader_options opt = batches_options(FIRST);
    struct loader_stats stats;
    struct error err = {0};
    opt.epochs = 1;
    opt.read_depth = 64;
    assert_ok(loader_order_parse(&opt, "sequential", &err), err);
    struct loader *l = batches_open(pair[0].directory, &opt);
    (void)batches_next(l, &opt);
    loader_stats(l, &stats);
    assert_int_equal(stats.read.items_count, FIRST);
    assert_true(stats.requests_count < FIRST / 3);
    loader_close(l);
    opt.order = LOADER_ORDER_GLOBAL;
    l = batches_open(pair[0].directory, &opt);
    (void)batches_next(l, &opt);
    loader_stats(l, &stats);
    assert_true(stats.requests_count > FIRST * 8 / 10);
    loader_close(l);
}
