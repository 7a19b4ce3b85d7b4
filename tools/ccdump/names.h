/*
 * names: unique and safe file names from sample keys.
 *
 * Threading : single-owner.
 * Ownership : the caller's storage; names_fini frees its memory.
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
    struct hash_map *taken; /* hashes of used names; NULL: none yet */
};

void names_fini(struct names *n); /* accepts an all-zero one */

/* A sample's name: its key, or if that is in use key and id. Returns OK or NOMEM. */
enum status names_take(struct names *n,
                       char out[SHARD_MAX_KEY_BYTES + 1],
                       const char *key,
                       uint64_t id,
                       struct error *err);

#endif
