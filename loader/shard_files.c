/*
 * shard_files: a table with one row per shard. An unused descriptor stays open until the table is
 * full and another shard is requested; then the least recently used one is closed. The search for
 * it walks all rows, once per open(), and costs less than the open does.
 */
#include "loader/shard_files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "loader/remote/remote_internal.h"

struct shard_row {
    int fd; /* -1: closed */
    uint32_t users;
    uint64_t last_use;
    struct stat first;            /* fixed after create */
    struct remote_object *remote; /* fixed after create; NULL: a local file */
};

struct shard_files {
    const char *(*path_of)(const void *cookie, uint32_t shard);
    const void *cookie;
    uint32_t shard_count;
    bool direct;

    pthread_mutex_t lock; /* guards everything below */
    uint32_t open_count;
    uint64_t clock;
    struct shard_row *rows; /* (shard_count) */
};

static enum status try_direct(const char *path, struct error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0) {
        close(fd);
        return STATUS_OK;
    }
    FAIL_IF(errno == EINVAL, err, STATUS_UNSUPPORTED,
            "%s: this file system does not support direct reads (O_DIRECT)", path);
    return error_set_errno(err, "%s: cannot open this shard", path);
}

static enum status
find_remote(struct shard_files *f, uint32_t shard, const char *path, struct error *err) {
    f->rows[shard].remote = remote_object_find(path);
    FAIL_IF(f->rows[shard].remote == NULL, err, STATUS_NOTFOUND, "%s: cannot find this shard",
            path);
    return !f->direct ? STATUS_OK
                      : error_set(err, STATUS_UNSUPPORTED,
                                  "%s: direct reads (O_DIRECT) require local files", path);
}

static enum status stat_all(struct shard_files *f, struct error *err) {
    for (uint32_t i = 0; i < f->shard_count; i++) {
        const char *path = f->path_of(f->cookie, i);
        if (path_is_remote(path)) {
            TRY(find_remote(f, i, path, err));
            continue;
        }
        FAIL_ERRNO_IF(stat(path, &f->rows[i].first) != 0, err, "%s: cannot find this shard", path);
        if (f->direct) {
            TRY(try_direct(path, err));
        }
    }
    return STATUS_OK;
}

enum status shard_files_create(struct shard_files **out,
                               uint32_t shard_count,
                               bool direct,
                               const char *(*path_of)(const void *cookie, uint32_t shard),
                               const void *cookie,
                               struct error *err) {
    struct shard_files *f = calloc(1, sizeof(*f));
    struct shard_row *rows = calloc(shard_count > 0 ? shard_count : 1, sizeof(*rows));
    if (f == NULL || rows == NULL) {
        free(f);
        free(rows);
        return error_set(err, STATUS_NOMEM, "out of memory for %u shards", shard_count);
    }
    for (uint32_t i = 0; i < shard_count; i++) {
        rows[i].fd = -1;
    }
    f->path_of = path_of;
    f->cookie = cookie;
    f->shard_count = shard_count;
    f->rows = rows;
    f->direct = direct;
    pthread_mutex_init(&f->lock, NULL);
    enum status s = stat_all(f, err);
    RETURN_CREATED(s, out, f, shard_files_destroy);
}

void shard_files_destroy(struct shard_files *f) {
    if (f == NULL) {
        return;
    }
    for (uint32_t i = 0; i < f->shard_count; i++) {
        if (f->rows[i].fd >= 0) {
            close(f->rows[i].fd);
        }
    }
    pthread_mutex_destroy(&f->lock);
    free(f->rows);
    free(f);
}

/* Closes the least recently used descriptor that is not borrowed; false when all are. */
static bool close_oldest(struct shard_files *f) {
    struct shard_row *oldest = NULL;
    for (uint32_t i = 0; i < f->shard_count; i++) {
        struct shard_row *row = &f->rows[i];
        if (row->fd >= 0 && row->users == 0 &&
            (oldest == NULL || row->last_use < oldest->last_use)) {
            oldest = row;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    close(oldest->fd);
    oldest->fd = -1;
    f->open_count--;
    return true;
}

/* `now` is the present state of the file. */
static enum status
compare(const struct shard_files *f, uint32_t shard, const struct stat *now, struct error *err) {
    const struct stat *first = &f->rows[shard].first;
    const char *path = f->path_of(f->cookie, shard);
    FAIL_IF(now->st_size != first->st_size, err, STATUS_CORRUPT,
            "%s: this shard had %lld bytes when loading began, now it has %lld: it "
            "was truncated or replaced",
            path, (long long)first->st_size, (long long)now->st_size);
    FAIL_IF(now->st_dev != first->st_dev || now->st_ino != first->st_ino ||
                now->st_mtim.tv_sec != first->st_mtim.tv_sec ||
                now->st_mtim.tv_nsec != first->st_mtim.tv_nsec,
            err, STATUS_CORRUPT, "%s: this shard was replaced or written to after loading began",
            path);
    return STATUS_OK;
}

static enum status open_row(struct shard_files *f, uint32_t shard, struct error *err) {
    const char *path = f->path_of(f->cookie, shard);
    FAIL_IF(f->open_count >= SHARD_FILES_MAX_OPEN && !close_oldest(f), err, STATUS_LIMIT,
            "%s: %d shards are being read, and no more can be opened: lower the read "
            "depth",
            path, SHARD_FILES_MAX_OPEN);
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | (f->direct ? O_DIRECT : 0));
        /* Too many open files in this process: keeps fewer shards open. */
    } while (fd < 0 && (errno == EINTR || (errno == EMFILE && close_oldest(f))));
    FAIL_ERRNO_IF(fd < 0, err, "%s: cannot open this shard", path);
    struct stat now;
    enum status s = fstat(fd, &now) != 0 ? error_set_errno(err, "%s: cannot stat this shard", path)
                                         : compare(f, shard, &now, err);
    if (s < STATUS_OK) {
        close(fd);
        return s;
    }
    f->rows[shard].fd = fd;
    f->open_count++;
    return STATUS_OK;
}

enum status shard_files_acquire(struct shard_files *f, int *fd, uint32_t shard, struct error *err) {
    enum status s = STATUS_OK;
    REQUIRE(shard < f->shard_count);
    pthread_mutex_lock(&f->lock);
    struct shard_row *row = &f->rows[shard];
    if (row->fd < 0 && row->remote == NULL) {
        s = open_row(f, shard, err);
    }
    if (s == STATUS_OK) {
        row->users++;
        row->last_use = ++f->clock;
        *fd = row->fd;
    }
    pthread_mutex_unlock(&f->lock);
    return s;
}

void shard_files_release(struct shard_files *f, uint32_t shard) {
    pthread_mutex_lock(&f->lock);
    f->rows[shard].users--;
    pthread_mutex_unlock(&f->lock);
}

struct remote_object *shard_files_remote(const struct shard_files *f, uint32_t shard) {
    return f->rows[shard].remote;
}

enum status shard_files_check(struct shard_files *f, uint32_t shard, struct error *err) {
    REQUIRE(shard < f->shard_count);
    struct stat now;
    const char *path = f->path_of(f->cookie, shard);
    if (f->rows[shard].remote != NULL) {
        return STATUS_OK;
    }
    FAIL_IF(stat(path, &now) != 0, err, STATUS_CORRUPT,
            "%s: this shard was removed after loading began", path);
    return compare(f, shard, &now, err);
}

void shard_files_release_all(struct shard_files *f) {
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->shard_count; i++) {
        f->rows[i].users = 0;
    }
    pthread_mutex_unlock(&f->lock);
}
