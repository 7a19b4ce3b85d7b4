/*
 * What every writer and reader of whole files needs, on top of any struct file_system.
 *
 *     write PATH.XXXXXXXX.tmp -> fsync -> rename to PATH -> fsync of the directory
 *
 * Before the rename PATH has its old content, after it the new one; the first fsync ensures that
 * the name never refers to a part of the bytes, the second that the new name survives a power
 * failure. Nobody can plant a link under a name that cannot be guessed, and none would be followed.
 */
#include "formats/base/file_io.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    READ_PIECE_BYTES = 64 * 1024,
    COPY_PIECE_BYTES = 1 << 20,
    DRAFT_BYTES = FILE_TEMPORARY_BYTES - 1
};

static enum status read_to_end(const struct file_system *fs,
                               struct file *f,
                               struct byte_buffer *out,
                               const char *path,
                               size_t max_bytes,
                               struct error *err) {
    uint64_t size = 0;
    TRY(fs->size(f, &size, err));
    FAIL_IF(size > max_bytes, err, STATUS_LIMIT, "%s: has %llu bytes, the limit is %zu", path,
            (unsigned long long)size, max_bytes);
    /* The size is a hint only: files under /proc say 0, and a growing file has more. */
    size_t piece = (size_t)size > 0 ? (size_t)size : READ_PIECE_BYTES;
    for (;;) {
        piece = piece > max_bytes - out->size_bytes ? max_bytes - out->size_bytes : piece;
        TRY(byte_buffer_reserve(out, piece + 1, err));
        /* One byte more than expected shows that the file is too long. */
        size_t got = 0;
        TRY(fs->pread(f, out->data + out->size_bytes, &got, piece + 1, out->size_bytes, err));
        if (got <= piece) {
            out->size_bytes += got;
            break;
        }
        FAIL_IF(got > max_bytes - out->size_bytes, err, STATUS_LIMIT,
                "%s: has more than the limit of %zu bytes", path, max_bytes);
        out->size_bytes += got;
        piece = READ_PIECE_BYTES;
    }
    out->data[out->size_bytes] = '\0';
    return STATUS_OK;
}

enum status file_read_all(const struct file_system *fs,
                          struct byte_buffer *out,
                          const char *path,
                          size_t max_bytes,
                          struct error *err) {
    REQUIRE(fs && out && path && max_bytes < SIZE_MAX);
    byte_buffer_init(out, max_bytes + 1);
    struct file *f = NULL;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = read_to_end(fs, f, out, path, max_bytes, err);
    fs->close(f);
    if (s < STATUS_OK) {
        byte_buffer_fini(out);
    }
    return s;
}

enum status
file_size(const struct file_system *fs, uint64_t *size_bytes, const char *path, struct error *err) {
    struct file *f = NULL;
    TRY(fs->open(fs->context, &f, path, FILE_READ, err));
    enum status s = fs->size(f, size_bytes, err);
    fs->close(f);
    return s;
}

enum status
file_append(const struct file_system *fs,
            struct file *to,
            const char *from,
            uint64_t size_bytes,
            enum status (*seen)(void *cookie, const void *data, size_t size_bytes, struct error *),
            void *cookie,
            struct error *err) {
    struct file *f = NULL;
    uint8_t *piece = malloc(COPY_PIECE_BYTES);
    enum status s = piece ? fs->open(fs->context, &f, from, FILE_READ, err)
                          : error_set(err, STATUS_NOMEM, "%s: out of memory for a copy", from);
    for (uint64_t at = 0; s == STATUS_OK && at < size_bytes;) {
        uint64_t left = size_bytes - at;
        size_t got = 0;
        s = fs->pread(f, piece, &got, left < COPY_PIECE_BYTES ? (size_t)left : COPY_PIECE_BYTES, at,
                      err);
        if (s == STATUS_OK && got == 0) {
            s = error_set(err, STATUS_CORRUPT, "%s: has become shorter", from);
        }
        THEN(s, fs->write(to, piece, got, err));
        if (s == STATUS_OK && seen) {
            s = seen(cookie, piece, got, err);
        }
        at += got;
    }
    fs->close(f);
    free(piece);
    return s;
}

enum status file_temporary_ending(char out[FILE_TEMPORARY_BYTES], struct error *err) {
    uint32_t number = 0;
    FAIL_ERRNO_IF(getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number, err,
                  "cannot get a random number for a temporary name");
    (void)snprintf(out, FILE_TEMPORARY_BYTES, ".%08x.tmp", (unsigned)number);
    return STATUS_OK;
}

enum status file_draft_open(struct file_draft *d,
                            const struct file_system *fs,
                            const char *path,
                            struct error *err) {
    REQUIRE(d && fs && path);
    d->fs = fs;
    d->file = NULL;
    char ending[FILE_TEMPORARY_BYTES];
    TRY(file_temporary_ending(ending, err));
    int n = snprintf(d->temporary, sizeof d->temporary, "%s%s", path, ending);
    FAIL_IF(n < 0 || (size_t)n >= sizeof d->temporary, err, STATUS_LIMIT,
            "%.80s...: the path is longer than %d bytes", path, PATH_MAX_BYTES - DRAFT_BYTES - 1);
    memcpy(d->path, path, strlen(path) + 1);
    return fs->open(fs->context, &d->file, d->temporary, FILE_CREATE, err);
}

size_t file_draft_name_bytes(const char *temporary) {
    const size_t size = strlen(temporary);
    if (size <= 4 || strcmp(temporary + size - 4, ".tmp") != 0) {
        return 0;
    }
    const char *number = temporary + size - (size > DRAFT_BYTES ? DRAFT_BYTES : size);
    return *number == '.' && strspn(number + 1, "0123456789abcdef") == 8 ? size - DRAFT_BYTES
                                                                         : size - 4;
}

enum status file_draft_close(struct file_draft *d, enum status s, struct error *err) {
    const struct file_system *fs = d->fs;
    char directory[PATH_MAX_BYTES];
    if (!d->file) {
        return s;
    }
    THEN(s, fs->sync(d->file, err));
    fs->close(d->file);
    d->file = NULL;
    THEN(s, fs->rename(fs->context, d->temporary, d->path, err));
    if (s != STATUS_OK) {
        fs->remove(fs->context, d->temporary, NULL); /* the first failure is the one to report */
        return s;
    }
    TRY(path_directory(directory, sizeof directory, d->path, err));
    return fs->sync_directory(fs->context, directory, err);
}

void file_draft_remove_stale(const struct file_system *fs, const char *path) {
    char directory[PATH_MAX_BYTES];
    char stale[PATH_MAX_BYTES];
    struct byte_buffer names;
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    byte_buffer_init(&names, 0);
    if (path_directory(directory, sizeof directory, path, NULL) == STATUS_OK) {
        (void)fs->list(fs->context, directory, &names, NULL);
    }
    for (size_t at = 0; at < names.size_bytes; at += strlen((char *)names.data + at) + 1) {
        const char *name = (const char *)names.data + at;
        if (file_draft_name_bytes(name) == strlen(base) && strncmp(name, base, strlen(base)) == 0 &&
            path_join(stale, sizeof stale, directory, name, NULL) == STATUS_OK) {
            fs->remove(fs->context, stale, NULL);
        }
    }
    byte_buffer_fini(&names);
}

enum status file_write_atomic(const struct file_system *fs,
                              const char *path,
                              const void *data,
                              size_t size_bytes,
                              struct error *err) {
    REQUIRE(fs && path && (data || size_bytes == 0));
    struct file_draft d;
    TRY(file_draft_open(&d, fs, path, err));
    return file_draft_close(&d, fs->write(d.file, data, size_bytes, err), err);
}

enum status file_make_parents(const struct file_system *fs, const char *path, struct error *err) {
    REQUIRE(fs && path);
    char part[PATH_MAX_BYTES];
    char above[PATH_MAX_BYTES];
    size_t size_bytes = strlen(path);
    while (size_bytes > 1 && path[size_bytes - 1] == '/') {
        size_bytes--;
    }
    FAIL_IF(size_bytes >= sizeof part, err, STATUS_LIMIT,
            "%.80s...: the path is longer than %d bytes", path, PATH_MAX_BYTES - 1);
    for (size_t i = 1; i < size_bytes; i++) {
        bool exists = false;
        if (path[i] != '/' || path[i - 1] == '/') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        TRY(fs->exists(fs->context, part, &exists, err));
        if (!exists) {
            TRY(fs->make_directory(fs->context, part, err));
            TRY(path_directory(above, sizeof above, part, err));
            TRY(fs->sync_directory(fs->context, above, err));
        }
    }
    return STATUS_OK;
}

static const struct file_system *_Atomic remote_files;

bool path_is_remote(const char *path) {
    const size_t scheme = strcspn(path, ":/");
    return scheme > 0 && strncmp(path + scheme, "://", 3) == 0;
}

const struct file_system *file_system_of(const char *path) {
    const struct file_system *remote = path_is_remote(path) ? atomic_load(&remote_files) : NULL;
    return remote ? remote : file_posix();
}

void file_system_set_remote(const struct file_system *fs) {
    atomic_store(&remote_files, fs);
}

enum status
path_join(char *out, size_t out_size_bytes, const char *a, const char *b, struct error *err) {
    REQUIRE(out && out_size_bytes > 0 && a && b);
    size_t a_size = strlen(a);
    int n;
    if (a_size == 0 || b[0] == '/') {
        n = snprintf(out, out_size_bytes, "%s", b);
    } else {
        n = snprintf(out, out_size_bytes, "%s%s%s", a, a[a_size - 1] == '/' ? "" : "/", b);
    }
    if (n < 0 || (size_t)n >= out_size_bytes) {
        out[0] = '\0';
        return error_set(err, STATUS_LIMIT, "path of %d bytes, the limit is %zu", n,
                         out_size_bytes - 1);
    }
    return STATUS_OK;
}

enum status path_directory(char *out, size_t out_size_bytes, const char *path, struct error *err) {
    REQUIRE(out && out_size_bytes > 1 && path);
    const char *slash = strrchr(path, '/');
    const char *start = path;
    size_t size = 0;
    if (!slash) {
        start = ".";
        size = 1;
    } else {
        size = slash == path ? 1 : (size_t)(slash - path);
    }
    if (size >= out_size_bytes) {
        out[0] = '\0';
        return error_set(err, STATUS_LIMIT, "path of %zu bytes, the limit is %zu", size,
                         out_size_bytes - 1);
    }
    memcpy(out, start, size);
    out[size] = '\0';
    return STATUS_OK;
}
