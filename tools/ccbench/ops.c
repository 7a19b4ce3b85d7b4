/*
 * ccbench ops: every operator at the shapes of training, compared with the machine's best rates: a
 * large matrix product and a copy, measured in the same run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/json_writer.h"
#include "formats/base/log.h"
#include "kernels/op_cases/op_rows.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/inspect/samples.h"

enum { MAX_RUNS = 1000, MIN_RUNS = 3, MAX_CALLS = 1024 };
static const double LEAST_S = 1e-3; /* duration of a pipelined run of calls */

struct options {
    const char *device;
    uint64_t threads;
    int type;
    int sizes;
    bool autotune;
    const char *plan_cache;
    const char *only;
    uint64_t seconds_ms;
    bool json;
};

static const char *const type_names[] = {"f32", "bf16", NULL};
static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
static const char *const size_names[] = {"auto", "small", "large", NULL};
enum { SIZES_AUTO, SIZES_SMALL, SIZES_LARGE };

static const struct cli_option rows[] = {
    {"device", 0, CLI_STRING, CLI_FIELD(struct options, device), .default_text = "cpu",
     .metavar = "NAME", .help = "cpu, cpu-ref, or another device of this build"},
    {"threads", 't', CLI_U64, CLI_FIELD(struct options, threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "threads; 0: all CPUs of the process"},
    {"type", 0, CLI_ENUM, CLI_FIELD(struct options, type), .default_text = "f32",
     .choices = type_names, .metavar = "TYPE", .help = "data type of activations"},
    {"only", 0, CLI_STRING, CLI_FIELD(struct options, only), .metavar = "OP",
     .help = "only operators whose name begins with OP"},
    {"sizes", 0, CLI_ENUM, CLI_FIELD(struct options, sizes), .default_text = "auto",
     .choices = size_names, .metavar = "SET",
     .help = "set of shapes. small: of training on a CPU; large: of ResNet-50 and DistilBERT at "
             "224 px and 32 tokens, much larger than a GPU's cache; auto: small on cpu and "
             "cpu-ref, else large"},
    {"autotune", 0, CLI_FLAG, CLI_FIELD(struct options, autotune),
     .help = "cuda: time the kernels of each shape once and use the fastest"},
    {"plan-cache", 0, CLI_STRING, CLI_FIELD(struct options, plan_cache), .metavar = "DIR",
     .help = "cuda: folder in which the chosen kernels are stored and looked up"},
    {"seconds", 0, CLI_U64, CLI_FIELD(struct options, seconds_ms), .unit = CLI_UNIT_MS,
     .min = "1ms", .max = "1min", .default_text = "300ms", .metavar = "T",
     .help = "duration of the measurement per shape"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench ops",
    .purpose = "measures each operator at the shapes of training, with a matrix product and a copy "
               "for comparison",
    .usage = CLI_TEXTS("[--device NAME] [--type f32|bf16] [--only OP] [--json]"),
    .examples = CLI_TEXTS("ccbench ops --only conv_bn --threads 2",
                          "ccbench ops --type bf16 --json",
                          "ccbench ops --device cuda --type bf16 --autotune"),
    .notes = CLI_TEXTS(
        "GFLOP/s count a multiplication and an addition as two operations; GB/s count each operand "
        "once. of_matmul and of_copy are fractions of two rates measured in the same run: a matrix "
        "product of size 1536, and a copy of 64 MiB in rows of 4 KB in random order (large: 8192 "
        "and 1 GiB). Times are medians; they are not meaningful while other programs run. On a "
        "GPU, calls are queued for at least a millisecond, with one wait at the end."),
    CLI_OPTIONS(rows),
};

/* Forward: with an activation, not added; only in the gradient: added, and fewer operands. */
enum { RELU = OP_PLAIN | OP_ACT, GRADIENT_BITS = 16 };
enum { ADDS = OP_ADD << GRADIENT_BITS, OMITS = OP_OMIT << GRADIENT_BITS };

/* An op at a shape, and its gradient, if any, at the same shape. */
static const struct shape {
    const char *row, *what;
    struct op_size size;
    unsigned flags;
} shapes[] = {
    {"normalize_u8", "64 px", {{128, 64, 64, 1}}, 0},
    {"normalize_u8", "64 px, patches of 16", {{128, 64, 64, 16}}, 0},
    {"conv_bn", "stem 3x3, 3 -> 32, 64 px", {{128, 64, 64, 3, 32, 3, 2, 1}}, RELU | OMITS},
    {"conv_bn", "stem 3x3, 32 -> 64, 32 px", {{128, 32, 32, 32, 64, 3, 1, 1}}, RELU},
    {"conv_bn", "stem 7x7, 3 -> 64, 64 px", {{128, 64, 64, 3, 64, 7, 2, 3}}, RELU | OMITS},
    {"conv_bn", "3x3, 64, 16 px, residual", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT},
    {"conv_bn", "1x1, 64 -> 256, 16 px, residual", {{128, 16, 16, 64, 256, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 256 -> 64, 16 px", {{128, 16, 16, 256, 64, 1, 1, 0}}, RELU},
    {"conv_bn", "3x3, 128 -> 128, stride 2, 16 px", {{128, 16, 16, 128, 128, 3, 2, 1}}, OP_ACT},
    {"conv_bn", "3x3, 256, 4 px", {{128, 4, 4, 256, 256, 3, 1, 1}}, RELU},
    {"conv_bn", "3x3, 512, 3 px", {{128, 3, 3, 512, 512, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 1024 -> 256, 4 px", {{128, 4, 4, 1024, 256, 1, 1, 0}}, RELU},
    {"conv_bn", "1x1, 512 -> 2048, 2 px", {{128, 2, 2, 512, 2048, 1, 1, 0}}, RELU},
    {"conv_bn", "3x3, 512, 2 px", {{128, 2, 2, 512, 512, 3, 1, 1}}, RELU},
    {"conv_bn", "stem 7x7, 3 -> 64, 224 px", {{16, 224, 224, 3, 64, 7, 2, 3}}, RELU | OMITS},
    {"conv_bn", "3x3, 64, 56 px", {{16, 56, 56, 64, 64, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 64 -> 256, 56 px, residual", {{16, 56, 56, 64, 256, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 1024 -> 256, 14 px", {{16, 14, 14, 1024, 256, 1, 1, 0}}, RELU},
    {"conv_bn_bwd", "3x3, 64, 16 px, residual", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT | OP_ADD},
    {"maxpool", "3x3, 64, 112 px", {{16, 112, 112, 64, 3, 2, 1}}, 0},
    {"maxpool", "3x3, 64, 32 px", {{128, 32, 32, 64, 3, 2, 1}}, 0},
    {"avgpool", "2x2, 256, 16 px", {{128, 16, 16, 256, 2, 2, 0}}, ADDS},
    {"global_avgpool", "512, 4 px", {{128, 4, 4, 512}}, 0},
    {"linear", "192 -> 576", {{2048, 192, 576}}, ADDS},
    {"linear", "192 -> 768, gelu", {{2048, 192, 768}}, OP_ACT | ADDS},
    {"linear", "768 -> 192", {{2048, 768, 192}}, 0},
    {"linear", "768 -> 3072, gelu", {{1024, 768, 3072}}, OP_ACT | ADDS},
    {"linear", "768 -> 3072, quick gelu", {{1024, 768, 3072}}, OP_ACT | OP_ALT | ADDS},
    {"linear", "3072 -> 768", {{1024, 3072, 768}}, 0},
    {"gelu", "1024 tokens, 3072", {{1024, 3072}}, 0},
    {"matmul", "similarities, 128 x 256", {{128, 128, 256}}, OP_TRANSPOSE_B},
    {"embedding", "192, T 16", {{128, 16, 192, 8192, 64}}, ADDS},
    {"layernorm", "192", {{2048, 192}}, ADDS},
    {"layernorm", "768", {{2048, 768}}, ADDS},
    {"attention", "3 heads of 64, T 16", {{128, 16, 3, 64}}, 0},
    {"attention", "12 heads of 64, T 30", {{64, 30, 12, 64}}, 0},
    {"attention", "8 heads of 64, T 77, causal", {{16, 77, 8, 64}}, OP_ALT},
    {"attention", "6 heads of 64, T 197", {{8, 197, 6, 64}}, 0},
    {"attention", "3 heads of 64, T 16, dropout", {{128, 16, 3, 64}}, OP_DROP},
    {"dropout", "192, T 16", {{128, 16, 192}}, 0},
    {"segment_mean", "192, T 16, packed", {{128, 16, 192}}, OP_PACKED},
    {"gather_rows", "128 of 2048, 192", {{128, 2048, 192}}, 0},
    {"scatter_rows", "128 of 2048, 192", {{128, 2048, 192}}, 0},
    {"l2_normalize", "256", {{128, 256}}, 0},
    {"fill", "8 M", {{8000000}}, 0},
    {"cast", "8 M, f32 to 16 bits", {{8000000}}, 0},
    {"cast", "8 M, f32 from 16 bits", {{8000000}}, OP_ALT},
    {"add", "8 M", {{8000000}}, 0},
    {"sum_squares", "8 M", {{8000000}}, 0},
    {"grad_scale", "two sums", {{2, 100}}, 0},
    {"adamw", "8 M", {{8000000, 10}}, OP_OMIT},
    {"adamw", "8 M, with a working copy", {{8000000, 10}}, 0},
    {"sgdm", "8 M", {{8000000, 1}}, OP_OMIT},
    {"lars", "8 M", {{8000000}}, OP_OMIT},
    {"conv_gn", "3x3, 64, 16 px, residual", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT},
    {"conv_gn", "the same without norm", {{128, 16, 16, 64, 64, 3, 1, 1}}, OP_ACT | OP_ALT},
};

/* Shapes of a step at 224 px and 32 tokens, with fewer images than in training on a GPU, but for
 * memory-bound ops with operands larger than a cache. */
static const struct shape large_shapes[] = {
    {"normalize_u8", "224 px", {{64, 224, 224, 1}}, 0},
    {"normalize_u8", "224 px, patches of 16", {{64, 224, 224, 16}}, 0},
    {"conv_bn", "stem 7x7, 3 -> 64, 224 px", {{64, 224, 224, 3, 64, 7, 2, 3}}, RELU | OMITS},
    {"conv_bn", "1x1, 64, 56 px", {{64, 56, 56, 64, 64, 1, 1, 0}}, RELU},
    {"conv_bn", "3x3, 64, 56 px", {{64, 56, 56, 64, 64, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 64 -> 256, 56 px, residual", {{64, 56, 56, 64, 256, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 256 -> 64, 56 px", {{64, 56, 56, 256, 64, 1, 1, 0}}, RELU},
    {"conv_bn", "3x3, 128, stride 2, 56 px", {{64, 56, 56, 128, 128, 3, 2, 1}}, RELU},
    {"conv_bn", "1x1, 256 -> 512, stride 2, 56 px", {{64, 56, 56, 256, 512, 1, 2, 0}}, OP_PLAIN},
    {"conv_bn", "1x1, 512 -> 1024, stride 2, 28 px", {{128, 28, 28, 512, 1024, 1, 2, 0}}, OP_PLAIN},
    {"conv_bn",
     "1x1, 1024 -> 2048, stride 2, 14 px",
     {{256, 14, 14, 1024, 2048, 1, 2, 0}},
     OP_PLAIN},
    {"conv_bn", "1x1, 512 -> 128, 28 px", {{128, 28, 28, 512, 128, 1, 1, 0}}, RELU | ADDS},
    {"conv_bn", "3x3, 128, 28 px", {{128, 28, 28, 128, 128, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 128 -> 512, 28 px, residual", {{128, 28, 28, 128, 512, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 1024 -> 256, 14 px", {{256, 14, 14, 1024, 256, 1, 1, 0}}, RELU | ADDS},
    {"conv_bn", "3x3, 256, 14 px", {{256, 14, 14, 256, 256, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 256 -> 1024, 14 px, residual", {{256, 14, 14, 256, 1024, 1, 1, 0}}, OP_ACT},
    {"conv_bn", "1x1, 2048 -> 512, 7 px", {{512, 7, 7, 2048, 512, 1, 1, 0}}, RELU | ADDS},
    {"conv_bn", "3x3, 512, 7 px", {{512, 7, 7, 512, 512, 3, 1, 1}}, RELU},
    {"conv_bn", "1x1, 512 -> 2048, 7 px, residual", {{512, 7, 7, 512, 2048, 1, 1, 0}}, OP_ACT},
    {"maxpool", "3x3, 64, 112 px", {{64, 112, 112, 64, 3, 2, 1}}, 0},
    {"avgpool", "2x2, 256, 56 px", {{64, 56, 56, 256, 2, 2, 0}}, ADDS},
    {"global_avgpool", "2048, 7 px", {{512, 7, 7, 2048}}, 0},
    {"linear", "16384 tokens, 768 -> 2304", {{16384, 768, 2304}}, 0},
    {"linear", "16384 tokens, 768 -> 768", {{16384, 768, 768}}, 0},
    {"linear", "16384 tokens, 768 -> 3072, gelu", {{16384, 768, 3072}}, OP_ACT},
    {"linear", "16384 tokens, 3072 -> 768", {{16384, 3072, 768}}, 0},
    {"gelu", "16384 tokens, 3072", {{16384, 3072}}, 0},
    {"matmul", "similarities, 512 x 256", {{512, 512, 256}}, OP_TRANSPOSE_B},
    {"embedding", "768, T 32", {{256, 32, 768, 30522, 64}}, 0},
    {"layernorm", "16384 tokens, 768", {{16384, 768}}, 0},
    {"attention", "12 heads of 64, T 32", {{256, 32, 12, 64}}, 0},
    {"attention", "12 heads of 64, T 197", {{64, 197, 12, 64}}, 0},
    {"attention", "12 heads of 64, T 32, dropout", {{256, 32, 12, 64}}, OP_DROP},
    {"dropout", "768, T 32", {{256, 32, 768}}, 0},
    {"segment_mean", "768, T 32, packed", {{256, 32, 768}}, OP_PACKED},
    {"gather_rows", "512 of 16384, 768", {{512, 16384, 768}}, 0},
    {"scatter_rows", "512 of 16384, 768", {{512, 16384, 768}}, 0},
    {"l2_normalize", "512 of 256", {{512, 256}}, 0},
    {"fill", "90 M", {{90000000}}, 0},
    {"cast", "90 M, f32 to 16 bits", {{90000000}}, 0},
    {"cast", "90 M, f32 from 16 bits", {{90000000}}, OP_ALT},
    {"add", "90 M", {{90000000}}, 0},
    {"sum_squares", "90 M", {{90000000}}, 0},
    {"grad_scale", "two sums", {{2, 100}}, 0},
    {"adamw", "90 M, with a working copy", {{90000000, 10}}, 0},
    {"sgdm", "90 M", {{90000000, 1}}, OP_OMIT},
    {"lars", "90 M", {{90000000}}, OP_OMIT},
    {"conv_gn", "3x3, 64, 56 px", {{64, 56, 56, 64, 64, 3, 1, 1}}, RELU},
};

/* One of the two. */
struct measured {
    const struct op_row *row;
    const struct op_size *size;
    unsigned flags;
    char what[48];
};

/* False: the op has no gradient. */
static bool measured_of(struct measured *out, const struct shape *s, bool gradient) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s%s", s->row, gradient ? "_bwd" : "");
    const unsigned more = gradient ? s->flags >> GRADIENT_BITS : 0;
    *out = (struct measured){.row = op_row_find(name),
                             .size = &s->size,
                             .flags = (s->flags & ((1U << GRADIENT_BITS) - 1)) | more};
    (void)snprintf(out->what, sizeof out->what, "%s%s", s->what,
                   (out->flags & OP_ADD) != 0 ? ", added" : "");
    return out->row != NULL;
}

struct shape_list {
    const struct shape *items;
    size_t count;
    bool large;
    bool pipelined; /* calls follow each other without a wait */
};

bool bench_is_host(const char *device) {
    return strcmp(device, "cpu") == 0 || strcmp(device, "cpu-ref") == 0;
}

static struct shape_list shape_list(const struct options *o) {
    const bool host = bench_is_host(o->device);
    const bool large = o->sizes == SIZES_LARGE || (o->sizes == SIZES_AUTO && !host);
    return (struct shape_list){.items = large ? large_shapes : shapes,
                               .count = large ? CLI_COUNT(large_shapes) : CLI_COUNT(shapes),
                               .large = large,
                               .pipelined = !host};
}

struct result {
    double median_s, fastest_s;
    double flops, bytes; /* of one call */
};

struct timing {
    double seconds; /* to measure a shape for */
    bool pipelined; /* as shape_list's */
};

/* Calls one after the other, then a wait. */
static enum status call_in_a_row(double *seconds,
                                 struct device *dev,
                                 enum op_id id,
                                 const union op_args *args,
                                 int calls,
                                 struct error *err) {
    const int64_t start = clock_now_ns();
    for (int i = 0; i < calls; i++) {
        TRY(op_call(dev, id, args, err));
    }
    TRY(dev->ops->sync(dev, err));
    *seconds = (double)(clock_now_ns() - start) * 1e-9;
    return STATUS_OK;
}

static enum status time_calls(struct result *out,
                              struct device *dev,
                              enum op_id id,
                              const union op_args *args,
                              const struct timing *how,
                              struct error *err) {
    static double times[MAX_RUNS];
    int runs = 0;
    int calls = 1;
    double took = 0.0;
    TRY(call_in_a_row(&took, dev, id, args, 1, err)); /* creates what is created once */
    while (how->pipelined && calls < MAX_CALLS) {
        TRY(call_in_a_row(&took, dev, id, args, calls, err));
        if (took >= LEAST_S) {
            break;
        }
        calls *= 2;
    }
    const int64_t begin = clock_now_ns();
    while (runs < MAX_RUNS &&
           (runs < MIN_RUNS || (double)(clock_now_ns() - begin) * 1e-9 < how->seconds)) {
        TRY(call_in_a_row(&took, dev, id, args, calls, err));
        times[runs++] = took / calls;
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
    }
    const double median_s = bench_median(times, (size_t)runs);
    *out = (struct result){median_s, times[0], op_flops(id, args), op_bytes(id, args)};
    return STATUS_OK;
}

static enum status measure(struct result *out,
                           struct device *dev,
                           enum dtype type,
                           const struct measured *m,
                           const struct timing *how,
                           struct error *err) {
    static struct op_case c;
    struct op_data d = {0};
    struct op_placed placed = {0};
    union op_args args;
    op_describe(&c, m->row, m->size, m->flags, type);
    enum status s = STATUS_OK;
    TRY_OR_FAIL(s, op_data_create(&d, &c, 0, err));
    TRY_OR_FAIL(s, op_data_fill(&d, &c, 1, dev, err));
    TRY_OR_FAIL(s, op_place(&placed, dev, &c, &d, err));
    op_case_args(&args, &c, placed.t);
    TRY_OR_FAIL(s, time_calls(out, dev, c.row->op, &args, how, err));
fail:
    op_placed_free(&placed, dev);
    op_data_destroy(&d);
    return s;
}

/* ---- results ---- */

static void json_result(struct json_writer *w,
                        const struct measured *shape,
                        const struct result *r,
                        const struct bench_machine *m) {
    json_open_object(w, NULL);
    json_string(w, "op", shape->row->name);
    json_string(w, "shape", shape->what);
    json_double(w, "median_ms", r->median_s * 1e3);
    json_double(w, "best_ms", r->fastest_s * 1e3);
    json_double(w, "gflops", r->flops / r->median_s * 1e-9);
    json_double(w, "gb_per_s", r->bytes / r->median_s * 1e-9);
    json_double(w, "of_matmul", r->flops / r->median_s / m->product_flops);
    json_double(w, "of_copy", r->bytes / r->median_s / m->copy_bytes);
    json_close_object(w);
}

/* Number i of the shapes and their gradients, if the op exists and --only selects it. */
static bool
chosen(struct measured *out, const struct shape_list *list, size_t i, const char *only) {
    return measured_of(out, &list->items[i / 2], i % 2 == 1) &&
           (only == NULL || strncmp(out->row->name, only, strlen(only)) == 0);
}

enum status bench_machine(struct bench_machine *m,
                          struct device *dev,
                          enum dtype type,
                          bool large,
                          double seconds,
                          struct error *err) {
    const int64_t side = large ? 8192 : 1536;
    const int64_t rows_count = large ? 262144 : 16384;
    const struct shape product = {"matmul", "", {{side, side, side}}, 0};
    const struct shape copy = {"gather_rows", "", {{rows_count, rows_count, 1024}}, 0};
    const struct timing how = {seconds, large};
    struct measured what;
    struct result r;
    (void)measured_of(&what, &product, false);
    TRY(measure(&r, dev, type, &what, &how, err));
    m->product_flops = r.flops / r.fastest_s;
    m->product_side = side;
    (void)measured_of(&what, &copy, false);
    TRY(measure(&r, dev, DTYPE_F32, &what, &how, err));
    m->copy_bytes = r.bytes / r.fastest_s;
    return STATUS_OK;
}

static enum status
measure_all(struct device *dev, const struct options *o, struct json_writer *w, struct error *err) {
    const struct shape_list list = shape_list(o);
    const struct timing how = {(double)o->seconds_ms * 1e-3, list.pipelined};
    struct bench_machine m;
    struct cli_progress progress;
    cli_progress_init(&progress, NULL, false);
    TRY(bench_machine(&m, dev, types[o->type], list.large, 2 * how.seconds, err));
    json_double(w, "matmul_gflops", m.product_flops * 1e-9);
    json_double(w, "copy_gb_per_s", m.copy_bytes * 1e-9);
    json_open_array(w, "ops");
    for (size_t i = 0; i < 2 * list.count; i++) {
        struct measured what;
        struct result r;
        if (!chosen(&what, &list, i, o->only) || !op_available(dev, what.row->op)) {
            continue;
        }
        TRY(measure(&r, dev, types[o->type], &what, &how, err));
        json_result(w, &what, &r, &m);
        cli_progress_update(&progress, i + 1, 2 * list.count, 0, NULL);
    }
    json_close_array(w);
    cli_progress_clear(&progress);
    return STATUS_OK;
}

static enum status check_only(const struct options *o, struct error *err) {
    const struct shape_list list = shape_list(o);
    struct measured what;
    for (size_t i = 0; i < 2 * list.count; i++) {
        if (chosen(&what, &list, i, o->only)) {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE, "--only %s: no op has a name that begins with this",
                     o->only);
}

static enum status run_ops(struct device *dev, const struct options *o, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_string(&w, "device", o->device);
    json_u64(&w, "threads", o->threads);
    json_string(&w, "type", type_names[o->type]);
    json_bool(&w, "autotune", o->autotune);
    const enum status s = measure_all(dev, o, &w, err);
    if (s != STATUS_OK) {
        json_writer_fini(&w);
        return s;
    }
    return end_result(&w, o->json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct device *dev;
    (void)a;
    cli_signals_install();
    TRY(check_only(o, err));
    struct log_sink log;
    TRY(bench_open_device(&dev, o->device, o->threads, o->autotune, o->plan_cache, &log, err));
    enum status s = dev->ops->supports(dev, types[o->type], err);
    THEN(s, run_ops(dev, o, err));
    device_close(dev);
    return s;
}

CLI_MAIN(ccbench_ops, program, struct options, run)
