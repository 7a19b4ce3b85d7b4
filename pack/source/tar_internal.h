/*
 * source_tar: a fast reader for most tars: regular files and folders with short ASCII names, as GNU
 * tar, bsdtar, Python and WebDataset write them, in a file that supports pread. From the first
 * header that it does not support, libarchive reads the rest.
 *
 * libarchive reads these tars too, but a row of three members takes it 10.5 us instead of 5.4
 * (bench_source). With libarchive alone, packing 1.2 GB of 14 KB pictures into tar.zst shards with
 * `ccpack --no-check` on two threads takes 1.12 to 1.18 times as long (medians of four series of 9
 * or 11 alternating rounds). Packing into tar shards takes as long, within noise.
 *
 * Threading : one owner.
 * Ownership : the caller keeps the file, which is read with pread. A member's name is valid until
 *             the next call.
 * Untrusted : every byte. A body that a header promises lies within the file.
 */
#ifndef PACK_SOURCE_TAR_INTERNAL_H
#define PACK_SOURCE_TAR_INTERNAL_H

#include "pack/source/archive_internal.h"

struct source_tar;

/* Opens a file of size_bytes bytes. Returns OK; UNSUPPORTED if it does not support the first
 * header; NOMEM or IO. */
enum status source_tar_open(struct source_tar **out,
                            int fd,
                            uint64_t size_bytes,
                            const char *path,
                            struct error *err);
void source_tar_close(struct source_tar *t); /* accepts NULL */

/* Finds the next member, skipping the rest of the current one, and end marks: blocks of zeros,
 * after which another tar may follow. Returns OK; END; UNSUPPORTED if it does not support the
 * header at source_tar_offset; or IO. */
enum status source_tar_next(struct source_tar *t, struct source_member *out, struct error *err);

/* Where the last call of source_tar_next found a member, the end with its mark, or an unsupported
 * header. */
uint64_t source_tar_offset(const struct source_tar *t);

/* Where the last call began to look for it. If the offset is another one, an end mark is between.
 */
uint64_t source_tar_begin(const struct source_tar *t);

/* Whether there was an end mark. */
bool source_tar_has_ended(const struct source_tar *t);

/* Reads up to size_bytes of the rest of the member's body. Returns OK, IO, or CORRUPT if the file
 * has become shorter. */
enum status
source_tar_read(struct source_tar *t, void *out, size_t size_bytes, size_t *got, struct error *err);

/* How far the file has been read. */
uint64_t source_tar_position(const struct source_tar *t);

#endif
