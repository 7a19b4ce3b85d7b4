/*
 * state: where a run stands, and whether a stored place belongs to this run.
 *
 * Threading : pure functions of what is fixed while threads run.
 * Untrusted : the state.
 */
#ifndef LOADER_STATE_INTERNAL_H
#define LOADER_STATE_INTERNAL_H

#include "loader/loader.h"

struct pipeline; /* loader/pipeline_internal.h */

struct loader_state state_make(const struct pipeline *p, uint64_t global_step);

/* Returns OK, or MISMATCH with what differs. */
enum status state_to_step(const struct pipeline *p,
                          uint64_t *out_step,
                          const struct loader_state *state,
                          struct error *err);

#endif
