/*
 * cache: pieces of remote files in a folder of the local disk, shared by the processes of a
 * machine.
 *
 *   DIR/ccstream-cache-1/KK/KEY-NUMBER   the piece, then a trailer of CACHE_TRAILER_BYTES
 *     KEY      32 hexadecimal digits: of URL (without query), ETag and size of the file
 *     KK       the first two of them
 *     NUMBER   of the extent; `whole` for a file that was read at open
 *   DIR/ccstream-cache-1/heads/KEY       what is known of a file without asking: lines of text
 *
 *   trailer  0  8 bytes  "ccsXTNT1"
 *            8  u64      bytes of the piece before it
 *           16  u64      XXH64 of them
 *           24  u64      XXH64 of the trailer's first 24 bytes; of a piece of one's own plus a
 * number that its name determines
 *
 * A file gets its name when it is complete, so what a killed process leaves is a temporary name,
 * which is removed when it is ten minutes old. A piece that is not what it says is removed and
 * fetched again. Nobody waits for a lock: two processes that fetch the same piece write the same
 * bytes. The one that finds the folder above its limit removes the pieces that were not used for
 * longest (time of the file; uses less than a minute apart count as one), files that were read at
 * open last. What does not look like a piece is never touched.
 *
 * A folder that is made here, and its pieces, are for their owner alone. If others may write the
 * folder, it is shared, and pieces follow the umask. What checksums in such a cache say about a
 * piece is what another user says: pieces whose bytes the reader does not compare with hashes of
 * the dataset are one's own there, by name and by owner of the file.
 *
 * Threading : internally synchronised.
 * Untrusted : the content of the folder.
 */
#ifndef LOADER_REMOTE_CACHE_INTERNAL_H
#define LOADER_REMOTE_CACHE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/log.h"
#include "formats/base/status.h"

enum { CACHE_TRAILER_BYTES = 32, CACHE_HEAD_MAX_BYTES = 16384 };

#define CACHE_WHOLE UINT32_MAX       /* the number of a piece that is a whole file */
#define CACHE_HEAD  (UINT32_MAX - 1) /* of a head, only for cache_remove */

struct cache;      /* opaque */
struct cache_file; /* opaque: a piece that is being written; has one owner */

struct cache_key {
    uint64_t hash[2];
    bool own; /* only a file of this user will do */
};

/* Of a version of a file; `etag` may be "". */
struct cache_key cache_key_of(const char *url, const char *etag, uint64_t size_bytes);

/* Of what no hash of the dataset covers: another key if others may write the cache or it is not
 * this user's, else the same. */
struct cache_key cache_key_own(const struct cache *c, struct cache_key key);

/* Makes the folder. Returns OK, NOMEM, LIMIT (its path is too long) or a failure of making it. */
enum status cache_open(struct cache **out,
                       const char *directory,
                       uint64_t max_bytes,
                       const struct log_sink *log,
                       struct error *err);
void cache_after_fork(struct cache *c); /* in the child; accepts NULL */
void cache_close(struct cache *c);      /* accepts NULL */

/* Opens a piece of size_bytes for reading: *fd is the caller's to close. With `verify` its hash is
 * compared. Returns OK, NOTFOUND (also for a piece that was damaged, which is removed) or IO. */
enum status cache_get(struct cache *c,
                      int *fd,
                      struct cache_key key,
                      uint32_t number,
                      uint64_t size_bytes,
                      bool verify,
                      struct error *err);
/* Whether the piece is there, without opening it. */
bool cache_has(struct cache *c, struct cache_key key, uint32_t number);
/* Stores a piece of size_bytes as its bytes come. NULL if the disk is full: logged once per minute;
 * the run continues. */
struct cache_file *
cache_begin(struct cache *c, struct cache_key key, uint32_t number, uint64_t size_bytes);
/* False: it does not. */
bool cache_append(struct cache_file *f, const void *bytes, size_t size_bytes);
/* Gives the piece its name, or removes it if it is not complete. Returns a descriptor to read it
 * by, which is the caller's to close, or -1. */
int cache_end(struct cache_file *f, bool complete);
/* All three at once. */
void cache_put(struct cache *c,
               struct cache_key key,
               uint32_t number,
               const void *bytes,
               uint64_t size_bytes);
void cache_remove(struct cache *c, struct cache_key key, uint32_t number);

/* A text of up to CACHE_HEAD_MAX_BYTES about a file, by a key without version. Returns OK, NOTFOUND
 * or NOMEM; `out` is initialised by the call. */
enum status cache_get_head(struct cache *c, struct byte_buffer *out, struct cache_key key);
void cache_put_head(struct cache *c, struct cache_key key, const void *text, size_t size_bytes);

/* Whether the trailer is that of a piece of piece_bytes; *hash is then the hash of the piece.
 * `bond`: the number of a piece of one's own, else 0. */
bool cache_trailer_parse(const uint8_t trailer[CACHE_TRAILER_BYTES],
                         uint64_t piece_bytes,
                         uint64_t bond,
                         uint64_t *hash);

/* pread and pwrite of all the bytes; false: errno says why, EIO where the file is shorter. */
bool remote_read_fd(int fd, void *out, uint64_t size_bytes, uint64_t offset);
bool remote_write_fd(int fd, const void *bytes, uint64_t size_bytes, uint64_t offset);

#endif
