/*
 * Other ways to compute one model. A batch in micro-batches against the same batch norm groups by
 * hand, and against the whole batch where there is no batch norm; running statistics, bits, the
 * memory plan. Packed captions against padded ones. bf16 against f32. SGD by hand.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "tests/support/test.h"
#include "train/model/dual_encoder.h"
#include "train/optim/optimizer.h"

/* Parts of 2, 2 and 1 pairs. */
enum { BATCH = 5, MICRO = 2, PX = 16, TOKENS = 6, VOCAB = 11, EMBED = 5 };

struct input {
    uint8_t images[BATCH * PX * PX * 3];
    int32_t tokens[BATCH * TOKENS];
    int32_t lengths[BATCH];
    uint64_t ids[BATCH];
    struct step_values values; /* the host's memory is the device's */
};

struct side {
    struct device *dev;
    struct dual_encoder *model;
    struct params *params;
    bool beside; /* of the batches that follow */
};

static void draw_input(struct input *in) {
    in->values = (struct step_values){.step = 9};
    static const int32_t lengths[BATCH] = {2, 6, 3, 3, 5};
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 7, 0);
    for (size_t i = 0; i < sizeof in->images; i++) {
        in->images[i] = (uint8_t)rng_below(&r, 256);
    }
    for (int i = 0; i < BATCH * TOKENS; i++) {
        in->tokens[i] = (int32_t)rng_below(&r, VOCAB);
    }
    for (int i = 0; i < BATCH; i++) {
        in->lengths[i] = lengths[i];
        in->ids[i] = (uint64_t)(40 + i);
    }
}

static struct dual_encoder_options options(int32_t batch, int32_t micro) {
    struct error err = {0};
    struct dual_encoder_options o;
    assert_ok(dual_encoder_preset(&o, "resnet10t", "tiny", &err), err);
    o.image.width = 8;
    o.image.image_px = PX;
    o.text.layers = 2;
    o.text.dim = 6;
    o.text.heads = 2;
    o.text.ffn_dim = 10;
    o.text.vocab_count = VOCAB;
    o.text.max_tokens = TOKENS;
    o.text.dropout = 0.2f;
    o.embed_dim = EMBED;
    o.max_batch = batch;
    o.micro_batch = micro;
    o.dtype = DTYPE_F64;
    return o;
}

/* Tables hold f32 or f64. */
static size_t real_bytes(const struct side *s) {
    return dtype_size_bytes(params_dtype(s->params));
}

static double get(const void *v, int64_t k, size_t real) {
    return real == sizeof(double) ? ((const double *)v)[k] : (double)((const float *)v)[k];
}

static void set(void *v, int64_t k, size_t real, double x) {
    if (real == sizeof(double)) {
        ((double *)v)[k] = x;
    } else {
        ((float *)v)[k] = (float)x;
    }
}

/* Equal weights for equal shapes; no gamma stays 0, which would hide what comes before it. */
static void open_side(struct side *s, const struct dual_encoder_options *o) {
    struct error err = {0};
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 8, 0);
    s->beside = false;
    assert_ok(device_open(&s->dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&s->model, s->dev, o, &err), err);
    s->params = dual_encoder_params(s->model);
    assert_ok(params_init(s->params, 7, &err), err);
    const size_t real = real_bytes(s);
    for (int32_t i = 0; i < params_count(s->params); i++) {
        const struct param_info info = params_info(s->params, i);
        const size_t size = (size_t)info.count * real;
        void *v = malloc(size);
        assert_ok(params_read(s->params, i, PARAM_VALUE, v, size, &err), err);
        for (int64_t k = 0; k < info.count && info.kind == PARAM_TRAINED; k++) {
            set(v, k, real, get(v, k, real) + 0.1 * rng_normal(&r));
        }
        assert_ok(params_write(s->params, i, PARAM_VALUE, v, size, &err), err);
        free(v);
    }
}

static void close_side(struct side *s) {
    dual_encoder_destroy(s->model);
    device_close(s->dev);
}

static struct dual_encoder_batch rows(const struct input *in, int start, int count) {
    return (struct dual_encoder_batch){.count = count,
                                       .images = in->images + (size_t)start * PX * PX * 3,
                                       .tokens = in->tokens + (size_t)start * TOKENS,
                                       .lengths = in->lengths + start,
                                       .sample_ids = in->ids + start,
                                       .seed = 3,
                                       .values = &in->values};
}

struct embeddings {
    double x[BATCH * EMBED], t[BATCH * EMBED];
};

/* Rows [start, start + count) of both sides. */
static void
forward(struct side *s, const struct input *in, int start, int count, struct embeddings *e) {
    struct error err = {0};
    struct tensor x, t;
    struct dual_encoder_batch batch = rows(in, start, count);
    batch.beside = s->beside;
    assert_ok(dual_encoder_forward(s->model, &x, &t, &batch, true, &err), err);
    assert_int_equal(x.shape[0], count);
    const size_t real = real_bytes(s);
    const struct tensor *out[2] = {&x, &t};
    for (int side = 0; side < 2; side++) {
        double raw[BATCH * EMBED];
        double *to = (side == 0 ? e->x : e->t) + (size_t)start * EMBED;
        assert_ok(
            s->dev->ops->download(s->dev, raw, out[side]->data, (size_t)count * EMBED * real, &err),
            err);
        for (int k = 0; k < count * EMBED; k++) {
            to[k] = get(raw, k, real);
        }
    }
}

/* Gradients of the cross entropy of S's rows at temperature 0.1: every one needs all embeddings. */
static void contrast(const struct embeddings *e, struct embeddings *d) {
    memset(d, 0, sizeof *d);
    for (int i = 0; i < BATCH; i++) {
        double p[BATCH];
        double sum = 0.0;
        for (int j = 0; j < BATCH; j++) {
            double s = 0.0;
            for (int k = 0; k < EMBED; k++) {
                s += e->x[i * EMBED + k] * e->t[j * EMBED + k];
            }
            p[j] = exp(s / 0.1);
            sum += p[j];
        }
        for (int j = 0; j < BATCH; j++) {
            const double g = (p[j] / sum - (i == j ? 1.0 : 0.0)) / 0.1 / BATCH;
            for (int k = 0; k < EMBED; k++) {
                d->x[i * EMBED + k] += g * e->t[j * EMBED + k];
                d->t[j * EMBED + k] += g * e->x[i * EMBED + k];
            }
        }
    }
}

static void backward(struct side *s,
                     const struct input *in,
                     int start,
                     int count,
                     struct embeddings *d,
                     enum write_mode mode) {
    struct error err = {0};
    struct dual_encoder_batch batch = rows(in, start, count);
    batch.beside = s->beside;
    const size_t real = real_bytes(s);
    double raw[2][BATCH * EMBED];
    for (int k = 0; k < count * EMBED; k++) {
        set(raw[0], k, real, d->x[start * EMBED + k]);
        set(raw[1], k, real, d->t[start * EMBED + k]);
    }
    const struct tensor dx = tensor_2d(raw[0], params_dtype(s->params), count, EMBED);
    const struct tensor dt = tensor_2d(raw[1], params_dtype(s->params), count, EMBED);
    assert_ok(dual_encoder_backward(s->model, &dx, &dt, &batch, mode, NULL, &err), err);
}

/* All gradients, or all running statistics. */
static double *gather(const struct side *s, enum param_kind kind, int64_t *count) {
    struct error err = {0};
    *count = params_element_count(s->params, kind);
    double *all = malloc((size_t)*count * sizeof *all);
    const size_t real = real_bytes(s);
    int64_t at = 0;
    for (int32_t i = 0; i < params_count(s->params); i++) {
        const struct param_info info = params_info(s->params, i);
        if (info.kind != kind) {
            continue;
        }
        const size_t size = (size_t)info.count * real;
        void *v = malloc(size);
        assert_ok(params_read(s->params, i, kind == PARAM_TRAINED ? PARAM_GRAD : PARAM_VALUE, v,
                              size, &err),
                  err);
        for (int64_t k = 0; k < info.count; k++) {
            all[at + k] = get(v, k, real);
        }
        at += info.count;
        free(v);
    }
    return all;
}

static void
assert_same(const struct side *a, const struct side *b, enum param_kind kind, const char *what) {
    int64_t n;
    int64_t m;
    double *va = gather(a, kind, &n);
    double *vb = gather(b, kind, &m);
    assert_int_equal(n, m);
    for (int64_t k = 0; k < n; k++) {
        if (va[k] != vb[k]) {
            fail_msg("%s %lld: %.17g and %.17g", what, (long long)k, va[k], vb[k]);
        }
    }
    free(va);
    free(vb);
}

TEST(micro_batches_equal_batch_norm_groups_by_hand) {
    static struct input in;
    static struct embeddings e[2], d;
    struct side whole, groups, once;
    const struct dual_encoder_options in_parts = options(BATCH, MICRO);
    const struct dual_encoder_options alone = options(MICRO, 0);
    draw_input(&in);
    open_side(&whole, &in_parts);
    open_side(&groups, &alone);
    open_side(&once, &alone);
    forward(&whole, &in, 0, BATCH, &e[0]);
    contrast(&e[0], &d);
    backward(&whole, &in, 0, BATCH, &d, WRITE_SET);

    static const int starts[] = {0, 2, 4}, counts[] = {2, 2, 1};
    for (int g = 0; g < 3; g++) {
        forward(&groups, &in, starts[g], counts[g], &e[1]);
        forward(&once, &in, starts[g], counts[g], &e[1]);
    }
    assert_memory_equal(&e[0], &e[1], sizeof e[0]);
    static const int order[] = {2, 1, 0};
    for (int k = 0; k < 3; k++) {
        const int g = order[k];
        forward(&groups, &in, starts[g], counts[g], &e[1]);
        backward(&groups, &in, starts[g], counts[g], &d, k == 0 ? WRITE_SET : WRITE_ADD);
    }
    assert_same(&whole, &groups, PARAM_TRAINED, "gradient");
    assert_same(&whole, &once, PARAM_BUFFER, "running statistic");
    close_side(&whole);
    close_side(&groups);
    close_side(&once);
}

static void draw_gradients(struct embeddings *d) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 9, 0);
    for (int k = 0; k < BATCH * EMBED; k++) {
        d->x[k] = rng_normal(&r);
        d->t[k] = rng_normal(&r);
    }
}

/* Forward before that of the other batch, backward after it: the bits of each batch on its own, and
 * the running statistics of the other alone. In one part, and in two. */
TEST(a_batch_beside_another_adds_its_gradients) {
    static struct input in;
    static struct embeddings e[2], d;
    enum { FIRST = 3 };
    for (int micro = 0; micro <= MICRO; micro += MICRO) {
        struct side turns, beside;
        const struct dual_encoder_options o = options(FIRST, micro);
        draw_input(&in);
        open_side(&turns, &o);
        open_side(&beside, &o);
        draw_gradients(&d);
        forward(&turns, &in, 0, FIRST, &e[0]);
        backward(&turns, &in, 0, FIRST, &d, WRITE_SET);
        beside.beside = true;
        forward(&beside, &in, FIRST, BATCH - FIRST, &e[1]);
        beside.beside = false;
        forward(&beside, &in, 0, FIRST, &e[1]);
        backward(&beside, &in, 0, FIRST, &d, WRITE_SET);
        beside.beside = true;
        backward(&beside, &in, FIRST, BATCH - FIRST, &d, WRITE_ADD);
        assert_same(&turns, &beside, PARAM_BUFFER, "running statistic");
        forward(&turns, &in, FIRST, BATCH - FIRST, &e[0]);
        backward(&turns, &in, FIRST, BATCH - FIRST, &d, WRITE_ADD);
        assert_memory_equal(&e[0], &e[1], sizeof e[0]);
        assert_same(&turns, &beside, PARAM_TRAINED, "gradient");
        close_side(&turns);
        close_side(&beside);
    }
}

TEST(text_gradients_do_not_depend_on_the_micro_batch) {
    static struct input in;
    static struct embeddings e[2], d;
    struct side parts, whole;
    const struct dual_encoder_options in_parts = options(BATCH, MICRO);
    const struct dual_encoder_options at_once = options(BATCH, 0);
    draw_input(&in);
    open_side(&parts, &in_parts);
    open_side(&whole, &at_once);
    forward(&parts, &in, 0, BATCH, &e[0]);
    forward(&whole, &in, 0, BATCH, &e[1]);
    contrast(&e[0], &d); /* the same for both, or the images would differ by their batch norm */
    backward(&parts, &in, 0, BATCH, &d, WRITE_SET);
    backward(&whole, &in, 0, BATCH, &d, WRITE_SET);
    for (int i = 0; i < BATCH * EMBED; i++) {
        assert_true(fabs(e[0].t[i] - e[1].t[i]) < 1e-13);
    }
    struct error err = {0};
    int compared = 0;
    for (int32_t i = 0; i < params_count(parts.params); i++) {
        const struct param_info info = params_info(parts.params, i);
        static double a[1024];
        static double b[1024];
        if (info.kind != PARAM_TRAINED || strncmp(info.name, "text", 4) != 0) {
            continue;
        }
        const size_t size = (size_t)info.count * sizeof *a;
        assert_true(size <= sizeof a);
        assert_ok(params_read(parts.params, i, PARAM_GRAD, a, size, &err), err);
        assert_ok(params_read(whole.params, i, PARAM_GRAD, b, size, &err), err);
        for (int64_t k = 0; k < info.count; k++) {
            if (fabs(a[k] - b[k]) > 1e-12) {
                fail_msg("%s %lld: %.17g and %.17g", info.name, (long long)k, a[k], b[k]);
            }
        }
        compared++;
    }
    assert_true(compared > 20);
    close_side(&parts);
    close_side(&whole);
}

TEST(gradients_in_micro_batches_add_up_and_repeat) {
    static struct input in;
    static struct embeddings e, d;
    struct side s;
    const struct dual_encoder_options o = options(BATCH, MICRO);
    int64_t n;
    double *g[3];
    draw_input(&in);
    open_side(&s, &o);
    forward(&s, &in, 0, BATCH, &e);
    contrast(&e, &d);
    for (int k = 0; k < 3; k++) {
        forward(&s, &in, 0, BATCH, &e);
        backward(&s, &in, 0, BATCH, &d, k == 2 ? WRITE_ADD : WRITE_SET);
        g[k] = gather(&s, PARAM_TRAINED, &n);
    }
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof *g[0]);
    for (int64_t k = 0; k < n; k++) {
        assert_true(fabs(g[2][k] - 2.0 * g[0][k]) <= 1e-12 * (1.0 + fabs(g[0][k])));
    }
    for (int k = 0; k < 3; k++) {
        free(g[k]);
    }
    close_side(&s);
}

TEST(memory_is_that_of_the_micro_batch) {
    struct error err = {0};
    struct dual_encoder_memory m[3];
    const struct dual_encoder_options o[3] = {options(64, 2), options(2, 0), options(64, 0)};
    for (int i = 0; i < 3; i++) {
        assert_ok(dual_encoder_plan(&m[i], &o[i], &err), err);
    }
    /* only the embeddings of both sides are kept for all */
    const size_t embeddings = (size_t)2 * (64 * EMBED * sizeof(double) - 128); /* 80 take 128 */
    assert_int_equal(m[0].activations_bytes, m[1].activations_bytes + embeddings);
    assert_int_equal(m[0].workspace_bytes, m[1].workspace_bytes);
    assert_int_equal(m[0].input_bytes, m[1].input_bytes);
    assert_int_equal(m[0].gradients_bytes, (1 + 5) * m[1].gradients_bytes); /* 32 of them */
    assert_true(m[2].activations_bytes > 20 * m[0].activations_bytes);
}

/* ---- the plan ---- */

static const struct ops *real_ops;
static size_t taken_bytes;

static enum status
count_alloc(struct device *dev, size_t size_bytes, void **out, struct error *err) {
    taken_bytes += size_bytes;
    return real_ops->alloc(dev, size_bytes, out, err);
}

TEST(the_plan_is_what_is_allocated) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};
    for (int k = 0; k < 24; k++) {
        struct error err = {0};
        struct device *dev;
        struct dual_encoder *m;
        struct dual_encoder_memory plan;
        struct dual_encoder_options o =
            options(k % 2 == 0 ? BATCH : 40, k / 3 % 2 == 0 ? 0 : MICRO);
        o.dtype = types[k % 3];
        o.moments = 1 + k / 6 % 2;
        o.training = k != 5;
        o.text.pool = k < 12 ? TRANSFORMER_POOL_MEAN : TRANSFORMER_POOL_FIRST;
        assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
        real_ops = dev->ops;
        struct ops counting = *real_ops;
        counting.alloc = count_alloc;
        dev->ops = &counting;
        taken_bytes = 0;
        assert_ok(dual_encoder_plan(&plan, &o, &err), err);
        assert_ok(dual_encoder_create(&m, dev, &o, &err), err);
        assert_int_equal(taken_bytes, plan.total_bytes);
        assert_int_equal(dual_encoder_memory_used(m).total_bytes, plan.total_bytes);
        dual_encoder_destroy(m);
        dev->ops = real_ops;
        device_close(dev);
    }
}

TEST(micro_batches_out_of_range_are_refused) {
    struct error err = {0};
    struct dual_encoder_memory m;
    struct dual_encoder_options o = options(4, 5);
    assert_int_equal(dual_encoder_plan(&m, &o, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "--micro-batch 5 is larger than --batch-size 4"));
    o = options(4, -1);
    assert_int_equal(dual_encoder_plan(&m, &o, &err), STATUS_USAGE);
}

/* ---- packed and padded ---- */

/* All gradients of one step with the loss's gradients `d`, which are made first where `fresh`. */
static double *one_step(struct side *s, struct embeddings *e, struct embeddings *d, bool fresh) {
    static struct input in;
    int64_t n;
    draw_input(&in);
    forward(s, &in, 0, BATCH, e);
    if (fresh) {
        contrast(e, d);
    }
    backward(s, &in, 0, BATCH, d, WRITE_SET);
    return gather(s, PARAM_TRAINED, &n);
}

static void packed_against_padded(enum transformer_pool pool, int32_t micro) {
    static struct embeddings e[2], d;
    struct side packed, padded;
    struct dual_encoder_options o = options(BATCH, micro);
    o.text.pool = pool;
    open_side(&packed, &o);
    o.padded = true;
    open_side(&padded, &o);
    double *a = one_step(&packed, &e[0], &d, true);
    double *b = one_step(&padded, &e[1], &d, false);
    for (int i = 0; i < BATCH * EMBED; i++) {
        assert_true(fabs(e[0].t[i] - e[1].t[i]) < 1e-14);
    }
    const int64_t n = params_element_count(packed.params, PARAM_TRAINED);
    for (int64_t k = 0; k < n; k++) {
        if (fabs(a[k] - b[k]) > 1e-13 * (1.0 + fabs(a[k]))) {
            fail_msg("gradient %lld: packed %.17g, padded %.17g", (long long)k, a[k], b[k]);
        }
    }
    free(a);
    free(b);
    close_side(&packed);
    close_side(&padded);
}

TEST(packed_captions_give_the_numbers_of_padded_ones) {
    packed_against_padded(TRANSFORMER_POOL_FIRST, 0);
    packed_against_padded(TRANSFORMER_POOL_FIRST, MICRO);
    packed_against_padded(TRANSFORMER_POOL_MEAN, 0);
}

TEST(pools_are_different_models) {
    static struct embeddings e[2], d;
    for (int k = 0; k < 2; k++) {
        struct side s;
        struct dual_encoder_options o = options(BATCH, 0);
        o.text.pool = k == 0 ? TRANSFORMER_POOL_FIRST : TRANSFORMER_POOL_MEAN;
        open_side(&s, &o);
        free(one_step(&s, &e[k], &d, true));
        close_side(&s);
    }
    assert_true(fabs(e[0].t[EMBED] - e[1].t[EMBED]) > 1e-3);
    assert_memory_equal(e[0].x, e[1].x, sizeof e[0].x);
}

/* ---- bf16 ---- */

static double norm(const double *a, const double *b, int64_t n) {
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        const double x = a[k] - (b == NULL ? 0.0 : b[k]);
        sum += x * x;
    }
    return sqrt(sum);
}

static struct dual_encoder_options real_options(enum dtype dtype, int32_t micro) {
    struct dual_encoder_options o = options(BATCH, micro);
    o.dtype = dtype;
    o.text.dim = 16;
    o.text.ffn_dim = 32;
    o.image.width = 16;
    o.image.stem = RESNET_STEM_SMALL; /* batch norm over one pixel of 5 images is too noisy */
    return o;
}

/* bf16 has 8 bits: embeddings within 3 %, all gradients together within 10 % of f32's, from the
 * same weights. */
TEST(bf16_follows_f32) {
    static struct embeddings e[2], d;
    struct side f32, bf16;
    struct dual_encoder_options o = real_options(DTYPE_F32, 0);
    open_side(&f32, &o);
    o.dtype = DTYPE_BF16;
    open_side(&bf16, &o);
    assert_int_equal(params_dtype(bf16.params), DTYPE_F32);
    double *a = one_step(&f32, &e[0], &d, true);
    double *b = one_step(&bf16, &e[1], &d, false);
    const int64_t n = params_element_count(f32.params, PARAM_TRAINED);
    const double x = norm(e[0].x, e[1].x, BATCH * EMBED) / sqrt(BATCH);
    const double t = norm(e[0].t, e[1].t, BATCH * EMBED) / sqrt(BATCH);
    const double g = norm(a, b, n) / norm(a, NULL, n);
    if (!(x < 0.03 && t < 0.03 && g < 0.1) || !(x > 1e-5 && t > 1e-5)) {
        fail_msg("bf16 and f32 differ by %.4g of images, %.4g of texts, %.4g of gradients", x, t,
                 g);
    }
    free(a);
    free(b);
    close_side(&f32);
    close_side(&bf16);
}

TEST(bf16_repeats_to_the_bit_also_in_micro_batches) {
    static struct embeddings e, d;
    for (int micro = 0; micro <= MICRO; micro += MICRO) {
        double *g[2];
        int64_t n = 0;
        for (int k = 0; k < 2; k++) {
            struct side s;
            const struct dual_encoder_options o = real_options(DTYPE_BF16, micro);
            open_side(&s, &o);
            g[k] = one_step(&s, &e, &d, true);
            n = params_element_count(s.params, PARAM_TRAINED);
            close_side(&s);
        }
        assert_memory_equal(g[0], g[1], (size_t)n * sizeof *g[0]);
        free(g[0]);
        free(g[1]);
    }
}

/* Every working copy is its f32 value rounded, after init, a write, and a step. */
TEST(working_copies_follow_their_values) {
    static struct embeddings e, d;
    struct error err = {0};
    struct side s;
    const struct dual_encoder_options o = real_options(DTYPE_BF16, 0);
    struct optimizer_options how;
    struct step_values values = {.lr = 1e-2, .sound = 1};
    optimizer_options_default(&how);
    open_side(&s, &o);
    for (int step = 0; step < 3; step++) {
        const struct tensor value = params_range(s.params, PARAM_VALUE, true);
        const struct tensor working = params_working(s.params, true);
        assert_int_equal(working.shape[0], value.shape[0]);
        for (int64_t k = 0; k < value.shape[0]; k++) {
            assert_int_equal(((const uint16_t *)working.data)[k],
                             bf16_from_f32(((const float *)value.data)[k]));
        }
        free(one_step(&s, &e, &d, true));
        assert_ok(optimizer_step(s.params, s.dev, &values, &how, &err), err);
        values.step++;
    }
    close_side(&s);
}

TEST(a_device_without_the_type_is_named_before_any_work) {
    struct error err = {0};
    struct device *dev;
    struct dual_encoder *m = NULL;
    struct dual_encoder_options o = options(BATCH, 0); /* f64, which only cpu-ref has */
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_int_equal(dual_encoder_create(&m, dev, &o, &err), STATUS_UNSUPPORTED);
    assert_null(m);
    device_close(dev);
}

/* ---- SGD with momentum ---- */

TEST(sgd_with_momentum_moves_as_by_hand) {
    static struct embeddings e, d;
    struct error err = {0};
    struct side s;
    struct dual_encoder_options o = options(BATCH, 0);
    struct optimizer_options how;
    struct step_values values = {.lr = 0.1, .sound = 1};
    optimizer_options_default(&how);
    how.kind = OPTIMIZER_SGDM;
    o.moments = optimizer_moments(how.kind);
    open_side(&s, &o);
    const struct tensor value = params_range(s.params, PARAM_VALUE, true);
    const struct tensor grad = params_range(s.params, PARAM_GRAD, true);
    double v = ((const double *)value.data)[5];
    double m = 0.0;
    for (uint64_t step = 1; step <= 3; step++) {
        free(one_step(&s, &e, &d, true));
        m = 0.9 * m + ((const double *)grad.data)[5] + 0.02 * v;
        v -= 0.1 * m;
        values.step = step - 1;
        assert_ok(optimizer_step(s.params, s.dev, &values, &how, &err), err);
        assert_true(fabs(((const double *)value.data)[5] - v) < 1e-7);
    }
    const struct dual_encoder_memory one = dual_encoder_memory_used(s.model);
    assert_int_equal(one.moments_bytes, one.gradients_bytes);
    close_side(&s);
}
