/*
 * ccbench_step_internal: a training step to be measured: model, batch, loss, optimiser, and what
 * the image tower's convolutions cost alone.
 */
#ifndef TOOLS_CCBENCH_STEP_INTERNAL_H
#define TOOLS_CCBENCH_STEP_INTERNAL_H

#include "loader/loader.h"
#include "tools/ccbench_internal.h"
#include "tools/timed_ops.h"
#include "train/dual_encoder.h"
#include "train/loss_device.h"
#include "train/optimizer.h"

enum step_tower { STEP_BOTH, STEP_IMAGE, STEP_TEXT };

struct step_options {
    const char *device, *image_tower, *text_tower, *loss, *data, *plan_cache;
    int tower, stem, precision, captions;
    uint64_t image_size, batch, micro_batch, tokens, vocab, threads, loader_threads, steps;
    double dropout;
    bool full, autotune, json;
    int own_convolutions;
};

struct bench_step {
    const struct step_options *o;
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

    /* Made-up pairs. */
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
    struct loss_device *loss_device; /* NULL: the host computes the loss, */
    float *similarity, *gradient;    /* (N, N), of these */
    struct tensor s, dx, dt;         /* (N, N), (N, E), (N, E) */
    struct step_values *values;      /* of the step, on the device */
    uint64_t step;
    double loss_value;
    double waited_s; /* for batches, so far */
};

/* Opens device, input, model and loss. `b` is all zero but for its options, and good for close
 * whatever comes back. Returns OK, USAGE, NOMEM, UNSUPPORTED, what the device or the loader says.
 */
enum status bench_step_open(struct bench_step *b, struct error *err);
void bench_step_close(struct bench_step *b);

/* Forward, loss, backward, optimiser; the device has finished when it returns. *seconds: all of it.
 * Also INTERRUPTED. */
enum status bench_step_run(struct bench_step *b, double *seconds, struct error *err);

/* Device memory that the model was planned to take; 0 for one tower alone. */
size_t bench_step_planned_bytes(const struct bench_step *b);

/* The convolutions of the step that timed_ops saw last, alone, one after another, by oneDNN. */
struct bare_convolutions; /* opaque */
enum status bare_convolutions_create(struct bare_convolutions **out, struct error *err);
enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err);
void bare_convolutions_destroy(struct bare_convolutions *b); /* accepts NULL */

#endif
