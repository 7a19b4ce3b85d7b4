/*
 * remote_internal: what the files of loader/remote share.
 *
 *   file_system (remote_files.c)                       read engine (io_remote.c)
 *        |          \                                        |
 *   remote_pread.c   open.c: what becomes known of a file     |
 *        |            |   (remote.c, heads.c)      |
 *        |            |                                       |
 *        +--- with a cache: extents.c, over cache.c ----------+
 *        |            |                                       |
 *        '---> client.c: reads with retries, over one struct http
 *
 * Threading : a client has one owner; objects_ and open_ belong to who opens, one at a time, as do
 *             copies; everything else is internally synchronised.
 * Fork      : a child has the table of objects and their copies. Clients and the thread of the
 *             extents stay with the parent; the child makes its own when it first needs them.
 */
#ifndef LOADER_REMOTE_REMOTE_INTERNAL_H
#define LOADER_REMOTE_REMOTE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "formats/base/file_io.h"
#include "loader/remote/cache_internal.h"
#include "loader/remote/remote.h"
#include "net/http.h"

struct extents;  /* opaque */
struct location; /* net/location.h */

enum { HEAD_ETAG_BYTES = 256, REMOTE_PIECE_BYTES = 8 << 20 };

/* A folder of files; never freed before remote_stop. */
struct remote_folder {
    char *text;
    struct location *location;
    pthread_mutex_t lock; /* of location */
    struct remote_folder *next;
    bool unnamed;                     /* a dataset's manifest names it, not the user */
    char generation[HEAD_ETAG_BYTES]; /* ETag of its manifest; "": none was read */
    atomic_bool offline;              /* the server could not be reached: the cache must do */
};

/* The bytes of a file that was read whole, in a temporary file. */
struct copy {
    int fd; /* -1: there is none */
    uint64_t offset;
};

/* A remote file. */
struct remote_object {
    char *path; /* as the user and the manifest name it: s3://bucket/d/shard-000000.ccs */
    char *url;
    struct remote_folder *folder;
    /* Fixed once the object is known. */
    char etag[HEAD_ETAG_BYTES]; /* "" without one */
    uint64_t size_bytes;
    /* Guarded by the lock of the table. */
    bool known;   /* size and ETag were read */
    bool missing; /* the server has no such file */
    struct copy copy;
    struct remote_object *next;
};

/* What the program uses, set by remote_start and remote_stop alone. */
extern struct remote_view {
    struct remote_options options; /* without the folder of the cache */
    struct cache *cache;           /* NULL: there is none */
} remote_view;
/* The pieces of this process (extents.c); the first call starts their thread. NULL: there is no
 * cache. Returns OK, NOMEM or UNSUPPORTED (no libcurl). */
enum status remote_extents(struct extents **out, struct error *err);

/* --- client --- */

struct remote_client; /* opaque */

/* One read. Zero-initialise, then set the first fields; it must stay in place until done was
 * called. */
struct remote_read {
    struct remote_object *object;
    uint64_t offset;
    uint64_t size_bytes; /* HTTP_UNKNOWN: to the end of the file, from offset 0 */
    uint64_t max_bytes;  /* of a whole file: what its format allows */
    bool dispensable;    /* a server that cannot be reached is given up early */
    void *cookie;
    /* The next bytes of the file. False: stop with the failure in *err. */
    bool (*take)(void *cookie, const void *bytes, size_t size_bytes, struct error *err);
    /* Called once, last, from remote_client_run or _destroy. May start further reads. */
    void (*done)(void *cookie, enum status s, const struct error *err);

    /* The client's. ETag and total size are those of the last answer. */
    struct remote_client *client;
    struct remote_read *next;
    uint64_t got_bytes, got_before_bytes;
    uint32_t tries; /* that brought no byte, in a row */
    uint32_t retried_count,
        whole_count; /* whole: answers without the range that was asked for, in a row */
    int64_t begun_ns, try_ns, last_byte_ns, retry_ns;
    char etag[HEAD_ETAG_BYTES];
    uint64_t total_bytes; /* HTTP_UNKNOWN: the server did not say */
    enum status stopped;  /* by take, or by an answer that does not fit */
    struct error why;
};

/* Returns OK, NOMEM or UNSUPPORTED (no libcurl). */
enum status
remote_client_create(struct remote_client **out, uint32_t connections, struct error *err);
/* Ends reads with INTERRUPTED. Accepts NULL. */
void remote_client_destroy(struct remote_client *c);
/* Cannot fail: failures are reported to `done`. */
void remote_client_start(struct remote_client *c, struct remote_read *r);
/* Does what is possible, waiting up to timeout_ms for more. */
void remote_client_run(struct remote_client *c, int64_t timeout_ms);
/* Ends the present or the next run early. Any thread. */
void remote_client_wake(struct remote_client *c);
uint32_t remote_client_pending(const struct remote_client *c);

/* --- objects --- */

/* Starts a request for the object: adds its URL, headers and signature. */
enum status remote_object_start(const struct remote_object *o,
                                struct http *h,
                                struct http_request *request,
                                struct error *err);

/* The object of a path, new where there is none. `directory`: of the dataset whose manifest, and
 * not the user, names it; NULL: none. Returns OK, NOMEM or what location_create and location_url
 * return. */
enum status
objects_get(struct remote_object **out, const char *path, const char *directory, struct error *err);

/* Takes every file of a folder out of the table. */
void objects_drop_folder(const struct remote_folder *folder);

void objects_set_known(struct remote_object *o, const char *etag, uint64_t size_bytes);
void objects_set_missing(struct remote_object *o);
void objects_set_copy(struct remote_object *o, struct copy copy);

/* The object of a path, after at most one request; of a manifest those of its dataset too. Returns
 * OK, NOTFOUND, IO, USAGE, NOMEM, CORRUPT. */
enum status remote_object_open(struct remote_object **out, const char *path, struct error *err);
/* Whether it is of a dataset's folder of columns, which change without the manifest. */
bool remote_is_column(const char *path);
/* The object if it was opened already, else NULL. */
struct remote_object *remote_object_find(const char *path);
/* As file_system.expect. */
enum status remote_object_expect(void *context,
                                 const char *path,
                                 const char *etag,
                                 uint64_t size_bytes,
                                 const char *directory,
                                 struct error *err);
/* Its copy, if there is one. */
struct copy remote_object_copy(const struct remote_object *o);
/* The server has another version: what the cache knows of it is forgotten. Any thread. */
void remote_object_replaced(const struct remote_object *o);
/* Reads without an engine. Returns OK (*got is smaller only at the end of the file), IO, CORRUPT,
 * NOTFOUND or NOMEM. */
enum status remote_object_pread(struct remote_object *o,
                                void *out,
                                size_t *got,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err);
/* Bytes that were read are not those of the dataset: they are fetched again next time. */
void remote_object_doubt(struct remote_object *o, uint64_t offset, uint64_t size_bytes);
/* Has the piece with this byte fetched into the cache. False: it is there, or there is no cache. */
bool remote_object_plan(struct remote_object *o, uint64_t offset);
/* How many pieces may be fetched before they are needed, at most max_count; 0 without a cache. */
uint32_t remote_plan_limit(uint32_t max_count);
void remote_pread_after_fork(void); /* in the child */
void remote_pread_stop(void);
/* The copy, which is made where there is none. */
enum status remote_object_map(struct remote_object *o, struct copy *out, struct error *err);

void open_before_fork(void);
void open_after_fork(void); /* in the parent and in the child */
void open_forget(void);     /* in the child: the parent's connections and file of copies */
void open_stop(void);

/* --- extents: pieces of REMOTE_PIECE_BYTES of files, in the cache. One thread of the process
 * fetches what is not there, each piece once however many threads want it; what threads wait for
 * comes before what was only planned. A piece that the disk did not take is kept in memory while it
 * is used. A piece of extents_get is the caller's until extents_put. --- */

struct extent; /* opaque */

/* The piece with the byte at `offset` of the file, which may still have to be fetched. `checked`:
 * the caller compares what it reads with hashes of the dataset; if not, the hash of the piece is
 * compared, and in a cache that others may write it is one's own. NULL: out of memory. */
struct extent *
extents_get(struct extents *x, struct remote_object *o, uint64_t offset, bool checked);
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

/* --- heads: what the cache knows of files, so that a dataset opens with one request, and without a
 * server at all. A head is true of one version of the dataset's manifest, whose ETag it names; its
 * text is untrusted.
 *
 *   ccstream-head 1
 *   URL without query
 *   ETag of the manifest ("" for the manifest itself)
 *   ETag of the file
 *   its size in bytes, or `missing`
 *   XXH64 of the lines above, 16 hexadecimal digits
 * --- */

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

const struct file_system *remote_files(void);
/* Opens only what was opened before, without asking the server. */
const struct file_system *remote_copies(void);

#endif
