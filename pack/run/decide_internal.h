/*
 * decide: makes the plan of a run from its options and what its directory holds.
 *
 * Threading : one owner.
 */
#ifndef PACK_RUN_DECIDE_INTERNAL_H
#define PACK_RUN_DECIDE_INTERNAL_H

#include "pack/run/plan_internal.h"

/* Looks at the directory and decides; changes nothing. Counts the rows of a part, and skips rows
 * that were packed before, which must still be the same. Requires options that pack_run has
 * checked. Returns OK, or as pack_run. */
enum status pack_plan_make(struct pack_plan *p,
                           const struct pack_options *opt,
                           pack_open_source *open_source,
                           struct error *err);
void pack_plan_fini(struct pack_plan *p); /* after pack_plan_make, whatever it returned */

#endif
