/*
 * The cuDNN graphs of every convolution that the towers run, for an H200, which is not required:
 * cuDNN proposes engines and builds their plans from a description of the GPU. Wrong shapes and
 * wrong choices are refused, and a choice survives being written as numbers.
 */
#include <string.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "tests/support/conv_shapes.h"
#include "tests/support/h200.h"
#include "tests/support/test.h"

enum { ROOM = 64 };

static struct conv_gpu open_gpu(void) {
    struct conv_gpu gpu = {.sm = 90, .name = "NVIDIA H200"};
    struct error err = {0};
    assert_ok(conv_gpu_describe(&gpu.properties, h200, &err), err);
    return gpu;
}

static void close_gpu(struct conv_gpu *gpu) {
    (void)cudnnBackendDestroyDescriptor(gpu->properties);
}

/* Both modes, as in the search. The caller destroys the proposals. */
static int64_t
propose(const struct conv_graph *g, const struct conv_gpu *gpu, cudnnBackendDescriptor_t *out) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    int64_t count = 0;
    for (int i = 0; i < 2; i++) {
        struct error err = {0};
        int64_t found = 0;
        assert_ok(conv_graph_propose(g, gpu, modes[i], out + count, ROOM - count, &found, &err),
                  err);
        count += found;
    }
    return count;
}

static void drop(cudnnBackendDescriptor_t *configs, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        (void)cudnnBackendDestroyDescriptor(configs[i]);
    }
}

/* How many of the proposed engines the options allow, and for how many of these a plan builds. */
static void count_plans(const struct conv_problem *p,
                        const struct device_options *opt,
                        const struct conv_gpu *gpu,
                        int *allowed,
                        int *plans) {
    cudnnBackendDescriptor_t configs[ROOM];
    struct conv_graph g;
    struct error err = {0};
    *allowed = 0;
    *plans = 0;
    assert_ok(conv_graph_create(&g, p, gpu, &err), err);
    const int64_t count = propose(&g, gpu, configs);
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendDescriptor_t plan;
        struct error why = {0};
        int64_t workspace_bytes;
        if (!conv_config_allowed(configs[i], p, opt)) {
            continue;
        }
        ++*allowed;
        if (conv_plan_of(configs[i], gpu, &plan, &workspace_bytes, &why) == STATUS_OK) {
            assert_true(workspace_bytes >= 0);
            (void)cudnnBackendDestroyDescriptor(plan);
            ++*plans;
        } else {
            assert_null(plan);
        }
    }
    drop(configs, count);
    conv_graph_destroy(&g);
}

static void check_every_shape(enum conv_pass pass, enum dtype dtype, bool add) {
    struct conv_gpu gpu = open_gpu();
    struct device_options opt;
    device_options_default(&opt);
    for (int i = 0; i < SHAPES_COUNT; i++) {
        struct conv_problem p = problem(pass, dtype, shapes[i]);
        int allowed;
        int plans;
        p.add = add;
        count_plans(&p, &opt, &gpu, &allowed, &plans);
        if (plans < 1) {
            fail_msg("shape %d, pass %d: %d engines allowed, but no plan", i, (int)pass, allowed);
        }
    }
    close_gpu(&gpu);
}

TEST(forward_passes_have_plans_in_bf16) {
    check_every_shape(CONV_FORWARD, DTYPE_BF16, false);
}

TEST(forward_passes_have_plans_in_exact_f32) {
    check_every_shape(CONV_FORWARD, DTYPE_F32, false);
}

TEST(data_gradients_have_plans_in_bf16) {
    check_every_shape(CONV_DATA, DTYPE_BF16, false);
}

TEST(data_gradients_have_plans_in_exact_f32) {
    check_every_shape(CONV_DATA, DTYPE_F32, false);
}

TEST(data_gradients_that_are_added_have_plans_in_bf16) {
    check_every_shape(CONV_DATA, DTYPE_BF16, true);
}

TEST(data_gradients_that_are_added_have_plans_in_exact_f32) {
    check_every_shape(CONV_DATA, DTYPE_F32, true);
}

TEST(weight_gradients_have_plans_in_bf16) {
    check_every_shape(CONV_WEIGHT, DTYPE_BF16, false);
}

TEST(weight_gradients_have_plans_in_exact_f32) {
    check_every_shape(CONV_WEIGHT, DTYPE_F32, false);
}

TEST(a_gpu_without_all_its_properties_is_refused) {
    cudnnBackendDescriptor_t properties;
    struct error err = {0};
    assert_status(conv_gpu_describe(&properties, "{}", &err), STATUS_DEVICE, err);
    assert_null(properties);
    err = (struct error){0};
    assert_status(conv_gpu_describe(&properties, "not a description", &err), STATUS_DEVICE, err);
    assert_null(properties);
}

TEST(wrong_shapes_are_refused_with_a_reason) {
    struct conv_problem p = problem(CONV_FORWARD, DTYPE_BF16, shapes[15]);
    const struct conv_gpu gpu = {0};
    struct conv_graph g;
    struct error err = {0};
    p.oh++;
    assert_status(conv_graph_create(&g, &p, &gpu, &err), STATUS_DEVICE, err);
    assert_non_null(strstr(err.text, "cuDNN"));
    assert_null(g.graph);
    assert_null(g.tensors[0]);
    p = problem(CONV_WEIGHT, DTYPE_BF16, shapes[15]);
    p.stride = 0;
    err = (struct error){0};
    assert_status(conv_graph_create(&g, &p, &gpu, &err), STATUS_DEVICE, err);
}

TEST(options_exclude_engines_by_their_notes) {
    struct device_options opt;
    device_options_default(&opt);
    assert_true(opt.deterministic && !opt.tf32);
    struct device_options any = opt;
    any.deterministic = false;
    any.tf32 = true;
    struct conv_gpu gpu = open_gpu();
    for (int pass = CONV_FORWARD; pass <= CONV_WEIGHT; pass++) {
        const struct conv_problem half = problem(pass, DTYPE_BF16, shapes[15]);
        const struct conv_problem full = problem(pass, DTYPE_F32, shapes[15]);
        int strict;
        int loose;
        int plans;
        count_plans(&half, &opt, &gpu, &strict, &plans);
        count_plans(&half, &any, &gpu, &loose, &plans);
        assert_true(strict >= 1 && strict <= loose);
        /* f32 has fewer engines without tensor cores, which would round to TF32 */
        count_plans(&full, &opt, &gpu, &strict, &plans);
        count_plans(&full, &any, &gpu, &loose, &plans);
        assert_true(strict >= 1 && strict < loose);
    }
    close_gpu(&gpu);
}

TEST(deterministic_runs_exclude_engines) {
    struct conv_gpu gpu = open_gpu();
    struct device_options opt;
    int strict_total = 0;
    int loose_total = 0;
    device_options_default(&opt);
    opt.tf32 = true;
    struct device_options any = opt;
    any.deterministic = false;
    for (int i = 0; i < SHAPES_COUNT; i++) {
        const struct conv_problem p = problem(CONV_WEIGHT, DTYPE_F32, shapes[i]);
        int allowed;
        int plans;
        count_plans(&p, &opt, &gpu, &allowed, &plans);
        strict_total += allowed;
        count_plans(&p, &any, &gpu, &allowed, &plans);
        loose_total += allowed;
    }
    assert_true(strict_total < loose_total);
    close_gpu(&gpu);
}

TEST(a_choice_survives_as_numbers) {
    const struct conv_problem p = problem(CONV_FORWARD, DTYPE_BF16, shapes[15]);
    struct conv_gpu gpu = open_gpu();
    cudnnBackendDescriptor_t configs[ROOM];
    struct conv_graph g;
    struct error err = {0};
    assert_ok(conv_graph_create(&g, &p, &gpu, &err), err);
    const int64_t count = propose(&g, &gpu, configs);
    assert_true(count > 1);
    for (int64_t i = 0; i < count; i++) {
        struct conv_choice before;
        struct conv_choice after;
        cudnnBackendDescriptor_t config;
        assert_ok(conv_choice_of(configs[i], &before, &err), err);
        assert_true(before.engine >= 0);
        assert_ok(conv_config_of(&g, &gpu, &before, &config, &err), err);
        assert_ok(conv_choice_of(config, &after, &err), err);
        assert_int_equal(after.engine, before.engine);
        assert_int_equal(after.knobs_count, before.knobs_count);
        for (int32_t k = 0; k < before.knobs_count; k++) {
            assert_int_equal(after.knobs[k].type, before.knobs[k].type);
            assert_int_equal(after.knobs[k].value, before.knobs[k].value);
        }
        (void)cudnnBackendDestroyDescriptor(config);
    }
    drop(configs, count);
    conv_graph_destroy(&g);
    close_gpu(&gpu);
}

TEST(an_invalid_choice_is_refused) {
    const struct conv_problem p = problem(CONV_FORWARD, DTYPE_BF16, shapes[15]);
    const struct conv_choice nonsense[] = {
        {.engine = 1 << 30},
        {.engine = INT64_MAX},
        {.engine = 0, .knobs_count = 1, .knobs = {{.type = 30000, .value = 1}}},
        {.engine = 0, .knobs_count = 1, .knobs = {{.type = 2, .value = INT64_MAX}}}};
    struct conv_gpu gpu = open_gpu();
    struct conv_graph g;
    struct error err = {0};
    assert_ok(conv_graph_create(&g, &p, &gpu, &err), err);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        cudnnBackendDescriptor_t config;
        err = (struct error){0};
        assert_status(conv_config_of(&g, &gpu, &nonsense[i], &config, &err), STATUS_DEVICE, err);
        assert_null(config);
    }
    conv_graph_destroy(&g);
    close_gpu(&gpu);
}
