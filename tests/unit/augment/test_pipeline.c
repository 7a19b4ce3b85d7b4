#include "augment/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "augment/steps_internal.h"
#include "formats/base/rng.h"
#include "tests/support/test.h"

/* torchvision's get_params, line by line, in double. */
static struct image_rect reference_crop(int32_t width, int32_t height, struct rng *rng) {
    double area = (double)height * width;
    for (int i = 0; i < 10; i++) {
        double target = area * (0.5 + 0.5 * rng_uniform(rng));
        double low = log(3.0 / 4.0);
        double high = log(4.0 / 3.0);
        double ratio = exp(low + (high - low) * rng_uniform(rng));
        int w = (int)rint(sqrt(target * ratio));
        int h = (int)rint(sqrt(target / ratio));
        if (0 < w && w <= width && 0 < h && h <= height) {
            int y = (int)rng_below(rng, (uint32_t)(height - h + 1));
            int x = (int)rng_below(rng, (uint32_t)(width - w + 1));
            return (struct image_rect){x, y, w, h};
        }
    }
    double in_ratio = (double)width / height;
    int w = width;
    int h = height;
    if (in_ratio < 3.0 / 4.0) {
        h = (int)rint(w / (3.0 / 4.0));
    } else if (in_ratio > 4.0 / 3.0) {
        w = (int)rint(h * (4.0 / 3.0));
    }
    return (struct image_rect){(width - w) / 2, (height - h) / 2, w, h};
}

TEST(crop_follows_the_reference_arithmetic) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    struct rng sizes;
    rng_init(&sizes, test_seed(), RNG_INIT, 0, 0);
    for (uint64_t id = 0; id < 3000; id++) {
        int32_t most = id % 3 == 0 ? 6 : 900;
        int32_t width = 1 + (int32_t)rng_below(&sizes, (uint32_t)most);
        int32_t height = 1 + (int32_t)rng_below(&sizes, (uint32_t)most);
        struct augment_params p;
        augment_draw(&p, &opt, width, height, 7, 2, id, 0);
        struct rng rng;
        rng_init(&rng, 7, RNG_AUGMENT, 2, id);
        struct image_rect r = reference_crop(width, height, &rng);
        assert_memory_equal(&p.region, &r, sizeof(r));
        assert_int_equal(p.flip, rng_uniform(&rng) < 0.5);
        assert_true(r.x >= 0 && r.y >= 0 && r.width > 0 && r.height > 0);
        assert_true(r.x + r.width <= width && r.y + r.height <= height);
    }
}

TEST(extreme_shapes_fall_back_to_the_centre) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    struct augment_params p;
    augment_draw(&p, &opt, 1000, 10, 1, 0, 0, 0);
    assert_int_equal(p.region.height, 10);
    assert_int_equal(p.region.width, 13);
    assert_int_equal(p.region.x, (1000 - 13) / 2);
    augment_draw(&p, &opt, 10, 1000, 1, 0, 0, 0);
    assert_int_equal(p.region.width, 10);
    assert_int_equal(p.region.height, 13);
    augment_draw(&p, &opt, 1, IMAGE_MAX_SIDE_PX, 1, 0, 0, 0);
    assert_int_equal(p.region.width, 1);
    assert_int_equal(p.region.height, 1);
}

TEST(draws_depend_only_on_seed_epoch_and_sample) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    struct augment_params first, same, other;
    augment_draw(&first, &opt, 640, 480, 1, 2, 3, 0);
    augment_draw(&other, &opt, 640, 480, 1, 2, 4, 0);
    augment_draw(&same, &opt, 640, 480, 1, 2, 3, 0);
    assert_memory_equal(&first.region, &same.region, sizeof(first.region));
    assert_int_equal(first.flip, same.flip);
    assert_memory_not_equal(&first.region, &other.region, sizeof(first.region));
    augment_draw(&other, &opt, 640, 480, 1, 3, 3, 0);
    assert_memory_not_equal(&first.region, &other.region, sizeof(first.region));
    augment_draw(&other, &opt, 640, 480, 2, 2, 3, 0);
    assert_memory_not_equal(&first.region, &other.region, sizeof(first.region));
}

TEST(draws_have_the_documented_distribution) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    double area = 0;
    double logs = 0;
    int flips = 0;
    const int n = 20000;
    for (int i = 0; i < n; i++) {
        struct augment_params p;
        augment_draw(&p, &opt, 4000, 4000, 1, 0, (uint64_t)i, 0);
        area += (double)p.region.width * p.region.height / (4000.0 * 4000.0);
        logs += log((double)p.region.width / p.region.height);
        flips += p.flip;
    }
    /* Large areas with long shapes do not fit and are drawn again: 0.692 by integration. */
    assert_true(fabs(area / n - 0.692) < 0.005);
    assert_true(fabs(logs / n) < 0.01);
    assert_true(abs(flips - n / 2) < 300);
}

TEST(views_are_drawn_independently) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    int same = 0;
    for (uint64_t id = 0; id < 200; id++) {
        struct augment_params a, b, again;
        augment_draw(&a, &opt, 640, 480, 1, 2, id, 0);
        augment_draw(&b, &opt, 640, 480, 1, 2, id, 1);
        augment_draw(&again, &opt, 640, 480, 1, 2, id, 1);
        assert_memory_equal(&b.region, &again.region, sizeof(b.region));
        same += memcmp(&a.region, &b.region, sizeof(a.region)) == 0;
    }
    assert_true(same < 3);
}

TEST(kinds_are_parsed_from_their_names) {
    int count = 0;
    for (; AUGMENT_KIND_NAMES[count] != NULL; count++) {
        enum augment_kind kind;
        assert_true(augment_kind_of(&kind, AUGMENT_KIND_NAMES[count]));
        assert_string_equal(augment_kind_name(kind), AUGMENT_KIND_NAMES[count]);
    }
    enum augment_kind kind;
    assert_true(augment_kind_of(&kind, "none"));
    assert_int_equal(kind, AUGMENT_EVAL_SQUASH);
    assert_true(augment_kind_of(&kind, "eval-crop"));
    assert_int_equal(kind, AUGMENT_EVAL_CROP);
    assert_false(augment_kind_of(&kind, "evalcrop"));
    assert_false(augment_kind_of(&kind, ""));
}

/* torchvision's arithmetic: Resize(shorter), CenterCrop(size). */
TEST(eval_crop_is_the_centre_of_the_resized_image) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_EVAL_CROP);
    opt.size_px = 224;
    opt.shorter_ratio = 256.0 / 224;
    struct augment_params p;
    augment_draw(&p, &opt, 640, 480, 1, 0, 0, 0); /* becomes 341 x 256; left 58, top 16 */
    assert_true(fabs(p.shown.x - 58 * 640.0 / 341) < 1e-9);
    assert_true(fabs(p.shown.y - 16 * 480.0 / 256) < 1e-9);
    assert_true(fabs(p.shown.width - 224 * 640.0 / 341) < 1e-9);
    assert_true(fabs(p.shown.height - 224 * 480.0 / 256) < 1e-9);
    augment_draw(&p, &opt, 100, 333, 1, 0, 0, 0); /* 256 x 852; left 16, top 314 */
    assert_true(fabs(p.shown.x - 16 * 100.0 / 256) < 1e-9);
    assert_true(fabs(p.shown.y - 314 * 333.0 / 852) < 1e-9);
    assert_int_equal(p.region.x, 0);
    assert_int_equal(p.region.width, 100);
    for (uint64_t i = 0; i < 2000; i++) {
        struct rng rng;
        rng_init(&rng, test_seed(), RNG_INIT, 1, i);
        int32_t w = 1 + (int32_t)rng_below(&rng, i % 2 ? 5 : 2000);
        int32_t h = 1 + (int32_t)rng_below(&rng, i % 3 ? 5 : 2000);
        opt.size_px = 1 + (int32_t)rng_below(&rng, 300);
        opt.shorter_ratio = 1.0 + rng_uniform(&rng);
        augment_draw(&p, &opt, w, h, 1, 0, i, 0);
        assert_true(p.region.x >= 0 && p.region.y >= 0 && p.region.width > 0 &&
                    p.region.height > 0);
        assert_true(p.region.x + p.region.width <= w && p.region.y + p.region.height <= h);
        assert_true(p.shown.x >= p.region.x && p.shown.y >= p.region.y);
        assert_true(p.shown.x + p.shown.width <= p.region.x + p.region.width + 1e-6);
        assert_true(p.shown.y + p.shown.height <= p.region.y + p.region.height + 1e-6);
        assert_true(p.min_width_px * p.shown.width >= 2 * opt.size_px * p.region.width - 1e-6);
    }
}

/* open_clip's transform: the place of eval-crop, by the filter of eval-squash. */
TEST(eval_clip_is_the_bicubic_centre) {
    struct augment_options crop, clip;
    augment_options_default(&crop, AUGMENT_EVAL_CROP);
    augment_options_default(&clip, AUGMENT_EVAL_CLIP);
    assert_int_equal(crop.filter, RESIZE_BILINEAR);
    assert_int_equal(clip.filter, RESIZE_BICUBIC);
    struct augment_params a, b;
    augment_draw(&a, &crop, 640, 479, 1, 0, 0, 0);
    augment_draw(&b, &clip, 640, 479, 1, 0, 0, 0);
    assert_memory_equal(&a.shown, &b.shown, sizeof(a.shown));
    assert_true(b.region.width >= a.region.width && b.shown.width < 640 && !b.flip);
}

/* open_clip's ResizeKeepRatio and CenterCropOrPad: where 40 x 13 pixels are in a square of 20. */
TEST(eval_longest_is_the_whole_image_on_black) {
    enum { W = 40, H = 13, SIDE = 20, HEIGHT = 6, TOP = 7 }; /* 6.5 to even; (20 - 6) / 2 */
    static uint8_t pixels[W * H * 3], out[SIDE * SIDE * 3], alone[SIDE * HEIGHT * 3];
    struct augment_options opt;
    struct augment_params p;
    struct augment_part part;
    struct augment_workspace workspace;
    struct error err = {0};
    augment_options_default(&opt, AUGMENT_EVAL_LONGEST);
    opt.size_px = SIDE;
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(64 + ((i * 2654435761u) >> 13) % 128);
    }
    const struct image_view in = {pixels, W, H, (size_t)W * 3};
    const struct image_view to = {alone, SIDE, HEIGHT, (size_t)SIDE * 3};
    const struct image_box whole = {0, 0, W, H};
    augment_workspace_init(&workspace);
    augment_draw(&p, &opt, W, H, 1, 0, 0, 0);
    augment_decode(&part, &p, 1);
    memset(out, 99, sizeof(out));
    assert_ok(augment_apply(out, &in, &whole, &part, &p, &opt, &workspace, &err), err);
    assert_ok(resize_image(&to, &in, &whole, NULL, RESIZE_BICUBIC, false, &workspace.resize, &err),
              err);
    for (int y = 0; y < SIDE; y++) {
        const uint8_t *row = out + (size_t)y * SIDE * 3;
        if (y >= TOP && y < TOP + HEIGHT) {
            assert_memory_equal(row, alone + (size_t)(y - TOP) * SIDE * 3, SIDE * 3);
        } else {
            for (int i = 0; i < SIDE * 3; i++) {
                assert_int_equal(row[i], 0);
            }
        }
    }
    augment_workspace_fini(&workspace);
}

/* One decode for two views gives each the pixels of a decode of its own. */
TEST(views_share_one_decode) {
    enum { W = 90, H = 70, SIDE = 24 };
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    opt.size_px = SIDE;
    static uint8_t pixels[W * H * 3];
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)((i * 2654435761u) >> 13);
    }
    struct augment_workspace workspace;
    augment_workspace_init(&workspace);
    for (uint64_t id = 0; id < 100; id++) {
        struct augment_params p[2];
        struct augment_part both;
        struct error err = {0};
        augment_draw(&p[0], &opt, W, H, 1, 0, id, 0);
        augment_draw(&p[1], &opt, W, H, 1, 0, id, 1);
        augment_decode(&both, p, 2);
        for (int v = 0; v < 2; v++) {
            static uint8_t alone[SIDE * SIDE * 3], together[SIDE * SIDE * 3];
            struct augment_part own;
            augment_decode(&own, &p[v], 1);
            assert_memory_equal(&own.region, &p[v].region, sizeof(own.region));
            assert_int_equal(own.min_width_px, SIDE);
            for (int shared = 0; shared < 2; shared++) {
                const struct augment_part *part = shared ? &both : &own;
                struct image_view view = {pixels + (part->region.y * W + part->region.x) * 3,
                                          part->region.width, part->region.height, W * 3};
                struct image_box box = {0, 0, part->region.width, part->region.height};
                assert_ok(augment_apply(shared ? together : alone, &view, &box, part, &p[v], &opt,
                                        &workspace, &err),
                          err);
            }
            assert_memory_equal(alone, together, sizeof(alone));
            assert_true(both.min_width_px * (int64_t)p[v].region.width >=
                        (int64_t)SIDE * both.region.width);
            assert_true(both.min_height_px * (int64_t)p[v].region.height >=
                        (int64_t)SIDE * both.region.height);
        }
    }
    augment_workspace_fini(&workspace);
}

TEST(squash_uses_the_whole_image_unflipped) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_EVAL_SQUASH);
    for (uint64_t id = 0; id < 50; id++) {
        struct augment_params p;
        augment_draw(&p, &opt, 321, 123, 1, 0, id, 0);
        struct image_rect whole = {0, 0, 321, 123};
        assert_memory_equal(&p.region, &whole, sizeof(whole));
        assert_false(p.flip);
    }
}

TEST(apply_writes_only_the_output) {
    enum { SIDE = 17, SLOT_BYTES = SIDE * SIDE * 3 };
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_TRAIN);
    opt.size_px = SIDE;
    uint8_t pixels[40 * 30 * 3];
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(i * 31);
    }
    struct image_view view = {pixels, 40, 30, 40 * 3};
    struct image_box box = {2.5, 3, 30.25, 20};
    struct augment_params params = {.shown = {5, 6, 121, 80}, .region = {5, 6, 121, 80}};
    struct augment_part part;
    augment_decode(&part, &params, 1);
    struct augment_workspace workspace;
    augment_workspace_init(&workspace);
    uint8_t out[2][SLOT_BYTES + 64];
    for (int flip = 0; flip < 2; flip++) {
        memset(out[flip], 0xA5, sizeof(out[flip]));
        params.flip = flip == 1;
        struct error err = {0};
        assert_ok(
            augment_apply(out[flip] + 32, &view, &box, &part, &params, &opt, &workspace, &err),
            err);
        for (size_t i = 0; i < 32; i++) {
            assert_int_equal(out[flip][i], 0xA5);
            assert_int_equal(out[flip][32 + SLOT_BYTES + i], 0xA5);
        }
    }
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            assert_memory_equal(out[0] + 32 + (y * SIDE + x) * 3,
                                out[1] + 32 + (y * SIDE + SIDE - 1 - x) * 3, 3);
        }
    }
    augment_workspace_fini(&workspace);
}

enum { IMAGE = 61, SLOT = 32 };

/* An image of noise over a slope, cropped and flipped as drawn, at the slot's size. */
struct cropped {
    uint8_t pixels[IMAGE * IMAGE * 3];
    uint8_t out[SLOT * SLOT * 3];
    struct image_view view;
    struct augment_workspace workspace;
};

static void make_cropped(struct cropped *c) {
    c->view = (struct image_view){c->pixels, IMAGE, IMAGE, (size_t)IMAGE * 3};
    for (size_t i = 0; i < sizeof(c->pixels); i++) {
        c->pixels[i] = (uint8_t)(i / 75 + ((i * 2654435761u) >> 13) % 97);
    }
    augment_workspace_init(&c->workspace);
}

static void
apply(struct cropped *c, const struct augment_params *params, const struct augment_options *opt) {
    struct augment_part part;
    struct error err = {0};
    augment_decode(&part, params, 1);
    struct image_box box = {part.region.x, part.region.y, part.region.width, part.region.height};
    assert_ok(augment_apply(c->out, &c->view, &box, &part, params, opt, &c->workspace, &err), err);
}

/* Steps one after the other, each into a fresh image. */
TEST(paper_is_crop_then_its_steps) {
    static struct cropped c;
    static uint8_t now[SLOT * SLOT * 3], next[SLOT * SLOT * 3];
    struct augment_options opt, crop;
    augment_options_default(&opt, AUGMENT_PAPER);
    augment_options_default(&crop, AUGMENT_TRAIN);
    opt.size_px = crop.size_px = SLOT;
    make_cropped(&c);
    int apart[3] = {0};
    for (uint64_t id = 0; id < 600; id++) {
        struct augment_params p, same;
        augment_draw(&p, &opt, IMAGE, IMAGE, 3, 1, id, 0);
        augment_draw(&same, &crop, IMAGE, IMAGE, 3, 1, id, 0);
        assert_memory_equal(&p.region, &same.region, sizeof(p.region));
        apply(&c, &same, &crop);
        memcpy(now, c.out, sizeof(now));
        int n = 0;
        for (int i = 0; i < RANDAUGMENT_STEPS; i++) {
            struct image_view from = {now, SLOT, SLOT, (size_t)SLOT * 3};
            struct image_view to = {next, SLOT, SLOT, (size_t)SLOT * 3};
            if (p.steps[i].applied && p.steps[i].op != RANDAUGMENT_IDENTITY) {
                randaugment_apply(&p.steps[i], (struct op_pass){op_loops_plain(), &to, &from});
                memcpy(now, next, sizeof(now));
                n += !randaugment_works_in_place(&p.steps[i]);
            }
        }
        apart[n]++;
        apply(&c, &p, &opt);
        assert_memory_equal(c.out, now, sizeof(now));
    }
    assert_true(apart[0] > 50 && apart[1] > 50 && apart[2] > 20);
    augment_workspace_fini(&c.workspace);
}

/* Each op, alone, changes the image, and its sign matters where it has one. */
TEST(every_randaugment_op_changes_the_image) {
    static struct cropped c;
    static uint8_t plain[SLOT * SLOT * 3], positive[SLOT * SLOT * 3];
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_PAPER);
    opt.size_px = SLOT;
    make_cropped(&c);
    for (int op = 0; op < RANDAUGMENT_OP_COUNT; op++) {
        struct augment_params p;
        augment_draw(&p, &opt, IMAGE, IMAGE, 3, 1, 8, 0);
        p.steps[1].applied = false;
        p.steps[0] = (struct randaugment_step){.op = (enum randaugment_op)op, .applied = false};
        apply(&c, &p, &opt);
        memcpy(plain, c.out, sizeof(plain));
        p.steps[0].applied = true;
        apply(&c, &p, &opt);
        assert_int_equal(memcmp(plain, c.out, sizeof(plain)) != 0, op != RANDAUGMENT_IDENTITY);
        memcpy(positive, c.out, sizeof(positive));
        p.steps[0].negative = true;
        apply(&c, &p, &opt);
        assert_int_equal(memcmp(positive, c.out, sizeof(positive)) != 0, op >= RANDAUGMENT_SHEAR_X);
    }
    augment_workspace_fini(&c.workspace);
}

TEST(simclr_is_crop_then_jitter_gray_blur) {
    static struct cropped c;
    static uint8_t now[SLOT * SLOT * 3];
    struct augment_options opt, crop;
    augment_options_default(&opt, AUGMENT_SIMCLR);
    augment_options_default(&crop, AUGMENT_TRAIN);
    opt.size_px = crop.size_px = SLOT;
    opt.simclr.blur_share = 0.2;
    make_cropped(&c);
    struct image_view v = {now, SLOT, SLOT, (size_t)SLOT * 3};
    int changed = 0;
    for (uint64_t id = 0; id < 200; id++) {
        struct augment_params p;
        augment_draw(&p, &opt, IMAGE, IMAGE, 3, 1, id, 1);
        apply(&c, &p, &crop);
        memcpy(now, c.out, sizeof(now));
        for (int i = 0; p.simclr.jitter && i < SIMCLR_JITTER_COUNT; i++) {
            int which = p.simclr.order[i];
            if (which == SIMCLR_HUE) {
                op_hue((struct op_pass){op_loops_plain(), &v, &v}, p.simclr.hue_shift);
            } else {
                (which == SIMCLR_BRIGHTNESS ? op_brightness
                 : which == SIMCLR_CONTRAST ? op_contrast
                                            : op_saturation)(
                    (struct op_pass){op_loops_plain(), &v, &v}, p.simclr.factor[which]);
            }
        }
        if (p.simclr.gray) {
            op_gray((struct op_pass){op_loops_plain(), &v, &v});
        }
        if (p.simclr.blur) { /* 0.2 of 32: 6 taps, made odd */
            assert_int_equal(op_blur(&v, &v, p.simclr.sigma_px, 3, &c.workspace.resize, NULL), 0);
        }
        changed += memcmp(now, c.out, sizeof(now)) != 0;
        apply(&c, &p, &opt);
        assert_memory_equal(c.out, now, sizeof(now));
    }
    assert_true(changed > 150);
    augment_workspace_fini(&c.workspace);
}

TEST(workspace_grows_once_for_each_kind) {
    static struct cropped c;
    make_cropped(&c);
    for (int k = 0; AUGMENT_KIND_NAMES[k] != NULL; k++) {
        struct augment_options opt;
        augment_options_default(&opt, (enum augment_kind)(AUGMENT_TRAIN + k));
        opt.size_px = SLOT;
        const uint8_t *before[2] = {NULL, NULL};
        for (uint64_t id = 0; id < 400; id++) {
            struct augment_params p;
            augment_draw(&p, &opt, IMAGE, IMAGE, 3, 1, id % 100, 1);
            apply(&c, &p, &opt);
            if (id == 100) {
                before[0] = c.workspace.resize.data;
                before[1] = c.workspace.spare.data;
            }
        }
        assert_ptr_equal(before[0], c.workspace.resize.data);
        assert_ptr_equal(before[1], c.workspace.spare.data);
    }
    augment_workspace_fini(&c.workspace);
}
