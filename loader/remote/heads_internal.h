/*
 * heads: what the cache knows of files, so that a dataset opens with one request, and without a
 * server at all. A head is true of one version of the dataset's manifest, whose ETag it names.
 *
 *   ccstream-head 1
 *   URL without query
 *   ETag of the manifest ("" for the manifest itself)
 *   ETag of the file
 *   its size in bytes, or `missing`
 *   XXH64 of the lines above, 16 hexadecimal digits
 *
 * Threading : as the cache.
 * Untrusted : the text.
 */
#ifndef LOADER_REMOTE_HEADS_INTERNAL_H
#define LOADER_REMOTE_HEADS_INTERNAL_H

#include "loader/remote/cache_internal.h"
#include "loader/remote/remote_internal.h"

struct head {
    char generation[HEAD_ETAG_BYTES];
    char etag[HEAD_ETAG_BYTES];
    uint64_t size_bytes;
    bool missing;
};

/* Reads the text of a head of `url`. Returns whether it is one. */
bool head_parse(struct head *out, const char *url, const char *text, size_t size_bytes);

/* Returns whether the cache has a head of the file for this generation. */
bool heads_recall(struct cache *c, struct head *out, const char *url, const char *generation);
void heads_remember(struct cache *c, const char *url, const struct head *head);
void heads_forget(struct cache *c, const char *url);

#endif
