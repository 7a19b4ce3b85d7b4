/*
 * shard_foreign: builds the index of a user's tar, so that the tar can be read in place as a shard
 * of container tar-foreign. Samples are added as found in the tar; the result is the index file, to
 * be written next to the tar under the name of shard_index_name.
 *
 * Threading : one owner at a time; distinct ones are independent.
 * Ownership : arguments of add are borrowed for the call only.
 * Untrusted : the tar members of a sample: they are parsed as by every reader, and refused if a
 *             reader would not find what the index records.
 */
#ifndef FORMATS_SHARD_SHARD_FOREIGN_H
#define FORMATS_SHARD_SHARD_FOREIGN_H

#include "formats/shard/shard_writer.h"

struct shard_foreign; /* opaque */

/* `name` is the tar's file name, for messages and the summary; `level` zstd's, of the captions.
 * Requires shard_name_is_valid(name) and a level as shard_writer_open has it. Returns OK or NOMEM.
 */
enum status
shard_foreign_create(struct shard_foreign **out, const char *name, int level, struct error *err);
void shard_foreign_destroy(struct shard_foreign *x); /* accepts NULL */

/* Where a sample is in its tar. */
struct shard_foreign_place {
    uint64_t offset;       /* of its first member's header, or of a header that precedes it */
    const void *members;   /* (size_bytes) from there to the end of its last member's padding */
    size_t size_bytes;     /* at most SHARD_MAX_FRAME_BYTES */
    uint64_t image_offset; /* in the tar: of the image's first byte */
};

/* Adds a sample; hashes and captions come from `frame`, which was built of it in any container. Ids
 * may come in any order. Returns OK; CORRUPT if its members cannot be read in place or the image is
 * missing (the caller may continue without this sample); LIMIT if there are too many samples or
 * bytes; NOMEM. */
enum status shard_foreign_add(struct shard_foreign *x,
                              const struct shard_frame *frame,
                              const struct shard_foreign_place *place,
                              struct error *err);

uint32_t shard_foreign_sample_count(const struct shard_foreign *x);

/* Writes the index to `out` (initialised by this call) and fills the manifest's summary of the tar.
 * Adds `add_to_ids` to every id. Requires at least one sample. Returns OK, EXISTS (an id twice),
 * LIMIT or NOMEM; afterwards `x` is only good for destroy. */
enum status shard_foreign_finish(struct shard_foreign *x,
                                 struct byte_buffer *out,
                                 struct shard_summary *summary,
                                 uint64_t file_bytes,
                                 uint64_t file_hash,
                                 uint64_t add_to_ids,
                                 struct error *err);

#endif
