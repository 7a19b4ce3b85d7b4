/*
 * item: a row that is being packed.
 *
 * Threading : one owner at a time: the reader fills `row`, a worker builds the frame, the
 *             committing thread stores it.
 */
#ifndef PACK_RUN_ITEM_INTERNAL_H
#define PACK_RUN_ITEM_INTERNAL_H

#include "formats/shard/shard_writer.h"
#include "pack/source/source.h"

struct pack_item {
    size_t source; /* index in options.sources */
    uint64_t id;
    uint64_t position_bytes;       /* in the source, after this row was read */
    struct source_ignored ignored; /* members ignored in the sources before */
    uint64_t content;              /* source_content after this row */
    struct source_place place;     /* likewise */
    size_t class_count;            /* classes of this source and those before */
    int32_t label;
    struct source_row row;
    struct byte_buffer resized; /* the new JPEG, where there is one */
    uint64_t phash;             /* of the image, with options.phash */
    struct shard_frame frame;
    char key[SHARD_MAX_KEY_BYTES + 1]; /* the key that the frame stores */
    struct shard_sample sample;        /* borrows from key, row, resized and captions */
    struct shard_text captions[SOURCE_MAX_CAPTIONS];
    enum status status; /* of the worker; anything but OK ends the run */
    struct error error;
};

void pack_item_init(struct pack_item *item);
void pack_item_fini(struct pack_item *item);

enum { PACK_KEPT_BYTES = 64 << 10 };

/* Frees buffers that are larger than PACK_KEPT_BYTES. The others are reused for the next row. */
void pack_item_trim(struct pack_item *item);

#endif
