/*
 * Packing stays below 256 MiB and 64 MiB for each job, whatever the pictures and captions are. The
 * run is a process of its own, so that what it took at most is known.
 *
 * test-timeout: 120
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/dataset/dataset.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

/* What a run with these options takes at most, in MiB; it must make `samples` samples. */
static long peak_mib(const struct pack_options *o, uint64_t samples) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct pack_summary sum;
        struct error err = {0};
        mallopt(M_MMAP_THRESHOLD, 1 << 20); /* as ccpack does */
        enum status s = pack_run(o, &sum, &err);
        if (s != STATUS_OK || sum.samples != samples) {
            print_error("%s: %llu samples, %llu rejected: %s\n", status_name(s),
                        (unsigned long long)sum.samples, (unsigned long long)sum.rejected,
                        err.text);
        }
        _exit(s == STATUS_OK && sum.samples == samples ? 0 : 1);
    }
    int status = 0;
    struct rusage used;
    assert_true(wait4(child, &status, 0, &used) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return used.ru_maxrss / 1024;
}

static void expect_bounded(const struct pack_options *o, uint64_t samples) {
    long peak = peak_mib(o, samples);
    long limit = 256 + 64 * (long)o->jobs;
    print_message("%ld MiB with %u jobs, the limit is %ld\n", peak, o->jobs, limit);
    assert_true(peak < limit);
}

static void skip_under_sanitizers(void) {
    if (test_sanitizer()[0] != '\0') {
        test_skip("the sanitizer's own memory counts");
    }
}

/* A smooth picture, `padding` bytes of anything behind its end, and a table that names it. */
static const char *
make_table(int32_t width_px, int32_t height_px, size_t padding, int rows, const char *caption) {
    struct byte_buffer jpeg = {0};
    struct error err = {0};
    size_t stride = (size_t)width_px * 3;
    uint8_t *pixels = malloc(stride * (size_t)height_px);
    assert_non_null(pixels);
    for (size_t y = 0; y < (size_t)height_px; y++) {
        for (size_t x = 0; x < stride; x++) {
            pixels[y * stride + x] = (uint8_t)((x / 24 + y / 8) & 0xFF);
        }
    }
    struct image_view view = {pixels, width_px, height_px, stride};
    assert_ok(image_encode_jpeg(&jpeg, &view, 60, &err), err);
    free(pixels);
    assert_ok(byte_buffer_reserve(&jpeg, padding, &err), err);
    memset(jpeg.data + jpeg.size_bytes, 0x55, padding);
    test_write_file(test_temp_path("a.jpg"), jpeg.data, jpeg.size_bytes + padding);
    byte_buffer_fini(&jpeg);
    const char *path = test_temp_path("a.tsv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("caption\tpath\n", f);
    for (int i = 0; i < rows; i++) {
        fprintf(f, "%s %d\ta.jpg\n", caption, i);
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

TEST(large_pictures_take_turns) {
    skip_under_sanitizers();
    const char *sources[] = {make_table(6000, 4000, 0, 8, "large")};
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    o.resize = (struct pack_resize){PACK_RESIZE_LONG, 3400, 0}; /* decoded at full size */
    o.jobs = 8;
    expect_bounded(&o, 8);
}

TEST(long_files_wait_for_each_other) {
    skip_under_sanitizers();
    const char *sources[] = {make_table(64, 64, 60 << 20, 5, "long")};
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    o.jobs = 1;
    expect_bounded(&o, 5);
}

TEST(captions_of_a_shard_end_it) {
    enum { CAPTION_BYTES = 200 << 10, ROWS = 200 };
    char *caption = malloc(CAPTION_BYTES + 1);
    assert_non_null(caption);
    memset(caption, 'x', CAPTION_BYTES);
    caption[CAPTION_BYTES] = '\0';
    const char *sources[] = {make_table(64, 64, 0, ROWS, caption)};
    free(caption);
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    struct pack_summary sum;
    struct error err = {0};
    o.shard_samples = 1000;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, ROWS);
    assert_int_equal(sum.shards, 3); /* 40 MiB of them, 16 MiB in each */
    if (test_sanitizer()[0] == '\0') {
        o.overwrite = true;
        o.jobs = 1;
        expect_bounded(&o, ROWS);
    }
}
