/*
 * pack_remove_samples and pack_compact with disks that fail and processes that are killed at every
 * single write: the dataset is the one before or the one after, and the next run completes the
 * work.
 */
#include <stdio.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "pack/remove/remove.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

enum { SAMPLES = 30, PER_SHARD = 10, REMOVED = 12 };

/* One of the first shard, all of the second, the largest id of all. */
static const uint64_t ids[REMOVED] = {29, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

static struct error err;

static struct file_system *make(enum shard_container container) {
    struct file_system *fs = NULL;
    struct make_shards how;
    make_shards_default(&how);
    how.samples = SAMPLES;
    how.samples_per_shard = PER_SHARD;
    how.image_bytes = 300;
    how.container = container;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(make_dataset(fs, "d", &how, &err), err);
    assert_ok(fs->sync_directory(fs->context, ".", &err), err);
    return fs;
}

static enum status
step(const struct file_system *fs, bool compact, struct pack_remove_summary *out) {
    struct error why = {0};
    const struct pack_remove_options o = {
        .fs = fs, .directory = "d", .ids = ids, .id_count = REMOVED, .created_by = "test"};
    return (compact ? pack_compact : pack_remove_samples)(&o, out, &why);
}

/* The number of samples of a dataset that is whole, after a check of everything that readers use.
 */
static uint64_t check(const struct file_system *fs) {
    struct dataset *d = NULL;
    struct dataset_sample s;
    uint64_t fingerprint = 0;
    assert_ok(dataset_open(&d, "d", fs, &err), err);
    const uint64_t count = dataset_sample_count(d);
    assert_true(count == SAMPLES || count == SAMPLES - REMOVED);
    assert_ok(dataset_compute_fingerprint(d, &fingerprint, &err), err);
    assert_true(fingerprint == dataset_fingerprint(d));
    assert_int_equal(dataset_id_space(d), SAMPLES);
    for (uint64_t id = 0; id < SAMPLES; id++) {
        bool gone = false;
        for (size_t i = 0; i < REMOVED; i++) {
            gone = gone || ids[i] == id;
        }
        const enum status wanted = gone && count != SAMPLES ? STATUS_NOTFOUND : STATUS_OK;
        assert_status(dataset_find(d, id, &s, &err), wanted, err);
    }
    uint64_t texts = 0;
    for (uint64_t i = 0; i < count; i++) {
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.first_text_id, texts);
        texts += s.text_count;
    }
    assert_int_equal(texts, dataset_text_count(d));
    for (uint32_t i = 0; i < dataset_shard_count(d); i++) {
        struct shard_verify how = {.expected = &dataset_manifest(d)->shards[i]};
        assert_ok(shard_verify(fs, dataset_shard_path(d, i), &how, &err), err);
    }
    dataset_close(d);
    return count;
}

static bool is_there(const struct file_system *fs, const char *path) {
    bool exists = false;
    assert_ok(fs->exists(fs->context, path, &exists, &err), err);
    return exists;
}

/* Only the shards of the compacted dataset. */
static void check_files(const struct file_system *fs, const char *ending) {
    char path[64];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "d/made-%06d%s", i, ending);
        assert_int_equal(is_there(fs, path), i == 3 || i == 4);
        snprintf(path, sizeof(path), "d/made-%06d.cci", i);
        assert_int_equal(is_there(fs, path), i == 3 || i == 4);
        snprintf(path, sizeof(path), "d/made-%06d%s.tmp", i, ending);
        assert_false(is_there(fs, path));
    }
}

static uint64_t
run_with_fault(enum shard_container container, bool compact, uint64_t nth, enum file_fault fault) {
    struct file_system *memory = make(container);
    struct file_system *faulty = NULL;
    struct pack_remove_summary sum;
    if (compact) {
        assert_int_equal(step(memory, false, &sum), STATUS_OK);
    }
    assert_ok(file_fault_create(&faulty, memory, nth, fault, &err), err);
    const enum status s = step(faulty, compact, &sum);
    const uint64_t calls = file_fault_count(faulty);
    assert_true(s == STATUS_OK || nth < calls);
    uint64_t count = check(memory);
    assert_true(s != STATUS_OK || count == SAMPLES - REMOVED);
    file_memory_crash(memory);
    count = check(memory);
    assert_true(s != STATUS_OK || count == SAMPLES - REMOVED);
    assert_true(!compact || count == SAMPLES - REMOVED);
    assert_int_equal(step(memory, false, &sum), STATUS_OK);
    assert_int_equal(step(memory, true, &sum), STATUS_OK);
    assert_int_equal(check(memory), SAMPLES - REMOVED);
    check_files(memory, container == SHARD_CONTAINER_TAR ? ".tar" : ".tar.zst");
    file_fault_destroy(faulty);
    file_memory_destroy(memory);
    return calls;
}

static void run_all_faults(bool compact) {
    static const enum file_fault faults[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                             FILE_FAULT_DEAD};
    const uint64_t calls =
        run_with_fault(SHARD_CONTAINER_TAR_ZSTD, compact, UINT64_MAX, FILE_FAULT_ERROR);
    assert_true(calls > 3);
    for (uint64_t nth = 0; nth < calls; nth++) {
        for (size_t f = 0; f < 3; f++) {
            run_with_fault(SHARD_CONTAINER_TAR_ZSTD, compact, nth, faults[f]);
        }
    }
}

TEST(a_fault_at_any_write_leaves_a_dataset_with_or_without_the_samples) {
    run_all_faults(false);
}

TEST(a_fault_at_any_write_of_compact_leaves_the_same_samples) {
    run_all_faults(true);
}

TEST(both_containers_are_compacted) {
    run_with_fault(SHARD_CONTAINER_TAR, true, UINT64_MAX, FILE_FAULT_ERROR);
    run_with_fault(SHARD_CONTAINER_TAR_ZSTD, true, UINT64_MAX, FILE_FAULT_ERROR);
}

TEST(all_samples_can_be_removed) {
    struct file_system *fs = make(SHARD_CONTAINER_TAR_ZSTD);
    uint64_t all[SAMPLES];
    struct pack_remove_summary sum;
    struct dataset *d = NULL;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        all[i] = i;
    }
    const struct pack_remove_options o = {
        .fs = fs, .directory = "d", .ids = all, .id_count = SAMPLES, .created_by = "test"};
    assert_ok(pack_remove_samples(&o, &sum, &err), err);
    assert_int_equal(sum.removed, SAMPLES);
    assert_ok(dataset_open(&d, "d", fs, &err), err);
    assert_int_equal(dataset_sample_count(d), 0);
    dataset_close(d);
    assert_ok(pack_compact(&o, &sum, &err), err);
    assert_ok(dataset_open(&d, "d", fs, &err), err);
    assert_int_equal(dataset_shard_count(d), 0);
    assert_int_equal(dataset_id_space(d), SAMPLES);
    assert_true(dataset_fingerprint(d) == 0xef46db3751d8e999u);
    dataset_close(d);
    file_memory_destroy(fs);
}
