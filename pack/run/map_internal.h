/*
 * map: u64 to u64, for a number per sample of a large dataset: 19 to 24 bytes an entry.
 *
 * Threading : one owner.
 */
#ifndef PACK_RUN_MAP_INTERNAL_H
#define PACK_RUN_MAP_INTERNAL_H

#include <stdint.h>

#include "formats/base/status.h"

#define PACK_MAP_NONE UINT64_MAX /* no value */

struct pack_map;

enum status pack_map_create(struct pack_map **out, struct error *err); /* OK or NOMEM */
void pack_map_destroy(struct pack_map *m);                             /* accepts NULL */
uint64_t pack_map_get(const struct pack_map *m, uint64_t key); /* PACK_MAP_NONE: not there */

/* Requires a value other than PACK_MAP_NONE. Returns OK, NOMEM or LIMIT. */
enum status pack_map_put(struct pack_map *m, uint64_t key, uint64_t value, struct error *err);

#endif
