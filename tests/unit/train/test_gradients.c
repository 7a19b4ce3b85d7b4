/*
 * The sum of the gradients of micro-batches: its bits against those of models that each have a half
 * or a quarter of the batch, its value against plain accumulation, and the ranges that are handed
 * out while backward runs.
 */
#include "train/model/gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/model/dual_encoder.h"
#include "train/model/view_encoder.h"

enum { MICRO = 2, BATCH = 24, PX = 12, TOKENS = 5, EMBED = 6, VOCAB = 17 };
enum { IMAGE_BYTES = PX * PX * 3 };

/* Of pairs, or two views of every image; dL/dX and dL/dT, or those of both views. */
struct input {
    bool views;
    uint8_t images[2][BATCH * IMAGE_BYTES];
    int32_t tokens[BATCH * TOKENS], lengths[BATCH];
    uint64_t ids[BATCH];
    float d[2][BATCH * EMBED];
    struct step_values values; /* the host's memory is the device's */
};

struct model {
    struct device *dev;
    struct dual_encoder *pairs;
    struct view_encoder *views;
    struct params *params;
};

static void draw(struct input *in, bool views) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 1, 0);
    in->views = views;
    in->values = (struct step_values){.step = 4};
    for (size_t i = 0; i < sizeof in->images; i++) {
        in->images[i / sizeof in->images[0]][i % sizeof in->images[0]] =
            (uint8_t)rng_below(&r, 256);
    }
    for (int i = 0; i < BATCH * TOKENS; i++) {
        in->tokens[i] = (int32_t)rng_below(&r, VOCAB);
    }
    for (int i = 0; i < BATCH; i++) {
        in->lengths[i] = 1 + (int32_t)rng_below(&r, TOKENS);
        in->ids[i] = (uint64_t)(100 + i);
    }
    for (int i = 0; i < 2 * BATCH * EMBED; i++) {
        in->d[i / (BATCH * EMBED)][i % (BATCH * EMBED)] = (float)rng_normal(&r);
    }
}

static struct dual_encoder_options pair_options(int32_t batch, int32_t micro) {
    struct error err;
    struct dual_encoder_options o;
    assert_ok(dual_encoder_preset(&o, "resnet10t", "tiny", &err), err);
    o.image.width = 8;
    o.image.image_px = PX;
    o.image.stem = RESNET_STEM_SMALL;
    o.text.dim = 6;
    o.text.heads = 2;
    o.text.ffn_dim = 10;
    o.text.vocab_count = VOCAB;
    o.text.max_tokens = TOKENS;
    o.text.dropout = 0.2f;
    o.embed_dim = EMBED;
    o.max_batch = batch;
    o.micro_batch = micro;
    return o;
}

static void open_pairs(struct model *m, const struct dual_encoder_options *o) {
    struct error err;
    *m = (struct model){0};
    assert_ok(device_open(&m->dev, "cpu", 1, &err), err);
    assert_ok(dual_encoder_create(&m->pairs, m->dev, o, &err), err);
    m->params = dual_encoder_params(m->pairs);
}

static void open_model(struct model *m, bool views, int32_t batch, int32_t micro) {
    struct error err;
    struct dual_encoder_options o = pair_options(batch, micro);
    if (!views) {
        open_pairs(m, &o);
    } else {
        const struct view_encoder_options v = {.image = o.image,
                                               .hidden_dim = 9,
                                               .embed_dim = EMBED,
                                               .max_batch = 2 * batch,
                                               .micro_batch = micro,
                                               .training = true,
                                               .moments = 1,
                                               .dtype = DTYPE_F32};
        *m = (struct model){0};
        assert_ok(device_open(&m->dev, "cpu", 1, &err), err);
        assert_ok(view_encoder_create(&m->views, m->dev, &v, &err), err);
        m->params = view_encoder_params(m->views);
    }
    assert_ok(params_init(m->params, 7, &err), err);
    for (int decayed = 0; decayed < 2; decayed++) { /* gammas of 0 would hide what is before them */
        const struct tensor value = params_range(m->params, PARAM_VALUE, decayed == 1);
        for (int64_t i = 0; i < value.shape[0]; i++) {
            ((float *)value.data)[i] += 0.05f * (float)(i % 7 - 3);
        }
    }
}

static void close_model(struct model *m) {
    view_encoder_destroy(m->views);
    dual_encoder_destroy(m->pairs);
    device_close(m->dev);
}

/* One step with pairs or images [start, start + count). */
static enum status step(struct model *m,
                        struct input *in,
                        int start,
                        int count,
                        enum write_mode mode,
                        const struct gradient_ready *ready,
                        struct error *err) {
    static float views[2 * BATCH * EMBED];
    const size_t at = (size_t)start * IMAGE_BYTES;
    struct tensor x, t;
    float *d[2] = {in->d[0] + start * EMBED, in->d[1] + start * EMBED};
    if (in->views) {
        const struct view_encoder_batch batch = {
            .count = count, .first = in->images[0] + at, .second = in->images[1] + at};
        const size_t size = (size_t)count * EMBED * sizeof(float);
        memcpy(views, d[0], size);
        memcpy(views + count * EMBED, d[1], size);
        const struct tensor dx = tensor_2d(views, DTYPE_F32, 2 * count, EMBED);
        assert_ok(view_encoder_forward(m->views, &x, &batch, err), *err);
        return view_encoder_backward(m->views, &dx, &batch, mode, ready, err);
    }
    const struct dual_encoder_batch batch = {.count = count,
                                             .images = in->images[0] + at,
                                             .tokens = in->tokens + start * TOKENS,
                                             .lengths = in->lengths + start,
                                             .sample_ids = in->ids + start,
                                             .seed = 3,
                                             .values = &in->values};
    const struct tensor dx = tensor_2d(d[0], DTYPE_F32, count, EMBED);
    const struct tensor dt = tensor_2d(d[1], DTYPE_F32, count, EMBED);
    assert_ok(dual_encoder_forward(m->pairs, &x, &t, &batch, true, err), *err);
    return dual_encoder_backward(m->pairs, &dx, &dt, &batch, mode, ready, err);
}

/* Both ranges of gradients, which follow each other. */
static float *sum_of(const struct model *m, int64_t *count) {
    const struct tensor decayed = params_range(m->params, PARAM_GRAD, true);
    const struct tensor undecayed = params_range(m->params, PARAM_GRAD, false);
    *count = decayed.shape[0] + undecayed.shape[0];
    assert_ptr_equal((float *)decayed.data + decayed.shape[0], undecayed.data);
    return decayed.data;
}

static double norm_of(const float *v, int64_t count) {
    double squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        squares += (double)v[i] * (double)v[i];
    }
    return sqrt(squares);
}

/* ---- the tree ---- */

static void add(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* The whole batch in one model, and in `world` of them whose sums are added by the tree. */
static void parts_have_the_bits_of_the_whole(bool views, int batch, int world) {
    static struct input in;
    struct error err = {0};
    struct model whole, parts[4];
    int64_t count, n;
    draw(&in, views);
    open_model(&whole, views, batch, MICRO);
    assert_ok(step(&whole, &in, 0, batch, WRITE_SET, NULL, &err), err);
    const int own = batch / world;
    for (int r = 0; r < world; r++) {
        open_model(&parts[r], views, own, MICRO);
        assert_ok(step(&parts[r], &in, r * own, own, WRITE_SET, NULL, &err), err);
    }
    const float *expected = sum_of(&whole, &count);
    assert_true(norm_of(expected, count) > 1.0);
    for (int stride = 1; stride < world; stride *= 2) {
        for (int r = 0; r < world; r += 2 * stride) {
            add(sum_of(&parts[r], &n), sum_of(&parts[r + stride], &n), count);
        }
    }
    assert_int_equal(n, count);
    assert_memory_equal(sum_of(&parts[0], &n), expected, (size_t)count * sizeof *expected);
    close_model(&whole);
    for (int r = 0; r < world; r++) {
        close_model(&parts[r]);
    }
}

/* 4 and 12 micro-batches: groups of 1 and of 3. */
TEST(halves_and_quarters_of_a_batch_add_up_to_its_bits) {
    for (int world = 2; world <= 4; world *= 2) {
        parts_have_the_bits_of_the_whole(false, 8, world);
        parts_have_the_bits_of_the_whole(false, BATCH, world);
    }
}

TEST(halves_and_quarters_of_views_add_up_to_their_bits) {
    for (int world = 2; world <= 4; world *= 2) {
        parts_have_the_bits_of_the_whole(true, 8, world);
        parts_have_the_bits_of_the_whole(true, BATCH, world);
    }
}

/* Also smaller batches than planned, which have fewer micro-batches, but perhaps more groups (12
 * has 2 groups of 3, 8 has 4 of 1), and an incomplete last one; set and added. */
TEST(the_tree_is_the_sum) {
    static const struct {
        int planned, count;
    } cases[] = {{8, 8}, {8, 7}, {8, 3}, {12, 8}, {10, 8}, {BATCH, BATCH}, {BATCH, 1}};
    static struct input in;
    struct error err = {0};
    for (int views = 0; views < 2; views++) {
        draw(&in, views == 1);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct model tree, plain;
            int64_t count, n;
            open_model(&tree, views == 1, cases[c].planned, MICRO);
            open_model(&plain, views == 1, MICRO, 0);
            for (int k = 0; k < 3; k++) {
                const enum write_mode mode = k < 2 ? WRITE_SET : WRITE_ADD;
                assert_ok(step(&tree, &in, 0, cases[c].count, mode, NULL, &err), err);
            }
            for (int at = 0; at < cases[c].count; at += MICRO) {
                const int left = cases[c].count - at;
                assert_ok(step(&plain, &in, at, left < MICRO ? left : MICRO,
                               at == 0 ? WRITE_SET : WRITE_ADD, NULL, &err),
                          err);
            }
            const float *a = sum_of(&tree, &count);
            float *b = sum_of(&plain, &n);
            assert_int_equal(n, count);
            double squares = 0.0;
            for (int64_t i = 0; i < n; i++) {
                const double d = (double)a[i] - 2.0 * (double)b[i];
                squares += d * d;
            }
            const double norm = norm_of(b, n);
            if (!(norm > 0.1 && sqrt(squares) < 1e-6 * norm)) {
                fail_msg("%d of %d: |a - 2 b| %.3g, |b| %.3g", cases[c].count, cases[c].planned,
                         sqrt(squares), norm);
            }
            close_model(&tree);
            close_model(&plain);
        }
    }
}

TEST(blocks_are_the_twos_in_the_count) {
    static const int32_t counts[][2] = {{1, 0}, {2, 1},  {3, 0},       {4, 2},
                                        {6, 1}, {96, 5}, {1 << 20, 20}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assert_int_equal(gradients_block_count(counts[i][0]), counts[i][1]);
    }
}

/* ---- what is handed out ---- */

struct taken {
    float *sum;    /* the table's gradients */
    float *copy;   /* of what was handed out, when it was */
    int64_t count; /* elements so far */
    int64_t calls;
    int64_t decayed_count, fail_at; /* call that fails; -1: none */
    const float *stem;              /* a gradient of the last unit of backward */
    float stem_then;                /* the one that it had in the first call */
};

static enum status take(void *cookie, const struct tensor *range, struct error *err) {
    struct taken *t = cookie;
    if (t->calls == t->fail_at) {
        return error_set(err, STATUS_IO, "refused");
    }
    assert_int_equal(range->dtype, DTYPE_F32);
    assert_int_equal(range->ndim, 1);
    assert_ptr_equal(range->data, t->sum + t->count);
    assert_true(range->shape[0] <= GRADIENTS_RANGE_COUNT || t->count == t->decayed_count);
    memcpy(t->copy + t->count, range->data, tensor_size_bytes(range));
    if (t->calls == 0) {
        t->stem_then = *t->stem;
    }
    t->count += range->shape[0];
    t->calls++;
    return STATUS_OK;
}

static void open_taken(struct taken *t, const struct model *m) {
    int64_t count;
    *t = (struct taken){.sum = sum_of(m, &count), .fail_at = -1};
    t->decayed_count = params_range(m->params, PARAM_GRAD, true).shape[0];
    t->copy = calloc((size_t)count, sizeof *t->copy);
    assert_non_null(t->copy);
    for (int32_t i = 0; i < params_count(m->params); i++) {
        if (strcmp(params_info(m->params, i).name, "image.conv1.0.weight") == 0) {
            t->stem = params_grad(m->params, i).data;
        }
    }
    assert_non_null(t->stem);
}

static void all_was_final(const struct taken *t, const struct model *m) {
    int64_t count;
    const float *sum = sum_of(m, &count);
    assert_int_equal(t->count, count);
    assert_memory_equal(t->copy, sum, (size_t)count * sizeof *sum);
}

/* Word embeddings of more than one range, in 1 and 4 micro-batches. */
TEST(ranges_are_handed_out_once_in_order_and_final) {
    static struct input in;
    static const int32_t batches[] = {2, 8};
    struct error err = {0};
    draw(&in, false);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct dual_encoder_options o = pair_options(batches[i], MICRO);
        struct model m;
        struct taken t;
        o.text.dim = 96;
        o.text.vocab_count = GRADIENTS_RANGE_COUNT / 96 + 1;
        o.moments = 1;
        open_pairs(&m, &o);
        assert_ok(params_init(m.params, 7, &err), err);
        open_taken(&t, &m);
        const struct gradient_ready ready = {.call = take, .cookie = &t};
        assert_ok(step(&m, &in, 0, batches[i], WRITE_SET, NULL, &err), err);
        const float stem_before = *t.stem;
        in.d[0][0] += 1.0f; /* other gradients than before */
        assert_ok(step(&m, &in, 0, batches[i], WRITE_SET, &ready, &err), err);
        all_was_final(&t, &m);
        assert_int_equal(t.calls, 2 + 1); /* decayed, undecayed */
        /* the text tower's arrive before backward of the image tower is complete */
        assert_true(t.stem_then != *t.stem);
        if (i == 0) {
            assert_true(t.stem_then == stem_before);
        }
        t.count = 0;
        t.calls = 0;
        t.fail_at = 1;
        assert_status(step(&m, &in, 0, batches[i], WRITE_SET, &ready, &err), STATUS_IO, err);
        assert_int_equal(t.calls, 1);
        free(t.copy);
        close_model(&m);
    }
}

TEST(ranges_of_views_are_handed_out_once_in_order_and_final) {
    static struct input in;
    struct error err = {0};
    draw(&in, true);
    for (int batch = 2; batch <= 8; batch += 2) {
        struct model m;
        struct taken t;
        open_model(&m, true, batch, MICRO);
        open_taken(&t, &m);
        const struct gradient_ready ready = {.call = take, .cookie = &t};
        assert_ok(step(&m, &in, 0, batch, WRITE_SET, &ready, &err), err);
        all_was_final(&t, &m);
        assert_int_equal(t.calls, 2);
        free(t.copy);
        close_model(&m);
    }
}
