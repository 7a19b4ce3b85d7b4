/*
 * source_tar: the plain majority of tars: regular files and folders with short ASCII names, as GNU
 * tar, bsdtar, Python and WebDataset write them, in a file that can be read anywhere. libarchive
 * reads them as well, at four times the cost. Whatever else comes is left to it, from that header
 * on.
 *
 * Threading : one owner.
 * Ownership : the file stays the caller's and is read with pread; a member's name lives until the
 *             next call.
 * Untrusted : every byte. A body that a header promises lies within the file.
 */
#ifndef PACK_SOURCE_TAR_INTERNAL_H
#define PACK_SOURCE_TAR_INTERNAL_H

#include "pack/source/archive_internal.h"

struct source_tar;

/* A file of size_bytes bytes. Returns OK; UNSUPPORTED when its first header is none that is read
 * here; NOMEM or IO. */
enum status source_tar_open(struct source_tar **out,
                            int fd,
                            uint64_t size_bytes,
                            const char *path,
                            struct error *err);
void source_tar_close(struct source_tar *t); /* accepts NULL */

/* The next member, passing over what is left of the one before. Returns OK; END; UNSUPPORTED when
 * the header at source_tar_offset is for others to read; or IO. */
enum status source_tar_next(struct source_tar *t, struct source_member *out, struct error *err);

/* Where the last call of source_tar_next found a member, the end, or what it does not read. */
uint64_t source_tar_offset(const struct source_tar *t);

/* Up to size_bytes of what is left of the member's body. Returns OK, IO, or CORRUPT when the file
 * has become shorter. */
enum status
source_tar_read(struct source_tar *t, void *out, size_t size_bytes, size_t *got, struct error *err);

/* How far the file has been read. */
uint64_t source_tar_position(const struct source_tar *t);

#endif
