/*
 * Remote datasets: options of the process, and the start with the first of them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bindings/c/api_entry_internal.h"
#include "formats/base/file_io.h"
#include "formats/dataset/manifest.h"
#include "loader/remote/remote.h"
#include "net/http_stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool started; /* set under it */

static enum status start(const struct ccs_remote_options *from, struct error *err) {
    struct remote_options opt;
    remote_options_default(&opt);
    opt.endpoint = from->endpoint;
    opt.cache = from->cache;
    opt.cache_bytes = from->cache_bytes != 0 ? from->cache_bytes : REMOTE_CACHE_DEFAULT_BYTES;
    opt.instance_metadata = from->instance_metadata != 0;
    opt.allow_private = from->allow_private != 0;
    opt.user_agent = "libccstream/" CCSTREAM_VERSION;
    TRY(remote_start(&opt, err));
    started = true;
    return STATUS_OK;
}

static enum status configure(const struct ccs_remote_options *opt, struct error *err) {
    struct ccs_remote_options mine = {.struct_size = sizeof mine};
    CHECK_ARGUMENT(opt != NULL, err, "opt is NULL");
    TRY(api_take(&mine, sizeof mine, opt, err));
    CHECK_ARGUMENT(mine.instance_metadata <= 1 && mine.allow_private <= 1, err,
                   "instance_metadata and allow_private are 0 or 1");
    pthread_mutex_lock(&lock);
    const enum status s =
        started
            ? error_set(err, STATUS_EXISTS,
                        "a remote dataset was opened, or options were set before; set them once, "
                        "before the first is opened")
            : start(&mine, err);
    pthread_mutex_unlock(&lock);
    return s;
}

int32_t ccs_remote_configure(const struct ccs_remote_options *opt, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, configure(opt, &e), &e);
}

/* Whether the tars of a local dataset are at a server. */
static bool has_base(const char *path) {
    struct manifest m;
    if (path_is_remote(path) || manifest_read(&m, file_posix(), path, NULL) != STATUS_OK) {
        return false;
    }
    const bool has = m.base != NULL;
    manifest_fini(&m);
    return has;
}

enum status api_open_remote(const char *path, struct error *err) {
    static const struct ccs_remote_options none = {.struct_size = sizeof none};
    enum status s = STATUS_OK;
    if (!started &&
        (path_is_remote(path) || has_base(path))) { /* then no lock that a fork could leave taken */
        pthread_mutex_lock(&lock);
        s = started ? STATUS_OK : start(&none, err);
        pthread_mutex_unlock(&lock);
    }
    return s;
}

/* ---- one file ---- */

struct ccs_remote_file {
    struct http_stream *stream;
    pid_t owner;
};

static enum status
open_file(struct ccs_remote_file **out, const char *location, struct error *err) {
    CHECK_ARGUMENT(out != NULL && location != NULL, err, "out or location is NULL");
    *out = NULL;
    FAIL_IF(!path_is_remote(location), err, STATUS_USAGE,
            "'%s' is not a location: https://HOST/PATH, s3://BUCKET/KEY or "
            "hf://datasets/OWNER/NAME/FILE",
            location);
    TRY(api_open_remote(location, err));
    struct ccs_remote_file *f = calloc(1, sizeof *f);
    TRY_MEMORY(f, err, "out of memory");
    f->owner = getpid();
    const enum status s = http_stream_open(&f->stream, location, 0, err);
    if (s != STATUS_OK) {
        free(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

int32_t
ccs_remote_file_open(struct ccs_remote_file **out, const char *location, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_file(out, location, &e), &e);
}

static enum status
read_file(struct ccs_remote_file *f, void *buffer, size_t size, size_t *got, struct error *err) {
    CHECK_ARGUMENT(f != NULL && got != NULL && (buffer != NULL || size == 0), err,
                   "f, buffer or got is NULL");
    TRY(api_check_process(f->owner, err));
    const enum status s = http_stream_read(f->stream, buffer, size, got, err);
    FAIL_IF(s == STATUS_AGAIN, err, STATUS_TIMEOUT, "the server has sent nothing yet");
    return s == STATUS_OK && *got == 0 ? STATUS_END : s;
}

int32_t ccs_remote_file_read(struct ccs_remote_file *f,
                             void *buffer,
                             size_t size,
                             size_t *got,
                             struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, read_file(f, buffer, size, got, &e), &e);
}

void ccs_remote_file_close(struct ccs_remote_file *f) {
    if (f != NULL && f->owner == getpid()) {
        http_stream_close(f->stream);
        free(f);
    }
}
