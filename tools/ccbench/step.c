/*
 * ccbench step: whole training steps: forward, loss, backward, optimiser, on generated pairs or on
 * pairs loaded from a dataset. Prints the time of every operator, the machine's best rates, and on
 * the CPU the speed of only the image tower's convolutions: oneDNN's primitives on the same shapes,
 * one after another, in the same run.
 *
 * `--tower image` and `--tower text` omit the other tower, the projections and the loss; the
 * gradient of the features is then a constant.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/json_writer.h"
#include "kernels/device_stream.h"
#include "tools/ccbench/step_internal.h"
#include "tools/inspect/samples.h"

enum { MAX_STEPS = 1000 };

static const char *const tower_choices[] = {"both", "image", "text", NULL};
static const char *const stem_choices[] = {"standard", "small", NULL};
static const char *const precision_choices[] = {"f32", "bf16", NULL};
static const char *const padding_choices[] = {"none", "longest", NULL};
static const char *const padding_aliases[] = {"packed", "padded", NULL};
static const char *const state_choices[] = {"auto", "device", "pinned", "host", NULL};
static const char *const switch_choices[] = {"on", "off", NULL};

#define FIELD(name) CLI_FIELD(struct step_options, name)

static const struct cli_option rows[] = {
    {"tower", 0, CLI_ENUM, FIELD(tower), .default_text = "both", .choices = tower_choices,
     .metavar = "WHAT",
     .help = "the part of the model to measure: both towers with the loss, or only one tower"},
    {"model", 0, CLI_STRING, FIELD(model), .metavar = "MODEL",
     .help = "open_clip model instead of both towers, as in ccstream-train"},
    {"image-tower", 0, CLI_STRING, FIELD(image_tower), .default_text = "resnet50",
     .metavar = "NAME", .help = "tiny, resnet10t, resnet18, resnet34 or resnet50"},
    {"text-tower", 0, CLI_STRING, FIELD(text_tower), .default_text = "distil", .metavar = "NAME",
     .help = "tiny, small or distil"},
    {"image-size", 0, CLI_U64, FIELD(image_size), .min = "8", .max = "1024", .default_text = "224",
     .metavar = "PX", .help = "input resolution"},
    {"stem", 0, CLI_ENUM, FIELD(stem), .default_text = "standard", .choices = stem_choices,
     .metavar = "KIND", .help = "stem of the image tower"},
    {"batch-size", 'b', CLI_U64, FIELD(batch), .alias = "batch", .min = "2", .max = "32768",
     .default_text = "16", .metavar = "N", .help = "pairs per step"},
    {"micro-batch", 0, CLI_U64, FIELD(micro_batch), .min = "0", .max = "32768", .default_text = "0",
     .metavar = "N",
     .help = "pairs per forward pass of the towers; 0: the batch; with --tower both"},
    {"tokens", 0, CLI_U64, FIELD(tokens), .min = "2", .max = "512", .default_text = "32",
     .metavar = "N",
     .help = "tokens of the longest caption; lengths vary from a third of it up to N"},
    {"full", 0, CLI_FLAG, FIELD(full), .help = "give every caption the full number of tokens"},
    {"vocab", 0, CLI_U64, FIELD(vocab), .min = "2", .max = "1000000", .default_text = "30522",
     .metavar = "N", .help = "vocabulary size"},
    {"padding", 0, CLI_ENUM, FIELD(padding), .alias = "captions", .default_text = "none",
     .choices = padding_choices, .aliases = padding_aliases, .metavar = "KIND",
     .help = "none: packed captions; longest: padded"},
    {"dropout", 0, CLI_DOUBLE, FIELD(dropout), .min = "0", .max = "0.9", .word = "auto",
     .word_value = "-1", .default_text = "auto", .metavar = "P",
     .help = "dropout of the text tower; auto: the model's own, 0 with --model, else 0.1"},
    {"loss", 0, CLI_STRING, FIELD(loss), .default_text = "clip", .metavar = "NAME",
     .help = "loss, with the defaults of ccstream-train, but emc2 with --emc2-off-batch skip"},
    {"data", 0, CLI_STRING, FIELD(data), .metavar = "DIR",
     .help = "feed batches from this dataset through the loader, with random crops and token ids "
             "below --vocab; without it, one generated batch is repeated"},
    {"state-memory", 0, CLI_ENUM, FIELD(state), .alias = "state", .default_text = "auto",
     .choices = state_choices, .metavar = "PLACE",
     .help = "where per-sample state is stored, as in ccstream-train"},
    {"cuda-graph", 0, CLI_ENUM, FIELD(cuda_graph), .default_text = "on", .choices = switch_choices,
     .metavar = "ON",
     .help =
         "cuda. on: capture each step shape as a CUDA graph and replay it; off: launch op by op"},
    {"loader-threads", 0, CLI_U64, FIELD(loader_threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "decoding threads; 0: one per CPU"},
    {"precision", 0, CLI_ENUM, FIELD(precision), .default_text = "f32",
     .choices = precision_choices, .metavar = "TYPE",
     .help = "data type of activations and weights"},
    {"device", 0, CLI_STRING, FIELD(device), .default_text = "cpu", .metavar = "NAME",
     .help = "as in ccstream-train"},
    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .help = "compute threads; 0: all CPUs"},
    {"autotune", 0, CLI_FLAG, FIELD(autotune),
     .help = "cuda: time the kernels of each shape once and use the fastest"},
    {"plan-cache", 0, CLI_STRING, FIELD(plan_cache), .metavar = "DIR",
     .help = "cuda: folder in which the chosen kernels are stored and looked up"},
    {"machine", 0, CLI_ENUM, FIELD(machine), .default_text = "on", .choices = switch_choices,
     .metavar = "ON",
     .help = "also measure what the machine does at most: a matrix product, a copy, and the image "
             "tower's convolutions alone; needs up to 2 GiB more memory"},
    {"steps", 's', CLI_U64, FIELD(steps), .min = "1", .max = "1000", .default_text = "5",
     .metavar = "N", .help = "steps to measure, after two warmup steps"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench step",
    .purpose = "measures whole training steps, operator by operator",
    .usage = CLI_TEXTS("[options]", "--data DIR [options]"),
    .examples = CLI_TEXTS("ccbench step --image-tower resnet18 --image-size 112",
                          "ccbench step --device cuda --batch-size 512 --precision bf16",
                          "ccbench step --device cuda --batch-size 512 --precision bf16 "
                          "--data cc3m --steps 100"),
    .notes = CLI_TEXTS(
        "Rates are those of the median step; step_cpu_ms is its CPU time. gflops counts the "
        "arithmetic of convolutions, matrix products and attention, without padding of packed "
        "captions. The table shows one step with a wait after each operator; GB/s count each "
        "operand once. matmul and copy are a square matrix product and a copy, measured in the "
        "same run. conv_only is the time of the image tower's convolutions alone, forward and "
        "backward, in the same run; its ratio is their fraction of the step.",
        "On cuda, steps are queued without waiting while the next batch is copied, and the rate is "
        "that of sequences of --steps steps. launches counts the launches of a captured step, "
        "including copies and fills. eager_launches counts those of a step op by op, including the "
        "copies of ids, rates and report; a library's matrix product or convolution counts as one. "
        "idle_fraction is the fraction of time, measured by device events, in which the kernel "
        "queue waited for the host or a copy. planned_bytes is the memory of model, loss and "
        "state, workspace_bytes the device's workspace, used_bytes all memory in use on the device "
        "by any program.",
        "With --data the rate is that of all steps, including waits for the loader; stall_fraction "
        "is the fraction of time spent in these waits. fed_ratio is this rate divided by the rate "
        "for one repeated batch while the loader is idle."),
    CLI_OPTIONS(rows),
};

struct result {
    double step_s[MAX_STEPS];                 /* sorted, as the next */
    double conv_s[MAX_STEPS];                 /* of each step's convolutions alone */
    double cpu_s[MAX_STEPS];                  /* of the process, in each step */
    double median_s, fastest_s, median_cpu_s; /* the last is 0 if steps follow each other */
    struct op_time ops[TIMED_MAX_OPS];
    size_t op_count;
    double flops;       /* of a step */
    double conv_only_s; /* the median of conv_s; 0: not measured */
    struct bench_machine machine;
    double fed_s, stall_fraction; /* --data: the mean step, and how much of it waited */
    uint64_t eager_launches;
    double idle_fraction; /* of the compute queue if steps overlap with copies; -1: unknown */
    struct device_counters counters; /* of the device at the end; all 0: it has none */
};

/* One step that is timed by operator. */
static enum status time_operators(struct bench_step *b, struct result *r, struct error *err) {
    double unused;
    timed_ops_install(b->dev);
    const enum status s = bench_step_run(b, 1, STEP_OP_BY_OP, &unused, err);
    timed_ops_remove(b->dev);
    TRY(s);
    r->op_count = timed_ops_times(r->ops);
    for (size_t i = 0; i < r->op_count; i++) {
        r->flops += r->ops[i].flops;
    }
    return STATUS_OK;
}

/* If steps overlap with copies: the mean step of several runs. */
static enum status in_windows(struct bench_step *b, struct result *r, struct error *err) {
    enum { WINDOWS = 5, WARM = 6 };
    double took;
    TRY(bench_step_run(b, WARM, STEP_REPEATED, &took, err)); /* captures */
    for (int i = 0; i < WINDOWS; i++) {
        TRY(bench_step_run(b, b->o->steps, STEP_REPEATED, &took, err));
        r->step_s[i] = took / (double)b->o->steps;
    }
    r->idle_fraction = b->elapsed_s > 0.0 ? b->waited_s / b->elapsed_s : 0.0;
    r->median_s = bench_median(r->step_s, WINDOWS);
    r->fastest_s = r->step_s[0];
    return STATUS_OK;
}

/* Alternates steps and bare convolutions, so that both see the machine in the same state. */
static enum status
in_turn(struct bench_step *b, struct result *r, struct bare_convolutions *bare, struct error *err) {
    const size_t steps = (size_t)b->o->steps;
    double unused;
    if (b->dev->stream != NULL && b->trainer != NULL) {
        return in_windows(b, r, err);
    }
    if (bare != NULL) {
        TRY(bare_convolutions_run(bare, &unused, err)); /* compiles the library's kernels */
    }
    for (size_t i = 0; i < steps; i++) {
        const int64_t begin_ns = clock_process_cpu_ns();
        TRY(bench_step_run(b, 1, STEP_REPEATED, &r->step_s[i], err));
        r->cpu_s[i] = (double)(clock_process_cpu_ns() - begin_ns) * 1e-9;
        if (bare != NULL) {
            TRY(bare_convolutions_run(bare, &r->conv_s[i], err));
        }
    }
    r->median_s = bench_median(r->step_s, steps);
    r->median_cpu_s = bench_median(r->cpu_s, steps);
    r->fastest_s = r->step_s[0];
    r->conv_only_s = bare != NULL ? bench_median(r->conv_s, steps) : 0.0;
    return STATUS_OK;
}

/* Steps fed by the loader, after as many steps as it has batches ready. */
static enum status fed(struct bench_step *b, struct result *r, struct error *err) {
    enum { READY = 6 };
    double took;
    TRY(bench_step_run(b, READY, STEP_FED, &took, err));
    TRY(bench_step_run(b, b->o->steps, STEP_FED, &took, err));
    r->fed_s = took / (double)b->o->steps;
    r->stall_fraction = b->elapsed_s > 0.0 ? b->waited_s / b->elapsed_s : 0.0;
    return STATUS_OK;
}

static enum status measure(struct bench_step *b, struct result *r, struct error *err) {
    struct bare_convolutions *bare = NULL;
    double unused;
    TRY(bench_step_run(b, 1, STEP_FED, &unused, err));
    r->eager_launches = b->launches_count; /* the first step of a shape runs op by op */
    TRY(bench_step_run(b, 1, STEP_FED, &unused, err));
    if (b->o->data != NULL) {
        TRY(fed(b, r, err));
    }
    TRY(time_operators(b, r, err));
    if (b->o->machine == STEP_ON && strcmp(b->o->device, "cpu") == 0 && b->o->tower != STEP_TEXT &&
        b->o->data == NULL) {
        TRY(bare_convolutions_create(&bare, err));
    }
    r->idle_fraction = -1.0;
    const enum status s = in_turn(b, r, bare, err);
    bare_convolutions_destroy(bare);
    TRY(s);
    if (b->dev->stream != NULL) {
        r->counters = b->dev->stream->counters(b->dev);
    }
    return STATUS_OK;
}

/* ---- results ---- */

/* Pairs per second. */
static double rate(const struct bench_step *b, const struct result *r) {
    return (double)b->o->batch / (r->fed_s > 0.0 ? r->fed_s : r->median_s);
}

static void
json_settings(struct json_writer *w, const struct bench_step *b, const struct result *r) {
    const struct step_options *o = b->o;
    json_string(w, "tower", tower_choices[o->tower]);
    if (o->model != NULL) {
        json_string(w, "model", o->model);
    } else {
        json_string(w, "image_tower", o->image_tower);
        json_string(w, "text_tower", o->text_tower);
    }
    json_string(w, "loss", o->loss);
    json_string(w, "state", b->trainer != NULL ? trainer_summary(b->trainer).state : "host");
    json_string(
        w, "cuda_graph",
        switch_choices[b->dev->stream != NULL && r->counters.captures == 0 ? STEP_OFF
                                                                           : o->cuda_graph]);
    json_string(w, "precision", precision_choices[o->precision]);
    json_string(w, "padding", padding_choices[o->padding]);
    json_string(w, "device", o->device);
    json_bool(w, "autotune", o->autotune);
    json_u64(w, "threads", o->threads);
    json_u64(w, "image_size", o->image_size);
    json_u64(w, "batch", o->batch);
    json_u64(w, "micro_batch", o->micro_batch);
    json_u64(w, "tokens", o->tokens);
    json_u64(w, "caption_tokens",
             b->trainer != NULL ? trainer_batch_tokens(b->trainer) : b->token_count);
    json_u64(w, "steps", o->steps);
}

static void json_operators(struct json_writer *w, const struct result *r) {
    json_open_array(w, "ops");
    for (size_t i = 0; i < r->op_count; i++) {
        const struct op_time *t = &r->ops[i];
        const double ns = (double)(t->ns > 0 ? t->ns : 1);
        json_open_object(w, NULL);
        json_string(w, "name", t->name);
        json_u64(w, "calls", t->calls);
        json_double(w, "ms", (double)t->ns * 1e-6);
        json_double(w, "gflops", t->flops / ns);
        json_double(w, "gb_per_s", t->bytes / ns);
        if (r->machine.product_flops > 0.0) {
            json_double(w, "of_matmul", t->flops / ns * 1e9 / r->machine.product_flops);
            json_double(w, "of_copy", t->bytes / ns * 1e9 / r->machine.copy_bytes);
        }
        json_close_object(w);
    }
    json_close_array(w);
}

static enum status
print_result(const struct bench_step *b, const struct result *r, struct error *err) {
    const double n = (double)b->o->batch;
    struct json_writer w;
    cli_begin_json(&w);
    json_double(&w, "pairs_per_s", rate(b, r));
    json_double(&w, "fastest_pairs_per_s", n / r->fastest_s);
    json_double(&w, "gflops", r->flops / r->median_s * 1e-9);
    json_double(&w, "step_ms", (r->fed_s > 0.0 ? r->fed_s : r->median_s) * 1e3);
    if (r->median_cpu_s > 0.0) {
        json_double(&w, "step_cpu_ms", r->median_cpu_s * 1e3);
    }
    if (r->machine.product_flops > 0.0) {
        json_double(&w, "matmul_gflops", r->machine.product_flops * 1e-9);
        json_double(&w, "copy_gb_per_s", r->machine.copy_bytes * 1e-9);
    }
    json_double(&w, "loss_value", b->loss_value);
    json_u64(&w, "planned_bytes", b->trainer != NULL ? trainer_device_memory(b->trainer) : 0);
    if (b->dev->stream != NULL) {
        json_u64(&w, "used_bytes", r->counters.memory_bytes);
        json_u64(&w, "workspace_bytes", r->counters.workspace_bytes);
        json_u64(&w, "launches", r->counters.captured_launches);
        json_u64(&w, "eager_launches", r->eager_launches);
        json_u64(&w, "captures", r->counters.captures);
    }
    if (r->idle_fraction >= 0.0) {
        json_double(&w, "idle_fraction", r->idle_fraction);
    }
    if (r->conv_only_s > 0.0) {
        json_double(&w, "conv_only_pairs_per_s", n / r->conv_only_s);
        json_double(&w, "conv_only_ratio", r->conv_only_s / r->median_s);
    }
    if (r->fed_s > 0.0) {
        json_double(&w, "held_pairs_per_s", n / r->median_s);
        json_double(&w, "fed_ratio", r->median_s / r->fed_s);
        json_double(&w, "stall_fraction", r->stall_fraction);
    }
    json_settings(&w, b, r);
    json_operators(&w, r);
    return end_result(&w, b->o->json, err);
}

/* ---- the command ---- */

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct step_options *o = options;
    const double seconds = bench_is_host(o->device) ? 0.05 : 0.3;
    struct bench_step b = {.o = o};
    static struct result r;
    enum status s;
    (void)a;
    cli_signals_install();
    TRY_OR_FAIL(s, bench_step_open(&b, err));
    if (o->machine == STEP_ON) {
        TRY_OR_FAIL(
            s, bench_machine(&r.machine, b.dev, b.dtype, !bench_is_host(o->device), seconds, err));
    }
    TRY_OR_FAIL(s, measure(&b, &r, err));
    s = print_result(&b, &r, err);
fail:
    bench_step_close(&b);
    return s;
}

CLI_MAIN(ccbench_step, program, struct step_options, run)
