/*
 * Skipping k rows and reading the next must give the row and the hash of the content that reading
 * all of them gives, for every kind of source and every k.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { MAX_ROWS = 64 };

static const char jpeg_head[] = "\xFF\xD8\xFF\xE0 looks like one";

static uint64_t fold(uint64_t sum, const void *data, size_t size_bytes) {
    return sum * 31 + hash64(data, size_bytes);
}

/* A number that stands for everything in a row. */
static uint64_t sum_of(const struct source_row *r) {
    uint64_t sum = fold(r->row, r->key, strlen(r->key));
    sum = fold(sum, &r->class_index, sizeof(r->class_index));
    sum = fold(sum, r->image.data, r->image.size_bytes);
    sum = fold(sum, r->path, strlen(r->path));
    sum = fold(sum, r->text.data, r->text.size_bytes);
    sum = fold(sum, r->json.data, r->json.size_bytes);
    sum = fold(sum, r->caption_size_bytes, r->caption_count * sizeof(r->caption_size_bytes[0]));
    sum = fold(sum, r->detail, strlen(r->detail));
    return fold(sum, &r->reason, sizeof(r->reason));
}

static uint64_t next_sum(struct source *s) {
    struct source_row row;
    struct error err = {0};
    source_row_init(&row);
    assert_ok(source_next(s, &row, &err), err);
    assert_ok(source_row_load(&row, &err), err);
    uint64_t sum = sum_of(&row);
    source_row_fini(&row);
    return sum;
}

static struct source *open_source(const char *path, const struct source_options *how) {
    struct source *s = NULL;
    struct error err = {0};
    assert_ok(source_open(&s, path, how, &err), err);
    return s;
}

static uint64_t count_rows(const char *path, const struct source_options *how, uint64_t *ignored) {
    struct source *s = open_source(path, how);
    struct error err = {0};
    uint64_t count = 0;
    assert_status(source_skip(s, UINT64_MAX, &count, &err), STATUS_END, err);
    assert_int_equal(source_rows_read(s), count);
    *ignored = ignored_files(s);
    source_close(s);
    return count;
}

static void check_skips(const char *path, const struct source_options *how) {
    uint64_t sums[MAX_ROWS];
    uint64_t contents[MAX_ROWS + 1]; /* source_content before each row */
    uint64_t ignored = 0;
    uint64_t count = count_rows(path, how, &ignored);
    assert_true(count > 2 && count <= MAX_ROWS);
    struct source_row row;
    struct error err = {0};
    struct source *s = open_source(path, how);
    for (uint64_t i = 0; i < count; i++) {
        contents[i] = source_content(s);
        sums[i] = next_sum(s);
        assert_true(source_content(s) != contents[i]);
    }
    contents[count] = source_content(s);
    source_row_init(&row);
    assert_status(source_next(s, &row, &err), STATUS_END, err);
    assert_int_equal(ignored_files(s), ignored);
    source_row_fini(&row);
    source_close(s);
    for (uint64_t k = 0; k <= count; k++) {
        uint64_t skipped = 0;
        s = open_source(path, how);
        assert_ok(source_skip(s, k / 2, &skipped, &err), err);
        assert_ok(source_skip(s, k - k / 2, &skipped, &err), err);
        assert_int_equal(skipped, k - k / 2);
        assert_int_equal(source_rows_read(s), k);
        assert_true(source_content(s) == contents[k]);
        for (uint64_t i = k; i < count; i++) {
            assert_true(next_sum(s) == sums[i]);
            if (i % 3 == 0 && i + 1 < count) { /* skipping and reading mixed */
                assert_ok(source_skip(s, 1, &skipped, &err), err);
                i++;
            }
        }
        assert_status(source_skip(s, 1, &skipped, &err), STATUS_END, err);
        assert_int_equal(skipped, 0);
        assert_true(source_content(s) == contents[count]);
        source_close(s);
    }
}

static void check_text(const char *name, enum source_kind kind, const char *text) {
    struct source_options how = {.kind = kind};
    const char *path = test_temp_path("%s", name);
    test_write_file(path, text, strlen(text));
    check_skips(path, &how);
}

TEST(tars_with_extras_and_ignored_members) {
    static const struct {
        const char *name, *data;
        size_t size_bytes; /* 0: of the string */
    } members[] = {
        {"0.txt", "zero", 0},         {"0.jpg", jpeg_head, 20000},
        {"._0.jpg", "of macOS", 0},   {"README", "no row", 7000},
        {"1.bmp", "guessed", 0},      {"1.jpg", jpeg_head, 70000},
        {"1.depth.png", "other", 0},  {"1.dat", jpeg_head, 0},
        {"1.none", "x", 30000},       {"1.txt", "one", 0},
        {"1.jpg", jpeg_head, 300000}, {"1.json", "{}", 0},
        {"1.txt", "again", 0},        {"2.cls", "7", 0},
        {"2.txt", "two", 0},          {"3.jpg", "no image", 600},
        {"3.png", jpeg_head, 600000}, {"3.txt", "three", 0},
        {"4.jpg", jpeg_head, 511},    {"4.jpg", jpeg_head, 512},
        {"5.dat", jpeg_head, 513},    {"5.txt", "", 0},
        {".hidden", "x", 100000},
    };
    static uint8_t body[700000];
    struct source_options how = {0};
    const char *path = test_temp_path("a.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        size_t size_bytes = strlen(members[i].data);
        memset(body, (int)('a' + i), sizeof(body));
        memcpy(body, members[i].data, size_bytes);
        size_bytes = members[i].size_bytes ? members[i].size_bytes : size_bytes;
        assert_true(tar_write_file(f, members[i].name, body, size_bytes));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    check_skips(path, &how);
}

/* Sizes before and only after the bodies. */
TEST(zips) {
    static const char *const names[] = {"zip-stored", "zip-deflated", "zip-piped"};
    for (size_t i = 0; i < 3; i++) {
        struct source_options how = {0};
        char path[256];
        snprintf(path, sizeof(path), "tests/fuzz/corpus/wds/%s", names[i]);
        check_skips(test_source_path(path), &how);
    }
}

/* Skipping finds a truncated tar too, although it seeks over the bodies. */
TEST(truncated_tars_are_found) {
    struct source_options how = {0};
    struct source *s = open_source(test_source_path("tests/fuzz/corpus/wds/cut"), &how);
    struct error err = {0};
    uint64_t skipped = 0;
    assert_status(source_skip(s, 100, &skipped, &err), STATUS_CORRUPT, err);
    source_close(s);
}

TEST(tables) {
    check_text("a.tsv", SOURCE_AUTO, "a dog\tone.jpg\n\nbad\nx\ty\tz\r\na cat\ttwo.jpg\n \t3.jpg");
}

TEST(csv) {
    check_text("a.csv", SOURCE_AUTO,
               "1.jpg,\"a\n\nb\"\n\nbad\n2.jpg,\"c \"\"d\"\"\"\r\n3.jpg,\n4.jpg,\"open\n\n");
}

TEST(karpathy) {
    check_text("k.json", SOURCE_AUTO,
               "{\"images\": [{\"filename\": \"1.jpg\", \"split\": \"train\", \"sentences\": "
               "[{\"raw\": \"a\"}]}, {\"split\": \"train\"}, {\"filename\": \"2.jpg\", "
               "\"sentences\": []}]}");
}

TEST(lists_and_lines_of_objects) {
    check_text("l.json", SOURCE_AUTO,
               "[{\"image\": \"1.jpg\", \"caption\": \"a ]}\", \"x\": [1, {}]}, 7, {oops}, \"s\" , "
               "{\"image\": \"2.jpg\", \"caption\": [\"b\", \"c\"]}]\n");
    check_text("l.jsonl", SOURCE_AUTO,
               "{\"image\": \"1.jpg\", \"caption\": \"a\"}\n7\n{\"image\": \"2.jpg\"}\n\n8");
}

/* On disk, and as a tar; with what is no image between the images. */
TEST(class_folders) {
    static const char *const names[] = {"set/b/2.jpg", "set/b/1.jpg", "set/a/x.txt",
                                        "set/a/data",  "set/a/3.png", "set/top.jpg"};
    struct source_options how = {.kind = SOURCE_FOLDERS};
    const char *path = test_temp_path("a.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(mkdir(test_temp_path("set"), 0700), 0);
    assert_int_equal(mkdir(test_temp_path("set/a"), 0700), 0);
    assert_int_equal(mkdir(test_temp_path("set/b"), 0700), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *data = strstr(names[i], ".txt") ? "text" : jpeg_head;
        assert_true(tar_write_file(f, names[i], data, strlen(data)));
        test_write_file(test_temp_path("%s", names[i]), data, strlen(data));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    check_skips(path, &how);
    check_skips(test_temp_path("set"), &how);
}

TEST(loose_pairs_and_imagefolders) {
    static const char *const names[] = {"set/1.jpg", "set/1.txt",   "set/2.jpg", "set/d/3.jpg",
                                        "set/3.txt", "set/d/3.txt", "set/x.md"};
    static const char lines[] = "{\"file_name\": \"1.jpg\", \"text\": \"a\"}\n7\n"
                                "{\"file_name\": \"2.jpg\", \"text\": \"b\", \"x\": 1}\n";
    struct source_options how = {0};
    assert_int_equal(mkdir(test_temp_path("set"), 0700), 0);
    assert_int_equal(mkdir(test_temp_path("set/d"), 0700), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *data = strstr(names[i], ".txt") ? "text" : jpeg_head;
        test_write_file(test_temp_path("%s", names[i]), data, strlen(data));
    }
    check_skips(test_temp_path("set"), &how);
    test_write_file(test_temp_path("set/metadata.jsonl"), lines, strlen(lines));
    check_skips(test_temp_path("set"), &how);
}

TEST(cifar) {
    static uint8_t records[5][3073];
    struct source_options how = {0};
    const char *path = test_temp_path("data_batch_1.bin");
    for (int i = 0; i < 5; i++) {
        memset(records[i], 9 - i, sizeof(records[i]));
    }
    test_write_file(path, records, sizeof(records));
    check_skips(path, &how);
}

TEST(coco) {
    check_text("c.json", SOURCE_AUTO,
               "{\"images\": [{\"id\": 9, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": "
               "\"b.jpg\"}, {\"file_name\": \"x\"}], \"annotations\": [{\"image_id\": 2, "
               "\"caption\": \"b\"}, {\"image_id\": 9, \"caption\": \"a\"}]}");
}
