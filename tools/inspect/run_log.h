/*
 * run_log: what RUN/metrics.jsonl and RUN/sessions.jsonl hold, as lists of numbers over steps.
 *
 * Threading : single-owner.
 * Ownership : the log owns everything until run_log_close.
 * Untrusted : both files, and RUN/config.json. A line that does not parse, such as the last one of
 * a run that was killed, is counted and skipped. Where steps occur again, because a run was resumed
 * from an earlier one, the later ones count.
 */
#ifndef TOOLS_INSPECT_RUN_LOG_H
#define TOOLS_INSPECT_RUN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "formats/base/status.h"
#include "formats/json/json_reader.h"
#include "train/state/sample_state.h"

/* The names are those of metrics.jsonl. */
#define RUN_SERIES_LIST(X)                                                                         \
    X(EPOCH, NULL, "epoch")                                                                        \
    X(LOSS, NULL, "loss")                                                                          \
    X(GLOBAL_LOSS, NULL, "global_loss")                                                            \
    X(TAU, NULL, "tau")                                                                            \
    X(LR, NULL, "lr")                                                                              \
    X(ZETA_LR, NULL, "zeta_lr")                                                                    \
    X(GRAD_NORM, NULL, "grad_norm")                                                                \
    X(PAIRS_PER_S, NULL, "pairs_per_s")                                                            \
    X(STALL, NULL, "stall_fraction")                                                               \
    X(WAIT, NULL, "wait_fraction")                                                                 \
    X(REPLACED, NULL, "replaced")                                                                  \
    X(PEAK_RSS, NULL, "peak_rss_bytes")                                                            \
    X(DEVICE_BYTES, NULL, "device_bytes")                                                          \
    X(IMAGE_LOG_U, "batch", "image.log_u")                                                         \
    X(TEXT_LOG_U, "batch", "text.log_u")                                                           \
    X(IMAGE_ZETA, "batch", "image.zeta")                                                           \
    X(TEXT_ZETA, "batch", "text.zeta")                                                             \
    X(STAGE_ALL, "stages", "seconds")                                                              \
    X(STAGE_STEP, "stages", "step_s")                                                              \
    X(STAGE_LOAD, "stages", "load_s")                                                              \
    X(STAGE_RANKS, "stages", "ranks_s")                                                            \
    X(STAGE_EVALUATION, "stages", "evaluation_s")                                                  \
    X(STAGE_CHECKPOINT, "stages", "checkpoint_s")                                                  \
    X(READ_WAIT, "stages", "read_wait_fraction")                                                   \
    X(DECODE_WAIT, "stages", "decode_wait_fraction")                                               \
    X(DELIVER_WAIT, "stages", "deliver_wait_fraction")                                             \
    X(MEAN_R1, "retrieval", "mean_r1")                                                             \
    X(MEAN_R5, "retrieval", "mean_r5")                                                             \
    X(MEAN_R10, "retrieval", "mean_r10")                                                           \
    X(I2T_R1, "retrieval", "i2t_r1")                                                               \
    X(T2I_R1, "retrieval", "t2i_r1")                                                               \
    X(ZEROSHOT_TOP1, "zeroshot", "top1")                                                           \
    X(ZEROSHOT_TOP5, "zeroshot", "top5")                                                           \
    X(NN1, "features", "nn1")                                                                      \
    X(NN10, "features", "nn10")                                                                    \
    X(KNN, "features", "knn")                                                                      \
    X(PROBE, "features", "probe")

enum run_series {
#define X(id, object, name) RUN_##id,
    RUN_SERIES_LIST(X)
#undef X
        RUN_SERIES_COUNT
};

struct run_points {
    double *x, *y; /* (count): steps, ascending; values, all finite */
    size_t count, capacity;
};

/* How a column was distributed at one checkpoint. */
struct run_histogram {
    double step;
    double low, width;                /* bin i begins at low + i width */
    size_t count;                     /* of bins */
    double shares[SAMPLE_STATE_BINS]; /* of the entries that were visited, in percent */
};

/* One column of the state of samples, over checkpoints. */
struct run_column {
    char name[SAMPLE_STATE_NAME_BYTES];
    struct run_points visited, min, mean, max;
    struct run_histogram *histograms; /* (histogram_count) steps ascending */
    size_t histogram_count, histogram_capacity;
};

struct run_log {
    char path[PATH_MAX_BYTES]; /* RUN as given */
    const char *name;          /* in legends: the end of the path */
    double last_step;          /* of any line; NAN: none */
    struct run_points series[RUN_SERIES_COUNT];
    struct run_column columns[SAMPLE_STATE_MAX_COLUMNS];
    size_t column_count;
    size_t lines, unread_lines, first_unread; /* of metrics.jsonl; those that do not parse; the
                                                 first of them, from 1 */
    /* The first and the last line with examples of retrieval; NULL: none. */
    struct json_document *first_examples, *last_examples;
    struct json_document *config;    /* RUN/config.json; NULL: none that can be read */
    struct json_document *launch;    /* the last line of RUN/sessions.jsonl; NULL: none */
    struct json_document *nonfinite; /* RUN/nonfinite.json; NULL: none */
    struct byte_buffer launches;     /* that file */
    char last_time[32];              /* of the last line; "": none */
};

extern const char *const run_series_names[RUN_SERIES_COUNT];

/* RUN: a directory with config.json or metrics.jsonl, else NOTFOUND. A run without a step is not an
 * error. Returns OK, NOTFOUND, IO, NOMEM or LIMIT. */
enum status run_log_open(struct run_log **out, const char *run, struct error *err);
void run_log_close(struct run_log *r); /* accepts NULL */

/* Lengthens the names of runs that have the same, as those of a/run and b/run, to the left.
 * count: at most 32. */
void run_log_name_apart(struct run_log *const *runs, size_t count);

/* The last value of a list, or NAN. */
double run_log_last(const struct run_points *p);

/* The value of an option in RUN/config.json; NULL: not known. */
const struct json_value *run_log_option(const struct run_log *r, const char *name);

#endif
