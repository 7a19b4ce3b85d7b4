/*
 * names: unique and safe file names made from the keys of samples.
 *
 * Threading : single-owner.
 * Ownership : the caller's storage; names_fini releases what it points at.
 * Untrusted : keys. A name holds 1 to SHARD_MAX_KEY_BYTES printable ASCII characters without space,
 *             dot, slash or backslash, so it cannot lead out of a folder.
 */
#ifndef TOOLS_CCDUMP_NAMES_H
#define TOOLS_CCDUMP_NAMES_H

#include <stdint.h>

#include "formats/base/hash_map.h"
#include "formats/base/status.h"
#include "formats/shard/shard.h"

struct names {
    struct hash_map *taken; /* by the hashes of names; NULL: none yet */
};

void names_fini(struct names *n); /* accepts an all-zero one */

/* The name of the sample with this key and id: the key, or if that is in use the key and the id.
 * Returns OK or NOMEM. */
enum status names_take(struct names *n,
                       char out[SHARD_MAX_KEY_BYTES + 1],
                       const char *key,
                       uint64_t id,
                       struct error *err);

#endif
