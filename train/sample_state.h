/*
 * sample_state: named f32 columns over the id space of a dataset: the numbers that global losses
 * keep for every single sample (running sums, zeta, its momentum).
 *
 * Threading : single-owner.
 * Ownership : the state owns its columns; pointers from sample_state_column live as long as it.
 * Size      : 4 bytes per id and column. Columns are addressed by sample id, never by position.
 */
#ifndef TRAIN_SAMPLE_STATE_H
#define TRAIN_SAMPLE_STATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct sample_state;

enum { SAMPLE_STATE_MAX_COLUMNS = 16, SAMPLE_STATE_NAME_BYTES = 48 };

/* The value of an entry that no step has written yet: a NaN, which no update ever stores. */
#define SAMPLE_STATE_UNVISITED ((float)NAN)

static inline bool sample_state_visited(float value) {
    return !isnan(value);
}

/* id_space_count: largest id + 1. Returns OK, NOMEM or INVALID. */
enum status
sample_state_create(struct sample_state **out, uint64_t id_space_count, struct error *err);
void sample_state_destroy(struct sample_state *s); /* accepts NULL */

/* Adds a column whose entries all hold `initial`. Returns OK, NOMEM, LIMIT (too many columns) or
 * EXISTS. */
enum status sample_state_add(struct sample_state *s,
                             const char *name,
                             float initial,
                             int32_t *out_column,
                             struct error *err);

uint64_t sample_state_id_space(const struct sample_state *s);
int32_t sample_state_count(const struct sample_state *s); /* of columns */
const char *sample_state_name(const struct sample_state *s, int32_t column);

/* (id_space) values, to save, load or look at. */
float *sample_state_column(const struct sample_state *s, int32_t column);

/* values (count) = column[ids]. Requires every id below the id space. */
void sample_state_gather(const struct sample_state *s,
                         int32_t column,
                         float *values,
                         const uint64_t *ids,
                         int64_t count);

/* column[ids] = values. Of equal ids the lowest position writes. */
void sample_state_scatter(struct sample_state *s,
                          int32_t column,
                          const float *values,
                          const uint64_t *ids,
                          int64_t count);

struct sample_state_summary {
    uint64_t visited_count; /* entries that are not NaN */
    double min, mean, max;  /* over them; 0 when there are none */
};

/* Of (count) values, as of a column or of a checkpoint's. */
struct sample_state_summary sample_state_summarise(const float *values, uint64_t count);

#endif
