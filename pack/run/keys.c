/*
 * The keys of the shard that is being filled. The committing thread adds to them and decides by
 * them; workers look first, so that a row whose key is taken gets its other key at once and its
 * frame need not be built a second time, one after the other, on the committing thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pack/pack_internal.h"

enum status pack_keys_init(struct pack_keys *k, struct error *err) {
    memset(k, 0, sizeof(*k));
    TRY(pack_map_create(&k->hashes, err));
    pthread_mutex_init(&k->mutex, NULL);
    return STATUS_OK;
}

void pack_keys_fini(struct pack_keys *k) {
    if (k->hashes) {
        pack_map_destroy(k->hashes);
        pthread_mutex_destroy(&k->mutex);
    }
    memset(k, 0, sizeof(*k));
}

bool pack_keys_has(struct pack_keys *k, uint64_t hash) {
    pthread_mutex_lock(&k->mutex);
    bool has = pack_map_get(k->hashes, hash) != PACK_MAP_NONE;
    pthread_mutex_unlock(&k->mutex);
    return has;
}

enum status pack_keys_add(struct pack_keys *k, uint64_t hash, struct error *err) {
    pthread_mutex_lock(&k->mutex);
    enum status s = pack_map_put(k->hashes, hash, 0, err);
    pthread_mutex_unlock(&k->mutex);
    return s;
}

enum status pack_keys_clear(struct pack_keys *k, struct error *err) {
    struct pack_map *empty = NULL;
    TRY(pack_map_create(&empty, err));
    pthread_mutex_lock(&k->mutex);
    struct pack_map *old = k->hashes;
    k->hashes = empty;
    pthread_mutex_unlock(&k->mutex);
    pack_map_destroy(old);
    return STATUS_OK;
}

void pack_other_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, uint64_t id, int attempt) {
    char end[32];
    int end_bytes = snprintf(end, sizeof(end), "-%" PRIu64 "%.*s", id, attempt, "----");
    size_t kept = strnlen(key, SHARD_MAX_KEY_BYTES - (size_t)end_bytes);
    memcpy(out, key, kept);
    memcpy(out + kept, end, (size_t)end_bytes + 1);
}
