/* Samples by id: the rows that the loader delivers, whoever else reads at the time. */
#include "loader/fetch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "pack/remove/remove.h"
#include "tests/support/batches.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { SAMPLES = 60, STEP = 3, BATCH = 12 };

static const char *make_dataset(const char *name, uint64_t samples, bool tokenizer) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = samples;
    how.tokenizer = tokenizer;
    const char *dir = test_temp_path("%s", name);
    image_dataset_make(dir, &how);
    return dir;
}

static struct fetcher *
open_fetcher(struct loader *l, enum augment_kind augment, uint32_t views, uint32_t max_count) {
    struct fetcher *f = NULL;
    struct error err = {0};
    const struct fetch_options opt = {.max_count = max_count,
                                      .augment = augment,
                                      .views = views,
                                      .captions = LOADER_CAPTIONS_DRAWN};
    assert_ok(fetcher_open(&f, l, &opt, &err), err);
    return f;
}

/* Every row of two epochs and a bit. */
static void check_rows(const struct loader_source *sources, uint32_t source_count, uint32_t views) {
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    opt.views = views;
    struct loader *l = batches_open_mix(sources, source_count, &opt);
    struct fetcher *f = open_fetcher(l, opt.augment, views, BATCH);
    for (int step = 0; step < 20; step++) {
        struct loader_batch b;
        struct loader_batch got;
        assert_ok(loader_acquire(l, &b, &err), err);
        assert_ok(loader_fetch(f, &got, NULL, b.sample_ids, NULL, b.count, b.epoch, &err), err);
        assert_int_equal(got.count, b.count);
        assert_int_equal(got.epoch, b.epoch);
        for (uint32_t i = 0; i < b.count; i++) {
            assert_int_equal(batches_hash_sample(&got, &opt, i), batches_hash_sample(&b, &opt, i));
        }
        if (views == 2) { /* each row in one of its views; the epoch of the call does not count */
            uint64_t wanted[BATCH];
            const size_t size = (size_t)opt.image_size_px * opt.image_size_px * 3;
            for (uint32_t i = 0; i < b.count; i++) {
                wanted[i] = 2 * b.epoch + i % 2;
            }
            assert_ok(loader_fetch(f, &got, NULL, b.sample_ids, wanted, b.count, 77, &err), err);
            for (uint32_t i = 0; i < b.count; i++) {
                const uint8_t *seen = i % 2 == 0 ? b.images : b.images2;
                assert_memory_equal(got.images + i * size, seen + i * size, size);
            }
        }
        loader_release(l, &b);
    }
    fetcher_close(f);
    loader_close(l);
}

TEST(fetched_rows_are_those_of_the_loader) {
    const struct loader_source pair[2] = {{make_dataset("first", SAMPLES, true), 0},
                                          {make_dataset("second", 20, false), 0}};
    check_rows(pair, 1, 1);
    check_rows(pair, 2, 1);
    check_rows(pair, 2, 2);
}

TEST(pixels_of_another_epoch_differ) {
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    struct loader *l = batches_open(make_dataset("d", SAMPLES, true), &opt);
    struct fetcher *f = open_fetcher(l, opt.augment, 1, 2);
    const uint64_t id = 7 * STEP;
    uint64_t hashes[2];
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        struct loader_batch b;
        assert_ok(loader_fetch(f, &b, NULL, &id, NULL, 1, epoch, &err), err);
        hashes[epoch] = batches_hash_sample(&b, &opt, 0);
    }
    assert_true(hashes[0] != hashes[1]);
    fetcher_close(f);
    loader_close(l);
}

TEST(captions_or_pixels_alone_are_those_of_the_loader) {
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    struct loader *l = batches_open(make_dataset("d", SAMPLES, true), &opt);
    struct fetcher *captions = open_fetcher(l, opt.augment, 0, BATCH);
    struct fetcher *pixels = NULL;
    const struct fetch_options only = {
        .max_count = BATCH, .augment = opt.augment, .views = 1, .captions = LOADER_CAPTIONS_NONE};
    struct loader_batch b;
    struct loader_batch got;
    assert_ok(fetcher_open(&pixels, l, &only, &err), err);
    assert_ok(loader_acquire(l, &b, &err), err);
    assert_ok(loader_fetch(captions, &got, NULL, b.sample_ids, NULL, BATCH, 0, &err), err);
    assert_null(got.images);
    assert_memory_equal(got.tokens, b.tokens, BATCH * opt.max_tokens * sizeof *b.tokens);
    assert_memory_equal(got.lengths, b.lengths, BATCH * sizeof *b.lengths);
    assert_memory_equal(got.text_ids, b.text_ids, BATCH * sizeof *b.text_ids);
    assert_ok(loader_fetch(pixels, &got, NULL, b.sample_ids, NULL, BATCH, 0, &err), err);
    assert_memory_equal(got.images, b.images, BATCH * BATCHES_SIDE * BATCHES_SIDE * 3);
    assert_int_equal(got.text_ids[0], LOADER_NO_TEXT);
    loader_release(l, &b);
    fetcher_close(captions);
    fetcher_close(pixels);
    loader_close(l);
}

TEST(evaluation_rows_are_those_of_an_evaluation_loader) {
    const char *dir = make_dataset("d", SAMPLES, true);
    struct error err = {0};
    struct loader_options train = batches_options(BATCH);
    struct loader_options eval = train;
    eval.augment = AUGMENT_EVAL_CROP;
    eval.order = LOADER_ORDER_SEQUENTIAL;
    eval.epochs = 1;
    struct loader *l = batches_open(dir, &train);
    struct loader *expected = batches_open(dir, &eval);
    struct fetcher *f = open_fetcher(l, eval.augment, 1, BATCH);
    struct loader_batch b;
    while (loader_acquire(expected, &b, &err) == STATUS_OK) {
        uint64_t backwards[BATCH];
        struct loader_batch got;
        for (uint32_t i = 0; i < BATCH; i++) {
            backwards[i] = b.sample_ids[BATCH - 1 - i];
        }
        assert_ok(loader_fetch(f, &got, NULL, backwards, NULL, BATCH, 0, &err), err);
        for (uint32_t i = 0; i < BATCH; i++) {
            assert_int_equal(batches_hash_sample(&got, &eval, i),
                             batches_hash_sample(&b, &eval, BATCH - 1 - i));
        }
        loader_release(expected, &b);
    }
    fetcher_close(f);
    loader_close(expected);
    loader_close(l);
}

TEST(rows_that_cannot_be_used_have_a_status) {
    enum { DAMAGED = 5 * STEP, BAD_RECORD = 8, INTACT = 9 * STEP, ROWS = 5 };
    const char *dir = make_dataset("d", SAMPLES, true);
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    image_dataset_damage(dir, DAMAGED);
    image_dataset_damage_record(dir, BAD_RECORD);
    struct loader *l = batches_open(dir, &opt);
    struct fetcher *f = open_fetcher(l, opt.augment, 1, ROWS);
    const uint64_t ids[ROWS] = {DAMAGED, INTACT, STEP + 1, 1 << 20, BAD_RECORD * STEP};
    const enum status expected[ROWS] = {STATUS_CORRUPT, STATUS_OK, STATUS_NOTFOUND, STATUS_NOTFOUND,
                                        STATUS_CORRUPT};
    enum status got[ROWS];
    struct loader_batch b;
    assert_ok(loader_fetch(f, &b, NULL, &ids[1], NULL, 1, 3, &err), err);
    const uint64_t hash = batches_hash_sample(&b, &opt, 0);
    assert_ok(loader_fetch(f, &b, got, ids, NULL, ROWS, 3, &err), err);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(got[i], expected[i]);
    }
    assert_int_equal(batches_hash_sample(&b, &opt, 1), hash);
    assert_int_equal(loader_fetch(f, &b, NULL, &ids[1], NULL, 2, 3, &err), STATUS_NOTFOUND);
    assert_non_null(strstr(err.text, "sample 4"));
    assert_int_equal(loader_fetch(f, &b, NULL, ids, NULL, 1, 3, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "sample 15"));
    assert_ok(loader_fetch(f, &b, NULL, NULL, NULL, 0, 3, &err), err);
    assert_int_equal(b.count, 0);
    fetcher_close(f);
    loader_close(l);
}

TEST(removed_samples_are_not_found) {
    enum { REMOVED = 6 * STEP };
    const char *dir = make_dataset("d", SAMPLES, true);
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    const uint64_t ids[2] = {REMOVED, REMOVED + STEP};
    const struct pack_remove_options remove = {
        .fs = file_posix(), .directory = dir, .ids = ids, .id_count = 1, .created_by = "test"};
    struct pack_remove_summary summary;
    assert_ok(pack_remove_samples(&remove, &summary, &err), err);
    struct loader *l = batches_open(dir, &opt);
    struct fetcher *f = open_fetcher(l, opt.augment, 1, 2);
    enum status got[2];
    struct loader_batch b;
    assert_ok(loader_fetch(f, &b, got, ids, NULL, 2, 0, &err), err);
    assert_int_equal(got[0], STATUS_NOTFOUND);
    assert_int_equal(got[1], STATUS_OK);
    assert_int_equal(b.sample_ids[1], ids[1]);
    fetcher_close(f);
    loader_close(l);
}

static void *acquire_batches(void *cookie) {
    struct loader *l = cookie;
    for (int i = 0; i < 60; i++) {
        struct loader_batch b;
        struct error err = {0};
        if (loader_acquire(l, &b, &err) != STATUS_OK) {
            return l;
        }
        loader_release(l, &b);
    }
    return NULL;
}

/* Also for the thread sanitizer. */
TEST(fetch_works_while_another_thread_acquires) {
    const char *dir = make_dataset("d", SAMPLES, true);
    struct error err = {0};
    struct loader_options opt = batches_options(BATCH);
    uint64_t ids[BATCH];
    uint64_t expected[BATCH];
    struct loader_batch b;
    struct loader *l = batches_open(dir, &opt);
    assert_ok(loader_acquire(l, &b, &err), err);
    for (uint32_t i = 0; i < BATCH; i++) {
        ids[i] = b.sample_ids[i];
        expected[i] = batches_hash_sample(&b, &opt, i);
    }
    loader_release(l, &b);
    struct fetcher *f = open_fetcher(l, opt.augment, 1, BATCH);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, acquire_batches, l), 0);
    for (int again = 0; again < 10; again++) {
        assert_ok(loader_fetch(f, &b, NULL, ids, NULL, BATCH, 0, &err), err);
        for (uint32_t i = 0; i < BATCH; i++) {
            assert_int_equal(batches_hash_sample(&b, &opt, i), expected[i]);
        }
    }
    void *failed = NULL;
    pthread_join(thread, &failed);
    assert_null(failed);
    fetcher_close(f);
    loader_close(l);
}
