/*
 * A dataset as one list by id: positions, text ids, captions, fingerprint; shards whose ids
 * overlap; growth.
 */
#include "formats/dataset/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

static struct error err;

/* Everything that open promises, against what was packed: ids first + i * step. */
static void check_dataset(const struct dataset *d, uint64_t count, uint64_t first, uint64_t step) {
    struct caption_reader *captions = NULL;
    uint64_t texts = 0;
    assert_int_equal(dataset_sample_count(d), count);
    assert_ok(caption_reader_create(&captions, d, &err), err);
    for (uint64_t i = 0; i < count; i++) {
        struct dataset_sample s;
        struct made_sample made;
        make_sample(&made, first + i * step, 1);
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.sample_id, first + i * step);
        assert_int_equal(s.first_text_id, texts);
        assert_int_equal(s.text_count, made.sample.caption_count);
        assert_int_equal(s.image_bytes, made.sample.image_bytes);
        assert_int_equal(s.image_hash, hash64(made.image, made.sample.image_bytes));
        assert_int_equal(s.label, made.sample.label);
        assert_true(s.image_span_bytes <= dataset_max_image_span_bytes(d));
        for (uint32_t k = 0; k < s.text_count; k++) {
            struct shard_text text;
            assert_ok(caption_reader_get(captions, &s, k, &text, &err), err);
            assert_int_equal(text.size_bytes, made.texts[k].size_bytes);
            assert_memory_equal(text.data, made.texts[k].data, text.size_bytes);
        }
        texts += s.text_count;
        made_sample_fini(&made);
    }
    assert_int_equal(dataset_text_count(d), texts);
    caption_reader_destroy(captions);
}

static void seal_and_write(struct manifest *m, const struct file_system *fs, const char *dir) {
    uint64_t fingerprint = 0;
    assert_ok(dataset_fingerprint_of(&fingerprint, m, dir, fs, &err), err);
    assert_ok(manifest_seal(m, fingerprint, &err), err);
    assert_ok(manifest_write(m, fs, dir, &err), err);
}

TEST(positions_ids_and_texts_agree) {
    struct make_shards how;
    struct dataset *d = NULL;
    make_shards_default(&how);
    how.samples = 500;
    how.samples_per_shard = 130;
    how.first_id = 7;
    how.step = 3;
    assert_ok(make_dataset(file_posix(), test_temp_path("d"), &how, &err), err);
    assert_ok(dataset_open(&d, test_temp_path("d"), NULL, &err), err);
    check_dataset(d, 500, 7, 3);
    assert_int_equal(dataset_id_space(d), 7 + 499 * 3 + 1);
    dataset_close(d);
}

static void open_without_sidecars(enum shard_container container) {
    struct make_shards how;
    struct dataset *d = NULL;
    make_shards_default(&how);
    how.samples = 260;
    how.container = container;
    assert_ok(make_dataset(file_posix(), test_temp_path("d"), &how, &err), err);
    test_remove_tree(test_temp_path("d/made-000000.cci"));
    test_write_file(test_temp_path("d/made-000001.cci"), "CCSINDEX but no index", 21);
    assert_ok(dataset_open(&d, test_temp_path("d"), NULL, &err), err);
    check_dataset(d, 260, 0, 1);
    dataset_close(d);
}

TEST(sidecars_are_not_needed) {
    open_without_sidecars(SHARD_CONTAINER_TAR_ZSTD);
    open_without_sidecars(SHARD_CONTAINER_TAR);
}

TEST(an_empty_dataset_opens) {
    struct file_system *fs = NULL;
    struct manifest m;
    struct dataset *d = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "test", &err), err);
    seal_and_write(&m, fs, ".");
    manifest_fini(&m);
    assert_ok(dataset_open(&d, ".", fs, &err), err);
    assert_int_equal(dataset_sample_count(d), 0);
    dataset_close(d);
    file_memory_destroy(fs);
}

/* Three runs of ids through each other; the fingerprint is that of the same samples in order. */
TEST(overlapping_shards_are_merged) {
    struct make_shards how;
    struct file_system *fs = NULL;
    struct manifest m;
    struct dataset *d = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "test", &err), err);
    make_shards_default(&how);
    how.samples = 70;
    how.samples_per_shard = 40;
    how.step = 3;
    for (uint32_t part = 0; part < 3; part++) {
        how.first_id = 2 - part;
        assert_ok(make_shards_into(&m, fs, ".", part * 2, &how, &err), err);
    }
    seal_and_write(&m, fs, ".");
    assert_ok(dataset_open(&d, ".", fs, &err), err);
    check_dataset(d, 210, 0, 1);
    uint64_t merged = dataset_fingerprint(d);
    dataset_close(d);
    manifest_fini(&m);

    make_shards_default(&how);
    how.samples = 210;
    assert_ok(make_dataset(fs, "plain", &how, &err), err);
    assert_ok(dataset_open(&d, "plain", fs, &err), err);
    assert_int_equal(dataset_fingerprint(d), merged);
    dataset_close(d);
    file_memory_destroy(fs);
}

/* Hashes as ids: every digit of the numbers counts, and some do not differ. */
TEST(ids_far_apart_are_merged) {
    static const uint64_t steps[] = {3, 3 << 10, UINT64_C(3) << 30, UINT64_C(3) << 47};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct make_shards how;
        struct file_system *fs = NULL;
        struct manifest m;
        struct dataset *d = NULL;
        assert_ok(file_memory_create(&fs, &err), err);
        assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "test", &err), err);
        make_shards_default(&how);
        how.samples = 50;
        how.samples_per_shard = 20;
        how.step = steps[i];
        for (uint32_t part = 0; part < 3; part++) {
            how.first_id = 77 + (2 - part) * (steps[i] / 3);
            assert_ok(make_shards_into(&m, fs, ".", part * 3, &how, &err), err);
        }
        seal_and_write(&m, fs, ".");
        assert_ok(dataset_open(&d, ".", fs, &err), err);
        check_dataset(d, 150, 77, steps[i] / 3);
        dataset_close(d);
        manifest_fini(&m);
        file_memory_destroy(fs);
    }
}

TEST(an_id_in_two_shards_is_refused) {
    struct make_shards how;
    struct file_system *fs = NULL;
    struct manifest m;
    uint64_t fingerprint = 0;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "test", &err), err);
    make_shards_default(&how);
    assert_ok(make_shards_into(&m, fs, ".", 0, &how, &err), err);
    how.first_id = 99;
    assert_ok(make_shards_into(&m, fs, ".", 1, &how, &err), err);
    assert_status(dataset_fingerprint_of(&fingerprint, &m, ".", fs, &err), STATUS_EXISTS, err);
    manifest_fini(&m);
    file_memory_destroy(fs);
}

TEST(growth_keeps_the_old_generations) {
    struct make_shards how;
    struct file_system *fs = NULL;
    struct manifest m;
    struct dataset *d = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    make_shards_default(&how);
    how.samples = 150;
    assert_ok(make_dataset(fs, ".", &how, &err), err);
    assert_ok(manifest_read(&m, fs, ".", &err), err);
    uint64_t before = m.fingerprint;
    how.first_id = 150;
    how.samples = 30;
    assert_ok(make_shards_into(&m, fs, ".", 2, &how, &err), err);
    seal_and_write(&m, fs, ".");
    seal_and_write(&m, fs, "."); /* nothing changed: no third generation */
    manifest_fini(&m);
    assert_ok(dataset_open(&d, ".", fs, &err), err);
    check_dataset(d, 180, 0, 1);
    const struct manifest *now = dataset_manifest(d);
    assert_int_equal(now->generation_count, 2);
    assert_int_equal(now->generations[0].fingerprint, before);
    assert_int_equal(now->generations[0].samples, 150);
    assert_int_equal(now->generations[1].fingerprint, dataset_fingerprint(d));
    assert_int_not_equal(before, dataset_fingerprint(d));
    dataset_close(d);
    file_memory_destroy(fs);
}

TEST(shard_boundaries_and_level_do_not_change_the_fingerprint) {
    static const uint32_t per_shard[] = {1, 7, 64, 65, 1000};
    uint64_t first = 0;
    for (size_t i = 0; i < 5; i++) {
        struct make_shards how;
        struct file_system *fs = NULL;
        struct dataset *d = NULL;
        assert_ok(file_memory_create(&fs, &err), err);
        make_shards_default(&how);
        how.samples = 130;
        how.samples_per_shard = per_shard[i];
        how.level = 1 + (int)i * 4;
        assert_ok(make_dataset(fs, ".", &how, &err), err);
        assert_ok(dataset_open(&d, ".", fs, &err), err);
        first = i == 0 ? dataset_fingerprint(d) : first;
        assert_int_equal(dataset_fingerprint(d), first);
        dataset_close(d);
        file_memory_destroy(fs);
    }
}

TEST(one_letter_changes_the_fingerprint) {
    struct shard_text a[2] = {{"ab", 2}, {"c", 1}};
    struct shard_text b[2] = {{"a", 1}, {"bc", 2}};
    uint64_t x = 0;
    uint64_t y = 0;
    assert_ok(shard_caption_hash(&x, a, 2, &err), err);
    assert_ok(shard_caption_hash(&y, b, 2, &err), err);
    assert_int_not_equal(x, y);
    assert_ok(shard_caption_hash(&y, a, 1, &err), err);
    assert_int_not_equal(x, y);
}
