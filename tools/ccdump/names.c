/*
 * Only hashes of names are stored. If two names have the same hash, the second gets the id appended
 * although the key alone was free, which is harmless.
 */
#include "tools/ccdump/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/hash.h"

void names_fini(struct names *n) {
    hash_map_destroy(n->taken);
    n->taken = NULL;
}

/* Keeps the end of a long key, in which names differ. */
static void make_safe(char out[SHARD_MAX_KEY_BYTES + 1], const char *key) {
    size_t size_bytes = strlen(key);
    if (size_bytes > SHARD_MAX_KEY_BYTES) {
        key += size_bytes - SHARD_MAX_KEY_BYTES;
        size_bytes = SHARD_MAX_KEY_BYTES;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        char c = key[i];
        bool good = c > ' ' && c < 0x7F && c != '.' && c != '/' && c != '\\';
        out[i] = good ? c : '_';
    }
    if (size_bytes == 0) {
        out[size_bytes++] = '_';
    }
    out[size_bytes] = '\0';
}

enum status names_take(struct names *n,
                       char out[SHARD_MAX_KEY_BYTES + 1],
                       const char *key,
                       uint64_t id,
                       struct error *err) {
    char safe[SHARD_MAX_KEY_BYTES + 1];
    uint64_t hash;
    TRY(n->taken ? STATUS_OK : hash_map_create(&n->taken, err));
    make_safe(safe, key);
    strcpy(out, safe);
    for (int attempt = 0; hash_map_get(n->taken, hash = hash64(out, strlen(out))) != HASH_MAP_NONE;
         attempt++) {
        char end[32];
        int end_bytes = snprintf(end, sizeof(end), "-%" PRIu64, id);
        if (attempt > 0) {
            end_bytes = snprintf(end, sizeof(end), "-%" PRIu64 "-%d", id, attempt);
        }
        snprintf(out, SHARD_MAX_KEY_BYTES + 1, "%.*s%s", SHARD_MAX_KEY_BYTES - end_bytes, safe,
                 end);
    }
    return hash_map_put(n->taken, hash, 0, err);
}
