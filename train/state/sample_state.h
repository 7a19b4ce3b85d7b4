/*
 * sample_state: per-sample state: named columns over the id space of a dataset, which global losses
 * keep (moving averages u, zeta, its gradient's average, a chain's state, visit counts).
 *
 * With W ranks, rank r holds the entries of ids with id mod W = r, at index id / W. A step copies
 * its batch's entries to every rank (the window), and every rank makes the same changes there:
 *
 *   begin_batch(ids) --> window (count), of every column --> end_batch
 *                        all ranks compute the same          each rank stores what it holds
 *
 * Columns begin in host memory. After sample_state_place a device's kernels access them too: steps
 * then change the device's copy, and the host's is out of date until sample_state_fetch.
 *
 * Threading : single-owner. With several ranks, the functions marked "collective" are called by all
 *             of them, in the same order.
 * Ownership : the state owns its columns; pointers from sample_state_column live as long as it,
 *             or until sample_state_place. A state is destroyed before the device it is placed on.
 * Size      : on each rank 4 bytes per f32 column and 8 per u64 column for each of its ids, which
 *             are one in W.
 */
#ifndef TRAIN_STATE_SAMPLE_STATE_H
#define TRAIN_STATE_SAMPLE_STATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct comm;
struct device;
struct sample_state;

enum { SAMPLE_STATE_MAX_COLUMNS = 64, SAMPLE_STATE_NAME_BYTES = 48 };

/* The value of an entry that no step has written yet: NaN, which no update stores. */
#define SAMPLE_STATE_UNVISITED ((float)NAN)

static inline bool sample_state_visited(float value) {
    return !isnan(value);
}

enum sample_state_kind {
    SAMPLE_STATE_F32,   /* a number; NaN: unvisited */
    SAMPLE_STATE_COUNT, /* u64, a count; 0: unvisited */
    SAMPLE_STATE_ID,    /* u64, another sample's id; SAMPLE_STATE_NO_ID: none */
};

enum sample_state_place {
    SAMPLE_STATE_HOST,   /* in host memory only */
    SAMPLE_STATE_DEVICE, /* in the device's memory, with a copy in host memory */
    SAMPLE_STATE_PINNED, /* in page-locked host memory that kernels access */
};

/* No dataset has this id: its id space would not fit in a u64. */
#define SAMPLE_STATE_NO_ID UINT64_MAX

/* id_space_count: largest id + 1. comm: the ranks that divide the entries, borrowed until destroy;
 * NULL: one rank. Returns OK, NOMEM or INVALID. */
enum status sample_state_create(struct sample_state **out,
                                uint64_t id_space_count,
                                struct comm *comm,
                                struct error *err);
void sample_state_destroy(struct sample_state *s); /* accepts NULL */

/* Adds a column whose entries are `initial` if f32, else 0 or SAMPLE_STATE_NO_ID by kind. Returns
 * OK, NOMEM, LIMIT (too many columns) or EXISTS. */
enum status sample_state_add(struct sample_state *s,
                             const char *name,
                             enum sample_state_kind kind,
                             float initial,
                             int32_t *out_column,
                             struct error *err);

struct comm *sample_state_comm(const struct sample_state *s); /* NULL: one rank */
uint64_t sample_state_id_space(const struct sample_state *s);
int32_t sample_state_count(const struct sample_state *s); /* of columns */
const char *sample_state_name(const struct sample_state *s, int32_t column);

enum sample_state_kind sample_state_kind(const struct sample_state *s, int32_t column);
float sample_state_initial(const struct sample_state *s, int32_t column); /* of an f32 column */
size_t sample_state_bytes(const struct sample_state *s); /* of all columns, on this rank */

/* -1: no column has this name. */
int32_t sample_state_find(const struct sample_state *s, const char *name);

/* This rank's entries (all ids if there is one rank), as f32, u64 or bytes. */
float *sample_state_column(const struct sample_state *s, int32_t column);
uint64_t *sample_state_column_u64(const struct sample_state *s, int32_t column);
void *sample_state_values(const struct sample_state *s, int32_t column, size_t *size_bytes);

/* ---- columns on a device ---- */

/* DEVICE if all columns fit in a tenth of its free memory, else PINNED. Requires dev->losses.
 * Returns OK or DEVICE. */
enum status sample_state_choose_place(enum sample_state_place *out,
                                      const struct sample_state *s,
                                      struct device *dev,
                                      struct error *err);

/* Moves every column, with its values, to memory that dev's kernels access. Requires dev->losses;
 * dev is borrowed until destroy. Once only, after the last column was added; not HOST. Returns OK,
 * NOMEM or DEVICE; after a failure to allocate the state is unchanged. */
enum status sample_state_place(struct sample_state *s,
                               struct device *dev,
                               enum sample_state_place place,
                               struct error *err);

enum sample_state_place sample_state_where(const struct sample_state *s);

/* A column's address for kernels; NULL before sample_state_place. */
void *sample_state_on_device(const struct sample_state *s, int32_t column);

/* Copy all columns to the device after the host changed them, and back before the host reads them.
 * Both wait, and do nothing if columns are only on the host. Return OK or DEVICE. */
enum status sample_state_send(struct sample_state *s, struct error *err);
enum status sample_state_fetch(struct sample_state *s, struct error *err);

/* ---- the window: the entries of one batch, on the host ---- */

/* Allocates memory for batches of up to max_count ids. Once only, after the last column was added.
 * Returns OK or NOMEM. */
enum status sample_state_reserve(struct sample_state *s, int64_t max_count, struct error *err);

/* Copies every column's entries of these ids to the window, bit-exactly. The ids are distinct and
 * below id_space_count. Collective, with the same ids on all ranks; one comm_merge for all columns.
 * Returns OK or what comm_merge returns. */
enum status sample_state_begin_batch(struct sample_state *s,
                                     const uint64_t *ids,
                                     int64_t count,
                                     struct error *err);

/* (count) entries of a column, in the order of the batch's ids; to be read and changed until the
 * batch ends. */
float *sample_state_window(const struct sample_state *s, int32_t column);
uint64_t *sample_state_window_u64(const struct sample_state *s, int32_t column);

/* The largest number in an f32 column with the window's changes, ignoring NaN; -inf if there is
 * none. Collective, within a batch. A failure is returned by sample_state_end_batch. */
double sample_state_largest(struct sample_state *s, int32_t column);

/* Stores the window. Returns OK, or the failure of sample_state_largest in this batch: then nothing
 * is stored. */
enum status sample_state_end_batch(struct sample_state *s, struct error *err);

/* ---- whole columns, in id order ---- */

/* Maximum ids of one piece, if a column is divided among ranks. */
enum { SAMPLE_STATE_PIECE_IDS = 1 << 18 };

/* Size of the `room` that sample_state_piece needs; 0: none. */
size_t sample_state_piece_bytes(const struct sample_state *s);

/* Reads a column in pieces, so that no rank holds a whole one: *values has the *count entries from
 * id `first` on, in id order, in `room` or in the column itself. first: 0, then the sum of the
 * previous counts. Collective. Returns OK or what comm_gather returns. */
enum status sample_state_piece(const struct sample_state *s,
                               int32_t column,
                               uint64_t first,
                               void *room,
                               const void **values,
                               uint64_t *count,
                               struct error *err);

/* Stores those of the (count) values, for ids from `first` on, whose ids this rank holds. */
void sample_state_put(struct sample_state *s,
                      int32_t column,
                      uint64_t first,
                      const void *values,
                      uint64_t count);

enum { SAMPLE_STATE_BINS = 48 };
struct sample_state_summary {
    uint64_t visited_count;              /* entries that a step has written */
    double min, mean, max;               /* over them; 0 if there are none */
    double deviation;                    /* population standard deviation of the visited entries */
    uint64_t at_min_count, at_max_count; /* entries that equal min, max */
    double sum, origin, squares; /* sum of values; first value; sum of squared distances from it */
    /* Histogram of the finite ones: bin i counts those in [(first + i) width, (first + i + 1)
     * width), bin 0 has the smallest. width is the smallest power of two, at least 2^-40 (for
     * integers 1), for which the bins suffice: it does not depend on their order. */
    uint64_t bins[SAMPLE_STATE_BINS];
    double first, width; /* width 0: there are none */
};

/* Adds (count) values, f32 or u64 by kind, of a column or a checkpoint; *sum begins with zeros.
 * Adding in pieces or at once is bit-identical. */
void sample_state_summarise(struct sample_state_summary *sum,
                            const void *values,
                            enum sample_state_kind kind,
                            uint64_t count);

/* Entry i of such values; false: no step has written it. */
bool sample_state_entry(const void *values, enum sample_state_kind kind, uint64_t i, double *out);

/* Fills `to` from `from` (both with the same columns): sample i gets the entries of old_ids[i], or
 * keeps its initial values if that is SAMPLE_STATE_NO_ID. Ids stored in columns are renumbered; ids
 * without a new one become SAMPLE_STATE_NO_ID. `to` may be divided among ranks, each of which fills
 * its part; `from` is whole on each. old_ids: (id space of `to`), below the id space of `from`.
 * Returns OK or NOMEM. */
enum status sample_state_remap(struct sample_state *to,
                               const struct sample_state *from,
                               const uint64_t *old_ids,
                               struct error *err);

#endif
