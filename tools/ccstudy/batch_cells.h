/*
 * batch_cells: what runs over a grid of methods and batches found, one line of text per run, and
 * what follows from them: the tuned setting of each method and batch, and its recall over seeds.
 *
 *     # SETTINGS                 what all runs share; other lines that begin with # are comments
 *     METHOD BATCH TAU RATE GAMMA SEED V1 V5 V10 T1 T5 T10 [GCL]
 *
 * V and T: R@1, R@5 and R@10 in percent, means of both directions, on validation and test pairs.
 * GCL: the global loss at TAU over all training pairs (train/eval/objective.h). GAMMA 0: a method
 * without one. Seed 0 tunes: the setting with the highest mean of V counts, and
 * its runs with other seeds are the result.
 *
 * Threading : single-owner.
 * Ownership : the list owns its cells until batch_cells_fini.
 * Untrusted : the file.
 */
#ifndef TOOLS_CCSTUDY_BATCH_CELLS_H
#define TOOLS_CCSTUDY_BATCH_CELLS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum batch_method {
    BATCH_CLIP,
    BATCH_SOGCLR,
    BATCH_SOGCLR_FORGETS, /* gamma 1: its moving averages are those of the batch */
    BATCH_NUCLR_FROZEN,   /* zeta stays */
    BATCH_NUCLR_FIXED,    /* zeta moves at 5e-6, the rate of CC3M */
    BATCH_NUCLR_AUTO,     /* zeta moves as far as on CC3M */
    BATCH_METHODS
};

extern const char *const batch_method_names[BATCH_METHODS];

enum { BATCH_RECALLS = 3 }; /* R@1, R@5, R@10 */

/* Percent, each the mean of both directions. */
struct batch_recall {
    double at[BATCH_RECALLS];
};

/* The mean of R@1, R@5 and R@10: a sixth of what the field calls rSum. */
double batch_recall_mean(const struct batch_recall *r);

struct batch_cell {
    enum batch_method method;
    uint32_t batch;
    double tau, rate, gamma;
    uint32_t seed;
    struct batch_recall validation, test;
    double gcl; /* NaN: not measured */
};

enum { BATCH_SETTINGS_BYTES = 384 };

struct batch_cells {
    struct batch_cell *items;
    size_t count, capacity;
    char settings[BATCH_SETTINGS_BYTES]; /* the first line without "# "; may be empty */
};

/* Reads a file that exists. Returns OK, NOTFOUND, IO, NOMEM, LIMIT or CORRUPT (a line that is none,
 * with its number). On failure nothing is left to free. */
enum status batch_cells_read(struct batch_cells *c, const char *path, struct error *err);

/* Replaces the file atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status batch_cells_write(const struct batch_cells *c, const char *path, struct error *err);
void batch_cells_fini(struct batch_cells *c); /* accepts an all-zero one */

/* Returns OK or NOMEM. */
enum status
batch_cells_add(struct batch_cells *c, const struct batch_cell *cell, struct error *err);

/* The run with the same method, batch, tau, rate, gamma and seed; NULL: none. */
const struct batch_cell *batch_cells_find(const struct batch_cells *c,
                                          const struct batch_cell *like);

/* The run of seed 0 that is best on validation pairs, the first of equal ones, among those of one
 * temperature or (tau 0) of all; NULL: none. */
const struct batch_cell *batch_cells_tuned(const struct batch_cells *c,
                                           enum batch_method method,
                                           uint32_t batch,
                                           double tau);

/* The run of seed 0 with this temperature whose gcl is lowest; NULL: none has one. */
const struct batch_cell *batch_cells_fitted(const struct batch_cells *c,
                                            enum batch_method method,
                                            uint32_t batch,
                                            double tau);

/* A mean over seeds, and its standard error; NaN where there are too few. */
struct batch_mean {
    double mean, error;
};
struct batch_mean batch_mean_of(const double *values, size_t count);

enum { BATCH_MAX_BATCHES = 16, BATCH_MAX_TAUS = 16 };

struct batch_row {
    const struct batch_cell *tuned; /* borrowed from the list */
    uint32_t batch;
    enum batch_method method;
    size_t seeds;
    struct batch_mean recall;            /* of batch_recall_mean on test pairs */
    struct batch_mean at[BATCH_RECALLS]; /* of R@1, R@5, R@10 */
    struct batch_mean over_clip;         /* of the difference from clip's with the same seed */
};

struct batch_table {
    uint32_t batches[BATCH_MAX_BATCHES]; /* ascending */
    size_t batch_count;
    double taus[BATCH_MAX_TAUS]; /* ascending, of all runs */
    size_t tau_count;
    struct batch_row rows[BATCH_METHODS][BATCH_MAX_BATCHES]; /* seeds 0: there is none */
};

/* Returns OK or LIMIT (more than BATCH_MAX_BATCHES batches or BATCH_MAX_TAUS temperatures). */
enum status batch_table_make(struct batch_table *t, const struct batch_cells *c, struct error *err);

#endif
