/*
 * Models of open_clip: how many parameters its names have, and what the tensors begin with. Their
 * outputs and gradients are compared in test_towers_golden.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/model/open_clip.h"

/* open_clip's counts, without logit_scale. */
TEST(names_have_open_clips_parameter_counts) {
    static const struct {
        const char *name;
        int64_t count;
    } models[] = {{"ViT-S-32", 63085824},         {"ViT-S-16", 62257536},
                  {"ViT-B-32", 151277312},        {"ViT-B-16-quickgelu", 149620736},
                  {"ViT-L-14", 427616512},        {"ViT-B-16-SigLIP", 203155968},
                  {"ViT-B-16-SigLIP2", 375187968}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char config[OPEN_CLIP_CONFIG_BYTES];
        struct dual_encoder_options o;
        struct dual_encoder_memory memory;
        struct error err = {0};
        assert_ok(open_clip_config(config, models[i].name, &err), err);
        assert_ok(open_clip_options(&o, config, &err), err);
        assert_ok(dual_encoder_plan(&memory, &o, &err), err);
        assert_int_equal(memory.parameter_count, models[i].count);
        assert_int_equal(o.vit.act, strstr(models[i].name, "quick") != NULL ? ACTIVATION_QUICK_GELU
                                                                            : ACTIVATION_GELU);
    }
}

enum shape { ZEROS, ONES, NORMAL, UNIFORM };

struct expected {
    const char *name;
    enum shape shape;
    double scale;
};

/* Mean 0, the deviation, and largest and smallest as the distribution has them. */
static void
check_values(const char *name, const float *x, int64_t count, enum shape shape, double scale) {
    double sum = 0.0;
    double squares = 0.0;
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        largest = fmax(largest, fabs((double)x[i]));
    }
    const double n = (double)count;
    const double deviation = sqrt(squares / n);
    const double expected = shape == UNIFORM ? scale / sqrt(3.0) : scale;
    /* five deviations of the estimates; the kurtosis is at most the normal's */
    const bool right = shape == ZEROS ? squares == 0.0
                       : shape == ONES
                           ? sum == n && squares == n
                           : fabs(sum / n) < 5.0 * expected / sqrt(n) &&
                                 fabs(deviation / expected - 1.0) < 5.0 / sqrt(2.0 * n) &&
                                 (shape == UNIFORM ? largest <= scale && largest > 0.98 * scale
                                                   : largest > 2.0 * scale);
    if (!right) {
        fail_msg("%s: mean %g, deviation %g, largest %g, not of scale %g", name, sum / n, deviation,
                 largest, scale);
    }
}

static void check_tensors(const char *config, const struct expected *tensors, size_t count);

TEST(siglips_tensors_begin_as_timms_and_open_clips) {
    static const char config[] =
        "{\"embed_dim\":256,\"vision_cfg\":{\"image_size\":64,\"patch_size\":8,\"layers\":2,"
        "\"width\":256,\"timm_pool\":\"map\",\"timm_proj\":\"none\"},\"text_cfg\":{\"vocab_size\":"
        "500,"
        "\"width\":128,\"heads\":2,\"layers\":2,\"no_causal_mask\":true,\"proj_bias\":true,"
        "\"pool_type\":\"last\",\"norm_kwargs\":{\"eps\":1e-6}}}";
    const struct expected tensors[] = {
        {"visual.trunk.pos_embed", NORMAL, 0.02},
        {"visual.trunk.patch_embed.proj.weight", UNIFORM, 1 / sqrt(3.0 * 64)},
        {"visual.trunk.patch_embed.proj.bias", UNIFORM, 1 / sqrt(3.0 * 64)},
        {"visual.trunk.blocks.1.norm1.weight", ONES, 0},
        {"visual.trunk.blocks.1.attn.qkv.weight", NORMAL, 0.02},
        {"visual.trunk.blocks.1.attn.qkv.bias", ZEROS, 0},
        {"visual.trunk.blocks.0.mlp.fc1.weight", NORMAL, 0.02},
        {"visual.trunk.blocks.0.mlp.fc2.bias", ZEROS, 0},
        {"visual.trunk.norm.bias", ZEROS, 0},
        {"visual.trunk.attn_pool.latent", NORMAL, 1.0 / 16},
        {"visual.trunk.attn_pool.q.weight", NORMAL, 0.02},
        {"visual.trunk.attn_pool.kv.weight", NORMAL, 0.02},
        {"visual.trunk.attn_pool.kv.bias", ZEROS, 0},
        {"visual.trunk.attn_pool.norm.weight", ONES, 0},
        {"visual.trunk.attn_pool.mlp.fc2.weight", NORMAL, 0.02},
        {"text.token_embedding.weight", NORMAL, 0.02},
        {"text.transformer.resblocks.1.attn.in_proj_weight", NORMAL, 1 / sqrt(128.0)},
        {"text.text_projection.weight", NORMAL, 1 / sqrt(128.0)},
        {"text.text_projection.bias", ZEROS, 0},
    };
    check_tensors(config, tensors, sizeof tensors / sizeof tensors[0]);
}

TEST(tensors_begin_as_open_clips) {
    static const char config[] =
        "{\"embed_dim\":96,\"vision_cfg\":{\"image_size\":64,\"patch_size\":8,\"layers\":3,"
        "\"width\":256},\"text_cfg\":{\"vocab_size\":500,\"width\":128,\"heads\":2,\"layers\":2}}";
    const double w = 256, t = 128;
    const struct expected tensors[] = {
        {"visual.class_embedding", NORMAL, 1 / sqrt(w)},
        {"visual.positional_embedding", NORMAL, 1 / sqrt(w)},
        {"visual.proj", NORMAL, 1 / sqrt(w)},
        {"visual.conv1.weight", UNIFORM, 1 / sqrt(3.0 * 64)},
        {"visual.ln_pre.weight", ONES, 0},
        {"visual.ln_post.bias", ZEROS, 0},
        {"visual.transformer.resblocks.2.ln_1.weight", ONES, 0},
        {"visual.transformer.resblocks.2.attn.in_proj_weight", UNIFORM, sqrt(6 / (4 * w))},
        {"visual.transformer.resblocks.2.attn.in_proj_bias", ZEROS, 0},
        {"visual.transformer.resblocks.0.attn.out_proj.weight", UNIFORM, 1 / sqrt(w)},
        {"visual.transformer.resblocks.0.attn.out_proj.bias", ZEROS, 0},
        {"visual.transformer.resblocks.1.mlp.c_fc.weight", UNIFORM, 1 / sqrt(w)},
        {"visual.transformer.resblocks.1.mlp.c_fc.bias", UNIFORM, 1 / sqrt(w)},
        {"visual.transformer.resblocks.1.mlp.c_proj.weight", UNIFORM, 1 / sqrt(4 * w)},
        {"visual.transformer.resblocks.1.mlp.c_proj.bias", UNIFORM, 1 / sqrt(4 * w)},
        {"token_embedding.weight", NORMAL, 0.02},
        {"positional_embedding", NORMAL, 0.01},
        {"transformer.resblocks.1.attn.in_proj_weight", NORMAL, 1 / sqrt(t)},
        {"transformer.resblocks.1.attn.out_proj.weight", NORMAL, 1 / sqrt(t * 4)},
        {"transformer.resblocks.0.mlp.c_fc.weight", NORMAL, 1 / sqrt(2 * t)},
        {"transformer.resblocks.0.mlp.c_fc.bias", UNIFORM, 1 / sqrt(t)},
        {"transformer.resblocks.0.mlp.c_proj.weight", NORMAL, 1 / sqrt(t * 4)},
        {"transformer.resblocks.0.mlp.c_proj.bias", UNIFORM, 1 / sqrt(4 * t)},
        {"ln_final.weight", ONES, 0},
        {"text_projection", NORMAL, 1 / sqrt(t)},
    };
    check_tensors(config, tensors, sizeof tensors / sizeof tensors[0]);
}

static void check_tensors(const char *config, const struct expected *tensors, size_t tensor_count) {
    struct dual_encoder_options o;
    struct dual_encoder *m;
    struct device *dev;
    struct error err = {0};
    assert_ok(open_clip_options(&o, config, &err), err);
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(dual_encoder_create(&m, dev, &o, &err), err);
    const struct params *p = dual_encoder_params(m);
    assert_ok(params_init(dual_encoder_params(m), test_seed(), &err), err);
    for (size_t i = 0; i < tensor_count; i++) {
        const int32_t index = params_find(p, tensors[i].name);
        if (index < 0) {
            fail_msg("there is no %s", tensors[i].name);
        }
        const int64_t count = params_info(p, index).count;
        float *values = malloc((size_t)count * sizeof *values);
        assert_non_null(values);
        assert_ok(params_read(p, index, PARAM_VALUE, values, (size_t)count * sizeof *values, &err),
                  err);
        check_values(tensors[i].name, values, count, tensors[i].shape, tensors[i].scale);
        free(values);
    }
    const int32_t plain = params_find(p, "visual.proj"); /* (in, out) outside */
    if (plain >= 0) {
        assert_int_equal(params_info(p, plain).shape[0], 256);
        assert_int_equal(params_info(p, plain).shape[1], 96);
    }
    dual_encoder_destroy(m);
    device_close(dev);
}
