/*
 * shard_files: open file descriptors of a dataset's shards, at most SHARD_FILES_MAX_OPEN at a time,
 * so that thousands of shards stay below the usual limit of a process.
 *
 * Threading : internally synchronised.
 * Ownership : a descriptor is borrowed from acquire until its release.
 */
#ifndef LOADER_SHARD_FILES_INTERNAL_H
#define LOADER_SHARD_FILES_INTERNAL_H

#include <stdint.h>

#include "formats/base/status.h"

struct shard_files;

enum { SHARD_FILES_MAX_OPEN = 512 };

/* `path_of` gives the path of a shard, valid as long as `cookie` is. Returns OK or NOMEM. */
enum status shard_files_create(struct shard_files **out,
                               uint32_t shard_count,
                               const char *(*path_of)(const void *cookie, uint32_t shard),
                               const void *cookie,
                               struct error *err);
void shard_files_destroy(struct shard_files *f); /* accepts NULL; nothing may be borrowed */

/* Returns OK, NOTFOUND, IO, or LIMIT when every descriptor is borrowed. */
enum status shard_files_acquire(struct shard_files *f, int *fd, uint32_t shard, struct error *err);
void shard_files_release(struct shard_files *f, uint32_t shard);

/* After the threads are gone: nothing is borrowed any more. */
void shard_files_release_all(struct shard_files *f);

#endif
