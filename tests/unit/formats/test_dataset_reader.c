/* Samples of a dataset, whole, in any order of shards. */
#include "formats/dataset/dataset_reader.h"

#include <string.h>

#include "tests/support/make_shards.h"
#include "tests/support/test.h"

enum { SAMPLES = 120, PER_SHARD = 3, SHARDS = SAMPLES / PER_SHARD, IMAGE_BYTES = 100, SEED = 1 };

static struct dataset *make_and_open(void) {
    struct make_shards how;
    struct dataset *d = NULL;
    struct error err = {0};
    make_shards_default(&how);
    how.samples = SAMPLES;
    how.samples_per_shard = PER_SHARD;
    how.image_bytes = IMAGE_BYTES;
    how.seed = SEED;
    assert_ok(make_dataset(file_posix(), test_temp_path("d"), &how, &err), err);
    assert_ok(dataset_open(&d, test_temp_path("d"), NULL, &err), err);
    assert_int_equal(dataset_shard_count(d), SHARDS);
    return d;
}

static void check_sample(struct dataset_reader *r, struct dataset *d, uint64_t position) {
    struct made_sample expected;
    struct dataset_sample sample;
    struct sample_view view;
    struct error err = {0};
    assert_ok(dataset_sample_at(d, position, &sample, &err), err);
    assert_int_equal(sample.position, position);
    assert_ok(dataset_reader_get(r, &sample, &view, &err), err);
    make_sample_sized(&expected, position, SEED, IMAGE_BYTES);
    assert_string_equal(view.key, expected.key);
    assert_int_equal(view.image_bytes, IMAGE_BYTES);
    assert_memory_equal(view.image, expected.image, IMAGE_BYTES);
    assert_int_equal(view.caption_count, expected.sample.caption_count);
    made_sample_fini(&expected);
    assert_int_equal(view.record.sample_id, position);
}

/* More shards than a reader keeps open, forwards and across. */
TEST(samples_of_many_shards_are_read_in_any_order) {
    struct dataset *d = make_and_open();
    struct dataset_reader *r = NULL;
    struct error err = {0};
    assert_ok(dataset_reader_create(&r, d, &err), err);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        check_sample(r, d, i);
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        check_sample(r, d, i * 77 % SAMPLES);
    }
    dataset_reader_destroy(r);
    dataset_close(d);
}

TEST(a_missing_shard_does_not_spoil_the_others) {
    struct dataset *d = make_and_open();
    struct dataset_reader *r = NULL;
    struct dataset_sample sample;
    struct sample_view view;
    struct error err = {0};
    assert_ok(dataset_reader_create(&r, d, &err), err);
    assert_ok(dataset_sample_at(d, 0, &sample, &err), err);
    test_remove_tree(dataset_shard_path(d, 0));
    assert_status(dataset_reader_get(r, &sample, &view, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, dataset_shard_path(d, 0)));
    for (uint64_t i = PER_SHARD; i < SAMPLES; i++) {
        check_sample(r, d, i);
    }
    dataset_reader_destroy(r);
    dataset_close(d);
}

/* The index that the dataset mapped is that of another shard. */
TEST(a_foreign_record_is_corrupt) {
    struct dataset *d = make_and_open();
    struct dataset_reader *r = NULL;
    struct dataset_sample sample;
    struct sample_view view;
    struct error err = {0};
    assert_ok(dataset_reader_create(&r, d, &err), err);
    assert_ok(dataset_sample_at(d, 0, &sample, &err), err);
    sample.image_hash++;
    assert_status(dataset_reader_get(r, &sample, &view, &err), STATUS_CORRUPT, err);
    sample.image_hash--;
    sample.index_in_shard = PER_SHARD;
    assert_status(dataset_reader_get(r, &sample, &view, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "sidecar"));
    dataset_reader_destroy(r);
    dataset_close(d);
}
