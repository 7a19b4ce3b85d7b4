/*
 * remote: datasets behind https://, s3:// and hf:// locations (net/location.h).
 *
 * Once remote_start was called, file_system_of("https://...") reads from there: dataset_open and
 * everything else that opens a dataset takes such a location, and loaders read images by range
 * requests through an engine of their own. Opening a dataset fetches its manifest, the index
 * beside each shard, and the size and ETag of each shard, from the server's list of files where it
 * has one; indexes are mapped from a temporary file.
 *
 * Threading : remote_start and remote_stop belong to the program: before other threads use datasets
 *             and after. The files themselves may be used by any thread.
 * Fork      : a child may use what the parent opened, over connections of its own. Loaders are
 *             their process's, as all loaders.
 * Untrusted : every byte that a server sends: indexes and images are checked as those of local
 *             datasets are, and names of local files never come from there.
 * Replaced  : the ETag and size that a shard had at open go with every read. Another one is an
 *             error that names the shard, never a mixture.
 * Cache     : with one, files are read in pieces of 8 MiB that stay on the local disk
 *             (cache_internal.h), shared by all processes that name the same folder. A run whose
 *             pieces are all there goes on without the server.
 * Failures  : requests that may succeed later are repeated with back-off and jitter, where they
 *             stopped, until REMOTE_MAX_TRIES of them, or REMOTE_MAX_SILENCE_MS, brought nothing.
 */
#ifndef LOADER_REMOTE_REMOTE_H
#define LOADER_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/log.h"
#include "formats/base/status.h"

enum { REMOTE_MAX_TRIES = 10, REMOTE_MAX_SILENCE_MS = 45000 };

#define REMOTE_CACHE_MIN_BYTES     ((uint64_t)256 << 20)
#define REMOTE_CACHE_DEFAULT_BYTES ((uint64_t)64 << 30)

struct remote_options {
    const char *endpoint;   /* of s3:// locations; NULL: as location_options says */
    bool instance_metadata; /* may ask the machine's metadata service for keys; default false */
    const char *cache; /* folder for pieces of remote files, made where it is missing; NULL: none */
    /* With only_places a location that `places` lack is refused, unless it is an s3:// one of an
     * endpoint that the user named: for programs that open what a stranger's file names. */
    const char *const *places; /* DIR or DIR:WEIGHT; borrowed until remote_stop */
    size_t place_count;
    bool only_places;     /* default false */
    bool allow_private;   /* names and redirects may lead to private addresses; default false: only
                             locations that are written with one, and endpoints */
    uint64_t cache_bytes; /* its limit, at least REMOTE_CACHE_MIN_BYTES; 64 GiB */
    const char *user_agent;     /* "ccstream" */
    const struct log_sink *log; /* borrowed until remote_stop; NULL: silent */
};

void remote_options_default(struct remote_options *opt);

/* Makes remote locations readable. libcurl is loaded when one is opened. Options are copied.
 * Returns OK, EXISTS (was called before), USAGE (cache_bytes), NOMEM, or a failure of making the
 * cache. */
enum status remote_start(const struct remote_options *opt, struct error *err);

/* Nothing remote may be open. Does nothing without remote_start. */
void remote_stop(void);

#endif
