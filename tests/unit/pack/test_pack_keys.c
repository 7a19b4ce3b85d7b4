/*
 * Repeated keys: the second sample of a key in a shard gets its id appended, whichever thread
 * noticed first, and the bytes are the same with any number of threads.
 */
#include <stdio.h>
#include <string.h>

#include "formats/shard/shard_reader.h"
#include "pack/run/keys_internal.h"
#include "tests/support/pack_case.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { ROWS = 40, TIMES = 4 };

static struct error err;

/* Packs the tar TIMES times over. */
static void pack(const char *directory, const char *tar, uint32_t jobs, bool by_samples) {
    const char *sources[TIMES] = {tar, tar, tar, tar};
    struct pack_options o = pack_case_options(NULL, directory, sources, TIMES);
    struct pack_summary sum;
    o.jobs = jobs;
    o.allow_repeat = true;
    o.shard_samples = by_samples ? 3 * ROWS / 2 : SHARD_MAX_SAMPLES;
    o.shard_size_bytes = by_samples ? UINT64_C(1) << 30 : UINT64_C(60) << 10;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, ROWS * TIMES);
}

TEST(repeated_keys_give_the_same_bytes_with_any_number_of_threads) {
    char tar[300], one[300], many[300];
    const struct pack_case_tar how = {.rows = ROWS};
    snprintf(tar, sizeof(tar), "%s", pack_case_tar("a.tar", &how));
    for (int by_samples = 0; by_samples < 2; by_samples++) {
        snprintf(one, sizeof(one), "%s", test_temp_path("one-%d", by_samples));
        pack(one, tar, 1, by_samples);
        assert_true(pack_case_verify(file_posix(), one) != 0);
        for (uint32_t jobs = 2; jobs <= 6; jobs += 2) {
            snprintf(many, sizeof(many), "%s", test_temp_path("many-%d-%u", by_samples, jobs));
            pack(many, tar, jobs, by_samples);
            assert_true(pack_case_equal(file_posix(), one, file_posix(), many));
        }
    }
}

TEST(only_keys_repeated_within_a_shard_get_an_id) {
    char tar[300], directory[300], path[400], want[100];
    const struct pack_case_tar how = {.rows = ROWS};
    snprintf(tar, sizeof(tar), "%s", pack_case_tar("a.tar", &how));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("d"));
    pack(directory, tar, 3, true); /* shards of 60: keys 0 to 39, 0 to 19; 20 to 39, 0 to 39; ... */
    for (uint64_t id = 0; id < (uint64_t)ROWS * TIMES; id++) {
        uint64_t shard = id / 60;
        uint64_t key = id % ROWS;
        bool first = true;
        for (uint64_t before = shard * 60; before < id; before++) {
            first = first && before % ROWS != key;
        }
        struct shard_reader *r = NULL;
        struct sample_view view;
        snprintf(path, sizeof(path), "%s/shard-%06d.tar.zst", directory, (int)shard);
        assert_ok(shard_reader_open(&r, file_posix(), path, &err), err);
        assert_ok(shard_reader_get(r, (uint32_t)(id % 60), &view, &err), err);
        assert_int_equal(view.record.sample_id, id);
        snprintf(want, sizeof(want), first ? "%06d" : "%06d-%d", (int)key, (int)id);
        assert_string_equal(view.key, want);
        shard_reader_close(r);
    }
}

static void add_row(FILE *f, const struct byte_buffer *jpeg, const char *key) {
    char name[100];
    snprintf(name, sizeof(name), "%s.jpg", key);
    assert_true(tar_write_file(f, name, jpeg->data, jpeg->size_bytes));
    snprintf(name, sizeof(name), "%s.txt", key);
    assert_true(tar_write_file(f, name, "an image", 8));
}

/* a, a-2 and a: KEY-ID of the third one is a-2 as well. */
TEST(a_key_with_id_that_is_taken_gets_dashes) {
    static const char *const keys[] = {"a", "a-2", "a"};
    char directory[300], path[400];
    char tar[300];
    struct byte_buffer jpeg = {0};
    snprintf(tar, sizeof(tar), "%s", test_temp_path("a.tar"));
    FILE *f = fopen(tar, "wb");
    assert_non_null(f);
    pack_case_jpeg(&jpeg, 1, 16, 16);
    add_row(f, &jpeg, keys[0]);
    add_row(f, &jpeg, keys[1]);
    add_row(f, &jpeg, keys[2]);
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    snprintf(directory, sizeof(directory), "%s", test_temp_path("d"));
    const char *sources[] = {tar};
    struct pack_options o = pack_case_options(NULL, directory, sources, 1);
    struct pack_summary sum;
    struct shard_reader *r = NULL;
    struct sample_view view;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, 3);
    snprintf(path, sizeof(path), "%s/shard-000000.tar.zst", directory);
    assert_ok(shard_reader_open(&r, file_posix(), path, &err), err);
    assert_ok(shard_reader_get(r, 2, &view, &err), err);
    assert_string_equal(view.key, "a-2-");
    shard_reader_close(r);
    byte_buffer_fini(&jpeg);
}

/* 'a' and all that the row with id 6 could be stored as: its key cannot be made unique. */
TEST(a_row_whose_keys_are_all_taken_ends_the_run) {
    static const char *const keys[] = {"a", "a-6", "a-6-", "a-6--", "a-6---", "a-6----", "a"};
    char tar[300];
    struct byte_buffer jpeg = {0};
    snprintf(tar, sizeof(tar), "%s", test_temp_path("a.tar"));
    FILE *f = fopen(tar, "wb");
    assert_non_null(f);
    pack_case_jpeg(&jpeg, 1, 16, 16);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        add_row(f, &jpeg, keys[i]);
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    byte_buffer_fini(&jpeg);
    const char *sources[] = {tar};
    struct pack_options o = pack_case_options(NULL, test_temp_path("d"), sources, 1);
    struct pack_summary sum;
    o.shard_samples = 100;
    assert_int_equal(pack_run(&o, &sum, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "key"));
    assert_int_equal(sum.samples, 6); /* a valid dataset of the rows before */
    assert_true(sum.is_dataset);
}

TEST(a_key_with_id_keeps_the_beginning_of_the_key) {
    char out[SHARD_MAX_KEY_BYTES + 1];
    char longest[SHARD_MAX_KEY_BYTES + 1];
    memset(longest, 'x', SHARD_MAX_KEY_BYTES);
    longest[SHARD_MAX_KEY_BYTES] = '\0';
    pack_keys_make(out, "k", 7, 1);
    assert_string_equal(out, "k-7");
    pack_keys_make(out, "k", SHARD_MAX_ID, PACK_KEYS_LAST);
    assert_string_equal(out, "k-9223372036854775806----");
    pack_keys_make(out, longest, 12345, 3);
    assert_int_equal(strlen(out), SHARD_MAX_KEY_BYTES);
    assert_string_equal(out + SHARD_MAX_KEY_BYTES - 9, "x-12345--");
    assert_true(shard_key_is_valid(out));
}

/* What becomes of a row's JSON, by the source's key. */
TEST(keys_that_lose_bytes_are_kept_in_the_json) {
    static const struct {
        const char *key, *json, *kept;
    } cases[] = {
        {"plain-1", "{}", "{}"},
        {"a b/c.d\\e", "", ""},
        {"\xE6\x97\xA5", "", "{\"key\":\"\xE6\x97\xA5\"}"},
        {"d/\xC3\xA4\"", " { } ", " {\"key\":\"d/\xC3\xA4\\\"\" } "},
        {"\xC3\xA4", "{\"a\": {}}\n", "{\"key\":\"\xC3\xA4\",\"a\": {}}\n"},
        {"\xC3\xA4", "{\"a\": 1, \"key\": 2}", "{\"a\": 1, \"key\": 2}"},
        {"\xC3\xA4", "[1]", "[1]"},
        {"\xE4", "{}", "{\"key\":\"\xEF\xBF\xBD\"}"},
        {"\x7F", "", "{\"key\":\"\\u007f\"}"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789012345678", "", ""},
        {"012345678901234567890123456789012345678901234567890123456789012345678901234567890", "",
         "{\"key\":"
         "\"012345678901234567890123456789012345678901234567890123456789012345678901234567890\"}"},
    };
    struct json_writer w;
    json_writer_init(&w, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_row row;
        source_row_init(&row);
        strcpy(row.key, cases[i].key);
        assert_ok(byte_buffer_append(&row.json, cases[i].json, strlen(cases[i].json), &err), err);
        assert_ok(pack_keys_keep(&row, &w, &err), err);
        assert_int_equal(row.json.size_bytes, strlen(cases[i].kept));
        if (row.json.size_bytes > 0) {
            assert_memory_equal(row.json.data, cases[i].kept, row.json.size_bytes);
        }
        source_row_fini(&row);
    }
    json_writer_fini(&w);
}
