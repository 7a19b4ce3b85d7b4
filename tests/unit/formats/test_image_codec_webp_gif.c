/*
 * WebP and GIF against files whose pixels are known: see tests/golden/images/make_webp_gif.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tests/support/test.h"

static const char *const WEBP[] = {
    "lossless", "many_codes",  "lossless_alpha", "lossless_few",
    "lossy",    "lossy_alpha", "turned_1",       "turned_2",
    "turned_3", "turned_4",    "turned_5",       "turned_6",
    "turned_7", "turned_8",    "animated",       "animated_part_turned"};

static const char *const GIF[] = {"plain87",       "no_end",      "animated",
                                  "interlaced",    "transparent", "part_of_screen",
                                  "beyond_screen", "no_screen",   "one_bit",
                                  "local_colours", "full_table",  "transparent_beyond_table"};

static const char *const BAD[] = {
    "webp/bad_frame_outside.webp", "webp/bad_no_frame.webp", "webp/bad_canvas.webp",
    "webp/bad_anmf_size.webp",     "gif/bad_colour.gif",     "gif/bad_no_colours.gif",
    "gif/bad_no_picture.gif",      "gif/bad_no_rows.gif",    "gif/bad_short.gif"};

/* A stored image and what it means. */
struct golden {
    char name[64];
    enum image_format format;
    uint8_t *data;
    size_t size_bytes;
    uint8_t *meaning;
    const uint8_t *pixels;
    int32_t width_px, height_px;
};

static struct golden golden_open(const char *folder, const char *name) {
    struct golden g = {.format = folder[0] == 'w' ? IMAGE_FORMAT_WEBP : IMAGE_FORMAT_GIF};
    char path[160];
    snprintf(g.name, sizeof(g.name), "%s/%s", folder, name);
    snprintf(path, sizeof(path), "tests/golden/images/%s.%s", g.name, folder);
    g.data = test_read_file(test_source_path(path), &g.size_bytes);
    snprintf(path, sizeof(path), "tests/golden/images/%s.rgb", g.name);
    size_t meaning_bytes;
    g.meaning = test_read_file(test_source_path(path), &meaning_bytes);
    g.width_px = g.meaning[0] | g.meaning[1] << 8;
    g.height_px = g.meaning[4] | g.meaning[5] << 8;
    g.pixels = g.meaning + 8;
    assert_int_equal(meaning_bytes, 8 + 3 * g.width_px * g.height_px);
    return g;
}

static void golden_close(struct golden *g) {
    free(g->data);
    free(g->meaning);
}

static void for_each_golden(void (*test)(const struct golden *g)) {
    for (size_t i = 0; i < sizeof(WEBP) / sizeof(WEBP[0]); i++) {
        struct golden g = golden_open("webp", WEBP[i]);
        test(&g);
        golden_close(&g);
    }
    for (size_t i = 0; i < sizeof(GIF) / sizeof(GIF[0]); i++) {
        struct golden g = golden_open("gif", GIF[i]);
        test(&g);
        golden_close(&g);
    }
}

static struct image_decoder *make_decoder(void) {
    struct image_decoder *d;
    assert_int_equal(image_decoder_create(&d, NULL, NULL), STATUS_OK);
    return d;
}

/* The view's pixels from (x, y) on against a part of the golden ones. */
static void check_pixels(const struct golden *g,
                         const struct image_view *v,
                         int32_t x,
                         int32_t y,
                         const struct image_rect *part) {
    for (int32_t i = 0; i < part->height; i++) {
        const uint8_t *got = v->data + (size_t)(y + i) * v->stride_bytes + (size_t)x * 3;
        const uint8_t *expected =
            g->pixels + ((size_t)(part->y + i) * (size_t)g->width_px + (size_t)part->x) * 3;
        for (int32_t k = 0; k < part->width * 3; k++) {
            if (got[k] != expected[k]) {
                fail_msg("%s: pixel %d, %d, channel %d is %d, not %d", g->name,
                         (int)(part->x + k / 3), (int)(part->y + i), (int)(k % 3), got[k],
                         expected[k]);
            }
        }
    }
}

static void check_whole(const struct golden *g) {
    struct error err = {0};
    struct image_info info;
    assert_ok(image_probe(&info, g->data, g->size_bytes, NULL, &err), err);
    assert_int_equal(info.format, g->format);
    assert_int_equal(info.width_px, g->width_px);
    assert_int_equal(info.height_px, g->height_px);
    struct image_decoder *d = make_decoder();
    struct image_view v;
    struct image_box box;
    assert_ok(image_decode(d, &v, &box, g->data, g->size_bytes, NULL, &err), err);
    assert_int_equal(v.width_px, g->width_px);
    assert_int_equal(v.height_px, g->height_px);
    assert_true(box.x == 0 && box.y == 0 && box.width == g->width_px && box.height == g->height_px);
    check_pixels(g, &v, 0, 0, &(struct image_rect){0, 0, g->width_px, g->height_px});
    struct image_decode_options check = {.check_only = true};
    assert_ok(image_decode(d, &v, &box, g->data, g->size_bytes, &check, &err), err);
    assert_null(v.data);
    image_decoder_destroy(d);
}

TEST(pixels_are_exact) {
    for_each_golden(check_whole);
}

static void check_regions(const struct golden *g) {
    struct image_decoder *d = make_decoder();
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_INIT, g->size_bytes, 0);
    for (int i = 0; i < 60; i++) {
        struct image_decode_options opt = {.min_width_px = 1, .min_height_px = 1};
        struct image_rect *r = &opt.region;
        r->width = 1 + (int32_t)rng_below(&rng, (uint32_t)g->width_px);
        r->height = 1 + (int32_t)rng_below(&rng, (uint32_t)g->height_px);
        r->x = (int32_t)rng_below(&rng, (uint32_t)(g->width_px - r->width + 1));
        r->y = (int32_t)rng_below(&rng, (uint32_t)(g->height_px - r->height + 1));
        struct image_view v;
        struct image_box box;
        struct error err = {0};
        assert_ok(image_decode(d, &v, &box, g->data, g->size_bytes, &opt, &err), err);
        assert_true(box.width == r->width && box.height == r->height);
        assert_true(box.x + box.width <= v.width_px && box.y + box.height <= v.height_px);
        check_pixels(g, &v, (int32_t)box.x, (int32_t)box.y, r);
    }
    image_decoder_destroy(d);
}

TEST(regions_are_parts_of_the_whole) {
    for_each_golden(check_regions);
}

/* A file truncated anywhere is refused, or was complete without its end: then the pixels are right.
 */
static void check_cuts(const struct golden *g) {
    struct image_decoder *d = make_decoder();
    struct image_decode_options check = {.check_only = true};
    size_t accepted = 0;
    for (size_t lost = 1; lost <= g->size_bytes; lost += test_step(4)) {
        size_t n = g->size_bytes - lost;
        uint8_t *cut = malloc(n > 0 ? n : 1); /* its own block: reading past it is seen */
        assert_non_null(cut);
        memcpy(cut, g->data, n);
        struct image_info info;
        struct image_view v;
        enum status probed = image_probe(&info, cut, n, NULL, NULL);
        enum status s = image_decode(d, &v, NULL, cut, n, NULL, NULL);
        if (s == STATUS_OK) {
            assert_int_equal(probed, STATUS_OK);
            assert_int_equal(v.width_px, g->width_px);
            check_pixels(g, &v, 0, 0, &(struct image_rect){0, 0, g->width_px, g->height_px});
            accepted++;
        } else {
            assert_true(s == STATUS_CORRUPT || (s == STATUS_UNSUPPORTED && n < 12));
            assert_null(v.data);
        }
        assert_int_equal(image_decode(d, &v, NULL, cut, n, &check, NULL), s);
        free(cut);
    }
    /* WebP says how long it is. Of a GIF, what follows the first image does not count. */
    bool animated = strcmp(g->name, "gif/animated") == 0;
    if (g->format == IMAGE_FORMAT_WEBP || strcmp(g->name, "gif/no_end") == 0) {
        assert_int_equal(accepted, 0);
    } else {
        assert_true(animated ? accepted > 1 : accepted == 1);
    }
    image_decoder_destroy(d);
}

TEST(truncations_at_every_byte_are_refused) {
    for_each_golden(check_cuts);
}

TEST(files_that_contradict_themselves_are_damaged) {
    struct image_decoder *d = make_decoder();
    struct image_decode_options check = {.check_only = true};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        char path[160];
        snprintf(path, sizeof(path), "tests/golden/images/%s", BAD[i]);
        size_t size_bytes;
        uint8_t *data = test_read_file(test_source_path(path), &size_bytes);
        struct image_view v;
        struct error err = {0};
        assert_status(image_decode(d, &v, NULL, data, size_bytes, NULL, &err), STATUS_CORRUPT, err);
        assert_null(v.data);
        assert_status(image_decode(d, &v, NULL, data, size_bytes, &check, &err), STATUS_CORRUPT,
                      err);
        free(data);
    }
    image_decoder_destroy(d);
}

/* An image whose header states this size, truncated after what a probe reads. */
static void check_claim(const void *data, size_t size_bytes, int32_t width_px, int32_t height_px) {
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_pixels = (int64_t)width_px * height_px - 1;
    struct image_decoder *d;
    struct image_view v;
    struct image_info info;
    struct error err = {0};
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    assert_status(image_probe(&info, data, size_bytes, &limits, &err), STATUS_LIMIT, err);
    assert_status(image_decode(d, &v, NULL, data, size_bytes, NULL, &err), STATUS_LIMIT, err);
    image_decoder_destroy(d);
    limits.max_pixels++;
    assert_int_equal(image_probe(&info, data, size_bytes, &limits, NULL), STATUS_OK);
    limits.max_memory_bytes = 3 * (size_t)width_px * (size_t)height_px;
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    assert_status(image_decode(d, &v, NULL, data, size_bytes, NULL, &err), STATUS_LIMIT, err);
    image_decoder_destroy(d);
}

TEST(claimed_sizes_are_held_against_the_limits_first) {
    /* 16384 x 16384 lossless; 60000 x 2000 by a canvas; a GIF of 60000 x 2000, and by its frame. */
    static const char lossless[] = "RIFF\x12\0\0\0WEBPVP8L\5\0\0\0\x2f\xff\xff\xff\x0f";
    static const char canvas[] =
        "RIFF\x3c\0\0\0WEBPVP8X\x0a\0\0\0\2\0\0\0\x5f\xea\0\xcf\7\0"
        "ANMF\x1e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0VP8L\5\0\0\0\x2f\0\0\0\0";
    static const char screen[] =
        "GIF89a\x60\xea\xd0\7\x80\0\0......,\0\0\0\0\1\0\1\0\0\2\2\x44\1\0;";
    static const char frame[] =
        "GIF89a\1\0\1\0\x80\0\0......,\0\0\0\0\x60\xea\xd0\7\0\2\2\x44\1\0;";
    check_claim(lossless, sizeof(lossless), 16384, 16384);
    check_claim(canvas, sizeof(canvas), 60000, 2000);
    check_claim(screen, sizeof(screen) - 1, 60000, 2000);
    check_claim(frame, sizeof(frame) - 1, 60000, 2000);
}

TEST(flipped_bytes_never_crash) {
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_INIT, 1, 0);
    int mutants = test_sanitizer()[0] != 0 ? 40 : 150;
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_pixels = 1 << 20;
    struct image_decoder *d;
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    for (size_t i = 0; i < sizeof(WEBP) / sizeof(WEBP[0]) + sizeof(GIF) / sizeof(GIF[0]); i++) {
        bool webp = i < sizeof(WEBP) / sizeof(WEBP[0]);
        struct golden g = webp ? golden_open("webp", WEBP[i])
                               : golden_open("gif", GIF[i - sizeof(WEBP) / sizeof(WEBP[0])]);
        for (int k = 0; k < mutants; k++) {
            uint8_t *mutant = malloc(g.size_bytes);
            assert_non_null(mutant);
            memcpy(mutant, g.data, g.size_bytes);
            for (uint32_t n = 1 + rng_below(&rng, 4); n > 0; n--) {
                mutant[rng_below(&rng, (uint32_t)g.size_bytes)] = (uint8_t)rng_u32(&rng);
            }
            struct image_info info;
            struct image_view v;
            enum status probed = image_probe(&info, mutant, g.size_bytes, &limits, NULL);
            enum status s = image_decode(d, &v, NULL, mutant, g.size_bytes, NULL, NULL);
            assert_true(s != STATUS_NOMEM && s != STATUS_INVALID);
            if (s == STATUS_OK) {
                assert_int_equal(probed, STATUS_OK);
                assert_true(v.width_px == info.width_px && v.height_px == info.height_px);
            }
            free(mutant);
        }
        golden_close(&g);
    }
    image_decoder_destroy(d);
}
