/*
 * Forwards every call to another file system and makes one of them fail. A test runs an operation
 * once to count its mutating calls, then once per call with the fault there, so that every write
 * path fails at every place where it can.
 */
#include "tests/support/file_fault.h"

#include <pthread.h>
#include <stdlib.h>

struct fault {
    const struct file_system *inner;
    uint64_t nth;
    enum file_fault kind;
    pthread_mutex_t lock; /* guards what is below */
    uint64_t count;
    bool dead;
};

struct file {
    struct fault *fault;
    struct file *inner;
};

/* Counts a call if the fault is for calls of its kind. Returns whether it must fail. */
static bool count_call(struct fault *f, bool reads) {
    pthread_mutex_lock(&f->lock);
    bool counts = reads == (f->kind == FILE_FAULT_READ);
    bool hit = counts && f->count == f->nth;
    f->count += counts;
    f->dead = f->dead || (hit && f->kind == FILE_FAULT_DEAD);
    bool result = hit || f->dead;
    pthread_mutex_unlock(&f->lock);
    return result;
}

/* A mutating call. */
static bool fails(struct fault *f) {
    return count_call(f, false);
}

/* A call that only reads. */
static bool fails_reading(struct fault *f) {
    return count_call(f, true);
}

static bool is_dead(struct fault *f) {
    pthread_mutex_lock(&f->lock);
    bool dead = f->dead;
    pthread_mutex_unlock(&f->lock);
    return dead;
}

static enum status injected(struct error *err, const char *what) {
    return error_set(err, STATUS_IO, "%s: injected fault", what);
}

static enum status fault_open(void *context,
                              struct file **out,
                              const char *path,
                              enum file_open_mode mode,
                              struct error *err) {
    REQUIRE(context && out && path);
    struct fault *fault = context;
    *out = NULL;
    if (mode == FILE_READ ? fails_reading(fault) : fails(fault)) {
        return injected(err, path);
    }
    struct file *f = calloc(1, sizeof *f);
    if (!f) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    f->fault = fault;
    enum status s = fault->inner->open(fault->inner->context, &f->inner, path, mode, err);
    if (s < STATUS_OK) {
        free(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

static void fault_close(struct file *f) {
    if (f) {
        f->fault->inner->close(f->inner);
        free(f);
    }
}

static enum status fault_pread(struct file *f,
                               void *out,
                               size_t *got,
                               size_t size_bytes,
                               uint64_t offset,
                               struct error *err) {
    REQUIRE(f && got);
    *got = 0;
    if (fails_reading(f->fault)) {
        return injected(err, "read");
    }
    return f->fault->inner->pread(f->inner, out, got, size_bytes, offset, err);
}

static enum status
fault_write(struct file *f, const void *data, size_t size_bytes, struct error *err) {
    REQUIRE(f);
    struct fault *fault = f->fault;
    bool was_dead = is_dead(fault);
    if (fails(fault)) {
        if (fault->kind != FILE_FAULT_ERROR && !was_dead) {
            (void)fault->inner->write(f->inner, data, size_bytes / 2, NULL);
        }
        return injected(err, "write");
    }
    return fault->inner->write(f->inner, data, size_bytes, err);
}

static enum status fault_size(struct file *f, uint64_t *out, struct error *err) {
    REQUIRE(f && out);
    if (fails_reading(f->fault)) {
        return injected(err, "size");
    }
    return f->fault->inner->size(f->inner, out, err);
}

static enum status fault_sync(struct file *f, struct error *err) {
    REQUIRE(f);
    if (fails(f->fault)) {
        return injected(err, "sync");
    }
    return f->fault->inner->sync(f->inner, err);
}

static enum status
fault_rename(void *context, const char *from, const char *to, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, to);
    }
    return f->inner->rename(f->inner->context, from, to, err);
}

static enum status fault_remove(void *context, const char *path, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->remove(f->inner->context, path, err);
}

static enum status fault_make_directory(void *context, const char *path, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->make_directory(f->inner->context, path, err);
}

static enum status fault_sync_directory(void *context, const char *path, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->sync_directory(f->inner->context, path, err);
}

static enum status fault_exists(void *context, const char *path, bool *exists, struct error *err) {
    struct fault *f = context;
    if (fails_reading(f)) {
        return injected(err, path);
    }
    return f->inner->exists(f->inner->context, path, exists, err);
}

static enum status
fault_list(void *context, const char *path, struct byte_buffer *names, struct error *err) {
    struct fault *f = context;
    if (fails_reading(f)) {
        return injected(err, path);
    }
    return f->inner->list(f->inner->context, path, names, err);
}

static enum status
fault_link(void *context, const char *target, const char *path, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->link(f->inner->context, target, path, err);
}

static enum status
fault_hard_link(void *context, const char *old, const char *path, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->hard_link(f->inner->context, old, path, err);
}

static enum status
fault_truncate(void *context, const char *path, uint64_t size_bytes, struct error *err) {
    struct fault *f = context;
    if (fails(f)) {
        return injected(err, path);
    }
    return f->inner->truncate(f->inner->context, path, size_bytes, err);
}

/* Never fails here: it changes nothing on a disk. */
static enum status
fault_lock_directory(void *context, struct file **lock, const char *path, struct error *err) {
    struct fault *fault = context;
    struct file *inner = NULL;
    *lock = NULL;
    TRY(fault->inner->lock_directory(fault->inner->context, &inner, path, err));
    if (!inner) {
        return STATUS_OK;
    }
    struct file *f = calloc(1, sizeof *f);
    if (!f) {
        fault->inner->close(inner);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    *f = (struct file){fault, inner};
    *lock = f;
    return STATUS_OK;
}

enum status file_fault_create(struct file_system **out,
                              const struct file_system *inner,
                              uint64_t nth,
                              enum file_fault fault,
                              struct error *err) {
    REQUIRE(out && inner);
    *out = NULL;
    struct file_system *fs = calloc(1, sizeof *fs);
    struct fault *f = calloc(1, sizeof *f);
    if (!fs || !f) {
        free(f);
        free(fs);
        return error_set(err, STATUS_NOMEM, "out of memory for a faulty file system");
    }
    pthread_mutex_init(&f->lock, NULL);
    f->inner = inner;
    f->nth = nth;
    f->kind = fault;
    *fs = (struct file_system){
        .context = f,
        .open = fault_open,
        .close = fault_close,
        .pread = fault_pread,
        .write = fault_write,
        .size = fault_size,
        .sync = fault_sync,
        .rename = fault_rename,
        .remove = fault_remove,
        .make_directory = fault_make_directory,
        .sync_directory = fault_sync_directory,
        .exists = fault_exists,
        .list = fault_list,
        .link = fault_link,
        .hard_link = fault_hard_link,
        .truncate = fault_truncate,
        .lock_directory = fault_lock_directory,
    };
    *out = fs;
    return STATUS_OK;
}

uint64_t file_fault_count(const struct file_system *fs) {
    struct fault *f = fs->context;
    pthread_mutex_lock(&f->lock);
    uint64_t n = f->count;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void file_fault_destroy(struct file_system *fs) {
    if (fs) {
        struct fault *f = fs->context;
        pthread_mutex_destroy(&f->lock);
        free(f);
        free(fs);
    }
}
