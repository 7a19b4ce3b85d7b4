/*
 * live: the positions of a dataset that pass a filter: one bit each, and a count for every 512
 * bits, to find the k-th of them quickly. 1.125 bits a position. Or a list of positions.
 *
 * Threading : immutable after live_create.
 * Ownership : the object owns its bits.
 */
#ifndef LOADER_LIVE_INTERNAL_H
#define LOADER_LIVE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

struct live; /* opaque */

/* Calls `passes` for every position in order. Returns OK, NOMEM, or what `passes` returned. */
enum status live_create(
    struct live **out,
    uint64_t position_count,
    enum status (*passes)(void *cookie, uint64_t position, bool *is_live, struct error *err),
    void *cookie,
    struct error *err);
void live_destroy(struct live *l); /* accepts NULL */

/* `count` positions that ascend, each as often as it is in the list; 64 bits each. Takes the list,
 * from malloc, on failure too. Returns OK or NOMEM. */
enum status live_of_list(struct live **out, uint64_t *positions, uint64_t count, struct error *err);

uint64_t live_count(const struct live *l);

/* The position of live number k, from 0; requires k < live_count. */
uint64_t live_position(const struct live *l, uint64_t k);

#endif
