/*
 * state: the position of a run, and whether a saved position belongs to this run.
 *
 * Threading : pure functions of fields that do not change while threads run.
 * Untrusted : the state.
 */
#ifndef LOADER_STATE_INTERNAL_H
#define LOADER_STATE_INTERNAL_H

#include "loader/loader.h"

struct pipeline; /* loader/pipeline_internal.h */

struct loader_state state_make(const struct pipeline *p, uint64_t global_step);

/* Returns OK, or MISMATCH with a message that names the difference. */
enum status state_to_step(const struct pipeline *p,
                          uint64_t *out_step,
                          const struct loader_state *state,
                          struct error *err);

#endif
