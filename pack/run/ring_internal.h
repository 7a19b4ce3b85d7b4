/*
 * ring: the threads of a run, and the ring of slots in which they hand rows over.
 */
#ifndef PACK_RUN_RING_INTERNAL_H
#define PACK_RUN_RING_INTERNAL_H

#include "pack/run/commit_internal.h"

/* Reads, builds and commits the rows from plan->point to plan->end, on threads that it has joined
 * when it returns. */
enum status pack_ring_run(struct pack_commit *c, struct error *err);

#endif
