#include "loader/remote/cache_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "loader/remote/remote_internal.h"

enum {
    KEY_DIGITS = 32,
    NAME_BYTES = 96,     /* "KK/KEY-NUMBER", and ".XXXXXXXX.tmp" */
    STALE_SECONDS = 600, /* of a temporary file */
    USE_SECONDS = 60,    /* uses less apart count as one */
    WARN_SECONDS = 60,
    FOLDER_COUNT = 256,
    SLACK_SHARE = 32, /* of the limit: removed at once below it, and written between two scans */
    STEP_BYTES =
        1 << 18, /* hashed and written at a time, while they are in the processor's cache */
};

static const char magic[8] = {'c', 'c', 's', 'X', 'T', 'N', 'T', '1'};
static const char hex_digits[] = "0123456789abcdef";

struct cache {
    uint64_t max_bytes;
    const struct log_sink *log;
    char *path;
    int folder;   /* DIR/ccstream-cache-1 */
    bool shared;  /* others may write DIR */
    bool foreign; /* or have it */
    pthread_mutex_t lock;
    uint64_t used_bytes;    /* at the last scan, and what this process wrote since */
    uint64_t written_bytes; /* since the last scan */
    time_t warned;
};

struct cache_key cache_key_of(const char *url, const char *etag, uint64_t size_bytes) {
    char text[HTTP_MAX_URL_BYTES + 320];
    const int size = snprintf(text, sizeof text, "0%.*s %s %" PRIu64, (int)strcspn(url, "?"), url,
                              etag, size_bytes);
    /* Two hashes of 64 bits: with the first character, and without it. */
    return (struct cache_key){
        .hash = {hash64(text, (size_t)size), hash64(text + 1, (size_t)size - 1)}};
}

struct cache_key cache_key_own(const struct cache *c, struct cache_key key) {
    const uid_t user = geteuid();
    if (c->foreign && !key.own) {
        key.own = true;
        key.hash[0] ^= hash64(&user, sizeof user);
    }
    return key;
}

/* So that a file of one's own does nothing under another name. */
static uint64_t bond_of(struct cache_key key, uint32_t number) {
    return key.own ? key.hash[1] + number : 0;
}

static void name_of(char out[NAME_BYTES], struct cache_key key, uint32_t number) {
    char text[KEY_DIGITS + 1];
    (void)snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, key.hash[0], key.hash[1]);
    if (number == CACHE_HEAD) {
        (void)snprintf(out, NAME_BYTES, "heads/%s", text);
    } else if (number == CACHE_WHOLE) {
        (void)snprintf(out, NAME_BYTES, "%.2s/%s-whole", text, text);
    } else {
        (void)snprintf(out, NAME_BYTES, "%.2s/%s-%" PRIu32, text, text, number);
    }
}

/* --- the trailer --- */

static void
make_trailer(uint8_t out[CACHE_TRAILER_BYTES], uint64_t size_bytes, uint64_t hash, uint64_t bond) {
    memcpy(out, magic, sizeof magic);
    store_u64(out + 8, size_bytes);
    store_u64(out + 16, hash);
    store_u64(out + 24, hash64(out, 24) + bond);
}

bool cache_trailer_parse(const uint8_t trailer[CACHE_TRAILER_BYTES],
                         uint64_t piece_bytes,
                         uint64_t bond,
                         uint64_t *hash) {
    *hash = load_u64(trailer + 16);
    return memcmp(trailer, magic, sizeof magic) == 0 && load_u64(trailer + 8) == piece_bytes &&
           load_u64(trailer + 24) == hash64(trailer, 24) + bond;
}

/* --- whole reads and writes --- */

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

bool remote_write_fd(int fd, const void *bytes, uint64_t size_bytes, uint64_t offset) {
    uint64_t put = 0;
    while (put < size_bytes) {
        const ssize_t n =
            pwrite(fd, (const char *)bytes + put, size_bytes - put, (off_t)(offset + put));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        put += (uint64_t)n;
    }
    return true;
}

/* --- what is there --- */

struct piece {
    char name[NAME_BYTES];
    uint64_t size_bytes;
    time_t used;
    bool whole;
};

struct pieces {
    struct piece *items;
    size_t count, capacity;
    uint64_t total_bytes;
};

/* Of the names that this cache gives, and of no others. */
static bool is_piece(const char *name, bool *whole, bool *temporary) {
    const size_t digits = strspn(name, hex_digits);
    const char *number = name + digits + 1;
    if (digits != KEY_DIGITS || name[digits] != '-') {
        return false;
    }
    *whole = strncmp(number, "whole", 5) == 0;
    const char *end = number + (*whole ? 5 : strspn(number, "0123456789"));
    const size_t size = strlen(end);
    *temporary = end[0] == '.' && size > 4 && strcmp(end + size - 4, ".tmp") == 0;
    return end > number && (end[0] == '\0' || *temporary);
}

static void add_piece(struct pieces *p,
                      const char *folder,
                      const char *name,
                      const struct stat *st,
                      bool whole) {
    if (p->count == p->capacity) {
        const size_t capacity = p->capacity == 0 ? 1024 : 2 * p->capacity;
        struct piece *items = realloc(p->items, capacity * sizeof *items);
        if (items == NULL) {
            return; /* not counted, and not removed */
        }
        p->items = items;
        p->capacity = capacity;
    }
    struct piece *item = &p->items[p->count++];
    *item = (struct piece){
        .size_bytes = (uint64_t)st->st_size, .used = st->st_mtim.tv_sec, .whole = whole};
    (void)snprintf(item->name, sizeof item->name, "%s/%.60s", folder, name);
    p->total_bytes += item->size_bytes;
}

static void scan_folder(struct cache *c, struct pieces *p, const char *name, time_t now) {
    const int fd = openat(c->folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        struct stat st;
        bool whole, temporary;
        if (!is_piece(entry->d_name, &whole, &temporary) ||
            fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) {
            continue;
        }
        if (!temporary) {
            add_piece(p, name, entry->d_name, &st, whole);
        } else if (now - st.st_mtim.tv_sec > STALE_SECONDS) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(d);
}

static void scan(struct cache *c, struct pieces *p) {
    const time_t now = time(NULL);
    for (int i = 0; i < FOLDER_COUNT; i++) {
        char name[3];
        (void)snprintf(name, sizeof name, "%02x", i);
        scan_folder(c, p, name, now);
    }
}

static int by_use(const void *a, const void *b) {
    const struct piece *x = a;
    const struct piece *y = b;
    return x->whole != y->whole ? (x->whole ? 1 : -1)
           : x->used != y->used ? (x->used < y->used ? -1 : 1)
                                : strcmp(x->name, y->name);
}

/* Removes what was not used for longest, unless another process is removing. */
static void evict(struct cache *c, struct pieces *p, uint64_t more_bytes) {
    /* Opened for this: a descriptor that a child of fork has too would lock for both. */
    const int fd = openat(c->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const uint64_t slack = c->max_bytes / SLACK_SHARE;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        qsort(p->items, p->count, sizeof *p->items, by_use);
        for (size_t i = 0; i < p->count && p->total_bytes + more_bytes + slack > c->max_bytes;
             i++) {
            if (unlinkat(c->folder, p->items[i].name, 0) == 0 || errno == ENOENT) {
                p->total_bytes -= p->items[i].size_bytes;
            }
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Requires the lock. Counts what is there, and makes room for more_bytes. */
static void make_room(struct cache *c, uint64_t more_bytes) {
    struct pieces p = {0};
    scan(c, &p);
    if (p.count > 0 && p.total_bytes + more_bytes > c->max_bytes) {
        evict(c, &p, more_bytes);
    }
    c->used_bytes = p.total_bytes;
    c->written_bytes = 0;
    free(p.items);
}

/* --- life --- */

static enum status make_folders(const char *path, struct error *err) {
    char inner[PATH_MAX_BYTES];
    const struct file_system *fs = file_posix();
    TRY(file_make_parents(fs, path, err));
    TRY(fs->make_directory(fs->context, path, err));
    for (int i = -1; i < FOLDER_COUNT; i++) {
        char name[8] = "heads";
        if (i >= 0) {
            (void)snprintf(name, sizeof name, "%02x", i);
        }
        TRY(path_join(inner, sizeof inner, path, name, err));
        FAIL_ERRNO_IF(mkdir(inner, 0777) != 0 && errno != EEXIST, err,
                      "%s: cannot create this folder", inner);
    }
    return STATUS_OK;
}

enum status cache_open(struct cache **out,
                       const char *directory,
                       uint64_t max_bytes,
                       const struct log_sink *log,
                       struct error *err) {
    char path[PATH_MAX_BYTES];
    struct stat folder;
    *out = NULL;
    TRY(path_join(path, sizeof path, directory, "ccstream-cache-1", err));
    TRY(file_make_parents(file_posix(), directory, err));
    (void)mkdir(directory, 0700); /* make_folders says why it cannot */
    TRY(make_folders(path, err));
    struct cache *c = calloc(1, sizeof *c);
    if (c == NULL || (c->path = strdup(path)) == NULL) {
        free(c);
        return error_set(err, STATUS_NOMEM, "out of memory for the cache");
    }
    c->max_bytes = max_bytes;
    c->log = log;
    c->shared = stat(directory, &folder) == 0 && (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    c->foreign = c->shared || folder.st_uid != geteuid();
    c->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->foreign = c->foreign || c->folder < 0 || fstat(c->folder, &folder) != 0 ||
                 folder.st_uid != geteuid() || (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (c->folder < 0) {
        free(c->path);
        free(c);
        return error_set_errno(err, "%s: cannot open the cache", path);
    }
    pthread_mutex_init(&c->lock, NULL);
    make_room(c, 0);
    *out = c;
    return STATUS_OK;
}

void cache_after_fork(struct cache *c) {
    if (c != NULL) {
        pthread_mutex_init(&c->lock, NULL); /* a thread of the parent may have held it */
    }
}

void cache_close(struct cache *c) {
    if (c != NULL) {
        close(c->folder);
        pthread_mutex_destroy(&c->lock);
        free(c->path);
        free(c);
    }
}

/* --- reading --- */

static bool has_hash(int fd, uint64_t size_bytes, uint64_t expected) {
    struct hasher *h = NULL;
    uint8_t *room = malloc(STEP_BYTES);
    bool same = room != NULL && hasher_create(&h, NULL) == STATUS_OK;
    for (uint64_t at = 0; same && at < size_bytes; at += STEP_BYTES) {
        const uint64_t left = size_bytes - at;
        const size_t step = left < STEP_BYTES ? (size_t)left : STEP_BYTES;
        same = remote_read_fd(fd, room, step, at);
        hasher_update(h, room, step);
    }
    same = same && hasher_value(h) == expected;
    hasher_destroy(h);
    free(room);
    return same;
}

static bool
is_intact(int fd, const struct stat *st, uint64_t size_bytes, uint64_t bond, bool verify) {
    uint8_t trailer[CACHE_TRAILER_BYTES];
    uint64_t hash;
    return S_ISREG(st->st_mode) && (uint64_t)st->st_size == size_bytes + CACHE_TRAILER_BYTES &&
           remote_read_fd(fd, trailer, sizeof trailer, size_bytes) &&
           cache_trailer_parse(trailer, size_bytes, bond, &hash) &&
           (!verify || has_hash(fd, size_bytes, hash));
}

enum status cache_get(struct cache *c,
                      int *fd,
                      struct cache_key key,
                      uint32_t number,
                      uint64_t size_bytes,
                      bool verify,
                      struct error *err) {
    char name[NAME_BYTES];
    struct stat st;
    name_of(name, key, number);
    *fd = openat(c->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FAIL_ERRNO_IF(*fd < 0, err, "%s/%s: cannot open this chunk of the cache", c->path, name);
    if (fstat(*fd, &st) == 0 && (!key.own || st.st_uid == geteuid()) &&
        is_intact(*fd, &st, size_bytes, bond_of(key, number), verify)) {
        if (time(NULL) - st.st_mtim.tv_sec > USE_SECONDS) {
            (void)futimens(*fd, NULL);
        }
        return STATUS_OK;
    }
    close(*fd);
    *fd = -1;
    (void)unlinkat(c->folder, name, 0);
    log_write(c->log, LOG_LEVEL_WARN, "%s/%s: is damaged or belongs to another user; fetched again",
              c->path, name);
    return error_set(err, STATUS_NOTFOUND, "%s/%s: is damaged", c->path, name);
}

bool cache_has(struct cache *c, struct cache_key key, uint32_t number) {
    char name[NAME_BYTES];
    name_of(name, key, number);
    return faccessat(c->folder, name, F_OK, 0) == 0;
}

enum status cache_get_head(struct cache *c, struct byte_buffer *out, struct cache_key key) {
    char name[NAME_BYTES];
    struct stat st;
    name_of(name, key, CACHE_HEAD);
    byte_buffer_init(out, CACHE_HEAD_MAX_BYTES);
    const int fd = openat(c->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    RETURN_IF(fd < 0, STATUS_NOTFOUND);
    enum status s = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
                            st.st_size <= CACHE_HEAD_MAX_BYTES &&
                            (!key.own || st.st_uid == geteuid())
                        ? byte_buffer_reserve(out, (size_t)st.st_size, NULL)
                        : STATUS_NOTFOUND;
    if (s == STATUS_OK && remote_read_fd(fd, out->data, (uint64_t)st.st_size, 0)) {
        out->size_bytes = (size_t)st.st_size;
    } else {
        s = s == STATUS_OK ? STATUS_NOTFOUND : s;
    }
    close(fd);
    return s;
}

/* --- writing --- */

struct cache_file {
    struct cache *cache;
    char name[NAME_BYTES];
    char temporary[2 * NAME_BYTES];
    int fd;
    bool failed;
    uint64_t bond;
    struct hasher *hash;
    uint64_t size_bytes, put_bytes; /* taken, and in the file */
    size_t buffered_bytes;
    uint8_t buffer[STEP_BYTES];
};

static void warn(struct cache *c, const char *name) {
    char why[128];
    const char *text = strerror_r(errno, why, sizeof why);
    const time_t now = time(NULL);
    pthread_mutex_lock(&c->lock);
    const bool due = now - c->warned >= WARN_SECONDS;
    c->warned = due ? now : c->warned;
    pthread_mutex_unlock(&c->lock);
    if (due) {
        log_write(c->log, LOG_LEVEL_WARN, "%s/%s: cannot be written; continuing without it: %s",
                  c->path, name, text);
    }
}

/* A new file that has its name later. */
static int open_temporary(struct cache *c, char out[2 * NAME_BYTES], const char *name) {
    char ending[FILE_TEMPORARY_BYTES] = "";
    const enum status s = file_temporary_ending(ending, NULL);
    (void)snprintf(out, (size_t)2 * NAME_BYTES, "%s%s", name, ending);
    const int fd = s == STATUS_OK ? openat(c->folder, out, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                                           c->shared ? 0666 : 0600)
                                  : -1;
    if (fd < 0) {
        warn(c, name);
    }
    return fd;
}

/* Other processes write too: the folder is counted again now and then. */
static void count_in(struct cache *c, uint64_t file_bytes) {
    pthread_mutex_lock(&c->lock);
    if (c->used_bytes + file_bytes > c->max_bytes ||
        c->written_bytes > c->max_bytes / SLACK_SHARE) {
        make_room(c, file_bytes);
    }
    c->used_bytes += file_bytes;
    c->written_bytes += file_bytes;
    pthread_mutex_unlock(&c->lock);
}

struct cache_file *
cache_begin(struct cache *c, struct cache_key key, uint32_t number, uint64_t size_bytes) {
    struct cache_file *f = malloc(sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    f->cache = c;
    f->failed = false;
    f->size_bytes = f->put_bytes = f->buffered_bytes = 0;
    f->bond = bond_of(key, number);
    name_of(f->name, key, number);
    if (hasher_create(&f->hash, NULL) != STATUS_OK) {
        free(f);
        return NULL;
    }
    count_in(c, size_bytes + CACHE_TRAILER_BYTES);
    f->fd = open_temporary(c, f->temporary, f->name);
    if (f->fd < 0) {
        hasher_destroy(f->hash);
        free(f);
        return NULL;
    }
    return f;
}

static bool put_out(struct cache_file *f, const void *bytes, size_t size_bytes) {
    if (!f->failed && !remote_write_fd(f->fd, bytes, size_bytes, f->put_bytes)) {
        f->failed = true;
        warn(f->cache, f->name);
    }
    f->put_bytes += size_bytes;
    return !f->failed;
}

static bool empty_buffer(struct cache_file *f) {
    const size_t size_bytes = f->buffered_bytes;
    f->buffered_bytes = 0;
    hasher_update(f->hash, f->buffer, size_bytes);
    return put_out(f, f->buffer, size_bytes);
}

bool cache_append(struct cache_file *f, const void *bytes, size_t size_bytes) {
    const uint8_t *at = bytes;
    f->size_bytes += size_bytes;
    while (size_bytes > 0) {
        const size_t room = STEP_BYTES - f->buffered_bytes;
        const size_t step = size_bytes < room ? size_bytes : room;
        memcpy(f->buffer + f->buffered_bytes, at, step);
        f->buffered_bytes += step;
        at += step;
        size_bytes -= step;
        if (f->buffered_bytes == STEP_BYTES && !empty_buffer(f)) {
            return false;
        }
    }
    return true;
}

int cache_end(struct cache_file *f, bool complete) {
    struct cache *c = f->cache;
    uint8_t trailer[CACHE_TRAILER_BYTES];
    if (complete && empty_buffer(f)) {
        make_trailer(trailer, f->size_bytes, hasher_value(f->hash), f->bond);
        complete = put_out(f, trailer, sizeof trailer);
        if (complete && renameat(c->folder, f->temporary, c->folder, f->name) != 0) {
            f->failed = true;
            warn(c, f->name);
        }
    }
    int fd = f->fd;
    if (!complete || f->failed) {
        (void)unlinkat(c->folder, f->temporary, 0);
        close(fd);
        fd = -1;
    }
    hasher_destroy(f->hash);
    free(f);
    return fd;
}

void cache_put(struct cache *c,
               struct cache_key key,
               uint32_t number,
               const void *bytes,
               uint64_t size_bytes) {
    struct cache_file *f = cache_begin(c, key, number, size_bytes);
    const int fd = f != NULL ? cache_end(f, cache_append(f, bytes, (size_t)size_bytes)) : -1;
    if (fd >= 0) {
        close(fd);
    }
}

void cache_remove(struct cache *c, struct cache_key key, uint32_t number) {
    char name[NAME_BYTES];
    name_of(name, key, number);
    (void)unlinkat(c->folder, name, 0);
}

void cache_put_head(struct cache *c, struct cache_key key, const void *text, size_t size_bytes) {
    char name[NAME_BYTES];
    char temporary[2 * NAME_BYTES];
    name_of(name, key, CACHE_HEAD);
    const int fd = open_temporary(c, temporary, name);
    if (fd < 0) {
        return;
    }
    if (!remote_write_fd(fd, text, size_bytes, 0) ||
        renameat(c->folder, temporary, c->folder, name) != 0) {
        warn(c, name);
        (void)unlinkat(c->folder, temporary, 0);
    }
    close(fd);
}
