/*
 * shard_files: a table with one row per shard. An unused descriptor stays open until the table is
 * full and another shard is wanted; then the one that was used longest ago is closed. Looking for
 * it walks the rows, which happens once per open() and costs less than the open does.
 */
#include "loader/shard_files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct shard_row {
    int fd; /* -1: closed */
    uint32_t users;
    uint64_t last_use;
};

struct shard_files {
    const char *(*path_of)(const void *cookie, uint32_t shard);
    const void *cookie;
    uint32_t shard_count;

    pthread_mutex_t lock; /* guards everything below */
    uint32_t open_count;
    uint64_t clock;
    struct shard_row *rows; /* (shard_count) */
};

enum status shard_files_create(struct shard_files **out,
                               uint32_t shard_count,
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
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return STATUS_OK;
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

/* Closes the unused descriptor with the oldest use; false when all are borrowed. */
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

static enum status open_row(struct shard_files *f, uint32_t shard, struct error *err) {
    const char *path = f->path_of(f->cookie, shard);
    if (f->open_count >= SHARD_FILES_MAX_OPEN && !close_oldest(f)) {
        return error_set(err, STATUS_LIMIT,
                         "%s: %d shards are being read at once, more cannot be opened: lower the "
                         "read depth",
                         path, SHARD_FILES_MAX_OPEN);
    }
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        /* Too many open files in this process: make do with fewer. */
    } while (fd < 0 && (errno == EINTR || (errno == EMFILE && close_oldest(f))));
    if (fd < 0) {
        return error_set_errno(err, "%s: cannot open this shard", path);
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
    if (row->fd < 0) {
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

void shard_files_release_all(struct shard_files *f) {
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->shard_count; i++) {
        f->rows[i].users = 0;
    }
    pthread_mutex_unlock(&f->lock);
}
