/*
 * file_io: access to the file system for everything that is written, and for whole-file and
 * positioned reads. It is a small table of functions, so that tests can use a file system in memory
 * or one that injects faults.
 *
 * Threading : a struct file_system is immutable after creation and may be shared; the functions of
 *             file_posix() are as thread-safe as POSIX. A struct file has one owner; pread may be
 *             called from several threads.
 * Ownership : open returns a file that close releases. close accepts NULL.
 */
#ifndef FORMATS_BASE_FILE_IO_H
#define FORMATS_BASE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/status.h"

enum { PATH_MAX_BYTES = 4096 };

struct file; /* opaque, each file system has its own */

enum file_open_mode {
    FILE_READ,    /* must exist; a pipe or a device is refused at once */
    FILE_CREATE,  /* write; must not exist */
    FILE_REPLACE, /* write; a file or link of that name is removed */
    FILE_REUSE,   /* write from the start of a file that exists; until it is truncated, bytes after
                     what was written are undefined */
    FILE_APPEND_WRITE, /* write at the end; created when missing */
}; /* no mode that writes follows a link at `path`: others may have planted it */

/* Every function returns OK or a failure with a message that names the path. Short reads and
 * writes and EINTR are handled inside. */
struct file_system {
    void *context;
    enum status (*open)(void *context,
                        struct file **out,
                        const char *path,
                        enum file_open_mode mode,
                        struct error *err);
    void (*close)(struct file *f);
    /* Reads up to size_bytes at offset; *got is smaller only at the end of the file. */
    enum status (*pread)(struct file *f,
                         void *out,
                         size_t *got,
                         size_t size_bytes,
                         uint64_t offset,
                         struct error *err);
    /* Appends all of it at the current end of what this handle has written. */
    enum status (*write)(struct file *f, const void *data, size_t size_bytes, struct error *err);
    enum status (*size)(struct file *f, uint64_t *out, struct error *err);
    enum status (*sync)(struct file *f, struct error *err);
    enum status (*rename)(void *context, const char *from, const char *to, struct error *err);
    enum status (*remove)(void *context, const char *path, struct error *err);
    enum status (*make_directory)(void *context,
                                  const char *path,
                                  struct error *err); /* OK if it is there */
    enum status (*sync_directory)(void *context, const char *path, struct error *err);
    /* OK and *exists; a failure only if that cannot be determined. */
    enum status (*exists)(void *context, const char *path, bool *exists, struct error *err);
    /* Appends the names in a directory, each followed by a NUL, in any order, without "." and "..",
     * and without the file of lock_directory. NOTFOUND if there is no such directory. */
    enum status (*list)(void *context,
                        const char *path,
                        struct byte_buffer *names,
                        struct error *err);
    /* Symbolic link at `path` pointing to `target`, replaced atomically. */
    enum status (*link)(void *context, const char *target, const char *path, struct error *err);
    /* A second name for the same file. EXISTS if `path` exists, UNSUPPORTED if hard links between
     * the two paths are not possible. */
    enum status (*hard_link)(void *context, const char *old, const char *path, struct error *err);
    /* Truncates a file that is not open to its first size_bytes. CORRUPT if it has fewer. A power
     * failure may undo it until the file is synced. */
    enum status (*truncate)(void *context,
                            const char *path,
                            uint64_t size_bytes,
                            struct error *err);
    /* Locks a directory against others that ask for the lock, until *lock is closed or the process
     * ends in any way. The lock is on a file in it, so that only those who may write there can hold
     * it. OK and *lock NULL if no file can be made, or the file system has no such locks. EXISTS if
     * it is locked; the message names the process. */
    enum status (*lock_directory)(void *context,
                                  struct file **lock,
                                  const char *path,
                                  struct error *err);
    /* A descriptor for mmap, borrowed until close. The file begins at *offset in it, a multiple of
     * the page size, and may be replaced but is never truncated. UNSUPPORTED if there is none. The
     * pointer may be NULL. */
    enum status (*descriptor)(struct file *f, int *fd, uint64_t *offset, struct error *err);
    /* For remote files: announces a file's ETag and size, so that opening it needs no request;
     * reading fails if the server has another file. `directory` is the dataset that records them.
     * The pointer may be NULL. */
    enum status (*expect)(void *context,
                          const char *path,
                          const char *etag,
                          uint64_t size_bytes,
                          const char *directory,
                          struct error *err);
};

/* The operating system's files. */
const struct file_system *file_posix(void);

/* The file system that a path belongs to: the one that was set for "SCHEME://...", or else
 * file_posix(). Any thread. */
const struct file_system *file_system_of(const char *path);
void file_system_set_remote(const struct file_system *fs); /* NULL: none */
bool path_is_remote(const char *path);                     /* has a scheme */

/* Reads a whole file of at most max_bytes into `out` (initialised by this call; a NUL follows the
 * last byte and is not counted). Returns OK, IO, NOTFOUND, NOMEM or LIMIT. */
enum status file_read_all(const struct file_system *fs,
                          struct byte_buffer *out,
                          const char *path,
                          size_t max_bytes,
                          struct error *err);

/* The size of a file. Returns OK, NOTFOUND or IO. */
enum status
file_size(const struct file_system *fs, uint64_t *size_bytes, const char *path, struct error *err);

/* Appends the first `size_bytes` of the file at `from` to `to`, in chunks. `seen` (may be NULL)
 * receives every chunk after it is written; any result except OK stops the copy. Returns OK,
 * CORRUPT (the file is shorter), NOTFOUND, IO, NOMEM, or what `seen` returned. */
enum status
file_append(const struct file_system *fs,
            struct file *to,
            const char *from,
            uint64_t size_bytes,
            enum status (*seen)(void *cookie, const void *data, size_t size_bytes, struct error *),
            void *cookie,
            struct error *err);

enum { FILE_TEMPORARY_BYTES = 14 };

/* The ending ".XXXXXXXX.tmp" that every temporary name has until its file is complete, where X is a
 * random hexadecimal digit, so that others cannot plant a link or a file there. Returns OK or
 * IO. */
enum status file_temporary_ending(char out[FILE_TEMPORARY_BYTES], struct error *err);

/* A file that is written to PATH.XXXXXXXX.tmp, where X is a random hexadecimal digit, and gets its
 * name when it is complete. Use `fs` to write to `file`. */
struct file_draft {
    const struct file_system *fs;
    struct file *file; /* NULL: closed */
    char path[PATH_MAX_BYTES], temporary[PATH_MAX_BYTES];
};

/* Creates the temporary file. Returns OK, LIMIT (the path is too long) or a failure of opening. */
enum status file_draft_open(struct file_draft *d,
                            const struct file_system *fs,
                            const char *path,
                            struct error *err);

/* Does nothing with a closed draft. If `status` is OK: fsync, rename, fsync of the directory;
 * otherwise, and if any of these but the last fails, PATH is untouched and the temporary file
 * is removed. Returns `status`, or the first failure. */
enum status file_draft_close(struct file_draft *d, enum status status, struct error *err);

/* Bytes of NAME at the start of NAME.XXXXXXXX.tmp, which a killed process may leave, or of
 * NAME.tmp; 0: it is another name. */
size_t file_draft_name_bytes(const char *temporary);

/* Removes drafts of `path` left by killed processes. Requires the lock of its folder.
 */
void file_draft_remove_stale(const struct file_system *fs, const char *path);

/* Writes a file so that a reader sees the old content or all of the new one: a draft, fsync,
 * rename, fsync of the directory. On failure PATH is untouched and the draft is removed, unless
 * only the last fsync failed: then PATH has the new content, which a power failure may still undo.
 */
enum status file_write_atomic(const struct file_system *fs,
                              const char *path,
                              const void *data,
                              size_t size_bytes,
                              struct error *err);

/* "a/b" from "a" and "b"; `b` alone when `a` is empty or b is absolute. LIMIT when it does not fit.
 */
enum status
path_join(char *out, size_t out_size_bytes, const char *a, const char *b, struct error *err);

/* Makes every missing directory above `path`, and each of them durable. Returns OK, LIMIT (the path
 * is too long) or a failure of making one. */
enum status file_make_parents(const struct file_system *fs, const char *path, struct error *err);

/* Creates a folder of a unique name in $TMPDIR (else /tmp), accessible to this user only; remove it
 * with file_remove_folder. Also removes such folders that this user's killed processes left.
 * Returns OK, LIMIT (the path is too long) or a failure of making it. */
enum status file_temporary_folder(char out[PATH_MAX_BYTES], struct error *err);

/* Removes a folder with its files, unless it contains folders. Symbolic links are not followed. */
void file_remove_folder(const char *path);

/* The directory part of `path` ("." when there is none). */
enum status path_directory(char *out, size_t out_size_bytes, const char *path, struct error *err);

#endif
