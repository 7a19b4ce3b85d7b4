/*
 * why_internal: everything known about one sample of a run; why.c collects it, why_show.c prints
 * it.
 *
 * Threading : single-owner.
 * Ownership : struct why owns its arrays; the input and the checkpoint are borrowed.
 */
#ifndef TOOLS_CCDUMP_WHY_INTERNAL_H
#define TOOLS_CCDUMP_WHY_INTERNAL_H

#include "loader/sampler.h"
#include "tools/ccdump/ccdump_internal.h"
#include "train/run/checkpoint.h"

enum {
    WHY_MAX_NEAR = 100,
    WHY_MAX_COLUMNS = 64,
    WHY_MAX_VISITS = 1 << 16,
    WHY_NEXT = 3,
    WHY_REASON_BYTES = 240,
};

/* A column of the run's per-sample state, for the sample. */
struct why_column {
    const char *name; /* borrowed from the checkpoint */
    bool visited;     /* a step has written it */
    double value;
    uint64_t below; /* visited samples with a smaller value */
    uint64_t count; /* visited samples */
    /* By caption, `value` is the mean of these: (caption_count); NaN: not visited. Else NULL. */
    double *captions;
    uint32_t caption_count;
};

struct why_near {
    uint64_t id;      /* in the dataset */
    uint32_t caption; /* for texts: its number in the sample */
    double value;     /* zeta, or cosine similarity */
    double closeness; /* larger is nearer */
};

/* Nearest first, or the reason why there are none. */
struct why_list {
    struct why_near items[WHY_MAX_NEAR];
    size_t count, capacity;
    char none[WHY_REASON_BYTES];
};

struct why {
    const char *run, *dataset;
    struct input *input;
    const struct checkpoint *checkpoint;
    uint64_t id;
    uint64_t run_id;              /* in the run: in a mix, ids follow those of earlier datasets */
    struct sampler_visit *visits; /* (visit_count), ascending; then next_count future ones */
    size_t visit_count, next_count;
    char no_visits[WHY_REASON_BYTES]; /* why steps, or the first ones, cannot be computed; "": all
                                         were computed */
    uint64_t steps_per_epoch, steps_done;
    struct why_column columns[WHY_MAX_COLUMNS];
    size_t column_count;
    const char *zeta_name; /* column that sorts `zeta` */
    struct why_list zeta, images, texts;
};

enum status why_print(const struct why *w, bool json, struct error *err);
enum status why_write_page(const struct why *w, const char *path, struct error *err);

#endif
