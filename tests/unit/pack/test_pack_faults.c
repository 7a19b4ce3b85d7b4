/*
 * Disks that fail and processes that die at every single write: whatever has its final name
 * afterwards is true.
 */
#include <stdio.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "pack/pack.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { IMAGES = 9, BAD = 2 };

static char tar_path[256];

/* IMAGES rows and BAD ones. */
static void make_tar(void) {
    snprintf(tar_path, sizeof(tar_path), "%s", test_temp_path("a.tar"));
    FILE *f = fopen(tar_path, "wb");
    assert_non_null(f);
    struct byte_buffer jpeg = {0};
    struct error err = {0};
    uint8_t pixels[16 * 16 * 3];
    struct image_view view = {pixels, 16, 16, 48};
    for (int i = 0; i < IMAGES + BAD; i++) {
        char name[32];
        memset(pixels, 16 * i, sizeof(pixels));
        jpeg.size_bytes = 0;
        assert_ok(image_encode_jpeg(&jpeg, &view, 90, &err), err);
        snprintf(name, sizeof(name), "%03d.jpg", i);
        assert_true(tar_write_file(f, name, jpeg.data, jpeg.size_bytes));
        snprintf(name, sizeof(name), "%03d.txt", i);
        assert_true(tar_write_file(f, name, i % 5 == 4 ? " " : "words", i % 5 == 4 ? 1 : 5));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    byte_buffer_fini(&jpeg);
}

static enum status
pack_into(const struct file_system *fs, bool overwrite, struct pack_summary *sum) {
    const char *sources[] = {tar_path};
    struct error err = {0};
    struct pack_options o;
    pack_options_default(&o);
    o.fs = fs;
    o.directory = "out";
    o.sources = sources;
    o.source_count = 1;
    o.shard_samples = 4;
    o.overwrite = overwrite;
    o.max_bad = (struct pack_max_bad){.percent = 100};
    return pack_run(&o, sum, &err);
}

static bool is_there(const struct file_system *fs, const char *path) {
    struct error err = {0};
    bool exists = false;
    assert_ok(fs->exists(fs->context, path, &exists, &err), err);
    return exists;
}

/* A whole dataset of this tar, or none. */
static bool check_dataset(const struct file_system *fs) {
    struct error err = {0};
    struct dataset *d = NULL;
    if (!is_there(fs, "out/dataset.json")) {
        return false;
    }
    assert_ok(dataset_open(&d, "out", fs, &err), err);
    assert_int_equal(dataset_sample_count(d), IMAGES);
    assert_int_equal(dataset_manifest(d)->shard_count, 3);
    dataset_close(d);
    assert_true(is_there(fs, "out/rejects.jsonl"));
    return true;
}

/* Everything under a final name is whole. */
static void check_all(const struct file_system *fs) {
    struct error err = {0};
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof(path), "out/shard-%06d.tar.zst", i);
        struct shard_verify how = {0};
        if (is_there(fs, path)) {
            assert_ok(shard_verify(fs, path, &how, &err), err);
        }
    }
    if (is_there(fs, "out/rejects.jsonl")) {
        struct byte_buffer text;
        size_t lines = 0;
        assert_ok(file_read_all(fs, &text, "out/rejects.jsonl", 1 << 20, &err), err);
        for (size_t i = 0; i < text.size_bytes; i++) {
            lines += text.data[i] == '\n';
        }
        assert_int_equal(lines, BAD);
        byte_buffer_fini(&text);
    }
    check_dataset(fs);
}

/* Runs with the fault at call `nth`; returns the number of calls. What is left must be true, before
 * and after a power cut, and another run must succeed on it. */
static uint64_t run_with_fault(bool over_old, uint64_t nth, enum file_fault fault) {
    struct error err = {0};
    struct file_system *memory = NULL;
    struct file_system *faulty = NULL;
    struct pack_summary sum;
    assert_ok(file_memory_create(&memory, &err), err);
    if (over_old) {
        assert_int_equal(pack_into(memory, false, &sum), STATUS_OK);
    }
    assert_ok(file_fault_create(&faulty, memory, nth, fault, &err), err);
    enum status s = pack_into(faulty, over_old, &sum);
    uint64_t calls = file_fault_count(faulty);
    if (nth < calls && s == STATUS_OK) {
        /* only removing a leftover may fail unnoticed, and a good run leaves none */
        fail_msg("the fault at call %d was not reported", (int)nth);
    }
    check_all(memory);
    assert_true(!sum.is_dataset || check_dataset(memory));
    file_memory_crash(memory);
    check_all(memory);
    if (s == STATUS_OK) {
        assert_true(check_dataset(memory));
    }
    assert_int_equal(pack_into(memory, true, &sum), STATUS_OK);
    assert_true(check_dataset(memory));
    file_fault_destroy(faulty);
    file_memory_destroy(memory);
    return calls;
}

static void run_all_faults(bool over_old) {
    static const enum file_fault faults[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                             FILE_FAULT_DEAD};
    make_tar();
    uint64_t calls = run_with_fault(over_old, UINT64_MAX, FILE_FAULT_ERROR);
    assert_true(calls > 30);
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
        for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
            run_with_fault(over_old, nth, faults[k]);
        }
    }
}

TEST(every_failing_write_leaves_complete_files_only) {
    run_all_faults(false);
}

TEST(every_failing_write_while_overwriting_leaves_complete_files_only) {
    run_all_faults(true);
}
