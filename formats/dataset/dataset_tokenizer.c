/*
 * Two files change when a tokenizer is replaced, and a process may die between them. So the record
 * goes first, then the file changes, then the new record comes: a manifest without a record is
 * true of any file.
 */
#include "formats/dataset/dataset_tokenizer.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/hash.h"

enum status dataset_tokenizer_open(struct tokenizer **out,
                                   const char *directory,
                                   const struct manifest *m,
                                   const struct file_system *fs,
                                   struct error *err) {
    REQUIRE(out && directory && m && fs);
    char path[PATH_MAX_BYTES];
    struct byte_buffer model;
    const char *name = m->tokenizer.file ? m->tokenizer.file : DATASET_TOKENIZER_NAME;
    bool exists = false;
    *out = NULL;
    TRY(path_join(path, sizeof(path), directory, name, err));
    TRY(fs->exists(fs->context, path, &exists, err));
    if (!exists && !m->tokenizer.file) {
        return STATUS_OK;
    }
    FAIL_IF(!exists, err, STATUS_NOTFOUND,
            "%s: the manifest lists this tokenizer, but it is missing; restore it, or replace it "
            "with 'ccpack tokenizer --overwrite'",
            path);
    TRY(file_read_all(fs, &model, path, TOKENIZER_MAX_MODEL_BYTES, err));
    const uint64_t hash = hash64(model.data, model.size_bytes);
    enum status s =
        m->tokenizer.file && hash != m->tokenizer.hash
            ? error_set(err, STATUS_MISMATCH,
                        "%s: has hash %016" PRIx64 ", the manifest's tokenizer has %016" PRIx64
                        "; bring that one back, or replace it with 'ccpack tokenizer "
                        "--overwrite'",
                        path, hash, m->tokenizer.hash)
            : tokenizer_open(out, model.data, model.size_bytes, err);
    byte_buffer_fini(&model);
    return s;
}

static enum status record(struct manifest *m,
                          const struct tokenizer *t,
                          const char *directory,
                          const struct file_system *fs,
                          struct error *err) {
    TRY(manifest_set_tokenizer(m, t ? DATASET_TOKENIZER_NAME : NULL,
                               t ? tokenizer_kind_name(tokenizer_kind(t)) : NULL,
                               t ? tokenizer_hash(t) : 0, err));
    return manifest_write(m, fs, directory, err);
}

/* Whether the file holds these bytes. */
static enum status is_there(bool *out,
                            const struct tokenizer *t,
                            const char *path,
                            const struct file_system *fs,
                            struct error *err) {
    struct byte_buffer old;
    size_t size = 0;
    const void *bytes = tokenizer_bytes(t, &size);
    enum status s = file_read_all(fs, &old, path, TOKENIZER_MAX_MODEL_BYTES, err);
    *out = s == STATUS_OK && old.size_bytes == size && memcmp(old.data, bytes, size) == 0;
    byte_buffer_fini(&old);
    return s == STATUS_LIMIT ? STATUS_OK : s;
}

static enum status replace(struct manifest *m,
                           const struct tokenizer *t,
                           const char *directory,
                           const struct file_system *fs,
                           bool overwrite,
                           struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    bool same = false;
    size_t size = 0;
    const void *bytes = tokenizer_bytes(t, &size);
    TRY(path_join(path, sizeof(path), directory, DATASET_TOKENIZER_NAME, err));
    TRY(fs->exists(fs->context, path, &exists, err));
    if (exists) {
        TRY(is_there(&same, t, path, fs, err));
    }
    if (!same) {
        FAIL_IF((exists || m->tokenizer.file) && !overwrite, err, STATUS_EXISTS,
                "%s: the dataset has another tokenizer; --overwrite replaces it", path);
        if (m->tokenizer.file) {
            TRY(record(m, NULL, directory, fs, err));
        }
        TRY(file_write_atomic(fs, path, bytes, size, err));
    } else if (m->tokenizer.file && strcmp(m->tokenizer.file, DATASET_TOKENIZER_NAME) == 0 &&
               m->tokenizer.hash == tokenizer_hash(t)) {
        return STATUS_OK;
    }
    return record(m, t, directory, fs, err);
}

enum status dataset_tokenizer_store(const struct tokenizer *t,
                                    const char *directory,
                                    const struct file_system *fs,
                                    bool overwrite,
                                    struct error *err) {
    REQUIRE(t && directory && fs);
    struct manifest m;
    TRY(manifest_read(&m, fs, directory, err));
    enum status s = replace(&m, t, directory, fs, overwrite, err);
    manifest_fini(&m);
    return s;
}
