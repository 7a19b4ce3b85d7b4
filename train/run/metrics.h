/*
 * metrics: the measurements of a run, as JSON lines in RUN/metrics.jsonl: one object per optimiser
 * step, one per evaluation, one per checkpoint that summarises per-sample state, and one per
 * checkpoint (after its evaluation) about where the time went. Every line begins with its step. A
 * resumed run drops the lines after its checkpoint, so that each step has one line. Every line ends
 * with time and run id: "time":"2026-11-22T18:41:56.123Z","run":"0123456789abcdef".
 *
 * Threading : one owner.
 * Ownership : open/close.
 */
#ifndef TRAIN_RUN_METRICS_H
#define TRAIN_RUN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/eval/classify.h"
#include "train/eval/examples.h"
#include "train/eval/features.h"
#include "train/eval/retrieval.h"
#include "train/loss/loss.h"
#include "train/state/sample_state.h"

struct metrics;

/* Where this process's time went since the last such report, or since trainer_run began; rank 0's
 * if there are several. `seconds` minus the five below it is everything else. */
struct stage_report {
    double seconds;
    double load_s;       /* waiting for the loader's batches */
    double ranks_s;      /* waiting for other ranks, in steps */
    double step_s;       /* steps, without both */
    double checkpoint_s; /* writing checkpoints */
    double evaluation_s; /* all evaluations */
    /* Fractions of their time in which the threads of each loader stage waited for the stages next
     * to theirs; below 0: none ran. A stage that hardly waits limits the others. */
    double read_wait_fraction, decode_wait_fraction, deliver_wait_fraction;
};

struct step_report {
    uint64_t step;       /* steps done, from 1 */
    uint64_t epoch;      /* of this step, from 0 */
    double loss;         /* the gradient is its gradient: for global losses a surrogate */
    double global_loss;  /* estimate of the loss over the dataset, see loss_output.objective; NaN:
                            the loss has none */
    double distill_loss; /* K of loss/distill.c, which is part of both; 0 or NaN: no teacher */
    double tau;
    struct loss_batch_state batch; /* per-sample state of the batch after the step */
    /* zeta_lr: with --zeta-lr auto in units of tau, for a sample visited once per epoch; 0: the
     * loss has no zeta, or zeta is frozen */
    double lr, zeta_lr;
    double grad_norm;        /* before clipping */
    double pairs_per_s;      /* of this step */
    double stall_fraction;   /* fraction of the step spent waiting for the loader; if steps overlap:
                                in which the device's queue of kernels was empty, by its events */
    uint64_t launches_count; /* kernels, copies and fills launched in the step, see
                                device_stream.launches; 0: not counted */
    uint32_t replaced_count; /* damaged samples replaced in this batch */
    /* With several ranks, for the previous step: the rank whose own work took longest, the rate if
     * all were as slow and never waited, and the fraction of their time in which ranks waited for
     * others. slowest_pairs_per_s 0: not known yet */
    uint32_t world, slowest_rank;
    double slowest_pairs_per_s, wait_fraction;
    uint64_t device_bytes; /* largest amount of device memory seen in use; 0: the device has none */
};

/* An evaluation metric to watch: field `key` of object `object`. NULL, NULL: none. */
struct metrics_watch {
    const char *object, *key;
};

/* The largest value of the watched metric over all lines of the run. */
struct metrics_best {
    double value;
    uint64_t step;  /* of the first line with this value; 0: there is no such line */
    uint64_t since; /* evaluations after that one */
};

/* Opens RUN/metrics.jsonl and keeps the lines up to step `step`. `id` (NULL: none) and the strings
 * of `watch` are borrowed until close. Returns OK, IO, NOMEM or LIMIT. */
enum status metrics_open(struct metrics **out,
                         const char *run,
                         const char *id,
                         uint64_t step,
                         struct metrics_watch watch,
                         struct error *err);
struct metrics_best metrics_best(const struct metrics *m);

/* Whether a kept line is this evaluation of the step given to metrics_open. */
enum metrics_evaluation {
    METRICS_RETRIEVAL,
    METRICS_ZEROSHOT,
    METRICS_FEATURES,
    METRICS_EVALUATIONS
};
bool metrics_has(const struct metrics *m, enum metrics_evaluation which);

/* Each writes one whole line, or nothing if m is NULL (only rank 0 writes). A step's line has
 * "batch": {"image.log_u", "text.log_u", "image.zeta", "text.zeta"} as far as the loss keeps them,
 * and "peak_rss_bytes" of the process; with several ranks, after "replaced", also "ranks",
 * "slowest_rank", "slowest_pairs_per_s" and "wait_fraction" (see struct step_report). Returns OK,
 * IO or NOMEM. */
enum status metrics_step(struct metrics *m, const struct step_report *r, struct error *err);

/* {"step":..,"stages":{"seconds":..,"load_s":..,"ranks_s":..,"step_s":..,"checkpoint_s":..,
 *  "evaluation_s":..,"read_wait_fraction":..,"decode_wait_fraction":..,
 *  "deliver_wait_fraction":..}}, fractions only if loader threads ran. */
enum status
metrics_stages(struct metrics *m, uint64_t step, const struct stage_report *r, struct error *err);

/* {"step":..,"retrieval":{..},"examples":{"t2i":[..],"i2t":[..]}}, see retrieval_write_json and
 * examples_write_json. found: (2) images found for captions, then captions for images, computed
 * from the embeddings `e`. */
enum status metrics_retrieval(struct metrics *m,
                              uint64_t step,
                              const struct retrieval_result *r,
                              const struct examples *found,
                              const struct embeddings *e,
                              struct error *err);

/* {"step":..,"zeroshot":{"top1":..,"top5":..,...}}, see classify_write_json. */
enum status metrics_zeroshot(struct metrics *m,
                             uint64_t step,
                             const struct classify_result *r,
                             struct error *err);

/* {"step":..,"features":{..}}, see features_write_json. */
enum status metrics_features(struct metrics *m,
                             uint64_t step,
                             const struct features_result *r,
                             struct error *err);

/* {"step":..,"finished":true}: the run ended early (patience). */
enum status metrics_finished(struct metrics *m, uint64_t step, struct error *err);

/* summaries: of every column of `state`, then of `captions` (NULL: there are none).
 * {"step":..,"state":{COLUMN:{"visited":..,"min":..,"mean":..,"max":..,"std":..,
 *  "at_min":..,"at_max":..,"histogram":{"low":..,"width":..,"counts":[..]}},..},"peak_rss_bytes":..}:
 * bin i of a histogram begins at low + i width; without empty ones at the end. */
enum status metrics_state(struct metrics *m,
                          uint64_t step,
                          const struct sample_state *state,
                          const struct sample_state *captions,
                          const struct sample_state_summary *summaries,
                          struct error *err);

/* Flushes to the disk. Returns OK or IO. */
enum status metrics_sync(struct metrics *m, struct error *err);
void metrics_close(struct metrics *m); /* accepts NULL */

#endif
