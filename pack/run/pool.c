/*
 * Large buffers, passed on from row to row. A few at a time, so a search from end to end will do.
 */
#include <stdlib.h>
#include <string.h>

#include "pack/pack_internal.h"

enum status
pack_pool_init(struct pack_pool *p, size_t capacity, uint64_t max_bytes, struct error *err) {
    memset(p, 0, sizeof(*p));
    p->buffers = calloc(capacity, sizeof(*p->buffers));
    if (!p->buffers) {
        return error_set(err, STATUS_NOMEM, "out of memory for rows");
    }
    pthread_mutex_init(&p->mutex, NULL);
    p->capacity = capacity;
    p->max_bytes = max_bytes;
    return STATUS_OK;
}

void pack_pool_fini(struct pack_pool *p) {
    if (!p->buffers) {
        return;
    }
    for (size_t i = 0; i < p->count; i++) {
        byte_buffer_fini(&p->buffers[i]);
    }
    free(p->buffers);
    pthread_mutex_destroy(&p->mutex);
    memset(p, 0, sizeof(*p));
}

void pack_pool_take(struct pack_pool *p, struct byte_buffer *b, uint64_t bytes) {
    struct byte_buffer found = {0};
    if (bytes <= PACK_POOL_MIN_BYTES || b->capacity_bytes >= bytes) {
        return;
    }
    pthread_mutex_lock(&p->mutex);
    for (size_t i = p->count; i-- > 0 && !found.data;) {
        size_t has_bytes = p->buffers[i].capacity_bytes;
        if (has_bytes >= bytes && has_bytes <= 2 * bytes) {
            found = p->buffers[i];
            p->bytes -= has_bytes;
            p->buffers[i] = p->buffers[--p->count];
        }
    }
    pthread_mutex_unlock(&p->mutex);
    if (found.data) {
        found.max_bytes = b->max_bytes;
        found.size_bytes = 0;
        byte_buffer_fini(b);
        *b = found;
    }
}

static void give(struct pack_pool *p, struct byte_buffer *b) {
    if (b->capacity_bytes <= PACK_POOL_MIN_BYTES) {
        return;
    }
    struct byte_buffer old = *b;
    byte_buffer_init(b, old.max_bytes);
    pthread_mutex_lock(&p->mutex);
    if (p->count < p->capacity && old.capacity_bytes <= p->max_bytes - p->bytes) {
        p->bytes += old.capacity_bytes;
        p->buffers[p->count++] = old;
        old.data = NULL;
    }
    pthread_mutex_unlock(&p->mutex);
    free(old.data);
}

void pack_pool_give(struct pack_pool *p, struct pack_item *item) {
    give(p, &item->row.image);
    give(p, &item->row.text);
    give(p, &item->row.json);
    give(p, &item->resized);
    give(p, &item->frame.bytes);
    give(p, &item->frame.texts);
}
