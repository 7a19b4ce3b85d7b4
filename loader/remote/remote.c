/*
 * remote: the options of the program, its cache, the table of the files at servers that were named,
 * by path, and of their folders, and what is left of them in a child of fork. A file that is
 * dropped from the table remains valid for its users.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/columns/columns.h"
#include "loader/remote/remote_internal.h"
#include "net/location.h"

enum { BUCKETS = 1 << 12 };

struct remote_view remote_view;

static struct {
    struct remote_folder *folders; /* guarded by who opens */
    pthread_mutex_t lock;          /* guards the rest, and the guarded fields of objects */
    struct remote_object *buckets[BUCKETS];
    struct remote_object *dropped;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum status nomem(struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory for remote files");
}

/* --- folders and objects --- */

/* Whether the user, and not only a file that he opened, named a location. */
static bool is_named(const char *text, const struct location *location) {
    const struct remote_options *o = &remote_view.options;
    const size_t size_bytes = strlen(text);
    bool named = !o->only_places || location_endpoint_is_named(location);
    for (size_t i = 0; i < o->place_count && !named; i++) {
        const bool begins = strncmp(o->places[i], text, size_bytes) == 0;
        const char *rest = begins ? o->places[i] + size_bytes : "?";
        named = *rest == '\0' || *rest == ':' || strcmp(rest, "/") == 0;
    }
    return named;
}

/* `directory`: of the dataset whose manifest names the folder; NULL: none does. */
static enum status folder_of(struct remote_folder **out,
                             const char *text,
                             size_t size_bytes,
                             const char *directory,
                             struct error *err) {
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        if (strncmp(f->text, text, size_bytes) == 0 && f->text[size_bytes] == '\0') {
            *out = f;
            return STATUS_OK;
        }
    }
    const struct location_options opt = {.endpoint = remote_view.options.endpoint,
                                         .instance_metadata =
                                             remote_view.options.instance_metadata};
    struct remote_folder *f = calloc(1, sizeof(*f));
    if (f == NULL || (f->text = strndup(text, size_bytes)) == NULL) {
        free(f);
        return nomem(err);
    }
    enum status s = location_create(&f->location, f->text, &opt, err);
    f->unnamed = directory != NULL;
    const char *named = directory != NULL ? directory : f->text;
    if (s == STATUS_OK && !is_named(named, f->location)) {
        s = error_set(err, STATUS_USAGE,
                      "%.120s: only a run's config.json contains this location, so no request is "
                      "sent there; to read it, add --data '%.120s'%s",
                      f->text, named,
                      strncmp(f->text, "s3://", 5) == 0 ? " or name its server by --endpoint" : "");
    }
    if (s < STATUS_OK) {
        location_destroy(f->location);
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

bool remote_is_column(const char *path) {
    const size_t size = strlen("/" COLUMNS_FOLDER);
    const char *slash = strrchr(path, '/');
    const char *end = strrchr(path, '.');
    return (size_t)(slash - path) > size && memcmp(slash - size, "/" COLUMNS_FOLDER, size) == 0 &&
           (strcmp(slash - size + 1, COLUMN_LIST_NAME) == 0 ||
            (end != NULL && strcmp(end, ".ccc") == 0));
}

enum status objects_get(struct remote_object **out,
                        const char *path,
                        const char *directory,
                        struct error *err) {
    *out = remote_object_find(path);
    if (*out != NULL) {
        return STATUS_OK;
    }
    char url[HTTP_MAX_URL_BYTES];
    struct remote_folder *folder = NULL;
    const char *slash = strrchr(path, '/');
    slash -= remote_is_column(path) ? strlen("/" COLUMNS_FOLDER) : 0; /* the dataset's folder */
    TRY(folder_of(&folder, path, (size_t)(slash - path), directory, err));
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

void objects_drop_folder(const struct remote_folder *folder) {
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
    request->remembers = true;
    request->unnamed = o->folder->unnamed;
    pthread_mutex_lock(&o->folder->lock);
    enum status s = location_authorize(o->folder->location, request, err);
    THEN(s, http_start(h, request, err));
    pthread_mutex_unlock(&o->folder->lock);
    return s;
}

/* --- what is known of an object --- */

void objects_set_known(struct remote_object *o, const char *etag, uint64_t size_bytes) {
    pthread_mutex_lock(&table.lock);
    (void)snprintf(o->etag, sizeof o->etag, "%s", etag);
    o->size_bytes = size_bytes;
    o->missing = false;
    o->known = true;
    pthread_mutex_unlock(&table.lock);
}

void objects_set_missing(struct remote_object *o) {
    pthread_mutex_lock(&table.lock);
    o->missing = true;
    pthread_mutex_unlock(&table.lock);
}

void objects_set_copy(struct remote_object *o, struct copy copy) {
    pthread_mutex_lock(&table.lock);
    o->copy = copy;
    pthread_mutex_unlock(&table.lock);
}

struct copy remote_object_copy(const struct remote_object *o) {
    pthread_mutex_lock(&table.lock);
    const struct copy copy = o->copy;
    pthread_mutex_unlock(&table.lock);
    return copy;
}

void remote_object_replaced(const struct remote_object *o) {
    if (remote_view.cache != NULL) {
        heads_forget(remote_view.cache, o->url);
    }
}

/* --- fork --- */

static struct {
    char *endpoint, *user_agent;
    bool started, survives_fork;
} remote;

static void objects_before_fork(void) {
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_lock(&table.lock);
}

static void objects_after_fork(void) {
    pthread_mutex_unlock(&table.lock);
    for (struct remote_folder *f = table.folders; f != NULL; f = f->next) {
        pthread_mutex_unlock(&f->lock);
    }
}

/* What these locks guard is whole in the child: a fork waits for a dataset that is being opened. */
static void before_fork(void) {
    open_before_fork();
    objects_before_fork();
    extents_before_fork();
}

static void after_fork(void) {
    extents_after_fork();
    objects_after_fork();
    open_after_fork();
}

/* The parent's clients are left as they are: to free them would end TLS connections that the parent
 * goes on to use. */
static void after_fork_in_child(void) {
    open_forget();
    extents_abandon();
    remote_pread_after_fork();
    cache_after_fork(remote_view.cache);
    after_fork();
}

/* Once in the life of the process: what is registered stays. */
static enum status survive_fork(struct error *err) {
    FAIL_IF(!remote.survives_fork &&
                pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0,
            err, STATUS_NOMEM, "out of memory for remote files");
    remote.survives_fork = true;
    return STATUS_OK;
}

/* --- life --- */

static void free_list(struct remote_object *o) {
    while (o != NULL) {
        struct remote_object *next = o->next;
        object_destroy(o);
        o = next;
    }
}

static void free_table(void) {
    for (size_t i = 0; i < BUCKETS; i++) {
        free_list(table.buckets[i]);
        table.buckets[i] = NULL;
    }
    free_list(table.dropped);
    table.dropped = NULL;
    while (table.folders != NULL) {
        struct remote_folder *f = table.folders;
        table.folders = f->next;
        pthread_mutex_destroy(&f->lock);
        location_destroy(f->location);
        free(f->text);
        free(f);
    }
}

void remote_options_default(struct remote_options *opt) {
    *opt = (struct remote_options){.user_agent = "ccstream",
                                   .cache_bytes = REMOTE_CACHE_DEFAULT_BYTES};
}

enum status remote_start(const struct remote_options *opt, struct error *err) {
    REQUIRE(opt != NULL && opt->user_agent != NULL);
    FAIL_IF(remote.started, err, STATUS_EXISTS, "remote locations are in use already");
    FAIL_IF(opt->cache != NULL && opt->cache_bytes < REMOTE_CACHE_MIN_BYTES, err, STATUS_USAGE,
            "a cache has at least %" PRIu64 " MiB", REMOTE_CACHE_MIN_BYTES >> 20);
    TRY(survive_fork(err));
    if (opt->cache != NULL) {
        TRY(cache_open(&remote_view.cache, opt->cache, opt->cache_bytes, opt->log, err));
    }
    remote_view.options = *opt;
    remote_view.options.cache = NULL; /* the caller's */
    remote.user_agent = strdup(opt->user_agent);
    remote.endpoint = opt->endpoint != NULL ? strdup(opt->endpoint) : NULL;
    if (remote.user_agent == NULL || (opt->endpoint != NULL && remote.endpoint == NULL)) {
        remote_stop();
        return error_set(err, STATUS_NOMEM, "out of memory for remote files");
    }
    remote_view.options.user_agent = remote.user_agent;
    remote_view.options.endpoint = remote.endpoint;
    remote.started = true;
    file_system_set_remote(remote_files());
    return STATUS_OK;
}

void remote_stop(void) {
    file_system_set_remote(NULL);
    extents_stop();
    open_stop();
    remote_pread_stop();
    free_table();
    cache_close(remote_view.cache);
    remote_view.cache = NULL;
    free(remote.user_agent);
    free(remote.endpoint);
    remote.user_agent = NULL;
    remote.endpoint = NULL;
    remote.started = false;
}
