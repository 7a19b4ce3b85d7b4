/*
 * bench_cudnn WHAT [--gpu FILE] [--batch N] [--plans N] : what cuDNN offers a ResNet-50's training
 * step in bf16, fused and not, beside kernels of our own
 *
 *   properties     the GPU as cuDNN describes it, as JSON: with --gpu, others can plan for it
 *   convolutions   every distinct convolution of ResNet-50 at 224 px, three passes: plans timed
 *   fused          the same in one plan with channel sums after it, and with scale, bias and ReLU
 *                  before it
 *   norm           batch norm with ReLU, with an addition before it, the gradients; and our own
 *   attention      our own, 12 heads of 64, captions of 16 to 197 tokens
 *
 * A line of JSON for each; count says how often ResNet-50 has it, gb counts every operand once. The
 * last line of convolutions and fused adds up counts times best times. --plans: how many
 * configurations of each are tried (16); times are the best of three rounds of 5 ms.
 *
 * With --gpu, a file that `properties` wrote or the word h200 (published figures), no GPU is
 * needed: plans are built and counted, none runs. Without it and without a GPU it ends with 77.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/kernels_internal.h"
#include "tests/bench/cuda/dnn_graph_internal.h"
#include "tests/support/h200.h"

enum { SKIP = 77, USAGE = 64, MAX_BATCH = 1024 };
static const size_t ARENA_BYTES_PER_IMAGE = (size_t)12 << 20;
static const size_t WORKSPACE_BYTES = (size_t)1 << 30;

static struct options {
    const char *what, *gpu;
    int64_t batch;
    int plans;
} opt = {.batch = 512, .plans = 16};

static const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;

static struct dnn_gpu gpu;

/* The distinct convolutions of ResNet-50 at 224 px and how often it has each: 53 in all. */
static const struct shape {
    int64_t px, c, k, kernel, stride;
    int count;
} shapes[] = {
    {224, 3, 64, 7, 2, 1},    {56, 64, 64, 1, 1, 1},     {56, 64, 64, 3, 1, 3},
    {56, 64, 256, 1, 1, 4},   {56, 256, 64, 1, 1, 2},    {56, 256, 128, 1, 1, 1},
    {56, 128, 128, 3, 2, 1},  {56, 256, 512, 1, 2, 1},   {28, 128, 512, 1, 1, 4},
    {28, 512, 128, 1, 1, 3},  {28, 128, 128, 3, 1, 3},   {28, 512, 256, 1, 1, 1},
    {28, 256, 256, 3, 2, 1},  {28, 512, 1024, 1, 2, 1},  {14, 256, 1024, 1, 1, 6},
    {14, 1024, 256, 1, 1, 5}, {14, 256, 256, 3, 1, 5},   {14, 1024, 512, 1, 1, 1},
    {14, 512, 512, 3, 2, 1},  {14, 1024, 2048, 1, 2, 1}, {7, 512, 2048, 1, 1, 3},
    {7, 2048, 512, 1, 1, 2},  {7, 512, 512, 3, 1, 2},
};
enum { SHAPES_COUNT = sizeof shapes / sizeof shapes[0] };

static int64_t out_px(const struct shape *s) {
    return (s->px + 2 * (s->kernel / 2) - s->kernel) / s->stride + 1;
}

/* ---- convolutions ---- */

enum form { PLAIN, SUMS, NORM_SUMS, REDUCTIONS, NORM_WEIGHT };

/* Operands in the order x, w, y; the others depend on the form. */
static void
make_convolution(struct dnn_graph *g, const struct shape *s, enum dnn_pass pass, enum form form) {
    const int64_t o = out_px(s);
    const int64_t in[4] = {opt.batch, s->c, s->px, s->px};
    const int64_t weight[4] = {s->k, s->c, s->kernel, s->kernel};
    const int64_t out[4] = {opt.batch, s->k, o, o};
    const int64_t in_channels[4] = {1, s->c, 1, 1};
    const int64_t out_channels[4] = {1, s->k, 1, 1};
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    int x = dnn_tensor(g, DNN_STORED, bf16, in);
    const int w = dnn_tensor(g, DNN_STORED, bf16, weight);
    const int y = dnn_tensor(g, DNN_STORED, bf16, out);
    if (form == NORM_SUMS || form == NORM_WEIGHT) {
        const int scale = dnn_tensor(g, DNN_STORED, bf16, in_channels);
        const int bias = dnn_tensor(g, DNN_STORED, bf16, in_channels);
        const int scaled = dnn_tensor(g, DNN_VIRTUAL, f32, in);
        const int moved = dnn_tensor(g, DNN_VIRTUAL, f32, in);
        const int active = dnn_tensor(g, DNN_VIRTUAL, bf16, in);
        dnn_pointwise(g, CUDNN_POINTWISE_MUL, x, scale, scaled);
        dnn_pointwise(g, CUDNN_POINTWISE_ADD, scaled, bias, moved);
        dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, moved, -1, active);
        x = active;
    }
    dnn_convolution(g, pass, x, w, y, s->stride, s->kernel / 2);
    if (form == SUMS || form == NORM_SUMS) {
        dnn_channel_sums(g, y, dnn_tensor(g, DNN_STORED, f32, out_channels),
                         dnn_tensor(g, DNN_STORED, f32, out_channels));
    }
    if (form == REDUCTIONS) {
        const int square = dnn_tensor(g, DNN_VIRTUAL, f32, out);
        dnn_reduce(g, y, dnn_tensor(g, DNN_STORED, f32, out_channels));
        dnn_pointwise(g, CUDNN_POINTWISE_MUL, y, y, square);
        dnn_reduce(g, square, dnn_tensor(g, DNN_STORED, f32, out_channels));
    }
}

static void print_found(const struct dnn_found *f, double gflop, double gb) {
    const double s = f->best_ms * 1e-3;
    printf("\"gflop\":%.3f,\"gb\":%.4f,\"proposed\":%d,\"built\":%d,\"engine\":%lld,"
           "\"workspace_bytes\":%lld,\"first_ms\":%.5f,\"best_ms\":%.5f,\"tflop_per_s\":%.1f,"
           "\"gb_per_s\":%.1f,\"reason\":\"%s\"}\n",
           gflop, gb, f->proposed, f->built, (long long)f->engine, (long long)f->workspace_bytes,
           f->first_ms, f->best_ms, s > 0.0 ? gflop * 1e-3 / s : 0.0, s > 0.0 ? gb / s : 0.0,
           f->built > 0 ? "" : f->why);
    (void)fflush(stdout);
}

static double stored_gb(const struct dnn_graph *g) {
    double bytes = 0.0;
    for (int i = 0; i < g->tensors_count; i++) {
        bytes += g->tensors[i].kind == DNN_STORED ? (double)g->tensors[i].size_bytes : 0.0;
    }
    return bytes * 1e-9;
}

/* The sum over the network is valid where every shape had a plan. */
struct total {
    double first_ms, best_ms, gflop;
    int without;
};

static void try_convolution(const struct shape *s,
                            enum dnn_pass pass,
                            enum form form,
                            const char *name,
                            struct total *total) {
    struct dnn_graph g = {0};
    struct dnn_found found;
    const int64_t o = out_px(s);
    const double gflop = 2e-9 * (double)(opt.batch * o * o * s->k * s->c * s->kernel * s->kernel);
    make_convolution(&g, s, pass, form);
    dnn_graph_measure(&g, &gpu, opt.plans, &found);
    printf(
        "{\"what\":\"%s\",\"type\":\"bf16\",\"shape\":\"%lldx%lld, %lld -> %lld, stride %lld, %lld "
        "px\",\"count\":%d,",
        name, (long long)s->kernel, (long long)s->kernel, (long long)s->c, (long long)s->k,
        (long long)s->stride, (long long)s->px, s->count);
    print_found(&found, gflop, stored_gb(&g));
    total->first_ms += s->count * found.first_ms;
    total->best_ms += s->count * found.best_ms;
    total->gflop += s->count * gflop;
    total->without += found.built == 0 || (gpu.handle != NULL && found.best_ms <= 0.0);
    dnn_graph_destroy(&g);
}

static void print_total(const char *name, const struct total *t) {
    printf("\"%s gflop\":%.1f,\"%s first_ms\":%.4f,\"%s best_ms\":%.4f,\"%s without\":%d", name,
           t->gflop, name, t->first_ms, name, t->best_ms, name, t->without);
}

static int convolutions(void) {
    static const char *const names[] = {"forward", "data gradient", "weight gradient"};
    struct total totals[3] = {{0}};
    for (int i = 0; i < SHAPES_COUNT; i++) {
        for (int pass = DNN_FORWARD; pass <= DNN_WEIGHT; pass++) {
            if (pass != DNN_DATA || shapes[i].c > 3) { /* the gradient of images is not used */
                try_convolution(&shapes[i], (enum dnn_pass)pass, PLAIN, names[pass], &totals[pass]);
            }
        }
    }
    printf("{\"type\":\"bf16\",\"batch\":%lld", (long long)opt.batch);
    for (int pass = 0; pass < 3; pass++) {
        printf(",");
        print_total(names[pass], &totals[pass]);
    }
    printf("}\n");
    return 0;
}

static int fused(void) {
    static const struct {
        const char *name;
        enum dnn_pass pass;
        enum form form;
    } forms[] = {{"forward, sums", DNN_FORWARD, SUMS},
                 {"norm, forward, sums", DNN_FORWARD, NORM_SUMS},
                 {"forward, two reductions", DNN_FORWARD, REDUCTIONS},
                 {"norm, weight gradient", DNN_WEIGHT, NORM_WEIGHT}};
    enum { FORMS = sizeof forms / sizeof forms[0] };
    struct total totals[FORMS] = {{0}};
    for (int i = 1; i < SHAPES_COUNT; i++) { /* no plan supports the stem's 3 channels */
        for (int f = 0; f < FORMS; f++) {
            try_convolution(&shapes[i], forms[f].pass, forms[f].form, forms[f].name, &totals[f]);
        }
    }
    printf("{\"type\":\"bf16\",\"batch\":%lld", (long long)opt.batch);
    for (int f = 0; f < FORMS; f++) {
        printf(",");
        print_total(forms[f].name, &totals[f]);
    }
    printf("}\n");
    return 0;
}

/* ---- batch norm ---- */

/* Planes that a ResNet-50 normalises: side, channels, how often; and whether a residual is added.
 */
static const struct plane {
    int64_t px, c;
    int count;
    bool residual;
} planes[] = {{112, 64, 1, false}, {56, 64, 6, false},  {56, 256, 3, true},  {56, 128, 1, false},
              {28, 128, 7, false}, {28, 512, 4, true},  {28, 256, 1, false}, {14, 256, 11, false},
              {14, 1024, 6, true}, {14, 512, 1, false}, {7, 512, 5, false},  {7, 2048, 3, true}};
enum { PLANES_COUNT = sizeof planes / sizeof planes[0] };

/* Batch norm in training with ReLU, before that a residual added, and a bit for what passed the
 * ReLU; or the gradients of it. */
static void make_norm(struct dnn_graph *g, const struct plane *p, bool backward) {
    const int64_t all[4] = {opt.batch, p->c, p->px, p->px};
    const int64_t channels[4] = {1, p->c, 1, 1};
    const int64_t one[4] = {1, 1, 1, 1};
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct dnn_norm n;
    n.x = dnn_tensor(g, DNN_STORED, bf16, all);
    const int mask = dnn_tensor(g, DNN_STORED, CUDNN_DATA_BOOLEAN, all);
    n.scale = dnn_tensor(g, DNN_STORED, f32, channels);
    n.mean = dnn_tensor(g, DNN_STORED, f32, channels);
    n.inv_std = dnn_tensor(g, DNN_STORED, f32, channels);
    n.bias = dnn_tensor(g, DNN_STORED, f32, channels); /* backwards: its gradient */
    if (backward) {
        const int dy = dnn_tensor(g, DNN_STORED, bf16, all);
        /* where a residual came in, the masked gradient is its gradient and stays */
        const int masked = dnn_tensor(g, p->residual ? DNN_STORED : DNN_VIRTUAL, bf16, all);
        const int dx = dnn_tensor(g, DNN_STORED, bf16, all);
        dnn_pointwise(g, CUDNN_POINTWISE_MUL, dy, mask, masked);
        dnn_norm_backward(g, &n, masked, dx, dnn_tensor(g, DNN_STORED, f32, channels), n.bias);
        return;
    }
    const int y = dnn_tensor(g, DNN_STORED, bf16, all);
    n.epsilon = dnn_tensor(g, DNN_SCALAR, f32, one);
    int before = dnn_tensor(g, DNN_VIRTUAL, f32, all);
    dnn_norm(g, &n, before);
    if (p->residual) {
        const int sum = dnn_tensor(g, DNN_VIRTUAL, f32, all);
        dnn_pointwise(g, CUDNN_POINTWISE_ADD, before, dnn_tensor(g, DNN_STORED, bf16, all), sum);
        before = sum;
    }
    dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, before, -1, y);
    dnn_pointwise(g, CUDNN_POINTWISE_CMP_GT, y, dnn_tensor(g, DNN_SCALAR, f32, one), mask);
}

/* Our own kernels on the same plane; operands 0..4 as large as it, 5..7 small. */
struct own {
    struct launch_on on;
    struct conv_bn forward;
    struct conv_bn_bwd backward;
};

static bool own_forward(void *cookie) {
    const struct own *o = cookie;
    return launch_batch_norm_statistics(&o->on, &o->forward) == cudaSuccess &&
           launch_batch_norm_apply(&o->on, &o->forward) == cudaSuccess;
}

static bool own_backward(void *cookie) {
    const struct own *o = cookie;
    return launch_batch_norm_bwd(&o->on, &o->backward) == cudaSuccess;
}

static struct own make_own(const struct plane *p) {
    struct tensor plane[5];
    struct tensor vector[4];
    char *at = gpu.arena;
    for (int i = 0; i < 5; i++) {
        plane[i] = tensor_4d(at, DTYPE_BF16, opt.batch, p->px, p->px, p->c);
        at += (tensor_size_bytes(&plane[i]) + 255) / 256 * 256;
    }
    for (int i = 0; i < 4; i++) {
        vector[i] = tensor_1d(at, DTYPE_F32, p->c);
        at += 65536;
    }
    const struct conv_params relu = {.stride = 1, .act = ACTIVATION_RELU};
    struct own o = {.on = {.stream = gpu.stream, .workspace = at},
                    .forward = {.out = plane[1],
                                .pre = plane[0],
                                .mean = vector[0],
                                .rstd = vector[1],
                                .gamma = vector[2],
                                .beta = vector[3],
                                .conv = relu,
                                .training = true,
                                .eps = 1e-5f},
                    .backward = {.dpre = plane[3],
                                 .dgamma = vector[2],
                                 .dbeta = vector[3],
                                 .dout = plane[2],
                                 .out = plane[1],
                                 .pre = plane[0],
                                 .mean = vector[0],
                                 .rstd = vector[1],
                                 .gamma = vector[2],
                                 .conv = relu}};
    if (p->residual) {
        o.forward.residual = plane[2];
        o.backward.dresidual = plane[4];
    } else {
        o.backward.beta = vector[3];
    }
    return o;
}

static void own_norm(const struct plane *p, bool backward, double gb) {
    struct own o = make_own(p);
    const double ms = dnn_time_ms(&gpu, backward ? own_backward : own_forward, &o);
    printf("{\"what\":\"own %s\",\"type\":\"bf16\",\"shape\":\"%lld, %lld px\",\"count\":%d,"
           "\"gb\":%.4f,\"best_ms\":%.5f,\"gb_per_s\":%.1f}\n",
           backward ? (p->residual ? "gradient of norm, add, ReLU" : "gradient of norm, ReLU")
                    : (p->residual ? "norm, add, ReLU" : "norm, ReLU"),
           (long long)p->c, (long long)p->px, p->count, gb, ms, ms > 0.0 ? gb / ms * 1e3 : 0.0);
    (void)fflush(stdout);
}

static int norm(void) {
    for (int i = 0; i < PLANES_COUNT; i++) {
        for (int backward = 0; backward < 2; backward++) {
            const struct plane *p = &planes[i];
            struct dnn_graph g = {0};
            struct dnn_found found;
            make_norm(&g, p, backward != 0);
            const double gb = stored_gb(&g);
            dnn_graph_measure(&g, &gpu, opt.plans, &found);
            printf("{\"what\":\"%s\",\"type\":\"bf16\",\"shape\":\"%lld, %lld px\",\"count\":%d,",
                   backward
                       ? (p->residual ? "gradient of norm, add, ReLU" : "gradient of norm, ReLU")
                       : (p->residual ? "norm, add, ReLU" : "norm, ReLU"),
                   (long long)p->c, (long long)p->px, p->count);
            print_found(&found, 0.0, gb);
            dnn_graph_destroy(&g);
            if (gpu.handle != NULL) {
                own_norm(p, backward != 0, gb);
            }
        }
    }
    return 0;
}

/* ---- attention ---- */

enum { HEADS = 12, HEAD_WIDTH = 64 };
struct own_attention {
    struct launch_on on;
    struct attention forward;
    struct attention_bwd backward;
};

static bool attend(void *cookie) {
    const struct own_attention *a = cookie;
    return launch_attention(&a->on, &a->forward) == cudaSuccess;
}

static bool attend_backward(void *cookie) {
    const struct own_attention *a = cookie;
    return launch_attention_bwd(&a->on, &a->backward) == cudaSuccess;
}

static bool make_attention(struct own_attention *a, int64_t tokens) {
    int32_t starts[2 * MAX_BATCH + 1] = {0}; /* starts, lengths, fault */
    const int64_t rows = opt.batch * tokens;
    const int64_t width = HEADS * HEAD_WIDTH;
    const size_t row = (size_t)(rows * width) * sizeof(uint16_t);
    for (int64_t i = 0; i < opt.batch; i++) {
        starts[i] = (int32_t)(i * tokens);
        starts[opt.batch + i] = (int32_t)tokens;
    }
    char *at = gpu.arena;
    int32_t *list = (int32_t *)(void *)at;
    at += 65536;
    const struct tensor qkv = tensor_2d(at, DTYPE_BF16, rows, 3 * width);
    const struct tensor lse = tensor_3d(at + 8 * row, DTYPE_F32, opt.batch, HEADS, tokens);
    const struct segments captions = {tensor_1d(list, DTYPE_I32, opt.batch),
                                      tensor_1d(list + opt.batch, DTYPE_I32, opt.batch)};
    *a = (struct own_attention){
        .on = {.stream = gpu.stream,
               .fault = list + 2 * opt.batch,
               .workspace = (char *)lse.data + tensor_size_bytes(&lse)},
        .forward = {.out = tensor_2d(at + 3 * row, DTYPE_BF16, rows, width),
                    .lse = lse,
                    .qkv = qkv,
                    .segments = captions,
                    .heads = HEADS},
        .backward = {.dqkv = tensor_2d(at + 5 * row, DTYPE_BF16, rows, 3 * width),
                     .dout = tensor_2d(at + 4 * row, DTYPE_BF16, rows, width),
                     .out = tensor_2d(at + 3 * row, DTYPE_BF16, rows, width),
                     .lse = lse,
                     .qkv = qkv,
                     .segments = captions,
                     .heads = HEADS}};
    return cudaMemcpy(list, starts, sizeof starts, cudaMemcpyHostToDevice) == cudaSuccess;
}

static int attention(void) {
    static const int64_t lengths[] = {16, 32, 50, 77, 197};
    if (gpu.handle == NULL) {
        printf("attention requires a GPU: not with --gpu\n");
        return SKIP;
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct own_attention a;
        if (!make_attention(&a, lengths[i])) {
            return 1;
        }
        for (int backward = 0; backward < 2; backward++) {
            const double ms = dnn_time_ms(&gpu, backward ? attend_backward : attend, &a);
            printf("{\"what\":\"own attention%s\",\"type\":\"bf16\",\"shape\":\"%lld captions of "
                   "%lld tokens, %d heads of %d\",\"best_ms\":%.5f}\n",
                   backward ? ", gradient" : "", (long long)opt.batch, (long long)lengths[i], HEADS,
                   HEAD_WIDTH, ms);
            (void)fflush(stdout);
        }
    }
    return 0;
}

/* ---- */

static int properties(void) {
    char why[DNN_WHY_CHARS] = "";
    char *text = dnn_gpu_text(&gpu, why);
    if (text == NULL) {
        fprintf(stderr, "bench_cudnn: %s\n", why);
        return 1;
    }
    puts(text);
    free(text);
    return 0;
}

/* The description in a file, or the one above. */
static char *read_gpu(const char *name) {
    enum { ROOM = 1 << 16 };
    char *text = calloc(1, ROOM);
    if (text == NULL || strcmp(name, "h200") == 0) {
        return text != NULL ? strcpy(text, h200) : NULL;
    }
    FILE *f = fopen(name, "r");
    const size_t got = f != NULL ? fread(text, 1, ROOM - 1, f) : 0;
    if (f != NULL) {
        (void)fclose(f);
    }
    while (got > 0 && strlen(text) > 0 && text[strlen(text) - 1] == '\n') {
        text[strlen(text) - 1] = '\0';
    }
    if (got == 0) {
        fprintf(stderr, "bench_cudnn: %s: nothing to read\n", name);
        free(text);
        return NULL;
    }
    return text;
}

static bool number(const char *text, long most, long *out) {
    char *end;
    *out = strtol(text, &end, 10);
    return end != text && *end == '\0' && *out >= 1 && *out <= most;
}

static bool parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        long n;
        if (argv[i][0] != '-' && opt.what == NULL) {
            opt.what = argv[i];
        } else if (strcmp(argv[i], "--gpu") == 0 && value[0] != '\0') {
            opt.gpu = argv[++i];
        } else if (strcmp(argv[i], "--batch") == 0 && number(value, MAX_BATCH, &n)) {
            opt.batch = n;
            i++;
        } else if (strcmp(argv[i], "--plans") == 0 && number(value, 64, &n)) {
            opt.plans = (int)n;
            i++;
        } else {
            return false;
        }
    }
    return opt.what != NULL;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
        bool memory;
    } parts[] = {{"properties", properties, false},
                 {"convolutions", convolutions, true},
                 {"fused", fused, true},
                 {"norm", norm, true},
                 {"attention", attention, true}};
    char why[DNN_WHY_CHARS] = "";
    const bool good = parse(argc, argv);
    for (size_t i = 0; good && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(opt.what, parts[i].name) != 0) {
            continue;
        }
        char *text = opt.gpu != NULL ? read_gpu(opt.gpu) : NULL;
        if (opt.gpu != NULL && text == NULL) {
            return 1;
        }
        const size_t arena_bytes =
            parts[i].memory ? (size_t)opt.batch * ARENA_BYTES_PER_IMAGE + 2 * WORKSPACE_BYTES : 0;
        const bool opened = dnn_gpu_open(&gpu, text, arena_bytes, why);
        const int code = opened ? parts[i].run() : text == NULL ? SKIP : 1;
        if (!opened) {
            printf("%s\n", why);
        }
        dnn_gpu_close(&gpu);
        free(text);
        return code;
    }
    fprintf(stderr, "usage: bench_cudnn properties|convolutions|fused|norm|attention [--gpu FILE] "
                    "[--batch N] [--plans N]\n");
    return USAGE;
}
