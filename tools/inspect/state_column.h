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

/* A dataset's range of ids in a checkpoint; in a mix each dataset has its own range. */
struct state_ids {
    uint32_t source; /* index of the dataset in the mix */
    uint64_t first, count;
};

/* `dataset`: its name in messages. Returns OK, or MISMATCH (not trained on this dataset). */
enum status state_ids_find(struct state_ids *out,
                           const struct checkpoint *c,
                           const struct manifest *m,
                           const char *dataset,
                           struct error *err);

struct state_column {
    const char *name;
    enum sample_state_kind kind;
    uint64_t ids;
    uint64_t count;        /* entries */
    const uint64_t *first; /* by caption: id i has entries [i] to [i + 1] - 1; NULL: one per id */
    void *values;          /* (count) */
};

/* Reads the column with this name ("image.zeta"), or the only one with it after the side ("zeta").
 * Returns OK, USAGE (no such column; the message lists them), IO, CORRUPT, LIMIT or NOMEM. */
enum status state_column_find(struct state_column *out,
                              const struct checkpoint *c,
                              const char *name,
                              struct error *err);

/* Reads column `index`. Returns END after the last, or as above. */
enum status state_column_read(struct state_column *out,
                              const struct checkpoint *c,
                              uint32_t index,
                              struct error *err);

/* NaN: no step has written it, or there is no such id. By caption: the mean over the id's written
 * entries. */
double state_column_value(const struct state_column *c, uint64_t id);
/* Entry i, or the entry of caption k of an id (by sample: the sample's). NaN as above. */
double state_column_entry(const struct state_column *c, uint64_t i);
double state_column_caption(const struct state_column *c, uint64_t id, uint32_t k);
/* Entries of an id by caption; 0: one entry by sample, or no such id. */
uint32_t state_column_captions(const struct state_column *c, uint64_t id);

void state_column_fini(struct state_column *c); /* accepts an all-zero one */

#endif
