/*
 * Writing columns: blocks of rows, which threads may make at once, go to a draft in order; ids and
 * checks stay in memory until the end (12 bytes a row; ids below 2^32 are written as 4).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/json_writer.h"
#include "formats/columns/columns_internal.h"

enum { LEVEL = 3 };

#define MAX_TABLE_BYTES ((size_t)1 << 40)

/* ---- a block --------------------------------------------------------------------------------- */

void column_block_fini(struct column_block *b) {
    struct byte_buffer *const buffers[] = {&b->data, &b->ids, &b->checks, &b->frames, &b->frame};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        byte_buffer_fini(buffers[i]);
    }
    zstd_packer_destroy(b->packer);
    memset(b, 0, sizeof(*b));
}

/* Offsets and rows in `frames` are those within the block. */
static enum status end_frame(struct column_block *b, struct error *err) {
    if (b->frame.size_bytes > 0) {
        const uint64_t first = load_u64(b->frames.data + b->frames.size_bytes - 8);
        store_u32(b->frame.data,
                  column_frame_check(b->ids.data + 8 * first, (size_t)(b->rows - first)));
        TRY(b->packer ? STATUS_OK : zstd_packer_create(&b->packer, LEVEL, err));
        TRY(zstd_packer_frame(b->packer, &b->data, b->frame.data, b->frame.size_bytes, err));
        b->frame.size_bytes = 0;
    }
    return STATUS_OK;
}

/* Whether they are one row. */
static bool is_text(int kind, const void *row, size_t row_bytes) {
    struct cursor c;
    size_t found = 0;
    const uint8_t *at = NULL;
    cursor_init(&c, row, row_bytes);
    return kind == COLUMN_CAPTIONS ? column_take_row(&c, kind, &at, &found) && found == row_bytes
                                   : row_bytes == 0 || memchr(row, 0, row_bytes) == NULL;
}

enum status column_block_add(struct column_block *b,
                             const struct column_info *info,
                             uint64_t id,
                             const void *row,
                             size_t row_bytes,
                             struct error *err) {
    REQUIRE(info->values == 0 || row_bytes == column_row_bytes(info));
    FAIL_IF(row_bytes > COLUMN_MAX_TEXT_BYTES, err, STATUS_LIMIT, "a row of %zu bytes, at most %d",
            row_bytes, COLUMN_MAX_TEXT_BYTES);
    FAIL_IF(info->values == 0 && !is_text(info->kind, row, row_bytes), err, STATUS_USAGE,
            "column '%s': the row of sample %" PRIu64 " is not %s, or a text has a byte 0",
            info->name, id, column_kind_name(info->kind));
    TRY(byte_buffer_u64(&b->ids, id, err));
    b->rows++;
    if (info->values > 0) {
        TRY(byte_buffer_u32(&b->checks, column_check(row, row_bytes, id), err));
        return byte_buffer_append(&b->data, row, row_bytes, err);
    }
    if (b->frame.size_bytes == 0) {
        TRY(byte_buffer_u64(&b->frames, b->data.size_bytes, err));
        TRY(byte_buffer_u64(&b->frames, b->rows - 1, err));
        TRY(byte_buffer_u32(&b->frame, 0, err)); /* its check */
    }
    TRY(byte_buffer_append(&b->frame, row, row_bytes, err));
    TRY(byte_buffer_append(&b->frame, "", info->kind == COLUMN_CAPTIONS ? 0 : 1, err));
    const uint64_t first = load_u64(b->frames.data + b->frames.size_bytes - 8);
    return b->rows - first == COLUMN_FRAME_ROWS || b->frame.size_bytes >= COLUMN_FRAME_BYTES
               ? end_frame(b, err)
               : STATUS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

struct column_writer {
    struct column_info *info;
    struct file_draft draft;
    char directory[PATH_MAX_BYTES];
    struct hasher *hasher; /* over what was written */
    uint64_t data_bytes;
    struct byte_buffer ids, checks, frames; /* ids: u64 */
};

/* Removes the folder's files that end so. */
static enum status remove_files(const struct file_system *fs,
                                const char *directory,
                                const char *end,
                                struct error *err) {
    char folder[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    struct byte_buffer names = {0};
    TRY(path_join(folder, sizeof(folder), directory, COLUMNS_FOLDER, err));
    enum status s = fs->list(fs->context, folder, &names, NULL);
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes;) {
        const char *name = (const char *)names.data + at;
        const char *dot = strrchr(name, '.');
        at += strlen(name) + 1;
        if (dot && strcmp(dot, end) == 0) {
            s = path_join(path, sizeof(path), folder, name, err);
            THEN(s, fs->remove(fs->context, path, err));
        }
    }
    byte_buffer_fini(&names);
    return s == STATUS_NOTFOUND ? STATUS_OK : s;
}

enum status
column_remove_all(const struct file_system *fs, const char *directory, struct error *err) {
    TRY(remove_files(fs, directory, ".ccc", err));
    TRY(remove_files(fs, directory, ".tmp", err));
    return column_list_mend(fs, directory, NULL, true, err);
}

enum status column_writer_create(struct column_writer **out,
                                 const struct file_system *fs,
                                 const char *directory,
                                 struct column_info *info,
                                 struct error *err) {
    char path[PATH_MAX_BYTES];
    struct column_writer *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a column");
    w->info = info;
    info->rows = 0;
    byte_buffer_init(&w->ids, MAX_TABLE_BYTES);
    byte_buffer_init(&w->checks, MAX_TABLE_BYTES);
    byte_buffer_init(&w->frames, MAX_TABLE_BYTES);
    (void)snprintf(w->directory, sizeof(w->directory), "%s", directory);
    enum status s = column_path(path, directory, info->name, err);
    THEN(s, hasher_create(&w->hasher, err));
    THEN(s, file_make_parents(fs, path, err));
    THEN(s, remove_files(fs, directory, ".tmp", err));
    THEN(s, file_draft_open(&w->draft, fs, path, err));
    RETURN_CREATED(s, out, w, column_writer_destroy);
}

void column_writer_destroy(struct column_writer *w) {
    if (w) {
        file_draft_close(&w->draft, STATUS_INTERRUPTED, NULL);
        hasher_destroy(w->hasher);
        byte_buffer_fini(&w->ids);
        byte_buffer_fini(&w->checks);
        byte_buffer_fini(&w->frames);
        free(w);
    }
}

static enum status
write_bytes(struct column_writer *w, const struct byte_buffer *b, struct error *err) {
    hasher_update(w->hasher, b->data, b->size_bytes);
    return b->size_bytes > 0 ? w->draft.fs->write(w->draft.file, b->data, b->size_bytes, err)
                             : STATUS_OK;
}

enum status column_writer_put(struct column_writer *w, struct column_block *b, struct error *err) {
    TRY(end_frame(b, err));
    TRY(byte_buffer_append(&w->ids, b->ids.data, b->ids.size_bytes, err));
    TRY(byte_buffer_append(&w->checks, b->checks.data, b->checks.size_bytes, err));
    for (size_t i = 0; i < b->frames.size_bytes; i += COLUMN_FRAME_ENTRY_BYTES) {
        TRY(byte_buffer_u64(&w->frames, w->data_bytes + load_u64(b->frames.data + i), err));
        TRY(byte_buffer_u64(&w->frames, w->info->rows + load_u64(b->frames.data + i + 8), err));
    }
    TRY(write_bytes(w, &b->data, err));
    w->data_bytes += b->data.size_bytes;
    w->info->rows += b->rows;
    b->rows = 0;
    b->data.size_bytes = b->ids.size_bytes = b->checks.size_bytes = b->frames.size_bytes = 0;
    return STATUS_OK;
}

/* Returns the bytes of each: 4 where the last and largest of them fits. */
static uint64_t shorten_ids(struct byte_buffer *ids) {
    const size_t count = ids->size_bytes / 8;
    if (count > 0 && load_u64(ids->data + 8 * (count - 1)) > UINT32_MAX) {
        return 8;
    }
    for (size_t i = 0; i < count; i++) {
        store_u32(ids->data + 4 * i, (uint32_t)load_u64(ids->data + 8 * i));
    }
    ids->size_bytes = 4 * count;
    return 4;
}

static enum status write_info(struct column_writer *w, uint64_t id_bytes, struct error *err) {
    const struct column_info *c = w->info;
    struct json_writer j;
    json_writer_init(&j, COLUMN_MAX_INFO_BYTES);
    json_open_object(&j, NULL);
    json_string(&j, "name", c->name);
    json_string(&j, "kind", column_kind_name(c->kind));
    json_u64(&j, "values", c->values);
    json_u64(&j, "vectors", c->vectors);
    json_u64(&j, "rows", c->rows);
    json_u64(&j, "id_bytes", id_bytes);
    json_u64(&j, "frames", w->frames.size_bytes / COLUMN_FRAME_ENTRY_BYTES);
    json_hex64(&j, "hash", c->hash);
    json_hex64(&j, "fingerprint", c->fingerprint);
    json_raw(&j, "source", c->source, strlen(c->source));
    json_close_object(&j);
    enum status s = json_writer_status(&j, err);
    const uint64_t size = j.out.size_bytes;
    const uint64_t hash = hash64(j.out.data, j.out.size_bytes);
    THEN(s, byte_buffer_u64(&j.out, size, err));
    THEN(s, byte_buffer_u64(&j.out, hash, err));
    THEN(s, byte_buffer_u64(&j.out, COLUMNS_VERSION, err));
    THEN(s, byte_buffer_append(&j.out, COLUMN_MAGIC, 8, err));
    THEN(s, write_bytes(w, &j.out, err));
    json_writer_fini(&j);
    return s;
}

enum status column_writer_finish(struct column_writer *w, struct error *err) {
    const uint64_t id_bytes = shorten_ids(&w->ids);
    TRY(write_bytes(w, &w->ids, err));
    TRY(write_bytes(w, &w->checks, err));
    TRY(write_bytes(w, &w->frames, err));
    w->info->hash = hasher_value(w->hasher);
    TRY(write_info(w, id_bytes, err));
    TRY(column_list_mend(w->draft.fs, w->directory, w->info->name, true, err));
    return file_draft_close(&w->draft, STATUS_OK, err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

enum { BLOCK_BYTES = 1 << 20 };

struct copy {
    const struct column_copy *how;
    struct column **from; /* (how->from_count), NULL: it has no such column */
    uint64_t *next;       /* rows of each that were taken */
    struct column_workspace *workspace;
    struct column_info to; /* borrows the source */
};

static bool is_kept(const struct column_copy *how, uint64_t id) {
    return !how->keep || how->keep(how->cookie, id);
}

static bool loses_nothing(const struct copy *x) {
    uint64_t row = 0;
    const uint64_t wanted = x->how->fingerprint;
    if (x->how->from_count != 1 || strcmp(x->how->from[0], x->how->to) != 0 ||
        (wanted != 0 && wanted != column_info(x->from[0])->fingerprint)) {
        return false;
    }
    while (row < column_info(x->from[0])->rows && is_kept(x->how, column_row_id(x->from[0], row))) {
        row++;
    }
    return row == column_info(x->from[0])->rows;
}

static enum status
copy_rows(struct copy *x, struct column_writer *w, struct column_block *b, struct error *err) {
    for (;;) {
        const uint8_t *row = NULL;
        size_t row_bytes = 0;
        size_t source = 0;
        uint64_t id = UINT64_MAX;
        for (size_t i = 0; i < x->how->from_count; i++) {
            if (x->from[i] && x->next[i] < column_info(x->from[i])->rows &&
                column_row_id(x->from[i], x->next[i]) < id) {
                id = column_row_id(x->from[i], x->next[i]);
                source = i;
            }
        }
        if (id == UINT64_MAX) {
            return column_writer_put(w, b, err);
        }
        x->next[source]++;
        if (is_kept(x->how, id)) {
            TRY(column_get(x->from[source], x->workspace, id, &row, &row_bytes, err));
            TRY(column_block_add(b, &x->to, id, row, row_bytes, err));
            TRY(b->data.size_bytes >= BLOCK_BYTES ? column_writer_put(w, b, err) : STATUS_OK);
        }
    }
}

static enum status open_sources(struct copy *x, const char *name, struct error *err) {
    for (size_t i = 0; i < x->how->from_count; i++) {
        struct error why = {0};
        const enum status s =
            column_open(&x->from[i], x->how->from_fs, x->how->from[i], name, NULL, &why);
        if (s == STATUS_NOTFOUND) {
            continue;
        }
        RETURN_IF(s != STATUS_OK, error_pass(err, s, &why));
        const struct column_info *c = column_info(x->from[i]);
        FAIL_IF(x->to.kind != 0 && (c->kind != x->to.kind || c->values != x->to.values ||
                                    c->vectors != x->to.vectors),
                err, STATUS_MISMATCH,
                "%s: column '%s' has %u %s per sample, in another part %u %s: detach one of them",
                x->how->from[i], name, c->values, column_kind_name(c->kind), x->to.values,
                column_kind_name(x->to.kind));
        x->to = x->to.kind != 0 ? x->to : *c;
        x->to.fingerprint = x->how->fingerprint ? x->how->fingerprint : x->to.fingerprint;
    }
    return STATUS_OK;
}

static enum status copy_column(const struct column_copy *how, const char *name, struct error *err) {
    struct copy x = {.how = how};
    struct column_writer *w = NULL;
    struct column_block b = {0};
    x.from = calloc(how->from_count, sizeof(*x.from));
    x.next = calloc(how->from_count, sizeof(*x.next));
    enum status s = x.from && x.next ? column_workspace_create(&x.workspace, err)
                                     : error_set(err, STATUS_NOMEM, "out of memory for columns");
    THEN(s, open_sources(&x, name, err));
    if (s == STATUS_OK && !loses_nothing(&x)) {
        s = column_writer_create(&w, how->fs, how->to, &x.to, err);
        THEN(s, copy_rows(&x, w, &b, err));
        THEN(s, column_writer_finish(w, err));
    }
    column_writer_destroy(w);
    column_block_fini(&b);
    column_workspace_destroy(x.workspace);
    for (size_t i = 0; x.from && i < how->from_count; i++) {
        column_close(x.from[i]);
    }
    free(x.from);
    free(x.next);
    return s;
}

enum status column_copy_all(const struct column_copy *how, struct error *err) {
    struct column_names *done = calloc(2, sizeof(*done));
    TRY_MEMORY(done, err, "out of memory for the names of columns");
    struct column_names *names = done + 1;
    enum status s = remove_files(how->fs, how->to, ".tmp", err);
    for (size_t i = 0; s == STATUS_OK && i < how->from_count; i++) {
        s = column_names_read(names, how->from_fs, how->from[i], err);
        for (size_t k = 0; s == STATUS_OK && k < names->count; k++) {
            size_t j = 0;
            while (j < done->count && strcmp(done->items[j], names->items[k]) != 0) {
                j++;
            }
            if (j == COLUMNS_MAX) {
                s = error_set(err, STATUS_LIMIT, "%s: more than %d columns", how->to, COLUMNS_MAX);
            } else if (j == done->count) {
                strcpy(done->items[done->count++], names->items[k]);
                s = copy_column(how, names->items[k], err);
            }
        }
    }
    free(done);
    return s;
}
