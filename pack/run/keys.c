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
#include "formats/json/json_reader.h"

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

/* Whether the row's JSON takes a member "key". *count: of its members now. */
static bool takes_key(const struct source_row *row, size_t *count) {
    struct json_document *document = NULL;
    *count = 0;
    if (row->json.size_bytes == 0) {
        return true;
    }
    if (json_document_parse(&document, ".json", row->json.data, row->json.size_bytes, NULL) !=
        STATUS_OK) {
        return false;
    }
    const struct json_value *root = json_document_root(document);
    bool takes = json_value_is_object(root) && !json_value_get(root, "key");
    *count = json_value_count(root);
    json_document_destroy(document);
    return takes;
}

enum status pack_keys_keep(struct source_row *row, struct json_writer *w, struct error *err) {
    size_t count = 0;
    if (!loses_bytes(row->key) || !takes_key(row, &count)) {
        return STATUS_OK;
    }
    struct byte_buffer *json = &row->json;
    const uint8_t *brace = json->size_bytes > 0 ? memchr(json->data, '{', json->size_bytes) : NULL;
    size_t at = brace ? (size_t)(brace - json->data) : 0;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_string(w, "key", row->key);
    json_close_object(w);
    TRY(json_writer_status(w, err));
    /* Replaces the brace by the object without its closing brace, or with it where there is none.
     */
    size_t added = w->out.size_bytes - (brace ? 2 : 0) + (count > 0);
    enum status s = byte_buffer_reserve(json, added, NULL);
    if (s != STATUS_OK) {
        return s == STATUS_LIMIT ? STATUS_OK : error_set(err, s, "out of memory for a key");
    }
    memmove(json->data + at + added, json->data + at, json->size_bytes - at);
    memcpy(json->data + at, w->out.data, w->out.size_bytes - (brace ? 1 : 0));
    if (count > 0) {
        json->data[at + added] = ',';
    }
    json->size_bytes += added;
    return STATUS_OK;
}

static bool is_taken(struct pack_keys *k, const char *key) {
    pthread_mutex_lock(&k->mutex);
    bool taken = pack_map_get(k->hashes, hash64(key, strlen(key))) != PACK_MAP_NONE;
    pthread_mutex_unlock(&k->mutex);
    return taken;
}

bool pack_keys_choose(struct pack_keys *k, struct pack_item *item) {
    char key[SHARD_MAX_KEY_BYTES + 1];
    int attempt = 0;
    pack_keys_make(key, item->row.key, item->id, attempt);
    while (k && attempt < PACK_KEYS_LAST && is_taken(k, key)) {
        pack_keys_make(key, item->row.key, item->id, ++attempt);
    }
    bool changed = strcmp(item->key, key) != 0;
    strcpy(item->key, key);
    item->sample.key = item->key;
    return changed;
}

enum status pack_keys_add(struct pack_keys *k, const struct shard_frame *frame, struct error *err) {
    pthread_mutex_lock(&k->mutex);
    enum status s = pack_map_put(k->hashes, frame->key_hash, 0, err);
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
