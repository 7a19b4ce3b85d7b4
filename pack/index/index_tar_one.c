/*
 * Indexing one tar. It is read and hashed once from front to back. The bytes of each row are kept
 * until it ends, because readers will find a sample by these alone:
 *
 *     kept_offset ... | the row | what the source has read ahead |
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "pack/index/index_tar_internal.h"
#include "pack/run/rejects_internal.h"

/* A tar being read. */
struct reading {
    struct index_tar_worker *w;
    struct index_tar_result *out;
    const char *path;
    struct source *source;
    struct hasher *hasher;
    uint64_t hashed_bytes;
    uint64_t kept_offset; /* in the tar: of the first byte in w->members */
    enum status status;   /* NOMEM: a byte could not be kept */
};

enum {
    FORGET_BYTES = 1 << 20, /* this many are dropped at a time */
    KEPT_BYTES = SHARD_MAX_FRAME_BYTES + 2 * FORGET_BYTES,
};

void index_tar_result_fini(struct index_tar_result *r) {
    shard_foreign_destroy(r->index);
    byte_buffer_fini(&r->rejects);
    memset(r, 0, sizeof(*r));
}

enum status index_tar_worker_init(struct index_tar_worker *w,
                                  const struct pack_options *opt,
                                  struct pack_budget *budget,
                                  struct error *err) {
    memset(w, 0, sizeof(*w));
    w->opt = opt;
    pack_item_init(&w->item);
    byte_buffer_init(&w->members, KEPT_BYTES);
    json_writer_init(&w->line, 0);
    return pack_worker_create(&w->packer, opt, budget, NULL, NULL, err);
}

void index_tar_worker_fini(struct index_tar_worker *w) {
    pack_worker_destroy(w->packer);
    pack_item_fini(&w->item);
    byte_buffer_fini(&w->members);
    json_writer_fini(&w->line);
    memset(w, 0, sizeof(*w));
}

const char *index_tar_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

enum status index_tar_check_name(const char *path, struct error *err) {
    FAIL_IF(strcmp(path, "-") == 0, err, STATUS_USAGE, "a tar on standard input cannot be indexed");
    FAIL_IF(!shard_name_is_valid(index_tar_name(path)), err, STATUS_USAGE,
            "%s: the name of a tar to be indexed has at most %d letters, digits, _ - + "
            "and dots: rename it, or pack it: ccpack -o DIR FILE",
            path, SHARD_MAX_NAME_BYTES);
    return STATUS_OK;
}

static enum status check_plain(const struct source *source, const char *path, struct error *err) {
    return source_is_plain_tar(source)
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT,
                           "%s: is compressed or no tar, so its images cannot be read "
                           "in place; pack it: ccpack -o DIR FILE",
                           path);
}

enum status index_tar_look(struct manifest *classes,
                           const struct pack_options *opt,
                           const char *path,
                           struct error *err) {
    const struct source_options how = {.kind = SOURCE_WDS, .caption_column = opt->caption_column};
    struct source *source = NULL;
    TRY(index_tar_check_name(path, err));
    TRY(source_open(&source, path, &how, err));
    enum status s = check_plain(source, path, err);
    while (s == STATUS_OK && classes->class_count < source_class_count(source)) {
        s = manifest_add_class(classes, source_class_name(source, classes->class_count), err);
    }
    source_close(source);
    return s;
}

/* Drops bytes before `offset`, many at a time. */
static void forget(struct reading *r, uint64_t offset) {
    struct byte_buffer *b = &r->w->members;
    const uint64_t before = offset - r->kept_offset;
    if (offset > r->kept_offset && before >= FORGET_BYTES) {
        const size_t n = before < b->size_bytes ? (size_t)before : b->size_bytes;
        memmove(b->data, b->data + n, b->size_bytes - n);
        b->size_bytes -= n;
        r->kept_offset += n;
    }
}

static void take_bytes(void *cookie, const void *data, size_t size_bytes) {
    struct reading *r = cookie;
    hasher_update(r->hasher, data, size_bytes);
    r->hashed_bytes += size_bytes;
    atomic_fetch_add_explicit(&r->w->counts->bytes, size_bytes, memory_order_relaxed);
    struct byte_buffer *b = &r->w->members;
    if (size_bytes > KEPT_BYTES - b->size_bytes) { /* more than a row has */
        forget(r, r->kept_offset + b->size_bytes - FORGET_BYTES);
    }
    THEN(r->status, byte_buffer_append(b, data, size_bytes, NULL));
}

/* Adds a row to the index, or rejects it when readers would not find it in place. */
static enum status add_sample(struct reading *r, struct error *err) {
    struct pack_item *item = &r->w->item;
    struct source_row *row = &item->row;
    if (row->end_bytes - row->offset_bytes > SHARD_MAX_FRAME_BYTES) {
        source_row_reject(row, REASON_ROW_BAD, "more than %d MiB from its first member to its last",
                          SHARD_MAX_FRAME_BYTES >> 20);
        return STATUS_OK;
    }
    if (row->offset_bytes < r->kept_offset) {
        source_row_reject(row, REASON_ROW_BAD, "more than %d MiB of other members follow it",
                          SHARD_MAX_FRAME_BYTES >> 20);
        return STATUS_OK;
    }
    forget(r, row->offset_bytes);
    struct error why = {0};
    const struct shard_foreign_place place = {
        .offset = row->offset_bytes,
        .members = r->w->members.data + (row->offset_bytes - r->kept_offset),
        .size_bytes = (size_t)(row->end_bytes - row->offset_bytes),
        .image_offset = row->image_offset_bytes,
    };
    enum status s = shard_foreign_add(r->out->index, &item->frame, &place, &why);
    if (s == STATUS_CORRUPT) {
        source_row_reject(row, REASON_ROW_BAD,
                          "cannot be read in place, only packed (ccpack -o DIR FILE): %.150s",
                          why.text);
        return STATUS_OK;
    }
    FAIL_IF(s != STATUS_OK, err, s, "%s", why.text);
    return STATUS_OK;
}

static enum status add_reject(struct reading *r, struct error *err) {
    struct index_tar_worker *w = r->w;
    r->out->rejected_by[w->item.row.reason]++;
    atomic_fetch_add_explicit(&w->counts->rejected, 1, memory_order_relaxed);
    pack_rejects_line(&w->line, r->path, &w->item.row);
    TRY(json_writer_status(&w->line, err));
    return byte_buffer_append(&r->out->rejects, w->line.out.data, w->line.out.size_bytes, err);
}

static enum status take_row(struct reading *r, struct error *err) {
    struct index_tar_worker *w = r->w;
    struct pack_item *item = &w->item;
    item->id = w->opt->ids == PACK_IDS_KEY ? item->row.number : item->row.row;
    item->label = item->row.class_index; /* all tars have one list of classes */
    pack_worker_run(w->packer, item);
    FAIL_IF(item->status != STATUS_OK, err, item->status, "%s", item->error.text);
    item->frame.record.flags |=
        w->opt->split_names == SOURCE_SPLIT_LAST_DOT ? SHARD_FLAG_LAST_DOT : 0;
    if (item->row.reason == REASON_NONE) {
        TRY(add_sample(r, err));
    }
    atomic_fetch_add_explicit(&w->counts->rows, 1, memory_order_relaxed);
    if (item->row.reason != REASON_NONE) {
        return add_reject(r, err);
    }
    atomic_fetch_add_explicit(&w->counts->samples, 1, memory_order_relaxed);
    return STATUS_OK;
}

static enum status read_rows(struct reading *r, struct error *err) {
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        FAIL_IF(r->w->stop(r->w->stop_cookie), err, STATUS_INTERRUPTED, "stopped on request");
        s = source_next(r->source, &r->w->item.row, err);
        FAIL_IF(r->status != STATUS_OK, err, r->status, "%s: out of memory for a row", r->path);
        THEN(s, take_row(r, err));
    }
    r->out->rows = source_rows_read(r->source);
    r->out->ignored = source_ignored(r->source);
    snprintf(r->out->note, sizeof(r->out->note), "%s", source_note(r->source));
    return s == STATUS_END ? STATUS_OK : s;
}

/* The index of a tar that is changed while it is read would be wrong. */
static enum status
check_unchanged(struct reading *r, const struct stat *before, struct error *err) {
    struct stat now;
    FAIL_ERRNO_IF(stat(r->path, &now) != 0, err, "%s: cannot read it", r->path);
    FAIL_IF(now.st_ino != before->st_ino || now.st_size != before->st_size ||
                (uint64_t)now.st_size != r->out->file_bytes ||
                now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
                now.st_mtim.tv_nsec != before->st_mtim.tv_nsec,
            err, STATUS_CORRUPT, "%s: was changed while it was read", r->path);
    return STATUS_OK;
}

static enum status read_tar(struct reading *r, struct error *err) {
    struct stat before;
    const bool remote = path_is_remote(r->path);
    const struct source_options how = {
        .kind = SOURCE_WDS,
        .caption_column = r->w->opt->caption_column,
        .lines = r->w->opt->lines,
        .split_names = r->w->opt->split_names,
        .stop = r->w->stop,
        .stop_cookie = r->w->stop_cookie,
        .bytes = take_bytes,
        .bytes_cookie = r,
    };
    FAIL_ERRNO_IF(!remote && stat(r->path, &before) != 0, err, "%s: cannot open it", r->path);
    TRY(hasher_create(&r->hasher, err));
    TRY(source_open(&r->source, r->path, &how, err));
    TRY(check_plain(r->source, r->path, err));
    TRY(shard_foreign_create(&r->out->index, index_tar_name(r->path), r->w->opt->level, err));
    TRY(read_rows(r, err));
    r->out->file_bytes = r->hashed_bytes;
    r->out->file_hash = hasher_value(r->hasher);
    if (!remote) {
        return check_unchanged(r, &before, err);
    }
    const char *etag = source_etag(r->source);
    FAIL_IF(strlen(etag) > SHARD_MAX_ETAG_BYTES, err, STATUS_LIMIT,
            "%s: its ETag has more than %d characters, too many for an index", r->path,
            SHARD_MAX_ETAG_BYTES);
    strcpy(r->out->etag, etag);
    return STATUS_OK;
}

enum status index_tar_one(struct index_tar_worker *w,
                          struct index_tar_result *out,
                          const char *path,
                          struct error *err) {
    struct reading r = {.w = w, .out = out, .path = path};
    w->members.size_bytes = 0;
    byte_buffer_init(&out->rejects, INDEX_TAR_MAX_REJECTS_BYTES);
    enum status s = read_tar(&r, err);
    source_close(r.source);
    hasher_destroy(r.hasher);
    return s;
}
