/*
 * id_set: the ids that a writer has used.
 *
 * Threading : one owner.
 */
#ifndef PACK_WRITER_ID_SET_INTERNAL_H
#define PACK_WRITER_ID_SET_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "pack/run/map_internal.h"

struct pack_id_range {
    uint64_t first, end; /* end: the first id after it */
};

/* All zero: empty. */
struct pack_id_set {
    struct pack_id_range *ranges; /* ascending */
    size_t count, capacity;
    uint64_t end;            /* greater than every id in the ranges */
    struct pack_map *others; /* ids that were added after a greater one; NULL: none */
};

void pack_id_set_fini(struct pack_id_set *s);
bool pack_id_set_has(const struct pack_id_set *s, uint64_t id);

/* Adds the ids from `first` to `end` - 1, none of which it has; one id, or all beyond the others.
 * Returns OK, NOMEM or LIMIT. */
enum status pack_id_set_add(struct pack_id_set *s, uint64_t first, uint64_t end, struct error *err);

#endif
