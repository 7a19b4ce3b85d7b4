/*
 * Shards of earlier versions of the program, kept for ever: those under ok/ read as they were
 * written, those under bad/ are refused for the reason that their list names.
 */
#include <stdio.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/test.h"

static struct error err;

static void count_fault(void *cookie,
                        enum shard_part part,
                        uint64_t sample_id,
                        uint64_t offset,
                        const char *text) {
    (void)part;
    (void)sample_id;
    (void)offset;
    (void)text;
    ++*(size_t *)cookie;
}

/* What the three datasets have in common, wherever their bytes are. */
static void check_dataset(const char *directory, uint64_t fingerprint, bool foreign) {
    struct dataset *d = NULL;
    struct shard_reader *r = NULL;
    struct sample_view view;
    uint64_t computed = 0;
    assert_ok(dataset_open(&d, test_source_path(directory), NULL, &err), err);
    assert_int_equal(dataset_sample_count(d), 2);
    assert_int_equal(dataset_text_count(d), foreign ? 2 : 3);
    assert_int_equal(dataset_id_space(d), 6);
    assert_int_equal(dataset_fingerprint(d), fingerprint);
    assert_ok(dataset_compute_fingerprint(d, &computed, &err), err);
    assert_int_equal(computed, fingerprint);
    struct shard_verify how = {.expected = &dataset_manifest(d)->shards[0]};
    assert_ok(shard_verify(file_posix(), dataset_shard_path(d, 0), &how, &err), err);
    assert_ok(shard_reader_open(&r, file_posix(), dataset_shard_path(d, 0), &err), err);
    assert_ok(shard_reader_get(r, 0, &view, &err), err);
    assert_string_equal(view.key, foreign ? "dots_3" : "000000003");
    assert_int_equal(view.record.sample_id, 3);
    assert_int_equal(view.record.format, IMAGE_FORMAT_PNG);
    assert_int_equal(view.record.image_hash, 0x6d118d241af36791u);
    assert_int_equal(view.caption_count, foreign ? 1 : 2);
    assert_int_equal(view.captions[0].size_bytes, 9);
    assert_memory_equal(view.captions[0].data, "a red dot", 9);
    if (!foreign) {
        assert_memory_equal(view.captions[1].data, "one red pixel", 13);
    }
    assert_int_equal(view.json.size_bytes, 17);
    assert_memory_equal(view.json.data, "{\"url\":\"red.png\"}", 17);
    assert_ok(shard_reader_get(r, 1, &view, &err), err);
    assert_int_equal(view.record.sample_id, 5);
    assert_int_equal(view.captions[0].size_bytes, 10);
    assert_memory_equal(view.captions[0].data, "a blue dot", 10);
    assert_null(view.json.data);
    shard_reader_close(r);
    dataset_close(d);
}

TEST(version_1_reads_as_it_was_written) {
    check_dataset("tests/golden/shard/v1/ok", 0xebdb9f8ea6029214u, false);
    check_dataset("tests/golden/shard/v1/ok-tar", 0xebdb9f8ea6029214u, false);
    check_dataset("tests/golden/shard/v1/ok-tar-foreign", 0x09d25c81b293c49au, true);
}

/* Version 2 of the manifest: that of ok after `ccpack remove` of sample 5. */
TEST(a_dataset_with_a_removed_sample_reads_as_it_was_written) {
    struct dataset *d = NULL;
    struct dataset_sample s;
    uint64_t computed = 0;
    assert_ok(dataset_open(&d, test_source_path("tests/golden/shard/v1/ok-removed"), NULL, &err),
              err);
    assert_int_equal(dataset_sample_count(d), 1);
    assert_int_equal(dataset_text_count(d), 2);
    assert_int_equal(dataset_id_space(d), 6);
    assert_ok(dataset_find(d, 3, &s, &err), err);
    assert_status(dataset_find(d, 5, &s, &err), STATUS_NOTFOUND, err);
    assert_ok(dataset_compute_fingerprint(d, &computed, &err), err);
    assert_true(computed == 0xe16a1745a6c71d15u);
    assert_true(dataset_fingerprint(d) == computed);
    assert_true(dataset_manifest(d)->generations[0].fingerprint == 0xebdb9f8ea6029214u);
    dataset_close(d);
}

/* What verify says of a file, as the status of its first reason. */
static enum status judge(const char *path) {
    struct shard_reader *r = NULL;
    size_t faults = 0;
    struct shard_verify how = {.fault = count_fault, .cookie = &faults};
    enum status opened = shard_reader_open(&r, file_posix(), path, &err);
    shard_reader_close(r);
    enum status verified = shard_verify(file_posix(), path, &how, &err);
    return opened != STATUS_OK ? opened : verified;
}

TEST(bad_shards_are_refused_for_their_reason) {
    char line[200];
    size_t count = 0;
    FILE *f = fopen(test_source_path("tests/golden/shard/v1/bad/expected"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        char name[100];
        char expected[32];
        char path[300];
        assert_int_equal(sscanf(line, "%99s %31s", name, expected), 2);
        snprintf(path, sizeof(path), "tests/golden/shard/v1/bad/%s", name);
        enum status s = judge(test_source_path(path));
        if (strcmp(status_name(s), expected) != 0) {
            fail_msg("%s: %s, expected %s (%s)", name, status_name(s), expected, err.text);
        }
        count++;
    }
    fclose(f);
    assert_int_equal(count, 21);
}
