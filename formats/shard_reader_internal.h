/*
 * shard_reader_internal: the reader's inside, which the check of a whole shard also needs.
 */
#ifndef FORMATS_SHARD_READER_INTERNAL_H
#define FORMATS_SHARD_READER_INTERNAL_H

#include "formats/shard_internal.h"
#include "formats/shard_reader.h"

struct shard_reader {
    const struct file_system *fs;
    struct file *file;
    char path[PATH_MAX_BYTES];
    uint64_t file_bytes;
    uint64_t index_offset;
    uint32_t index_bytes;
    uint8_t *index_data;
    struct shard_index index;
    struct caption_chunk chunk;
    struct byte_buffer frame;   /* the last frame as it is in the file */
    struct byte_buffer content; /* the tar members in it */
    char key[SHARD_MAX_KEY_BYTES + 1];
    struct shard_text *captions;
    size_t captions_capacity;
};

/* XXH64 of a whole file. `progress` as in struct shard_verify. */
enum status shard_file_hash(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t *out,
                            bool (*progress)(void *cookie, uint64_t bytes),
                            void *cookie,
                            struct error *err);

#endif
