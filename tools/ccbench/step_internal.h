/*
 * step_internal: a training step to be measured: model, batch, loss, optimiser, and what
 * the image tower's convolutions cost alone.
 */
#ifndef TOOLS_CCBENCH_STEP_INTERNAL_H
#define TOOLS_CCBENCH_STEP_INTERNAL_H

#include "formats/base/log.h"
#include "loader/loader.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/ccbench/timed_ops.h"
#include "train/loss/loss.h"
#include "train/loss/loss_device.h"
#include "train/model/dual_encoder.h"
#include "train/optim/optimizer.h"

struct recording; /* kernels/device_stream.h */

enum step_tower { STEP_BOTH, STEP_IMAGE, STEP_TEXT };
enum step_state { STEP_STATE_AUTO, STEP_STATE_DEVICE, STEP_STATE_PINNED, STEP_STATE_HOST };
enum step_switch { STEP_ON, STEP_OFF };
enum { BENCH_FLIGHTS = 2 };

struct step_options {
    const char *device, *image_tower, *text_tower, *loss, *data, *plan_cache;
    int tower, stem, precision, padding, state, cuda_graph, machine;
    uint64_t image_size, batch, micro_batch, tokens, vocab, threads, loader_threads, steps;
    double dropout;
    bool full, autotune, json;
};

/* One of the steps under way where steps overlap with copies. */
struct bench_flight {
    struct loader_batch held; /* where held_used */
    bool held_used;
    struct dual_encoder_batch batch;
    bool flying;
    uint64_t step; /* the number of that step, and whether the one before it was in the same call */
    bool follows;
    bool met; /* a batch of `shape` was computed */
    uint64_t shape;
    struct recording *recording; /* of that; NULL: none yet */
};

struct bench_step {
    const struct step_options *o;
    struct log_sink log;
    struct device *dev;
    struct dual_encoder_options model;
    struct dual_encoder *both;
    /* One tower alone. */
    struct params *params;
    struct resnet *image;
    struct transformer *text;
    void *kept, *scratch, *input;
    size_t ids_at;           /* bytes from `input` to the sample ids */
    struct tensor dfeatures; /* (N, F) */
    struct transformer_batch captions;
    struct tensor images;

    /* Made-up pairs; pixels, lengths and ids are of `host`. */
    struct host_memory host;
    uint8_t *pixels;
    int32_t *tokens, *lengths, *starts;
    uint64_t *ids;
    uint64_t token_count; /* of all captions of the last batch */
    /* Those of a dataset. */
    struct loader *loader;
    struct loader_batch held; /* the batch under way, where held_used */
    bool held_used;
    bool hold; /* take no new batch */

    struct sample_state *state;
    struct loss *loss;
    struct loss_device *loss_device; /* NULL: the loss is computed on the host */
    const char *state_place;         /* "host", "device" or "pinned" */
    float *similarity, *gradient;    /* (N, N) */
    struct tensor s, dx, dt;         /* (N, N), (N, E), (N, E) */
    struct step_values *values;      /* of the step, on the device */
    uint64_t step;
    double loss_value;
    double waited_s; /* for batches, so far */

    struct bench_flight flights[BENCH_FLIGHTS];
    bool not_recorded;       /* a step could not be recorded: all run op by op */
    double busy_s, idle_s;   /* of the compute queue, by its events, in the last overlapped steps */
    uint64_t launches_count; /* of the last step op by op; 0: unknown */
};

/* Opens device, input, model and loss. `b` is all zero but for its options, and good for close
 * whatever comes back. Returns OK, USAGE, NOMEM, UNSUPPORTED, what the device or the loader says.
 */
enum status bench_step_open(struct bench_step *b, struct error *err);
void bench_step_close(struct bench_step *b);

/* Forward, loss, backward, optimiser, op by op; the device has finished when it returns. *seconds:
 * all of it. Also INTERRUPTED. */
enum status bench_step_run(struct bench_step *b, double *seconds, struct error *err);

/* The parts of a step. take_batch: the next batch of the loader to *held, unless there is no loader
 * or b->hold says to keep the one that is there. put_values: what the step is to know, to the
 * device. compute: what follows from that. */
enum status bench_step_take_batch(struct bench_step *b,
                                  struct loader_batch *held,
                                  bool *held_used,
                                  struct error *err);
struct dual_encoder_batch bench_step_batch(const struct bench_step *b,
                                           const struct loader_batch *held);
enum status bench_step_put_values(struct bench_step *b,
                                  const struct dual_encoder_batch *batch,
                                  struct error *err);
enum status
bench_step_compute(struct bench_step *b, const struct dual_encoder_batch *batch, struct error *err);

/* Whether the device computes while the next batch travels; and `count` steps so, recorded as
 * b->o->cuda_graph says, with one wait at the end. */
bool bench_step_overlaps(const struct bench_step *b);
enum status
bench_step_overlapped(struct bench_step *b, uint64_t count, double *seconds, struct error *err);
void bench_step_overlap_close(struct bench_step *b);
struct host_memory bench_step_host_memory(struct device *dev);

/* After the last step: b->loss_value. Returns OK, CORRUPT where a step was not
 * finite, or what the device says. */
enum status bench_step_finish(struct bench_step *b, struct error *err);

/* Device memory that model, loss and state were planned to take; 0 for one tower alone. */
size_t bench_step_planned_bytes(const struct bench_step *b);

/* The convolutions of the step that timed_ops saw last, alone, one after another, by oneDNN. */
struct bare_convolutions; /* opaque */
enum status bare_convolutions_create(struct bare_convolutions **out, struct error *err);
enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err);
void bare_convolutions_destroy(struct bare_convolutions *b); /* accepts NULL */

#endif
