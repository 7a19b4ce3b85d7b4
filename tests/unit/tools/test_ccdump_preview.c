/*
 * Pictures as text: sizes that keep the aspect ratio, nearest colours against an exhaustive search,
 * and escapes that encode the pixels.
 */
#include "tools/ccdump/preview.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"

static struct error err;

TEST(environment_selects_colours) {
    unsetenv("NO_COLOR");
    unsetenv("COLORTERM");
    setenv("TERM", "xterm", 1);
    assert_int_equal(preview_colours_wanted(), PREVIEW_256);
    setenv("COLORTERM", "truecolor", 1);
    assert_int_equal(preview_colours_wanted(), PREVIEW_TRUE);
    setenv("COLORTERM", "24bit", 1);
    assert_int_equal(preview_colours_wanted(), PREVIEW_TRUE);
    setenv("NO_COLOR", "", 1); /* empty: not set, as no-color.org has it */
    assert_int_equal(preview_colours_wanted(), PREVIEW_TRUE);
    setenv("NO_COLOR", "1", 1);
    assert_int_equal(preview_colours_wanted(), PREVIEW_NONE);
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    assert_int_equal(preview_colours_wanted(), PREVIEW_NONE);
    unsetenv("TERM");
    assert_int_equal(preview_colours_wanted(), PREVIEW_NONE);
}

TEST(previews_keep_the_aspect_ratio) {
    static const struct {
        int32_t width, height, columns, lines, out_width, out_height;
    } cases[] = {
        {640, 480, 80, 40, 80, 60}, {480, 640, 80, 40, 60, 80}, {32, 32, 80, 20, 40, 40},
        {1, 65500, 80, 40, 1, 80},  {65500, 1, 80, 40, 80, 2},  {100, 33, 10, 10, 10, 4},
        {65500, 65500, 1, 1, 1, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t w = 0;
        int32_t h = 0;
        preview_size(&w, &h, cases[i].width, cases[i].height, cases[i].columns, cases[i].lines);
        assert_int_equal(w, cases[i].out_width);
        assert_int_equal(h, cases[i].out_height);
    }
}

static void colour_of(int number, int out[3]) {
    static const int levels[] = {0, 95, 135, 175, 215, 255};
    if (number >= 232) {
        out[0] = out[1] = out[2] = 8 + 10 * (number - 232);
    } else {
        out[0] = levels[(number - 16) / 36];
        out[1] = levels[(number - 16) / 6 % 6];
        out[2] = levels[(number - 16) % 6];
    }
}

static int distance(int number, const uint8_t rgb[3]) {
    int c[3];
    int sum = 0;
    colour_of(number, c);
    for (int i = 0; i < 3; i++) {
        sum += (c[i] - rgb[i]) * (c[i] - rgb[i]);
    }
    return sum;
}

TEST(nearest_of_256_colours_is_used) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_ORDER, 9, 10);
    for (int round = 0; round < 20000; round++) {
        uint8_t grey = (uint8_t)rng_below(&r, 256);
        uint8_t rgb[3] = {grey, grey, grey};
        for (int i = 0; i < 3 && round % 4 != 0; i++) {
            rgb[i] = (uint8_t)rng_below(&r, 256);
        }
        int best = distance(16, rgb);
        for (int n = 17; n < 256; n++) {
            best = distance(n, rgb) < best ? distance(n, rgb) : best;
        }
        int got = preview_nearest_256(rgb[0], rgb[1], rgb[2]);
        assert_in_range(got, 16, 255);
        assert_int_equal(distance(got, rgb), best);
    }
}

TEST(escapes_encode_the_pixels) {
    static const char block[] = "\xE2\x96\x80";
    uint8_t pixels[3][2][3] = {
        {{255, 0, 0}, {255, 0, 0}}, {{0, 0, 255}, {0, 255, 0}}, {{1, 2, 3}, {4, 5, 6}}};
    struct image_view view = {&pixels[0][0][0], 2, 3, 6};
    struct byte_buffer out = {0};
    char wanted[512];
    snprintf(wanted, sizeof(wanted),
             "\x1b[38;2;255;0;0m\x1b[48;2;0;0;255m%s\x1b[48;2;0;255;0m%s\x1b[0m\n"
             "\x1b[38;2;1;2;3m%s\x1b[38;2;4;5;6m%s\x1b[0m\n",
             block, block, block, block);
    assert_ok(preview_render(&out, &view, PREVIEW_TRUE, &err), err);
    assert_int_equal(out.size_bytes, strlen(wanted));
    assert_memory_equal(out.data, wanted, out.size_bytes);
    out.size_bytes = 0;
    assert_ok(preview_render(&out, &view, PREVIEW_256, &err), err);
    assert_ok(byte_buffer_append(&out, "", 1, &err), err); /* ends the string */
    assert_non_null(strstr((const char *)out.data, "\x1b[38;5;196m\x1b[48;5;21m"));
    byte_buffer_fini(&out);
}
