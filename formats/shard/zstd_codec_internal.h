/*
 * zstd_codec: compresses whole frames and single blocks, and decompresses whole frames. Only its .c
 * file includes zstd.
 *
 * Threading : a packer or unpacker has one owner; distinct ones are independent.
 * Ownership : create/destroy; all bytes are the caller's.
 * Untrusted : what is opened. A frame gives exactly the size the caller has made room for, or
 *             CORRUPT; its checksum is verified.
 * Repeats   : the same input and level give the same bytes, however a packer was used before.
 */
#ifndef FORMATS_SHARD_ZSTD_CODEC_INTERNAL_H
#define FORMATS_SHARD_ZSTD_CODEC_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/status.h"

struct zstd_packer;
struct zstd_unpacker;

/* Returns OK, NOMEM or INVALID (a level that zstd does not have). */
enum status zstd_packer_create(struct zstd_packer **out, int level, struct error *err);
void zstd_packer_destroy(struct zstd_packer *p); /* accepts NULL */

/* Appends a frame with content size and checksum. Returns OK, NOMEM or LIMIT. */
enum status zstd_packer_frame(struct zstd_packer *p,
                              struct byte_buffer *out,
                              const void *data,
                              size_t size_bytes,
                              struct error *err);

/* Appends the content of one compressed block, without its header, that stands for `data` when it
 * is the first block of a frame. *block_bytes 0: it would not be smaller, or not be one block, and
 * nothing was appended. Requires size_bytes <= 128 KiB. Returns OK, NOMEM or LIMIT. */
enum status zstd_packer_block(struct zstd_packer *p,
                              struct byte_buffer *out,
                              size_t *block_bytes,
                              const void *data,
                              size_t size_bytes,
                              struct error *err);

enum status zstd_unpacker_create(struct zstd_unpacker **out, struct error *err);
void zstd_unpacker_destroy(struct zstd_unpacker *u); /* accepts NULL */

/* False when the frame does not begin with a header that says its content's size. */
bool zstd_content_size(const void *frame, size_t frame_bytes, uint64_t *out);

/* Decompresses exactly one frame of frame_bytes into exactly size_bytes. Returns OK, or CORRUPT
 * with zstd's reason appended to `name`, which may say where the frame is. */
enum status zstd_unpack(struct zstd_unpacker *u,
                        void *out,
                        size_t size_bytes,
                        const void *frame,
                        size_t frame_bytes,
                        const char *name,
                        struct error *err);

/* Decompresses the beginning of a frame, of which only frame_bytes may be there. Returns how many
 * bytes came out, up to size_bytes; fewer where the frame ends or is damaged. */
size_t zstd_unpack_begin(struct zstd_unpacker *u,
                         void *out,
                         size_t size_bytes,
                         const void *frame,
                         size_t frame_bytes);

#endif
