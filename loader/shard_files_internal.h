/*
 * shard_files: open file descriptors of the shards of a run, at most SHARD_FILES_MAX_OPEN at a
 * time, so that thousands of shards stay below the usual limit of a process. It records the size,
 * inode and time of each file when loading begins, to detect a shard that is replaced later. Remote
 * shards have no descriptor; every answer of their server is checked instead.
 *
 * Threading : internally synchronised.
 * Ownership : a descriptor is borrowed from acquire until its release.
 */
#ifndef LOADER_SHARD_FILES_INTERNAL_H
#define LOADER_SHARD_FILES_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

struct shard_files;
struct remote_object; /* loader/remote/remote_internal.h */

enum { SHARD_FILES_MAX_OPEN = 512 };

/* `path_of` returns the path of a shard, valid as long as `cookie` is. `direct`: O_DIRECT. Returns
 * OK, NOMEM, NOTFOUND, IO, or UNSUPPORTED where the file system has no O_DIRECT. */
enum status shard_files_create(struct shard_files **out,
                               uint32_t shard_count,
                               bool direct,
                               const char *(*path_of)(const void *cookie, uint32_t shard),
                               const void *cookie,
                               struct error *err);
void shard_files_destroy(struct shard_files *f); /* accepts NULL; nothing may be borrowed */

/* Returns OK, NOTFOUND, IO, CORRUPT when the file was replaced or written to since loading began,
 * or LIMIT when every descriptor is borrowed. */
enum status shard_files_acquire(struct shard_files *f, int *fd, uint32_t shard, struct error *err);
void shard_files_release(struct shard_files *f, uint32_t shard);

/* The shard as a remote file, which has no descriptor: acquire sets -1; else NULL. */
struct remote_object *shard_files_remote(const struct shard_files *f, uint32_t shard);

/* Checks that the file was not replaced or written to since loading began. Returns OK or CORRUPT.
 */
enum status shard_files_check(struct shard_files *f, uint32_t shard, struct error *err);

/* Releases all descriptors, after the threads have left. */
void shard_files_release_all(struct shard_files *f);

#endif
