/* The texts that name datasets with weights and filters, and which samples a filter takes. */
#include "loader/filter_internal.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/dataset/dataset.h"
#include "tests/support/test.h"

static struct loader_source parse_source(char directory[64], const char *text) {
    struct loader_source source;
    struct error err = {0};
    assert_ok(loader_source_parse(&source, directory, 64, text, &err), err);
    assert_ptr_equal(source.directory, directory);
    return source;
}

TEST(source_is_a_directory_with_an_optional_weight) {
    char d[64];
    assert_true(parse_source(d, "cc3m").weight == 0);
    assert_string_equal(d, "cc3m");
    assert_true(parse_source(d, "cc3m:0.7").weight == 0.7);
    assert_string_equal(d, "cc3m");
    assert_true(parse_source(d, "/a:b/c:2e1").weight == 20);
    assert_string_equal(d, "/a:b/c");
    assert_true(parse_source(d, "odd:name").weight == 0);
    assert_string_equal(d, "odd:name");
    assert_true(parse_source(d, "odd:0x10").weight == 0);
    assert_string_equal(d, "odd:0x10");
    assert_true(parse_source(d, "a:nan").weight == 0);
    assert_true(parse_source(d, "a:1:2").weight == 2);
    assert_string_equal(d, "a:1");
    const char *const bad[] = {"", ":1", "a:0", "a:-1", "a:0.0", "a:2e9"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct loader_source source;
        struct error err = {0};
        assert_status(loader_source_parse(&source, d, sizeof(d), bad[i], &err), STATUS_USAGE, err);
    }
    const char *folder = test_temp_path("a:30");
    char long_d[PATH_MAX_BYTES];
    struct loader_source source;
    struct error err = {0};
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_ok(loader_source_parse(&source, long_d, sizeof(long_d), folder, &err), err);
    assert_true(source.weight == 0);
    assert_string_equal(long_d, folder); /* its name has the colon */
    assert_status(loader_source_parse(&source, d, 4, "cc3m", &err), STATUS_USAGE, err);
    assert_ok(loader_source_parse(&source, d, 5, "cc3m:1", &err), err);
}

static struct loader_filter parse_filter(const char *text) {
    struct loader_filter f;
    struct error err = {0};
    loader_filter_default(&f);
    assert_ok(loader_filter_parse(&f, text, &err), err);
    return f;
}

TEST(filter_text_sets_each_field) {
    struct loader_filter f;
    loader_filter_default(&f);
    assert_true(filter_is_open(&f));
    assert_int_equal(filter_hash(&f), 0);
    f = parse_filter("min-side=64,max-aspect=2.5,captions=1..5,caption-bytes=5..,label=..9");
    assert_int_equal(f.min_side_px, 64);
    assert_true(f.max_aspect == 2.5);
    assert_int_equal(f.min_captions, 1);
    assert_int_equal(f.max_captions, 5);
    assert_int_equal(f.min_caption_bytes, 5);
    assert_int_equal(f.max_caption_bytes, UINT32_MAX);
    assert_int_equal(f.min_label, INT32_MIN);
    assert_int_equal(f.max_label, 9);
    assert_true(filter_needs_captions(&f) && !filter_is_open(&f) && filter_hash(&f) != 0);
    f = parse_filter("label=-1");
    assert_int_equal(f.min_label, -1);
    assert_int_equal(f.max_label, -1);
    const char *const bad[] = {"",         "min-side",           "min-side=",      "min-side=-1",
                               "side=3",   "max-aspect=.5",      "max-aspect=1e9", "captions=5..1",
                               "label=..", "label=1...2",        "min-side=1,",    "captions=x",
                               "label=1 ", "captions=4294967296"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err = {0};
        struct loader_filter before = f;
        assert_status(loader_filter_parse(&f, bad[i], &err), STATUS_USAGE, err);
        assert_memory_equal(&f, &before, sizeof(f));
    }
}

TEST(every_field_of_a_filter_changes_its_hash) {
    const char *const texts[] = {"min-side=2",   "max-aspect=2",      "captions=2..",
                                 "captions=..2", "caption-bytes=2..", "caption-bytes=..2",
                                 "label=2..",    "label=..2",         "max-aspect=2.001"};
    enum { COUNT = sizeof(texts) / sizeof(texts[0]) };
    uint64_t hashes[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        struct loader_filter f = parse_filter(texts[i]);
        hashes[i] = filter_hash(&f);
        assert_true(hashes[i] != 0);
        for (size_t k = 0; k < i; k++) {
            assert_true(hashes[k] != hashes[i]);
        }
    }
}

static bool takes(const char *text, struct dataset_sample s) {
    struct loader_filter f = parse_filter(text);
    return filter_passes_record(&f, &s);
}

TEST(filter_passes_samples_within_its_ranges) {
    struct dataset_sample s = {.width_px = 300, .height_px = 100, .text_count = 2, .label = 7};
    struct dataset_sample unknown = {.label = SHARD_NO_LABEL};
    assert_true(takes("min-side=100", s) && !takes("min-side=101", s));
    assert_true(takes("max-aspect=3", s) && !takes("max-aspect=2.999", s));
    assert_true(takes("captions=2", s) && !takes("captions=3..", s) && !takes("captions=..1", s));
    assert_true(takes("label=7", s) && !takes("label=8..", s) && !takes("label=..6", s));
    assert_true(takes("min-side=0", unknown) && !takes("min-side=1", unknown));
    assert_true(!takes("max-aspect=100", unknown) && !takes("label=0..", unknown));
    struct loader_filter f = parse_filter("caption-bytes=3..5");
    assert_true(filter_passes_record(&f, &s)); /* captions are asked about one by one */
    assert_true(!filter_passes_caption_bytes(&f, 2) && filter_passes_caption_bytes(&f, 3));
    assert_true(filter_passes_caption_bytes(&f, 5) && !filter_passes_caption_bytes(&f, 6));
}
