/*
 * Names are remembered only by their hashes. If two names share a hash, the second gets the id
 * appended although the bare key was free, which does no harm.
 */
#include "tools/ccdump/names.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"

enum { FIRST_CAPACITY = 1024 };

void names_fini(struct names *n) {
    free(n->hashes);
    memset(n, 0, sizeof(*n));
}

static bool insert(uint64_t *hashes, size_t capacity, uint64_t hash) {
    size_t at = (size_t)hash & (capacity - 1);
    while (hashes[at] != 0 && hashes[at] != hash) {
        at = (at + 1) & (capacity - 1);
    }
    bool fresh = hashes[at] == 0;
    hashes[at] = hash;
    return fresh;
}

static enum status grow(struct names *n, struct error *err) {
    size_t capacity = n->capacity > 0 ? 2 * n->capacity : FIRST_CAPACITY;
    uint64_t *hashes = calloc(capacity, sizeof(*hashes));
    TRY_MEMORY(hashes, err, "out of memory for %zu names", n->used);
    for (size_t i = 0; i < n->capacity; i++) {
        if (n->hashes[i] != 0) {
            insert(hashes, capacity, n->hashes[i]);
        }
    }
    free(n->hashes);
    n->hashes = hashes;
    n->capacity = capacity;
    return STATUS_OK;
}

/* Takes the name; whether it was free. */
static bool take(struct names *n, const char *name) {
    uint64_t hash = hash64(name, strlen(name));
    bool fresh = insert(n->hashes, n->capacity, hash != 0 ? hash : 1);
    n->used += fresh;
    return fresh;
}

/* Keeps the end of a long key, where names differ. */
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
    if (n->used >= n->capacity / 2) {
        TRY(grow(n, err));
    }
    make_safe(safe, key);
    strcpy(out, safe);
    for (int attempt = 0; !take(n, out); attempt++) {
        char end[32];
        int end_bytes = snprintf(end, sizeof(end), "-%" PRIu64, id);
        if (attempt > 0) {
            end_bytes = snprintf(end, sizeof(end), "-%" PRIu64 "-%d", id, attempt);
        }
        snprintf(out, SHARD_MAX_KEY_BYTES + 1, "%.*s%s", SHARD_MAX_KEY_BYTES - end_bytes, safe,
                 end);
    }
    return STATUS_OK;
}
