/*
 * http_stream: a remote file read sequentially, with chunks of 8 MiB prefetched. A chunk that fails
 * is continued at the byte reached; every response must belong to the same file, by ETag and size.
 *
 * Threading : single-owner; requests run on a separate thread.
 * Untrusted : the server. Which addresses it may lead to is in net/README.md.
 * Memory    : 32 MiB, which the process keeps for its next stream, as it does connections.
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
 * NOMEM; errors of the server are returned by the first read. */
enum status http_stream_open(struct http_stream **out,
                             const char *text,
                             uint64_t offset_bytes,
                             struct error *err);
void http_stream_close(struct http_stream *s); /* accepts NULL */

/* Reads up to size_bytes; *got is 0 at the end. Returns OK; AGAIN if nothing arrived within 100 ms;
 * NOTFOUND, IO, CORRUPT (the file was replaced) or NOMEM. */
enum status http_stream_read(struct http_stream *s,
                             void *out,
                             size_t size_bytes,
                             size_t *got,
                             struct error *err);

/* The size of the file; 0 while it is not known. */
uint64_t http_stream_size(struct http_stream *s);

/* Its ETag; "" while it is not known, if it has none, and for NULL. Valid until close. */
const char *http_stream_etag(struct http_stream *s);

/* Identifies a file without reading it: its size, and a hash of size and ETag (at the Hub, the
 * file's SHA-256). One request. Returns OK or a failure as above. */
enum status
http_stream_identity(uint64_t *size_bytes, uint64_t *hash, const char *text, struct error *err);

/* Measures the transfer rate over at most the first 32 MiB of a file, which are discarded; if the
 * file is larger than 1 MiB, after its first MiB. Polls `stop` (may be NULL). Returns OK,
 * INTERRUPTED or a failure as above. */
enum status
http_stream_measure(double *bytes_per_s, const char *text, bool (*stop)(void), struct error *err);

#endif
