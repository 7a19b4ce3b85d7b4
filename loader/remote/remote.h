/*
 * remote: datasets at https://, s3:// and hf:// locations (net/location.h).
 *
 * After remote_start, file_system_of("https://...") reads from the server: dataset_open and every
 * other function that opens a dataset accepts locations, and loaders read images by range requests
 * through their own engine. Opening a dataset fetches its manifest, the index next to each shard,
 * and the size and ETag of each shard, from the server's list of files if it has one; indexes are
 * mapped from a temporary file.
 *
 * Threading : the main program calls remote_start before and remote_stop after all other threads
 *             use datasets. Any thread may use the files.
 * Fork      : a child may use datasets that the parent opened, over its own connections. Loaders
 *             belong to their process, as always.
 * Untrusted : every byte that a server sends: indexes and images are checked as for local datasets,
 *             and names of local files never come from a server.
 * Replaced  : every read checks the ETag and size that the shard had at open. A replaced shard is
 *             an error that names it; old and new data are never mixed.
 * Cache     : with a cache folder, files are read in chunks of 8 MiB that stay on the local disk
 *             (cache_internal.h), shared by all processes that use this folder. A run whose chunks
 *             are all cached needs no server.
 * Failures  : transient failures are retried with backoff and jitter, from the byte reached, until
 *             REMOTE_MAX_TRIES requests or REMOTE_MAX_SILENCE_MS brought no data.
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
    const char *endpoint;   /* server of s3:// locations; NULL: as in location_options */
    bool instance_metadata; /* may get keys from the instance metadata service; default false */
    const char *cache; /* folder for chunks of remote files, created if missing; NULL: no cache */
    /* With only_places, a location outside `places` is refused, unless it is an s3:// location and
     * the user named the endpoint: for programs that open locations named in untrusted files. */
    const char *const *places; /* DIR or DIR:WEIGHT; borrowed until remote_stop */
    size_t place_count;
    bool only_places;     /* default false */
    bool allow_private;   /* host names and redirects may lead to private addresses; default false:
                             only locations written with such an address, and endpoints */
    uint64_t cache_bytes; /* its size limit, at least REMOTE_CACHE_MIN_BYTES; default 64 GiB */
    const char *user_agent;     /* "ccstream" */
    const struct log_sink *log; /* borrowed until remote_stop; NULL: silent */
};

void remote_options_default(struct remote_options *opt);

/* Makes remote locations readable. libcurl is loaded when one is opened. Options are copied.
 * Returns OK, EXISTS (was called before), USAGE (cache_bytes), NOMEM, or a failure to create the
 * cache. */
enum status remote_start(const struct remote_options *opt, struct error *err);

/* Nothing remote may be open. Does nothing without remote_start. */
void remote_stop(void);

#endif
