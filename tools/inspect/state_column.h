/*
 * state_column: the per-sample columns of a checkpoint, and which of their entries belong to a
 * dataset.
 *
 * Threading : single-owner.
 * Ownership : a column owns its numbers until fini; its name belongs to the checkpoint.
 * Untrusted : the checkpoint.
 */
#ifndef TOOLS_INSPECT_STATE_COLUMN_H
#define TOOLS_INSPECT_STATE_COLUMN_H

#include "formats/dataset/manifest.h"
#include "train/run/checkpoint.h"

/* The ids of a dataset in a checkpoint, which in a mix has those of other datasets before them. */
struct state_ids {
    uint32_t source; /* number of the dataset in the mix */
    uint64_t first, count;
};

/* `dataset`: its name in messages. Returns OK, or MISMATCH for a checkpoint of other datasets. */
enum status state_ids_find(struct state_ids *out,
                           const struct checkpoint *c,
                           const struct manifest *m,
                           const char *dataset,
                           struct error *err);

struct state_column {
    const char *name;
    enum sample_state_kind kind;
    uint64_t ids;
    uint64_t count; /* entries */
    const uint64_t
        *first;   /* those of id i are [i] to [i + 1] - 1, one for each caption; NULL: one */
    void *values; /* (count) */
};

/* Reads the column of this name ("image.zeta"), or the only one that has it after its side
 * ("zeta"). Returns OK, USAGE (there is none, the message lists those that there are), IO, CORRUPT,
 * LIMIT or NOMEM. */
enum status state_column_find(struct state_column *out,
                              const struct checkpoint *c,
                              const char *name,
                              struct error *err);

/* Reads column `index`. Returns END after the last, or as above. */
enum status state_column_read(struct state_column *out,
                              const struct checkpoint *c,
                              uint32_t index,
                              struct error *err);

/* NaN: no step has written it, or there is no such id. By caption the mean over the captions of the
 * id that have one. */
double state_column_value(const struct state_column *c, uint64_t id);
/* The same of entry i, or of caption k of an id (by sample, whichever caption). */
double state_column_entry(const struct state_column *c, uint64_t i);
double state_column_caption(const struct state_column *c, uint64_t id, uint32_t k);
/* Captions of an id that have entries; 0: it has one entry for all, or there is no such id. */
uint32_t state_column_captions(const struct state_column *c, uint64_t id);

void state_column_fini(struct state_column *c); /* accepts an all-zero one */

#endif
