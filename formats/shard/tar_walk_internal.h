/*
 * tar_walk: reads the members of a piece of a user's tar in memory: ustar, with the long names of
 * GNU tar and of pax. It refuses other types (sparse files, volumes, links with a body), because
 * their bodies are not where the header says.
 *
 * Threading : a walk has one owner.
 * Ownership : a member borrows from the bytes, its name perhaps from the walk, until the next call.
 * Untrusted : every byte.
 */
#ifndef FORMATS_SHARD_TAR_WALK_INTERNAL_H
#define FORMATS_SHARD_TAR_WALK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum {
    TAR_WALK_NAME_BYTES = 155 + 1 + 100, /* of a prefix and a name put together */
    TAR_WALK_MAX_EXTRA_BYTES = 1 << 20,  /* of a long name's or pax header's body */
};

struct tar_walk_member {
    const char *name; /* without NUL and without "./" in front */
    size_t name_bytes;
    bool is_file;        /* a plain one; else no body */
    size_t body_offset;  /* from the beginning of the piece */
    const uint8_t *body; /* (size_bytes) */
    size_t size_bytes;
};

struct tar_walk {
    const uint8_t *data;
    size_t size_bytes;
    size_t at; /* the next header */
    char joined[TAR_WALK_NAME_BYTES];
};

/* The piece must begin with a header and end after a member's padding. */
void tar_walk_init(struct tar_walk *w, const void *data, size_t size_bytes);

/* Returns OK, END, or CORRUPT with what is wrong and where in the piece. */
enum status tar_walk_next(struct tar_walk *w, struct tar_walk_member *out, struct error *err);

/* Bytes of folder and base name up to the base name's first dot: what the members of a sample have
 * in common. */
size_t tar_stem_bytes(const char *name, size_t name_bytes);

/* Whether the member is STEM.EXTENSION; letters of the extension in any case. */
bool tar_member_is(const struct tar_walk_member *m,
                   const char *stem,
                   size_t stem_bytes,
                   const char *extension);

#endif
