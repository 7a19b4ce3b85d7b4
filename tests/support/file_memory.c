/*
 * A file system in memory that remembers what a power failure would leave.
 *
 *     live names    --> node <-- durable names       sync_directory copies live to durable
 *                        |
 *                        content, synced content     sync copies content to synced content
 *
 * A crash makes the durable names the live ones and every node's synced content its content. Names
 * are whole paths in one table each (tests hold dozens of files, so a linear search is enough); a
 * node lives as long as a name or an open file leads to it.
 */
#include "tests/support/file_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 4096, MAX_LINK_HOPS = 8 };

enum node_kind { NODE_FILE, NODE_DIRECTORY, NODE_LINK };

struct node {
    enum node_kind kind;
    size_t reference_count;
    struct byte_buffer content; /* a link's target, with its NUL */
    struct byte_buffer synced;
};

struct name {
    char *path;
    struct node *node;
};

struct name_table {
    struct name *names;
    size_t count;
};

struct memory {
    pthread_mutex_t lock; /* guards everything below, and all nodes */
    struct name_table live;
    struct name_table durable;
};

struct file {
    struct memory *memory;
    struct node *node;
    enum file_open_mode mode;
    char path[];
};

static void node_release(struct node *n) {
    if (--n->reference_count == 0) {
        byte_buffer_fini(&n->content);
        byte_buffer_fini(&n->synced);
        free(n);
    }
}

static struct name *table_find(const struct name_table *t, const char *path) {
    for (size_t i = 0; i < t->count; i++) {
        if (strcmp(t->names[i].path, path) == 0) {
            return &t->names[i];
        }
    }
    return NULL;
}

static void table_remove(struct name_table *t, struct name *name) {
    node_release(name->node);
    free(name->path);
    *name = t->names[--t->count];
}

static void table_clear(struct name_table *t) {
    while (t->count > 0) {
        table_remove(t, &t->names[t->count - 1]);
    }
}

/* Points `path` to `node`, which gains a reference. */
static enum status
table_put(struct name_table *t, const char *path, struct node *node, struct error *err) {
    struct name *old = table_find(t, path);
    if (old) {
        node->reference_count++;
        node_release(old->node);
        old->node = node;
        return STATUS_OK;
    }
    if (t->count == MAX_NAMES) {
        return error_set(err, STATUS_LIMIT, "%s: more than %d names in memory", path, MAX_NAMES);
    }
    char *copy = strdup(path);
    if (!copy) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    node->reference_count++;
    t->names[t->count++] = (struct name){.path = copy, .node = node};
    return STATUS_OK;
}

/* "./a//b/" and "a/b" are one name; "" and "." become ".", and "/" stays. */
static enum status normalise(char out[PATH_MAX_BYTES], const char *path, struct error *err) {
    size_t n = 0;
    const char *p = path;
    while (*p) {
        bool starts_part = p == path || p[-1] == '/';
        if (starts_part && p[0] == '.' && (p[1] == '/' || p[1] == '\0')) {
            p += p[1] ? 2 : 1;
            continue;
        }
        if (*p == '/' && n > 0 && out[n - 1] == '/') {
            p++;
            continue;
        }
        if (n + 2 > PATH_MAX_BYTES) {
            return error_set(err, STATUS_IO, "path is longer than %d bytes", PATH_MAX_BYTES - 2);
        }
        out[n++] = *p++;
    }
    if (n > 1 && out[n - 1] == '/') {
        n--;
    }
    if (n == 0) {
        out[n++] = '.';
    }
    out[n] = '\0';
    return STATUS_OK;
}

static bool is_directory(const struct memory *m, const char *path) {
    if (strcmp(path, ".") == 0 || strcmp(path, "/") == 0) {
        return true;
    }
    const struct name *name = table_find(&m->live, path);
    return name && name->node->kind == NODE_DIRECTORY;
}

static bool has_parent(const struct memory *m, const char *path) {
    char parent[PATH_MAX_BYTES];
    return path_directory(parent, sizeof parent, path, NULL) == STATUS_OK &&
           is_directory(m, parent);
}

/* Normalises `path` and follows links at its end. */
static enum status
resolve(const struct memory *m, char out[PATH_MAX_BYTES], const char *path, struct error *err) {
    TRY(normalise(out, path, err));
    for (int hop = 0; hop < MAX_LINK_HOPS; hop++) {
        const struct name *name = table_find(&m->live, out);
        if (!name || name->node->kind != NODE_LINK) {
            return STATUS_OK;
        }
        char directory[PATH_MAX_BYTES];
        char joined[PATH_MAX_BYTES];
        TRY(path_directory(directory, sizeof directory, out, err));
        TRY(path_join(joined, sizeof joined, directory, (const char *)name->node->content.data,
                      err));
        TRY(normalise(out, joined, err));
    }
    return error_set(err, STATUS_IO, "%s: too many links", path);
}

static enum status create_node(struct memory *m,
                               const char *path,
                               enum node_kind kind,
                               struct node **out,
                               struct error *err) {
    struct node *n = calloc(1, sizeof *n);
    if (!n) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    n->kind = kind;
    n->reference_count = 1; /* ours, until the table has its own */
    enum status s = table_put(&m->live, path, n, err);
    *out = s == STATUS_OK ? n : NULL;
    node_release(n);
    return s;
}

static enum status open_locked(struct memory *m,
                               struct file *f,
                               const char *path,
                               enum file_open_mode mode,
                               struct error *err) {
    char resolved[PATH_MAX_BYTES];
    TRY(resolve(m, resolved, path, err));
    struct name *name = table_find(&m->live, resolved);
    if (is_directory(m, resolved)) {
        return error_set(err, STATUS_IO, "%s: is a directory, expected a file", path);
    }
    if ((mode == FILE_READ || mode == FILE_REUSE) && !name) {
        return error_set(err, STATUS_NOTFOUND, "%s: no such file", path);
    }
    if (mode == FILE_CREATE && name) {
        return error_set(err, STATUS_EXISTS, "%s: exists already", path);
    }
    if (name) {
        f->node = name->node;
        if (mode == FILE_REPLACE || mode == FILE_REUSE) {
            f->node->content.size_bytes = 0;
        }
    } else {
        if (!has_parent(m, resolved)) {
            return error_set(err, STATUS_NOTFOUND, "%s: no such directory", path);
        }
        TRY(create_node(m, resolved, NODE_FILE, &f->node, err));
    }
    f->node->reference_count++;
    return STATUS_OK;
}

static enum status memory_open(void *context,
                               struct file **out,
                               const char *path,
                               enum file_open_mode mode,
                               struct error *err) {
    REQUIRE(context && out && path);
    struct memory *m = context;
    *out = NULL;
    size_t path_size = strlen(path) + 1;
    struct file *f = calloc(1, sizeof *f + path_size);
    if (!f) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    memcpy(f->path, path, path_size);
    f->memory = m;
    f->mode = mode;
    pthread_mutex_lock(&m->lock);
    enum status s = open_locked(m, f, path, mode, err);
    pthread_mutex_unlock(&m->lock);
    if (s < STATUS_OK) {
        free(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

static void memory_close(struct file *f) {
    if (f) {
        pthread_mutex_lock(&f->memory->lock);
        node_release(f->node);
        pthread_mutex_unlock(&f->memory->lock);
        free(f);
    }
}

static enum status memory_pread(struct file *f,
                                void *out,
                                size_t *got,
                                size_t size_bytes,
                                uint64_t offset,
                                struct error *err) {
    REQUIRE(f && got && (out || size_bytes == 0));
    (void)err;
    *got = 0;
    pthread_mutex_lock(&f->memory->lock);
    const struct byte_buffer *content = &f->node->content;
    if (offset < content->size_bytes && size_bytes > 0) {
        size_t left = content->size_bytes - (size_t)offset;
        *got = size_bytes < left ? size_bytes : left;
        memcpy(out, content->data + offset, *got);
    }
    pthread_mutex_unlock(&f->memory->lock);
    return STATUS_OK;
}

static enum status
memory_write(struct file *f, const void *data, size_t size_bytes, struct error *err) {
    REQUIRE(f && (data || size_bytes == 0));
    if (f->mode == FILE_READ) {
        return error_set(err, STATUS_IO, "%s: opened for reading, cannot write", f->path);
    }
    pthread_mutex_lock(&f->memory->lock);
    enum status s = byte_buffer_append(&f->node->content, data, size_bytes, err);
    pthread_mutex_unlock(&f->memory->lock);
    return s;
}

static enum status memory_size(struct file *f, uint64_t *out, struct error *err) {
    REQUIRE(f && out);
    (void)err;
    pthread_mutex_lock(&f->memory->lock);
    *out = f->node->content.size_bytes;
    pthread_mutex_unlock(&f->memory->lock);
    return STATUS_OK;
}

static enum status
copy_content(struct byte_buffer *to, const struct byte_buffer *from, struct error *err) {
    to->size_bytes = 0;
    return byte_buffer_append(to, from->data, from->size_bytes, err);
}

static enum status memory_sync(struct file *f, struct error *err) {
    REQUIRE(f);
    pthread_mutex_lock(&f->memory->lock);
    enum status s = copy_content(&f->node->synced, &f->node->content, err);
    pthread_mutex_unlock(&f->memory->lock);
    return s;
}

static enum status
rename_locked(struct memory *m, const char *from, const char *to, struct error *err) {
    char from_path[PATH_MAX_BYTES];
    char to_path[PATH_MAX_BYTES];
    TRY(normalise(from_path, from, err));
    TRY(normalise(to_path, to, err));
    struct name *source = table_find(&m->live, from_path);
    if (!source || !has_parent(m, to_path)) {
        return error_set(err, STATUS_NOTFOUND, "%s: cannot rename from %s: not there", to, from);
    }
    if (source->node->kind == NODE_DIRECTORY || is_directory(m, to_path)) {
        return error_set(err, STATUS_IO, "%s: cannot rename from %s: a directory", to, from);
    }
    if (strcmp(from_path, to_path) == 0) {
        return STATUS_OK;
    }
    TRY(table_put(&m->live, to_path, source->node, err));
    table_remove(&m->live, table_find(&m->live, from_path));
    return STATUS_OK;
}

static enum status
memory_rename(void *context, const char *from, const char *to, struct error *err) {
    REQUIRE(context && from && to);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = rename_locked(m, from, to, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static bool has_children(const struct name_table *t, const char *directory) {
    size_t n = strlen(directory);
    for (size_t i = 0; i < t->count; i++) {
        if (strncmp(t->names[i].path, directory, n) == 0 && t->names[i].path[n] == '/') {
            return true;
        }
    }
    return false;
}

static enum status remove_locked(struct memory *m, const char *path, struct error *err) {
    char normal[PATH_MAX_BYTES];
    TRY(normalise(normal, path, err));
    struct name *name = table_find(&m->live, normal);
    if (!name) {
        return error_set(err, STATUS_NOTFOUND, "%s: cannot remove: not there", path);
    }
    if (name->node->kind == NODE_DIRECTORY && has_children(&m->live, normal)) {
        return error_set(err, STATUS_IO, "%s: cannot remove: directory is not empty", path);
    }
    table_remove(&m->live, name);
    return STATUS_OK;
}

static enum status memory_remove(void *context, const char *path, struct error *err) {
    REQUIRE(context && path);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = remove_locked(m, path, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status make_directory_locked(struct memory *m, const char *path, struct error *err) {
    char resolved[PATH_MAX_BYTES];
    TRY(resolve(m, resolved, path, err));
    if (is_directory(m, resolved)) {
        return STATUS_OK;
    }
    if (table_find(&m->live, resolved)) {
        return error_set(err, STATUS_EXISTS, "%s: exists and is no directory", path);
    }
    if (!has_parent(m, resolved)) {
        return error_set(err, STATUS_NOTFOUND, "%s: its parent directory is not there", path);
    }
    struct node *node = NULL;
    return create_node(m, resolved, NODE_DIRECTORY, &node, err);
}

static enum status memory_make_directory(void *context, const char *path, struct error *err) {
    REQUIRE(context && path);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = make_directory_locked(m, path, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static bool is_child(const char *path, const char *directory) {
    char parent[PATH_MAX_BYTES];
    return path_directory(parent, sizeof parent, path, NULL) == STATUS_OK &&
           strcmp(parent, directory) == 0;
}

static enum status sync_directory_locked(struct memory *m, const char *path, struct error *err) {
    char resolved[PATH_MAX_BYTES];
    TRY(resolve(m, resolved, path, err));
    if (!is_directory(m, resolved)) {
        return error_set(err, STATUS_NOTFOUND, "%s: no such directory", path);
    }
    for (size_t i = m->durable.count; i-- > 0;) {
        if (is_child(m->durable.names[i].path, resolved) &&
            !table_find(&m->live, m->durable.names[i].path)) {
            table_remove(&m->durable, &m->durable.names[i]);
        }
    }
    for (size_t i = 0; i < m->live.count; i++) {
        if (is_child(m->live.names[i].path, resolved)) {
            TRY(table_put(&m->durable, m->live.names[i].path, m->live.names[i].node, err));
        }
    }
    return STATUS_OK;
}

static enum status memory_sync_directory(void *context, const char *path, struct error *err) {
    REQUIRE(context && path);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = sync_directory_locked(m, path, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status memory_exists(void *context, const char *path, bool *exists, struct error *err) {
    REQUIRE(context && path && exists);
    struct memory *m = context;
    char resolved[PATH_MAX_BYTES];
    pthread_mutex_lock(&m->lock);
    enum status s = resolve(m, resolved, path, err);
    *exists = s == STATUS_OK && (is_directory(m, resolved) || table_find(&m->live, resolved));
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status list_locked(const struct memory *m,
                               const char *path,
                               struct byte_buffer *names,
                               struct error *err) {
    char resolved[PATH_MAX_BYTES];
    TRY(resolve(m, resolved, path, err));
    if (!is_directory(m, resolved)) {
        return error_set(err, STATUS_NOTFOUND, "%s: no such directory", path);
    }
    for (size_t i = 0; i < m->live.count; i++) {
        const char *name = m->live.names[i].path;
        if (is_child(name, resolved)) {
            const char *slash = strrchr(name, '/');
            const char *base = slash ? slash + 1 : name;
            TRY(byte_buffer_append(names, base, strlen(base) + 1, err));
        }
    }
    return STATUS_OK;
}

static enum status
memory_list(void *context, const char *path, struct byte_buffer *names, struct error *err) {
    REQUIRE(context && path && names);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = list_locked(m, path, names, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status
link_locked(struct memory *m, const char *target, const char *path, struct error *err) {
    char normal[PATH_MAX_BYTES];
    TRY(normalise(normal, path, err));
    if (is_directory(m, normal)) {
        return error_set(err, STATUS_IO, "%s: is a directory", path);
    }
    if (!has_parent(m, normal)) {
        return error_set(err, STATUS_NOTFOUND, "%s: no such directory", path);
    }
    struct node *node = NULL;
    TRY(create_node(m, normal, NODE_LINK, &node, err));
    size_t size = strlen(target) + 1;
    TRY(byte_buffer_append(&node->content, target, size, err));
    return byte_buffer_append(&node->synced, target, size, err);
}

static enum status
memory_link(void *context, const char *target, const char *path, struct error *err) {
    REQUIRE(context && target && path);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = link_locked(m, target, path, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status
hard_link_locked(struct memory *m, const char *old, const char *path, struct error *err) {
    char from[PATH_MAX_BYTES];
    char to[PATH_MAX_BYTES];
    TRY(resolve(m, from, old, err));
    TRY(normalise(to, path, err));
    const struct name *name = table_find(&m->live, from);
    if (!name || name->node->kind != NODE_FILE || !has_parent(m, to)) {
        return error_set(err, STATUS_NOTFOUND, "%s: cannot be hard-linked to %s", path, old);
    }
    if (table_find(&m->live, to)) {
        return error_set(err, STATUS_EXISTS, "%s: exists already", path);
    }
    return table_put(&m->live, to, name->node, err);
}

static enum status
memory_hard_link(void *context, const char *old, const char *path, struct error *err) {
    REQUIRE(context && old && path);
    struct memory *m = context;
    pthread_mutex_lock(&m->lock);
    enum status s = hard_link_locked(m, old, path, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static enum status
memory_truncate(void *context, const char *path, uint64_t size_bytes, struct error *err) {
    REQUIRE(context && path);
    struct memory *m = context;
    char resolved[PATH_MAX_BYTES];
    pthread_mutex_lock(&m->lock);
    enum status s = resolve(m, resolved, path, err);
    if (s == STATUS_OK) {
        const struct name *name = table_find(&m->live, resolved);
        if (!name || name->node->kind != NODE_FILE) {
            s = error_set(err, STATUS_NOTFOUND, "%s: no such file", path);
        } else if (name->node->content.size_bytes < size_bytes) {
            s = error_set(err, STATUS_CORRUPT, "%s: has %zu bytes, at least %llu were there", path,
                          name->node->content.size_bytes, (unsigned long long)size_bytes);
        } else {
            name->node->content.size_bytes = (size_t)size_bytes;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

/* Nobody else gets to see the memory of this process. */
static enum status
memory_lock_directory(void *context, struct file **lock, const char *path, struct error *err) {
    (void)err;
    REQUIRE(context && lock && path);
    *lock = NULL;
    return STATUS_OK;
}

enum status file_memory_create(struct file_system **out, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    struct file_system *fs = calloc(1, sizeof *fs);
    struct memory *m = calloc(1, sizeof *m);
    if (m) {
        m->live.names = calloc(MAX_NAMES, sizeof(struct name));
        m->durable.names = calloc(MAX_NAMES, sizeof(struct name));
    }
    if (!fs || !m || !m->live.names || !m->durable.names) {
        if (m) {
            free(m->live.names);
            free(m->durable.names);
        }
        free(m);
        free(fs);
        return error_set(err, STATUS_NOMEM, "out of memory for a file system in memory");
    }
    pthread_mutex_init(&m->lock, NULL);
    *fs = (struct file_system){
        .context = m,
        .open = memory_open,
        .close = memory_close,
        .pread = memory_pread,
        .write = memory_write,
        .size = memory_size,
        .sync = memory_sync,
        .rename = memory_rename,
        .remove = memory_remove,
        .make_directory = memory_make_directory,
        .sync_directory = memory_sync_directory,
        .exists = memory_exists,
        .list = memory_list,
        .link = memory_link,
        .hard_link = memory_hard_link,
        .truncate = memory_truncate,
        .lock_directory = memory_lock_directory,
    };
    *out = fs;
    return STATUS_OK;
}

void file_memory_destroy(struct file_system *fs) {
    if (!fs) {
        return;
    }
    struct memory *m = fs->context;
    table_clear(&m->live);
    table_clear(&m->durable);
    free(m->live.names);
    free(m->durable.names);
    pthread_mutex_destroy(&m->lock);
    free(m);
    free(fs);
}

void file_memory_crash(struct file_system *fs) {
    struct memory *m = fs->context;
    pthread_mutex_lock(&m->lock);
    table_clear(&m->live);
    for (size_t i = 0; i < m->durable.count; i++) {
        struct name *name = &m->durable.names[i];
        /* Neither call can fail: the table and the content were at least this large before. */
        (void)copy_content(&name->node->content, &name->node->synced, NULL);
        (void)table_put(&m->live, name->path, name->node, NULL);
    }
    pthread_mutex_unlock(&m->lock);
}

bool file_any_temporary(const struct file_system *fs, const char *directory, bool removes) {
    struct byte_buffer names = {0};
    bool any = false;
    byte_buffer_init(&names, 0);
    if (fs->list(fs->context, directory, &names, NULL) == STATUS_OK) {
        for (size_t at = 0; at < names.size_bytes;) {
            const char *name = (const char *)names.data + at;
            char path[PATH_MAX_BYTES];
            const size_t size = strlen(name);
            at += size + 1;
            if (size > 4 && strcmp(name + size - 4, ".tmp") == 0) {
                any = true;
                if (removes && path_join(path, sizeof path, directory, name, NULL) == STATUS_OK) {
                    fs->remove(fs->context, path, NULL);
                }
            }
        }
    }
    byte_buffer_fini(&names);
    return any;
}
