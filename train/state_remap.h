/*
 * state_remap: which samples of another dataset are those of this one: the same image bytes, by the
 * hashes in the indexes.
 *
 * Threading : none of its own.
 */
#ifndef TRAIN_STATE_REMAP_H
#define TRAIN_STATE_REMAP_H

#include <stdint.h>

#include "formats/dataset.h"
#include "train/sample_state.h"

struct state_remap_counts {
    uint64_t matched_count;   /* samples of the new dataset that the old one has */
    uint64_t unmatched_count; /* that it has not */
    uint64_t forgotten_count; /* samples of the old dataset that the new one has not */
};

/* Fills old_ids (id space of `now`) for sample_state_remap: the id in `before` of the sample with
 * the same image, the lowest where there are several; SAMPLE_STATE_NO_ID without one. Returns OK,
 * NOMEM or CORRUPT (an index record is damaged). */
enum status state_remap_ids(uint64_t *old_ids,
                            struct state_remap_counts *counts,
                            const struct dataset *now,
                            const struct dataset *before,
                            struct error *err);

#endif
