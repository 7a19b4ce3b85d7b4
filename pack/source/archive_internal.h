/*
 * source_archive: the members of a tar or zip, one after another, whatever it is compressed with.
 *
 * Threading : one owner.
 * Ownership : a member is valid until the next call of source_archive_next.
 * Untrusted : the file. Bodies are read up to the caller's limit; names may contain any byte but
 *             NUL.
 */
#ifndef PACK_SOURCE_ARCHIVE_INTERNAL_H
#define PACK_SOURCE_ARCHIVE_INTERNAL_H

#include "pack/source/source.h"

struct source_archive;

struct source_member {
    const char *name; /* without a leading "./"; empty: unknown */
    bool is_file;     /* a regular one */
    bool is_folder;
    const char *link; /* what it is a link to, without content of its own; NULL: it is none */
    bool size_known;  /* some zips store it after the body */
    uint64_t size_bytes;
    uint64_t offset_bytes; /* of its header in the (decompressed) archive */
    uint64_t body_bytes;   /* likewise: where its body begins */
};

/* "-" is standard input. Of the options it uses stop, bytes and their cookies. Messages report
 * *rows, which must stay valid until close. Returns OK, NOTFOUND, IO, NOMEM, LIMIT (the path),
 * CORRUPT (no tar or zip) or INTERRUPTED. */
enum status source_archive_open(struct source_archive **out,
                                const char *path,
                                const struct source_options *opt,
                                const uint64_t *rows,
                                struct error *err);
void source_archive_close(struct source_archive *a); /* accepts NULL */

/* Moves to the next member, skipping what is unread of the current one. Members after an end mark
 * are read too, but not if the caller receives every byte. Returns OK, END, CORRUPT or
 * INTERRUPTED. */
enum status source_archive_next(struct source_archive *a, struct error *err);

/* What is known of it now. */
struct source_archive_view {
    const struct source_member *member; /* the current one; NULL before the first, after the last */
    uint64_t offset_bytes;              /* in the (decompressed) archive, at which the last call of
                                           source_archive_next found a member, or the end */
    uint64_t position_bytes;            /* of the file, read so far */
    uint64_t size_bytes;                /* of the file; 0 for a pipe, as the position */
    bool is_plain_tar;                  /* an uncompressed tar in a file */
    const char *note; /* after END, what is suspicious about the archive as a whole: a tar
                         without an end mark may be truncated, and what follows an end mark
                         may be no tar. Empty: nothing */
};
struct source_archive_view source_archive_view(const struct source_archive *a);

/* Replaces the content of `out` by the member's whole body. If that is more than max_bytes, *fits
 * is false and `out` is empty. Requires that nothing of the body was read. Returns OK, NOMEM, LIMIT
 * (of the buffer), CORRUPT or INTERRUPTED. */
enum status source_archive_read(struct source_archive *a,
                                struct byte_buffer *out,
                                size_t max_bytes,
                                bool *fits,
                                struct error *err);

/* Reads the first bytes of the member's body. The same requirement and statuses as above. */
enum status source_archive_peek(struct source_archive *a,
                                void *head,
                                size_t *got,
                                size_t size_bytes,
                                struct error *err);

#endif
