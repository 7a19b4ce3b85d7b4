/*
 * http_stream: a remote file read from front to back, pieces of 8 MiB ahead of the reader. A piece
 * that fails is continued at the byte reached; every answer must be of the same file, by ETag and
 * size.
 *
 * Threading : single-owner; requests run on a thread of its own.
 * Untrusted : the server. Which addresses it may lead to is in net/README.md.
 * Memory    : 32 MiB, which a process keeps for its next stream, with connections.
 */
#ifndef NET_HTTP_STREAM_H
#define NET_HTTP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct http_stream; /* opaque */

/* `text`: a location (location.h) that is a file, without query or user name. Reads from
 * offset_bytes on, which must be within the file. Returns OK, USAGE, UNSUPPORTED (no libcurl), or
 * NOMEM; what the server answers is known when it is read. */
enum status http_stream_open(struct http_stream **out,
                             const char *text,
                             uint64_t offset_bytes,
                             struct error *err);
void http_stream_close(struct http_stream *s); /* accepts NULL */

/* Takes up to size_bytes; *got is 0 at the end. Returns OK; AGAIN if nothing came within 100 ms;
 * NOTFOUND, IO, CORRUPT (another file now) or NOMEM. */
enum status http_stream_read(struct http_stream *s,
                             void *out,
                             size_t size_bytes,
                             size_t *got,
                             struct error *err);

/* The size of the file; 0 while it is not known. */
uint64_t http_stream_size(struct http_stream *s);

/* Its ETag; "" while it is not known, if it has none, and for NULL. Valid until close. */
const char *http_stream_etag(struct http_stream *s);

/* What identifies a file without reading it: size, and a hash of size and ETag (at the Hub, the
 * file's SHA-256). One request. Returns OK or a failure as above. */
enum status
http_stream_identity(uint64_t *size_bytes, uint64_t *hash, const char *text, struct error *err);

/* Reads the first up to 32 MiB of a file and throws them away: how many bytes a second came, once
 * the first MiB was there if it has more. Polls `stop` (may be NULL). Returns OK, INTERRUPTED or
 * a failure as above. */
enum status
http_stream_measure(double *bytes_per_s, const char *text, bool (*stop)(void), struct error *err);

#endif
