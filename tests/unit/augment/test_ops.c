#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/ops_internal.h"
#include "augment/pipeline.h"
#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/test.h"

static struct image_view new_picture(int32_t width_px, int32_t height_px) {
    struct image_view v = {.width_px = width_px, .height_px = height_px};
    v.stride_bytes = (size_t)width_px * 3;
    v.data = malloc(v.stride_bytes * (size_t)height_px);
    assert_non_null(v.data);
    return v;
}

/* As tests/golden/augment/make_golden.py makes it. */
static struct image_view picture(int kind, int32_t width_px, int32_t height_px) {
    struct image_view v = new_picture(width_px, height_px);
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
    struct augment_scratch scratch;
    struct error err = {0};
    augment_options_default(&opt, AUGMENT_EVAL_CROP);
    opt.size_px = (int32_t)g->a;
    opt.shorter_ratio = g->b;
    augment_scratch_init(&scratch);
    augment_draw(&params, &opt, in->width_px, in->height_px, 1, 2, 3, 0);
    augment_decode(&part, &params, 1);
    /* As a decoder would give it: the part alone, nothing around it. */
    struct image_view decoded = new_picture(part.region.width, part.region.height);
    for (int32_t y = 0; y < part.region.height; y++) {
        memcpy(decoded.data + (size_t)y * decoded.stride_bytes,
               in->data + (size_t)(y + part.region.y) * in->stride_bytes +
                   (size_t)part.region.x * 3,
               decoded.stride_bytes);
    }
    struct image_box box = {0, 0, part.region.width, part.region.height};
    assert_ok(augment_apply(out->data, &decoded, &box, &part, &params, &opt, &scratch, &err), err);
    free(decoded.data);
    augment_scratch_fini(&scratch);
}

static void run_case(const struct op_loops *l,
                     const struct golden *g,
                     const struct image_view *out,
                     const struct image_view *in) {
    struct resize_scratch scratch = {0};
    float f = (float)g->a;
    if (strcmp(g->op, "autocontrast") == 0) {
        op_autocontrast(l, out, in);
    } else if (strcmp(g->op, "equalize") == 0) {
        op_equalize(l, out, in);
    } else if (strcmp(g->op, "brightness") == 0) {
        op_brightness(l, out, in, f);
    } else if (strcmp(g->op, "contrast") == 0) {
        op_contrast(l, out, in, f);
    } else if (strcmp(g->op, "saturation") == 0) {
        op_saturation(l, out, in, f);
    } else if (strcmp(g->op, "gray") == 0) {
        op_gray(l, out, in);
    } else if (strcmp(g->op, "hue") == 0) {
        op_hue(l, out, in, (uint8_t)(int32_t)(g->a * 255.0));
    } else if (strcmp(g->op, "sharpness") == 0) {
        op_sharpness(l, out, in);
    } else if (strcmp(g->op, "shear_x") == 0) {
        op_shear_x(l, out, in, f, 128);
    } else if (strcmp(g->op, "shear_y") == 0) {
        op_shear_y(l, out, in, f, 128);
    } else if (strcmp(g->op, "rotate") == 0) {
        op_rotate(l, out, in, g->a, 128);
    } else if (strcmp(g->op, "translate") == 0) {
        op_translate(out, in, (int32_t)g->a, (int32_t)g->b, 128);
    } else if (strcmp(g->op, "blur") == 0) {
        assert_int_equal(op_blur(out, in, g->a, (int32_t)g->b, &scratch, NULL), STATUS_OK);
    } else if (strcmp(g->op, "crop_eval") == 0) {
        crop_eval(g, out, in);
    } else {
        fail_msg("unknown op '%s' in ops.txt", g->op);
    }
    resize_scratch_fini(&scratch);
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
        struct image_view in = picture(g.kind, g.width_px, g.height_px);
        struct image_view out = new_picture(g.out_width_px, g.out_height_px);
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
