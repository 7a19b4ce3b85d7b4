/*
 * objects: what is known of every file at a server, and the copies of those that were read whole.
 *
 * A table by path. Opening a file asks for its first byte: the answer has size and ETag, which are
 * fixed from then on. Opening a manifest reads it whole, and then, in parallel, what dataset_open
 * will ask for next: the index beside each shard, whole, and the first byte of each shard. A
 * manifest that changed since it was last opened makes a new generation: what is known of the other
 * files of its folder is dropped from the table, and stays valid for who still uses it.
 *
 * Copies lie one after the other, at whole pages, in one temporary file without a name, so that
 * thousands of indexes need one descriptor and nothing is left when the process is killed.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/hash.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "loader/remote/remote_internal.h"
#include "net/location.h"

enum { BUCKETS = 1 << 12, CONNECTIONS = 32, RUN_MS = 100 };

struct remote_folder {
    char *text;
    struct location *location;
    pthread_mutex_t lock; /* of location */
    struct remote_folder *next;
};

struct idle_client {
    struct remote_client *client;
    struct idle_client *next;
};

static struct {
    struct remote_options options;
    char *endpoint, *user_agent;
    bool started;

    pthread_mutex_t opening; /* one file or dataset is opened at a time; guards the next four */
    struct remote_client *client;
    struct remote_folder *folders;
    int copies_fd; /* -1: none yet */
    uint64_t copies_bytes;

    pthread_mutex_t lock; /* guards the rest, and the guarded fields of objects */
    struct remote_object *buckets[BUCKETS];
    struct remote_object *dropped;
    struct idle_client *idle;
} table = {.opening = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .copies_fd = -1};

static enum status nomem(struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory for remote files");
}

const struct remote_options *remote_options(void) {
    return &table.options;
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

/* --- reading about a file, or all of it --- */

/* One of several reads of one call. */
struct fetch {
    struct remote_read read;
    bool whole;
    uint64_t copy_offset; /* of a whole one, once its size is known; UINT64_MAX before */
    uint64_t taken_bytes;
    enum status status;
    struct error why;
};

static enum status reserve_copy(uint64_t *offset, uint64_t size_bytes, struct error *err) {
    if (table.copies_fd < 0) {
        const char *folder = getenv("TMPDIR");
        char path[PATH_MAX_BYTES];
        TRY(path_join(path, sizeof path, folder != NULL && folder[0] != '\0' ? folder : "/tmp",
                      "ccstream-remote-XXXXXX", err));
        table.copies_fd = mkostemp(path, 02000000 /* O_CLOEXEC */);
        if (table.copies_fd < 0 || unlink(path) != 0) {
            return error_set_errno(err, "%s: cannot make a temporary file", path);
        }
    }
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *offset = table.copies_bytes;
    table.copies_bytes += (size_bytes + page - 1) / page * page;
    return STATUS_OK;
}

static bool write_copy(uint64_t offset, const void *bytes, size_t size_bytes, struct error *err) {
    const char *at = bytes;
    while (size_bytes > 0) {
        const ssize_t n = pwrite(table.copies_fd, at, size_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            (void)error_set_errno(err, "cannot write a copy of a remote index to the folder of "
                                       "temporary files (TMPDIR)");
            return false;
        }
        at += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return true;
}

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
    if (f->copy_offset == UINT64_MAX &&
        reserve_copy(&f->copy_offset, total_bytes, err) != STATUS_OK) {
        return false;
    }
    if (!write_copy(f->copy_offset + f->taken_bytes, bytes, size_bytes, err)) {
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
        o->local = true;
        o->local_offset = f->copy_offset;
    }
    pthread_mutex_unlock(&table.lock);
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
    *f = (struct fetch){.whole = whole, .copy_offset = UINT64_MAX};
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
            fetch_init(&fetches[count++], o, false);
            s = shard_index_name(index, sizeof index, path, err);
        }
        if (s == STATUS_OK && (s = object_of(&o, index, err)) == STATUS_OK) {
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
            pthread_mutex_lock(&table.lock);
            f->read.object->missing = true;
            pthread_mutex_unlock(&table.lock);
        }
    }
    free(fetches);
    return s;
}

static bool is_manifest(const char *path) {
    return strcmp(strrchr(path, '/') + 1, MANIFEST_NAME) == 0;
}

/* Whether the manifest that was read before is still the one at the server. */
static enum status check_current(struct remote_object *o, bool *current, struct error *err) {
    struct error why = {0};
    *current = false;
    if (!o->local || o->etag[0] == '\0') {
        return STATUS_OK;
    }
    const enum status s = fetch_one(o, false, &why);
    *current = s == STATUS_OK;
    if (s != STATUS_OK && s != STATUS_CORRUPT && err != NULL) { /* CORRUPT: it is another one */
        *err = why;
    }
    return s == STATUS_CORRUPT ? STATUS_OK : s;
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
    TRY(fetch_one(*out, true, err));
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

enum status remote_object_open(struct remote_object **out, const char *path, struct error *err) {
    enum status s = STATUS_OK;
    *out = NULL;
    pthread_mutex_lock(&table.opening);
    if (is_manifest(path)) {
        s = open_manifest(out, path, err);
    } else if ((s = object_of(out, path, err)) == STATUS_OK) {
        if ((*out)->missing) {
            s = error_set(err, STATUS_NOTFOUND, "%.300s: there is no such file", path);
        } else if (!(*out)->known) {
            s = fetch_one(*out, false, err);
            (*out)->missing = s == STATUS_NOTFOUND;
        }
    }
    pthread_mutex_unlock(&table.opening);
    return s;
}

enum status
remote_object_map(struct remote_object *o, int *fd, uint64_t *offset, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&table.opening);
    if (!o->local) {
        s = fetch_one(o, true, err);
    }
    *fd = table.copies_fd;
    *offset = o->local_offset;
    pthread_mutex_unlock(&table.opening);
    return s;
}

/* --- reads without an engine --- */

struct single {
    uint8_t *at;
    bool done;
    enum status status;
    struct error *err;
};

static bool take_single(void *cookie, const void *bytes, size_t size_bytes, struct error *err) {
    struct single *s = cookie;
    (void)err;
    memcpy(s->at, bytes, size_bytes);
    s->at += size_bytes;
    return true;
}

static void single_done(void *cookie, enum status status, const struct error *err) {
    struct single *s = cookie;
    s->done = true;
    s->status = status;
    if (status < STATUS_OK && s->err != NULL) {
        *s->err = *err;
    }
}

static enum status borrow_client(struct idle_client **out, struct error *err) {
    pthread_mutex_lock(&table.lock);
    struct idle_client *c = table.idle;
    if (c != NULL) {
        table.idle = c->next;
    }
    pthread_mutex_unlock(&table.lock);
    if (c == NULL) {
        c = calloc(1, sizeof(*c));
        if (c == NULL) {
            return nomem(err);
        }
        enum status s = remote_client_create(&c->client, 1, err);
        if (s < STATUS_OK) {
            free(c);
            return s;
        }
    }
    *out = c;
    return STATUS_OK;
}

static bool is_local(const struct remote_object *o) {
    pthread_mutex_lock(&table.lock);
    const bool local = o->local;
    pthread_mutex_unlock(&table.lock);
    return local;
}

static enum status read_copy(const struct remote_object *o,
                             void *out,
                             size_t size_bytes,
                             uint64_t offset,
                             struct error *err) {
    size_t got = 0;
    while (got < size_bytes) {
        const ssize_t n = pread(table.copies_fd, (uint8_t *)out + got, size_bytes - got,
                                (off_t)(o->local_offset + offset + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return error_set_errno(err, "%.300s: cannot read its local copy", o->path);
        }
        got += (size_t)n;
    }
    return STATUS_OK;
}

enum status remote_object_pread(struct remote_object *o,
                                void *out,
                                size_t *got,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err) {
    *got = 0;
    if (offset >= o->size_bytes || size_bytes == 0) {
        return STATUS_OK;
    }
    if (size_bytes > o->size_bytes - offset) {
        size_bytes = (size_t)(o->size_bytes - offset);
    }
    if (is_local(o)) {
        TRY(read_copy(o, out, size_bytes, offset, err));
        *got = size_bytes;
        return STATUS_OK;
    }
    struct idle_client *c = NULL;
    struct single single = {.at = out, .err = err};
    TRY(borrow_client(&c, err));
    struct remote_read read = {.object = o,
                               .offset = offset,
                               .size_bytes = size_bytes,
                               .cookie = &single,
                               .take = take_single,
                               .done = single_done};
    remote_client_start(c->client, &read);
    while (!single.done) {
        remote_client_run(c->client, RUN_MS);
    }
    pthread_mutex_lock(&table.lock);
    c->next = table.idle;
    table.idle = c;
    pthread_mutex_unlock(&table.lock);
    *got = single.status == STATUS_OK ? size_bytes : 0;
    return single.status;
}

/* --- life --- */

void remote_options_default(struct remote_options *opt) {
    *opt = (struct remote_options){.user_agent = "ccstream"};
}

enum status remote_start(const struct remote_options *opt, struct error *err) {
    REQUIRE(opt != NULL && opt->user_agent != NULL);
    if (table.started) {
        return error_set(err, STATUS_EXISTS, "remote locations are in use already");
    }
    table.options = *opt;
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
    for (size_t i = 0; i < BUCKETS; i++) {
        free_list(table.buckets[i]);
        table.buckets[i] = NULL;
    }
    free_list(table.dropped);
    table.dropped = NULL;
    remote_client_destroy(table.client);
    table.client = NULL;
    while (table.idle != NULL) {
        struct idle_client *c = table.idle;
        table.idle = c->next;
        remote_client_destroy(c->client);
        free(c);
    }
    while (table.folders != NULL) {
        struct remote_folder *f = table.folders;
        table.folders = f->next;
        pthread_mutex_destroy(&f->lock);
        location_destroy(f->location);
        free(f->text);
        free(f);
    }
    if (table.copies_fd >= 0) {
        close(table.copies_fd);
    }
    table.copies_fd = -1;
    table.copies_bytes = 0;
    free(table.user_agent);
    free(table.endpoint);
    table.user_agent = NULL;
    table.endpoint = NULL;
    table.started = false;
}
