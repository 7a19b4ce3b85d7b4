/*
 * The buffers of a row that is being packed.
 */
#include "pack/run/item_internal.h"

#include <string.h>

void pack_item_init(struct pack_item *item) {
    memset(item, 0, sizeof(*item));
    source_row_init(&item->row);
    byte_buffer_init(&item->resized, SOURCE_MAX_IMAGE_BYTES);
}

void pack_item_fini(struct pack_item *item) {
    source_row_fini(&item->row);
    byte_buffer_fini(&item->resized);
    shard_frame_fini(&item->frame);
}

void pack_item_trim(struct pack_item *item) {
    struct byte_buffer *const buffers[] = {&item->row.image,   &item->row.text,
                                           &item->row.json,    &item->resized,
                                           &item->frame.bytes, &item->frame.texts};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffers[i]->capacity_bytes > PACK_KEPT_BYTES) {
            byte_buffer_fini(buffers[i]);
        }
    }
}
