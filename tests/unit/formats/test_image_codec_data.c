/*
 * The image codec on real and on hostile images.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tests/support/tar.h"
#include "tests/support/test.h"

static struct image_decoder *make_decoder(void) {
    struct error err = {0};
    struct image_decoder *d;
    assert_ok(image_decoder_create(&d, NULL, &err), err);
    return d;
}

static bool
find_file(const uint8_t *archive, size_t size_bytes, const char *name, struct test_tar_file *f) {
    struct test_tar tar;
    test_tar_init(&tar, archive, size_bytes);
    while (test_tar_next(&tar, f)) {
        if (strcmp(f->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t hash_view(const struct image_view *v) {
    struct hasher *h;
    struct error err = {0};
    assert_ok(hasher_create(&h, &err), err);
    for (int32_t y = 0; y < v->height_px; y++) {
        hasher_update(h, v->data + (size_t)y * v->stride_bytes, (size_t)v->width_px * 3);
    }
    uint64_t value = hasher_value(h);
    hasher_destroy(h);
    return value;
}

/* Compares one archive's lines of decode.tsv. */
static int check_golden(const char *archive) {
    size_t size_bytes, golden_bytes;
    uint8_t *tar = test_read_file(test_data_path(archive), &size_bytes);
    char *golden =
        (char *)test_read_file(test_source_path("tests/golden/images/decode.tsv"), &golden_bytes);
    struct image_decoder *d = make_decoder();
    int seen = 0;
    int different = 0;
    for (char *line = strtok(golden, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char where[64], name[128];
        int width, height;
        uint64_t hash;
        assert_int_equal(
            sscanf(line, "%63s\t%127s\t%d\t%d\t%" SCNx64, where, name, &width, &height, &hash), 5);
        if (strcmp(where, archive) != 0) {
            continue;
        }
        struct test_tar_file f;
        assert_true(find_file(tar, size_bytes, name, &f));
        struct image_view v = {0};
        struct image_info info;
        struct error err = {0};
        assert_ok(image_probe(&info, f.data, f.size_bytes, NULL, &err), err);
        enum status s = image_decode(d, &v, NULL, f.data, f.size_bytes, NULL, &err);
        if (s != STATUS_OK || v.width_px != width || v.height_px != height ||
            info.width_px != width || info.height_px != height || hash_view(&v) != hash) {
            print_message("%s: %s, %d x %d, Pillow has %d x %d %s\n", name, status_name(s),
                          (int)v.width_px, (int)v.height_px, width, height, err.text);
            different++;
        }
        seen++;
    }
    assert_int_equal(different, 0);
    image_decoder_destroy(d);
    free(tar);
    free(golden);
    return seen;
}

TEST(photographs_decode_as_in_pillow) {
    assert_true(check_golden("raw/images.tar") >= 190);
}

TEST(odd_images_decode_as_in_pillow) {
    assert_true(check_golden("hostile/files.tar") >= 50);
}

/* What the manifest's code allows a decoder that does not accept partial images to say. */
static bool allowed(char code, enum status s, enum image_format format) {
    bool known = format != IMAGE_FORMAT_UNKNOWN;
    switch (code) {
    case 'D': /* decode */
    case 'G':
    case 'C':
    case 'O':
        return s == STATUS_OK;
    case 'T': /* truncated or damaged: some are complete, but none is accepted silently */
        return s == STATUS_OK || s == STATUS_CORRUPT || (!known && s == STATUS_UNSUPPORTED);
    case 'F': /* no JPEG */
        return known ? s == STATUS_OK : s == STATUS_UNSUPPORTED;
    case 'X': /* rare coding */
        return s == STATUS_OK || s == STATUS_UNSUPPORTED;
    case 'L': /* very large */
        return s == STATUS_OK || s == STATUS_LIMIT;
    default: /* R: refuse */
        return s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED;
    }
}

TEST(hostile_files_get_the_answer_of_the_manifest) {
    size_t size_bytes, manifest_bytes;
    uint8_t *archive = test_read_file(test_data_path("hostile/files.tar"), &size_bytes);
    char *manifest =
        (char *)test_read_file(test_data_path("hostile/manifest.tsv"), &manifest_bytes);
    struct image_decoder *d = make_decoder();
    int seen = 0;
    char *rest = NULL;
    strtok_r(manifest, "\n", &rest);
    for (char *line = strtok_r(NULL, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *cell = NULL;
        char name[160];
        snprintf(name, sizeof(name), "files/%s", strtok_r(line, "\t", &cell));
        char code = 0;
        for (int i = 1; i < 7; i++) {
            code = *strtok_r(NULL, "\t", &cell);
        }
        struct test_tar_file f;
        assert_true(find_file(archive, size_bytes, name, &f));
        struct image_view v;
        struct image_info info;
        struct error err = {0};
        struct image_decode_options check = {.check_only = true};
        enum status probed = image_probe(&info, f.data, f.size_bytes, NULL, NULL);
        enum status checked = image_decode(d, &v, NULL, f.data, f.size_bytes, &check, NULL);
        enum status s = image_decode(d, &v, NULL, f.data, f.size_bytes, NULL, &err);
        assert_int_equal(checked, s);
        if (s == STATUS_OK) {
            assert_int_equal(probed, STATUS_OK);
            assert_true(info.width_px == v.width_px && info.height_px == v.height_px);
            assert_true(image_decode_memory_bytes(&info, NULL) < (UINT64_C(64) << 20));
        }
        enum image_format format = image_format_of(f.data, f.size_bytes);
        /* Its manifest line speaks of the EXIF, but the image is noise: see make_decode.py. */
        bool exempt = strstr(name, "hopper_bad_exif") != NULL && s == STATUS_CORRUPT;
        if (!allowed(code, s, format) && !exempt) {
            fail_msg("%s: code %c, got %s: %s", name, code, status_name(s), err.text);
        }
        assert_true((s == STATUS_OK) == (v.data != NULL));
        seen++;
    }
    assert_int_equal(seen, 93);
    image_decoder_destroy(d);
    free(archive);
    free(manifest);
}

TEST(damage_that_libjpeg_lets_pass_is_found) {
    static const char *const names[] = {
        "files/photo1_cut10.jpg",       "files/photo1_cut50.jpg",
        "files/photo1_cut90.jpg",       "files/photo1_scanbits.jpg",
        "files/photo1_headbits.jpg",    "files/photo1_zeros.jpg",
        "files/libvips__truncated.jpg", "files/exif-samples__corrupted.jpg"};
    size_t size_bytes;
    uint8_t *archive = test_read_file(test_data_path("hostile/files.tar"), &size_bytes);
    struct image_decoder *d = make_decoder();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct test_tar_file f;
        struct image_view v;
        struct error err = {0};
        struct image_decode_options partial = {.accept_partial = true};
        assert_true(find_file(archive, size_bytes, names[i], &f));
        assert_status(image_decode(d, &v, NULL, f.data, f.size_bytes, NULL, &err), STATUS_CORRUPT,
                      err);
        assert_null(v.data);
        assert_ok(image_decode(d, &v, NULL, f.data, f.size_bytes, &partial, &err), err);
        assert_non_null(v.data);
    }
    image_decoder_destroy(d);
    free(archive);
}

/* Decodes a copy of the exact size, whole and in part, and looks at every byte of the answer. */
static void
decode_mutant(struct image_decoder *d, const uint8_t *data, size_t size_bytes, struct rng *rng) {
    uint8_t *copy = malloc(size_bytes > 0 ? size_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, size_bytes);
    struct image_info info;
    (void)image_probe(&info, copy, size_bytes, NULL, NULL);
    struct image_decode_options opt = {.accept_partial = rng_below(rng, 2) == 0};
    if (info.width_px > 0 && rng_below(rng, 2) == 0) {
        opt.region.x = (int32_t)rng_below(rng, (uint32_t)info.width_px);
        opt.region.y = (int32_t)rng_below(rng, (uint32_t)info.height_px);
        opt.region.width = info.width_px - opt.region.x;
        opt.region.height = 1 + (info.height_px - opt.region.y) / 2;
        opt.min_width_px = opt.min_height_px = 1 + (int32_t)rng_below(rng, 64);
    }
    struct image_view v;
    struct image_box box;
    enum status s = image_decode(d, &v, &box, copy, size_bytes, &opt, NULL);
    if (s == STATUS_OK) {
        assert_true(box.x >= 0 && box.y >= 0 && box.width > 0 && box.height > 0);
        assert_true(box.x + box.width <= v.width_px && box.y + box.height <= v.height_px);
        (void)hash_view(&v);
    } else {
        assert_null(v.data);
    }
    free(copy);
}

TEST(truncated_and_flipped_files_never_crash) {
    size_t size_bytes;
    uint8_t *archive = test_read_file(test_data_path("hostile/files.tar"), &size_bytes);
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_pixels = 4 << 20;
    limits.max_memory_bytes = 64 << 20;
    struct image_decoder *d;
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_INIT, 0, 0);
    int mutants = test_sanitizer()[0] != 0 ? 8 : 25;
    struct test_tar tar;
    struct test_tar_file f;
    test_tar_init(&tar, archive, size_bytes);

    while (test_tar_next(&tar, &f)) {
        if (f.size_bytes == 0 || f.size_bytes > 60000) {
            continue;
        }
        uint8_t *mutant = malloc(f.size_bytes);
        assert_non_null(mutant);
        for (int i = 0; i < mutants; i++) {
            memcpy(mutant, f.data, f.size_bytes);
            /* Half of the flips hit the headers, where they do the most. */
            uint32_t range = (uint32_t)f.size_bytes;
            range = i % 2 == 0 && range > 1000 ? 1000 : range;
            for (uint32_t k = rng_below(&rng, 6); k > 0; k--) {
                mutant[rng_below(&rng, range)] = (uint8_t)rng_u32(&rng);
            }
            size_t kept = i % 3 == 0 ? rng_below(&rng, (uint32_t)f.size_bytes) : f.size_bytes;
            decode_mutant(d, mutant, kept, &rng);
        }
        free(mutant);
    }

    image_decoder_destroy(d);
    free(archive);
}
