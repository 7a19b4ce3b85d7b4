/*
 * The table of file_io.h for the operating system's files. Every message names the path, so a file
 * stores it.
 */
#include "formats/base/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/file_calls.h"

#define LOCK_NAME ".ccstream.lock"

struct file {
    int fd;
    bool from_start;                     /* writing started at the file's first byte */
    bool is_lock;                        /* the file is removed when it is closed */
    uint64_t written_bytes, begun_bytes; /* begun: write-back was started for these */
    char path[];
};

/* Of one call, so that a call that does not return is told from one that moves much. */
enum { PIECE_MAX_BYTES = 64 << 20 };

static _Atomic uint64_t
    returned_calls; /* see file_calls; no other data depends on it, so relaxed */

static void count_call(void) {
    (void)atomic_fetch_add_explicit(&returned_calls, 1, memory_order_relaxed);
}

uint64_t file_calls(void) {
    return atomic_load_explicit(&returned_calls, memory_order_relaxed);
}

/* From so many bytes on the disk begins to take what was written, and so many bytes later it has
 * them, so that little is left to wait for when the file is synced. */
enum { WRITEBACK_BYTES = 8 << 20, WRITTEN_BYTES = 256 << 20 };

/* Whether positioned reads work. A directory passes: its size is refused with a message. */
static bool is_seekable(int fd) {
    struct stat st;
    return fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode);
}

static enum status posix_open(void *context,
                              struct file **out,
                              const char *path,
                              enum file_open_mode mode,
                              struct error *err) {
    (void)context;
    REQUIRE(out && path);
    *out = NULL;
    struct stat st;
    int flags = O_CLOEXEC;
    switch (mode) {
    case FILE_READ: /* O_NONBLOCK: opening a pipe would wait for a writer */
        flags |= O_RDONLY | O_NONBLOCK;
        break;
    case FILE_CREATE:
        flags |= O_WRONLY | O_CREAT | O_EXCL;
        break;
    case FILE_REPLACE:
        flags |= O_WRONLY | O_CREAT | O_EXCL;
        if (lstat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))) {
            FAIL_ERRNO_IF(unlink(path) != 0, err, "%s: cannot be replaced", path);
        }
        break;
    case FILE_REUSE:
        flags |= O_WRONLY | O_NOFOLLOW;
        break;
    case FILE_APPEND_WRITE:
        flags |= O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW;
        break;
    }
    size_t path_size = strlen(path) + 1;
    struct file *f = calloc(1, sizeof *f + path_size);
    TRY_MEMORY(f, err, "%s: out of memory", path);
    memcpy(f->path, path, path_size);
    f->from_start = mode == FILE_CREATE || mode == FILE_REPLACE || mode == FILE_REUSE;
    do {
        f->fd = open(path, flags, 0666);
    } while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0) {
        enum status s =
            error_set_errno(err, "%s: cannot open for %s", path, mode ? "writing" : "reading");
        free(f);
        return s;
    }
    if (mode == FILE_READ && !is_seekable(f->fd)) {
        close(f->fd);
        free(f);
        return error_set(err, STATUS_IO, "%s: is a pipe or a device, expected a file", path);
    }
    *out = f;
    return STATUS_OK;
}

static void posix_close(struct file *f) {
    if (f) {
        if (f->is_lock) {
            unlink(f->path);
        }
        close(f->fd);
        free(f);
    }
}

static enum status posix_pread(struct file *f,
                               void *out,
                               size_t *got,
                               size_t size_bytes,
                               uint64_t offset,
                               struct error *err) {
    REQUIRE(f && got && (out || size_bytes == 0));
    *got = 0;
    FAIL_IF(offset > (uint64_t)INT64_MAX || size_bytes > (uint64_t)INT64_MAX - offset, err,
            STATUS_IO, "%s: read of %zu bytes at %llu is beyond what a file can hold", f->path,
            size_bytes, (unsigned long long)offset);
    while (*got < size_bytes) {
        size_t piece = size_bytes - *got;
        piece = piece > PIECE_MAX_BYTES ? PIECE_MAX_BYTES : piece;
        ssize_t n = pread(f->fd, (uint8_t *)out + *got, piece, (off_t)(offset + *got));
        count_call();
        if (n < 0 && errno == EINTR) {
            continue;
        }
        FAIL_ERRNO_IF(n < 0, err, "%s: cannot read %zu bytes at %llu", f->path, piece,
                      (unsigned long long)(offset + *got));
        if (n == 0) {
            break;
        }
        *got += (size_t)n;
    }
    return STATUS_OK;
}

/* Only a hint: whether the bytes are on the disk is what sync says. */
static void begin_writeback(struct file *f, size_t size_bytes) {
    f->written_bytes += size_bytes;
    if (f->from_start && f->written_bytes - f->begun_bytes >= WRITEBACK_BYTES) {
        (void)sync_file_range(f->fd, (off_t)f->begun_bytes,
                              (off_t)(f->written_bytes - f->begun_bytes), SYNC_FILE_RANGE_WRITE);
        if (f->begun_bytes >= WRITTEN_BYTES) {
            (void)sync_file_range(f->fd, (off_t)(f->begun_bytes - WRITTEN_BYTES),
                                  (off_t)(f->written_bytes - f->begun_bytes),
                                  SYNC_FILE_RANGE_WAIT_BEFORE);
        }
        f->begun_bytes = f->written_bytes;
    }
}

static enum status
posix_write(struct file *f, const void *data, size_t size_bytes, struct error *err) {
    REQUIRE(f && (data || size_bytes == 0));
    size_t done = 0;
    while (done < size_bytes) {
        size_t piece = size_bytes - done;
        piece = piece > PIECE_MAX_BYTES ? PIECE_MAX_BYTES : piece;
        ssize_t n = write(f->fd, (const uint8_t *)data + done, piece);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        FAIL_ERRNO_IF(n <= 0, err, "%s: cannot write %zu bytes", f->path, piece);
        done += (size_t)n;
        begin_writeback(f, (size_t)n);
        count_call();
    }
    return STATUS_OK;
}

static enum status posix_size(struct file *f, uint64_t *out, struct error *err) {
    REQUIRE(f && out);
    *out = 0;
    struct stat st;
    FAIL_ERRNO_IF(fstat(f->fd, &st) != 0, err, "%s: cannot tell the size", f->path);
    FAIL_IF(S_ISDIR(st.st_mode), err, STATUS_IO, "%s: is a directory, expected a file", f->path);
    *out = (uint64_t)st.st_size;
    return STATUS_OK;
}

static enum status posix_sync(struct file *f, struct error *err) {
    REQUIRE(f);
    /* EINVAL: a pipe or a device, where there is nothing to make durable. */
    FAIL_ERRNO_IF(fsync(f->fd) != 0 && errno != EINVAL, err, "%s: cannot write to stable storage",
                  f->path);
    count_call();
    return STATUS_OK;
}

static enum status
posix_rename(void *context, const char *from, const char *to, struct error *err) {
    (void)context;
    REQUIRE(from && to);
    FAIL_ERRNO_IF(rename(from, to) != 0, err, "%s: cannot rename from %s", to, from);
    return STATUS_OK;
}

static enum status posix_remove(void *context, const char *path, struct error *err) {
    (void)context;
    REQUIRE(path);
    FAIL_ERRNO_IF(remove(path) != 0, err, "%s: cannot remove", path);
    return STATUS_OK;
}

static enum status posix_make_directory(void *context, const char *path, struct error *err) {
    (void)context;
    REQUIRE(path);
    if (mkdir(path, 0777) == 0) {
        return STATUS_OK;
    }
    int code = errno;
    struct stat st;
    if (code == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return STATUS_OK;
    }
    errno = code;
    return error_set_errno(err, "%s: cannot create the directory", path);
}

static enum status posix_sync_directory(void *context, const char *path, struct error *err) {
    (void)context;
    REQUIRE(path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FAIL_ERRNO_IF(fd < 0, err, "%s: cannot open the directory", path);
    enum status s = STATUS_OK;
    /* EINVAL: a file system without durable directories (some network mounts). */
    if (fsync(fd) != 0 && errno != EINVAL) {
        s = error_set_errno(err, "%s: cannot write the directory to stable storage", path);
    }
    close(fd);
    return s;
}

static enum status posix_exists(void *context, const char *path, bool *exists, struct error *err) {
    (void)context;
    REQUIRE(path && exists);
    *exists = false;
    struct stat st;
    if (stat(path, &st) == 0) {
        *exists = true;
    } else if (errno != ENOENT && errno != ENOTDIR) {
        return error_set_errno(err, "%s: cannot tell whether it exists", path);
    }
    return STATUS_OK;
}

static enum status
posix_list(void *context, const char *path, struct byte_buffer *names, struct error *err) {
    (void)context;
    REQUIRE(path && names);
    DIR *directory = opendir(path);
    FAIL_ERRNO_IF(!directory, err, "%s: cannot list it", path);
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        errno = 0; /* distinguishes the end from a failure */
        const struct dirent *entry = readdir(directory);
        if (!entry) {
            s = errno != 0 ? error_set_errno(err, "%s: cannot list it", path) : STATUS_OK;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, LOCK_NAME) != 0) {
            s = byte_buffer_append(names, entry->d_name, strlen(entry->d_name) + 1, err);
        }
    }
    closedir(directory);
    return s;
}

static enum status
posix_link(void *context, const char *target, const char *path, struct error *err) {
    (void)context;
    REQUIRE(target && path);
    char temporary[PATH_MAX_BYTES];
    char ending[FILE_TEMPORARY_BYTES];
    TRY(file_temporary_ending(ending, err));
    int n = snprintf(temporary, sizeof temporary, "%s%s", path, ending);
    FAIL_IF(n < 0 || (size_t)n >= sizeof temporary, err, STATUS_LIMIT,
            "path is longer than %d bytes", PATH_MAX_BYTES - 1);
    /* What earlier processes left if they were killed between the two calls below. */
    file_draft_remove_stale(file_posix(), path);
    FAIL_ERRNO_IF(symlink(target, temporary) != 0, err, "%s: cannot make a link to %s", temporary,
                  target);
    if (rename(temporary, path) != 0) {
        enum status s = error_set_errno(err, "%s: cannot rename from %s", path, temporary);
        unlink(temporary);
        return s;
    }
    return STATUS_OK;
}

static enum status
posix_hard_link(void *context, const char *old, const char *path, struct error *err) {
    (void)context;
    REQUIRE(old && path);
    if (link(old, path) == 0) {
        return STATUS_OK;
    }
    int code = errno;
    enum status s = error_set_errno(err, "%s: cannot be hard-linked to %s", path, old);
    bool cannot = code == EXDEV || code == EPERM || code == EMLINK || code == EOPNOTSUPP ||
                  code == ENOSYS || code == EACCES;
    if (cannot && err) {
        err->status = STATUS_UNSUPPORTED;
    }
    return cannot ? STATUS_UNSUPPORTED : s;
}

static enum status
posix_truncate(void *context, const char *path, uint64_t size_bytes, struct error *err) {
    (void)context;
    REQUIRE(path);
    struct file *f = NULL;
    uint64_t now_bytes = 0;
    TRY(posix_open(NULL, &f, path, FILE_REUSE, err));
    enum status s = posix_size(f, &now_bytes, err);
    if (s == STATUS_OK && now_bytes < size_bytes) {
        s = error_set(err, STATUS_CORRUPT, "%s: has %llu bytes, at least %llu were there", path,
                      (unsigned long long)now_bytes, (unsigned long long)size_bytes);
    } else if (s == STATUS_OK && ftruncate(f->fd, (off_t)size_bytes) != 0) {
        s = error_set_errno(err, "%s: cannot shorten it", path);
    }
    posix_close(f);
    return s;
}

/* Locks the file, which others may have removed meanwhile (then AGAIN). EXISTS: *pid of the process
 * that holds it. A lock for reading is nothing that a writer waits for. */
static enum status lock_file(int fd, const char *path, long *pid) {
    char text[24] = "";
    struct stat here;
    struct stat there;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &l) != 0 && fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_WRLCK) {
        *pid = pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
        return STATUS_EXISTS;
    }
    if (fstat(fd, &here) != 0 || stat(path, &there) != 0 || here.st_ino != there.st_ino) {
        return STATUS_AGAIN;
    }
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    return ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) == n ? STATUS_OK : STATUS_IO;
}

static enum status
posix_lock_directory(void *context, struct file **lock, const char *directory, struct error *err) {
    (void)context;
    REQUIRE(lock && directory);
    *lock = NULL;
    char path[PATH_MAX_BYTES];
    TRY(path_join(path, sizeof path, directory, LOCK_NAME, err));
    size_t path_size = strlen(path) + 1;
    struct file *f = calloc(1, sizeof *f + path_size);
    TRY_MEMORY(f, err, "%s: out of memory", path);
    memcpy(f->path, path, path_size);
    f->is_lock = true;
    long pid = 0;
    enum status s = STATUS_AGAIN;
    while (s == STATUS_AGAIN) { /* what cannot be opened is for the next call to complain of */
        f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        f->fd = f->fd >= 0 ? f->fd : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        s = f->fd < 0 ? STATUS_IO : lock_file(f->fd, path, &pid);
        if (s == STATUS_OK) {
            *lock = f;
            return STATUS_OK;
        }
        if (f->fd >= 0) {
            close(f->fd);
        }
    }
    free(f);
    FAIL_IF(s == STATUS_EXISTS, err, s, "%s: in use by process %ld; wait until it has finished",
            directory, pid);
    return STATUS_OK;
}

static enum status posix_descriptor(struct file *f, int *fd, uint64_t *offset, struct error *err) {
    (void)err;
    REQUIRE(f && fd && offset);
    *fd = f->fd;
    *offset = 0;
    return STATUS_OK;
}

const struct file_system *file_posix(void) {
    static const struct file_system posix = {
        .open = posix_open,
        .close = posix_close,
        .pread = posix_pread,
        .write = posix_write,
        .size = posix_size,
        .sync = posix_sync,
        .rename = posix_rename,
        .remove = posix_remove,
        .make_directory = posix_make_directory,
        .sync_directory = posix_sync_directory,
        .exists = posix_exists,
        .list = posix_list,
        .link = posix_link,
        .hard_link = posix_hard_link,
        .truncate = posix_truncate,
        .lock_directory = posix_lock_directory,
        .descriptor = posix_descriptor,
    };
    return &posix;
}

/* ---- folders ---- */

void file_remove_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        (void)unlinkat(fd, e->d_name, 0);
    }
    if (d != NULL) {
        (void)closedir(d);
        (void)rmdir(path);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

/* Locks a folder of this user until the process ends, as one in use. -1: it is, or another's. */
static int lock_folder(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool ours = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid();
    if (fd >= 0 && (!ours || flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Removes folders of processes that were killed. A new one may not be locked yet. */
static void remove_left(const char *pattern) {
    glob_t all;
    const bool any = glob(pattern, 0, NULL, &all) == 0;
    for (size_t i = 0; any && i < all.gl_pathc; i++) {
        struct stat info;
        const bool old = lstat(all.gl_pathv[i], &info) == 0 && info.st_mtime + 60 < time(NULL);
        const int fd = old ? lock_folder(all.gl_pathv[i]) : -1;
        if (fd >= 0) {
            (void)nftw(all.gl_pathv[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
            close(fd);
        }
    }
    if (any) {
        globfree(&all);
    }
}

enum status file_temporary_folder(char out[PATH_MAX_BYTES], struct error *err) {
    const char *place = getenv("TMPDIR");
    place = place != NULL && place[0] != '\0' ? place : "/tmp";
    TRY(path_join(out, PATH_MAX_BYTES, place, "ccstream-temporary-*", err));
    remove_left(out);
    TRY(path_join(out, PATH_MAX_BYTES, place, "ccstream-temporary-XXXXXX", err));
    FAIL_ERRNO_IF(mkdtemp(out) == NULL, err, "%s: cannot make a temporary folder", out);
    (void)lock_folder(out);
    return STATUS_OK;
}
