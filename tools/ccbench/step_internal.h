/*
 * step_internal: a training step to be measured: the trainer's, or only one tower; and the image
 * tower's convolutions alone.
 */
#ifndef TOOLS_CCBENCH_STEP_INTERNAL_H
#define TOOLS_CCBENCH_STEP_INTERNAL_H

#include "formats/base/log.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/ccbench/timed_ops.h"
#include "train/run/trainer.h"

enum step_tower { STEP_BOTH, STEP_IMAGE, STEP_TEXT };
enum step_switch { STEP_ON, STEP_OFF };

struct step_options {
    const char *device, *model, *image_tower, *text_tower, *loss, *data, *plan_cache;
    int tower, stem, precision, padding, state, cuda_graph, machine;
    uint64_t image_size, batch, micro_batch, tokens, vocab, threads, loader_threads, steps;
    double dropout;
    bool full, autotune, json;
};

struct bench_step {
    const struct step_options *o;
    struct log_sink log;
    struct device *dev;
    enum dtype dtype;
    struct loader_source source; /* --data */
    struct trainer *trainer;     /* NULL: only `tower`, on own_device */
    struct bench_tower *tower;
    struct device *own_device;
    uint64_t token_count; /* tokens of its captions */

    /* The last bench_step_run of a trainer: the time of its steps, and the part of it waiting for
     * the loader, or, on a device with a stream, in which its queue of kernels was empty. */
    double elapsed_s, waited_s;
    uint64_t reported_count;
    /* The last step's. */
    double loss_value;
    uint64_t launches_count;
};

enum step_how {
    STEP_FED,      /* with the loader's next batches, if there is one */
    STEP_REPEATED, /* reusing the same batches */
    STEP_OP_BY_OP, /* likewise, without CUDA graphs */
};

/* Opens device, input, model and loss. `b` is all zero except its options; close it even after a
 * failure. Returns OK, USAGE, NOMEM, UNSUPPORTED, or what device or loader return.
 */
enum status bench_step_open(struct bench_step *b, struct error *err);
void bench_step_close(struct bench_step *b);

/* Runs `count` steps and waits for them; *seconds: their total time. Returns OK, INTERRUPTED,
 * CORRUPT (a step was not finite) or what the parts return. */
enum status bench_step_run(struct bench_step *b,
                           uint64_t count,
                           enum step_how how,
                           double *seconds,
                           struct error *err);

/* Generated pairs, in memory of `t`, or of malloc if it is NULL; the caller owns it, even after a
 * failure. Returns OK or NOMEM. */
enum status step_make_pairs(struct loader_batch *out,
                            const struct step_options *o,
                            const struct trainer *t,
                            struct error *err);

/* Options of the chosen model, before size options are applied. Returns as open_clip_config and
 * dual_encoder_preset. */
enum status step_options_of_model(struct dual_encoder_options *out,
                                  const struct step_options *o,
                                  struct error *err);

/* step_tower.c: one tower and its optimiser on the device; the gradient of its features is a
 * constant. */
enum status bench_tower_open(struct bench_tower **out, struct bench_step *b, struct error *err);
enum status bench_tower_run(struct bench_tower *t, struct error *err);
void bench_tower_close(struct bench_tower *t); /* accepts NULL */

/* oneDNN's convolutions of the last step timed by timed_ops, one after another. */
struct bare_convolutions; /* opaque */
enum status bare_convolutions_create(struct bare_convolutions **out, struct error *err);
enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err);
void bare_convolutions_destroy(struct bare_convolutions *b); /* accepts NULL */

#endif
