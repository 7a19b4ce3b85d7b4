/*
 * objects: what is known of every file at a server, and the copies of those that were read whole.
 *
 * A table by path. Opening a file asks for its first byte: the answer has size and ETag, which are
 * fixed from then on. Opening a manifest reads it whole, and then, in parallel, what dataset_open
 * will ask for next: the index beside each shard, whole, and the first byte of each shard. A
 * manifest that changed since it was last opened makes a new generation: what is known of the other
 * files of its folder is dropped from the table, and stays valid for who still uses it.
 *
 * With a cache, what became known of a file is true while the manifest has the same ETag, and a
 * file that was read whole is there: opening the dataset again is one request, and none where the
 * server cannot be reached. A shard that was replaced nevertheless is found by If-Match.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/hash.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "loader/remote/cache_internal.h"
#include "loader/remote/extents_internal.h"
#include "loader/remote/heads_internal.h"
#include "net/location.h"

enum { BUCKETS = 1 << 12, CONNECTIONS = 32, RUN_MS = 100 };

struct remote_folder {
    char *text;
    struct location *location;
    pthread_mutex_t lock; /* of location */
    struct remote_folder *next;
    /* Guarded by `opening`. */
    char generation[HEAD_ETAG_BYTES]; /* ETag of its manifest; "": none was read */
    atomic_bool offline;              /* the server could not be reached: the cache must do */
};

static struct {
    struct remote_options options;
    char *endpoint, *user_agent;
    bool started, survives_fork;
    struct cache *cache; /* NULL: none */

    pthread_mutex_t opening; /* one file or dataset is opened at a time; guards the next two */
    struct remote_client *client;
    struct remote_folder *folders;

    pthread_mutex_t lock; /* guards the rest, and the guarded fields of objects */
    struct remote_object *buckets[BUCKETS];
    struct remote_object *dropped;
    struct extents *extents; /* made when the first piece is needed */
} table = {.opening = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static enum status nomem(struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory for remote files");
}

const struct remote_options *remote_options(void) {
    return &table.options;
}

bool remote_has_cache(void) {
    return table.cache != NULL;
}

enum status remote_extents(struct extents **out, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&table.lock);
    if (table.cache != NULL && table.extents == NULL) {
        s = extents_create(&table.extents, table.cache, err);
    }
    *out = table.extents;
    pthread_mutex_unlock(&table.lock);
    return s;
}

static bool is_manifest(const char *path) {
    return strcmp(strrchr(path, '/') + 1, MANIFEST_NAME) == 0;
}

/* --- folders and objects --- */

static enum status
folder_of(struct remote_folder **out, const char *text, size_t size_bytes, struct error *err) {
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        if (strncmp(f->text, text, size_bytes) == 0 && f->text[size_bytes] == '\0') {
            *out = f;
            return STATUS_OK;
        }
    }
    const struct location_options opt = {.endpoint = table.options.endpoint,
                                         .instance_metadata = table.options.instance_metadata};
    struct remote_folder *f = calloc(1, sizeof(*f));
    if (f == NULL || (f->text = strndup(text, size_bytes)) == NULL) {
        free(f);
        return nomem(err);
    }
    enum status s = location_create(&f->location, f->text, &opt, err);
    if (s < STATUS_OK) {
        free(f->text);
        free(f);
        return s;
    }
    pthread_mutex_init(&f->lock, NULL);
    f->next = table.folders;
    table.folders = f;
    *out = f;
    return STATUS_OK;
}

static void object_destroy(struct remote_object *o) {
    if (o != NULL) {
        free(o->path);
        free(o->url);
        free(o);
    }
}

static struct remote_object **bucket_of(const char *path) {
    return &table.buckets[hash64(path, strlen(path)) % BUCKETS];
}

struct remote_object *remote_object_find(const char *path) {
    pthread_mutex_lock(&table.lock);
    struct remote_object *o = *bucket_of(path);
    while (o != NULL && strcmp(o->path, path) != 0) {
        o = o->next;
    }
    pthread_mutex_unlock(&table.lock);
    return o;
}

static enum status object_of(struct remote_object **out, const char *path, struct error *err) {
    *out = remote_object_find(path);
    if (*out != NULL) {
        return STATUS_OK;
    }
    char url[HTTP_MAX_URL_BYTES];
    struct remote_folder *folder = NULL;
    const char *slash = strrchr(path, '/');
    TRY(folder_of(&folder, path, (size_t)(slash - path), err));
    TRY(location_url(folder->location, url, slash + 1, err));
    struct remote_object *o = calloc(1, sizeof(*o));
    if (o == NULL || (o->path = strdup(path)) == NULL || (o->url = strdup(url)) == NULL) {
        object_destroy(o);
        return nomem(err);
    }
    o->folder = folder;
    o->copy.fd = -1;
    pthread_mutex_lock(&table.lock);
    struct remote_object **bucket = bucket_of(path);
    o->next = *bucket;
    *bucket = o;
    pthread_mutex_unlock(&table.lock);
    *out = o;
    return STATUS_OK;
}

/* Takes every file of a folder out of the table. */
static void drop_folder(const struct remote_folder *folder) {
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < BUCKETS; i++) {
        struct remote_object **at = &table.buckets[i];
        while (*at != NULL) {
            struct remote_object *o = *at;
            if (o->folder != folder) {
                at = &o->next;
                continue;
            }
            *at = o->next;
            o->next = table.dropped;
            table.dropped = o;
        }
    }
    pthread_mutex_unlock(&table.lock);
}

enum status remote_object_start(const struct remote_object *o,
                                struct http *h,
                                struct http_request *request,
                                struct error *err) {
    request->url = o->url;
    pthread_mutex_lock(&o->folder->lock);
    enum status s = location_authorize(o->folder->location, request, err);
    if (s == STATUS_OK) {
        s = http_start(h, request, err);
    }
    pthread_mutex_unlock(&o->folder->lock);
    return s;
}

/* --- what the cache knows --- */

static const char *generation_of(const struct remote_object *o) {
    return is_manifest(o->path) ? "" : o->folder->generation;
}

static bool has_generation(const struct remote_object *o) {
    return table.cache != NULL && (is_manifest(o->path) || o->folder->generation[0] != '\0');
}

static void remember(const struct remote_object *o) {
    if (has_generation(o)) {
        struct head head = {.size_bytes = o->size_bytes, .missing = o->missing};
        (void)snprintf(head.generation, sizeof head.generation, "%s", generation_of(o));
        (void)snprintf(head.etag, sizeof head.etag, "%s", o->etag);
        heads_remember(table.cache, o->url, &head);
    }
}

static bool recall(struct remote_object *o) {
    struct head head;
    if (!has_generation(o) || !heads_recall(table.cache, &head, o->url, generation_of(o))) {
        return false;
    }
    pthread_mutex_lock(&table.lock);
    (void)snprintf(o->etag, sizeof o->etag, "%s", head.etag);
    o->size_bytes = head.size_bytes;
    o->missing = head.missing;
    o->known = !head.missing;
    pthread_mutex_unlock(&table.lock);
    return true;
}

static void remember_copy(const struct remote_object *o) {
    if (table.cache == NULL || o->size_bytes == 0) {
        return;
    }
    void *at =
        mmap(NULL, (size_t)o->size_bytes, PROT_READ, MAP_SHARED, o->copy.fd, (off_t)o->copy.offset);
    if (at != MAP_FAILED) {
        cache_put(table.cache, cache_key_of(o->url, o->etag, o->size_bytes), CACHE_WHOLE, at,
                  o->size_bytes);
        (void)munmap(at, (size_t)o->size_bytes);
    }
}

static bool recall_copy(struct remote_object *o) {
    int fd = -1;
    if (table.cache == NULL || !o->known ||
        cache_get(table.cache, &fd, cache_key_of(o->url, o->etag, o->size_bytes), CACHE_WHOLE,
                  o->size_bytes, true, NULL) != STATUS_OK) {
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
        pthread_mutex_lock(&table.lock);
        o->copy = copy;
        pthread_mutex_unlock(&table.lock);
    }
    return copied;
}

bool remote_object_is_offline(const struct remote_object *o) {
    return o->folder->offline;
}

void remote_object_replaced(const struct remote_object *o) {
    if (table.cache != NULL) {
        heads_forget(table.cache, o->url);
    }
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
    pthread_mutex_lock(&table.lock);
    if (!o->known) {
        (void)snprintf(o->etag, sizeof o->etag, "%s", f->read.etag);
        o->size_bytes = f->read.total_bytes;
        o->known = true;
    }
    if (f->whole) {
        o->copy = f->copy;
    }
    pthread_mutex_unlock(&table.lock);
    if (is_manifest(o->path)) {
        (void)snprintf(o->folder->generation, sizeof o->folder->generation, "%s", o->etag);
    }
    remember(o);
    if (f->whole) {
        remember_copy(o);
    }
}

static void learn_missing(struct remote_object *o) {
    pthread_mutex_lock(&table.lock);
    o->missing = true;
    pthread_mutex_unlock(&table.lock);
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

static void fetch_init(struct fetch *f, struct remote_object *o, bool whole) {
    *f = (struct fetch){.whole = whole, .copy.fd = -1};
    f->read.object = o;
    f->read.size_bytes = whole ? HTTP_UNKNOWN : 1;
    f->read.cookie = f;
    f->read.take = take_copy;
    f->read.done = fetch_done;
}

/* All at the same time; the failures are in the fetches. */
static enum status fetch_all(struct fetch *fetches, size_t count, struct error *err) {
    if (table.client == NULL) {
        TRY(remote_client_create(&table.client, CONNECTIONS, err));
    }
    for (size_t i = 0; i < count; i++) {
        remote_client_start(table.client, &fetches[i].read);
    }
    while (remote_client_pending(table.client) > 0) {
        remote_client_run(table.client, RUN_MS);
    }
    return STATUS_OK;
}

static enum status fetch_one(struct remote_object *o, bool whole, struct error *err) {
    struct fetch f;
    fetch_init(&f, o, whole);
    TRY(fetch_all(&f, 1, err));
    if (f.status != STATUS_OK && err != NULL) {
        *err = f.why;
    }
    return f.status;
}

/* --- a dataset --- */

/* Fetches what dataset_open reads: the indexes, and size and ETag of the shards. */
static enum status fetch_shards(const struct manifest *m, const char *folder, struct error *err) {
    enum status s = STATUS_OK;
    size_t count = 0;
    struct fetch *fetches = calloc(m->shard_count * 2 + 1, sizeof(*fetches));
    if (fetches == NULL) {
        return nomem(err);
    }
    for (size_t i = 0; i < m->shard_count && s == STATUS_OK; i++) {
        char path[PATH_MAX_BYTES];
        char index[PATH_MAX_BYTES];
        struct remote_object *o = NULL;
        s = path_join(path, sizeof path, folder, m->shards[i].name, err);
        if (s == STATUS_OK && (s = object_of(&o, path, err)) == STATUS_OK) {
            if (!recall(o)) {
                fetch_init(&fetches[count++], o, false);
            }
            s = shard_index_name(index, sizeof index, path, err);
        }
        if (s == STATUS_OK && (s = object_of(&o, index, err)) == STATUS_OK &&
            !(recall(o) && (o->missing || recall_copy(o)))) {
            fetch_init(&fetches[count++], o, true);
        }
    }
    if (s == STATUS_OK) {
        s = fetch_all(fetches, count, err);
    }
    /* A shard that is missing is an error now, an index that is missing is not. */
    for (size_t i = 0; i < count && s == STATUS_OK; i++) {
        const struct fetch *f = &fetches[i];
        if (f->status < STATUS_OK && !(f->whole && f->status == STATUS_NOTFOUND)) {
            s = f->status;
            *err = f->why;
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
    if (s == STATUS_IO && table.cache != NULL) {
        log_write(table.options.log, LOG_LEVEL_WARN, "%s; going on with what the cache has",
                  why.text);
        *current = true;
        return STATUS_OK;
    }
    if (s != STATUS_OK && s != STATUS_CORRUPT && err != NULL) { /* CORRUPT: it is another one */
        *err = why;
    }
    return s == STATUS_CORRUPT ? STATUS_OK : s;
}

/* Reads the manifest; where the server cannot be reached, from the cache. */
static enum status fetch_manifest(struct remote_object *o, struct error *err) {
    struct error why = {0};
    enum status s = fetch_one(o, true, &why);
    if (s == STATUS_IO && recall(o) && recall_copy(o)) {
        (void)snprintf(o->folder->generation, sizeof o->folder->generation, "%s", o->etag);
        o->folder->offline = true;
        log_write(table.options.log, LOG_LEVEL_WARN, "%s; going on with what the cache has",
                  why.text);
        return STATUS_OK;
    }
    if (s < STATUS_OK && err != NULL) {
        *err = why;
    }
    return s;
}

static enum status open_manifest(struct remote_object **out, const char *path, struct error *err) {
    struct manifest m;
    char folder[PATH_MAX_BYTES];
    bool current = false;
    TRY(object_of(out, path, err));
    TRY(check_current(*out, &current, err));
    if (current) {
        return STATUS_OK;
    }
    drop_folder((*out)->folder);
    TRY(object_of(out, path, err));
    TRY(fetch_manifest(*out, err));
    TRY(path_directory(folder, sizeof folder, path, err));
    if (manifest_read(&m, remote_copies(), folder, NULL) != STATUS_OK) {
        return STATUS_OK; /* who opens it reports that */
    }
    struct error why = {0};
    enum status s = fetch_shards(&m, folder, &why);
    manifest_fini(&m);
    if (s < STATUS_OK && err != NULL) {
        *err = why;
    }
    if (s < STATUS_OK) {
        drop_folder((*out)->folder);
    }
    return s;
}

static enum status open_file(struct remote_object **out, const char *path, struct error *err) {
    TRY(object_of(out, path, err));
    struct remote_object *o = *out;
    if (!o->known && !o->missing && !recall(o)) {
        const enum status s = fetch_one(o, false, err);
        if (s == STATUS_NOTFOUND) {
            learn_missing(o);
        }
        return s;
    }
    return o->known ? STATUS_OK
                    : error_set(err, STATUS_NOTFOUND, "%.300s: there is no such file", path);
}

enum status remote_object_open(struct remote_object **out, const char *path, struct error *err) {
    *out = NULL;
    pthread_mutex_lock(&table.opening);
    const enum status s =
        is_manifest(path) ? open_manifest(out, path, err) : open_file(out, path, err);
    pthread_mutex_unlock(&table.opening);
    return s;
}

enum status remote_object_map(struct remote_object *o, struct copy *out, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&table.opening);
    if (o->copy.fd < 0 && !recall_copy(o)) {
        s = fetch_one(o, true, err);
    }
    *out = o->copy;
    pthread_mutex_unlock(&table.opening);
    return s;
}

struct copy remote_object_copy(const struct remote_object *o) {
    pthread_mutex_lock(&table.lock);
    const struct copy copy = o->copy;
    pthread_mutex_unlock(&table.lock);
    return copy;
}

/* --- fork --- */

/* What these locks guard is whole in the child: a fork waits for a dataset that is being opened. */
static void before_fork(void) {
    pthread_mutex_lock(&table.opening);
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_lock(&table.lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&table.lock);
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        pthread_mutex_unlock(&f->lock);
    }
    pthread_mutex_unlock(&table.opening);
}

/* The parent's clients are left as they are: to free them would end TLS connections that the parent
 * goes on to use. */
static void after_fork_in_child(void) {
    table.client = NULL;
    table.extents = NULL;
    remote_pread_after_fork();
    copies_after_fork();
    cache_after_fork(table.cache);
    after_fork();
}

/* Once in the life of the process: what is registered stays. */
static enum status survive_fork(struct error *err) {
    if (!table.survives_fork && pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0) {
        return nomem(err);
    }
    table.survives_fork = true;
    return STATUS_OK;
}

/* --- life --- */

void remote_options_default(struct remote_options *opt) {
    *opt = (struct remote_options){.user_agent = "ccstream",
                                   .cache_bytes = REMOTE_CACHE_DEFAULT_BYTES};
}

enum status remote_start(const struct remote_options *opt, struct error *err) {
    REQUIRE(opt != NULL && opt->user_agent != NULL);
    if (table.started) {
        return error_set(err, STATUS_EXISTS, "remote locations are in use already");
    }
    if (opt->cache != NULL && opt->cache_bytes < REMOTE_CACHE_MIN_BYTES) {
        return error_set(err, STATUS_USAGE, "a cache has at least %" PRIu64 " MiB",
                         REMOTE_CACHE_MIN_BYTES >> 20);
    }
    TRY(survive_fork(err));
    if (opt->cache != NULL) {
        TRY(cache_open(&table.cache, opt->cache, opt->cache_bytes, opt->log, err));
    }
    table.options = *opt;
    table.options.cache = NULL; /* the caller's */
    table.user_agent = strdup(opt->user_agent);
    table.endpoint = opt->endpoint != NULL ? strdup(opt->endpoint) : NULL;
    if (table.user_agent == NULL || (opt->endpoint != NULL && table.endpoint == NULL)) {
        remote_stop();
        return nomem(err);
    }
    table.options.user_agent = table.user_agent;
    table.options.endpoint = table.endpoint;
    table.started = true;
    file_system_set_remote(remote_files());
    return STATUS_OK;
}

static void free_list(struct remote_object *o) {
    while (o != NULL) {
        struct remote_object *next = o->next;
        object_destroy(o);
        o = next;
    }
}

void remote_stop(void) {
    file_system_set_remote(NULL);
    extents_destroy(table.extents);
    table.extents = NULL;
    for (size_t i = 0; i < BUCKETS; i++) {
        free_list(table.buckets[i]);
        table.buckets[i] = NULL;
    }
    free_list(table.dropped);
    table.dropped = NULL;
    remote_client_destroy(table.client);
    table.client = NULL;
    remote_pread_stop();
    while (table.folders != NULL) {
        struct remote_folder *f = table.folders;
        table.folders = f->next;
        pthread_mutex_destroy(&f->lock);
        location_destroy(f->location);
        free(f->text);
        free(f);
    }
    copies_close();
    cache_close(table.cache);
    table.cache = NULL;
    free(table.user_agent);
    free(table.endpoint);
    table.user_agent = NULL;
    table.endpoint = NULL;
    table.started = false;
}
