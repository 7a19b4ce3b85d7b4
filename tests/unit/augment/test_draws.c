/* How chance is spread, and that nothing but (seed, epoch, sample, view) decides. Seeds are fixed:
 * a bound that holds once holds always. Bounds are those of one failure in a thousand seeds. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "augment/pipeline.h"
#include "formats/base/rng.h"
#include "tests/support/test.h"

enum { DRAWS = 20000, SIDE = 4000 };

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

/* Kolmogorov-Smirnov: the numbers are uniform in [low, high]. Sorts them. */
static void assert_uniform(double *v, size_t n, double low, double high) {
    double most = 0;
    qsort(v, n, sizeof(*v), by_value);
    for (size_t i = 0; i < n; i++) {
        double p = (v[i] - low) / (high - low);
        most = fmax(most,
                    fmax(fabs(p - (double)i / (double)n), fabs(p - (double)(i + 1) / (double)n)));
    }
    if (most * sqrt((double)n) > 1.95) {
        fail_msg("not uniform in [%g, %g]: D sqrt(n) = %.3f", low, high, most * sqrt((double)n));
    }
}

/* Chi-square of equal shares; the bound is Wilson and Hilferty's for one in a thousand. */
static void assert_even(const int *counts, int cells) {
    double total = 0;
    double chi = 0;
    for (int i = 0; i < cells; i++) {
        total += counts[i];
    }
    double expected = total / cells;
    for (int i = 0; i < cells; i++) {
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    double k = cells - 1;
    double t = 1.0 - 2.0 / (9.0 * k) + 3.09 * sqrt(2.0 / (9.0 * k));
    if (chi > k * t * t * t) {
        fail_msg("not even: chi-square %.1f over %d cells, at most %.1f", chi, cells,
                 k * t * t * t);
    }
}

static void assert_share(int count, int n, double p) {
    double deviation = sqrt(n * p * (1 - p));
    if (fabs(count - n * p) > 3.29 * deviation) {
        fail_msg("%d of %d, expected %.0f +- %.0f", count, n, n * p, 3.29 * deviation);
    }
}

/* With areas up to 1/2 and sides up to 4 : 3 every try fits, so the parameters are as drawn. */
TEST(crops_are_spread_evenly) {
    static double area[DRAWS], ratio[DRAWS], x[DRAWS], y[DRAWS];
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_SIMCLR);
    assert_true(opt.crop.scale_min == 0.08);
    opt.crop.scale_max = 0.5;
    int flips = 0;
    for (int i = 0; i < DRAWS; i++) {
        struct augment_params p;
        augment_draw(&p, &opt, SIDE, SIDE, 11, 3, (uint64_t)i, (uint32_t)i & 1);
        area[i] = (double)p.region.width * p.region.height / ((double)SIDE * SIDE);
        ratio[i] = log((double)p.region.width / p.region.height);
        x[i] = (p.region.x + 0.5) / (SIDE - p.region.width + 1);
        y[i] = (p.region.y + 0.5) / (SIDE - p.region.height + 1);
        flips += p.flip;
    }
    assert_uniform(area, DRAWS, 0.08, 0.5);
    assert_uniform(ratio, DRAWS, log(3.0 / 4.0), log(4.0 / 3.0));
    assert_uniform(x, DRAWS, 0, 1);
    assert_uniform(y, DRAWS, 0, 1);
    assert_share(flips, DRAWS, 0.5);
}

TEST(randaugment_draws_are_even) {
    static int pairs[RANDAUGMENT_OP_COUNT * RANDAUGMENT_OP_COUNT];
    static int fates[16];
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_PAPER);
    for (int i = 0; i < 4 * DRAWS; i++) {
        struct augment_params p;
        augment_draw(&p, &opt, 640, 480, 5, 1, (uint64_t)i, 0);
        const struct randaugment_step *s = p.steps;
        pairs[(int)s[0].op * RANDAUGMENT_OP_COUNT + (int)s[1].op]++;
        fates[s[0].applied + 2 * s[1].applied + 4 * s[0].negative + 8 * s[1].negative]++;
    }
    assert_even(pairs, RANDAUGMENT_OP_COUNT * RANDAUGMENT_OP_COUNT);
    assert_even(fates, 16);
}

TEST(simclr_draws_have_the_documented_distribution) {
    static double factor[3][DRAWS], sigma[DRAWS];
    static int orders[256];
    static int shifts[256];
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_SIMCLR);
    int jitter = 0, gray = 0, blur = 0;
    for (int i = 0; i < DRAWS; i++) {
        struct augment_params p;
        augment_draw(&p, &opt, 640, 480, 5, 1, (uint64_t)i, 1);
        const struct simclr_draws *d = &p.simclr;
        jitter += d->jitter;
        gray += d->gray;
        blur += d->blur;
        unsigned seen = 0;
        for (int k = 0; k < SIMCLR_JITTER_COUNT; k++) {
            seen |= 1u << d->order[k];
        }
        assert_int_equal(seen, 15);
        orders[d->order[0] + 4 * d->order[1] + 16 * d->order[2] + 64 * d->order[3]]++;
        shifts[d->hue_shift]++;
        for (int k = 0; k < 3; k++) {
            factor[k][i] = (double)d->factor[k];
        }
        sigma[i] = d->sigma_px;
    }
    assert_share(jitter, DRAWS, 0.8);
    assert_share(gray, DRAWS, 0.2);
    assert_share(blur, DRAWS, 0.5);
    for (int k = 0; k < 3; k++) {
        assert_uniform(factor[k], DRAWS, 0.2, 1.8);
    }
    assert_uniform(sigma, DRAWS, 0.1, 2.0);
    int used = 0;
    for (int i = 0; i < 256; i++) {
        if (orders[i] > 0) {
            orders[used++] = orders[i];
        }
    }
    assert_int_equal(used, 24);
    assert_even(orders, used);
    /* -0.2 to 0.2 of 255, towards zero: -50 to 50, zero twice as often. */
    int turns[101];
    for (int i = -50; i <= 50; i++) {
        turns[i + 50] = i == 0 ? shifts[0] / 2 : shifts[i & 255];
    }
    assert_int_equal(shifts[51] + shifts[205], 0);
    assert_even(turns, 101);
}

TEST(options_control_the_simclr_draws) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_SIMCLR);
    opt.simclr.jitter_probability = 0;
    opt.simclr.gray_probability = 1;
    opt.simclr.blur_probability = 0;
    opt.simclr.brightness = 2;
    opt.simclr.contrast = 0;
    opt.simclr.hue = 0;
    opt.simclr.blur_sigma_min_px = opt.simclr.blur_sigma_max_px = 0.5;
    double most = 0;
    for (uint64_t i = 0; i < 500; i++) {
        struct augment_params p;
        augment_draw(&p, &opt, 64, 48, 5, 1, i, 0);
        assert_true(!p.simclr.jitter && p.simclr.gray && !p.simclr.blur);
        assert_true(p.simclr.factor[0] >= 0.0F && p.simclr.factor[0] < 3.0F);
        assert_true(p.simclr.factor[1] == 1.0F);
        assert_int_equal(p.simclr.hue_shift, 0);
        assert_true(p.simclr.sigma_px == 0.5);
        most = fmax(most, (double)p.simclr.factor[0]);
    }
    assert_true(most > 2.9);
}

/* The order of the draws is part of what makes runs repeat: written out here once more. */
TEST(order_of_draws_is_fixed) {
    struct augment_options opt;
    struct augment_params p;
    for (uint64_t id = 0; id < 200; id++) {
        struct rng rng;
        augment_options_default(&opt, AUGMENT_PAPER);
        augment_draw(&p, &opt, 300, 200, 9, 4, id, 0);
        rng_init(&rng, 9, RNG_AUGMENT, 4, id);
        (void)crop_random(300, 200, &opt.crop, &rng);
        assert_int_equal(p.flip, rng_uniform(&rng) < 0.5);
        for (int i = 0; i < RANDAUGMENT_STEPS; i++) {
            assert_int_equal(p.steps[i].op, rng_below(&rng, 10));
            assert_int_equal(p.steps[i].applied, rng_uniform(&rng) < 0.5);
            assert_int_equal(p.steps[i].negative, rng_uniform(&rng) < 0.5);
        }
        augment_options_default(&opt, AUGMENT_SIMCLR);
        augment_draw(&p, &opt, 300, 200, 9, 4, id, 1);
        rng_init(&rng, 9, RNG_AUGMENT_SECOND, 4, id);
        (void)crop_random(300, 200, &opt.crop, &rng);
        assert_int_equal(p.flip, rng_uniform(&rng) < 0.5);
        assert_int_equal(p.simclr.jitter, rng_uniform(&rng) < 0.8);
        assert_int_equal(p.simclr.gray, rng_uniform(&rng) < 0.2);
        assert_int_equal(p.simclr.blur, rng_uniform(&rng) < 0.5);
        for (uint32_t i = 1; i <= 4; i++) {
            (void)rng_below(&rng, i);
        }
        for (int i = 0; i < 3; i++) {
            assert_true(p.simclr.factor[i] == (float)(0.2 + (1.8 - 0.2) * rng_uniform(&rng)));
        }
        double hue = -0.2 + 0.4 * rng_uniform(&rng);
        assert_int_equal(p.simclr.hue_shift, (uint8_t)(int32_t)(hue * 255.0));
        assert_true(p.simclr.sigma_px == 0.1 + (2.0 - 0.1) * rng_uniform(&rng));
    }
}

enum { THREADS = 4, THREAD_DRAWS = 2000 };

struct thread_work {
    enum augment_kind kind;
    struct augment_params params[THREAD_DRAWS];
    int step; /* threads visit the samples in different orders */
};

static void *draw_all(void *cookie) {
    struct thread_work *w = cookie;
    struct augment_options opt;
    augment_options_default(&opt, w->kind);
    for (int i = 0; i < THREAD_DRAWS; i++) {
        int id = i * w->step % THREAD_DRAWS;
        memset(&w->params[id], 0, sizeof(w->params[id]));
        augment_draw(&w->params[id], &opt, 640, 480, 1, 2, (uint64_t)id, (uint32_t)id & 1);
    }
    return NULL;
}

TEST(open_clips_crops_show_nine_tenths_of_the_area_and_are_never_mirrored) {
    struct augment_options opt;
    augment_options_default(&opt, AUGMENT_CLIP);
    assert_int_equal(opt.filter, RESIZE_BICUBIC);
    for (uint64_t id = 0; id < 1000; id++) {
        struct augment_params p;
        augment_draw(&p, &opt, 400, 300, 1, 0, id, 0);
        const double share = (double)p.region.width * p.region.height / (400.0 * 300.0);
        assert_true(share > 0.89 && share <= 1.0);
        assert_false(p.flip);
    }
}

TEST(draws_do_not_depend_on_the_thread) {
    static struct thread_work work[THREADS];
    static const int steps[THREADS] = {1, 3, 7, 1999};
    for (int kind = 0; AUGMENT_KIND_NAMES[kind] != NULL; kind++) {
        pthread_t threads[THREADS];
        for (int t = 0; t < THREADS; t++) {
            work[t].kind = (enum augment_kind)(AUGMENT_TRAIN + kind);
            work[t].step = steps[t];
            assert_int_equal(pthread_create(&threads[t], NULL, draw_all, &work[t]), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        }
        for (int t = 1; t < THREADS; t++) {
            for (int i = 0; i < THREAD_DRAWS; i++) {
                const struct augment_params *a = &work[0].params[i];
                const struct augment_params *b = &work[t].params[i];
                assert_memory_equal(&a->region, &b->region, sizeof(a->region));
                assert_int_equal(a->flip, b->flip);
                for (int k = 0; k < RANDAUGMENT_STEPS; k++) {
                    assert_int_equal(a->steps[k].op, b->steps[k].op);
                    assert_int_equal(a->steps[k].applied, b->steps[k].applied);
                    assert_int_equal(a->steps[k].negative, b->steps[k].negative);
                }
                assert_memory_equal(a->simclr.order, b->simclr.order, sizeof(a->simclr.order));
                assert_memory_equal(a->simclr.factor, b->simclr.factor, sizeof(a->simclr.factor));
                assert_true(a->simclr.sigma_px == b->simclr.sigma_px);
            }
        }
    }
}
