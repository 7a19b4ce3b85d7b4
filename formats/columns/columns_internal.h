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
    COLUMN_TEXT_HEAD_BYTES = 12,   /* of a row in a frame: u64 id, u32 size */
};

uint32_t column_check(const void *row, size_t row_bytes, uint64_t id);

#endif
