#include "formats/image/image_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/tar.h"
#include "tests/support/test.h"

/* An image of smooth colours with some noise in it: every pixel differs from its neighbours. */
static struct image_view make_image(int32_t width_px, int32_t height_px, uint64_t seed) {
    struct image_view v = {
        .width_px = width_px, .height_px = height_px, .stride_bytes = (size_t)width_px * 3};
    v.data = malloc(v.stride_bytes * (size_t)height_px);
    assert_non_null(v.data);
    struct rng rng;
    rng_init(&rng, seed, RNG_INIT, 0, 0);
    for (int32_t y = 0; y < height_px; y++) {
        for (int32_t x = 0; x < width_px; x++) {
            uint8_t *p = v.data + (size_t)y * v.stride_bytes + (size_t)x * 3;
            p[0] = (uint8_t)(x * 255 / width_px);
            p[1] = (uint8_t)(y * 255 / height_px);
            p[2] = (uint8_t)(128 + (int32_t)rng_below(&rng, 40));
        }
    }
    return v;
}

static struct byte_buffer encode(const struct image_view *v, int32_t quality) {
    struct error err = {0};
    struct byte_buffer out;
    byte_buffer_init(&out, 0);
    assert_ok(image_encode_jpeg(&out, v, quality, &err), err);
    return out;
}

static struct image_decoder *make_decoder(void) {
    struct error err = {0};
    struct image_decoder *d;
    assert_ok(image_decoder_create(&d, NULL, &err), err);
    return d;
}

/* The decoded image as a copy without padding. */
static struct image_view decode_copy(struct image_decoder *d,
                                     const void *data,
                                     size_t size_bytes,
                                     const struct image_decode_options *opt) {
    struct error err = {0};
    struct image_view v;
    assert_ok(image_decode(d, &v, NULL, data, size_bytes, opt, &err), err);
    struct image_view copy = v;
    copy.stride_bytes = (size_t)v.width_px * 3;
    copy.data = malloc(copy.stride_bytes * (size_t)v.height_px);
    assert_non_null(copy.data);
    for (int32_t y = 0; y < v.height_px; y++) {
        memcpy(copy.data + (size_t)y * copy.stride_bytes, v.data + (size_t)y * v.stride_bytes,
               copy.stride_bytes);
    }
    return copy;
}

static const uint8_t *pixel(const struct image_view *v, int32_t x, int32_t y) {
    return v->data + (size_t)y * v->stride_bytes + (size_t)x * 3;
}

static double mean_difference(const struct image_view *a, const struct image_view *b) {
    assert_int_equal(a->width_px, b->width_px);
    assert_int_equal(a->height_px, b->height_px);
    double sum = 0;
    for (int32_t y = 0; y < a->height_px; y++) {
        for (int32_t i = 0; i < a->width_px * 3; i++) {
            sum += abs(pixel(a, 0, y)[i] - pixel(b, 0, y)[i]);
        }
    }
    return sum / ((double)a->width_px * a->height_px * 3);
}

/* Inserts an EXIF block with an orientation after the SOI. */
static struct byte_buffer with_orientation(const struct byte_buffer *jpeg, uint8_t orientation) {
    uint8_t exif[] = {0xFF, 0xE1, 0, 34, 'E', 'x',         'i', 'f', 0, 0,    'M', 'M',
                      0,    '*',  0, 0,  0,   8,           0,   1,   1, 0x12, 0,   3,
                      0,    0,    0, 1,  0,   orientation, 0,   0,   0, 0,    0,   0};
    struct byte_buffer out;
    byte_buffer_init(&out, 0);
    assert_int_equal(byte_buffer_append(&out, jpeg->data, 2, NULL), STATUS_OK);
    assert_int_equal(byte_buffer_append(&out, exif, sizeof(exif), NULL), STATUS_OK);
    assert_int_equal(byte_buffer_append(&out, jpeg->data + 2, jpeg->size_bytes - 2, NULL),
                     STATUS_OK);
    return out;
}

TEST(encode_and_decode_round_trip) {
    struct image_view in = make_image(131, 77, 1);
    struct byte_buffer jpeg = encode(&in, 90);
    struct byte_buffer again = encode(&in, 90);
    assert_int_equal(jpeg.size_bytes, again.size_bytes);
    assert_memory_equal(jpeg.data, again.data, jpeg.size_bytes);
    struct image_info info;
    struct error err = {0};
    assert_ok(image_probe(&info, jpeg.data, jpeg.size_bytes, NULL, &err), err);
    assert_int_equal(info.format, IMAGE_FORMAT_JPEG);
    assert_int_equal(info.width_px, 131);
    assert_int_equal(info.height_px, 77);
    assert_int_equal(info.components, 3);
    assert_int_equal(info.orientation, 1);
    assert_false(info.progressive);
    struct image_decoder *d = make_decoder();
    struct image_view out = decode_copy(d, jpeg.data, jpeg.size_bytes, NULL);
    assert_true(mean_difference(&in, &out) < 6.0);
    image_decoder_destroy(d);
    free(in.data);
    free(out.data);
    byte_buffer_fini(&jpeg);
    byte_buffer_fini(&again);
}

TEST(encode_appends_across_growth_and_keeps_size_on_failure) {
    struct image_view in = make_image(900, 700, 2);
    struct byte_buffer out;
    byte_buffer_init(&out, 0);
    assert_int_equal(byte_buffer_append(&out, "head", 4, NULL), STATUS_OK);
    assert_int_equal(image_encode_jpeg(&out, &in, 100, NULL), STATUS_OK);
    assert_memory_equal(out.data, "head\xFF\xD8", 6);
    assert_memory_equal(out.data + out.size_bytes - 2, "\xFF\xD9", 2);
    struct byte_buffer alone = encode(&in, 100);
    assert_int_equal(alone.size_bytes, out.size_bytes - 4);
    assert_memory_equal(alone.data, out.data + 4, alone.size_bytes);

    struct byte_buffer small;
    byte_buffer_init(&small, 100000);
    assert_int_equal(byte_buffer_append(&small, "head", 4, NULL), STATUS_OK);
    assert_int_equal(image_encode_jpeg(&small, &in, 100, NULL), STATUS_LIMIT);
    assert_int_equal(small.size_bytes, 4);
    byte_buffer_fini(&out);
    byte_buffer_fini(&alone);
    byte_buffer_fini(&small);
    free(in.data);
}

/* Where a stored pixel of a (w, h) image is looked at. */
static void
looked_at(int32_t o, int32_t w, int32_t h, int32_t x, int32_t y, int32_t *ox, int32_t *oy) {
    const int32_t table[9][2] = {{0, 0},         {x, y}, {w - 1 - x, y}, {w - 1 - x, h - 1 - y},
                                 {x, h - 1 - y}, {y, x}, {h - 1 - y, x}, {h - 1 - y, w - 1 - x},
                                 {y, w - 1 - x}};
    *ox = table[o][0];
    *oy = table[o][1];
}

TEST(all_orientations_are_applied) {
    struct image_view in = make_image(50, 37, 3);
    struct byte_buffer jpeg = encode(&in, 95);
    struct image_decoder *d = make_decoder();
    struct image_view stored = decode_copy(d, jpeg.data, jpeg.size_bytes, NULL);
    for (uint8_t o = 1; o <= 8; o++) {
        struct byte_buffer turned = with_orientation(&jpeg, o);
        struct image_info info;
        assert_int_equal(image_probe(&info, turned.data, turned.size_bytes, NULL, NULL), 0);
        assert_int_equal(info.orientation, o);
        assert_int_equal(info.width_px, o >= 5 ? 37 : 50);
        assert_int_equal(info.raw_width_px, 50);
        struct image_view out = decode_copy(d, turned.data, turned.size_bytes, NULL);
        assert_int_equal(out.width_px, info.width_px);
        assert_int_equal(out.height_px, info.height_px);
        for (int32_t y = 0; y < 37; y++) {
            for (int32_t x = 0; x < 50; x++) {
                int32_t ox, oy;
                looked_at(o, 50, 37, x, y, &ox, &oy);
                assert_memory_equal(pixel(&out, ox, oy), pixel(&stored, x, y), 3);
            }
        }
        /* A region of the turned image is that part of it. */
        struct image_decode_options opt = {.region = {5, 9, 21, 17}};
        struct image_view view;
        struct image_box box;
        assert_int_equal(image_decode(d, &view, &box, turned.data, turned.size_bytes, &opt, NULL),
                         STATUS_OK);
        assert_true(box.width == 21 && box.height == 17);
        for (int32_t y = 0; y < 17; y++) {
            assert_memory_equal(pixel(&view, (int32_t)box.x, (int32_t)box.y + y),
                                pixel(&out, 5, 9 + y), 21 * 3);
        }
        free(out.data);
        byte_buffer_fini(&turned);
    }
    free(stored.data);
    free(in.data);
    byte_buffer_fini(&jpeg);
    image_decoder_destroy(d);
}

/* PNG: eXIf may stand after the pixels, and may begin as in a JPEG. */
TEST(orientation_of_png_is_found_everywhere) {
    static const uint8_t exif[] = "\0\0\0\x20"
                                  "eXIf"
                                  "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06"
                                  "\0\0\0\0\0\0"
                                  "CRC?";
    struct image_view in = make_image(50, 37, 3);
    struct byte_buffer png;
    byte_buffer_init(&png, 0);
    assert_int_equal(image_encode_png(&png, &in, NULL), STATUS_OK);
    for (int k = 0; k < 4; k++) {
        const size_t at = k < 2 ? 33 : png.size_bytes - 12; /* after IHDR, before IEND */
        uint8_t chunk[44];
        size_t chunk_bytes = sizeof(chunk);
        memcpy(chunk, exif, sizeof(chunk));
        if (k % 2 == 1) { /* without "Exif" and two NULs */
            chunk[3] = 26;
            memmove(chunk + 8, chunk + 14, 30);
            chunk_bytes -= 6;
        }
        struct byte_buffer out;
        struct image_info info;
        byte_buffer_init(&out, 0);
        assert_int_equal(byte_buffer_append(&out, png.data, at, NULL), STATUS_OK);
        assert_int_equal(byte_buffer_append(&out, chunk, chunk_bytes, NULL), STATUS_OK);
        assert_int_equal(byte_buffer_append(&out, png.data + at, png.size_bytes - at, NULL),
                         STATUS_OK);
        assert_int_equal(image_probe(&info, out.data, out.size_bytes, NULL, NULL), STATUS_OK);
        assert_int_equal(info.orientation, 6);
        assert_int_equal(info.width_px, 37);
        byte_buffer_fini(&out);
    }
    byte_buffer_fini(&png);
    free(in.data);
}

TEST(as_stored_ignores_orientation_and_transparency) {
    /* Two pixels: 200, 40, 90 with alpha 0, and 10, 20, 30 with alpha 128. */
    static const uint8_t png[] = {
        0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44,
        0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00, 0x00, 0xF4,
        0x22, 0x7F, 0x8A, 0x00, 0x00, 0x00, 0x11, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9C, 0x63, 0x38,
        0xA1, 0x11, 0xC5, 0xC0, 0x25, 0x22, 0xD7, 0x00, 0x00, 0x0A, 0x9D, 0x02, 0x07, 0xFF, 0x2F,
        0x11, 0x09, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE, 0x42, 0x60, 0x82};
    static const uint8_t colours[] = {200, 40, 90, 10, 20, 30};
    const struct image_decode_options opt = {.as_stored = true};
    struct image_decoder *d = make_decoder();
    struct image_view out = decode_copy(d, png, sizeof(png), NULL);
    assert_memory_equal(out.data, "\xFF\xFF\xFF", 3);
    assert_int_equal(image_decoder_ignored(d), 0);
    free(out.data);
    out = decode_copy(d, png, sizeof(png), &opt);
    assert_memory_equal(out.data, colours, sizeof(colours));
    assert_int_equal(image_decoder_ignored(d), IMAGE_IGNORED_TRANSPARENCY);
    free(out.data);

    struct image_view in = make_image(50, 37, 3);
    struct byte_buffer jpeg = encode(&in, 95);
    struct image_view stored = decode_copy(d, jpeg.data, jpeg.size_bytes, &opt);
    assert_int_equal(image_decoder_ignored(d), 0);
    for (uint8_t o = 2; o <= 8; o++) {
        struct byte_buffer turned = with_orientation(&jpeg, o);
        out = decode_copy(d, turned.data, turned.size_bytes, &opt);
        assert_int_equal(image_decoder_ignored(d), IMAGE_IGNORED_ORIENTATION);
        assert_true(out.width_px == 50 && out.height_px == 37);
        assert_true(mean_difference(&out, &stored) == 0.0);
        free(out.data);
        byte_buffer_fini(&turned);
    }
    free(stored.data);
    free(in.data);
    byte_buffer_fini(&jpeg);
    image_decoder_destroy(d);
}

/* Pillow 13 reads C, M, Y, K = 200, 40, 90, 30 of this image as 49, 190, 146, with Adobe's marker
 * and, as here, without. */
TEST(cmyk_without_adobes_marker_is_read_as_with_it) {
    static const uint8_t jpeg[] =
        "\xff\xd8\xff\xdb\x00\x43\x00\x08\x06\x06\x07\x06\x05\x08\x07\x07\x07\x09\x09\x08\x0a\x0c"
        "\x14\x0d"
        "\x0c\x0b\x0b\x0c\x19\x12\x13\x0f\x14\x1d\x1a\x1f\x1e\x1d\x1a\x1c\x1c\x20\x24\x2e\x27\x20"
        "\x22\x2c"
        "\x23\x1c\x1c\x28\x37\x29\x2c\x30\x31\x34\x34\x34\x1f\x27\x39\x3d\x38\x32\x3c\x2e\x33\x34"
        "\x32\xff"
        "\xc0\x00\x14\x08\x00\x08\x00\x08\x04\x43\x11\x00\x4d\x11\x00\x59\x11\x00\x4b\x11\x00\xff"
        "\xc4\x00"
        "\x15\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x06\xff\xc4"
        "\x00\x14"
        "\x10\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xda\x00\x0e"
        "\x04\x43"
        "\x00\x4d\x00\x59\x00\x4b\x00\x00\x3f\x00\x36\x2b\xa9\x4c\x2f\xff\xd9";
    struct image_decoder *d = make_decoder();
    struct image_view v = decode_copy(d, jpeg, sizeof(jpeg) - 1, NULL);
    static const int want[] = {49, 190, 146};
    for (int i = 0; i < 3; i++) {
        assert_in_range(v.data[i], want[i] - 1, want[i] + 1);
    }
    free(v.data);
    image_decoder_destroy(d);
}

/* Regions of one image against the whole of it. */
static void check_regions(struct image_decoder *d,
                          const char *name,
                          const void *data,
                          size_t size_bytes,
                          int tries) {
    struct image_view whole = decode_copy(d, data, size_bytes, NULL);
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_AUGMENT, size_bytes, 0);
    for (int i = 0; i < tries; i++) {
        struct image_decode_options opt = {0};
        struct image_rect *r = &opt.region;
        r->width = 1 + (int32_t)rng_below(&rng, (uint32_t)whole.width_px);
        r->height = 1 + (int32_t)rng_below(&rng, (uint32_t)whole.height_px);
        r->x = (int32_t)rng_below(&rng, (uint32_t)(whole.width_px - r->width + 1));
        r->y = (int32_t)rng_below(&rng, (uint32_t)(whole.height_px - r->height + 1));
        struct image_view v;
        struct image_box box;
        struct error err = {0};
        assert_ok(image_decode(d, &v, &box, data, size_bytes, &opt, &err), err);
        int32_t bx = (int32_t)box.x;
        int32_t by = (int32_t)box.y;
        assert_true(box.width == r->width && box.height == r->height);
        assert_true(bx + r->width <= v.width_px && by + r->height <= v.height_px);
        for (int32_t y = 0; y < r->height; y++) {
            if (memcmp(pixel(&v, bx, by + y), pixel(&whole, r->x, r->y + y),
                       (size_t)r->width * 3) != 0) {
                fail_msg("%s: region %d,%d %dx%d differs in row %d", name, r->x, r->y, r->width,
                         r->height, y);
            }
        }
    }
    free(whole.data);
}

/* Every image of an archive that decodes. Returns how many. */
static int check_archive(const char *path, int tries) {
    size_t size_bytes;
    uint8_t *file = test_read_file(test_data_path(path), &size_bytes);
    struct image_decoder *d = make_decoder();
    struct test_tar tar;
    struct test_tar_file f;
    int seen = 0;
    test_tar_init(&tar, file, size_bytes);
    while (test_tar_next(&tar, &f)) {
        struct image_view v;
        if (f.size_bytes < 400000 &&
            image_decode(d, &v, NULL, f.data, f.size_bytes, NULL, NULL) == STATUS_OK) {
            check_regions(d, f.name, f.data, f.size_bytes, tries);
            seen++;
        }
    }
    image_decoder_destroy(d);
    free(file);
    return seen;
}

TEST(regions_of_photographs_equal_the_whole) {
    int tries = test_sanitizer()[0] != 0 ? 2 : 6;
    assert_true(check_archive("raw/images.tar", tries) > 150);
}

TEST(regions_of_odd_images_equal_the_whole) {
    int tries = test_sanitizer()[0] != 0 ? 3 : 30;
    assert_true(check_archive("hostile/files.tar", tries) > 50);
}

/* ----------------------------------------------------------------------------------------- PNG */

TEST(png_of_every_kind) {
    static const char *const kinds[] = {"type0_1bit",  "type0_2bit", "type0_4bit",  "type0_8bit",
                                        "type0_16bit", "type2_8bit", "type2_16bit", "type3_1bit",
                                        "type3_2bit",  "type3_4bit", "type3_8bit",  "type4_8bit",
                                        "type4_16bit", "type6_8bit", "type6_16bit"};
    static const char *const variants[] = {"", "_adam7", "_trns", "_adam7_trns"};
    struct image_decoder *d = make_decoder();
    int seen = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        bool own_alpha = kinds[i][4] == '4' || kinds[i][4] == '6';
        for (int k = 0; k < (own_alpha ? 2 : 4); k++) {
            char name[96];
            size_t png_bytes, rgb_bytes;
            snprintf(name, sizeof(name), "tests/golden/images/png/%s%s.png", kinds[i], variants[k]);
            uint8_t *png = test_read_file(test_source_path(name), &png_bytes);
            memcpy(strrchr(name, '.'), ".rgb", 4);
            uint8_t *rgb = test_read_file(test_source_path(name), &rgb_bytes);
            struct image_info info;
            struct error err = {0};
            assert_ok(image_probe(&info, png, png_bytes, NULL, &err), err);
            assert_int_equal(info.format, IMAGE_FORMAT_PNG);
            assert_int_equal(info.progressive, k == 1 || k == 3);
            struct image_view v = decode_copy(d, png, png_bytes, NULL);
            assert_int_equal(rgb_bytes, v.stride_bytes * (size_t)v.height_px);
            for (size_t j = 0; j < rgb_bytes; j++) {
                /* 16-bit samples: libpng's scaling may differ from exact rounding by one. */
                if (abs(v.data[j] - rgb[j]) > (strstr(name, "16bit") ? 1 : 0)) {
                    fail_msg("%s: byte %zu is %d, not %d", name, j, v.data[j], rgb[j]);
                }
            }
            check_regions(d, name, png, png_bytes, 20);
            free(v.data);
            free(png);
            free(rgb);
            seen++;
        }
    }
    assert_int_equal(seen, 52);
    image_decoder_destroy(d);
}

TEST(own_buffers_stay_once_they_are_large_enough) {
    struct image_view large = make_image(200, 180, 1);
    struct image_view small = make_image(90, 120, 2);
    struct byte_buffer jpegs[2] = {encode(&large, 90), encode(&small, 90)};
    struct byte_buffer turned[2] = {with_orientation(&jpegs[0], 6), with_orientation(&jpegs[1], 8)};
    struct image_decoder *d = make_decoder();
    const uint8_t *first[2] = {NULL, NULL};
    for (int i = 0; i < 8; i++) {
        const struct byte_buffer *b = i % 2 == 0 ? &jpegs[i / 2 % 2] : &turned[i / 2 % 2];
        struct image_view v;
        assert_int_equal(image_decode(d, &v, NULL, b->data, b->size_bytes, NULL, NULL), 0);
        if (first[i % 2] == NULL) {
            first[i % 2] = v.data;
        }
        assert_ptr_equal(v.data, first[i % 2]);
    }
    image_decoder_destroy(d);
    for (int i = 0; i < 2; i++) {
        byte_buffer_fini(&jpegs[i]);
        byte_buffer_fini(&turned[i]);
    }
    free(large.data);
    free(small.data);
}

TEST(trim_frees_buffers_beyond_the_limit) {
    struct image_view large = make_image(200, 180, 1);
    struct byte_buffer jpeg = encode(&large, 90);
    struct byte_buffer turned = with_orientation(&jpeg, 6);
    struct image_decoder *d = make_decoder();
    struct image_view v;
    assert_int_equal(image_decode(d, &v, NULL, turned.data, turned.size_bytes, NULL, NULL), 0);
    const uint8_t *kept = v.data;
    image_decoder_trim(d, 2 << 20);
    assert_int_equal(image_decode(d, &v, NULL, turned.data, turned.size_bytes, NULL, NULL), 0);
    assert_ptr_equal(v.data, kept);
    image_decoder_trim(d, 0);
    assert_int_equal(image_decode(d, &v, NULL, turned.data, turned.size_bytes, NULL, NULL), 0);
    assert_int_equal(v.width_px, 180);
    image_decoder_destroy(d);
    byte_buffer_fini(&turned);
    byte_buffer_fini(&jpeg);
    free(large.data);
}

TEST(a_check_keeps_no_pixels_and_finds_the_same_damage) {
    struct image_view in = make_image(120, 90, 4);
    struct byte_buffer jpeg = encode(&in, 80);
    struct image_decoder *d = make_decoder();
    struct image_decode_options check = {.check_only = true};
    struct image_view v;
    assert_int_equal(image_decode(d, &v, NULL, jpeg.data, jpeg.size_bytes, &check, NULL), 0);
    assert_null(v.data);
    for (size_t n = 0; n < jpeg.size_bytes; n++) {
        enum status whole = image_decode(d, &v, NULL, jpeg.data, n, NULL, NULL);
        assert_int_equal(image_decode(d, &v, NULL, jpeg.data, n, &check, NULL), whole);
    }
    image_decoder_destroy(d);
    byte_buffer_fini(&jpeg);
    free(in.data);
}

TEST(a_check_of_a_large_image_finds_the_same_damage) {
    struct image_view in = make_image(400, 300, 4);
    struct byte_buffer jpeg = encode(&in, 95);
    assert_true(jpeg.size_bytes > 16384); /* its codes are walked before it is decoded */
    struct image_decoder *d = make_decoder();
    struct image_decode_options check = {.check_only = true};
    struct image_view v;
    struct rng rng;
    unsigned damaged = 0;
    rng_init(&rng, test_seed(), RNG_INIT, 0, 0);
    for (int i = 0; i < 600; i++) {
        const size_t at = rng_below(&rng, (uint32_t)jpeg.size_bytes);
        const uint8_t flipped = (uint8_t)(1u << rng_below(&rng, 8));
        const size_t size = i % 3 == 0 ? at : jpeg.size_bytes;
        jpeg.data[at] ^= flipped;
        const enum status whole = image_decode(d, &v, NULL, jpeg.data, size, NULL, NULL);
        assert_int_equal(image_decode(d, &v, NULL, jpeg.data, size, &check, NULL), whole);
        damaged += whole != STATUS_OK;
        jpeg.data[at] ^= flipped;
    }
    assert_true(damaged > 200 && damaged < 600);
    image_decoder_destroy(d);
    byte_buffer_fini(&jpeg);
    free(in.data);
}

/* ---------------------------------------------------------------- independence of images */

/* Removes all segments of one kind before the scan. */
static struct byte_buffer without_segments(const struct byte_buffer *jpeg, uint8_t marker) {
    struct byte_buffer out;
    byte_buffer_init(&out, 0);
    size_t at = 2;
    assert_int_equal(byte_buffer_append(&out, jpeg->data, 2, NULL), STATUS_OK);
    while (jpeg->data[at + 1] != 0xDA) {
        size_t n = 2 + ((size_t)jpeg->data[at + 2] << 8 | jpeg->data[at + 3]);
        if (jpeg->data[at + 1] != marker) {
            assert_int_equal(byte_buffer_append(&out, jpeg->data + at, n, NULL), STATUS_OK);
        }
        at += n;
    }
    assert_int_equal(byte_buffer_append(&out, jpeg->data + at, jpeg->size_bytes - at, NULL), 0);
    return out;
}

TEST(no_image_depends_on_the_one_before) {
    struct image_view a = make_image(64, 64, 1);
    struct image_view b = make_image(80, 48, 9);
    struct byte_buffer whole = encode(&a, 60);
    struct byte_buffer other = encode(&b, 98);
    for (int kind = 0; kind < 2; kind++) {
        /* DHT, DQT: the tables would be those of the image before. */
        struct byte_buffer cut = without_segments(&whole, kind == 0 ? 0xC4 : 0xDB);
        struct image_decoder *fresh = make_decoder();
        struct image_decoder *used = make_decoder();
        struct image_view v, w;
        struct image_decode_options opt = {.accept_partial = true};
        assert_int_equal(image_decode(used, &w, NULL, other.data, other.size_bytes, NULL, NULL),
                         STATUS_OK);
        enum status first = image_decode(fresh, &v, NULL, cut.data, cut.size_bytes, &opt, NULL);
        enum status second = image_decode(used, &w, NULL, cut.data, cut.size_bytes, &opt, NULL);
        assert_int_equal(first, second);
        if (kind == 1) {
            assert_int_equal(first, STATUS_CORRUPT);
        } else {
            assert_int_equal(first, STATUS_OK);
            assert_memory_equal(v.data, w.data, 64 * 64 * 3);
        }
        image_decoder_destroy(fresh);
        image_decoder_destroy(used);
        byte_buffer_fini(&cut);
    }
    byte_buffer_fini(&whole);
    byte_buffer_fini(&other);
    free(a.data);
    free(b.data);
}

/* Images of telephones have a gain map or a second view as a JPEG after the first one. */
TEST(bytes_after_the_first_image_are_ignored) {
    struct image_view a = make_image(96, 64, 1);
    struct image_view b = make_image(24, 16, 2);
    struct byte_buffer first = encode(&a, 90);
    struct byte_buffer second = encode(&b, 90);
    struct image_decoder *d = make_decoder();
    struct image_view alone = decode_copy(d, first.data, first.size_bytes, NULL);
    struct byte_buffer both;
    byte_buffer_init(&both, 0);
    assert_int_equal(byte_buffer_append(&both, first.data, 2, NULL), STATUS_OK);
    assert_int_equal(byte_buffer_append(&both, "\xFF\xE2\0\x0CMPF\0II*\0\x08\0", 14, NULL), 0);
    size_t first_bytes = 14 + first.size_bytes;
    assert_int_equal(byte_buffer_append(&both, first.data + 2, first.size_bytes - 2, NULL), 0);
    assert_int_equal(byte_buffer_append(&both, second.data, second.size_bytes, NULL), STATUS_OK);
    struct image_decode_options check = {.check_only = true};
    for (size_t n = 0; n <= both.size_bytes; n++) {
        struct image_view v;
        enum status s = image_decode(d, &v, NULL, both.data, n, NULL, NULL);
        if (s == STATUS_OK) {
            assert_int_equal(v.width_px, 96);
            for (int32_t y = 0; y < 64; y++) {
                assert_memory_equal(pixel(&v, 0, y), pixel(&alone, 0, y), 96 * 3);
            }
        }
        /* Also without its end marker the first image is whole. */
        assert_int_equal(s == STATUS_OK, n >= first_bytes - 2);
        assert_int_equal(image_decode(d, &v, NULL, both.data, n, &check, NULL), s);
    }
    image_decoder_destroy(d);
    byte_buffer_fini(&both);
    byte_buffer_fini(&first);
    byte_buffer_fini(&second);
    free(alone.data);
    free(a.data);
    free(b.data);
}

/* ------------------------------------------------------------------------------ reductions */

TEST(reductions_keep_the_region_large_enough) {
    struct image_view in = make_image(403, 301, 5);
    struct byte_buffer jpeg = encode(&in, 95);
    struct image_decoder *d = make_decoder();
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_INIT, 0, 0);
    for (int i = 0; i < 300; i++) {
        struct image_decode_options opt = {.min_width_px = 1 + (int32_t)rng_below(&rng, 90),
                                           .min_height_px = 1 + (int32_t)rng_below(&rng, 90)};
        struct image_rect *r = &opt.region;
        r->width = 1 + (int32_t)rng_below(&rng, 403);
        r->height = 1 + (int32_t)rng_below(&rng, 301);
        r->x = (int32_t)rng_below(&rng, (uint32_t)(403 - r->width + 1));
        r->y = (int32_t)rng_below(&rng, (uint32_t)(301 - r->height + 1));
        struct image_view v;
        struct image_box box;
        assert_int_equal(image_decode(d, &v, &box, jpeg.data, jpeg.size_bytes, &opt, NULL), 0);
        double by = r->width / box.width;
        assert_true(by == 1 || by == 2 || by == 4 || by == 8);
        assert_true(r->height / box.height == by);
        assert_true(by == 1 || (box.width >= opt.min_width_px && box.height >= opt.min_height_px));
        assert_true(by == 8 || r->width < opt.min_width_px * 2 * by ||
                    r->height < opt.min_height_px * 2 * by);
        assert_true(box.x >= 0 && box.x + box.width <= v.width_px);
        assert_true(box.y >= 0 && box.y + box.height <= v.height_px);
        /* The ramps of the image say where each pixel is from. */
        for (double at = 0.25; at < 1; at += 0.5) {
            int32_t x = (int32_t)(box.x + at * box.width);
            int32_t y = (int32_t)(box.y + at * box.height);
            double full_x = r->x + (x + 0.5 - box.x) * by;
            double full_y = r->y + (y + 0.5 - box.y) * by;
            assert_true(abs((int)(full_x * 255 / 403) - pixel(&v, x, y)[0]) <= 24);
            assert_true(abs((int)(full_y * 255 / 301) - pixel(&v, x, y)[1]) <= 24);
        }
    }
    image_decoder_destroy(d);
    byte_buffer_fini(&jpeg);
    free(in.data);
}

/* ---------------------------------------------------------------------------------- limits */

TEST(limits_are_kept) {
    struct image_view in = make_image(100, 50, 5);
    struct byte_buffer jpeg = encode(&in, 80);
    struct image_limits limits;
    image_limits_default(&limits);
    struct image_view v;
    for (int i = 0; i < 2; i++) {
        limits.max_pixels = i == 0 ? 4999 : 5000;
        struct image_info info;
        struct image_decoder *d;
        enum status expected = i == 0 ? STATUS_LIMIT : STATUS_OK;
        assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
        assert_int_equal(image_decode(d, &v, NULL, jpeg.data, jpeg.size_bytes, NULL, NULL),
                         expected);
        assert_int_equal(image_probe(&info, jpeg.data, jpeg.size_bytes, &limits, NULL), expected);
        image_decoder_destroy(d);
    }
    /* A region beyond the image: what the caller believes of its size is wrong. */
    struct image_decoder *d = make_decoder();
    struct image_decode_options opt = {.region = {60, 10, 41, 10}};
    assert_int_equal(image_decode(d, &v, NULL, jpeg.data, jpeg.size_bytes, &opt, NULL),
                     STATUS_CORRUPT);
    opt.region = (struct image_rect){INT32_MAX, 0, INT32_MAX, 1};
    assert_int_equal(image_decode(d, &v, NULL, jpeg.data, jpeg.size_bytes, &opt, NULL),
                     STATUS_CORRUPT);
    opt.region = (struct image_rect){60, 10, 40, 40};
    assert_int_equal(image_decode(d, &v, NULL, jpeg.data, jpeg.size_bytes, &opt, NULL), STATUS_OK);
    image_decoder_destroy(d);
    byte_buffer_fini(&jpeg);
    free(in.data);
}

static void put(struct byte_buffer *b, const char *bytes, size_t n) {
    assert_int_equal(byte_buffer_append(b, bytes, n, NULL), STATUS_OK);
}

/* A progressive gray image of many scans that each refine nothing. */
static struct byte_buffer scan_bomb(uint8_t side_high, int scans) {
    char frame[] = "\xFF\xC2\0\x0B\x08\0\0\0\0\x01\x01\x11";
    frame[5] = frame[7] = (char)side_high;
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    put(&b, "\xFF\xD8\xFF\xDB\0\x43", 6);
    put(&b, "\0", 1);
    for (int i = 0; i < 64; i++) {
        put(&b, "\x01", 1);
    }
    put(&b, frame, 13);
    /* One code of one bit, for an end-of-band run of 2^14 blocks and for a zero difference. */
    put(&b, "\xFF\xC4\0\x14\x10\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xE0", 22);
    put(&b, "\xFF\xC4\0\x14\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    put(&b, "\xFF\xDA\0\x08\x01\x01\0\0\0\0", 10);
    for (int i = 0; i < (256 * side_high / 8) * (256 * side_high / 8) / 8; i++) {
        put(&b, "\0", 1);
    }
    for (int i = 0; i < scans; i++) {
        put(&b, "\xFF\xDA\0\x08\x01\x01\0\x01\x3F\0\0\0", 12);
    }
    put(&b, "\xFF\xD9", 2);
    return b;
}

TEST(images_of_too_many_scans_are_refused) {
    struct image_decoder *d = make_decoder();
    struct image_view v;
    struct error err = {0};
    struct image_decode_options partial = {.accept_partial = true};
    struct byte_buffer few = scan_bomb(1, 3);
    assert_ok(image_decode(d, &v, NULL, few.data, few.size_bytes, &partial, &err), err);
    struct byte_buffer many = scan_bomb(1, IMAGE_MAX_SCANS + 10);
    assert_status(image_decode(d, &v, NULL, many.data, many.size_bytes, &partial, &err),
                  STATUS_LIMIT, err);
    byte_buffer_fini(&few);
    byte_buffer_fini(&many);
    image_decoder_destroy(d);
}

TEST(multi_scan_memory_is_bounded) {
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_memory_bytes = 256 * 1024;
    struct image_decoder *d;
    struct image_view v;
    struct error err = {0};
    struct image_decode_options partial = {.accept_partial = true};
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    struct byte_buffer large = scan_bomb(4, 3);
    assert_status(image_decode(d, &v, NULL, large.data, large.size_bytes, &partial, &err),
                  STATUS_LIMIT, err);
    byte_buffer_fini(&large);
    image_decoder_destroy(d);
}

TEST(nothing_is_decoded_from_nothing) {
    struct image_decoder *d = make_decoder();
    struct image_view v;
    struct image_info info;
    assert_int_equal(image_decode(d, &v, NULL, NULL, 0, NULL, NULL), STATUS_UNSUPPORTED);
    assert_int_equal(image_probe(&info, "\xFF\xD8", 2, NULL, NULL), STATUS_UNSUPPORTED);
    assert_int_equal(image_probe(&info, "\xFF\xD8\xFF", 3, NULL, NULL), STATUS_CORRUPT);
    assert_int_equal(info.format, 0);
    assert_int_equal(image_probe(&info, "GIF89a\0", 7, NULL, NULL), STATUS_CORRUPT);
    assert_int_equal(image_probe(&info, "RIFF\4\0\0\0WEBP", 12, NULL, NULL), STATUS_CORRUPT);
    assert_int_equal(image_decode(d, &v, NULL, "GIF89a\0", 7, NULL, NULL), STATUS_CORRUPT);
    assert_int_equal(image_decode(d, &v, NULL, "RIFF\4\0\0\0WEBP", 12, NULL, NULL), STATUS_CORRUPT);
    image_decoder_destroy(d);
    image_decoder_destroy(NULL);
}
