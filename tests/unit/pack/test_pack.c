#include "pack/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "pack/run/keys_internal.h"
#include "tests/support/file_memory.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

/* A tar of `count` images; every `bad_step`th has no caption (0: none). */
static const char *make_tar(const char *name, int count, int bad_step) {
    const char *path = test_temp_path("%s", name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    struct byte_buffer jpeg = {0};
    struct error err = {0};
    uint8_t pixels[24 * 40 * 3];
    struct image_view view = {pixels, 40, 24, sizeof(pixels) / 24};
    for (int i = 0; i < count; i++) {
        struct rng rng;
        char member[32];
        char text[32];
        rng_init(&rng, (uint64_t)i, RNG_INIT, 0, 0);
        for (size_t k = 0; k < sizeof(pixels); k++) {
            pixels[k] = (uint8_t)rng_below(&rng, 256);
        }
        jpeg.size_bytes = 0;
        assert_ok(image_encode_jpeg(&jpeg, &view, 90, &err), err);
        snprintf(member, sizeof(member), "%03d.jpg", i);
        assert_true(tar_write_file(f, member, jpeg.data, jpeg.size_bytes));
        if (bad_step == 0 || i % bad_step != 0) {
            snprintf(member, sizeof(member), "%03d.txt", i);
            int n = snprintf(text, sizeof(text), "caption %d", i);
            assert_true(tar_write_file(f, member, text, (size_t)n));
        }
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    byte_buffer_fini(&jpeg);
    return path;
}

static struct pack_options options(const char *directory, const char *const *sources, size_t n) {
    struct pack_options o;
    pack_options_default(&o);
    o.directory = directory;
    o.sources = sources;
    o.source_count = n;
    o.jobs = 3;
    return o;
}

TEST(max_bad_is_parsed) {
    struct pack_max_bad m;
    assert_int_equal(pack_parse_max_bad(&m, "20", NULL), STATUS_OK);
    assert_true(m.percent < 0 && m.rows == 20);
    assert_int_equal(pack_parse_max_bad(&m, "2.5%", NULL), STATUS_OK);
    assert_true(m.percent == 2.5);
    static const char *const wrong[] = {"",    "%",   "x",   "-1",   "101%",
                                        "1.5", "5%%", "1%2", "0x5%", "."};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(pack_parse_max_bad(&m, wrong[i], NULL), STATUS_USAGE);
    }
}

TEST(keys_become_safe) {
    char out[SHARD_MAX_KEY_BYTES + 1];
    static const char *const keys[] = {"", "a.b/c d", "\xE1\xBA\xA3nh", "\x01\x7F\\", "ok-1_2"};
    static const char *const want[] = {"_", "a_b_c_d", "___nh", "___", "ok-1_2"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        pack_keys_make(out, keys[i], 0, 0);
        assert_string_equal(out, want[i]);
        assert_true(shard_key_is_valid(out));
    }
    char longest[300];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[298] = 'y';
    longest[299] = '\0';
    pack_keys_make(out, longest, 0, 0);
    assert_int_equal(strlen(out), SHARD_MAX_KEY_BYTES);
    assert_int_equal(out[SHARD_MAX_KEY_BYTES - 1], 'y');
}

TEST(ids_are_rows_over_all_sources) {
    char first[256], second[256], directory[256];
    snprintf(first, sizeof(first), "%s", make_tar("first.tar", 10, 3)); /* 0 3 6 9 are bad */
    snprintf(second, sizeof(second), "%s", make_tar("second.tar", 5, 0));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {first, second};
    struct pack_options o = options(directory, sources, 2);
    o.max_bad = (struct pack_max_bad){.rows = 4, .percent = -1};
    o.shard_samples = 4;
    struct pack_summary sum;
    struct error err = {0};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(sum.is_dataset);
    assert_int_equal(sum.samples, 11);
    assert_int_equal(sum.rejected_by[REASON_CAPTION_MISSING], 4);
    assert_int_equal(sum.shards, 3);

    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, directory, NULL, &err), err);
    static const uint64_t ids[] = {1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14};
    struct dataset_sample s;
    for (uint64_t i = 0; i < 11; i++) {
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.sample_id, ids[i]);
        assert_int_equal(s.width_px, 40);
        assert_int_equal(s.flags, 0);
    }
    const struct manifest *m = dataset_manifest(d);
    assert_int_equal(m->source_count, 2);
    assert_string_equal(m->sources[0].name, "first.tar");
    assert_int_equal(m->sources[0].rows, 10);
    assert_true(dataset_fingerprint(d) == sum.fingerprint);
    dataset_close(d);
}

TEST(resizing_never_enlarges) {
    char source[256], directory[256];
    snprintf(source, sizeof(source), "%s", make_tar("a.tar", 3, 0));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {source};
    static const int32_t sides[] = {16, 24, 100};
    static const uint32_t widths[] = {27, 40, 40};
    for (int i = 0; i < 3; i++) {
        struct pack_options o = options(directory, sources, 1);
        struct pack_summary sum;
        struct error err = {0};
        o.resize = (struct pack_resize){PACK_RESIZE_SHORT, sides[i], 0};
        o.overwrite = true;
        assert_ok(pack_run(&o, &sum, &err), err);
        struct dataset *d = NULL;
        struct dataset_sample s;
        assert_ok(dataset_open(&d, directory, NULL, &err), err);
        assert_ok(dataset_sample_at(d, 2, &s, &err), err);
        assert_int_equal(s.width_px, widths[i]);
        assert_int_equal(s.height_px, sides[i] < 24 ? sides[i] : 24);
        assert_int_equal(s.flags, SHARD_FLAG_REENCODED);
        dataset_close(d);
    }
}

TEST(too_many_bad_rows_stop_the_run_at_the_same_row) {
    char source[256], directory[256];
    snprintf(source, sizeof(source), "%s", make_tar("a.tar", 60, 5)); /* 0 5 10 .. */
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {source};
    for (uint32_t jobs = 1; jobs <= 4; jobs += 3) {
        struct pack_options o = options(directory, sources, 1);
        struct pack_summary sum;
        struct error err = {0};
        o.jobs = jobs;
        o.overwrite = true;
        o.max_bad = (struct pack_max_bad){.rows = 3, .percent = -1};
        assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
        assert_int_equal(sum.rows, 16);
        assert_int_equal(sum.samples, 12);
        assert_true(sum.is_dataset);
        struct dataset *d = NULL;
        assert_ok(dataset_open(&d, directory, NULL, &err), err);
        assert_int_equal(dataset_sample_count(d), 12);
        assert_int_equal(dataset_manifest(d)->sources[0].rows, 16);
        dataset_close(d);
    }
}

static void keep_share(void *cookie, const struct pack_progress *p) {
    double *last = cookie;
    assert_true(p->done >= *last && p->done <= 1);
    *last = p->done;
}

TEST(progress_knows_the_share_of_files) {
    char first[256], second[256], directory[256];
    snprintf(first, sizeof(first), "%s", make_tar("a.tar", 30, 0));
    snprintf(second, sizeof(second), "%s", make_tar("b.tar", 10, 0));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {first, second};
    struct pack_options o = options(directory, sources, 2);
    struct pack_summary sum;
    struct error err = {0};
    double last = 0;
    o.progress = keep_share;
    o.cookie = &last;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(last > 0.9);
}

struct stopper {
    uint64_t after;
    uint64_t seen;
};

static void count_samples(void *cookie, const struct pack_progress *p) {
    struct stopper *s = cookie;
    __atomic_store_n(&s->seen, p->samples, __ATOMIC_RELAXED);
}

static bool enough(void *cookie) {
    struct stopper *s = cookie;
    return __atomic_load_n(&s->seen, __ATOMIC_RELAXED) >= s->after;
}

TEST(stopping_leaves_a_valid_partial_dataset) {
    char source[256], directory[256];
    snprintf(source, sizeof(source), "%s", make_tar("a.tar", 60, 0));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {source};
    struct pack_options o = options(directory, sources, 1);
    struct stopper stopper = {.after = 25};
    struct pack_summary sum;
    struct error err = {0};
    o.shard_samples = 10;
    o.interrupted = enough;
    o.progress = count_samples;
    o.cookie = &stopper;
    assert_status(pack_run(&o, &sum, &err), STATUS_INTERRUPTED, err);
    assert_true(sum.is_dataset);
    assert_int_equal(sum.shards, 3); /* the third holds what there was */
    assert_true(sum.samples >= 25 && sum.samples < 60);
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, directory, NULL, &err), err);
    assert_int_equal(dataset_sample_count(d), sum.samples);
    const struct manifest *m = dataset_manifest(d);
    assert_int_equal(m->sources[0].rows, sum.rows);
    assert_string_equal(m->options[m->option_count - 1].name, "partial");
    assert_true(dataset_fingerprint(d) == sum.fingerprint);
    dataset_close(d);
    assert_false(file_any_temporary(file_posix(), test_temp_path("out"), false));
    memset(&err, 0, sizeof(err));
    o.interrupted = NULL;
    assert_status(pack_run(&o, &sum, &err), STATUS_EXISTS, err);
    o.overwrite = true;
    memset(&err, 0, sizeof(err));
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, 60);
}

TEST(stopping_before_the_first_sample_leaves_an_empty_directory) {
    char source[256], directory[256];
    snprintf(source, sizeof(source), "%s", make_tar("a.tar", 4, 0));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    const char *sources[] = {source};
    struct pack_options o = options(directory, sources, 1);
    struct stopper stopper = {0};
    struct pack_summary sum;
    struct error err = {0};
    o.interrupted = enough;
    o.cookie = &stopper;
    assert_status(pack_run(&o, &sum, &err), STATUS_INTERRUPTED, err);
    assert_false(sum.is_dataset);
    o.interrupted = NULL;
    memset(&err, 0, sizeof(err));
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, 4);
}
