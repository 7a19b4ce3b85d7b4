/* test-timeout: 120 */
#include "formats/image_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/tar.h"
#include "tests/support/test.h"

/* A picture of smooth colours with some noise in it: every pixel differs from its neighbours. */
static struct image_view make_picture(int32_t width_px, int32_t height_px, uint64_t seed) {
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

/* The decoded picture as a copy without padding. */
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

/* Inserts an EXIF block with an orientation behind the SOI. */
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
    struct image_view in = make_picture(131, 77, 1);
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
    struct image_view in = make_picture(900, 700, 2);
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

/* Where a stored pixel of a (w, h) picture is looked at. */
static void
looked_at(int32_t o, int32_t w, int32_t h, int32_t x, int32_t y, int32_t *ox, int32_t *oy) {
    const int32_t table[9][2] = {{0, 0},         {x, y}, {w - 1 - x, y}, {w - 1 - x, h - 1 - y},
                                 {x, h - 1 - y}, {y, x}, {h - 1 - y, x}, {h - 1 - y, w - 1 - x},
                                 {y, w - 1 - x}};
    *ox = table[o][0];
    *oy = table[o][1];
}

TEST(all_orientations_are_applied) {
    struct image_view in = make_picture(50, 37, 3);
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
        /* A region of the turned picture is that part of it. */
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

/* Regions of one picture against the whole of it. */
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

TEST(regions_of_photographs_equal_the_whole) {
    size_t size_bytes;
    uint8_t *file = test_read_file(test_data_path("raw/images.tar"), &size_bytes);
    struct image_decoder *d = make_decoder();
    struct test_tar tar;
    struct test_tar_file f;
    int tries = test_sanitizer()[0] != 0 ? 2 : 6;
    int seen = 0;
    test_tar_init(&tar, file, size_bytes);
    while (test_tar_next(&tar, &f)) {
        if (test_tar_ends(f.name, ".jpg") && f.size_bytes < 400000) {
            check_regions(d, f.name, f.data, f.size_bytes, tries);
            seen++;
        }
    }
    assert_true(seen > 100);
    image_decoder_destroy(d);
    free(file);
}
