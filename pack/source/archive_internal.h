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

#include <inttypes.h>

#include "formats/shard/tar.h"
#include "pack/source/source.h"

/* Why a member without a name becomes a rejected row; with the offset of its header. */
#define SOURCE_NAMELESS                                                                            \
    "the member at byte %" PRIu64 " of the archive has no name, or one in an unknown encoding; "   \
    "create the archive again with names in UTF-8"

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

/* "-" is standard input. Of the options it uses stop, bytes, their cookies and from. Messages
 * report *rows, which must stay valid until close. Returns OK, NOTFOUND, IO, NOMEM, LIMIT (the
 * path), CORRUPT (no tar or zip) or INTERRUPTED. */
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
    uint64_t members;                   /* found so far, in all */
    bool is_plain_tar;                  /* an uncompressed tar in a file */
    const char *etag;                   /* of a remote file; else "" */
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

/* ---- tar.c: the fast reader of most tars in files, up to the first header that it does not
 * support. One owner, who keeps the file; a member's name is valid until the next call. A body that
 * a header promises lies within the file. ---- */

enum { SOURCE_TAR_WINDOW_BYTES = 256 << 10 };

struct source_tar {
    int fd;
    const char *path; /* borrowed, for messages */
    uint64_t size_bytes;
    uint64_t window_offset; /* of its first byte in the file */
    size_t window_bytes;
    size_t step_bytes;  /* of the next read */
    uint64_t at;        /* next byte to parse */
    uint64_t body_left; /* of the current member */
    /* Of the last call of source_tar_next: */
    uint64_t header_offset; /* where it found a member, the end with its mark, or an unsupported
                               header */
    uint64_t begin;         /* where it began to look for it; another place if an end mark is
                               between */
    bool has_ended;         /* there was an end mark */
    char name[TAR_NAME_BYTES + 1];
    uint8_t window[SOURCE_TAR_WINDOW_BYTES];
};

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
 * header at t->header_offset; or IO. */
enum status source_tar_next(struct source_tar *t, struct source_member *out, struct error *err);

/* Reads up to size_bytes of the rest of the member's body. Returns OK, IO, or CORRUPT if the file
 * has become shorter. */
enum status
source_tar_read(struct source_tar *t, void *out, size_t size_bytes, size_t *got, struct error *err);

/* How far the file has been read. */
uint64_t source_tar_position(const struct source_tar *t);

#endif
