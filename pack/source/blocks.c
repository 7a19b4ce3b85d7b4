/*
 * A file in blocks of 1 MiB: large enough that the calls cost nothing, small enough for any number
 * of open sources.
 */
#include "pack/source/blocks_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

enum status source_blocks_open(struct source_blocks *b, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    *b = (struct source_blocks){.block = malloc(BLOCK_BYTES)};
    TRY_MEMORY(b->block, err, "%s: out of memory for a block of it", path);
    enum status s = fs->open(fs->context, &b->file, path, FILE_READ, err);
    THEN(s, fs->size(b->file, &b->size_bytes, err));
    THEN(s, source_blocks_rewind(b, err));
    if (s != STATUS_OK) {
        source_blocks_close(b);
    }
    return s;
}

void source_blocks_close(struct source_blocks *b) {
    file_posix()->close(b->file);
    free(b->block);
    *b = (struct source_blocks){0};
}

enum status source_blocks_rewind(struct source_blocks *b, struct error *err) {
    b->offset = 0;
    b->got = 0;
    b->at = 0;
    TRY(source_blocks_fill(b, err));
    if (b->got >= 3 && memcmp(b->block, "\xEF\xBB\xBF", 3) == 0) {
        b->at = 3;
    }
    return STATUS_OK;
}

enum status source_blocks_fill(struct source_blocks *b, struct error *err) {
    if (b->at < b->got) {
        return STATUS_OK;
    }
    b->offset += b->got;
    b->at = 0;
    b->got = 0;
    TRY(file_posix()->pread(b->file, b->block, &b->got, BLOCK_BYTES, b->offset, err));
    return b->got > 0 ? STATUS_OK : STATUS_END;
}

void source_blocks_seek(struct source_blocks *b, uint64_t offset) {
    if (offset < b->offset) { /* read again by the next source_blocks_fill */
        b->offset = offset;
        b->got = 0;
    }
    b->at = (size_t)(offset - b->offset);
}

uint64_t source_blocks_position(const struct source_blocks *b) {
    return b->offset + b->at;
}
