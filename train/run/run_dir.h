/*
 * run_dir: the directory of one training run.
 *
 *   RUN/config.json                     the options of the run, written once at its start
 *   RUN/metrics.jsonl                   one JSON object per step, and one per evaluation
 *   RUN/checkpoints/step-N.safetensors  checkpoints, the newest few; N: steps done
 *   RUN/last                            relative symbolic link to the newest, replaced atomically
 *   RUN/best                            likewise, to the best by a validation metric (--keep-best)
 *   RUN/sessions.jsonl                  one JSON object per call of ccstream-train
 *   RUN/report.html, RUN/probe.jsonl    the page of the run, and its measurements
 *                                       (ccstream-report)
 *   RUN/nonfinite.json                  the step with a number that is not finite
 *
 * Threading : functions on paths; one process writes to a run at a time.
 */
#ifndef TRAIN_RUN_RUN_DIR_H
#define TRAIN_RUN_RUN_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"

/* The checkpoint at `path`: `path` itself if it is a file (or a link to one), RUN/last if it is a
 * directory. Returns OK, NOTFOUND (nothing there, or a run without checkpoint) or LIMIT. */
enum status run_dir_resolve(char out[PATH_MAX_BYTES], const char *path, struct error *err);

/* RUN/checkpoints/step-N.safetensors */
enum status run_dir_checkpoint_path(char out[PATH_MAX_BYTES],
                                    const char *run,
                                    uint64_t step,
                                    struct error *err);

/* Makes RUN/checkpoints if it does not exist; RUN must exist. */
enum status
run_dir_make_checkpoints(const struct file_system *fs, const char *run, struct error *err);

/* Points RUN/last at the checkpoint of `step`, then removes the oldest checkpoints beyond
 * keep_count (at least 1), except the targets of `last` and `best`. Returns OK, IO or LIMIT. */
enum status run_dir_publish(const struct file_system *fs,
                            const char *run,
                            uint64_t step,
                            uint32_t keep_count,
                            struct error *err);

/* Points RUN/best at the checkpoint of `step`. */
enum status
run_dir_keep_best(const struct file_system *fs, const char *run, uint64_t step, struct error *err);

/* Whether RUN/last exists. */
enum status run_dir_has_checkpoint(const char *run, bool *out, struct error *err);

#endif
