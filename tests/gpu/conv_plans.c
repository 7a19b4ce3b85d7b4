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
#include "kernels/operands.h"

enum { ROOM = 64, BATCH = 512, SMALL_BYTES = 1 << 20 };

/* h = w, c, k, kernel, stride: resnet50 at 224 px (resnet101 and 152 have the same), what resnet18
 * and resnet34 add, resnet50 at 256 and 336 px, the small towers, and stems as conv_stem.cu has
 * them. */
static const int64_t shapes[][5] = {
    {56, 64, 64, 1, 1},    {56, 64, 256, 1, 1},   {56, 256, 64, 1, 1},    {56, 256, 128, 1, 1},
    {28, 128, 512, 1, 1},  {28, 512, 128, 1, 1},  {28, 512, 256, 1, 1},   {14, 256, 1024, 1, 1},
    {14, 1024, 256, 1, 1}, {14, 1024, 512, 1, 1}, {7, 512, 2048, 1, 1},   {7, 2048, 512, 1, 1},
    {56, 256, 512, 1, 2},  {28, 512, 1024, 1, 2}, {14, 1024, 2048, 1, 2}, {56, 64, 64, 3, 1},
    {56, 128, 128, 3, 2},  {28, 128, 128, 3, 1},  {28, 256, 256, 3, 2},   {14, 256, 256, 3, 1},
    {14, 512, 512, 3, 2},  {7, 512, 512, 3, 1},   {224, 3, 64, 7, 2},     {56, 64, 128, 3, 2},
    {56, 64, 128, 1, 2},   {28, 128, 256, 3, 2},  {64, 64, 64, 3, 1},     {32, 128, 128, 3, 1},
    {84, 64, 256, 1, 1},   {21, 256, 256, 3, 1},  {11, 2048, 512, 1, 1},  {64, 3, 32, 3, 2},
    {32, 32, 64, 3, 1},    {9, 24, 40, 3, 2},     {3, 512, 512, 3, 1},    {115, 16, 64, 4, 1},
    {131, 16, 64, 4, 1},   {33, 16, 32, 2, 1}};
enum { SHAPES_COUNT = sizeof shapes / sizeof shapes[0] };

static const char *const passes[] = {"forward", "data", "weight", "data, added"};

struct counts {
    int plans, small; /* with less than SMALL_BYTES of workspace */
};

static void stop(const struct error *err) {
    (void)fprintf(stderr, "conv_plans: %s\n", err->text);
    exit(1);
}

static struct conv_problem problem(int pass, enum dtype dtype, const int64_t *s) {
    struct conv_problem p = {.pass = pass == 3 ? CONV_DATA : (enum conv_pass)pass,
                             .dtype = dtype,
                             .n = BATCH,
                             .h = s[0],
                             .w = s[0],
                             .c = s[1],
                             .k = s[2],
                             .r = s[3],
                             .s = s[3],
                             .stride = (int32_t)s[4],
                             .pad = (int32_t)(s[3] / 2),
                             .add = pass == 3};
    p.oh = conv_out_size(p.h, p.r, p.stride, p.pad);
    p.ow = p.oh;
    return p;
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
                const struct conv_problem p =
                    problem(pass, half ? DTYPE_BF16 : DTYPE_F32, shapes[i]);
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
