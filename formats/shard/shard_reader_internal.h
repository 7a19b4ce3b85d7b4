/*
 * shard_reader_internal: the reader's inside, which the check of a whole shard also needs.
 */
#ifndef FORMATS_SHARD_SHARD_READER_INTERNAL_H
#define FORMATS_SHARD_SHARD_READER_INTERNAL_H

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"

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
    struct byte_buffer frame;   /* the last zstd frame as it is in the file */
    struct byte_buffer content; /* the tar members of the last sample */
    char key[SHARD_MAX_KEY_BYTES + 1];
    struct shard_text *captions;
    size_t captions_capacity;
};

/* CORRUPT, with the sample's id and place. */
enum status shard_sample_bad(const struct shard_reader *r,
                             const struct shard_record *record,
                             const char *what,
                             struct error *err);

/* Room for so many in r->captions. Returns OK or NOMEM. */
enum status
shard_sample_reserve_captions(struct shard_reader *r, uint32_t count, struct error *err);

/* Fills the view of sample `index` from the members of a user's tar in r->content and the captions
 * of the index. Returns OK, CORRUPT or NOMEM. */
enum status shard_foreign_take(struct shard_reader *r,
                               uint32_t index,
                               struct sample_view *v,
                               struct error *err);

/* XXH64 of a whole file. `progress` as in struct shard_verify. */
enum status shard_file_hash(const struct file_system *fs,
                            struct file *f,
                            const char *path,
                            uint64_t *out,
                            bool (*progress)(void *cookie, uint64_t bytes),
                            void *cookie,
                            struct error *err);

#endif
