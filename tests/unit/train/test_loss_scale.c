/*
 * Training in fp16 on cpu-ref: steps beside f32's, gradients that only loss scaling keeps, skipped
 * steps of a small model and of a trainer, and runs that end because every step is skipped.
 *
 * test-timeout: 240
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/file_io.h"
#include "formats/base/rng.h"
#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"
#include "train/model/dual_encoder.h"
#include "train/optim/optimizer.h"
#include "train/run/trainer_internal.h"

enum { BATCH = 5, PX = 16, TOKENS = 6, VOCAB = 11, EMBED = 5 };

struct side {
    struct device *dev;
    struct dual_encoder *model;
    struct params *params;
    struct step_values values; /* the host's memory is the device's */
    struct optimizer_options how;
    double weight; /* of the loss */
};

static uint8_t images[BATCH * PX * PX * 3];
static int32_t tokens[BATCH * TOKENS];
static const int32_t lengths[BATCH] = {2, 6, 3, 3, 5};
static const uint64_t ids[BATCH] = {40, 41, 42, 43, 44};

static void draw_input(void) {
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 7, 0);
    for (size_t i = 0; i < sizeof images; i++) {
        images[i] = (uint8_t)rng_below(&r, 256);
    }
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (int32_t)rng_below(&r, VOCAB);
    }
}

/* SGD, whose steps are as long as gradients are large. */
static void open_side(struct side *s, enum dtype dtype, double loss_scale) {
    struct error err = {0};
    struct dual_encoder_options o;
    assert_ok(dual_encoder_preset(&o, "resnet10t", "tiny", &err), err);
    o.image.width = 16;
    o.image.image_px = PX;
    o.image.stem = RESNET_STEM_SMALL;
    o.text.layers = 2;
    o.text.dim = 16;
    o.text.heads = 2;
    o.text.ffn_dim = 32;
    o.text.vocab_count = VOCAB;
    o.text.max_tokens = TOKENS;
    o.embed_dim = EMBED;
    o.max_batch = BATCH;
    o.dtype = dtype;
    *s = (struct side){.weight = 1.0};
    s->values = (struct step_values){.lr = 0.001, .sound = 1, .loss_scale = loss_scale};
    optimizer_options_default(&s->how);
    s->how.kind = OPTIMIZER_SGDM;
    s->how.weight_decay = 0.0;
    assert_ok(device_open(&s->dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&s->model, s->dev, &o, &err), err);
    s->params = dual_encoder_params(s->model);
    assert_ok(params_init(s->params, 7, &err), err);
}

static void close_side(struct side *s) {
    dual_encoder_destroy(s->model);
    device_close(s->dev);
}

/* Gradients of the cross entropy of S's rows at temperature 0.1. */
static void contrast(const float *x, const float *t, double weight, float *dx, float *dt) {
    memset(dx, 0, BATCH * EMBED * sizeof *dx);
    memset(dt, 0, BATCH * EMBED * sizeof *dt);
    for (int i = 0; i < BATCH; i++) {
        double p[BATCH];
        double sum = 0.0;
        for (int j = 0; j < BATCH; j++) {
            double s = 0.0;
            for (int k = 0; k < EMBED; k++) {
                s += (double)x[i * EMBED + k] * (double)t[j * EMBED + k];
            }
            p[j] = exp(s / 0.1);
            sum += p[j];
        }
        for (int j = 0; j < BATCH; j++) {
            const double g = weight * (p[j] / sum - (i == j ? 1.0 : 0.0)) / 0.1 / BATCH;
            for (int k = 0; k < EMBED; k++) {
                dx[i * EMBED + k] += (float)(g * (double)t[j * EMBED + k]);
                dt[j * EMBED + k] += (float)(g * (double)x[i * EMBED + k]);
            }
        }
    }
}

static void one_step(struct side *s) {
    struct error err = {0};
    struct tensor x;
    struct tensor t;
    float gradient[2][BATCH * EMBED];
    const struct dual_encoder_batch batch = {.count = BATCH,
                                             .images = images,
                                             .tokens = tokens,
                                             .lengths = lengths,
                                             .sample_ids = ids,
                                             .seed = 3,
                                             .values = &s->values};
    assert_ok(dual_encoder_forward(s->model, &x, &t, &batch, true, &err), err);
    contrast(x.data, t.data, s->weight, gradient[0], gradient[1]);
    const struct tensor dx = tensor_2d(gradient[0], DTYPE_F32, BATCH, EMBED);
    const struct tensor dt = tensor_2d(gradient[1], DTYPE_F32, BATCH, EMBED);
    if (s->values.loss_scale > 0.0) {
        assert_ok(s->dev->ops->scale_gradient(s->dev, &dx, &s->values, &err), err);
        assert_ok(s->dev->ops->scale_gradient(s->dev, &dt, &s->values, &err), err);
    }
    assert_ok(dual_encoder_backward(s->model, &dx, &dt, &batch, WRITE_SET, &err), err);
    assert_ok(optimizer_step(s->params, s->dev, &s->values, &s->how, &err), err);
    s->values.step++;
}

/* Norm of scale a - b relative to that of b, over all parameters. */
static double distance(const struct side *a, const struct side *b, enum param_slot slot) {
    const double scale = slot == PARAM_GRAD ? a->values.grad_scale : 1.0;
    double difference = 0.0;
    double all = 0.0;
    for (int decayed = 0; decayed < 2; decayed++) {
        const struct tensor p = params_range(a->params, slot, decayed == 1);
        const struct tensor q = params_range(b->params, slot, decayed == 1);
        assert_int_equal(p.shape[0], q.shape[0]);
        for (int64_t i = 0; i < p.shape[0]; i++) {
            const double x = scale * (double)((const float *)p.data)[i];
            const double y = (double)((const float *)q.data)[i];
            difference += (x - y) * (x - y);
            all += y * y;
        }
    }
    return sqrt(difference / all);
}

/* fp16 has 11 bits: gradients within 2 % of f32's; after three steps of SGD its momentum, a sum of
 * gradients along the way, within 10 %. */
TEST(fp16_steps_follow_those_of_f32) {
    static struct side f32, fp16;
    draw_input();
    open_side(&f32, DTYPE_F32, 0.0);
    open_side(&fp16, DTYPE_F16, 1024.0);
    for (int step = 0; step < 3; step++) {
        one_step(&f32);
        one_step(&fp16);
        const double g = distance(&fp16, &f32, PARAM_GRAD);
        const double n = fabs(fp16.values.grad_norm / f32.values.grad_norm - 1.0);
        if (!(g > 1e-5 && g < (step == 0 ? 0.02 : 0.15) && n < 0.02)) {
            fail_msg("step %d: gradients differ by %.4g, their norms by %.4g", step, g, n);
        }
    }
    const double m = distance(&fp16, &f32, PARAM_M);
    if (!(m < 0.1)) {
        fail_msg("momentum differs by %.4g", m);
    }
    assert_true(fp16.values.skipped == 0 && fp16.values.scale_good == 3);
    close_side(&f32);
    close_side(&fp16);
}

/* A loss a millionth of what it was: half of fp16's gradients would be denormal or 0. */
TEST(small_gradients_survive_with_the_scale_alone) {
    static struct side f32, fp16;
    static const double scales[] = {1.0, 1024.0 * 1024.0};
    double g[2];
    draw_input();
    for (int k = 0; k < 2; k++) {
        open_side(&f32, DTYPE_F32, 0.0);
        open_side(&fp16, DTYPE_F16, scales[k]);
        f32.weight = fp16.weight = 1e-6;
        one_step(&f32);
        one_step(&fp16);
        g[k] = distance(&fp16, &f32, PARAM_GRAD);
        close_side(&f32);
        close_side(&fp16);
    }
    if (!(g[0] > 0.1 && g[1] < 0.02)) {
        fail_msg("gradients differ by %.4g without, by %.4g with the scale", g[0], g[1]);
    }
}

static void keep(const struct side *s, enum param_slot slot, float *to) {
    for (int decayed = 0; decayed < 2; decayed++) {
        const struct tensor t = params_range(s->params, slot, decayed == 1);
        memcpy(to, t.data, tensor_size_bytes(&t));
        to += t.shape[0];
    }
}

TEST(a_scale_that_is_too_large_is_halved_until_training_goes_on) {
    enum { ROOM = 1 << 19 };
    static float before[3][ROOM], after[3][ROOM];
    static const enum param_slot slots[] = {PARAM_VALUE, PARAM_M, PARAM_V};
    static struct side s;
    draw_input();
    open_side(&s, DTYPE_F16, LOSS_SCALE_MAX);
    s.values.scale_growth = 2;
    s.how.kind = OPTIMIZER_ADAMW;
    int64_t count = 0;
    for (int decayed = 0; decayed < 2; decayed++) {
        count += params_range(s.params, PARAM_VALUE, decayed == 1).shape[0];
    }
    assert_true(count <= ROOM);
    uint64_t good = 0;
    while (good < 2) {
        const double scale = s.values.loss_scale;
        for (int k = 0; k < 3; k++) {
            keep(&s, slots[k], before[k]);
        }
        one_step(&s);
        for (int k = 0; k < 3; k++) {
            keep(&s, slots[k], after[k]);
        }
        assert_int_equal(s.values.sound, 1);
        if (s.values.skipped_in_row > 0) {
            assert_true(good == 0 && s.values.loss_scale == scale / 2.0);
            assert_false(isfinite(s.values.grad_norm));
            assert_memory_equal(before, after, sizeof before);
            continue;
        }
        good++;
        assert_true(isfinite(s.values.grad_norm));
        for (int k = 0; k < 3; k++) {
            assert_memory_not_equal(before[k], after[k], sizeof before[k]);
        }
        assert_true(s.values.loss_scale == (good == 2 ? 2.0 * scale : scale));
    }
    assert_in_range(s.values.skipped, 2, 20);
    assert_true(s.values.step == s.values.skipped + 2);
    close_side(&s);
}

/* ---- a trainer ---- */

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    (void)total_steps;
    *(struct step_report *)cookie = *r;
}

static struct trainer *open_trainer(const char *name, double loss_scale, struct step_report *seen) {
    struct error err = {0};
    struct loader_source source = {.directory = test_temp_path("d")};
    struct trainer_options o;
    struct trainer *t = NULL;
    struct picture_dataset how;
    picture_dataset_default(&how);
    how.samples = 4;
    picture_dataset_make(test_temp_path("d"), &how);
    const char *run = test_temp_path("%s", name);
    assert_int_equal(mkdir(run, 0777), 0);
    trainer_options_default(&o);
    o.sources = &source;
    o.source_count = 1;
    o.run = run;
    o.loss.name = "clip";
    o.loss.tau = 0.1;
    o.image_tower = "resnet10t";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 8;
    o.batch_count = 2;
    o.epochs = 1;
    o.max_steps = 1;
    o.threads = 1;
    o.loader_threads = 1;
    o.device = "cpu-ref";
    o.dtype = DTYPE_F16;
    o.loss_scale = loss_scale;
    o.on_step = on_step;
    o.cookie = seen;
    assert_ok(trainer_create(&t, &o, &err), err);
    return t;
}

/* The last of 2000 good steps; what is left of it stands in the checkpoint. */
TEST(a_run_doubles_its_scale_and_keeps_it) {
    struct error err = {0};
    struct step_report seen = {0};
    struct retrieval_result result;
    struct checkpoint *c = NULL;
    struct trainer *t = open_trainer("run", 0.0, &seen);
    assert_true(t->values->loss_scale == LOSS_SCALE_FIRST);
    const struct train_scaling before = {.scale = 256.0, .good = LOSS_SCALE_GROWTH_STEPS - 1};
    assert_ok(trainer_set_scaling(t, &before, &err), err);
    assert_ok(trainer_run(t, &result, &err), err);
    trainer_destroy(t);
    assert_true(isfinite(seen.grad_norm) && seen.loss_scale == 512.0 && seen.skipped_count == 0);
    assert_ok(checkpoint_open(&c, file_posix(), test_temp_path("run"), &err), err);
    const struct train_scaling *after = &checkpoint_position(c)->scaling;
    assert_true(after->scale == 512.0 && after->good == 0 && after->skipped == 0);
    checkpoint_close(c);
    size_t size = 0;
    uint8_t *text = test_read_file(test_temp_path("run/metrics.jsonl"), &size);
    static const char wanted[] = "\"loss_scale\":512,\"skipped_steps\":0,";
    assert_non_null(memmem(text, size, wanted, sizeof wanted - 1));
    free(text);
}

/* After 29 skipped steps one more: the run ends as one that is not sound, with what was there. */
TEST(a_run_whose_steps_are_all_skipped_ends_with_the_reason) {
    struct error err = {0};
    struct step_report seen = {0};
    struct retrieval_result result;
    struct stat there;
    struct trainer *t = open_trainer("run", LOSS_SCALE_MAX, &seen);
    const struct train_scaling before = {.skipped_in_row = LOSS_SCALE_MAX_SKIPS - 1};
    assert_ok(trainer_set_scaling(t, &before, &err), err);
    assert_status(trainer_run(t, &result, &err), STATUS_CORRUPT, err);
    trainer_destroy(t);
    assert_non_null(strstr(err.text, "fp16, 30 steps in a row"));
    assert_non_null(strstr(err.text, "1.67772e+07"));
    assert_int_equal(seen.step, 0);
    assert_int_equal(stat(test_temp_path("run/nonfinite.json"), &there), 0);
    assert_int_equal(stat(test_temp_path("run/last"), &there), -1);
}
