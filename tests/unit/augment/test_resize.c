#include "augment/resize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/resize_internal.h"
#include "formats/base/rng.h"
#include "tests/support/loop_sets.h"
#include "tests/support/test.h"

static struct image_view new_image(int32_t width_px, int32_t height_px, size_t slack_bytes) {
    struct image_view v = {.width_px = width_px, .height_px = height_px};
    v.stride_bytes = (size_t)width_px * 3 + slack_bytes;
    v.data = malloc(v.stride_bytes * (size_t)height_px);
    assert_non_null(v.data);
    return v;
}

/* As tests/golden/augment/make_resize.py makes it. */
static struct image_view pattern(int32_t width_px, int32_t height_px) {
    struct image_view v = new_image(width_px, height_px, 0);
    uint8_t *p = v.data;
    for (int32_t y = 0; y < height_px; y++) {
        for (int32_t x = 0; x < width_px; x++) {
            for (int32_t c = 0; c < 3; c++) {
                *p++ = (uint8_t)((x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3));
            }
        }
    }
    return v;
}

static struct image_view noise(int32_t width_px, int32_t height_px, uint64_t seed) {
    struct image_view v = new_image(width_px, height_px, 0);
    struct rng rng;
    rng_init(&rng, seed, RNG_INIT, 0, 0);
    for (size_t i = 0; i < v.stride_bytes * (size_t)height_px; i++) {
        uint32_t r = rng_below(&rng, 512);
        v.data[i] = (uint8_t)(r < 64 ? 0 : r > 447 ? 255 : r - 64); /* edges to black and white */
    }
    return v;
}

TEST(agrees_with_pillow) {
    size_t text_bytes;
    size_t pixel_bytes;
    uint8_t *text =
        test_read_file(test_source_path("tests/golden/augment/resize.txt"), &text_bytes);
    uint8_t *golden =
        test_read_file(test_source_path("tests/golden/augment/resize.bin"), &pixel_bytes);
    struct resize_workspace workspace = {0};
    struct error err = {0};
    size_t at = 0;
    int cases = 0;
    double sum = 0;
    for (char *line = strtok((char *)text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        int w, h, ow, oh, filter;
        struct image_box box;
        if (sscanf(line, "%d %d %lf %lf %lf %lf %d %d %d", &w, &h, &box.x, &box.y, &box.width,
                   &box.height, &ow, &oh, &filter) != 9) {
            continue;
        }
        struct image_view in = pattern(w, h);
        struct image_view out = new_image(ow, oh, 0);
        assert_ok(resize_image(&out, &in, &box, NULL, (enum resize_filter)filter, false, &workspace,
                               &err),
                  err);
        size_t n = (size_t)ow * (size_t)oh * 3;
        assert_true(at + n <= pixel_bytes);
        for (size_t i = 0; i < n; i++) {
            int difference = abs(out.data[i] - golden[at + i]);
            if (difference > 1) {
                fail_msg("case '%s': byte %zu is %d, Pillow has %d", line, i, out.data[i],
                         golden[at + i]);
            }
            sum += difference;
        }
        at += n;
        cases++;
        free(in.data);
        free(out.data);
    }
    assert_int_equal(cases, 42);
    assert_int_equal(at, pixel_bytes);
    printf("mean difference %.6f levels over %zu values\n", sum / (double)at, at);
    assert_true(sum / (double)at < 0.01);
    resize_workspace_fini(&workspace);
    free(text);
    free(golden);
}

/* One set of loops, mirrored and not; rows of the result have slack that must stay untouched. */
static void check_job_with(const struct resize_kernels *k,
                           const struct image_view *expected,
                           const struct image_view *in,
                           const struct image_box *box,
                           const struct image_box *within,
                           enum resize_filter filter,
                           struct resize_workspace *workspace) {
    int32_t ow = expected->width_px;
    struct image_view out[2];
    for (int i = 0; i < 2; i++) {
        out[i] = new_image(ow, expected->height_px, 5);
        memset(out[i].data, 0xA5, out[i].stride_bytes * (size_t)out[i].height_px);
        assert_int_equal(
            resize_image_with(k, &out[i], in, box, within, filter, i == 1, workspace, NULL),
            STATUS_OK);
    }
    for (int32_t y = 0; y < expected->height_px; y++) {
        const uint8_t *row = out[0].data + (size_t)y * out[0].stride_bytes;
        const uint8_t *mirrored = out[1].data + (size_t)y * out[1].stride_bytes;
        assert_memory_equal(row, expected->data + (size_t)y * expected->stride_bytes,
                            (size_t)ow * 3);
        for (int32_t x = 0; x < ow; x++) {
            assert_memory_equal(row + 3 * x, mirrored + 3 * (ow - 1 - x), 3);
        }
        assert_memory_equal(row + 3 * ow, "\xA5\xA5\xA5\xA5\xA5", 5);
    }
    free(out[0].data);
    free(out[1].data);
}

static void check_job(struct rng *rng, struct resize_workspace *workspace) {
    int32_t w = 1 + (int32_t)rng_below(rng, rng_below(rng, 2) ? 12 : 300);
    int32_t h = 1 + (int32_t)rng_below(rng, rng_below(rng, 2) ? 12 : 200);
    int32_t ow = 1 + (int32_t)rng_below(rng, rng_below(rng, 2) ? 12 : 130);
    int32_t oh = 1 + (int32_t)rng_below(rng, 60);
    enum resize_filter filter = (enum resize_filter)(RESIZE_BILINEAR + rng_below(rng, 3));
    struct image_box within = {0, 0, w, h};
    struct image_box box;
    box.width = 0.01 + rng_uniform(rng) * (w - 0.01);
    box.height = 0.01 + rng_uniform(rng) * (h - 0.01);
    box.x = rng_uniform(rng) * (w - box.width);
    box.y = rng_uniform(rng) * (h - box.height);
    within = rng_below(rng, 2) ? box : within;
    struct image_view in = noise(w, h, rng_u64(rng));
    struct image_view expected = new_image(ow, oh, 0);
    const struct resize_kernels *sets[LOOP_SETS_MAX];
    int count = resize_loop_sets(sets);
    assert_int_equal(
        resize_image_with(sets[0], &expected, &in, &box, &within, filter, false, workspace, NULL),
        STATUS_OK);
    for (int i = 0; i < count; i++) {
        check_job_with(sets[i], &expected, &in, &box, &within, filter, workspace);
    }
    free(in.data);
    free(expected.data);
}

TEST(vector_and_plain_loops_give_the_same_bytes) {
    struct resize_workspace workspace = {0};
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_AUGMENT, 0, 0);
    for (int i = 0; i < 400; i++) {
        check_job(&rng, &workspace);
    }
    resize_workspace_fini(&workspace);
}

TEST(flat_areas_keep_their_value) {
    struct resize_workspace workspace = {0};
    struct image_view in = new_image(301, 203, 0);
    struct image_view out = new_image(64, 200, 0);
    struct image_box box = {3.25, 1.5, 290.1, 199.7};
    for (int value = 0; value < 256; value += 51) {
        memset(in.data, value, in.stride_bytes * 203);
        for (int f = RESIZE_BILINEAR; f <= RESIZE_LANCZOS; f++) {
            assert_int_equal(
                resize_image(&out, &in, &box, NULL, (enum resize_filter)f, false, &workspace, NULL),
                0);
            for (size_t i = 0; i < out.stride_bytes * 200; i++) {
                assert_int_equal(out.data[i], value);
            }
        }
    }
    free(in.data);
    free(out.data);
    resize_workspace_fini(&workspace);
}

TEST(resize_to_the_same_size_is_the_identity) {
    struct resize_workspace workspace = {0};
    struct image_view in = noise(70, 50, 4);
    struct image_view out = new_image(70, 50, 0);
    struct image_box box = {0, 0, 70, 50};
    assert_int_equal(resize_image(&out, &in, &box, NULL, RESIZE_BICUBIC, false, &workspace, NULL),
                     0);
    assert_memory_equal(out.data, in.data, in.stride_bytes * 50);
    free(in.data);
    free(out.data);
    resize_workspace_fini(&workspace);
}

TEST(workspace_grows_once) {
    struct resize_workspace workspace = {0};
    struct image_view in = noise(200, 200, 5);
    struct image_view out = new_image(96, 96, 0);
    struct image_box box = {0, 0, 200, 200};
    assert_int_equal(resize_image(&out, &in, &box, NULL, RESIZE_BICUBIC, false, &workspace, NULL),
                     0);
    const uint8_t *before = workspace.data;
    for (int32_t side = 200; side > 10; side -= 17) {
        box = (struct image_box){200 - side, 0, side, side};
        assert_int_equal(
            resize_image(&out, &in, &box, NULL, RESIZE_BICUBIC, true, &workspace, NULL), 0);
    }
    assert_ptr_equal(before, workspace.data);
    free(in.data);
    free(out.data);
    resize_workspace_fini(&workspace);
}

TEST(short_side_size_is_rounded_as_documented) {
    int32_t w, h;
    assert_true(resize_short_size(&w, &h, 640, 480, 256));
    assert_int_equal(w, 341);
    assert_int_equal(h, 256);
    assert_true(resize_short_size(&w, &h, 480, 641, 240));
    assert_int_equal(w, 240);
    assert_int_equal(h, 321);
    assert_false(resize_short_size(&w, &h, 100, 300, 100));
    assert_int_equal(w, 100);
    assert_int_equal(h, 300);
    assert_false(resize_short_size(&w, &h, 99, 300, 100));
    assert_true(resize_short_size(&w, &h, IMAGE_MAX_SIDE_PX, 2, 1));
    assert_int_equal(w, IMAGE_MAX_SIDE_PX / 2);
    assert_int_equal(h, 1);
}
