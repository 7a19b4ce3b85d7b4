#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/ops_internal.h"
#include "augment/pipeline.h"
#include "augment/resize_internal.h"
#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/loop_sets.h"
#include "tests/support/test.h"

static struct image_view new_image(int32_t width_px, int32_t height_px) {
    struct image_view v = {.width_px = width_px, .height_px = height_px};
    v.stride_bytes = (size_t)width_px * 3;
    v.data = malloc(v.stride_bytes * (size_t)height_px);
    assert_non_null(v.data);
    return v;
}

/* As tests/golden/augment/make_golden.py makes it. */
static struct image_view image(int kind, int32_t width_px, int32_t height_px) {
    struct image_view v = new_image(width_px, height_px);
    uint8_t *p = v.data;
    uint32_t w = (uint32_t)width_px;
    uint32_t h = (uint32_t)height_px;
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++) {
            for (uint32_t c = 0; c < 3; c++) {
                uint32_t noise =
                    (((x * 73856093u) ^ (y * 19349663u) ^ (c * 83492791u)) * 2654435761u) >> 24;
                uint32_t by_kind[] = {
                    (x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3),
                    noise,
                    60 + c * 20 + noise % 64 + x * 40 / w,
                    77 + c,
                    (x * (200 - 60 * c) / w + y * (20 + 90 * c) / h + noise % 4) % 256,
                };
                *p++ = (uint8_t)by_kind[kind];
            }
        }
    }
    return v;
}

/* --------------------------------------------------------------- against the golden results */

struct golden {
    char op[32];
    double a, b;
    int kind;
    int32_t width_px, height_px;
    bool exact;
    uint64_t hash;
    int32_t out_width_px, out_height_px;
};

static bool read_case(struct golden *g, const char *line) {
    char end[32];
    int at = 0;
    if (sscanf(line, "%31s %lf %lf %d %d %d %31s%n", g->op, &g->a, &g->b, &g->kind, &g->width_px,
               &g->height_px, end, &at) != 7) {
        return false;
    }
    g->exact = strcmp(end, "bytes") != 0;
    if (g->exact) {
        g->hash = strtoull(end, NULL, 16);
        g->out_width_px = g->width_px;
        g->out_height_px = g->height_px;
        return true;
    }
    return sscanf(line + at, "%d %d", &g->out_width_px, &g->out_height_px) == 2;
}

static void
crop_eval(const struct golden *g, const struct image_view *out, const struct image_view *in) {
    struct augment_options opt;
    struct augment_params params;
    struct augment_part part;
    struct augment_workspace workspace;
    struct error err = {0};
    augment_options_default(&opt, AUGMENT_EVAL_CROP);
    opt.size_px = (int32_t)g->a;
    opt.shorter_ratio = g->b;
    augment_workspace_init(&workspace);
    augment_draw(&params, &opt, in->width_px, in->height_px, 1, 2, 3, 0);
    augment_decode(&part, &params, 1);
    /* As a decoder would give it: the part alone, nothing around it. */
    struct image_view decoded = new_image(part.region.width, part.region.height);
    for (int32_t y = 0; y < part.region.height; y++) {
        memcpy(decoded.data + (size_t)y * decoded.stride_bytes,
               in->data + (size_t)(y + part.region.y) * in->stride_bytes +
                   (size_t)part.region.x * 3,
               decoded.stride_bytes);
    }
    struct image_box box = {0, 0, part.region.width, part.region.height};
    assert_ok(augment_apply(out->data, &decoded, &box, &part, &params, &opt, &workspace, &err),
              err);
    free(decoded.data);
    augment_workspace_fini(&workspace);
}

static void run_case(const struct op_loops *l,
                     const struct golden *g,
                     const struct image_view *out,
                     const struct image_view *in) {
    struct resize_workspace workspace = {0};
    float f = (float)g->a;
    if (strcmp(g->op, "autocontrast") == 0) {
        op_autocontrast((struct op_pass){l, out, in});
    } else if (strcmp(g->op, "equalize") == 0) {
        op_equalize((struct op_pass){l, out, in});
    } else if (strcmp(g->op, "brightness") == 0) {
        op_brightness((struct op_pass){l, out, in}, f);
    } else if (strcmp(g->op, "contrast") == 0) {
        op_contrast((struct op_pass){l, out, in}, f);
    } else if (strcmp(g->op, "saturation") == 0) {
        op_saturation((struct op_pass){l, out, in}, f);
    } else if (strcmp(g->op, "gray") == 0) {
        op_gray((struct op_pass){l, out, in});
    } else if (strcmp(g->op, "hue") == 0) {
        op_hue((struct op_pass){l, out, in}, (uint8_t)(int32_t)(g->a * 255.0));
    } else if (strcmp(g->op, "sharpness") == 0) {
        op_sharpness((struct op_pass){l, out, in});
    } else if (strcmp(g->op, "shear_x") == 0) {
        op_shear_x((struct op_pass){l, out, in}, f, 128);
    } else if (strcmp(g->op, "shear_y") == 0) {
        op_shear_y((struct op_pass){l, out, in}, f, 128);
    } else if (strcmp(g->op, "rotate") == 0) {
        op_rotate((struct op_pass){l, out, in}, g->a, 128);
    } else if (strcmp(g->op, "translate") == 0) {
        op_translate(out, in, (int32_t)g->a, (int32_t)g->b, 128);
    } else if (strcmp(g->op, "blur") == 0) {
        assert_int_equal(op_blur(out, in, g->a, (int32_t)g->b, &workspace, NULL), STATUS_OK);
    } else if (strcmp(g->op, "crop_eval") == 0) {
        crop_eval(g, out, in);
    } else {
        fail_msg("unknown op '%s' in ops.txt", g->op);
    }
    resize_workspace_fini(&workspace);
}

struct difference {
    double sum;
    size_t count;
    int most;
};

static void compare(struct difference *d, const uint8_t *a, const uint8_t *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int v = abs(a[i] - b[i]);
        d->sum += v;
        d->most = v > d->most ? v : d->most;
    }
    d->count += count;
}

TEST(agrees_with_pillow_opencv_and_torchvision) {
    size_t text_bytes, pixel_bytes;
    uint8_t *text = test_read_file(test_source_path("tests/golden/augment/ops.txt"), &text_bytes);
    uint8_t *pixels =
        test_read_file(test_source_path("tests/golden/augment/ops.bin"), &pixel_bytes);
    struct difference hue = {0}, blur = {0}, crop = {0};
    size_t at = 0;
    int exact = 0;
    char *rest = NULL;
    for (char *line = strtok_r((char *)text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        struct golden g;
        if (line[0] == '#') {
            continue;
        }
        assert_true(read_case(&g, line));
        struct image_view in = image(g.kind, g.width_px, g.height_px);
        struct image_view out = new_image(g.out_width_px, g.out_height_px);
        run_case(op_loops_plain(), &g, &out, &in);
        size_t n = out.stride_bytes * (size_t)out.height_px;
        if (g.exact) {
            if (hash64(out.data, n) != g.hash) {
                fail_msg("'%s': other bytes than the reference", line);
            }
            exact++;
        } else {
            assert_true(at + n <= pixel_bytes);
            compare(g.op[0] == 'h'   ? &hue
                    : g.op[0] == 'b' ? &blur
                                     : &crop,
                    out.data, pixels + at, n);
            at += n;
        }
        free(in.data);
        free(out.data);
    }
    assert_int_equal(at, pixel_bytes);
    assert_int_equal(exact, 425);
    printf("hue: mean %.4f most %d; blur: mean %.4f most %d; crop: mean %.4f most %d\n",
           hue.sum / (double)hue.count, hue.most, blur.sum / (double)blur.count, blur.most,
           crop.sum / (double)crop.count, crop.most);
    assert_true(hue.sum / (double)hue.count < 0.02 && hue.most <= 6);
    assert_true(blur.sum / (double)blur.count < 0.3 && blur.most <= 1);
    assert_true(crop.sum / (double)crop.count < 0.02 && crop.most <= 1);
    free(text);
    free(pixels);
}

/* ------------------------------------------------------------- every set of loops against plain */

/* An image with padding after each row, and bytes around it that must not change. */
struct framed {
    uint8_t *memory;
    size_t size_bytes;
    struct image_view view;
};

enum { FRAME_BYTES = 70, MARK = 0xA5 };

static struct framed new_framed(int32_t w, int32_t h, size_t slack_bytes, size_t shift_bytes) {
    struct framed f = {.view = {.width_px = w, .height_px = h}};
    f.view.stride_bytes = (size_t)w * 3 + slack_bytes;
    f.size_bytes = f.view.stride_bytes * (size_t)h + 2 * FRAME_BYTES + shift_bytes;
    f.memory = malloc(f.size_bytes);
    assert_non_null(f.memory);
    memset(f.memory, MARK, f.size_bytes);
    f.view.data = f.memory + FRAME_BYTES + shift_bytes;
    return f;
}

static void assert_frame_untouched(const struct framed *f) {
    const uint8_t *p = f->memory;
    const uint8_t *end = f->memory + f->size_bytes;
    for (int32_t y = 0; y < f->view.height_px; y++) {
        const uint8_t *row = f->view.data + (size_t)y * f->view.stride_bytes;
        for (; p < row; p++) {
            assert_int_equal(*p, MARK);
        }
        p = row + (size_t)f->view.width_px * 3;
    }
    for (; p < end; p++) {
        assert_int_equal(*p, MARK);
    }
}

enum { ANY_OPS = 12 };

static void any_op(const struct op_loops *l,
                   int which,
                   double number,
                   const struct image_view *out,
                   const struct image_view *in) {
    float f = (float)number;
    double m[6] = {number, 0.3, -4, -0.2, 1.1 * number + 0.1, 5.5};
    switch (which) {
    case 0:
        op_autocontrast((struct op_pass){l, out, in});
        break;
    case 1:
        op_equalize((struct op_pass){l, out, in});
        break;
    case 2:
        op_brightness((struct op_pass){l, out, in}, f);
        break;
    case 3:
        op_contrast((struct op_pass){l, out, in}, f);
        break;
    case 4:
        op_saturation((struct op_pass){l, out, in}, f);
        break;
    case 5:
        op_hue((struct op_pass){l, out, in}, (uint8_t)(number * 140));
        break;
    case 6:
        op_gray((struct op_pass){l, out, in});
        break;
    case 7:
        op_sharpness((struct op_pass){l, out, in});
        break;
    case 8:
        op_shear_x((struct op_pass){l, out, in}, f - 0.9F, 128);
        break;
    case 9:
        op_shear_y((struct op_pass){l, out, in}, f - 0.9F, 7);
        break;
    case 10:
        op_rotate((struct op_pass){l, out, in}, number * 200, 250);
        break;
    default:
        op_affine((struct op_pass){l, out, in}, m, 128);
        break;
    }
}

static bool works_in_place(int which) {
    return which < 7;
}

static void fill_noise(const struct image_view *v, struct rng *rng) {
    uint32_t contrast = 1 + rng_below(rng, 512);
    uint32_t low = rng_below(rng, 256);
    for (int32_t y = 0; y < v->height_px; y++) {
        for (int32_t i = 0; i < 3 * v->width_px; i++) {
            uint32_t x = low + rng_below(rng, contrast);
            v->data[(size_t)y * v->stride_bytes + (size_t)i] = (uint8_t)(x < 255 ? x : 255);
        }
    }
}

static int32_t some_side(struct rng *rng) {
    static const uint32_t most[] = {4, 20, 90, 600};
    return 1 + (int32_t)rng_below(rng, most[rng_below(rng, 4)]);
}

TEST(vector_and_plain_loops_give_the_same_bytes) {
    const struct op_loops *sets[LOOP_SETS_MAX];
    int count = op_loop_sets(sets);
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_AUGMENT, 1, 0);
    for (int i = 0; i < 1200; i++) {
        int32_t w = some_side(&rng);
        int32_t h = 1 + (int32_t)rng_below(&rng, w > 90 ? 12 : 90);
        struct framed in = new_framed(w, h, rng_below(&rng, 2) * rng_below(&rng, 40), 0);
        fill_noise(&in.view, &rng);
        int which = i % ANY_OPS;
        double number = rng_uniform(&rng) * 1.8;
        struct framed plain = new_framed(w, h, 0, 0);
        any_op(sets[0], which, number, &plain.view, &in.view);
        assert_frame_untouched(&plain);
        for (int k = 0; k < count; k++) {
            struct framed out =
                new_framed(w, h, rng_below(&rng, 2) * rng_below(&rng, 40), rng_below(&rng, 32));
            any_op(sets[k], which, number, &out.view, &in.view);
            assert_frame_untouched(&out);
            for (int place = 0; place <= works_in_place(which); place++) {
                const struct image_view *v = place == 0 ? &out.view : &in.view;
                for (int32_t y = 0; y < h; y++) {
                    const uint8_t *a = plain.view.data + (size_t)y * plain.view.stride_bytes;
                    const uint8_t *b = v->data + (size_t)y * v->stride_bytes;
                    if (memcmp(a, b, (size_t)w * 3) != 0) {
                        fail_msg("%s loops, op %d by %f on %d x %d, %s: row %d differs",
                                 sets[k]->name, which, number, w, h, place ? "in place" : "apart",
                                 y);
                    }
                }
                if (place == 0 && works_in_place(which) && k == count - 1) {
                    any_op(sets[k], which, number, &in.view, &in.view);
                } else {
                    break;
                }
            }
            free(out.memory);
        }
        assert_frame_untouched(&in);
        free(in.memory);
        free(plain.memory);
    }
}

/* A sixteenth of all colours, through two turns each; saturation, gray and their sum beside it. All
 * of them pass too; in a debug build that would take half a minute. */
TEST(vector_loops_are_exact_for_all_colours) {
    const struct op_loops *sets[LOOP_SETS_MAX];
    int count = op_loop_sets(sets);
    if (count == 1) {
        test_skip("this CPU has the plain loops alone");
    }
    enum { PLANE = 65536 };
    static uint8_t in[PLANE * 3], expected[PLANE * 3], got[PLANE * 3];
    bool slow = test_sanitizer()[0] != 0;
    for (uint32_t b = 0; b < 256; b += slow ? 51 : 17) {
        for (uint32_t i = 0; i < PLANE; i++) {
            in[3 * i] = (uint8_t)(i >> 8);
            in[3 * i + 1] = (uint8_t)i;
            in[3 * i + 2] = (uint8_t)b;
        }
        for (int turn = 0; turn < 2; turn++) {
            uint8_t shift = (uint8_t)(turn * (1 + b * 7));
            sets[0]->hue(expected, in, PLANE, shift);
            for (int k = 1; k < count; k++) {
                sets[k]->hue(got, in, PLANE, shift);
                assert_memory_equal(got, expected, sizeof(got));
            }
        }
        float factor = 0.01F * (float)b;
        sets[0]->saturation(expected, in, PLANE, factor);
        for (int k = 1; k < count; k++) {
            sets[k]->saturation(got, in, PLANE, factor);
            assert_memory_equal(got, expected, sizeof(got));
        }
        sets[0]->gray(expected, in, PLANE);
        for (int k = 1; k < count; k++) {
            sets[k]->gray(got, in, PLANE);
            assert_memory_equal(got, expected, sizeof(got));
            assert_true(sets[k]->gray_sum(in, PLANE) == sets[0]->gray_sum(in, PLANE));
        }
    }
}

/* Every value of a pixel, among neighbours whose sum goes from 0 to 8 times 255. */
TEST(sharpness_is_exact_for_every_sum) {
    const struct op_loops *sets[LOOP_SETS_MAX];
    int count = op_loop_sets(sets);
    enum { W = 2048, STRIDE = (W + 2) * 3 };
    static uint8_t in[3 * STRIDE], expected[W * 3], got[W * 3];
    for (int here = 0; here < 256; here++) {
        for (int c = 0; c < 3; c++) {
            for (int x = 0; x < W + 2; x++) { /* eight neighbours: their sum goes to and fro */
                for (int y = 0; y < 3; y++) {
                    int level = x * 8 / 3 % 2041;
                    int share = level / 8 + ((x + y * 3) % 8 < level % 8);
                    in[y * STRIDE + x * 3 + c] = (uint8_t)(y == 1 && x % 3 == 1 ? here : share);
                }
            }
        }
        sets[0]->sharpness(expected, in + STRIDE + 3, STRIDE, sizeof(expected));
        for (int k = 1; k < count; k++) {
            sets[k]->sharpness(got, in + STRIDE + 3, STRIDE, sizeof(got));
            assert_memory_equal(got, expected, sizeof(got));
        }
    }
}

/* ----------------------------------------------------------------------- what each op is about */

TEST(degenerate_warps_give_the_fill_colour) {
    struct image_view in = image(1, 20, 10);
    struct image_view out = new_image(20, 10);
    const double maps[][6] = {{0, 0, 0, 0, 0, 0},
                              {1, 2, 0, 2, 4, 0},
                              {1e-9, 0, 0, 0, 1, 0},
                              {1, 0, 1e300, 0, 1, 0},
                              {1, 0, 0, 0, 1, -2e6}};
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        memset(out.data, 1, out.stride_bytes * 10);
        op_affine((struct op_pass){op_loops_fastest(), &out, &in}, maps[i], 99);
        for (size_t k = 0; k < out.stride_bytes * 10; k++) {
            assert_int_equal(out.data[k], 99);
        }
    }
    op_translate(&out, &in, INT32_MIN, INT32_MAX, 98);
    for (size_t k = 0; k < out.stride_bytes * 10; k++) {
        assert_int_equal(out.data[k], 98);
    }
    free(in.data);
    free(out.data);
}

TEST(blur_keeps_flat_areas_and_works_in_place) {
    struct resize_workspace workspace = {0};
    for (int32_t side = 1; side < 40; side += 4) {
        struct image_view flat = image(3, side, 40 - side);
        struct image_view noise = image(1, side, 40 - side);
        struct image_view out = new_image(side, 40 - side);
        size_t n = out.stride_bytes * (size_t)out.height_px;
        for (int32_t radius = 0; radius < 60; radius += 7) {
            double sigma = 0.1 + radius * 0.31;
            assert_int_equal(op_blur(&out, &flat, sigma, radius, &workspace, NULL), STATUS_OK);
            assert_memory_equal(out.data, flat.data, n);
            assert_int_equal(op_blur(&out, &noise, sigma, radius, &workspace, NULL), STATUS_OK);
            assert_int_equal(op_blur(&noise, &noise, sigma, radius, &workspace, NULL), STATUS_OK);
            assert_memory_equal(out.data, noise.data, n);
        }
        free(flat.data);
        free(noise.data);
        free(out.data);
    }
    resize_workspace_fini(&workspace);
}

/* The papers' wrap: a white pixel among black ones would become 332, and is 76. */
TEST(sharpness_wraps_around) {
    uint8_t in[27] = {0};
    uint8_t out[27];
    struct image_view a = {in, 3, 3, 9};
    struct image_view b = {out, 3, 3, 9};
    in[12] = 255; /* smooth: 98; 98 + 1.36 * 157 = 311.5 */
    in[13] = 255;
    in[14] = 0;
    for (int i = 2; i < 27; i += 3) {
        in[i] = i == 14 ? 0 : 255; /* smooth: 157; 157 - 1.36 * 157 = -56.5 */
    }
    op_sharpness((struct op_pass){op_loops_fastest(), &b, &a});
    assert_int_equal(out[12], 311 - 256);
    assert_int_equal(out[14], 256 - 56);
    assert_int_equal(out[0], in[0]);
    assert_memory_equal(out + 18, in + 18, 9);
}

/* Shears have loops of their own; the general warp is what they have to equal. */
TEST(shears_equal_their_warps) {
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_AUGMENT, 3, 0);
    for (int i = 0; i < 400; i++) {
        int32_t w = some_side(&rng);
        int32_t h = some_side(&rng) / (w > 90 ? 9 : 1) + 1;
        float factor = (float)((rng_uniform(&rng) - 0.5) * (i % 5 == 0 ? 1000 : 3));
        struct framed in = new_framed(w, h, rng_below(&rng, 2) * 11, 0);
        fill_noise(&in.view, &rng);
        for (int vertical = 0; vertical < 2; vertical++) {
            struct framed expected = new_framed(w, h, 0, 0);
            struct framed out = new_framed(w, h, rng_below(&rng, 2) * 5, 0);
            double m[6] = {1, vertical ? 0 : (double)factor, 0, vertical ? (double)factor : 0, 1,
                           0};
            op_affine((struct op_pass){op_loops_plain(), &expected.view, &in.view}, m, 77);
            (vertical ? op_shear_y : op_shear_x)(
                (struct op_pass){op_loops_fastest(), &out.view, &in.view}, factor, 77);
            for (int32_t y = 0; y < h; y++) {
                assert_memory_equal(out.view.data + (size_t)y * out.view.stride_bytes,
                                    expected.view.data + (size_t)y * expected.view.stride_bytes,
                                    (size_t)w * 3);
            }
            assert_frame_untouched(&out);
            free(expected.memory);
            free(out.memory);
        }
        free(in.memory);
    }
}

TEST(every_set_of_loops_gives_the_same_blur) {
    const struct resize_kernels *sets[LOOP_SETS_MAX];
    int count = resize_loop_sets(sets);
    struct resize_workspace workspace = {0};
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_AUGMENT, 2, 0);
    for (int i = 0; i < 300; i++) {
        int32_t w = some_side(&rng);
        int32_t h = 1 + (int32_t)rng_below(&rng, 40);
        double sigma = 0.05 + rng_uniform(&rng) * 4;
        int32_t radius = (int32_t)rng_below(&rng, 14);
        struct framed in = new_framed(w, h, rng_below(&rng, 40), 0);
        struct framed plain = new_framed(w, h, 0, 0);
        fill_noise(&in.view, &rng);
        assert_int_equal(
            op_blur_with(sets[0], &plain.view, &in.view, sigma, radius, &workspace, NULL),
            STATUS_OK);
        for (int k = 1; k < count; k++) {
            struct framed out = new_framed(w, h, rng_below(&rng, 40), rng_below(&rng, 32));
            assert_int_equal(
                op_blur_with(sets[k], &out.view, &in.view, sigma, radius, &workspace, NULL),
                STATUS_OK);
            assert_frame_untouched(&out);
            for (int32_t y = 0; y < h; y++) {
                assert_memory_equal(out.view.data + (size_t)y * out.view.stride_bytes,
                                    plain.view.data + (size_t)y * plain.view.stride_bytes,
                                    (size_t)w * 3);
            }
            free(out.memory);
        }
        assert_frame_untouched(&plain);
        free(in.memory);
        free(plain.memory);
    }
    resize_workspace_fini(&workspace);
}
