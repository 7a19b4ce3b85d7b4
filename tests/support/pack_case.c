#include "tests/support/pack_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { MAX_FILE_BYTES = 256 << 20, MAX_SIDE_PX = 4096 };

void pack_case_jpeg(struct byte_buffer *jpeg, int number, int32_t width_px, int32_t height_px) {
    struct error err = {0};
    size_t bytes = (size_t)width_px * (size_t)height_px * 3;
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    struct rng rng;
    rng_init(&rng, (uint64_t)number, RNG_INIT, 0, 0);
    for (size_t i = 0; i < bytes; i++) {
        pixels[i] = (uint8_t)rng_below(&rng, 256);
    }
    struct image_view view = {pixels, width_px, height_px, (size_t)width_px * 3};
    jpeg->size_bytes = 0;
    assert_ok(image_encode_jpeg(jpeg, &view, 80, &err), err);
    free(pixels);
}

const char *pack_case_tar(const char *name, const struct pack_case_tar *how) {
    const char *path = test_temp_path("%s", name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    struct byte_buffer jpeg = {0};
    int side_px = how->side_px > 0 ? how->side_px : 16;
    assert_true(side_px <= MAX_SIDE_PX);
    for (int i = 0; i < how->rows; i++) {
        char member[32];
        char text[32];
        int number = how->first + i;
        bool same = how->same_step > 0 && i % how->same_step == 0;
        pack_case_jpeg(&jpeg, same ? how->first : number, side_px, side_px);
        snprintf(member, sizeof(member), "%06d.jpg", number);
        assert_true(tar_write_file(f, member, jpeg.data, jpeg.size_bytes));
        if (how->bad_step == 0 || i % how->bad_step != how->bad_step - 1) {
            snprintf(member, sizeof(member), "%06d.txt", number);
            int n = snprintf(text, sizeof(text), "caption %d", number);
            assert_true(tar_write_file(f, member, text, (size_t)n));
        }
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    byte_buffer_fini(&jpeg);
    return path;
}

struct pack_options pack_case_options(const struct file_system *fs,
                                      const char *directory,
                                      const char *const *sources,
                                      size_t source_count) {
    struct pack_options o;
    pack_options_default(&o);
    if (fs) {
        o.fs = fs;
    }
    o.directory = directory;
    o.sources = sources;
    o.source_count = source_count;
    o.jobs = 2;
    o.shard_samples = 4;
    o.max_bad = (struct pack_max_bad){.percent = 100};
    return o;
}

bool pack_case_exists(const struct file_system *fs, const char *directory, const char *name) {
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    bool exists = false;
    assert_ok(path_join(path, sizeof(path), directory, name, &err), err);
    assert_ok(fs->exists(fs->context, path, &exists, &err), err);
    return exists;
}

static void
list_files(struct byte_buffer *names, const struct file_system *fs, const char *directory) {
    struct error err = {0};
    byte_buffer_init(names, 0);
    assert_ok(fs->list(fs->context, directory, names, &err), err);
}

static void read_named(struct byte_buffer *out,
                       const struct file_system *fs,
                       const char *directory,
                       const char *name) {
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    assert_ok(path_join(path, sizeof(path), directory, name, &err), err);
    assert_ok(file_read_all(fs, out, path, MAX_FILE_BYTES, &err), err);
}

void pack_case_copy(const struct file_system *from_fs,
                    const char *from,
                    const struct file_system *to_fs,
                    const char *to) {
    struct error err = {0};
    struct byte_buffer names;
    list_files(&names, from_fs, from);
    assert_ok(to_fs->make_directory(to_fs->context, to, &err), err);
    const char *name = (const char *)names.data;
    for (size_t at = 0; at < names.size_bytes; at += strlen(name + at) + 1) {
        struct byte_buffer content;
        char path[PATH_MAX_BYTES];
        read_named(&content, from_fs, from, name + at);
        assert_ok(path_join(path, sizeof(path), to, name + at, &err), err);
        assert_ok(file_write_atomic(to_fs, path, content.data, content.size_bytes, &err), err);
        byte_buffer_fini(&content);
    }
    assert_ok(to_fs->sync_directory(to_fs->context, ".", &err), err);
    byte_buffer_fini(&names);
}

/* Every file of `a` is in `b` with the same bytes. */
static bool is_within(const struct file_system *a_fs,
                      const char *a,
                      const struct file_system *b_fs,
                      const char *b,
                      bool bytes) {
    struct byte_buffer names;
    bool equal = true;
    list_files(&names, a_fs, a);
    const char *name = (const char *)names.data;
    for (size_t at = 0; at < names.size_bytes; at += strlen(name + at) + 1) {
        if (!pack_case_exists(b_fs, b, name + at)) {
            print_error("%s is in %s alone\n", name + at, a);
            equal = false;
            continue;
        }
        struct byte_buffer x, y;
        if (bytes) {
            read_named(&x, a_fs, a, name + at);
            read_named(&y, b_fs, b, name + at);
            if (x.size_bytes != y.size_bytes ||
                (x.size_bytes > 0 && memcmp(x.data, y.data, x.size_bytes) != 0)) {
                print_error("%s differs: %zu and %zu bytes\n", name + at, x.size_bytes,
                            y.size_bytes);
                equal = false;
            }
            byte_buffer_fini(&x);
            byte_buffer_fini(&y);
        }
    }
    byte_buffer_fini(&names);
    return equal;
}

bool pack_case_equal(const struct file_system *a_fs,
                     const char *a,
                     const struct file_system *b_fs,
                     const char *b) {
    bool forth = is_within(a_fs, a, b_fs, b, true);
    return is_within(b_fs, b, a_fs, a, false) && forth;
}

uint64_t pack_case_verify(const struct file_system *fs, const char *directory) {
    struct error err = {0};
    struct dataset *d = NULL;
    uint64_t print = 0;
    if (!pack_case_exists(fs, directory, MANIFEST_NAME)) {
        return 0;
    }
    assert_ok(dataset_open(&d, directory, fs, &err), err);
    const struct manifest *m = dataset_manifest(d);
    for (uint32_t i = 0; i < dataset_shard_count(d); i++) {
        struct shard_verify how = {.expected = &m->shards[i]};
        assert_ok(shard_verify(fs, dataset_shard_path(d, i), &how, &err), err);
    }
    assert_ok(dataset_compute_fingerprint(d, &print, &err), err);
    assert_true(print == dataset_fingerprint(d));
    dataset_close(d);
    return print;
}
