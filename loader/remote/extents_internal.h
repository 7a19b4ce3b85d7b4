/*
 * extents: pieces of REMOTE_PIECE_BYTES of remote files, in the cache. One thread of the process
 * fetches what is not there, each piece once however many threads want it; what threads wait for
 * comes before what was only planned. A piece that the disk did not take is kept in memory while it
 * is used.
 *
 * Threading : internally synchronised.
 * Ownership : extents_get returns a piece that is the caller's until extents_put.
 */
#ifndef LOADER_REMOTE_EXTENTS_INTERNAL_H
#define LOADER_REMOTE_EXTENTS_INTERNAL_H

#include "loader/remote/cache_internal.h"
#include "loader/remote/remote_internal.h"

struct extents; /* opaque */
struct extent;  /* opaque */

/* Starts the thread. `cache` is borrowed. Returns OK, NOMEM or UNSUPPORTED (no libcurl). */
enum status extents_create(struct extents **out, struct cache *cache, struct error *err);
/* Every piece must have been put back. Accepts NULL. */
void extents_destroy(struct extents *x);

/* The piece with the byte at `offset` of the file, which may still have to be fetched. `verify`:
 * compares its hash when it is opened. NULL: out of memory. */
struct extent *
extents_get(struct extents *x, struct remote_object *o, uint64_t offset, bool verify);
void extents_put(struct extents *x, struct extent *e);

/* How many pieces arrived or failed so far. */
uint64_t extents_arrivals(struct extents *x);
/* Waits up to timeout_ms until there are more than `seen`. */
void extents_wait(struct extents *x, uint64_t seen, int64_t timeout_ms);

/* Reads up to size_bytes at offset of the file, as far as the piece goes. Returns OK with *got > 0;
 * AGAIN while the piece is being fetched; or why it could not be: IO, CORRUPT, NOTFOUND, NOMEM.
 * *retried_count: attempts that were repeated for it. */
enum status extent_read(struct extents *x,
                        struct extent *e,
                        void *out,
                        size_t *got,
                        size_t size_bytes,
                        uint64_t offset,
                        uint32_t *retried_count,
                        struct error *err);

/* Fetches the piece with the byte at `offset` in the background unless it is there. False: it is
 * there already. */
bool extents_plan(struct extents *x, struct remote_object *o, uint64_t offset);

/* The bytes there are wrong: the next extents_get fetches them again. */
void extents_forget(struct extents *x,
                    struct remote_object *o,
                    uint64_t offset,
                    uint64_t size_bytes);

/* Of remote_extents. */
void extents_before_fork(void);
void extents_after_fork(void); /* in the parent and in the child */
void extents_abandon(void);    /* in the child: the parent's */
void extents_stop(void);

#endif
