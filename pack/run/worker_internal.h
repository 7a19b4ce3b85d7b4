/*
 * worker: what is done with one row on any thread.
 *
 * Threading : one owner.
 * Ownership : borrows the options, the budget and the keys.
 */
#ifndef PACK_RUN_WORKER_INTERNAL_H
#define PACK_RUN_WORKER_INTERNAL_H

#include "pack/pack.h"
#include "pack/run/budget_internal.h"
#include "pack/run/keys_internal.h"

struct pack_worker;

struct dedup;

/* `keys` NULL: every row keeps its own key. `dedup` NULL: its own captions. Returns OK or NOMEM. */
enum status pack_worker_create(struct pack_worker **out,
                               const struct pack_options *opt,
                               struct pack_budget *budget,
                               struct pack_keys *keys,
                               const struct dedup *dedup,
                               struct error *err);
void pack_worker_destroy(struct pack_worker *w); /* accepts NULL */

/* Loads the row, checks and resizes its image, and fills item->sample, all but key, id and label.
 * A row that cannot be used gets its reason. Returns OK or NOMEM. */
enum status pack_worker_check(struct pack_worker *w, struct pack_item *item, struct error *err);

/* The same, and builds the frame. Any failure is in item->status. */
void pack_worker_run(struct pack_worker *w, struct pack_item *item);

#endif
