/*
 * tar: the blocks that plain tars are made of.
 *
 * Threading : pure functions over the caller's storage.
 */
#ifndef FORMATS_SHARD_TAR_H
#define FORMATS_SHARD_TAR_H

#include <stdint.h>

enum {
    TAR_BLOCK_BYTES = 512,
    TAR_NAME_BYTES = 100,
    TAR_END_BYTES = 1024, /* two zero blocks */
};

/* Bytes of padding behind a member's body. */
static inline uint32_t tar_padding(uint64_t size_bytes) {
    return (uint32_t)((TAR_BLOCK_BYTES - size_bytes % TAR_BLOCK_BYTES) % TAR_BLOCK_BYTES);
}

/* A plain file's header; everything in it follows from name and size. Requires strlen(name) <
 * TAR_NAME_BYTES and size_bytes < 2^33. */
void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes);

#endif
