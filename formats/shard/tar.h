/*
 * tar: headers and padding of tar files.
 *
 * Threading : pure functions over the caller's storage.
 */
#ifndef FORMATS_SHARD_TAR_H
#define FORMATS_SHARD_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TAR_BLOCK_BYTES = 512,
    TAR_END_BYTES = 1024, /* two zero blocks */
};

/* Fields of a header: offset and size in bytes. The name is at 0. */
enum {
    TAR_NAME_BYTES = 100,
    TAR_MODE_AT = 100,
    TAR_UID_AT = 108,
    TAR_GID_AT = 116,
    TAR_ID_BYTES = 8, /* of mode, uid, gid and the device numbers */
    TAR_SIZE_AT = 124,
    TAR_SIZE_BYTES = 12,
    TAR_MTIME_AT = 136,
    TAR_MTIME_BYTES = 12,
    TAR_SUM_AT = 148,
    TAR_SUM_BYTES = 8,
    TAR_TYPE_AT = 156,
    TAR_MAGIC_AT = 257,
    TAR_MAGIC_BYTES = 8, /* with the version */
    TAR_DEVICES_AT = 329,
    TAR_PREFIX_AT = 345,
    TAR_PREFIX_BYTES = 155,
};

/* Bytes of padding after a member's body. */
static inline uint32_t tar_padding(uint64_t size_bytes) {
    return (uint32_t)((TAR_BLOCK_BYTES - size_bytes % TAR_BLOCK_BYTES) % TAR_BLOCK_BYTES);
}

/* Writes the header of a regular file; name and size determine all of it. Requires strlen(name) <
 * TAR_NAME_BYTES and size_bytes < 2^33. */
void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes);

/* Sum of a header's bytes, those of the checksum field counted as spaces. */
uint32_t tar_header_sum(const uint8_t header[TAR_BLOCK_BYTES]);

/* Reads `digits` octal digits; false if a byte is not one. Requires digits <= 21. */
bool tar_read_octal(uint64_t *out, const uint8_t *field, size_t digits);

#endif
