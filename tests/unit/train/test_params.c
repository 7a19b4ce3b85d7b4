/*
 * The parameter table: places, ranges, initial values, PyTorch's layout; and the names and shapes
 * of the presets against the lists in tests/golden/params.
 */
#include "train/model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/ops.h"
#include "tests/support/test.h"
#include "train/model/dual_encoder.h"

struct fixture {
    struct device *dev;
    struct params *p;
    int32_t conv, q, k, norm, mean;
};

static int32_t add(struct params *p, struct param_spec spec) {
    struct error err;
    int32_t index = -1;
    assert_ok(params_add(p, &index, &spec, &err), err);
    return index;
}

static void set_up(struct fixture *f) {
    struct error err;
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    assert_ok(params_create(&f->p, &err), err);
    assert_ok(params_set_prefix(f->p, "a.", &err), err);
    f->conv = add(f->p, (struct param_spec){.name = "conv.weight",
                                            .shape = {2, 3, 5, 4},
                                            .conv = true,
                                            .init = PARAM_INIT_NORMAL,
                                            .init_scale = 2.0});
    f->norm = add(
        f->p, (struct param_spec){.name = "norm.weight", .shape = {3}, .init = PARAM_INIT_ONES});
    f->mean = add(
        f->p, (struct param_spec){.name = "norm.running_mean", .shape = {3}, .kind = PARAM_BUFFER});
    f->q = add(f->p, (struct param_spec){.name = "q.weight",
                                         .shape = {3, 5},
                                         .init = PARAM_INIT_UNIFORM,
                                         .init_scale = 0.5});
    f->k = add(f->p, (struct param_spec){.name = "k.weight", .shape = {3, 5}, .adjacent = true});
}

static void tear_down(struct fixture *f) {
    params_destroy(f->p);
    device_close(f->dev);
}

TEST(tensors_lie_in_two_flat_ranges) {
    struct fixture f;
    struct error err;
    set_up(&f);
    assert_ok(params_alloc(f.p, f.dev, DTYPE_F32, true, &err), err);
    struct tensor decayed = params_range(f.p, PARAM_VALUE, true);
    struct tensor undecayed = params_range(f.p, PARAM_VALUE, false);
    struct tensor q = params_tensor(f.p, f.q);
    struct tensor k = params_tensor(f.p, f.k);
    assert_ptr_equal(q.data, decayed.data); /* the last one first, but for adjacent ones */
    assert_ptr_equal((float *)q.data + 15, k.data);
    assert_ptr_equal(params_tensor(f.p, f.conv).data, (float *)decayed.data + 32);
    assert_int_equal((uintptr_t)q.data % 64, 0);
    assert_ptr_equal(params_tensor(f.p, f.norm).data, undecayed.data);
    assert_ptr_equal((float *)decayed.data + decayed.shape[0], undecayed.data);
    assert_int_equal(decayed.shape[0], 128 + 32); /* 120 and 30, up to multiples of 16 */
    assert_int_equal(undecayed.shape[0], 16);
    assert_int_equal(params_grad(f.p, f.mean).ndim, 0);
    assert_null(params_grad(f.p, f.mean).data);
    struct tensor grad = params_range(f.p, PARAM_GRAD, true);
    assert_ptr_equal(params_grad(f.p, f.conv).data, (float *)grad.data + 32);
    assert_int_equal(params_decayed_prefix(f.p, f.k), 30);
    assert_int_equal(params_decayed_prefix(f.p, f.q), 30);
    assert_int_equal(params_decayed_prefix(f.p, f.norm), 30);
    assert_int_equal(params_decayed_prefix(f.p, f.conv), 32 + 120);
    static float other[176];
    params_redirect_gradients(f.p, other);
    assert_ptr_equal(params_grad(f.p, f.k).data, other + 15);
    assert_ptr_equal(params_grad(f.p, f.norm).data, other + 160);
    assert_ptr_equal(params_range(f.p, PARAM_GRAD, true).data, grad.data);
    params_redirect_gradients(f.p, NULL);
    assert_ptr_equal(params_grad(f.p, f.q).data, grad.data);
    struct params_bytes b = params_plan(f.p, DTYPE_F32, true);
    assert_int_equal(b.value_bytes, (160 + 16 + 16) * 4);
    assert_int_equal(b.grad_bytes, (160 + 16) * 4);
    assert_int_equal(b.moments_bytes, 2 * (160 + 16) * 4);
    assert_int_equal(params_element_count(f.p, PARAM_TRAINED), 120 + 3 + 30);
    assert_int_equal(params_element_count(f.p, PARAM_BUFFER), 3);
    tear_down(&f);
}

TEST(infos_have_the_shapes_of_pytorch) {
    struct fixture f;
    set_up(&f);
    struct param_info conv = params_info(f.p, f.conv);
    assert_string_equal(conv.name, "a.conv.weight");
    const int64_t shape[4] = {2, 4, 3, 5};
    assert_memory_equal(conv.shape, shape, sizeof(shape));
    assert_true(conv.decay);
    assert_false(params_info(f.p, f.norm).decay);
    assert_false(params_info(f.p, f.mean).decay);
    assert_int_equal(params_info(f.p, f.mean).kind, PARAM_BUFFER);
    assert_int_equal(params_find(f.p, "a.q.weight"), f.q);
    assert_int_equal(params_find(f.p, "q.weight"), -1);
    struct error err;
    int32_t index;
    struct param_spec twice = {.name = "q.weight"};
    assert_status(params_add(f.p, &index, &twice, &err), STATUS_EXISTS, err);
    struct param_spec scalar = {.name = "logit_scale"};
    assert_ok(params_add(f.p, &index, &scalar, &err), err);
    assert_true(params_info(f.p, index).decay); /* no dimension is not one dimension */
    assert_int_equal(params_info(f.p, index).count, 1);
    char name[PARAM_MAX_NAME_BYTES];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    struct param_spec longer = {.name = name};
    assert_status(params_add(f.p, &index, &longer, &err), STATUS_LIMIT, err);
    tear_down(&f);
}

TEST(convolutions_are_permuted_and_come_back) {
    struct fixture f;
    struct error err;
    set_up(&f);
    assert_ok(params_alloc(f.p, f.dev, DTYPE_F32, true, &err), err);
    float outside[120];
    float back[120];
    for (int i = 0; i < 120; i++) {
        outside[i] = (float)i;
    }
    static const enum param_slot slots[] = {PARAM_VALUE, PARAM_GRAD, PARAM_M, PARAM_V};
    for (size_t s = 0; s < 4; s++) {
        outside[0] = (float)s - 5.0f;
        assert_ok(params_write(f.p, f.conv, slots[s], outside, sizeof(outside), &err), err);
        assert_ok(params_read(f.p, f.conv, slots[s], back, sizeof(back), &err), err);
        assert_memory_equal(outside, back, sizeof(back));
    }
    /* (O=2, I=4, KH=3, KW=5) outside, (O, KH, KW, I) inside */
    struct tensor inside = params_tensor(f.p, f.conv);
    const float *v = inside.data;
    for (int o = 0; o < 2; o++) {
        for (int y = 0; y < 3; y++) {
            for (int x = 0; x < 5; x++) {
                for (int i = 0; i < 4; i++) {
                    float expected = outside[((o * 4 + i) * 3 + y) * 5 + x];
                    assert_true(v[((o * 3 + y) * 5 + x) * 4 + i] ==
                                (o + y + x + i ? expected : -5));
                }
            }
        }
    }
    tear_down(&f);
}

/* Initial values and params_read_piece go through memory of less than such a tensor. */
TEST(a_large_tensor_is_drawn_and_read_in_pieces) {
    enum { ROWS = 1100, COLUMNS = 2000, COUNT = ROWS * COLUMNS };
    struct error err;
    struct device *dev;
    struct params *p;
    struct rng r;
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    assert_ok(params_create(&p, &err), err);
    struct param_spec spec = {.name = "words.weight",
                              .shape = {ROWS, COLUMNS},
                              .init = PARAM_INIT_NORMAL,
                              .init_scale = 1.0};
    const int32_t words = add(p, spec);
    spec.name = "proj";
    spec.transposed = true;
    const int32_t proj = add(p, spec);
    assert_ok(params_alloc(p, dev, DTYPE_F32, true, &err), err);
    assert_ok(params_init(p, 7, &err), err);
    float *whole = malloc(COUNT * sizeof *whole);
    float *parts = malloc(COUNT * sizeof *parts);
    assert_true(whole != NULL && parts != NULL);
    assert_ok(params_read(p, words, PARAM_VALUE, whole, COUNT * sizeof *whole, &err), err);
    rng_init(&r, 7, RNG_INIT, (uint64_t)words, 0);
    for (int k = 0; k < COUNT; k++) {
        assert_true(whole[k] == (float)rng_normal(&r));
    }
    const int64_t piece = params_piece_count(p, words);
    assert_true(piece < COUNT / 2);
    for (int64_t at = 0; at < COUNT; at += piece) {
        const int64_t count = COUNT - at < piece ? COUNT - at : piece;
        assert_ok(params_read_piece(p, words, PARAM_VALUE, at, count, parts + at, &err), err);
    }
    assert_memory_equal(parts, whole, COUNT * sizeof *whole);
    assert_int_equal(params_piece_count(p, proj), COUNT); /* of another layout: at once */
    assert_ok(params_read(p, proj, PARAM_VALUE, whole, COUNT * sizeof *whole, &err), err);
    assert_ok(params_read_piece(p, proj, PARAM_VALUE, 0, COUNT, parts, &err), err);
    assert_memory_equal(parts, whole, COUNT * sizeof *whole);
    free(whole);
    free(parts);
    params_destroy(p);
    device_close(dev);
}

TEST(initial_values_repeat_and_follow_their_distribution) {
    struct fixture f;
    struct error err;
    set_up(&f);
    int32_t large = add(f.p, (struct param_spec){.name = "large",
                                                 .shape = {100, 100},
                                                 .init = PARAM_INIT_NORMAL,
                                                 .init_scale = 0.02});
    assert_ok(params_alloc(f.p, f.dev, DTYPE_F32, true, &err), err);
    struct tensor range = params_range(f.p, PARAM_VALUE, true);
    size_t size = tensor_size_bytes(&range);
    float *first = malloc(size);
    assert_ok(params_init(f.p, 5, &err), err);
    memcpy(first, range.data, size);
    struct tensor grad = params_range(f.p, PARAM_GRAD, false);
    ((float *)grad.data)[1] = 3.0f;
    assert_ok(params_init(f.p, 5, &err), err);
    assert_memory_equal(first, range.data, size);
    assert_true(((float *)grad.data)[1] == 0.0f);
    assert_ok(params_init(f.p, 6, &err), err);
    assert_true(memcmp(first, range.data, size) != 0);
    free(first);

    const float *v = params_tensor(f.p, large).data;
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < 10000; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    assert_true(fabs(sum / 10000.0) < 4.0 * 0.02 / 100.0);
    assert_true(fabs(sqrt(squares / 10000.0) / 0.02 - 1.0) < 0.03);
    const float *u = params_tensor(f.p, f.q).data;
    for (int i = 0; i < 15; i++) {
        assert_true(u[i] >= -0.5f && u[i] < 0.5f);
    }
    const float *ones = params_tensor(f.p, f.norm).data;
    const float *zeros = params_tensor(f.p, f.mean).data;
    for (int i = 0; i < 3; i++) {
        assert_true(ones[i] == 1.0f && zeros[i] == 0.0f);
    }
    tear_down(&f);
}

/* ---- presets ---- */

/* Compares the tensors [first, end) whose names begin with `prefix` with a golden list. */
static void compare_with_list(const struct params *p, const char *prefix, const char *list) {
    char rel[64];
    snprintf(rel, sizeof(rel), "tests/golden/params/%s.txt", list);
    size_t size;
    char *text = (char *)test_read_file(test_source_path(rel), &size);
    char *save = NULL;
    char *line = strtok_r(text, "\n", &save); /* the comment */
    assert_non_null(line);
    long long trained = atoll(strrchr(line, ';') + 1);
    size_t prefix_bytes = strlen(prefix);
    int64_t elements = 0;
    int32_t seen = 0;
    for (int32_t i = 0; i < params_count(p); i++) {
        struct param_info info = params_info(p, i);
        if (strncmp(info.name, prefix, prefix_bytes) != 0) {
            continue;
        }
        char ours[256];
        int n = snprintf(ours, sizeof(ours), "%s ", info.name + prefix_bytes);
        for (int32_t d = 0; d < info.ndim; d++) {
            n += snprintf(ours + n, sizeof(ours) - (size_t)n, "%s%lld", d > 0 ? "x" : "",
                          (long long)info.shape[d]);
        }
        line = strtok_r(NULL, "\n", &save);
        assert_non_null(line);
        assert_string_equal(ours, line);
        elements += info.kind == PARAM_TRAINED ? info.count : 0;
        seen++;
    }
    assert_null(strtok_r(NULL, "\n", &save));
    assert_true(seen > 0);
    assert_int_equal(elements, trained);
    free(text);
}

static struct params *tower_table(const char *name, bool text) {
    struct error err;
    struct params *p;
    assert_ok(params_create(&p, &err), err);
    assert_ok(params_set_prefix(p, "x.", &err), err);
    if (text) {
        struct transformer_options o;
        struct transformer *t;
        assert_ok(transformer_preset(&o, name, &err), err);
        o.vocab_count = 30522;
        assert_ok(transformer_create(&t, p, &o, &err), err);
        transformer_destroy(t);
    } else {
        struct resnet_options o;
        struct resnet *r;
        assert_ok(resnet_preset(&o, name, &err), err);
        assert_ok(resnet_create(&r, p, &o, &err), err);
        resnet_destroy(r);
    }
    return p;
}

TEST(image_towers_have_timm_names_and_shapes) {
    static const char *const names[] = {"resnet10t", "resnet18", "resnet50"};
    for (size_t i = 0; i < 3; i++) {
        struct params *p = tower_table(names[i], false);
        compare_with_list(p, "x.", names[i]);
        params_destroy(p);
    }
    struct params *p = tower_table("resnet34", false);
    assert_int_equal(params_element_count(p, PARAM_TRAINED), 21284672); /* timm's, without fc */
    params_destroy(p);
}

TEST(the_text_tower_has_distilbert_names_and_shapes) {
    struct params *p = tower_table("distil", true);
    compare_with_list(p, "x.", "distil");
    assert_int_equal(params_element_count(p, PARAM_TRAINED), 66362880);
    params_destroy(p);
}

/* Only weights of convolutions, linear layers and embeddings decay. */
TEST(decay_follows_dimensions_and_names) {
    struct params *p = tower_table("resnet10t", false);
    for (int32_t i = 0; i < params_count(p); i++) {
        struct param_info info = params_info(p, i);
        assert_int_equal(info.decay, info.ndim == 4);
    }
    params_destroy(p);
    p = tower_table("tiny", true);
    for (int32_t i = 0; i < params_count(p); i++) {
        struct param_info info = params_info(p, i);
        assert_int_equal(info.decay, info.ndim == 2);
    }
    params_destroy(p);
}

/* The last batch norm of each block starts at 0, and with it the block as its shortcut. */
TEST(the_whole_model_starts_as_its_recipes_say) {
    struct error err;
    struct dual_encoder_options o;
    struct device *dev;
    struct dual_encoder *m;
    assert_ok(dual_encoder_preset(&o, "resnet10t", "tiny", &err), err);
    o.image.image_px = 32;
    o.text.vocab_count = 50;
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&m, dev, &o, &err), err);
    struct params *p = dual_encoder_params(m);
    assert_ok(params_init(p, 1, &err), err);
    struct {
        const char *name;
        double low, high, deviation; /* of the values; deviation 0: all equal */
    } rules[] = {
        {"image.layer1.0.bn2.weight", 0, 0, 0},
        {"image.layer1.0.bn1.weight", 1, 1, 0},
        {"image.layer2.0.downsample.2.weight", 1, 1, 0},
        {"image.bn1.running_var", 1, 1, 0},
        {"image.layer3.0.conv1.weight", -1, 1, 0.02946}, /* sqrt(2 / (256 * 9)) */
        {"text.embeddings.word_embeddings.weight", -1, 1, 0.02},
        {"text.transformer.layer.1.ffn.lin1.weight", -1, 1, 0.02},
        {"text.transformer.layer.1.ffn.lin1.bias", 0, 0, 0},
        {"text.transformer.layer.0.sa_layer_norm.weight", 1, 1, 0},
        {"image_proj.weight", -0.0441942, 0.0441942, 0.0255155}, /* 1/sqrt(512), that/sqrt(3) */
        {"image_proj.bias", -0.0441942, 0.0441942, 0.0255155},
        {"text_proj.weight", -0.0721688, 0.0721688, 0.0416667},
    };
    for (size_t k = 0; k < sizeof(rules) / sizeof(rules[0]); k++) {
        int32_t i = params_find(p, rules[k].name);
        assert_true(i >= 0);
        struct tensor t = params_tensor(p, i);
        const float *v = t.data;
        double squares = 0.0;
        for (int64_t e = 0; e < tensor_count(&t); e++) {
            double x = (double)v[e];
            assert_true(x >= rules[k].low - 1e-7 && x <= rules[k].high + 1e-7);
            squares += x * x;
        }
        double deviation = sqrt(squares / (double)tensor_count(&t));
        if (rules[k].deviation > 0.0 && fabs(deviation / rules[k].deviation - 1.0) > 0.1) {
            fail_msg("%s: deviation %g, not %g", rules[k].name, deviation, rules[k].deviation);
        }
    }
    dual_encoder_destroy(m);
    device_close(dev);
}
