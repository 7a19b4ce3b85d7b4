/*
 * shard_writer: writes samples to shards in two steps. A pure function builds the frame of one
 * sample, on any number of worker threads; a writer appends frames to a file in the order of its
 * calls. Equal samples in equal order give equal bytes.
 *
 *     worker:  shard_frame_build(builder, frame, sample)        compress, hash
 *     writer:  shard_writer_open
 *              shard_writer_fits / shard_writer_add(frame) ...  append, remember the record
 *              shard_writer_finish                              index, seek table, fsync, rename
 *
 * Threading : a builder, a frame and a writer have one owner each; distinct ones are independent.
 * Ownership : arguments of build and add are borrowed for the call only.
 * Order     : any order of ids; readers see them by id. Nothing stored depends on time, host or
 *             path.
 */
#ifndef FORMATS_SHARD_SHARD_WRITER_H
#define FORMATS_SHARD_SHARD_WRITER_H

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/shard/shard.h"

enum {
    SHARD_LEVEL_MIN = 1,
    SHARD_LEVEL_MAX = 19,
    SHARD_LEVEL_DEFAULT = 3,
};

/* One sample from a source. */
struct shard_sample {
    uint64_t sample_id; /* at most SHARD_MAX_ID */
    const char *key;    /* shard_key_is_valid, unique in the shard */
    const void *image;
    size_t image_bytes;
    enum image_format format;
    uint32_t width_px, height_px; /* at most 65535; 0 when unknown */
    uint32_t flags;               /* SHARD_FLAG_... */
    int32_t label;                /* SHARD_NO_LABEL, or at least 0 */
    const struct shard_text *captions;
    size_t caption_count;
    struct shard_text json; /* data NULL: none; else at least 1 byte */
};

/* The bytes of one sample and its future index record; filled by shard_frame_build, read by
 * shard_writer_add. The image is not copied: it must stay valid until the frame has been added.
 * Zero-initialise; reuse keeps the memory. */
struct shard_frame {
    enum shard_container container;
    struct byte_buffer bytes;   /* the zstd frame, or the tar members, without the image's span */
    size_t image_at;            /* where the span belongs in them */
    const uint8_t *image;       /* borrowed */
    struct byte_buffer texts;   /* captions end to end */
    struct byte_buffer sizes;   /* u32 of each caption */
    struct shard_record record; /* offsets count from the frame's start */
    uint32_t content_bytes;     /* uncompressed size of its tar members */
    uint32_t content_check;     /* low half of XXH64 of them */
    uint64_t key_hash;
};

void shard_frame_fini(struct shard_frame *f); /* accepts an all-zero one */

struct sample_view; /* formats/shard/shard_reader.h */

/* A sample that was read, for writing it again with the same id and bytes. Borrows what the view
 * borrows. */
struct shard_sample shard_sample_of(const struct sample_view *v);

/* The sample's tar members as every container holds them: `out` becomes headers, bodies and
 * padding, a multiple of 512 bytes, without the end of the archive. Returns OK, INVALID (the key),
 * CORRUPT (a text is not UTF-8), LIMIT or NOMEM. */
enum status
shard_sample_tar(struct byte_buffer *out, const struct shard_sample *sample, struct error *err);

struct shard_frame_builder; /* a compressor and its memory: one per worker */

/* `container` is the container of the writer that will receive the frames, not tar-foreign. `level`
 * is the zstd level; no effect in container tar. Requires SHARD_LEVEL_MIN <= level <=
 * SHARD_LEVEL_MAX. Returns OK or NOMEM. */
enum status shard_frame_builder_create(struct shard_frame_builder **out,
                                       enum shard_container container,
                                       int level,
                                       struct error *err);
void shard_frame_builder_destroy(struct shard_frame_builder *b); /* accepts NULL */

/* Returns OK; LIMIT for a sample beyond the limits of formats/shard/shard.h; CORRUPT for captions
 * or JSON that are not UTF-8; INVALID for a key, flag or label that breaks the contract; NOMEM. The
 * message names the sample. */
enum status shard_frame_build(struct shard_frame_builder *b,
                              struct shard_frame *out,
                              const struct shard_sample *sample,
                              struct error *err);

/* Consecutive bytes of the frame, as stored in the file. */
struct shard_piece {
    const uint8_t *data; /* of the frame, or of `header` below */
    size_t size_bytes;   /* may be 0 */
    uint8_t header[SHARD_BLOCK_HEADER_BYTES];
};

/* Piece i of a complete frame, from 0; false after the last. */
bool shard_frame_piece(const struct shard_frame *f, size_t i, struct shard_piece *out);

struct shard_writer; /* opaque */

/* Begins DIRECTORY/NAME-number.tar.zst, or .tar, under its temporary name (an old one is replaced).
 * `level` is the zstd level of the captions in the index. Requires shard_name_is_valid(name),
 * number <= 999999, and container and level as above. Returns OK, IO, NOTFOUND, LIMIT or NOMEM. */
enum status shard_writer_open(struct shard_writer **out,
                              const struct file_system *fs,
                              const char *directory,
                              const char *name,
                              uint32_t number,
                              enum shard_container container,
                              int level,
                              struct error *err);

/* Whether one more frame stays within the format's limits; if not, the shard must be finished. */
bool shard_writer_fits(const struct shard_writer *w, const struct shard_frame *f);

/* Appends a frame of the writer's container. Returns OK; EXISTS when the id or the key is in the
 * shard already (a repeated id may also be found by finish); LIMIT if the shard is full; IO or
 * NOMEM, after which only close may be called. */
enum status
shard_writer_add(struct shard_writer *w, const struct shard_frame *f, struct error *err);

uint32_t shard_writer_sample_count(const struct shard_writer *w);
uint64_t shard_writer_data_bytes(const struct shard_writer *w); /* all frames so far */
/* Size of the captions so far, which stay in memory until finish. */
uint64_t shard_writer_caption_bytes(const struct shard_writer *w);

/* Writes the tail, publishes the shard and its sidecar index under their final names, and fills the
 * summary. Requires at least one sample. Returns OK, EXISTS (a repeated id), LIMIT, IO or NOMEM.
 * Afterwards only close may be called. */
enum status
shard_writer_finish(struct shard_writer *w, struct shard_summary *out, struct error *err);

/* Removes the temporary file of a shard that was not finished. Accepts NULL. */
void shard_writer_close(struct shard_writer *w);

#endif
