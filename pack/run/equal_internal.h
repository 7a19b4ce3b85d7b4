/*
 * equal: with --dedup exact, captions of rows whose image an earlier row has go to that row. All
 * sources are read once before the run to find them, because the earlier row's shard may be
 * finished when the later row is read.
 *
 * Threading : made by the caller's thread before the others start; then only read.
 * Memory    : 22 bytes for each image, and the captions of the later rows, at most 1 GiB.
 */
#ifndef PACK_RUN_EQUAL_INTERNAL_H
#define PACK_RUN_EQUAL_INTERNAL_H

#include "pack/run/plan_internal.h"

struct pack_equal; /* opaque */

/* Reads the sources, up to the first that is standard input or is damaged; rows after that are not
 * looked at. Returns OK, INTERRUPTED, NOMEM or LIMIT. On failure *out is to be destroyed too. */
enum status pack_equal_find(struct pack_equal **out, struct pack_plan *p, struct error *err);
void pack_equal_destroy(struct pack_equal *e); /* accepts NULL */

/* Adds to a loaded row the captions of later rows with its image: those that it has not, as long
 * as it has room. Accepts NULL. Returns OK or NOMEM. */
enum status pack_equal_add(const struct pack_equal *e,
                           size_t source,
                           struct source_row *row,
                           struct error *err);

#endif
