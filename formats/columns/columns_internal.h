/*
 * columns_internal: the layout, for what reads and writes columns.
 */
#ifndef FORMATS_COLUMNS_COLUMNS_INTERNAL_H
#define FORMATS_COLUMNS_COLUMNS_INTERNAL_H

#include "formats/columns/columns.h"
#include "formats/shard/zstd_codec_internal.h"

#define COLUMN_MAGIC "CCCOLUMN"

enum {
    COLUMN_TRAILER_BYTES = 32,
    COLUMN_MAX_INFO_BYTES = 1 << 20,
    COLUMN_FRAME_ENTRY_BYTES = 16, /* u64 offset in the data, u64 first row */
    COLUMN_FRAME_ROWS = 64,        /* a frame ends with this row, */
    COLUMN_FRAME_BYTES = 16 << 10, /* or when it has so many bytes */
    COLUMN_FRAME_CHECK_BYTES = 4,  /* a frame's first bytes, see column_frame_check */
    /* The head of a row of captions: their number, and which arrays follow it. */
    COLUMN_HAS_WEIGHTS = 0x8000,
    COLUMN_HAS_SOURCES = 0x4000,
};

uint32_t column_check(const void *row, size_t row_bytes, uint64_t id);
/* Of the (count) u64 ids of a frame's rows. */
uint32_t column_frame_check(const uint8_t *ids, size_t count);

/* A row of texts in a frame, up to the byte 0 at its end. False: there is no whole one. */
bool column_take_row(struct cursor *c, int kind, const uint8_t **row, size_t *row_bytes);

#endif
