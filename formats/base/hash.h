/*
 * hash: XXH64, the only non-cryptographic hash of the formats, over whole data or incrementally.
 *
 * Threading : a hasher has one owner. Values are those of the canonical XXH64 with seed 0.
 */
#ifndef FORMATS_BASE_HASH_H
#define FORMATS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

uint64_t hash64(const void *data, size_t size_bytes);

struct hasher; /* opaque */

enum status hasher_create(struct hasher **out, struct error *err);
void hasher_destroy(struct hasher *h); /* accepts NULL */
void hasher_reset(struct hasher *h);
void hasher_update(struct hasher *h, const void *data, size_t size_bytes);
uint64_t hasher_value(const struct hasher *h);

#endif
