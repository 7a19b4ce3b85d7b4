/*
 * tar: headers and padding of tar files, and a walk over the members in a memory block of a user's
 * tar: ustar, with the long names of GNU tar and of pax. The walk refuses other types (sparse
 * files, volumes, links with a body), because their bodies are not at the position given by the
 * header.
 *
 * Threading : pure functions over the caller's storage; a walk has one owner.
 * Ownership : a member borrows from the bytes, its name perhaps from the walk, until the next call.
 * Untrusted : every byte.
 */
#ifndef FORMATS_SHARD_TAR_H
#define FORMATS_SHARD_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

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

/* Sum of a header's bytes, counting the checksum field as spaces. */
uint32_t tar_header_sum(const uint8_t header[TAR_BLOCK_BYTES]);

/* Reads `digits` octal digits; false if a byte is not one. Requires digits <= 21. */
bool tar_read_octal(uint64_t *out, const uint8_t *field, size_t digits);

enum {
    TAR_WALK_NAME_BYTES = 155 + 1 + 100, /* of a prefix and a name put together */
    TAR_WALK_MAX_EXTRA_BYTES = 1 << 20,  /* of a long name's or pax header's body */
};

struct tar_walk_member {
    const char *name; /* without NUL and without "./" in front */
    size_t name_bytes;
    bool is_file;        /* a plain one; else no body */
    size_t body_offset;  /* from the start of the block */
    const uint8_t *body; /* (size_bytes) */
    size_t size_bytes;
};

struct tar_walk {
    const uint8_t *data;
    size_t size_bytes;
    size_t at; /* the next header */
    char joined[TAR_WALK_NAME_BYTES];
};

/* The block must begin with a header and end after a member's padding. */
void tar_walk_init(struct tar_walk *w, const void *data, size_t size_bytes);

/* Returns OK, END, or CORRUPT with the fault and its offset in the block. */
enum status tar_walk_next(struct tar_walk *w, struct tar_walk_member *out, struct error *err);

/* Bytes of folder and base name up to the base name's first or last dot: the part that the members
 * of a sample share. */
size_t tar_stem_bytes(const char *name, size_t name_bytes, bool last_dot);

/* Whether the member is STEM.EXTENSION; letters of the extension in any case. */
bool tar_member_is(const struct tar_walk_member *m,
                   const char *stem,
                   size_t stem_bytes,
                   const char *extension);

#endif
