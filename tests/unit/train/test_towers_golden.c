/*
 * Whole models against tests/golden/towers/towers.txt, which timm, transformers and PyTorch have
 * computed in float64 from the same weights, images and tokens (make_towers.py says how): outputs,
 * running statistics and the gradient of every parameter in the first step, and the losses of ten
 * steps of AdamW, on the fast device in f32.
 *
 * A larger file, of ResNet-50 and DistilBERT in full shape, is compared where the environment
 * variable CCSTREAM_TOWERS names it. CCSTREAM_TEST_DEVICE names another device, as tests/gpu/run
 * does.
 *
 * test-timeout: 240
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/dual_encoder.h"
#include "train/loss.h"
#include "train/optimizer.h"

enum { EMBED = 32, VOCAB = 50, POSITIONS = 16, STEPS = 10, MAX_BATCH = 16, MAX_NAME = 128 };

struct draws {
    uint64_t state;
};

static struct draws draws_of(const char *prefix, const char *name) {
    struct draws d = {UINT64_C(0xCBF29CE484222325)};
    const char *const parts[] = {prefix, name};
    for (int k = 0; k < 2; k++) {
        for (const char *c = parts[k]; *c != '\0'; c++) {
            d.state = (d.state ^ (uint8_t)*c) * UINT64_C(0x100000001B3);
        }
    }
    return d;
}

static uint64_t next(struct draws *d) {
    d->state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = d->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name);
    const size_t m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* As weight() of the script. */
static void make_weight(float *out, const struct param_info *info) {
    struct draws d = draws_of(info->name, "");
    double scale = 1.0;
    double base = 0.0;
    if (ends_with(info->name, "running_var") ||
        (ends_with(info->name, "weight") && info->ndim == 1)) {
        base = 1.0;
        scale = 0.125;
    } else if (info->ndim == 1) {
        scale = 0.125;
    } else if (strstr(info->name, "embeddings") != NULL) {
        scale = 1.0 / 32;
    } else {
        double fan_in = 1.0;
        for (int32_t i = 1; i < info->ndim; i++) {
            fan_in *= (double)info->shape[i];
        }
        while (scale * scale * fan_in > 3.0) {
            scale /= 2.0;
        }
    }
    for (int64_t i = 0; i < info->count; i++) {
        out[i] = (float)(base + scale * ((double)(next(&d) >> 51) - 4096.0) / 4096.0);
    }
}

struct golden {
    FILE *file;
    char tower[32], stem[16], text[16];
    int px, batch, tokens;
};

struct model {
    struct device *dev;
    struct dual_encoder *encoder;
    struct params *params;
    float *host; /* the largest tensor */
    uint8_t *images;
    int32_t tokens[MAX_BATCH * POSITIONS];
    int32_t lengths[MAX_BATCH];
    uint64_t ids[MAX_BATCH];
    struct dual_encoder_batch batch;
    struct tensor dx, dt;
};

static void make_inputs(struct model *m, const struct golden *g) {
    struct draws d = draws_of("images", "");
    const size_t bytes = (size_t)g->batch * (size_t)g->px * (size_t)g->px * 3;
    m->images = malloc(bytes);
    assert_non_null(m->images);
    for (size_t i = 0; i < bytes; i++) {
        m->images[i] = (uint8_t)(next(&d) >> 56);
    }
    d = draws_of("tokens", "");
    for (int i = 0; i < g->batch * g->tokens; i++) {
        m->tokens[i] = (int32_t)(1 + next(&d) % (VOCAB - 1));
    }
    for (int i = 0; i < g->batch; i++) {
        m->lengths[i] = (int32_t)(2 + next(&d) % (uint64_t)(g->tokens - 1));
        m->ids[i] = (uint64_t)i;
    }
    m->batch = (struct dual_encoder_batch){.count = g->batch,
                                           .images = m->images,
                                           .tokens = m->tokens,
                                           .lengths = m->lengths,
                                           .sample_ids = m->ids};
}

static void open_model(struct model *m, const struct golden *g) {
    struct error err = {0};
    struct dual_encoder_options o;
    memset(m, 0, sizeof *m);
    assert_true(g->batch <= MAX_BATCH && g->tokens <= POSITIONS);
    assert_ok(dual_encoder_preset(&o, g->tower, g->text, &err), err);
    o.image.image_px = g->px;
    o.image.stem = strcmp(g->stem, "small") == 0 ? RESNET_STEM_SMALL : RESNET_STEM_STANDARD;
    o.text.vocab_count = VOCAB;
    o.text.position_count = POSITIONS;
    o.text.max_tokens = g->tokens;
    o.text.dropout = 0.0f;
    o.embed_dim = EMBED;
    o.max_batch = g->batch;
    const char *device = getenv("CCSTREAM_TEST_DEVICE");
    assert_ok(device_open(&m->dev, device != NULL ? device : "cpu", 1, &err), err);
    assert_ok(dual_encoder_create(&m->encoder, m->dev, &o, &err), err);
    m->params = dual_encoder_params(m->encoder);
    assert_ok(params_init(m->params, 0, &err), err);
    int64_t largest = 0;
    for (int32_t i = 0; i < params_count(m->params); i++) {
        const int64_t count = params_info(m->params, i).count;
        largest = count > largest ? count : largest;
    }
    m->host = malloc((size_t)largest * sizeof *m->host);
    assert_non_null(m->host);
    for (int32_t i = 0; i < params_count(m->params); i++) {
        const struct param_info info = params_info(m->params, i);
        make_weight(m->host, &info);
        assert_ok(params_write(m->params, i, PARAM_VALUE, m->host,
                               (size_t)info.count * sizeof(float), &err),
                  err);
    }
    void *data = NULL;
    const size_t rows = (size_t)g->batch * EMBED * sizeof(float);
    assert_ok(m->dev->ops->alloc(m->dev, rows, &data, &err), err);
    m->dx = tensor_2d(data, DTYPE_F32, g->batch, EMBED);
    assert_ok(m->dev->ops->alloc(m->dev, rows, &data, &err), err);
    m->dt = tensor_2d(data, DTYPE_F32, g->batch, EMBED);
    make_inputs(m, g);
}

static void close_model(struct model *m) {
    m->dev->ops->free(m->dev, m->dx.data);
    m->dev->ops->free(m->dev, m->dt.data);
    dual_encoder_destroy(m->encoder);
    device_close(m->dev);
    free(m->host);
    free(m->images);
}

/* Norm and two signed sums of (count) values; each within `tolerance` of the norm. */
static void check_digest(const struct golden *g,
                         const char *name,
                         const float *values,
                         int64_t count,
                         double tolerance) {
    double norm = 0.0;
    double sums[2] = {0.0, 0.0};
    double want[3];
    struct draws d = draws_of("signs ", name);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(fscanf(g->file, "%lf", &want[k]), 1);
    }
    for (int64_t i = 0; i < count; i++) {
        norm += (double)values[i] * (double)values[i];
    }
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < count; i++) {
            sums[k] += next(&d) >> 63 ? (double)values[i] : -(double)values[i];
        }
    }
    /* A gradient that is 0 but for cancellation (the keys' bias in attention) has no direction. */
    const double allowed = tolerance * want[0] + 1e-7;
    if (fabs(sqrt(norm) - want[0]) > allowed || fabs(sums[0] - want[1]) > 4.0 * allowed ||
        fabs(sums[1] - want[2]) > 4.0 * allowed) {
        fail_msg("%s %s + %s: %s: norm %.9g, sums %.9g %.9g; wanted %.9g, %.9g %.9g", g->tower,
                 g->stem, g->text, name, sqrt(norm), sums[0], sums[1], want[0], want[1], want[2]);
    }
}

/* The loss of a forward pass, and the gradients of the embeddings. */
static double contrast(struct model *m, struct loss *loss, struct tensor *x, struct tensor *t) {
    struct error err = {0};
    float images[MAX_BATCH * EMBED], texts[MAX_BATCH * EMBED];
    float s[MAX_BATCH * MAX_BATCH], gradient[MAX_BATCH * MAX_BATCH];
    float dx[MAX_BATCH * EMBED] = {0}, dt[MAX_BATCH * EMBED] = {0};
    const int b = m->batch.count;
    const struct ops *ops = m->dev->ops;
    assert_ok(ops->download(m->dev, images, x->data, tensor_size_bytes(x), &err), err);
    assert_ok(ops->download(m->dev, texts, t->data, tensor_size_bytes(t), &err), err);
    for (int i = 0; i < b * b; i++) {
        double sum = 0.0;
        for (int k = 0; k < EMBED; k++) {
            sum += (double)images[i / b * EMBED + k] * (double)texts[i % b * EMBED + k];
        }
        s[i] = (float)sum;
    }
    const struct loss_input in = {.similarity = s, .sample_ids = m->ids, .batch_count = b};
    struct loss_output out = {.gradient = gradient};
    assert_ok(loss_step(loss, &in, &out, &err), err);
    for (int i = 0; i < b * b; i++) {
        for (int k = 0; k < EMBED; k++) {
            dx[i / b * EMBED + k] += gradient[i] * texts[i % b * EMBED + k];
            dt[i % b * EMBED + k] += gradient[i] * images[i / b * EMBED + k];
        }
    }
    assert_ok(ops->upload(m->dev, m->dx.data, dx, tensor_size_bytes(&m->dx), &err), err);
    assert_ok(ops->upload(m->dev, m->dt.data, dt, tensor_size_bytes(&m->dt), &err), err);
    return out.value;
}

/* Lines "output", "gradient" and "buffer" of the first step. */
static void check_first_step(const struct golden *g,
                             struct model *m,
                             const struct tensor *x,
                             const struct tensor *t) {
    struct error err = {0};
    char kind[16];
    char name[MAX_NAME];
    int gradients = 0;
    long at = ftell(g->file);
    while (fscanf(g->file, " %15s", kind) == 1 && strcmp(kind, "loss") != 0) {
        assert_int_equal(fscanf(g->file, " %127s", name), 1);
        if (strcmp(kind, "output") == 0) {
            const struct tensor *out = strcmp(name, "image") == 0 ? x : t;
            assert_ok(
                m->dev->ops->download(m->dev, m->host, out->data, tensor_size_bytes(out), &err),
                err);
            check_digest(g, name, m->host, (int64_t)g->batch * EMBED, 1e-5);
        } else {
            const int32_t index = params_find(m->params, name);
            if (index < 0) {
                fail_msg("the model has no %s", name);
            }
            const struct param_info info = params_info(m->params, index);
            const bool gradient = strcmp(kind, "gradient") == 0;
            assert_ok(params_read(m->params, index, gradient ? PARAM_GRAD : PARAM_VALUE, m->host,
                                  (size_t)info.count * sizeof(float), &err),
                      err);
            check_digest(g, name, m->host, info.count, 1e-5);
            gradients += gradient ? 1 : 0;
        }
        at = ftell(g->file);
    }
    int trained = 0;
    for (int32_t i = 0; i < params_count(m->params); i++) {
        trained += params_info(m->params, i).kind == PARAM_TRAINED ? 1 : 0;
    }
    assert_int_equal(gradients, trained);
    assert_int_equal(fseek(g->file, at, SEEK_SET), 0);
}

static void check_loss(const struct golden *g, int step, double loss) {
    int number = -1;
    double want = 0.0;
    assert_int_equal(fscanf(g->file, " loss %d %lf", &number, &want), 2);
    assert_int_equal(number, step);
    if (!(fabs(loss - want) <= 1e-4 * fmax(fabs(want), 0.1))) {
        fail_msg("%s %s + %s: loss of step %d is %.9g, not %.9g", g->tower, g->stem, g->text, step,
                 loss, want);
    }
}

static void compare_model(const struct golden *g) {
    struct error err = {0};
    static struct model m;
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    struct loss_options lo;
    struct optimizer_options oo;
    open_model(&m, g);
    loss_options_default(&lo);
    optimizer_options_default(&oo);
    lo.name = "clip";
    lo.tau = 0.1;
    assert_ok(sample_state_create(&state, MAX_BATCH, &err), err);
    assert_ok(loss_create(&loss, &lo, state, MAX_BATCH, g->batch, &err), err);
    for (int step = 0; step < STEPS; step++) {
        struct tensor x, t;
        double norm;
        assert_ok(dual_encoder_forward(m.encoder, &x, &t, &m.batch, true, &err), err);
        const double value = contrast(&m, loss, &x, &t);
        assert_ok(dual_encoder_backward(m.encoder, &m.dx, &m.dt, &m.batch, WRITE_SET, &err), err);
        if (step == 0) {
            check_first_step(g, &m, &x, &t);
        }
        check_loss(g, step, value);
        assert_ok(optimizer_step(m.params, m.dev, &norm, &oo, 2e-4, (uint64_t)step + 1, &err), err);
    }
    loss_destroy(loss);
    sample_state_destroy(state);
    close_model(&m);
}

static int compare_file(const char *path) {
    struct golden g = {0};
    int models = 0;
    g.file = fopen(path, "r");
    assert_non_null(g.file);
    while (fscanf(g.file, " model %31s %15s %15s %d %d %d", g.tower, g.stem, g.text, &g.px,
                  &g.batch, &g.tokens) == 6) {
        char end[8];
        compare_model(&g);
        assert_int_equal(fscanf(g.file, " %7s", end), 1);
        assert_string_equal(end, "end");
        models++;
    }
    fclose(g.file);
    return models;
}

TEST(towers_are_those_of_timm_and_transformers) {
    const char *large = getenv("CCSTREAM_TOWERS");
    assert_int_equal(compare_file(test_source_path("tests/golden/towers/towers.txt")), 2);
    if (large != NULL) {
        assert_int_equal(compare_file(large), 1);
    }
}
