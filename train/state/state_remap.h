/*
 * state_remap: finds the samples of new datasets in old ones: those with the same image bytes, by
 * the hashes in the indexes.
 *
 * Threading : none of its own.
 */
#ifndef TRAIN_STATE_STATE_REMAP_H
#define TRAIN_STATE_STATE_REMAP_H

#include <stdint.h>

#include "formats/dataset/dataset.h"
#include "train/state/sample_state.h"

struct state_remap_counts {
    uint64_t matched_count;   /* samples of the new datasets that the old ones have */
    uint64_t unmatched_count; /* that the old ones lack */
    uint64_t forgotten_count; /* samples only in the old datasets */
};

/* A dataset, whose sample ids in the state are its own and id_offset. */
struct state_remap_data {
    const struct dataset *dataset;
    uint64_t id_offset;
};

/* Fills old_ids (id_space_count, that of `now`) for sample_state_remap: the id in `before` of the
 * sample with the same image, the lowest if there are several; SAMPLE_STATE_NO_ID if there is none.
 * Returns OK, NOMEM or CORRUPT (an index record is damaged). */
enum status state_remap_ids(uint64_t *old_ids,
                            uint64_t id_space_count,
                            struct state_remap_counts *counts,
                            const struct state_remap_data *now,
                            uint32_t now_count,
                            const struct state_remap_data *before,
                            uint32_t before_count,
                            struct error *err);

#endif
