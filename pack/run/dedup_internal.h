/*
 * dedup: with --dedup exact, captions of rows whose image an earlier row has go to that row. All
 * sources are read once before the run to find them, because the earlier row's shard may be
 * finished when the later row is read.
 *
 * Threading : made by the caller's thread before the others start; then only read.
 * Memory    : 22 bytes for each image, and the captions of the later rows, at most 1 GiB.
 */
#ifndef PACK_RUN_DEDUP_INTERNAL_H
#define PACK_RUN_DEDUP_INTERNAL_H

#include "pack/run/plan_internal.h"

struct dedup; /* opaque */

/* Reads the sources, up to the first that is standard input or is damaged; rows after that are not
 * looked at. Returns OK, INTERRUPTED, NOMEM or LIMIT. On failure *out is to be destroyed too. */
enum status dedup_find(struct dedup **out, struct pack_plan *p, struct error *err);
void dedup_destroy(struct dedup *e); /* accepts NULL */

/* Adds to a loaded row the captions of later rows with its image: those that it has not, as long
 * as it has room. Accepts NULL. Returns OK or NOMEM. */
enum status
dedup_add(const struct dedup *e, size_t source, struct source_row *row, struct error *err);

#endif
