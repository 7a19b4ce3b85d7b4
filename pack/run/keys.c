/*
 * The keys of the current shard are kept as 64-bit hashes. If two keys had the same hash, the
 * second one would get its id without need. Workers choose keys too, because building frames again
 * is the most expensive thing that the committing thread could have to do.
 */
#include "pack/run/keys_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/hash.h"
#include "pack/run/metadata_internal.h"

enum status pack_keys_init(struct pack_keys *k, struct error *err) {
    memset(k, 0, sizeof(*k));
    TRY(hash_map_create(&k->hashes, err));
    pthread_mutex_init(&k->mutex, NULL);
    return STATUS_OK;
}

void pack_keys_fini(struct pack_keys *k) {
    if (k->hashes) {
        hash_map_destroy(k->hashes);
        pthread_mutex_destroy(&k->mutex);
    }
    memset(k, 0, sizeof(*k));
}

void pack_keys_make(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, uint64_t id, int attempt) {
    char end[32] = "";
    if (attempt > 0) {
        snprintf(end, sizeof(end), "-%" PRIu64 "%.*s", id, attempt - 1, "----");
    }
    shard_safe_key(out, key, strlen(key));
    size_t kept = strnlen(out, SHARD_MAX_KEY_BYTES - strlen(end));
    strcpy(out + kept, end);
}

/* Whether the key stored for this one lacks more of it than separators. */
static bool loses_bytes(const char *key) {
    size_t n = 0;
    while (key[n] >= ' ' && key[n] <= '~') {
        n++;
    }
    return key[n] != '\0' || n > SHARD_MAX_KEY_BYTES;
}

enum status pack_keys_keep(struct source_row *row, struct json_writer *w, struct error *err) {
    return loses_bytes(row->key) ? pack_metadata_add(row, "key", row->key, w, err) : STATUS_OK;
}

static bool is_taken(struct pack_keys *k, const char *key) {
    pthread_mutex_lock(&k->mutex);
    bool taken = hash_map_get(k->hashes, hash64(key, strlen(key))) != HASH_MAP_NONE;
    pthread_mutex_unlock(&k->mutex);
    return taken;
}

void pack_keys_unique(struct pack_keys *k,
                      char out[SHARD_MAX_KEY_BYTES + 1],
                      const char *key,
                      uint64_t id) {
    int attempt = 0;
    pack_keys_make(out, key, id, attempt);
    while (k && attempt < PACK_KEYS_LAST && is_taken(k, out)) {
        pack_keys_make(out, key, id, ++attempt);
    }
}

bool pack_keys_choose(struct pack_keys *k, struct pack_item *item) {
    char key[SHARD_MAX_KEY_BYTES + 1];
    pack_keys_unique(k, key, item->row.key, item->id);
    bool changed = strcmp(item->key, key) != 0;
    strcpy(item->key, key);
    item->sample.key = item->key;
    return changed;
}

enum status pack_keys_add(struct pack_keys *k, const struct shard_frame *frame, struct error *err) {
    pthread_mutex_lock(&k->mutex);
    enum status s = hash_map_put(k->hashes, frame->key_hash, 0, err);
    pthread_mutex_unlock(&k->mutex);
    return s;
}

enum status pack_keys_clear(struct pack_keys *k, struct error *err) {
    struct hash_map *empty = NULL;
    TRY(hash_map_create(&empty, err));
    pthread_mutex_lock(&k->mutex);
    struct hash_map *old = k->hashes;
    k->hashes = empty;
    pthread_mutex_unlock(&k->mutex);
    hash_map_destroy(old);
    return STATUS_OK;
}
