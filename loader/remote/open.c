/*
 * open: what becomes known of the remote files, and the copies of those that are read whole.
 *
 * Opening a file asks for its first byte: the answer has size and ETag, which are fixed from then
 * on. Opening a manifest reads it whole, and then, in parallel, what dataset_open will ask for
 * next: the index beside each shard, whole, and the first byte of each shard. Of what the server's
 * list of the folder has (listing.h: the Hub's, S3's) no first byte is asked for. A manifest that
 * changed since it was last opened makes a new generation: what is known of the other files of its
 * folder is dropped from the table, and stays valid for who still uses it.
 *
 * With a cache, what became known of a file is true while the manifest has the same ETag, and a
 * file that was read whole is there: opening the dataset again is one request, and none where the
 * server cannot be reached. A shard that was replaced nevertheless is found by If-Match. A column
 * is replaced without the manifest: what became known of it is true where there is no server alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "loader/remote/remote_internal.h"
#include "net/listing.h"
#include "net/location.h"

enum { CONNECTIONS = 32, RUN_MS = 100 };

static struct {
    pthread_mutex_t lock; /* one file or dataset is opened at a time */
    struct remote_client *client;
} opening = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- copies: files that were read whole, one after the other, at whole pages, in one temporary
 * file without a name: thousands of indexes need one descriptor, and nothing is left when the
 * process is killed. A child of fork appends to a file of its own, and reads the parent's. --- */

static struct {
    int fd; /* -1: none yet */
    uint64_t size_bytes;
} copies = {.fd = -1};

static enum status copies_reserve(struct copy *out, uint64_t size_bytes, struct error *err) {
    struct statvfs disk;
    if (copies.fd < 0) {
        const char *folder = getenv("TMPDIR");
        char path[PATH_MAX_BYTES];
        TRY(path_join(path, sizeof path, folder != NULL && folder[0] != '\0' ? folder : "/tmp",
                      "ccstream-remote-XXXXXX", err));
        copies.fd = mkostemp(path, 02000000 /* O_CLOEXEC */);
        FAIL_ERRNO_IF(copies.fd < 0 || unlink(path) != 0, err, "%s: cannot make a temporary file",
                      path);
    }
    FAIL_IF(fstatvfs(copies.fd, &disk) == 0 &&
                size_bytes > (uint64_t)disk.f_bavail * disk.f_frsize / 2,
            err, STATUS_LIMIT,
            "a copy of a remote index has %" PRIu64
            " bytes, more than half of the free space in the temporary folder (TMPDIR)",
            size_bytes);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *out = (struct copy){.fd = copies.fd, .offset = copies.size_bytes};
    copies.size_bytes += (size_bytes + page - 1) / page * page;
    return STATUS_OK;
}

/* At an offset within the copy. */
static enum status copy_write(const struct copy *c,
                              uint64_t offset,
                              const void *bytes,
                              size_t size_bytes,
                              struct error *err) {
    FAIL_ERRNO_IF(!remote_write_fd(c->fd, bytes, size_bytes, c->offset + offset), err,
                  "cannot write a copy of a remote index to the temporary folder (TMPDIR)");
    return STATUS_OK;
}

/* --- what the cache knows --- */

static bool is_manifest(const char *path) {
    return strcmp(strrchr(path, '/') + 1, MANIFEST_NAME) == 0;
}

static const char *generation_of(const struct remote_object *o) {
    return is_manifest(o->path) ? "" : o->folder->generation;
}

static bool has_generation(const struct remote_object *o) {
    return remote_view.cache != NULL && (is_manifest(o->path) || o->folder->generation[0] != '\0');
}

static void remember(const struct remote_object *o) {
    if (has_generation(o)) {
        struct head head = {.size_bytes = o->size_bytes, .missing = o->missing};
        (void)snprintf(head.generation, sizeof head.generation, "%s", generation_of(o));
        (void)snprintf(head.etag, sizeof head.etag, "%s", o->etag);
        heads_remember(remote_view.cache, o->url, &head);
    }
}

static bool recall(struct remote_object *o) {
    struct head head;
    if (!has_generation(o) || (remote_is_column(o->path) && !o->folder->offline) ||
        !heads_recall(remote_view.cache, &head, o->url, generation_of(o))) {
        return false;
    }
    if (head.missing) {
        objects_set_missing(o);
    } else {
        objects_set_known(o, head.etag, head.size_bytes);
    }
    return true;
}

static struct cache_key key_of(const struct remote_object *o) {
    return cache_key_own(remote_view.cache, cache_key_of(o->url, o->etag, o->size_bytes));
}

static void remember_copy(const struct remote_object *o) {
    if (remote_view.cache == NULL || o->size_bytes == 0) {
        return;
    }
    void *at =
        mmap(NULL, (size_t)o->size_bytes, PROT_READ, MAP_SHARED, o->copy.fd, (off_t)o->copy.offset);
    if (at != MAP_FAILED) {
        cache_put(remote_view.cache, key_of(o), CACHE_WHOLE, at, o->size_bytes);
        (void)munmap(at, (size_t)o->size_bytes);
    }
}

static bool recall_copy(struct remote_object *o) {
    int fd = -1;
    if (remote_view.cache == NULL || !o->known ||
        cache_get(remote_view.cache, &fd, key_of(o), CACHE_WHOLE, o->size_bytes, true, NULL) !=
            STATUS_OK) {
        return false;
    }
    struct copy copy;
    void *at = mmap(NULL, (size_t)o->size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const bool copied = at != MAP_FAILED &&
                        copies_reserve(&copy, o->size_bytes, NULL) == STATUS_OK &&
                        copy_write(&copy, 0, at, (size_t)o->size_bytes, NULL) == STATUS_OK;
    if (at != MAP_FAILED) {
        (void)munmap(at, (size_t)o->size_bytes);
    }
    close(fd);
    if (copied) {
        objects_set_copy(o, copy);
    }
    return copied;
}

/* --- reading about a file, or all of it --- */

/* One of several reads of one call. */
struct fetch {
    struct remote_read read;
    bool whole;
    struct copy copy; /* of a whole one, once its size is known */
    uint64_t taken_bytes;
    enum status status;
    struct error why;
};

static bool take_copy(void *cookie, const void *bytes, size_t size_bytes, struct error *err) {
    struct fetch *f = cookie;
    const uint64_t total_bytes = f->read.total_bytes;
    if (!f->whole) {
        return true; /* only the answer's head matters */
    }
    if (total_bytes == HTTP_UNKNOWN || size_bytes > total_bytes - f->taken_bytes) {
        (void)error_set(err, STATUS_IO, "%.300s: the server does not announce its size",
                        f->read.object->path);
        return false;
    }
    if (f->copy.fd < 0 && copies_reserve(&f->copy, total_bytes, err) != STATUS_OK) {
        return false;
    }
    if (copy_write(&f->copy, f->taken_bytes, bytes, size_bytes, err) != STATUS_OK) {
        return false;
    }
    f->taken_bytes += size_bytes;
    return true;
}

static void learn(struct fetch *f) {
    struct remote_object *o = f->read.object;
    if (!o->known) {
        objects_set_known(o, f->read.etag, f->read.total_bytes);
    }
    if (f->whole) {
        objects_set_copy(o, f->copy);
    }
    if (is_manifest(o->path)) {
        (void)snprintf(o->folder->generation, sizeof o->folder->generation, "%s", o->etag);
    }
    remember(o);
    if (f->whole) {
        remember_copy(o);
    }
}

static void learn_missing(struct remote_object *o) {
    objects_set_missing(o);
    remember(o);
}

static void fetch_done(void *cookie, enum status s, const struct error *err) {
    struct fetch *f = cookie;
    f->status = s;
    if (s == STATUS_OK && f->read.total_bytes == HTTP_UNKNOWN) {
        f->status = error_set(&f->why, STATUS_IO, "%.300s: the server does not announce its size",
                              f->read.object->path);
    } else if (s == STATUS_OK) {
        learn(f);
    } else {
        f->why = *err;
    }
}

/* Of a file that is read whole: a manifest, an index, or a token cache, whose bound is the room for
 * copies. */
static uint64_t most_bytes(const char *path) {
    const size_t length = strlen(path);
    return is_manifest(path)                                       ? MANIFEST_MAX_BYTES
           : length >= 4 && strcmp(path + length - 4, ".cci") == 0 ? UINT32_MAX
                                                                   : (uint64_t)1 << 36;
}

static void fetch_init(struct fetch *f, struct remote_object *o, bool whole) {
    *f = (struct fetch){.whole = whole, .copy.fd = -1};
    f->read.object = o;
    f->read.size_bytes = whole ? HTTP_UNKNOWN : 1;
    f->read.max_bytes = most_bytes(o->path);
    f->read.dispensable =
        remote_view.cache != NULL && is_manifest(o->path); /* which the cache has */
    f->read.cookie = f;
    f->read.take = take_copy;
    f->read.done = fetch_done;
}

/* All at the same time; the failures are in the fetches. */
static enum status fetch_all(struct fetch *fetches, size_t count, struct error *err) {
    if (opening.client == NULL) {
        TRY(remote_client_create(&opening.client, CONNECTIONS, err));
    }
    for (size_t i = 0; i < count; i++) {
        remote_client_start(opening.client, &fetches[i].read);
    }
    while (remote_client_pending(opening.client) > 0) {
        remote_client_run(opening.client, RUN_MS);
    }
    return STATUS_OK;
}

static enum status fetch_one(struct remote_object *o, bool whole, struct error *err) {
    struct fetch f;
    fetch_init(&f, o, whole);
    TRY(fetch_all(&f, 1, err));
    FAIL_IF(f.status != STATUS_OK, err, f.status, "%s", f.why.text);
    return STATUS_OK;
}

/* --- a dataset --- */

/* The server's list of the folder, where it costs less than asking for each shard; NULL: it has
 * none, or does not give it. */
static struct listing *list_shards(const struct manifest *m, const char *folder) {
    const struct remote_options *o = &remote_view.options;
    const struct location_options how = {.endpoint = o->endpoint,
                                         .instance_metadata = o->instance_metadata};
    struct listing *files = NULL;
    (void)listing_read(&files, folder, &how, o->allow_private, (uint32_t)m->shard_count, NULL);
    return files;
}

/* Whether the list has the size and ETag of a file, which is then known. */
static bool learn_from_list(struct remote_object *o, const struct listing *files) {
    const struct listing_file *f =
        files != NULL ? listing_find(files, strrchr(o->path, '/') + 1) : NULL;
    if (f == NULL || f->etag[0] == '\0' || f->size_bytes == HTTP_UNKNOWN) {
        return false;
    }
    objects_set_known(o, f->etag, f->size_bytes);
    remember(o);
    return true;
}

/* Fetches what dataset_open reads: the indexes, and size and ETag of the shards. */
static enum status fetch_shards(const struct manifest *m, const char *folder, struct error *err) {
    enum status s = STATUS_OK;
    size_t count = 0;
    struct listing *files = NULL;
    bool listed = m->shard_count < 2;
    struct fetch *fetches = calloc(m->shard_count * 2 + 1, sizeof(*fetches));
    TRY_MEMORY(fetches != NULL, err, "out of memory for remote files");
    for (size_t i = 0; i < m->shard_count && s == STATUS_OK; i++) {
        char path[PATH_MAX_BYTES];
        char index[PATH_MAX_BYTES];
        struct remote_object *o = NULL;
        s = path_join(path, sizeof path, folder, m->shards[i].name, err);
        if (s == STATUS_OK && m->base == NULL &&
            (s = objects_get(&o, path, NULL, err)) == STATUS_OK && !recall(o)) {
            files = listed ? files : list_shards(m, folder);
            listed = true;
            if (!learn_from_list(o, files)) {
                fetch_init(&fetches[count++], o, false);
            }
        }
        THEN(s, shard_index_name(index, sizeof index, path, err));
        if (s == STATUS_OK && (s = objects_get(&o, index, NULL, err)) == STATUS_OK &&
            !(recall(o) && (o->missing || recall_copy(o)))) {
            fetch_init(&fetches[count++], o, true);
        }
    }
    listing_destroy(files);
    THEN(s, fetch_all(fetches, count, err));
    /* A shard that is missing is an error now, an index that is missing is not. */
    for (size_t i = 0; i < count && s == STATUS_OK; i++) {
        const struct fetch *f = &fetches[i];
        if (f->status < STATUS_OK && !(f->whole && f->status == STATUS_NOTFOUND)) {
            s = error_set(err, f->status, "%s", f->why.text);
        } else if (f->status == STATUS_NOTFOUND) {
            learn_missing(f->read.object);
        }
    }
    free(fetches);
    return s;
}

/* Whether the manifest that was read before is still the one at the server. */
static enum status check_current(struct remote_object *o, bool *current, struct error *err) {
    struct error why = {0};
    const bool local = o->copy.fd >= 0;
    *current = local && o->folder->offline;
    if (*current || !local || o->etag[0] == '\0') {
        return STATUS_OK;
    }
    const enum status s = fetch_one(o, false, &why);
    *current = s == STATUS_OK;
    if (s == STATUS_IO && remote_view.cache != NULL) {
        log_write(remote_view.options.log, LOG_LEVEL_WARN, "%s; continuing from the cache",
                  why.text);
        *current = true;
        return STATUS_OK;
    }
    FAIL_IF(s != STATUS_OK && s != STATUS_CORRUPT, err, s, "%s", why.text);
    return STATUS_OK; /* CORRUPT: it is another one */
}

/* Reads the manifest; where the server cannot be reached, from the cache. */
static enum status fetch_manifest(struct remote_object *o, struct error *err) {
    struct error why = {0};
    enum status s = fetch_one(o, true, &why);
    if (s == STATUS_IO && recall(o) && recall_copy(o)) {
        (void)snprintf(o->folder->generation, sizeof o->folder->generation, "%s", o->etag);
        o->folder->offline = true;
        log_write(remote_view.options.log, LOG_LEVEL_WARN, "%s; continuing from the cache",
                  why.text);
        return STATUS_OK;
    }
    FAIL_IF(s < STATUS_OK, err, s, "%s", why.text);
    return STATUS_OK;
}

static enum status open_manifest(struct remote_object **out, const char *path, struct error *err) {
    struct manifest m;
    char folder[PATH_MAX_BYTES];
    bool current = false;
    TRY(objects_get(out, path, NULL, err));
    TRY(check_current(*out, &current, err));
    if (current) {
        return STATUS_OK;
    }
    objects_drop_folder((*out)->folder);
    TRY(objects_get(out, path, NULL, err));
    TRY(fetch_manifest(*out, err));
    TRY(path_directory(folder, sizeof folder, path, err));
    if (manifest_read(&m, remote_copies(), folder, NULL) != STATUS_OK) {
        return STATUS_OK; /* who opens it reports that */
    }
    struct error why = {0};
    enum status s = fetch_shards(&m, folder, &why);
    manifest_fini(&m);
    if (s < STATUS_OK) {
        objects_drop_folder((*out)->folder);
        return error_set(err, s, "%s", why.text);
    }
    return STATUS_OK;
}

static enum status open_file(struct remote_object **out, const char *path, struct error *err) {
    TRY(objects_get(out, path, NULL, err));
    struct remote_object *o = *out;
    if (!o->known && !o->missing && !recall(o)) {
        const enum status s = fetch_one(o, false, err);
        if (s == STATUS_NOTFOUND) {
            learn_missing(o);
        }
        return s;
    }
    return o->known ? STATUS_OK : error_set(err, STATUS_NOTFOUND, "%.300s: no such file", path);
}

enum status remote_object_open(struct remote_object **out, const char *path, struct error *err) {
    *out = NULL;
    pthread_mutex_lock(&opening.lock);
    const enum status s =
        is_manifest(path) ? open_manifest(out, path, err) : open_file(out, path, err);
    pthread_mutex_unlock(&opening.lock);
    return s;
}

enum status remote_object_expect(void *context,
                                 const char *path,
                                 const char *etag,
                                 uint64_t size_bytes,
                                 const char *directory,
                                 struct error *err) {
    (void)context;
    pthread_mutex_lock(&opening.lock);
    struct remote_object *o = NULL;
    enum status s = objects_get(&o, path, directory, err);
    if (s == STATUS_OK && o->known && (o->size_bytes != size_bytes || strcmp(o->etag, etag) != 0)) {
        objects_drop_folder(o->folder); /* of another index */
        s = objects_get(&o, path, directory, err);
    }
    if (s == STATUS_OK) {
        objects_set_known(o, etag, size_bytes);
    }
    pthread_mutex_unlock(&opening.lock);
    return s;
}

enum status remote_object_map(struct remote_object *o, struct copy *out, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&opening.lock);
    if (o->copy.fd < 0 && !recall_copy(o)) {
        s = fetch_one(o, true, err);
    }
    *out = o->copy;
    pthread_mutex_unlock(&opening.lock);
    return s;
}

/* --- life --- */

void open_before_fork(void) {
    pthread_mutex_lock(&opening.lock);
}

void open_after_fork(void) {
    pthread_mutex_unlock(&opening.lock);
}

void open_forget(void) {
    opening.client = NULL;
    copies.fd = -1;
    copies.size_bytes = 0;
}

void open_stop(void) {
    remote_client_destroy(opening.client);
    if (copies.fd >= 0) {
        close(copies.fd);
    }
    open_forget();
}
