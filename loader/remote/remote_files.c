/*
 * remote_files: remote files as a struct file_system, which reads only.
 */
#include <stdlib.h>

#include "loader/remote/remote_internal.h"

struct file {
    struct remote_object *object;
};

static enum status read_only(const char *path, struct error *err) {
    return error_set(err, STATUS_UNSUPPORTED,
                     "%.300s: remote datasets are read-only; change a local copy and upload it",
                     path);
}

static enum status wrap(struct file **out, struct remote_object *o, struct error *err) {
    *out = calloc(1, sizeof(**out));
    TRY_MEMORY(*out != NULL, err, "%.300s: out of memory", o->path);
    (*out)->object = o;
    return STATUS_OK;
}

static enum status remote_open(void *context,
                               struct file **out,
                               const char *path,
                               enum file_open_mode mode,
                               struct error *err) {
    (void)context;
    REQUIRE(out != NULL && path != NULL);
    struct remote_object *o = NULL;
    *out = NULL;
    RETURN_IF(mode != FILE_READ, read_only(path, err));
    TRY(remote_object_open(&o, path, err));
    return wrap(out, o, err);
}

static void remote_close(struct file *f) {
    free(f);
}

static enum status remote_pread(struct file *f,
                                void *out,
                                size_t *got,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err) {
    REQUIRE(f != NULL && got != NULL && (out != NULL || size_bytes == 0));
    return remote_object_pread(f->object, out, got, size_bytes, offset, err);
}

static enum status
remote_write(struct file *f, const void *data, size_t size_bytes, struct error *err) {
    (void)data;
    (void)size_bytes;
    return read_only(f->object->path, err);
}

static enum status remote_size(struct file *f, uint64_t *out, struct error *err) {
    (void)err;
    REQUIRE(f != NULL && out != NULL);
    *out = f->object->size_bytes;
    return STATUS_OK;
}

static enum status remote_sync(struct file *f, struct error *err) {
    return read_only(f->object->path, err);
}

static enum status
remote_rename(void *context, const char *from, const char *to, struct error *err) {
    (void)context;
    (void)to;
    return read_only(from, err);
}

/* Of remove, make_directory and sync_directory. */
static enum status remote_change(void *context, const char *path, struct error *err) {
    (void)context;
    return read_only(path, err);
}

static enum status remote_exists(void *context, const char *path, bool *exists, struct error *err) {
    (void)context;
    REQUIRE(path != NULL && exists != NULL);
    struct remote_object *o = NULL;
    const enum status s = remote_object_open(&o, path, err);
    *exists = s == STATUS_OK;
    return s == STATUS_NOTFOUND ? STATUS_OK : s;
}

/* HTTP has no lists of files: none are found. */
static enum status
remote_list(void *context, const char *path, struct byte_buffer *names, struct error *err) {
    (void)context;
    (void)path;
    (void)names;
    (void)err;
    return STATUS_OK;
}

static enum status
remote_link(void *context, const char *target, const char *path, struct error *err) {
    (void)context;
    (void)target;
    return read_only(path, err);
}

static enum status
remote_truncate(void *context, const char *path, uint64_t size_bytes, struct error *err) {
    (void)context;
    (void)size_bytes;
    return read_only(path, err);
}

static enum status
remote_lock_directory(void *context, struct file **lock, const char *path, struct error *err) {
    (void)context;
    (void)path;
    (void)err;
    *lock = NULL;
    return STATUS_OK;
}

static enum status remote_descriptor(struct file *f, int *fd, uint64_t *offset, struct error *err) {
    REQUIRE(f != NULL && fd != NULL && offset != NULL);
    struct copy copy;
    TRY(remote_object_map(f->object, &copy, err));
    *fd = copy.fd;
    *offset = copy.offset;
    return STATUS_OK;
}

#define READING                                                                                    \
    .close = remote_close, .pread = remote_pread, .write = remote_write, .size = remote_size,      \
    .sync = remote_sync, .rename = remote_rename, .remove = remote_change,                         \
    .make_directory = remote_change, .sync_directory = remote_change, .exists = remote_exists,     \
    .list = remote_list, .link = remote_link, .hard_link = remote_rename,                          \
    .truncate = remote_truncate, .lock_directory = remote_lock_directory,                          \
    .descriptor = remote_descriptor, .expect = remote_object_expect

const struct file_system *remote_files(void) {
    static const struct file_system fs = {.open = remote_open, READING};
    return &fs;
}

/* Without requests, for who holds the lock of the table. */
static enum status open_copy(void *context,
                             struct file **out,
                             const char *path,
                             enum file_open_mode mode,
                             struct error *err) {
    (void)context;
    struct remote_object *o = mode == FILE_READ ? remote_object_find(path) : NULL;
    *out = NULL;
    return o != NULL ? wrap(out, o, err)
                     : error_set(err, STATUS_NOTFOUND, "%.300s: is not open", path);
}

const struct file_system *remote_copies(void) {
    static const struct file_system fs = {.open = open_copy, READING};
    return &fs;
}
