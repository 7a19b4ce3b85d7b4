/*
 * source_blocks: a file of text read from front to back in blocks, for sources of any size.
 *
 * Threading : single-owner.
 * Ownership : the reader owns the file and the block until source_blocks_close.
 */
#ifndef PACK_SOURCE_BLOCKS_INTERNAL_H
#define PACK_SOURCE_BLOCKS_INTERNAL_H

#include "formats/base/file_io.h"

struct source_blocks {
    struct file *file;
    uint8_t *block; /* the last `got` bytes read, from `offset` in the file */
    size_t got, at; /* at: the next byte to take */
    uint64_t offset;
    uint64_t size_bytes; /* of the file */
};

/* Opens the file and skips a byte order mark. Returns OK, NOTFOUND, IO or NOMEM. */
enum status source_blocks_open(struct source_blocks *b, const char *path, struct error *err);
void source_blocks_close(struct source_blocks *b); /* accepts a zeroed one */

/* Returns to the start, after a byte order mark. Returns OK or IO. */
enum status source_blocks_rewind(struct source_blocks *b, struct error *err);

/* Reads the next block if all bytes are taken, so that block[at] is valid. Returns OK, END or IO.
 */
enum status source_blocks_fill(struct source_blocks *b, struct error *err);

/* Moves to a byte that was taken before. */
void source_blocks_seek(struct source_blocks *b, uint64_t offset);

/* Bytes taken so far. */
uint64_t source_blocks_position(const struct source_blocks *b);

#endif
