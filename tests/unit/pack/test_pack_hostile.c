/*
 * Odd and broken images through the packer: each one is packed or listed, as the set's manifest
 * allows, in bounded memory; and what is packed comes out of the loader.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "formats/image/image_codec.h"
#include "loader/loader.h"
#include "pack/pack.h"
#include "tests/support/tar.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { MAX_FILES = 128, JOBS = 2, MAX_MEMORY_MIB = 256 + 64 * JOBS };

/* One file of a set, and what became of it. Rows are in the order of the files. */
struct hostile_file {
    char name[160];
    char code; /* of the manifest */
    enum image_format format;
    uint64_t hash;
    bool packed, listed;
    char reason[40];
};

static void add_to_tar(FILE *tar, const char *name, const void *data, size_t size_bytes) {
    char text[200];
    size_t stem = strcspn(name, ".");
    snprintf(text, sizeof(text), "%.*s.txt", (int)stem, name);
    /* The caption first: a name that comes again begins another row, and many come again. */
    assert_true(tar_write_file(tar, text, "an odd image", 12));
    assert_true(tar_write_file(tar, name, data, size_bytes));
}

static struct pack_options pack_into(const char *directory, const char *const *source) {
    struct pack_options o;
    pack_options_default(&o);
    o.directory = directory;
    o.sources = source;
    o.source_count = 1;
    o.jobs = JOBS;
    o.overwrite = true;
    o.max_bad = (struct pack_max_bad){.percent = 100};
    return o;
}

static void read_packed(struct hostile_file *files, size_t count, const char *directory) {
    struct dataset *d = NULL;
    struct error err = {0};
    assert_ok(dataset_open(&d, directory, NULL, &err), err);
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_true(s.sample_id < count);
        assert_true(s.width_px > 0 && s.height_px > 0);
        struct hostile_file *f = &files[s.sample_id];
        f->packed = true;
        if ((s.flags & SHARD_FLAG_REENCODED) == 0) {
            assert_true(s.image_hash == f->hash);
            assert_int_equal(s.format, f->format);
        }
    }
    dataset_close(d);
}

static void read_rejects(struct hostile_file *files, size_t count, const char *directory) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", directory, PACK_REJECTS_NAME);
    size_t size_bytes;
    char *text = (char *)test_read_file(path, &size_bytes);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *row = strstr(line, "\"row\":");
        const char *reason = strstr(line, "\"reason\":");
        assert_true(row != NULL && reason != NULL);
        unsigned long long number = strtoull(row + 6, NULL, 10);
        assert_true(number < count && !files[number].listed);
        files[number].listed = true;
        assert_int_equal(sscanf(reason, "\"reason\":\"%39[^\"]\"", files[number].reason), 1);
    }
    free(text);
}

/* What the manifest's code allows. */
static bool allowed(const struct hostile_file *f) {
    bool damaged = strcmp(f->reason, "image-damaged") == 0;
    bool unsupported = strcmp(f->reason, "image-unsupported") == 0;
    /* Its manifest line speaks of the EXIF, but the image is noise: see make_decode.py. */
    if (strstr(f->name, "hopper_bad_exif") != NULL) {
        return damaged;
    }
    switch (f->code) {
    case 'D': /* decode */
    case 'G':
    case 'C':
    case 'O':
        return f->packed;
    case 'T': /* cut short or damaged */
        return f->packed || damaged;
    case 'F': /* no JPEG */
        return f->format != IMAGE_FORMAT_UNKNOWN ? f->packed : unsupported;
    case 'X': /* rare coding */
        return f->packed || unsupported;
    case 'L': /* very large */
        return f->packed || strcmp(f->reason, "image-limit") == 0;
    case 'R': /* refuse; what is no image by name or content is none that is missing */
        return damaged || unsupported || strcmp(f->reason, "image-missing") == 0;
    default:
        return false;
    }
}

static void check_outcome(const struct hostile_file *files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct hostile_file *f = &files[i];
        if (f->packed == f->listed) {
            fail_msg("%s is %s", f->name, f->packed ? "packed and listed" : "lost");
        }
        if (!allowed(f)) {
            fail_msg("%s: code %c, %s %s", f->name, f->code, f->packed ? "packed" : "rejected as",
                     f->reason);
        }
    }
}

/* All files of the set with their codes, as a tar with captions. */
static size_t make_hostile_tar(struct hostile_file *files, const char *path) {
    size_t size_bytes, manifest_bytes;
    uint8_t *archive = test_read_file(test_data_path("hostile/files.tar"), &size_bytes);
    char *manifest =
        (char *)test_read_file(test_data_path("hostile/manifest.tsv"), &manifest_bytes);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    struct test_tar tar;
    struct test_tar_file f;
    size_t count = 0;
    test_tar_init(&tar, archive, size_bytes);
    while (test_tar_next(&tar, &f)) {
        const char *name = strrchr(f.name, '/') + 1;
        char line[200];
        snprintf(line, sizeof(line), "\n%s\t", name);
        const char *cell = strstr(manifest, line);
        assert_true(cell != NULL && count < MAX_FILES);
        struct hostile_file *h = &files[count++];
        for (int i = 0; i < 6; i++) {
            cell = strchr(cell, '\t') + 1;
        }
        snprintf(h->name, sizeof(h->name), "%s", name);
        h->code = *cell;
        h->format = image_format_of(f.data, f.size_bytes);
        h->hash = hash64(f.data, f.size_bytes);
        add_to_tar(out, name, f.data, f.size_bytes);
    }
    assert_true(tar_write_end(out));
    assert_int_equal(fclose(out), 0);
    free(archive);
    free(manifest);
    return count;
}

TEST(hostile_files_are_packed_or_listed) {
    static struct hostile_file files[MAX_FILES], resized[MAX_FILES];
    char tar[512], directory[512];
    snprintf(tar, sizeof(tar), "%s", test_temp_path("hostile.tar"));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    size_t count = make_hostile_tar(files, tar);
    assert_int_equal(count, 93);
    memcpy(resized, files, sizeof(files));
    const char *source[] = {tar};
    struct pack_options o = pack_into(directory, source);
    struct pack_summary sum;
    struct error err = {0};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.rows, count);
    read_packed(files, count, directory);
    read_rejects(files, count, directory);
    check_outcome(files, count);
    print_message("%llu packed, %llu listed\n", (unsigned long long)sum.samples,
                  (unsigned long long)sum.rejected);
    /* A resize decodes more of each, and must find the same. */
    o.resize = (struct pack_resize){PACK_RESIZE_SHORT, 64, 0};
    assert_ok(pack_run(&o, &sum, &err), err);
    read_packed(resized, count, directory);
    read_rejects(resized, count, directory);
    check_outcome(resized, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(resized[i].packed, files[i].packed);
        assert_string_equal(resized[i].reason, files[i].reason);
    }
    struct rusage used;
    assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    print_message("at most %ld MiB\n", used.ru_maxrss / 1024);
    assert_true(test_sanitizer()[0] != 0 || used.ru_maxrss / 1024 < MAX_MEMORY_MIB);
}

/* Loads every sample of a dataset once; an image that does not decode ends the run. */
static void load_all(const char *directory, uint32_t count) {
    struct loader_options opt;
    loader_options_default(&opt);
    opt.batch_count = count;
    opt.image_size_px = 24;
    opt.threads = 2;
    opt.epochs = 3; /* each with crops of its own */
    opt.max_corrupt_count = 0;
    struct loader *l = NULL;
    struct error err = {0};
    assert_ok(loader_open(&l, directory, &opt, &err), err);
    for (int epoch = 0; epoch < 3; epoch++) {
        struct loader_batch batch;
        assert_ok(loader_acquire(l, &batch, &err), err);
        assert_int_equal(batch.count, count);
        assert_int_equal(batch.replaced_count, 0);
        loader_release(l, &batch);
    }
    loader_close(l);
}

TEST(webp_and_gif_go_from_a_tar_to_batches) {
    static const char *const names[] = {
        "webp/lossless_alpha.webp", "webp/lossy.webp",    "webp/lossy_alpha.webp",
        "webp/turned_6.webp",       "webp/animated.webp", "webp/animated_part_turned.webp",
        "gif/animated.gif",         "gif/interlaced.gif", "gif/part_of_screen.gif",
        "gif/beyond_screen.gif",    "gif/no_end.gif",     "gif/local_colours.gif"};
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    static struct hostile_file files[COUNT];
    char tar[512], directory[512];
    snprintf(tar, sizeof(tar), "%s", test_temp_path("images.tar"));
    snprintf(directory, sizeof(directory), "%s", test_temp_path("out"));
    FILE *out = fopen(tar, "wb");
    assert_non_null(out);
    for (size_t i = 0; i < COUNT; i++) {
        char path[256];
        size_t size_bytes;
        snprintf(path, sizeof(path), "tests/golden/images/%s", names[i]);
        uint8_t *data = test_read_file(test_source_path(path), &size_bytes);
        files[i].format = image_format_of(data, size_bytes);
        files[i].hash = hash64(data, size_bytes);
        add_to_tar(out, strchr(names[i], '/') + 1, data, size_bytes);
        free(data);
    }
    assert_true(tar_write_end(out));
    assert_int_equal(fclose(out), 0);
    const char *source[] = {tar};
    struct pack_options o = pack_into(directory, source);
    struct pack_summary sum;
    struct error err = {0};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, COUNT);
    read_packed(files, COUNT, directory);
    load_all(directory, COUNT);
    o.resize = (struct pack_resize){PACK_RESIZE_SHORT, 16, 0};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_int_equal(sum.samples, COUNT);
    load_all(directory, COUNT);
}
