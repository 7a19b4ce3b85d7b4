/*
 * conv_plans NAME SM, the description of a GPU on standard input: cuDNN's plans for every
 * convolution of the towers on that GPU, which is not required. Prints a line of JSON for each pass
 * and type: shapes, how many have no plan, and how many have none of less than 1 MiB of workspace.
 * Ends with 1 where a shape has no plan.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "tests/support/conv_shapes.h"

enum { ROOM = 64, SMALL_BYTES = 1 << 20 };

static const char *const passes[] = {"forward", "data", "weight", "data, added"};

struct counts {
    int plans, small; /* with less than SMALL_BYTES of workspace */
};

static void stop(const struct error *err) {
    (void)fprintf(stderr, "conv_plans: %s\n", err->text);
    exit(1);
}

static struct counts count_plans(const struct conv_problem *p,
                                 const struct device_options *opt,
                                 const struct conv_gpu *gpu) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t configs[ROOM];
    struct conv_graph g;
    struct error err = {0};
    struct counts c = {0};
    int64_t count = 0;
    if (conv_graph_create(&g, p, gpu, &err) != STATUS_OK) {
        stop(&err);
    }
    for (int i = 0; i < 2; i++) {
        int64_t found = 0;
        if (conv_graph_propose(&g, gpu, modes[i], configs + count, ROOM - count, &found, &err) !=
            STATUS_OK) {
            stop(&err);
        }
        count += found;
    }
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendDescriptor_t plan;
        int64_t workspace_bytes = 0;
        if (conv_config_allowed(configs[i], p, opt) &&
            conv_plan_of(configs[i], gpu, &plan, &workspace_bytes, &err) == STATUS_OK) {
            c.plans++;
            c.small += workspace_bytes < SMALL_BYTES;
            (void)cudnnBackendDestroyDescriptor(plan);
        }
        (void)cudnnBackendDestroyDescriptor(configs[i]);
    }
    conv_graph_destroy(&g);
    return c;
}

int main(int argc, char **argv) {
    static char text[4096];
    struct error err = {0};
    struct device_options opt;
    int worst = 0;
    if (argc != 3 || fread(text, 1, sizeof text - 1, stdin) == 0) {
        (void)fprintf(stderr, "usage: conv_plans NAME SM <DESCRIPTION\n");
        return 64;
    }
    struct conv_gpu gpu = {.sm = atoi(argv[2]), .name = argv[1]};
    if (conv_gpu_describe(&gpu.properties, text, &err) != STATUS_OK) {
        stop(&err);
    }
    device_options_default(&opt);
    for (int half = 0; half < 2; half++) {
        for (int pass = 0; pass < 4; pass++) {
            int none = 0;
            int none_small = 0;
            for (int i = 0; i < SHAPES_COUNT; i++) {
                struct conv_problem p = problem(pass == 3 ? CONV_DATA : (enum conv_pass)pass,
                                                half ? DTYPE_BF16 : DTYPE_F32, shapes[i]);
                p.add = pass == 3;
                const struct counts c = count_plans(&p, &opt, &gpu);
                none += c.plans == 0;
                none_small += c.small == 0;
            }
            (void)printf("{\"gpu\":\"%s\",\"sm\":%d,\"type\":\"%s\",\"pass\":\"%s\",\"shapes\":%d,"
                         "\"without_plan\":%d,\"without_small_plan\":%d}\n",
                         argv[1], gpu.sm, half ? "bf16" : "f32", passes[pass], (int)SHAPES_COUNT,
                         none, none_small);
            (void)fflush(stdout);
            worst |= none > 0;
        }
    }
    (void)cudnnBackendDestroyDescriptor(gpu.properties);
    return worst;
}
