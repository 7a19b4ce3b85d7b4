/*
 * hash_map: u64 to u64, for a number per sample of a large dataset: 19 to 24 bytes an entry.
 *
 * Threading : one owner.
 */
#ifndef FORMATS_BASE_HASH_MAP_H
#define FORMATS_BASE_HASH_MAP_H

#include <stdint.h>

#include "formats/base/status.h"

#define HASH_MAP_NONE UINT64_MAX /* no value */

struct hash_map;

enum status hash_map_create(struct hash_map **out, struct error *err); /* OK or NOMEM */
void hash_map_destroy(struct hash_map *m);                             /* accepts NULL */
uint64_t hash_map_get(const struct hash_map *m, uint64_t key); /* HASH_MAP_NONE: not there */

/* Requires a value other than HASH_MAP_NONE. Returns OK, NOMEM or LIMIT. */
enum status hash_map_put(struct hash_map *m, uint64_t key, uint64_t value, struct error *err);

#endif
