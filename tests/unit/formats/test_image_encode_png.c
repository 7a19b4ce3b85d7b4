/*
 * PNGs that are written decode to the same pixels.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tests/support/test.h"

TEST(pixels_come_back) {
    static const int32_t sizes[][2] = {{1, 1}, {3, 5}, {32, 32}, {257, 2}, {1, 300}};
    struct image_decoder *decoder = NULL;
    struct error err = {0};
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 0, 0);
    assert_ok(image_decoder_create(&decoder, NULL, &err), err);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int32_t width = sizes[i][0];
        int32_t height = sizes[i][1];
        size_t stride = (size_t)width * 3 + 7; /* rows need not touch */
        uint8_t *pixels = calloc((size_t)height, stride);
        assert_non_null(pixels);
        for (size_t k = 0; k < (size_t)height * stride; k++) {
            pixels[k] = (uint8_t)rng_u32(&rng);
        }
        struct image_view in = {pixels, width, height, stride};
        struct image_decode_options how = {.min_width_px = width, .min_height_px = height};
        struct image_view out;
        struct image_box box;
        struct byte_buffer png;
        byte_buffer_init(&png, 0);
        assert_ok(byte_buffer_append(&png, "before", 6, &err), err);
        assert_ok(image_encode_png(&png, &in, &err), err);
        assert_memory_equal(png.data, "before", 6);
        assert_ok(image_decode(decoder, &out, &box, png.data + 6, png.size_bytes - 6, &how, &err),
                  err);
        assert_int_equal(out.width_px, width);
        assert_int_equal(out.height_px, height);
        for (int32_t y = 0; y < height; y++) {
            assert_memory_equal(out.data + (size_t)y * out.stride_bytes,
                                pixels + (size_t)y * stride, (size_t)width * 3);
        }
        struct byte_buffer again;
        byte_buffer_init(&again, 0);
        assert_ok(image_encode_png(&again, &in, &err), err);
        assert_int_equal(again.size_bytes, png.size_bytes - 6);
        assert_memory_equal(again.data, png.data + 6, again.size_bytes);
        byte_buffer_fini(&again);
        byte_buffer_fini(&png);
        free(pixels);
    }
    image_decoder_destroy(decoder);
}

/* A buffer that is too small is a limit, and keeps what it held, wherever it is reached. */
TEST(a_full_buffer_is_a_limit) {
    uint8_t pixels[32 * 32 * 3];
    struct image_view in = {pixels, 32, 32, 96};
    struct error err = {0};
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(i * i);
    }
    struct byte_buffer whole;
    byte_buffer_init(&whole, 0);
    assert_ok(image_encode_png(&whole, &in, &err), err);
    for (size_t max = 6; max < whole.size_bytes + 6; max += 13) {
        struct byte_buffer small;
        byte_buffer_init(&small, max);
        assert_ok(byte_buffer_append(&small, "before", 6, &err), err);
        assert_status(image_encode_png(&small, &in, &err), STATUS_LIMIT, err);
        assert_int_equal(small.size_bytes, 6);
        byte_buffer_fini(&small);
    }
    byte_buffer_fini(&whole);
}
