/*
 * keys: the key that a sample is stored under, unique in its shard. It is the first of
 *
 *     KEY   KEY-ID   KEY-ID-   KEY-ID--   KEY-ID---   KEY-ID----
 *
 * that no earlier sample of the shard has, where KEY is the source's key with every byte that a
 * shard does not allow replaced by '_', only its end when it is too long.
 *
 * The committing thread decides. A worker calls the same function earlier, and may be wrong where a
 * shard ends or a row of the same key is on its way; then the frame is built a second time.
 *
 * Threading : internally synchronised.
 */
#ifndef PACK_RUN_KEYS_INTERNAL_H
#define PACK_RUN_KEYS_INTERNAL_H

#include <pthread.h>

#include "formats/base/hash_map.h"
#include "formats/base/json_writer.h"
#include "pack/run/item_internal.h"

struct pack_keys {
    pthread_mutex_t mutex;
    struct hash_map *hashes; /* guarded by mutex: of the keys in the shard that is being filled */
};

enum status pack_keys_init(struct pack_keys *k, struct error *err);
void pack_keys_fini(struct pack_keys *k); /* accepts an all-zero one */

/* out: the key of a sample that is called `key` in its source. */
void pack_keys_unique(struct pack_keys *k,
                      char out[SHARD_MAX_KEY_BYTES + 1],
                      const char *key,
                      uint64_t id);

/* Sets item->key, and item->sample.key to it. Returns whether that changed it. `k` NULL: every row
 * gets KEY. */
bool pack_keys_choose(struct pack_keys *k, struct pack_item *item);

/* Adds the key of a frame that has been stored; the committing thread only, as clear. */
enum status pack_keys_add(struct pack_keys *k, const struct shard_frame *frame, struct error *err);

/* The next shard begins. */
enum status pack_keys_clear(struct pack_keys *k, struct error *err);

/* If KEY lacks more of the source's key than separators (space . / \), puts the source's key into
 * the row's JSON as "key", see pack_metadata_add. `w` is workspace. Returns OK or NOMEM. */
enum status pack_keys_keep(struct source_row *row, struct json_writer *w, struct error *err);

/* Choice number `attempt` of KEY and ID. KEY keeps only as much of its beginning as has room.
 * Requires attempt <= PACK_KEYS_LAST. */
enum { PACK_KEYS_LAST = 5 };
void pack_keys_make(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, uint64_t id, int attempt);

#endif
