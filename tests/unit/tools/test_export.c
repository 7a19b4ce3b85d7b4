/*
 * ccstream-export: names, types and shapes are those that timm, transformers and open_clip expect
 * (tests/golden/export, written by tests/e2e/export_peers.py, which also compares outputs); values
 * come back through --init-image and --init-text; what a format cannot hold is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/test.h"
#include "tools/ccstream_export/export_internal.h"
#include "train/model/pretrained.h"
#include "train/run/checkpoint.h"

enum { LOG_BYTES = 4096, MAX_LINES = 256 };

struct fixture {
    struct model_config config;
    struct device *dev;
    struct dual_encoder *model;
    struct checkpoint *checkpoint;
    struct safetensors *file;
    struct export_job job;
    bool unreadable;
    char log[LOG_BYTES];
    struct log_sink sink;
};

static void remember(void *cookie, enum log_level level, const char *text) {
    char *log = cookie;
    (void)level;
    const size_t used = strlen(log);
    (void)snprintf(log + used, LOG_BYTES - used, "%s\n", text);
}

/* A model whose every value differs, saved and opened; `change` alters its configuration. */
static void open_fixture(struct fixture *f, bool bias, void (*change)(struct model_config *c)) {
    struct error err = {0};
    struct dual_encoder_options options;
    struct sample_state *state;
    size_t size;
    memset(f, 0, sizeof *f);
    f->config = (struct model_config){.image_tower = "resnet10t",
                                      .text_tower = "tiny",
                                      .image_size_px = 40,
                                      .max_tokens = 12,
                                      .vocab_count = 2600,
                                      .embed_dim = 64,
                                      .clean_captions = true};
    if (change != NULL) {
        change(&f->config);
    }
    assert_ok(model_config_options(&f->config, &options, &err), err);
    options.max_batch = 2;
    options.no_projection_bias = !bias;
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&f->model, f->dev, &options, &err), err);
    assert_ok(params_init(dual_encoder_params(f->model), 3, &err), err);
    assert_ok(sample_state_create(&state, 4, NULL, &err), err);
    double learned_bias = -9.5; /* as siglip's */
    const struct loss_scalar learned = {"bias", &learned_bias};
    uint8_t *vocab = test_read_file(test_source_path("tests/golden/tokenizer/vocab.txt"), &size);
    const struct train_position position = {.step = 77, .source_count = 1};
    const struct checkpoint_content content = {.model = &f->config,
                                               .position = &position,
                                               .loss_name = "clip",
                                               .tau = 0.05,
                                               .params = dual_encoder_params(f->model),
                                               .state = state,
                                               .scalars = &learned,
                                               .scalar_count = bias ? 1 : 0,
                                               .tokenizer = vocab,
                                               .tokenizer_size_bytes = size};
    const char *path = test_temp_path("c.safetensors");
    assert_ok(checkpoint_save(file_posix(), path, &content, NULL, &err), err);
    assert_ok(checkpoint_open(&f->checkpoint, file_posix(), path, &err), err);
    assert_ok(safetensors_open(&f->file, file_posix(), path, &err), err);
    f->sink = (struct log_sink){.write = remember, .cookie = f->log, .max_level = LOG_LEVEL_DEBUG};
    f->job = (struct export_job){.checkpoint = f->checkpoint,
                                 .file = f->file,
                                 .out = test_temp_dir(),
                                 .log = &f->sink,
                                 .unreadable = &f->unreadable};
    free(vocab);
    sample_state_destroy(state);
}

static void close_fixture(struct fixture *f) {
    safetensors_close(f->file);
    checkpoint_close(f->checkpoint);
    dual_encoder_destroy(f->model);
    device_close(f->dev);
}

static int by_text(const void *a, const void *b) {
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

/* The tensors of a file as the golden list has them: "NAME TYPE [EXTENT,...]", sorted by name. */
static void assert_expected(const char *file, const char *golden) {
    struct error err = {0};
    struct safetensors *s;
    char path[256];
    char *lines[MAX_LINES];
    size_t size;
    (void)snprintf(path, sizeof path, "tests/golden/export/%s", golden);
    char *list = (char *)test_read_file(test_source_path(path), &size);
    assert_ok(safetensors_open(&s, file_posix(), test_temp_path("%s", file), &err), err);
    assert_false(safetensors_has_hashes(s));
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    const size_t count = safetensors_count(s);
    assert_true(count <= MAX_LINES);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_info *t = safetensors_at(s, i);
        lines[i] = calloc(1, 512);
        assert_non_null(lines[i]);
        size_t at = (size_t)snprintf(lines[i], 512, "%s %s [", t->name,
                                     t->dtype == SAFETENSORS_I64 ? "int64" : "float32");
        for (uint32_t d = 0; d < t->dim_count; d++) {
            at += (size_t)snprintf(lines[i] + at, 512 - at, "%s%d", d > 0 ? "," : "",
                                   (int)t->shape[d]);
        }
        (void)snprintf(lines[i] + at, 512 - at, "]");
        assert_int_equal(t->offset_bytes % safetensors_dtype_bytes(t->dtype), 0);
    }
    qsort(lines, count, sizeof *lines, by_text);
    size_t i = 0;
    for (char *line = strtok(list, "\n"); line != NULL; line = strtok(NULL, "\n"), i++) {
        assert_true(i < count);
        assert_string_equal(lines[i], line);
    }
    assert_true(i == count);
    for (i = 0; i < count; i++) {
        free(lines[i]);
    }
    safetensors_close(s);
    free(list);
}

TEST(names_and_shapes_are_those_that_the_programs_expect) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f, false, NULL);
    assert_ok(export_timm(&f.job, &err), err);
    assert_expected("model.safetensors", "timm.txt");
    assert_ok(export_transformers(&f.job, &err), err);
    assert_expected("text/model.safetensors", "distilbert.txt");
    assert_expected("model.safetensors", "dual_encoder.txt");
    assert_ok(export_open_clip(&f.job, &err), err);
    assert_expected("open_clip_model.safetensors", "open_clip.txt");
    close_fixture(&f);
}

/* Every value of a tower but the projections', exactly. */
static void assert_tower(const struct params *a, const struct params *b, const char *tower) {
    struct error err = {0};
    int compared = 0;
    for (int32_t i = 0; i < params_count(a); i++) {
        const struct param_info info = params_info(a, i);
        const size_t size = (size_t)info.count * sizeof(float);
        if (strncmp(info.name, tower, strlen(tower)) != 0) {
            continue;
        }
        float *x = malloc(size);
        float *y = malloc(size);
        assert_true(x != NULL && y != NULL);
        assert_ok(params_read(a, i, PARAM_VALUE, x, size, &err), err);
        assert_ok(params_read(b, i, PARAM_VALUE, y, size, &err), err);
        assert_memory_equal(x, y, size);
        free(x);
        free(y);
        compared++;
    }
    assert_true(compared > 30);
}

TEST(exported_towers_come_back_through_init) {
    struct error err = {0};
    struct fixture f;
    struct dual_encoder *other;
    open_fixture(&f, true, NULL);
    struct dual_encoder_options options = *dual_encoder_get_options(f.model);
    assert_ok(dual_encoder_create(&other, f.dev, &options, &err), err);
    struct params *p = dual_encoder_params(other);
    assert_ok(params_init(p, 4, &err), err);
    assert_ok(export_timm(&f.job, &err), err);
    assert_ok(pretrained_load(p, "image.", file_posix(), test_temp_path("model.safetensors"),
                              &f.sink, &err),
              err);
    assert_string_equal(f.log, ""); /* the counters are skipped in silence */
    assert_tower(dual_encoder_params(f.model), p, "image.");
    assert_ok(export_transformers(&f.job, &err), err);
    assert_ok(pretrained_load(p, "text.", file_posix(), test_temp_path("text/model.safetensors"),
                              &f.sink, &err),
              err);
    assert_tower(dual_encoder_params(f.model), p, "text.");
    assert_ok(params_init(p, 4, &err), err);
    assert_ok(export_safetensors(&f.job, &err), err);
    for (int k = 0; k < 2; k++) {
        const char *tower = k == 0 ? "image." : "text.";
        assert_ok(pretrained_load(p, tower, file_posix(), test_temp_path("model.safetensors"),
                                  &f.sink, &err),
                  err);
        assert_tower(dual_encoder_params(f.model), p, tower);
    }
    dual_encoder_destroy(other);
    close_fixture(&f);
}

static float *read_values(const struct safetensors *s, const char *name) {
    struct error err = {0};
    const struct safetensors_info *info = safetensors_find(s, name);
    assert_non_null(info);
    float *values = malloc((size_t)info->size_bytes);
    assert_non_null(values);
    assert_ok(safetensors_read(s, info, values, (size_t)info->size_bytes, &err), err);
    return values;
}

/* open_clip projects texts without bias: W (beta + shift) = W beta + b. */
TEST(the_bias_of_texts_moves_into_the_last_layer_norm) {
    struct error err = {0};
    struct fixture f;
    struct safetensors *s;
    open_fixture(&f, true, NULL);
    assert_ok(export_open_clip(&f.job, &err), err);
    assert_ok(
        safetensors_open(&s, file_posix(), test_temp_path("open_clip_model.safetensors"), &err),
        err);
    float *w = read_values(f.file, "text_proj.weight");
    float *b = read_values(f.file, "text_proj.bias");
    float *before = read_values(f.file, "text.transformer.layer.1.output_layer_norm.bias");
    float *after = read_values(s, "text.transformer.encoder.layer.1.output.LayerNorm.bias");
    float *scale = read_values(s, "logit_scale");
    for (int i = 0; i < 64; i++) {
        double sum = 0.0;
        for (int k = 0; k < 192; k++) {
            sum += (double)w[i * 192 + k] * ((double)after[k] - (double)before[k]);
        }
        assert_true(fabs(sum - (double)b[i]) < 1e-6);
    }
    assert_true(fabs((double)*scale - log(20.0)) < 1e-6);
    float *logit_bias = read_values(s, "logit_bias");
    assert_true(*logit_bias == -9.5f);
    free(logit_bias);
    free(w);
    free(b);
    free(before);
    free(after);
    free(scale);
    safetensors_close(s);
    close_fixture(&f);
}

static bool there(const char *file) {
    struct stat st;
    return stat(test_temp_path("%s", file), &st) == 0;
}

static void use_small_stem(struct model_config *c) {
    c->small_stem = true;
}

static void use_tiny(struct model_config *c) {
    (void)snprintf(c->image_tower, sizeof c->image_tower, "tiny");
}

static void use_mean(struct model_config *c) {
    c->text_pool = TRANSFORMER_POOL_MEAN;
}

static void use_wide(struct model_config *c) {
    c->embed_dim = 256; /* more than the 192 of the text tower */
}

TEST(what_a_format_cannot_hold_is_refused) {
    struct error err = {0};
    struct fixture f;
    open_fixture(&f, true, NULL); /* VisionTextDualEncoderModel: a bias */
    assert_ok(export_transformers(&f.job, &err), err);
    assert_non_null(strstr(f.log, "image_proj.bias of this run is not zero"));
    assert_true(there("text/vocab.txt") && there("image/config.json"));
    assert_false(there("model.safetensors"));
    close_fixture(&f);
    open_fixture(&f, false, use_mean);
    assert_ok(export_transformers(&f.job, &err), err);
    assert_non_null(strstr(f.log, "takes the first token, this run the mean of all tokens"));
    assert_false(there("model.safetensors"));
    close_fixture(&f);
    open_fixture(&f, true, use_small_stem);
    assert_status(export_timm(&f.job, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "this run's --stem small"));
    assert_status(export_open_clip(&f.job, &err), STATUS_UNSUPPORTED, err);
    assert_false(there("model.safetensors") || there("open_clip_model.safetensors"));
    close_fixture(&f);
    open_fixture(&f, true, use_tiny);
    assert_status(export_timm(&f.job, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "timm has no tower of the name tiny"));
    assert_status(export_open_clip(&f.job, &err), STATUS_UNSUPPORTED, err);
    assert_ok(export_transformers(&f.job, &err), err);
    assert_non_null(strstr(f.log, "only text/ is written. image/: timm has no tower"));
    close_fixture(&f);
    open_fixture(&f, true, use_wide);
    assert_status(export_open_clip(&f.job, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "cannot be folded into the last layer norm"));
    assert_false(there("open_clip_model.safetensors"));
    close_fixture(&f);
}
