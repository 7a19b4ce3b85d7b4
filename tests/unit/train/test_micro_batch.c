/*
 * A batch in micro-batches against the same batch norm groups by hand, and against the whole batch
 * where there is no batch norm; running statistics, bits, the memory plan.
 *
 * test-timeout: 120
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/ops.h"
#include "tests/support/test.h"
#include "train/dual_encoder.h"

/* Parts of 2, 2 and 1 pairs. */
enum { BATCH = 5, MICRO = 2, PX = 16, TOKENS = 6, VOCAB = 11, EMBED = 5 };

struct input {
    uint8_t images[BATCH * PX * PX * 3];
    int32_t tokens[BATCH * TOKENS];
    int32_t lengths[BATCH];
    uint64_t ids[BATCH];
};

struct side {
    struct device *dev;
    struct dual_encoder *model;
    struct params *params;
};

static void draw_input(struct input *in) {
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

/* Equal weights for equal shapes; no gamma stays 0, which would hide what is in front of it. */
static void open_side(struct side *s, const struct dual_encoder_options *o) {
    struct error err = {0};
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 8, 0);
    assert_ok(device_open(&s->dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&s->model, s->dev, o, &err), err);
    s->params = dual_encoder_params(s->model);
    assert_ok(params_init(s->params, 7, &err), err);
    for (int32_t i = 0; i < params_count(s->params); i++) {
        const struct param_info info = params_info(s->params, i);
        const size_t size = (size_t)info.count * sizeof(double);
        double *v = malloc(size);
        assert_ok(params_read(s->params, i, PARAM_VALUE, v, size, &err), err);
        for (int64_t k = 0; k < info.count && info.kind == PARAM_TRAINED; k++) {
            v[k] += 0.1 * rng_normal(&r);
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
                                       .step = 9};
}

struct embeddings {
    double x[BATCH][EMBED], t[BATCH][EMBED];
};

/* Rows [start, start + count) of both sides. */
static void
forward(struct side *s, const struct input *in, int start, int count, struct embeddings *e) {
    struct error err = {0};
    struct tensor x, t;
    const struct dual_encoder_batch batch = rows(in, start, count);
    assert_ok(dual_encoder_forward(s->model, &x, &t, &batch, true, &err), err);
    assert_int_equal(x.shape[0], count);
    const size_t size = (size_t)count * EMBED * sizeof(double);
    assert_ok(s->dev->ops->download(s->dev, e->x[start], x.data, size, &err), err);
    assert_ok(s->dev->ops->download(s->dev, e->t[start], t.data, size, &err), err);
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
                s += e->x[i][k] * e->t[j][k];
            }
            p[j] = exp(s / 0.1);
            sum += p[j];
        }
        for (int j = 0; j < BATCH; j++) {
            const double g = (p[j] / sum - (i == j ? 1.0 : 0.0)) / 0.1 / BATCH;
            for (int k = 0; k < EMBED; k++) {
                d->x[i][k] += g * e->t[j][k];
                d->t[j][k] += g * e->x[i][k];
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
    const struct dual_encoder_batch batch = rows(in, start, count);
    const struct tensor dx = tensor_2d(d->x[start], DTYPE_F64, count, EMBED);
    const struct tensor dt = tensor_2d(d->t[start], DTYPE_F64, count, EMBED);
    assert_ok(dual_encoder_backward(s->model, &dx, &dt, &batch, mode, &err), err);
}

/* All gradients, or all running statistics. */
static double *gather(const struct side *s, enum param_kind kind, int64_t *count) {
    struct error err = {0};
    *count = params_element_count(s->params, kind);
    double *all = malloc((size_t)*count * sizeof *all);
    int64_t at = 0;
    for (int32_t i = 0; i < params_count(s->params); i++) {
        const struct param_info info = params_info(s->params, i);
        if (info.kind == kind) {
            assert_ok(params_read(s->params, i, kind == PARAM_TRAINED ? PARAM_GRAD : PARAM_VALUE,
                                  all + at, (size_t)info.count * sizeof *all, &err),
                      err);
            at += info.count;
        }
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
    static const int order[] = {2, 0, 1};
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
        assert_true(fabs(e[0].t[0][i] - e[1].t[0][i]) < 1e-13);
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
    assert_int_equal(m[0].scratch_bytes, m[1].scratch_bytes);
    assert_int_equal(m[0].input_bytes, m[1].input_bytes);
    assert_true(m[2].activations_bytes > 20 * m[0].activations_bytes);
}

TEST(micro_batches_out_of_range_are_refused) {
    struct error err = {0};
    struct dual_encoder_memory m;
    struct dual_encoder_options o = options(4, 5);
    assert_int_equal(dual_encoder_plan(&m, &o, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "micro-batch of 5"));
    o = options(4, -1);
    assert_int_equal(dual_encoder_plan(&m, &o, &err), STATUS_USAGE);
}
