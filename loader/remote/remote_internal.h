/*
 * remote_internal: what the files of loader/remote share.
 *
 *   file_system (remote_files.c)                       read engine (io_remote.c)
 *        |          \                                        |
 *   remote_pread.c   open.c: what becomes known of a file     |
 *        |            |   (objects.c, copies.c, heads.c)      |
 *        |            |                                       |
 *        +--- with a cache: extents.c, over cache.c ----------+
 *        |            |                                       |
 *        '---> client.c: reads with retries, over one struct http
 *
 * Threading : a client has one owner; everything else is internally synchronised.
 * Fork      : a child has the table of objects and their copies. Clients and the thread of the
 *             extents stay with the parent; the child makes its own when it first needs them.
 */
#ifndef LOADER_REMOTE_REMOTE_INTERNAL_H
#define LOADER_REMOTE_REMOTE_INTERNAL_H

#include <stddef.h>

#include "formats/base/file_io.h"
#include "loader/remote/remote.h"
#include "net/http.h"

struct cache;    /* cache_internal.h */
struct extents;  /* extents_internal.h */
struct location; /* net/location.h */

enum { HEAD_ETAG_BYTES = 256, REMOTE_PIECE_BYTES = 8 << 20 };

/* A folder of files; never freed before remote_stop. */
struct remote_folder; /* opaque */

/* The bytes of a file that was read whole, in a temporary file. */
struct copy {
    int fd; /* -1: there is none */
    uint64_t offset;
};

/* A file at a server. */
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

/* What the program uses (objects.c), set by remote_start and remote_stop alone. */
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
    uint32_t retried_count;
    int64_t last_byte_ns, retry_ns;
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

/* The object of a path, after at most one request; of a manifest those of its dataset too. Returns
 * OK, NOTFOUND, IO, USAGE, NOMEM, CORRUPT. */
enum status remote_object_open(struct remote_object **out, const char *path, struct error *err);
/* The object if it was opened already, else NULL. */
struct remote_object *remote_object_find(const char *path);
/* Its copy, if there is one. */
struct copy remote_object_copy(const struct remote_object *o);
/* Whether its dataset was opened without the server. */
bool remote_object_is_offline(const struct remote_object *o);
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
void open_forget(void);     /* in the child: the parent's connections */
void open_stop(void);

/* --- copies (copies.c); one owner at a time reserves and writes --- */

enum status copies_reserve(struct copy *out, uint64_t size_bytes, struct error *err);
/* Offsets are those within the copy. */
enum status copy_write(const struct copy *c,
                       uint64_t offset,
                       const void *bytes,
                       size_t size_bytes,
                       struct error *err);
enum status
copy_read(const struct copy *c, uint64_t offset, void *out, size_t size_bytes, struct error *err);
void copies_after_fork(void); /* in the child */
void copies_close(void);

/* pread of all the bytes; false: errno says why, EIO where the file is shorter. */
bool remote_read_fd(int fd, void *out, uint64_t size_bytes, uint64_t offset);

const struct file_system *remote_files(void);
/* Opens only what was opened before, without asking the server. */
const struct file_system *remote_copies(void);

#endif
