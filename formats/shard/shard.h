/*
 * shard: definitions shared by the writer and the readers of shards: limits, the record of one
 * sample, and the layout of an image in the file. formats/SHARD_FORMAT.md specifies the bytes.
 *
 * Threading : pure functions.
 * Untrusted : the bytes given to shard_image_compact.
 */
#ifndef FORMATS_SHARD_SHARD_H
#define FORMATS_SHARD_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/image/image_codec.h"

#define SHARD_INDEX_EXTENSION ".cci"

#define SHARD_MAX_ID ((uint64_t)INT64_MAX - 1) /* so that every JSON reader can hold a count */

enum {
    SHARD_VERSION = 1,
    SHARD_MAX_SAMPLES = 1 << 20,              /* of one shard */
    SHARD_MAX_IMAGE_BYTES = 256 << 20,        /* of one image; at least 1 */
    SHARD_MAX_CAPTIONS = 1024,                /* of one sample; may be 0 */
    SHARD_MAX_TEXT_BYTES = 256 << 10,         /* of all captions of one sample together */
    SHARD_MAX_JSON_BYTES = 4 << 20,           /* of one sample */
    SHARD_MAX_KEY_BYTES = 80,                 /* at least 1 */
    SHARD_MAX_CAPTION_COLUMN_BYTES = 1 << 30, /* all captions of a shard, uncompressed */
    SHARD_MAX_NAME_BYTES = 200,               /* of a dataset's NAME and of a shard's file name */
    SHARD_MAX_ETAG_BYTES = 79,
    SHARD_MAX_FRAME_BYTES = SHARD_MAX_IMAGE_BYTES + (16 << 20), /* of all of a sample in the file */
    SHARD_BLOCK_BYTES = 128 << 10, /* each block of an image of this size follows a header */
    SHARD_BLOCK_HEADER_BYTES = 3,
};

/* How the samples lie in the file. Stored: never renumbered. */
enum shard_container {
    SHARD_CONTAINER_TAR_ZSTD = 1,    /* a zstd frame per sample, tar inside */
    SHARD_CONTAINER_TAR = 2,         /* the same tar, uncompressed */
    SHARD_CONTAINER_TAR_FOREIGN = 3, /* a user's tar, only read; its index is a file next to it */
};

/* "tar.zst", "tar", "tar-foreign"; "unknown" */
const char *shard_container_name(enum shard_container c);

/* Advice to append to the message that a file has changed: "; index it again", or "". */
const char *shard_container_changed(enum shard_container c);

/* False for a name that is none of these. */
bool shard_container_of_name(enum shard_container *out, const char *name);

/* struct shard_record.flags. Stored: never renumbered; other bits must be zero. */
enum {
    SHARD_FLAG_REENCODED = 1, /* encoded by the packer; clear: the source's bytes, unchanged */
    SHARD_FLAG_UNCHECKED = 2, /* the image was not decoded when it was packed */
    SHARD_FLAG_LAST_DOT = 4,  /* tar-foreign: the key of its tar members ends at the last dot */
    SHARD_FLAGS_ALL = 7,
};

enum { SHARD_NO_LABEL = -1 };

/* The index record of one sample. */
struct shard_record {
    uint64_t sample_id;
    uint64_t frame_offset; /* in the shard */
    uint64_t image_offset; /* in the shard: the first byte of the image */
    uint64_t image_hash;   /* XXH64 of the image */
    uint64_t caption_hash; /* XXH64 over the captions, see shard_caption_hash */
    uint32_t frame_bytes;
    uint32_t image_bytes;
    uint32_t first_text; /* captions of the samples before it in the shard, by id */
    uint32_t text_count;
    uint32_t width_px, height_px; /* upright; 0: unknown */
    enum image_format format;
    uint32_t flags;
    int32_t label; /* class of the sample, SHARD_NO_LABEL when it has none */
};

/* A caption: UTF-8, not NUL-terminated, may be empty. */
struct shard_text {
    const char *data;
    size_t size_bytes;
};

/* XXH64 over (u32 size, bytes) of each caption in order. Requires each size below 2^32. Returns OK
 * or NOMEM. */
enum status shard_caption_hash(uint64_t *out,
                               const struct shard_text *captions,
                               size_t caption_count,
                               struct error *err);

/* 1 to SHARD_MAX_KEY_BYTES bytes of printable ASCII without space . / and \ */
bool shard_key_is_valid(const char *key);

/* Converts a source's key to one that a shard can hold: every invalid byte becomes '_', and of a
 * long key only the end is kept. */
void shard_safe_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, size_t size_bytes);

/* 1 to SHARD_MAX_NAME_BYTES bytes of letters, digits, _ - + and inner dots. */
bool shard_name_is_valid(const char *name);

/* "NAME-000042.tar.zst" or "NAME-000042.tar". Requires a container that is written (not a foreign
 * one). Returns OK or LIMIT. */
enum status shard_file_name(char *out,
                            size_t out_size_bytes,
                            const char *name,
                            uint32_t number,
                            enum shard_container container,
                            struct error *err);

/* "NAME-000042.cci" for either container; appended if the name ends in neither .tar.zst nor .tar.
 * Returns OK or LIMIT. */
enum status
shard_index_name(char *out, size_t out_size_bytes, const char *shard_name, struct error *err);

/* Bytes from the first to the last byte of an image in a shard: the image and, in container
 * tar.zst, the block headers inside it. Requires image_bytes <= SHARD_MAX_IMAGE_BYTES. */
uint32_t shard_image_span_bytes(enum shard_container container, uint32_t image_bytes);

/* Turns a span as read from the shard into the image, in place: checks the block headers and closes
 * the gaps; does nothing if span and image have equal sizes. Returns OK or CORRUPT; INVALID if the
 * sizes do not match. */
enum status
shard_image_compact(void *span, size_t span_bytes, size_t image_bytes, struct error *err);

/* Summary of a published shard, for the manifest. */
struct shard_summary {
    char name[SHARD_MAX_NAME_BYTES + 1]; /* file name, without folder */
    uint64_t size_bytes;
    uint64_t hash;       /* XXH64 of the whole file */
    uint64_t index_hash; /* identifies its index */
    uint64_t image_bytes;
    uint64_t first_id, last_id;
    uint32_t sample_count;
    uint32_t text_count;
    char etag[SHARD_MAX_ETAG_BYTES + 1]; /* of a remote tar, with its quotes; else "" */
};

#endif
