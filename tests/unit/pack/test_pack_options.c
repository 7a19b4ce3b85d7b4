/*
 * What each option does to the samples, and that the bytes are the same for any number of jobs
 * whatever the options are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash_map.h"
#include "formats/dataset/dataset.h"
#include "pack/merge/merge.h"
#include "pack/run/filter_internal.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

/* A tar of one image of each size, with captions of the given sizes. */
struct image {
    int32_t width_px, height_px;
    size_t caption_bytes;
};

static const char *tar_of(const char *name, const struct image *p, size_t count) {
    const char *path = test_temp_path("%s", name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    struct byte_buffer jpeg = {0};
    for (size_t i = 0; i < count; i++) {
        char member[32];
        char text[600];
        pack_case_jpeg(&jpeg, (int)i, p[i].width_px, p[i].height_px);
        snprintf(member, sizeof(member), "%03zu.jpg", i);
        assert_true(tar_write_file(f, member, jpeg.data, jpeg.size_bytes));
        snprintf(member, sizeof(member), "%03zu.txt", i);
        memset(text, 'x', sizeof(text));
        assert_true(tar_write_file(f, member, text, p[i].caption_bytes));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    byte_buffer_fini(&jpeg);
    return path;
}

static struct dataset *pack_all(struct pack_options *o, struct pack_summary *sum) {
    struct error err = {0};
    struct dataset *d = NULL;
    assert_ok(pack_run(o, sum, &err), err);
    assert_true(pack_case_verify(o->fs, o->directory) == sum->fingerprint);
    assert_ok(dataset_open(&d, o->directory, o->fs, &err), err);
    return d;
}

TEST(resizes_are_parsed) {
    struct pack_resize r;
    assert_int_equal(pack_parse_resize(&r, "none", NULL), STATUS_OK);
    assert_int_equal(r.kind, PACK_RESIZE_NONE);
    assert_int_equal(pack_parse_resize(&r, "short:256", NULL), STATUS_OK);
    assert_true(r.kind == PACK_RESIZE_SHORT && r.width_px == 256);
    assert_int_equal(pack_parse_resize(&r, "long:8192", NULL), STATUS_OK);
    assert_true(r.kind == PACK_RESIZE_LONG && r.width_px == 8192);
    assert_int_equal(pack_parse_resize(&r, "exact:224x16", NULL), STATUS_OK);
    assert_true(r.kind == PACK_RESIZE_EXACT && r.width_px == 224 && r.height_px == 16);
    static const char *const wrong[] = {
        "",          "short",          "short:",      "short:15", "long:8193",
        "exact:224", "exact:224x",     "exact:224x9", "short:2 ", "short:-256",
        "wide:3",    "exact:16x16x16", "none:1",      "256",      "short:99999999999999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(pack_parse_resize(&r, wrong[i], NULL), STATUS_USAGE);
    }
}

TEST(sizes_follow_the_rule_and_never_grow) {
    static const struct {
        struct pack_resize how;
        int32_t width, height, new_width, new_height;
    } cases[] = {
        {{PACK_RESIZE_SHORT, 100, 0}, 400, 200, 200, 100},
        {{PACK_RESIZE_SHORT, 100, 0}, 99, 700, 99, 700},
        {{PACK_RESIZE_LONG, 100, 0}, 400, 200, 100, 50},
        {{PACK_RESIZE_LONG, 100, 0}, 200, 301, 66, 100},
        {{PACK_RESIZE_LONG, 100, 0}, 100, 100, 100, 100},
        {{PACK_RESIZE_LONG, 16, 0}, 1, 8000, 1, 16},
        {{PACK_RESIZE_EXACT, 100, 50}, 400, 300, 100, 50},
        {{PACK_RESIZE_EXACT, 100, 50}, 80, 300, 80, 50},
        {{PACK_RESIZE_EXACT, 100, 50}, 80, 30, 80, 30},
        {{PACK_RESIZE_NONE, 0, 0}, 80, 30, 80, 30},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t width = cases[i].width;
        int32_t height = cases[i].height;
        bool changes = pack_resize_size(&width, &height, &cases[i].how);
        assert_int_equal(width, cases[i].new_width);
        assert_int_equal(height, cases[i].new_height);
        assert_int_equal(changes, width != cases[i].width || height != cases[i].height);
    }
}

TEST(resized_images_have_the_size_that_was_asked_for) {
    static const struct image images[] = {{200, 100, 4}, {40, 90, 4}, {30, 30, 4}};
    static const struct {
        struct pack_resize how;
        uint32_t sizes[3][2];
    } cases[] = {
        {{PACK_RESIZE_LONG, 50, 0}, {{50, 25}, {22, 50}, {30, 30}}},
        {{PACK_RESIZE_EXACT, 48, 32}, {{48, 32}, {40, 32}, {30, 30}}},
        {{PACK_RESIZE_SHORT, 20, 0}, {{40, 20}, {20, 45}, {20, 20}}},
    };
    const char *sources[] = {tar_of("a.tar", images, 3)};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file_system *fs = memory();
        struct pack_options o = pack_case_options(fs, "out", sources, 1);
        struct pack_summary sum;
        struct error err = {0};
        o.resize = cases[i].how;
        struct dataset *d = pack_all(&o, &sum);
        for (uint64_t k = 0; k < 3; k++) {
            struct dataset_sample s;
            assert_ok(dataset_sample_at(d, k, &s, &err), err);
            assert_int_equal(s.width_px, cases[i].sizes[k][0]);
            assert_int_equal(s.height_px, cases[i].sizes[k][1]);
            assert_int_equal(s.flags, SHARD_FLAG_REENCODED);
        }
        dataset_close(d);
        file_memory_destroy(fs);
    }
}

/* Good rows that options leave out are told apart from bad ones: --max-bad 0 and --on-bad fail let
 * them pass. */
TEST(rows_that_options_exclude_are_not_bad) {
    static const struct image images[] = {{64, 64, 9},  {63, 200, 9},  {64, 200, 9}, {64, 193, 9},
                                          {190, 64, 9}, {100, 100, 9}, {64, 64, 10}, {101, 100, 9}};
    const char *sources[] = {tar_of("a.tar", images, 8)};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", sources, 1);
    struct pack_summary sum;
    struct error err = {0};
    o.filter = (struct pack_filter){
        .min_side_px = 64, .max_aspect = 3, .max_pixels = 12160, .max_caption_bytes = 9};
    o.max_bad = (struct pack_max_bad){.rows = 0, .percent = -1};
    o.on_bad = PACK_ON_BAD_FAIL;
    struct dataset *d = pack_all(&o, &sum);
    assert_int_equal(sum.samples, 4);
    assert_int_equal(sum.rejected, 4);
    assert_int_equal(sum.rejected_by[REASON_IMAGE_SMALL], 1);  /* 63 x 200 */
    assert_int_equal(sum.rejected_by[REASON_IMAGE_ASPECT], 2); /* 64 x 200, 64 x 193 */
    assert_int_equal(sum.rejected_by[REASON_CAPTION_LONG], 1);
    static const uint64_t ids[] = {0, 4, 5, 7};
    for (uint64_t i = 0; i < 4; i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.sample_id, ids[i]);
    }
    dataset_close(d);
    o.filter.max_pixels = 10000;
    o.overwrite = true;
    d = pack_all(&o, &sum);
    assert_int_equal(sum.rejected_by[REASON_IMAGE_LARGE], 2); /* 190 x 64, 101 x 100 */
    dataset_close(d);
    struct byte_buffer text;
    assert_ok(file_read_all(fs, &text, "out/" PACK_REJECTS_NAME, 1 << 16, &err), err);
    assert_non_null(strstr((const char *)text.data, "\"reason\":\"image-small\""));
    assert_non_null(strstr((const char *)text.data, "63 x 200 pixels"));
    byte_buffer_fini(&text);
    file_memory_destroy(fs);
}

TEST(the_first_bad_row_ends_the_run_where_asked) {
    const char *sources[] = {
        pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 20, .bad_step = 8})};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", sources, 1);
    struct pack_summary sum;
    struct error err = {0};
    o.on_bad = PACK_ON_BAD_FAIL;
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "a.tar: row 7, key '000007': caption-missing"));
    assert_true(sum.is_dataset && sum.samples == 7 && sum.rejected == 1);
    file_memory_destroy(fs);
}

TEST(headers_alone_are_read_where_asked) {
    static const struct image images[] = {{64, 48, 9}, {64, 48, 9}};
    struct error err = {0};
    const char *path = tar_of("a.tar", images, 2);
    size_t size_bytes = 0;
    uint8_t *tar = test_read_file(path, &size_bytes);
    memset(tar + 512 + 700, 0, 400); /* in the first image's coded data */
    test_write_file(path, tar, size_bytes);
    free(tar);
    const char *sources[] = {path};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", sources, 1);
    struct pack_summary sum;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.rejected_by[REASON_IMAGE_DAMAGED], 1);
    o.check = false;
    o.overwrite = true;
    struct dataset *d = pack_all(&o, &sum);
    assert_int_equal(sum.samples, 2);
    for (uint64_t i = 0; i < 2; i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.flags, SHARD_FLAG_UNCHECKED);
        assert_true(s.width_px == 64 && s.height_px == 48);
    }
    dataset_close(d);
    o.resize = (struct pack_resize){PACK_RESIZE_SHORT, 16, 0};
    assert_status(pack_run(&o, &sum, &err), STATUS_USAGE, err);
    file_memory_destroy(fs);
}

TEST(equal_images_are_packed_once) {
    const struct pack_case_tar how = {.rows = 23, .same_step = 4};
    const char *sources[] = {pack_case_tar("a.tar", &how), pack_case_tar("b.tar", &how)};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", sources, 1);
    struct pack_summary sum, whole;
    struct error err = {0};
    o.dedup = PACK_DEDUP_EXACT;
    o.max_bad = (struct pack_max_bad){.rows = 0, .percent = -1};
    dataset_close(pack_all(&o, &sum));
    assert_int_equal(sum.rejected_by[REASON_DUPLICATE], 5); /* 4 8 12 16 20 */
    assert_int_equal(sum.samples, 18);
    assert_int_equal(sum.texts, 23); /* those of the others are in sample 0 */
    struct byte_buffer text;
    assert_ok(file_read_all(fs, &text, "out/" PACK_REJECTS_NAME, 1 << 16, &err), err);
    assert_non_null(strstr((const char *)text.data, "\"row\":12,\"key\":\"000012\",\"reason\":"
                                                    "\"duplicate\",\"detail\":\"its image is "
                                                    "that of sample 0\""));
    byte_buffer_fini(&text);
    o.append = true; /* of what is there, too */
    o.allow_repeat = true;
    o.sources = sources + 1;
    memset(&err, 0, sizeof(err));
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    assert_int_equal(sum.rejected_by[REASON_DUPLICATE], 23);
    assert_true(sum.keeps_dataset);
    o.dedup = PACK_DEDUP_NONE;
    o.new_settings = true;
    o.resume = false;
    assert_ok(pack_run(&o, &whole, &err), err);
    assert_int_equal(whole.samples, 23);
    file_memory_destroy(fs);
}

/* The ids and images of the shards that are there are known again. */
TEST(ids_and_images_seen_are_known_after_a_stop) {
    const struct pack_case_tar how = {.rows = 23, .same_step = 4};
    const char *sources[] = {pack_case_tar("a.tar", &how)};
    struct file_system *good = memory();
    struct pack_options o = pack_case_options(good, "out", sources, 1);
    struct pack_summary want, sum;
    struct error err = {0};
    o.dedup = PACK_DEDUP_EXACT;
    o.ids = PACK_IDS_KEY;
    dataset_close(pack_all(&o, &want));
    bool ended = false; /* before the fault */
    uint64_t nth = 20;
    for (; !ended; nth += 3) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_DEAD, &err), err);
        o.fs = faulty;
        o.resume = false;
        ended = pack_run(&o, &sum, NULL) == STATUS_OK;
        o.fs = fs;
        o.resume = true;
        assert_ok(pack_run(&o, &sum, &err), err);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    assert_true(nth > 50);
    file_memory_destroy(good);
}

TEST(the_map_finds_every_key) {
    enum { COUNT = 200000 };
    struct hash_map *map = NULL;
    struct error err = {0};
    assert_ok(hash_map_create(&map, &err), err);
    assert_true(hash_map_get(map, 0) == HASH_MAP_NONE);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_ok(hash_map_put(map, i * i, i, &err), err);
    }
    assert_ok(hash_map_put(map, UINT64_MAX, 7, &err), err);
    assert_ok(hash_map_put(map, 9, 1000, &err), err);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_true(hash_map_get(map, i * i) == (i == 3 ? 1000 : i));
    }
    assert_true(hash_map_get(map, UINT64_MAX) == 7);
    assert_true(hash_map_get(map, 2) == HASH_MAP_NONE && hash_map_get(map, 5) == HASH_MAP_NONE);
    hash_map_destroy(map);
}

/* ---- classes ----------------------------------------------------------------------------------
 */

static void make_class(const char *folder, const char *name, int first, int count) {
    struct byte_buffer jpeg = {0};
    mkdir(test_temp_path("%s", folder), 0777);
    assert_int_equal(mkdir(test_temp_path("%s/%s", folder, name), 0777), 0);
    for (int i = 0; i < count; i++) {
        pack_case_jpeg(&jpeg, first + i, 20, 20);
        test_write_file(test_temp_path("%s/%s/%d.jpg", folder, name, i), jpeg.data,
                        jpeg.size_bytes);
    }
    byte_buffer_fini(&jpeg);
}

static const char *folders[3];

static void make_folders(void) {
    make_class("one", "cat", 0, 3);
    make_class("one", "dog", 10, 2);
    make_class("two", "bird", 20, 4);
    make_class("two", "dog", 30, 3);
    folders[0] = test_temp_path("one");
    folders[1] = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 5, .first = 50});
    folders[2] = test_temp_path("two");
}

static void check_labels(const struct file_system *fs, const char *directory) {
    static const char *const names[] = {"cat", "dog", "bird"};
    static const int32_t labels[] = {0, 0, 0, 1, 1, -1, -1, -1, -1, -1, 2, 2, 2, 2, 1, 1, 1};
    struct error err = {0};
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, directory, fs, &err), err);
    const struct manifest *m = dataset_manifest(d);
    assert_int_equal(m->class_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(m->classes[i], names[i]);
    }
    assert_int_equal(dataset_sample_count(d), sizeof(labels) / sizeof(labels[0]));
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.label, labels[i]);
        assert_int_equal(s.text_count, labels[i] < 0);
    }
    dataset_close(d);
}

TEST(labels_count_in_the_classes_of_all_sources) {
    struct pack_summary sum;
    struct error err = {0};
    make_folders();
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", folders, 3);
    assert_ok(pack_run(&o, &sum, &err), err);
    check_labels(fs, "out");
    file_memory_destroy(fs);
}

TEST(an_append_adds_classes_after_existing_ones) {
    struct pack_summary sum;
    struct error err = {0};
    make_folders();
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", folders, 1);
    assert_ok(pack_run(&o, &sum, &err), err);
    o.append = true;
    o.sources = folders + 1;
    o.source_count = 2;
    assert_ok(pack_run(&o, &sum, &err), err);
    check_labels(fs, "out");
    file_memory_destroy(fs);
}

TEST(parts_have_the_labels_of_the_whole) {
    struct pack_summary sum;
    struct error err = {0};
    make_folders();
    struct file_system *fs = memory();
    static const char *const names[] = {"p1", "p2", "p3", "p4"};
    for (uint32_t i = 0; i < 4; i++) {
        struct pack_options o = pack_case_options(fs, names[i], folders, 3);
        o.part = (struct pack_part){i + 1, 4};
        assert_ok(pack_run(&o, &sum, &err), err);
    }
    struct pack_merge_options o;
    pack_merge_options_default(&o);
    o.fs = fs;
    o.directory = "whole";
    o.parts = names;
    o.part_count = 4;
    assert_ok(pack_merge(&o, &sum, &err), err);
    check_labels(fs, "whole");
    file_memory_destroy(fs);
}

TEST(labels_are_the_same_after_a_kill) {
    struct pack_summary sum;
    struct error err = {0};
    make_folders();
    struct file_system *good = memory();
    struct pack_options o = pack_case_options(good, "out", folders, 3);
    o.shard_samples = 1;
    assert_ok(pack_run(&o, &sum, &err), err);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += 3 * test_step(5)) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_DEAD, &err), err);
        o.fs = faulty;
        o.resume = false;
        (void)pack_run(&o, &sum, NULL);
        calls = nth >= file_fault_count(faulty) ? nth : calls;
        o.fs = fs;
        o.resume = true;
        assert_ok(pack_run(&o, &sum, &err), err);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    check_labels(good, "out");
    file_memory_destroy(good);
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

TEST(any_number_of_jobs_gives_the_same_bytes_with_any_options) {
    const char *sources[] = {
        pack_case_tar(
            "a.tar",
            &(struct pack_case_tar){.rows = 40, .bad_step = 7, .same_step = 6, .side_px = 40}),
        pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 25, .first = 40, .side_px = 30}),
    };
    struct pack_summary sum;
    struct error err = {0};
    for (int how = 0; how < 8; how++) {
        struct file_system *one = NULL;
        for (uint32_t jobs = 1; jobs <= 7; jobs += 3) {
            struct file_system *fs = memory();
            struct pack_options o = pack_case_options(fs, "out", sources, 2);
            o.jobs = jobs;
            o.dedup = how == 1 ? PACK_DEDUP_EXACT : PACK_DEDUP_NONE;
            o.resize.kind = how == 2 ? PACK_RESIZE_EXACT : PACK_RESIZE_NONE;
            o.resize.width_px = 20;
            o.resize.height_px = 16;
            o.filter.min_side_px = how == 3 ? 35 : 0;
            o.check = how != 4;
            o.level = how == 5 ? 9 : 3;
            o.container = how == 7 ? SHARD_CONTAINER_TAR : SHARD_CONTAINER_TAR_ZSTD;
            o.part = how == 6 ? (struct pack_part){2, 3} : (struct pack_part){0};
            o.ids = how == 4 ? PACK_IDS_KEY : PACK_IDS_ROW;
            assert_ok(pack_run(&o, &sum, &err), err);
            assert_true(pack_case_verify(fs, "out") == sum.fingerprint);
            if (one) {
                assert_true(pack_case_equal(one, "out", fs, "out"));
                file_memory_destroy(fs);
            } else {
                one = fs;
            }
        }
        file_memory_destroy(one);
    }
}
