/*
 * source_archive: the members of a tar or zip, one after the other, whatever it is compressed with.
 * The one door to libarchive.
 *
 * Threading : single-owner.
 * Ownership : the archive owns the member that source_archive_next gave, until the next call.
 * Untrusted : the file. Bodies are read up to the caller's bound; names may hold anything but NUL.
 */
#ifndef PACK_SOURCE_ARCHIVE_INTERNAL_H
#define PACK_SOURCE_ARCHIVE_INTERNAL_H

#include "pack/source/source.h"

struct source_archive;

struct source_member {
    const char *name; /* without a leading "./"; empty where it cannot be told */
    bool is_file;     /* a regular one */
    bool is_folder;
    bool size_known; /* some zips say it behind the body only */
    uint64_t size_bytes;
    uint64_t offset_bytes; /* of its header in the (decompressed) archive */
    uint64_t body_bytes;   /* likewise: where its body begins */
};

/* "-" is standard input. Uses stop, bytes and their cookies of the options. `rows` lives as long as
 * the archive and is what messages count. Returns OK, NOTFOUND, IO, NOMEM, LIMIT (the path),
 * CORRUPT (no tar or zip) or INTERRUPTED. */
enum status source_archive_open(struct source_archive **out,
                                const char *path,
                                const struct source_options *opt,
                                const uint64_t *rows,
                                struct error *err);
void source_archive_close(struct source_archive *a); /* accepts NULL */

/* The next member; what has not been read of the one before is passed over. Returns OK, END,
 * CORRUPT or INTERRUPTED. */
enum status source_archive_next(struct source_archive *a, struct error *err);

/* The member at hand; NULL before the first and behind the last. */
const struct source_member *source_archive_member(const struct source_archive *a);

/* Where in the (decompressed) archive the last call of source_archive_next found a member, or the
 * end. */
uint64_t source_archive_offset(const struct source_archive *a);

/* Whether it is a tar that stands in its file uncompressed. */
bool source_archive_is_plain_tar(const struct source_archive *a);

/* Puts the member's whole body in place of what `out` holds. Where it is more than max_bytes, *fits
 * is false and `out` empty. Requires that nothing of it has been read. Returns OK, NOMEM, LIMIT
 * (the buffer's own), CORRUPT or INTERRUPTED. */
enum status source_archive_read(struct source_archive *a,
                                struct byte_buffer *out,
                                size_t max_bytes,
                                bool *fits,
                                struct error *err);

/* The first bytes of the member's body. The same requirement and statuses as above. */
enum status source_archive_peek(struct source_archive *a,
                                void *head,
                                size_t *got,
                                size_t size_bytes,
                                struct error *err);

/* How far reading has come in the file, and its size; the latter 0 for a pipe. */
uint64_t source_archive_position(const struct source_archive *a);
uint64_t source_archive_size(const struct source_archive *a);

#endif
