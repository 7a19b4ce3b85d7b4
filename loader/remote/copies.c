/*
 * copies: remote files that were read whole, one after the other, at whole pages, in one temporary
 * file without a name: thousands of indexes need one descriptor, and nothing is left when the
 * process is killed. A child of fork appends to a file of its own, and reads the parent's.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "loader/remote/remote_internal.h"

static struct {
    int fd; /* -1: none yet */
    uint64_t size_bytes;
} copies = {.fd = -1};

enum status copies_reserve(struct copy *out, uint64_t size_bytes, struct error *err) {
    if (copies.fd < 0) {
        const char *folder = getenv("TMPDIR");
        char path[PATH_MAX_BYTES];
        TRY(path_join(path, sizeof path, folder != NULL && folder[0] != '\0' ? folder : "/tmp",
                      "ccstream-remote-XXXXXX", err));
        copies.fd = mkostemp(path, 02000000 /* O_CLOEXEC */);
        if (copies.fd < 0 || unlink(path) != 0) {
            return error_set_errno(err, "%s: cannot make a temporary file", path);
        }
    }
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *out = (struct copy){.fd = copies.fd, .offset = copies.size_bytes};
    copies.size_bytes += (size_bytes + page - 1) / page * page;
    return STATUS_OK;
}

enum status copy_write(const struct copy *c,
                       uint64_t offset,
                       const void *bytes,
                       size_t size_bytes,
                       struct error *err) {
    const char *at = bytes;
    while (size_bytes > 0) {
        const ssize_t n = pwrite(c->fd, at, size_bytes, (off_t)(c->offset + offset));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return error_set_errno(err, "cannot write a copy of a remote index to the folder of "
                                        "temporary files (TMPDIR)");
        }
        at += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return STATUS_OK;
}

enum status
copy_read(const struct copy *c, uint64_t offset, void *out, size_t size_bytes, struct error *err) {
    return remote_read_fd(c->fd, out, size_bytes, c->offset + offset)
               ? STATUS_OK
               : error_set_errno(err, "cannot read a copy of a remote file");
}

void copies_after_fork(void) {
    copies.fd = -1;
    copies.size_bytes = 0;
}

void copies_close(void) {
    if (copies.fd >= 0) {
        close(copies.fd);
    }
    copies_after_fork();
}

bool remote_read_fd(int fd, void *out, uint64_t size_bytes, uint64_t offset) {
    uint64_t got = 0;
    while (got < size_bytes) {
        const ssize_t n =
            pread(fd, (char *)out + got, (size_t)(size_bytes - got), (off_t)(offset + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return false;
        }
        got += (uint64_t)n;
    }
    return true;
}
