/*
 * Packing stays below 256 MiB and 64 MiB for each job, whatever the images and captions are. The
 * run is a process of its own, so that what it took at most is known.
 */
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

/* A smooth image, with `padding` bytes after its end. */
static void make_image(const char *name, int32_t width_px, int32_t height_px, size_t padding) {
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
    test_write_file(test_temp_path("%s", name), jpeg.data, jpeg.size_bytes + padding);
    byte_buffer_fini(&jpeg);
}

/* Rows that name the images 0.jpg to (images - 1).jpg in turn. */
static const char *make_table(int images, int rows, const char *caption) {
    const char *path = test_temp_path("a.tsv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("caption\tpath\n", f);
    for (int i = 0; i < rows; i++) {
        fprintf(f, "%s %d\t%d.jpg\n", caption, i, i % images);
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

TEST(large_images_take_turns) {
    skip_under_sanitizers();
    make_image("0.jpg", 6000, 4000, 0);
    const char *sources[] = {make_table(1, 8, "large")};
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    o.resize = (struct pack_resize){PACK_RESIZE_LONG, 3400, 0}; /* decoded at full size */
    o.grouping = SOURCE_GROUP_NEVER;
    o.jobs = 8;
    expect_bounded(&o, 8);
}

/* The long files are soon read, and wait for the large image before them to be resized. Sizes
 * differ, so that what malloc keeps of one is of no use for the next. */
TEST(long_files_wait_for_a_slow_row_before_them) {
    enum { IMAGES = 9 };
    skip_under_sanitizers();
    make_image("0.jpg", 5000, 4000, 0);
    for (int i = 1; i < IMAGES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.jpg", i);
        make_image(name, 64 * i, 64, (size_t)(60 - 3 * i) << 20);
    }
    const char *sources[] = {make_table(IMAGES, 2 * IMAGES, "mixed")};
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    o.resize = (struct pack_resize){PACK_RESIZE_LONG, 2600, 0};
    o.jobs = 2;
    expect_bounded(&o, 2 * IMAGES);
}

TEST(captions_of_a_shard_end_it) {
    enum { CAPTION_BYTES = 200 << 10, ROWS = 200 };
    char *caption = malloc(CAPTION_BYTES + 1);
    assert_non_null(caption);
    memset(caption, 'x', CAPTION_BYTES);
    caption[CAPTION_BYTES] = '\0';
    make_image("0.jpg", 64, 64, 0);
    const char *sources[] = {make_table(1, ROWS, caption)};
    free(caption);
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), sources, 1);
    struct pack_summary sum;
    struct error err = {0};
    o.grouping = SOURCE_GROUP_NEVER;
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
