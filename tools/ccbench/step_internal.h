/*
 * step_internal: a training step to be measured: the trainer's, or one tower alone; and what the
 * image tower's convolutions cost alone.
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
    struct trainer *trainer;     /* NULL: one tower alone, of `tower` on own_device */
    struct bench_tower *tower;
    struct device *own_device;
    uint64_t token_count; /* of the captions of that */

    /* Of the last bench_step_run of a trainer: the time of its steps, and of that, waiting for the
     * loader, or, on a device with a stream, of its queue of kernels. */
    double elapsed_s, waited_s;
    uint64_t reported_count;
    /* Of the last step. */
    double loss_value;
    uint64_t launches_count;
};

enum step_how {
    STEP_FED,      /* with further batches of the loader, if there is one */
    STEP_REPEATED, /* with the same ones again */
    STEP_OP_BY_OP, /* likewise, not recorded */
};

/* Opens device, input, model and loss. `b` is all zero but for its options, and good for close
 * whatever comes back. Returns OK, USAGE, NOMEM, UNSUPPORTED, what the device or the loader says.
 */
enum status bench_step_open(struct bench_step *b, struct error *err);
void bench_step_close(struct bench_step *b);

/* So many steps, in *seconds together; the device has finished when it returns. Also INTERRUPTED;
 * CORRUPT where a step was not finite. */
enum status bench_step_run(struct bench_step *b,
                           uint64_t count,
                           enum step_how how,
                           double *seconds,
                           struct error *err);

/* Made-up pairs, in memory of `t`, or of malloc where it is NULL; the caller owns it, also after a
 * failure. Returns OK or NOMEM. */
enum status step_make_pairs(struct loader_batch *out,
                            const struct step_options *o,
                            const struct trainer *t,
                            struct error *err);

/* Options of the model that was chosen, before those of its sizes. Returns as open_clip_config and
 * dual_encoder_preset. */
enum status step_options_of_model(struct dual_encoder_options *out,
                                  const struct step_options *o,
                                  struct error *err);

/* step_tower.c: one tower on the device, whose features have a constant gradient, with its
 * optimiser. */
enum status bench_tower_open(struct bench_tower **out, struct bench_step *b, struct error *err);
enum status bench_tower_run(struct bench_tower *t, struct error *err);
void bench_tower_close(struct bench_tower *t); /* accepts NULL */

/* The convolutions of the step that timed_ops saw last, alone, one after another, by oneDNN. */
struct bare_convolutions; /* opaque */
enum status bare_convolutions_create(struct bare_convolutions **out, struct error *err);
enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err);
void bare_convolutions_destroy(struct bare_convolutions *b); /* accepts NULL */

#endif
