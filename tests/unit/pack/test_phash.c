#include "pack/run/phash_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/run/metadata_internal.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

static int32_t square(int32_t x) {
    return x * x;
}

/* As image() of tests/golden/phash/make_phash.py. */
static uint8_t value(int kind, int32_t x, int32_t y, int32_t c, int32_t w, int32_t h) {
    if (kind == 0) {
        const int32_t u = x * 1000 / w;
        const int32_t v = y * 1000 / h;
        return (uint8_t)(40 + 10 * c + 150 * (square(u - 300) + square(v - 400) < 62500) +
                         (90 - 40 * c) * (square(u - 800) + square(v - 700) < 22500));
    }
    if (kind == 1) {
        const int32_t wave = abs((x * 2000 / w + y * 1300 / h) % 1400 - 700);
        return (uint8_t)(wave * (200 - 30 * c) / 700 + x * y * 55 / (w * h));
    }
    return (uint8_t)((x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3));
}

static struct image_view image(int kind, int32_t w, int32_t h) {
    struct image_view v = {malloc((size_t)w * (size_t)h * 3), w, h, (size_t)w * 3};
    uint8_t *p = v.data;
    assert_non_null(p);
    for (int32_t y = 0; y < h; y++) {
        for (int32_t x = 0; x < w; x++) {
            for (int32_t c = 0; c < 3; c++) {
                *p++ = value(kind, x, y, c, w, h);
            }
        }
    }
    return v;
}

static uint64_t hash_of(const struct image_view *v) {
    const struct image_box whole = {0, 0, v->width_px, v->height_px};
    struct resize_workspace workspace = {0};
    struct error err = {0};
    uint64_t hash = 0;
    assert_ok(pack_phash(&hash, v, &whole, &workspace, &err), err);
    resize_workspace_fini(&workspace);
    return hash;
}

/* Ours rounds to 8-bit pixels between the steps; bits are always wrong in pairs, since half of them
 * are set. */
TEST(agrees_with_float64) {
    size_t size_bytes;
    uint8_t *text = test_read_file(test_source_path("tests/golden/phash/phash.txt"), &size_bytes);
    int cases = 0;
    int bits = 0;
    for (char *line = strtok((char *)text, "\n"); line; line = strtok(NULL, "\n")) {
        int kind, w, h;
        uint64_t want;
        assert_int_equal(sscanf(line, "%d %d %d %" SCNx64, &kind, &w, &h, &want), 4);
        struct image_view v = image(kind, w, h);
        const int apart = __builtin_popcountll(hash_of(&v) ^ want);
        if (apart > 4) {
            fail_msg("'%s': %d bits differ", line, apart);
        }
        bits += apart;
        cases++;
        free(v.data);
    }
    assert_int_equal(cases, 27);
    printf("%d of %d bits differ\n", bits, 64 * cases);
    assert_true(bits <= 16);
    free(text);
}

TEST(a_flat_image_has_only_the_mean) {
    struct image_view v = image(0, 90, 70);
    for (int level = 0; level < 256; level += 51) {
        memset(v.data, level, v.stride_bytes * 70);
        assert_true(hash_of(&v) == (level > 0 ? UINT64_C(1) << 63 : 0));
    }
    free(v.data);
}

/* Half of the bits at random would be 32. */
TEST(a_smaller_image_is_near_and_another_is_far) {
    struct image_view a = image(0, 640, 480);
    struct image_view b = image(0, 200, 150);
    struct image_view c = image(1, 640, 480);
    assert_true(__builtin_popcountll(hash_of(&a) ^ hash_of(&b)) <= 4);
    assert_true(__builtin_popcountll(hash_of(&a) ^ hash_of(&c)) >= 16);
    free(a.data);
    free(b.data);
    free(c.data);
}

TEST(hashes_need_pixels) {
    const char *sources[] = {pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 3})};
    struct pack_options o = pack_case_options(NULL, test_temp_path("d"), sources, 1);
    struct pack_summary sum;
    o.phash = true;
    o.check = false;
    assert_int_equal(pack_run(&o, &sum, NULL), STATUS_USAGE);
}

TEST(a_member_that_is_there_stays) {
    static const char *const cases[][2] = {
        {"", "{\"phash\":\"0f\"}"},
        {"{\"a\":1}", "{\"phash\":\"0f\",\"a\":1}"},
        {"{\"phash\":null}", "{\"phash\":null}"},
        {"{\"a\":", "{\"a\":"},
    };
    struct json_writer w;
    struct error err = {0};
    json_writer_init(&w, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_row row;
        source_row_init(&row);
        assert_ok(byte_buffer_append(&row.json, cases[i][0], strlen(cases[i][0]), &err), err);
        assert_ok(pack_metadata_add(&row, "phash", "0f", &w, &err), err);
        assert_int_equal(row.json.size_bytes, strlen(cases[i][1]));
        assert_memory_equal(row.json.data, cases[i][1], row.json.size_bytes);
        source_row_fini(&row);
    }
    json_writer_fini(&w);
}
