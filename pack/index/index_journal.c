/*
 * index.journal: what a pass over remote tars has done. Its first line is the head of
 * pack.journal, options and tars; then there is a line for each tar, in their order, written when
 * its index is on the disk. What a kill leaves of a line is dropped, and that tar read again.
 */
#include <string.h>

#include "formats/json/json_reader.h"
#include "pack/index/index_tar_internal.h"
#include "pack/journal/journal_internal.h"

/* A tar that is done. */
struct line {
    struct index_tar_result result; /* its counts */
    struct shard_summary shard;
    bool has_shard;         /* it has samples */
    uint64_t rejects_bytes; /* of rejects.jsonl up to it */
};

static enum status journal_path(char *out, const struct pack_options *o, struct error *err) {
    return path_join(out, PATH_MAX_BYTES, o->directory, INDEX_JOURNAL_NAME, err);
}

/* The first line. */
static enum status
head_line(struct byte_buffer *out, const struct pack_options *o, struct error *err) {
    struct byte_buffer head;
    byte_buffer_init(&head, PACK_JOURNAL_MAX_BYTES);
    byte_buffer_init(out, PACK_JOURNAL_MAX_BYTES);
    enum status s = pack_journal_head(&head, o, NULL, 0, err);
    THEN(s, pack_journal_wrap(out, head.data, head.size_bytes, err));
    byte_buffer_fini(&head);
    return s;
}

/* Reads the journal, and compares its head with the options; *at is then the first line. */
static enum status read_journal(struct byte_buffer *text,
                                size_t *at,
                                const struct pack_options *o,
                                struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer head;
    TRY(journal_path(path, o, err));
    TRY(file_read_all(o->fs, text, path, PACK_JOURNAL_MAX_BYTES, err));
    enum status s = head_line(&head, o, err);
    *at = head.size_bytes;
    if (s == STATUS_OK && (text->size_bytes < head.size_bytes ||
                           memcmp(text->data, head.data, head.size_bytes) != 0)) {
        s = error_set(err, STATUS_MISMATCH,
                      "%s: --resume requires the same options and tars as the interrupted run; "
                      "--overwrite restarts it",
                      path);
    }
    byte_buffer_fini(&head);
    return s;
}

/* The line at *at, which moves to the next. False: there is no undamaged one. */
static bool next_line(const struct byte_buffer *text, size_t *at, struct line *out) {
    const uint8_t *json, *line = text->data + *at;
    const uint8_t *end = memchr(line, '\n', text->size_bytes - *at);
    size_t json_bytes;
    struct json_document *document = NULL;
    memset(out, 0, sizeof(*out));
    if (!end || !pack_journal_unwrap(&json, &json_bytes, line, (size_t)(end - line)) ||
        json_document_parse(&document, INDEX_JOURNAL_NAME, json, json_bytes, NULL) != STATUS_OK) {
        return false;
    }
    const struct json_value *root = json_document_root(document);
    const struct json_value *shard = json_value_get(root, "shard");
    out->has_shard = shard != NULL;
    const bool good =
        json_value_u64(json_value_get(root, "rows"), &out->result.rows) &&
        json_value_u64(json_value_get(root, "rejects_bytes"), &out->rejects_bytes) &&
        pack_journal_get_counts(out->result.rejected_by, &out->result.ignored, root) &&
        (!shard || manifest_get_shard(&out->shard, shard) == NULL);
    json_document_destroy(document);
    *at += good ? (size_t)(end - line) + 1 : 0;
    return good;
}

enum status index_journal_take(struct index_run *r, struct error *err) {
    struct line line;
    struct byte_buffer text = {0};
    struct error why = {0};
    size_t at = 0;
    enum status s = read_journal(&text, &at, &r->opt, &why);
    if (s == STATUS_NOTFOUND) {
        return STATUS_OK;
    }
    s = s == STATUS_OK ? s : error_pass(err, s, &why);
    while (s == STATUS_OK && r->committed < r->opt.source_count && next_line(&text, &at, &line)) {
        r->rejects.size_bytes = line.rejects_bytes;
        s = index_account(r, r->committed++, &line.result, line.has_shard ? &line.shard : NULL,
                          err);
    }
    byte_buffer_fini(&text);
    r->journal_bytes = at;
    r->taken = r->written = r->committed;
    r->summary->resumed = r->summary->samples;
    r->summary->resumed_bytes = r->summary->bytes;
    return s;
}

enum status index_journal_open(struct index_run *r, struct error *err) {
    const struct pack_options *o = &r->opt;
    char path[PATH_MAX_BYTES];
    TRY(journal_path(path, o, err));
    if (r->journal_bytes == 0) {
        struct byte_buffer head;
        enum status s = head_line(&head, o, err);
        THEN(s, file_write_atomic(o->fs, path, head.data, head.size_bytes, err));
        byte_buffer_fini(&head);
        TRY(s);
    } else {
        TRY(o->fs->truncate(o->fs->context, path, r->journal_bytes, err));
    }
    return o->fs->open(o->fs->context, &r->journal, path, FILE_APPEND_WRITE, err);
}

enum status index_journal_add(struct index_run *r,
                              const struct index_tar_result *result,
                              const struct shard_summary *shard,
                              struct error *err) {
    const struct file_system *fs = r->opt.fs;
    struct json_writer w;
    struct byte_buffer line;
    json_writer_init(&w, 0);
    byte_buffer_init(&line, PACK_JOURNAL_MAX_BYTES);
    json_open_object(&w, NULL);
    json_u64(&w, "rows", result->rows);
    json_u64(&w, "rejects_bytes", r->rejects.size_bytes);
    pack_journal_put_counts(&w, result->rejected_by, &result->ignored);
    if (shard) {
        manifest_put_shard(&w, "shard", shard);
    }
    json_close_object(&w);
    enum status s = json_writer_status(&w, err);
    THEN(s, pack_journal_wrap(&line, w.out.data, w.out.size_bytes, err));
    THEN(s, fs->write(r->journal, line.data, line.size_bytes, err));
    THEN(s, fs->sync(r->journal, err));
    byte_buffer_fini(&line);
    json_writer_fini(&w);
    return s;
}

enum status index_journal_remove(struct index_run *r, struct error *err) {
    char path[PATH_MAX_BYTES];
    TRY(journal_path(path, &r->opt, err));
    return r->opt.fs->remove(r->opt.fs->context, path, err);
}
