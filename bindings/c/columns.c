/*
 * Columns of a dataset: reading by id, writing with the dataset's lock.
 */
#include "formats/columns/columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/api_entry_internal.h"
#include "bindings/c/dataset_internal.h"
#include "pack/pack.h"

/* ---- reading --------------------------------------------------------------------------------- */

const char *ccs_dataset_column(struct ccs_dataset *d, uint32_t index) {
    if (d == NULL) {
        return NULL;
    }
    if (index == 0) {
        (void)column_names_read(&d->columns, file_system_of(d->path), d->path, NULL);
    }
    return index < d->columns.count ? d->columns.items[index] : NULL;
}

struct ccs_attached {
    struct column *column;
    struct column_workspace *workspace;
};

static enum status open_column(struct ccs_attached **out,
                               const struct ccs_dataset *d,
                               const char *name,
                               struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(d != NULL && name != NULL, err, "the dataset or the name is NULL");
    struct ccs_attached *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c, err, "out of memory for a column");
    enum status s = column_open(&c->column, file_system_of(d->path), d->path, name,
                                dataset_manifest(d->dataset), err);
    THEN(s, column_workspace_create(&c->workspace, err));
    RETURN_CREATED(s, out, c, ccs_attached_close);
}

int32_t ccs_attached_open(struct ccs_attached **out,
                          const struct ccs_dataset *d,
                          const char *name,
                          struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_column(out, d, name, &e), &e);
}

void ccs_attached_close(struct ccs_attached *c) {
    if (c != NULL) {
        column_close(c->column);
        column_workspace_destroy(c->workspace);
        free(c);
    }
}

static enum status
get_info(const struct ccs_attached *c, struct ccs_attached_info *info, struct error *err) {
    CHECK_ARGUMENT(c != NULL && info != NULL, err, "the column or info is NULL");
    const struct column_info *i = column_info(c->column);
    struct ccs_attached_info mine = {
        .rows = i->rows,
        .hash = i->hash,
        .fingerprint = i->fingerprint,
        .kind = column_kind_name(i->kind),
        .source = i->source,
        .values = i->values,
        .vectors = i->vectors,
    };
    return api_give(info, &mine, sizeof(mine), err);
}

int32_t ccs_attached_get_info(const struct ccs_attached *c,
                              struct ccs_attached_info *info,
                              struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_info(c, info, &e), &e);
}

static enum status get_ids(const struct ccs_attached *c,
                           uint64_t *out,
                           uint64_t first,
                           uint64_t count,
                           struct error *err) {
    CHECK_ARGUMENT(c != NULL && (out != NULL || count == 0), err, "the column or out is NULL");
    const uint64_t rows = column_info(c->column)->rows;
    FAIL_IF(first > rows || count > rows - first, err, STATUS_NOTFOUND,
            "rows %" PRIu64 " and the next: the column has %" PRIu64, first, rows);
    for (uint64_t i = 0; i < count; i++) {
        out[i] = column_row_id(c->column, first + i);
    }
    return STATUS_OK;
}

int32_t ccs_attached_ids(const struct ccs_attached *c,
                         uint64_t *out,
                         uint64_t first,
                         uint64_t count,
                         struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_ids(c, out, first, count, &e), &e);
}

static enum status
get_row(struct ccs_attached *c, uint64_t id, struct ccs_text *row, struct error *err) {
    CHECK_ARGUMENT(c != NULL && row != NULL, err, "the column or row is NULL");
    const uint8_t *bytes = NULL;
    size_t size = 0;
    const enum status s = column_get(c->column, c->workspace, id, &bytes, &size, err);
    FAIL_IF(s == STATUS_NOTFOUND, err, s, "sample %" PRIu64 " has no value in column '%s'", id,
            column_info(c->column)->name);
    *row = (struct ccs_text){(const char *)bytes, size};
    return s;
}

int32_t
ccs_attached_get(struct ccs_attached *c, uint64_t id, struct ccs_text *row, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, get_row(c, id, row, &e), &e);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct ccs_attached_writer {
    struct dataset *dataset;
    struct file *lock;
    struct column_info info; /* owns its source */
    struct column_writer *writer;
    struct column_block block;
    uint64_t next_id; /* the smallest that may come */
    bool finished;
};

/* Locks a dataset in which no run is unfinished. */
static enum status lock_dataset(struct file **lock, const char *directory, struct error *err) {
    const struct file_system *fs = file_posix();
    char path[PATH_MAX_BYTES];
    bool unfinished = false;
    FAIL_IF(
        path_is_remote(directory), err, STATUS_USAGE,
        "%s: a remote dataset is read-only; write columns to a local copy, or before the upload",
        directory);
    TRY(path_join(path, sizeof(path), directory, MANIFEST_NAME, err));
    TRY(fs->exists(fs->context, path, &unfinished, err));
    FAIL_IF(!unfinished, err, STATUS_NOTFOUND, "%s: no such dataset", directory);
    TRY(fs->lock_directory(fs->context, lock, directory, err));
    TRY(path_join(path, sizeof(path), directory, PACK_JOURNAL_NAME, err));
    TRY(fs->exists(fs->context, path, &unfinished, err));
    FAIL_IF(unfinished, err, STATUS_EXISTS,
            "%s: holds an unfinished run: complete it with its command and --resume", directory);
    return STATUS_OK;
}

static enum status
check_new(const struct column_info *c, const char *directory, bool replace, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    TRY(column_path(path, directory, c->name, err));
    TRY(file_posix()->exists(file_posix()->context, path, &exists, err));
    FAIL_IF(exists && !replace, err, STATUS_EXISTS,
            "%s: a column '%s' exists; pass --replace, or replace=True, to replace it", directory,
            c->name);
    const bool text = c->kind >= COLUMN_CAPTIONS;
    FAIL_IF(c->kind == 0, err, STATUS_USAGE, "column '%s': unknown kind", c->name);
    FAIL_IF(text ? c->values != 0
                 : c->values == 0 || c->vectors == 0 || c->values % c->vectors != 0 ||
                       c->values > COLUMN_MAX_ROW_BYTES ||
                       column_row_bytes(c) > COLUMN_MAX_ROW_BYTES,
            err, STATUS_LIMIT,
            "column '%s': rows of %" PRIu32 " numbers; expected 1 or more, at most %d bytes",
            c->name, c->values, COLUMN_MAX_ROW_BYTES);
    return STATUS_OK;
}

static enum status take_info(struct ccs_attached_writer *w,
                             const char *name,
                             const struct ccs_attached_info *info,
                             struct error *err) {
    struct ccs_attached_info i = {0};
    TRY(api_take(&i, sizeof(i), info, err));
    CHECK_ARGUMENT(i.kind != NULL, err, "the kind is NULL");
    FAIL_IF(strlen(name) > COLUMN_MAX_NAME_BYTES, err, STATUS_USAGE,
            "'%.60s' is not a valid column name: use at most %d of a-z, 0-9 and _", name,
            COLUMN_MAX_NAME_BYTES);
    strcpy(w->info.name, name);
    w->info.kind = column_kind_find(i.kind);
    w->info.values = i.values;
    w->info.vectors = i.vectors;
    w->info.source = strdup(i.source != NULL ? i.source : "{}");
    TRY_MEMORY(w->info.source, err, "out of memory for a column");
    return STATUS_OK;
}

static enum status open_writer(struct ccs_attached_writer **out,
                               const char *directory,
                               const char *name,
                               const struct ccs_attached_info *info,
                               bool replace,
                               struct error *err) {
    CHECK_ARGUMENT(out != NULL, err, "out is NULL");
    *out = NULL;
    CHECK_ARGUMENT(directory != NULL && name != NULL, err, "the dataset or the name is NULL");
    struct ccs_attached_writer *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a column");
    byte_buffer_init(&w->block.data, (size_t)1 << 32);
    enum status s = take_info(w, name, info, err);
    THEN(s, lock_dataset(&w->lock, directory, err));
    THEN(s, check_new(&w->info, directory, replace, err));
    THEN(s, dataset_open(&w->dataset, directory, file_posix(), err));
    if (s == STATUS_OK) {
        w->info.fingerprint = dataset_fingerprint(w->dataset);
        s = column_writer_create(&w->writer, file_posix(), directory, &w->info, err);
    }
    RETURN_CREATED(s, out, w, ccs_attached_writer_close);
}

int32_t ccs_attached_writer_open(struct ccs_attached_writer **out,
                                 const char *dataset,
                                 const char *name,
                                 const struct ccs_attached_info *info,
                                 bool replace,
                                 struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, open_writer(out, dataset, name, info, replace, &e), &e);
}

static enum status add_rows(struct ccs_attached_writer *w,
                            const uint64_t *ids,
                            uint64_t count,
                            const void *rows,
                            const uint64_t *sizes,
                            struct error *err) {
    CHECK_ARGUMENT(w != NULL && (count == 0 || (ids != NULL && rows != NULL)), err,
                   "the writer, ids or rows are NULL");
    CHECK_ARGUMENT((sizes == NULL) == (w->info.values > 0), err,
                   "sizes are for texts only, not for numbers");
    const uint8_t *row = rows;
    FAIL_IF(w->finished, err, STATUS_USAGE, "the column is complete");
    for (uint64_t i = 0; i < count; i++) {
        struct dataset_sample sample;
        const uint64_t size = sizes != NULL ? sizes[i] : column_row_bytes(&w->info);
        FAIL_IF(ids[i] < w->next_id, err, STATUS_USAGE,
                "id %" PRIu64 " is not larger than the previous one", ids[i]);
        TRY(dataset_find(w->dataset, ids[i], &sample, err));
        TRY(column_block_add(&w->block, &w->info, ids[i], row, (size_t)size, err));
        w->next_id = ids[i] + 1;
        row += size;
    }
    return column_writer_put(w->writer, &w->block, err);
}

int32_t ccs_attached_writer_add(struct ccs_attached_writer *w,
                                const uint64_t *ids,
                                uint64_t count,
                                const void *rows,
                                const uint64_t *sizes,
                                struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, add_rows(w, ids, count, rows, sizes, &e), &e);
}

static enum status finish(struct ccs_attached_writer *w, struct error *err) {
    CHECK_ARGUMENT(w != NULL, err, "the writer is NULL");
    FAIL_IF(w->finished, err, STATUS_USAGE, "the column is complete");
    TRY(column_writer_finish(w->writer, err));
    w->finished = true;
    return STATUS_OK;
}

int32_t ccs_attached_writer_finish(struct ccs_attached_writer *w, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, finish(w, &e), &e);
}

void ccs_attached_writer_close(struct ccs_attached_writer *w) {
    if (w != NULL) {
        column_writer_destroy(w->writer);
        column_block_fini(&w->block);
        dataset_close(w->dataset);
        file_posix()->close(w->lock);
        free(w->info.source);
        free(w);
    }
}

static enum status remove_column(const char *directory, const char *name, struct error *err) {
    CHECK_ARGUMENT(directory != NULL && name != NULL, err, "the dataset or the name is NULL");
    const struct file_system *fs = file_posix();
    char path[PATH_MAX_BYTES];
    struct file *lock = NULL;
    bool exists = false;
    enum status s = column_path(path, directory, name, err);
    THEN(s, lock_dataset(&lock, directory, err));
    THEN(s, fs->exists(fs->context, path, &exists, err));
    if (s == STATUS_OK && !exists) {
        s = error_set(err, STATUS_NOTFOUND, "%s: there is no column '%s'", directory, name);
    }
    THEN(s, fs->remove(fs->context, path, err));
    THEN(s, column_list_mend(fs, directory, NULL, true, err));
    fs->close(lock);
    return s;
}

int32_t ccs_attached_remove(const char *dataset, const char *name, struct ccs_error *err) {
    struct error e = {0};
    return api_result(err, remove_column(dataset, name, &e), &e);
}
