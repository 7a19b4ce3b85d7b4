/*
 * rejects.jsonl: one JSON object a line for each row that was rejected. It is rejects.jsonl.tmp
 * until the run ends; under its final name it is complete.
 */
#include "pack/run/rejects_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the first bytes of the published list becomes the temporary one. Not inlined: it needs
 * room for two paths more. */
static __attribute__((noinline)) enum status copy_list(const struct file_system *fs,
                                                       const char *from,
                                                       const char *to,
                                                       uint64_t size_bytes,
                                                       struct error *err) {
    struct file_draft draft;
    TRY(file_draft_open(&draft, fs, to, err));
    return file_draft_close(&draft, file_append(fs, draft.file, from, size_bytes, NULL, NULL, err),
                            err);
}

void pack_rejects_init(struct pack_rejects *r,
                       const struct file_system *fs,
                       const char *directory,
                       uint64_t size_bytes) {
    memset(r, 0, sizeof(*r));
    r->fs = fs;
    r->directory = directory;
    r->size_bytes = size_bytes;
    json_writer_init(&r->line, 0);
    byte_buffer_init(&r->waiting, 0);
}

enum status pack_rejects_open(struct pack_rejects *r, bool keep, struct error *err) {
    char path[PATH_MAX_BYTES];
    char temporary[PATH_MAX_BYTES];
    bool begun = false;
    const struct file_system *fs = r->fs;
    const char *directory = r->directory;
    uint64_t size_bytes = r->size_bytes - r->waiting.size_bytes;
    TRY(path_join(path, sizeof(path), directory, PACK_REJECTS_NAME, err));
    TRY(path_join(temporary, sizeof(temporary), directory, PACK_REJECTS_TEMPORARY, err));
    TRY(fs->exists(fs->context, temporary, &begun, err));
    if (!begun && size_bytes > 0) {
        if (keep) { /* the old dataset stays valid until the end */
            TRY(copy_list(fs, path, temporary, size_bytes, err));
        } else {
            TRY(fs->rename(fs->context, path, temporary, err));
        }
    } else if (!begun && !keep) {
        bool published = false;
        TRY(fs->exists(fs->context, path, &published, err));
        if (published) {
            TRY(fs->remove(fs->context, path, err));
        }
    }
    if (begun || size_bytes > 0) {
        TRY(fs->truncate(fs->context, temporary, size_bytes, err));
    }
    TRY(fs->open(fs->context, &r->file, temporary, FILE_APPEND_WRITE, err));
    if (r->waiting.size_bytes > 0) {
        TRY(fs->write(r->file, r->waiting.data, r->waiting.size_bytes, err));
    }
    byte_buffer_fini(&r->waiting);
    TRY(fs->sync(r->file, err));
    return fs->sync_directory(fs->context, directory, err);
}

void pack_rejects_line(struct json_writer *w, const char *source, const struct source_row *row) {
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_string(w, "source", source);
    json_u64(w, "row", row->row);
    json_string(w, "key", row->key);
    json_string(w, "reason", source_reason_name(row->reason));
    json_string(w, "detail", row->detail);
    json_close_object(w);
    json_newline(w);
}

enum status pack_rejects_add(struct pack_rejects *r,
                             const char *source,
                             const struct source_row *row,
                             struct error *err) {
    struct json_writer *w = &r->line;
    pack_rejects_line(w, source, row);
    TRY(json_writer_status(w, err));
    TRY(r->file ? r->fs->write(r->file, w->out.data, w->out.size_bytes, err)
                : byte_buffer_append(&r->waiting, w->out.data, w->out.size_bytes, err));
    r->size_bytes += w->out.size_bytes;
    return STATUS_OK;
}

enum status pack_rejects_sync(struct pack_rejects *r, struct error *err) {
    return r->fs->sync(r->file, err);
}

enum status pack_rejects_publish(struct pack_rejects *r, struct error *err) {
    char path[PATH_MAX_BYTES];
    char temporary[PATH_MAX_BYTES];
    const struct file_system *fs = r->fs;
    TRY(path_join(path, sizeof(path), r->directory, PACK_REJECTS_NAME, err));
    TRY(path_join(temporary, sizeof(temporary), r->directory, PACK_REJECTS_TEMPORARY, err));
    TRY(fs->sync(r->file, err));
    TRY(fs->rename(fs->context, temporary, path, err));
    fs->close(r->file);
    r->file = NULL;
    return fs->sync_directory(fs->context, r->directory, err);
}

void pack_rejects_close(struct pack_rejects *r) {
    if (r->fs) {
        r->fs->close(r->file);
        json_writer_fini(&r->line);
        byte_buffer_fini(&r->waiting);
    }
    memset(r, 0, sizeof(*r));
}
