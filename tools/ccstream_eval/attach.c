/*
 * attach: results as a column of the dataset that they were computed from.
 */
#include <math.h>
#include <stdio.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"

enum { BLOCK_ROWS = 4096 };

enum status
eval_check_column(const char *directory, const char *name, bool replace, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    FAIL_IF(directory == NULL || path_is_remote(directory), err, STATUS_USAGE,
            "--attach needs a local dataset, --data DIR");
    TRY(column_path(path, directory, name, err));
    TRY(file_posix()->exists(file_posix()->context, path, &exists, err));
    FAIL_IF(exists && !replace, err, STATUS_EXISTS,
            "%s: a column '%s' exists; pass --force to replace it", directory, name);
    return STATUS_OK;
}

enum status eval_attach(const char *directory,
                        const char *name,
                        struct column_info *info,
                        const uint64_t *ids,
                        const void *rows,
                        int64_t count,
                        struct error *err) {
    const struct file_system *fs = file_posix();
    const uint32_t row_bytes = column_row_bytes(info);
    struct file *lock = NULL;
    struct manifest m = {0};
    struct column_writer *w = NULL;
    struct column_block block = {0};
    (void)snprintf(info->name, sizeof(info->name), "%s", name);
    info->source = (char[]){"{\"command\":\"ccstream-eval\"}"};
    TRY(fs->lock_directory(fs->context, &lock, directory, err));
    enum status s = manifest_read(&m, fs, directory, err);
    info->fingerprint = m.fingerprint;
    THEN(s, column_writer_create(&w, fs, directory, info, err));
    for (int64_t i = 0; i < count && s == STATUS_OK; i++) {
        const char *row = (const char *)rows + i * row_bytes;
        if (ids != NULL || !isnan(((const float *)rows)[i])) {
            s = column_block_add(&block, info, ids != NULL ? ids[i] : (uint64_t)i, row, row_bytes,
                                 err);
        }
        if (s == STATUS_OK && block.rows == BLOCK_ROWS) {
            s = column_writer_put(w, &block, err);
        }
    }
    THEN(s, column_writer_put(w, &block, err));
    THEN(s, column_writer_finish(w, err));
    column_block_fini(&block);
    column_writer_destroy(w);
    manifest_fini(&m);
    fs->close(lock);
    return s;
}
