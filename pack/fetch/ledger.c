/*
 * Lines are those of the journal: a JSON object with its hash, so a torn one is recognised. They
 * are written when a row is finished, in the order of that. A resumed run reads them all once, and
 * those of rows that are not packed yet again when their turn comes.
 */
#include "pack/fetch/fetch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "pack/journal/journal_internal.h"

enum { READ_BYTES = 1 << 20, MAX_LINE_BYTES = 4 << 10 }; /* the longest of ours has 3.4 KiB */

static const char *const state_names[] = {"fetched", "failed", "excluded"};

/* ---- reading -------------------------------------------------------------------------------- */

static bool copy_string(char *out, size_t out_bytes, const struct json_value *v) {
    size_t size_bytes = 0;
    const char *text = json_value_string(v, &size_bytes);
    if (!text || size_bytes >= out_bytes || memchr(text, '\0', size_bytes)) {
        return false;
    }
    memcpy(out, text, size_bytes);
    out[size_bytes] = '\0';
    return true;
}

/* Fields that are missing stay empty. */
static bool get_line(struct ledger_line *l, const struct json_value *v) {
    char state[16];
    if (!json_value_u64(json_value_get(v, "row"), &l->row) ||
        !copy_string(state, sizeof(state), json_value_get(v, "state"))) {
        return false;
    }
    size_t i = 0;
    while (i < sizeof(state_names) / sizeof(state_names[0]) && strcmp(state, state_names[i]) != 0) {
        i++;
    }
    if (i == sizeof(state_names) / sizeof(state_names[0])) {
        return false;
    }
    l->state = (enum ledger_state)i;
    (void)copy_string(l->reason, sizeof(l->reason), json_value_get(v, "reason"));
    (void)copy_string(l->etag, sizeof(l->etag), json_value_get(v, "etag"));
    (void)copy_string(l->detail, sizeof(l->detail), json_value_get(v, "detail"));
    (void)json_value_u32(json_value_get(v, "http"), &l->http_status);
    (void)json_value_u32(json_value_get(v, "attempts"), &l->attempts);
    (void)json_value_u64(json_value_get(v, "time"), &l->time_s);
    (void)json_value_u64(json_value_get(v, "ms"), &l->elapsed_ms);
    (void)json_value_u64(json_value_get(v, "bytes"), &l->bytes);
    (void)json_value_hex64(json_value_get(v, "xxh64"), &l->hash);
    (void)json_value_hex64(json_value_get(v, "url"), &l->url_hash);
    return l->state == LEDGER_FETCHED || l->reason[0] != '\0';
}

enum status
ledger_parse(struct ledger_entry *out, const uint8_t *text, size_t size_bytes, struct error *err) {
    const uint8_t *json = NULL;
    size_t json_bytes = 0;
    memset(out, 0, sizeof(*out));
    if (!pack_journal_unwrap(&json, &json_bytes, text, size_bytes)) {
        return STATUS_CORRUPT;
    }
    struct json_document *d = NULL;
    enum status s = json_document_parse(&d, "ledger.jsonl", json, json_bytes, err);
    if (s != STATUS_OK) {
        return s == STATUS_NOMEM ? s : STATUS_CORRUPT;
    }
    const struct json_value *root = json_document_root(d);
    out->is_retry = copy_string(out->retry, sizeof(out->retry), json_value_get(root, "retry"));
    out->is_list = copy_string(out->retry, sizeof(out->retry), json_value_get(root, "list")) &&
                   json_value_u64(json_value_get(root, "first"), &out->first_row);
    s = out->is_retry || out->is_list || get_line(&out->line, root) ? STATUS_OK : STATUS_CORRUPT;
    json_document_destroy(d);
    return s;
}

struct scan {
    enum status (*seen)(void *cookie, const struct ledger_entry *entry, struct error *err);
    void *cookie;
    uint64_t offset; /* of the bytes at hand in the file */
    uint64_t *good_bytes;
    struct ledger_entry entry;
};

/* Takes the whole lines in the bytes at hand. *used is where the last one ends. */
static enum status take_lines(struct scan *s,
                              const uint8_t *data,
                              size_t size_bytes,
                              size_t *used,
                              struct error *err) {
    *used = 0;
    const uint8_t *end;
    while ((end = memchr(data + *used, '\n', size_bytes - *used)) != NULL) {
        const size_t line_bytes = (size_t)(end - data) - *used;
        struct error damage = {0};
        enum status status = ledger_parse(&s->entry, data + *used, line_bytes, &damage);
        s->entry.begin_bytes = s->offset + *used;
        *used += line_bytes + 1;
        if (status == STATUS_CORRUPT) {
            continue;
        }
        FAIL_IF(status != STATUS_OK, err, status, "%s", damage.text);
        s->entry.end_bytes = s->offset + *used;
        *s->good_bytes = s->entry.end_bytes;
        TRY(s->seen(s->cookie, &s->entry, err));
    }
    return STATUS_OK;
}

static enum status scan_file(struct scan *s,
                             const struct file_system *fs,
                             struct file *file,
                             uint8_t *buffer,
                             struct error *err) {
    size_t kept = 0; /* bytes of a line whose end is not there yet */
    for (;;) {
        size_t got = 0;
        size_t used = 0;
        TRY(fs->pread(file, buffer + kept, &got, READ_BYTES, s->offset + kept, err));
        if (got == 0) {
            return STATUS_OK; /* what is kept has no line feed: it is torn */
        }
        TRY(take_lines(s, buffer, kept + got, &used, err));
        kept = kept + got - used;
        if (kept > MAX_LINE_BYTES) { /* no line of ours */
            used += kept;
            kept = 0;
        }
        memmove(buffer, buffer + used, kept);
        s->offset += used;
    }
}

enum status
ledger_scan(const struct file_system *fs,
            const char *path,
            enum status (*seen)(void *cookie, const struct ledger_entry *entry, struct error *err),
            void *cookie,
            uint64_t *good_bytes,
            struct error *err) {
    struct file *file = NULL;
    bool exists = false;
    *good_bytes = 0;
    TRY(fs->exists(fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    struct scan *s = calloc(1, sizeof(*s));
    uint8_t *buffer = malloc(READ_BYTES + MAX_LINE_BYTES);
    enum status status = s && buffer ? fs->open(fs->context, &file, path, FILE_READ, err)
                                     : error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    if (status == STATUS_OK) {
        *s = (struct scan){.seen = seen, .cookie = cookie, .good_bytes = good_bytes};
        status = scan_file(s, fs, file, buffer, err);
        fs->close(file);
    }
    free(buffer);
    free(s);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct ledger {
    const struct file_system *fs;
    struct file *file;
    struct file *reader; /* the same file */
    struct json_writer json;
    struct byte_buffer line;
};

enum status ledger_open(struct ledger **out,
                        const struct file_system *fs,
                        const char *path,
                        uint64_t good_bytes,
                        struct error *err) {
    bool exists = false;
    *out = NULL;
    TRY(fs->exists(fs->context, path, &exists, err));
    if (exists) {
        TRY(fs->truncate(fs->context, path, good_bytes, err));
    }
    struct ledger *l = calloc(1, sizeof(*l));
    TRY_MEMORY(l, err, "%s: out of memory", path);
    l->fs = fs;
    json_writer_init(&l->json, 0);
    byte_buffer_init(&l->line, 0);
    enum status s = fs->open(fs->context, &l->file, path, FILE_APPEND_WRITE, err);
    THEN(s, fs->open(fs->context, &l->reader, path, FILE_READ, err));
    RETURN_CREATED(s, out, l, ledger_close);
}

void ledger_close(struct ledger *l) {
    if (l) {
        l->fs->close(l->file);
        l->fs->close(l->reader);
        json_writer_fini(&l->json);
        byte_buffer_fini(&l->line);
        free(l);
    }
}

bool ledger_line_at(struct ledger *l, struct ledger_line *out, uint64_t begin_bytes) {
    uint8_t text[MAX_LINE_BYTES];
    struct ledger_entry entry;
    struct error err = {0};
    size_t got = 0;
    if (l->fs->pread(l->reader, text, &got, sizeof(text), begin_bytes, &err) != STATUS_OK) {
        return false;
    }
    const uint8_t *end = memchr(text, '\n', got);
    if (!end || ledger_parse(&entry, text, (size_t)(end - text), &err) != STATUS_OK ||
        entry.is_retry) {
        return false;
    }
    *out = entry.line;
    return true;
}

static enum status write_line(struct ledger *l, struct error *err) {
    l->line.size_bytes = 0;
    TRY(json_writer_status(&l->json, err));
    TRY(pack_journal_wrap(&l->line, l->json.out.data, l->json.out.size_bytes, err));
    return l->fs->write(l->file, l->line.data, l->line.size_bytes, err);
}

static void put_text(struct json_writer *w, const char *key, const char *text) {
    if (text[0] != '\0') {
        json_string(w, key, text);
    }
}

static void put_number(struct json_writer *w, const char *key, uint64_t v) {
    if (v != 0) {
        json_u64(w, key, v);
    }
}

enum status ledger_add(struct ledger *l, const struct ledger_line *line, struct error *err) {
    struct json_writer *w = &l->json;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_u64(w, "row", line->row);
    json_string(w, "state", state_names[line->state]);
    put_text(w, "reason", line->reason);
    put_number(w, "http", line->http_status);
    put_number(w, "attempts", line->attempts);
    json_u64(w, "time", line->time_s);
    put_number(w, "ms", line->elapsed_ms);
    if (line->state == LEDGER_FETCHED) {
        json_u64(w, "bytes", line->bytes);
        json_hex64(w, "xxh64", line->hash);
    }
    if (line->url_hash != 0) {
        json_hex64(w, "url", line->url_hash);
    }
    put_text(w, "etag", line->etag);
    put_text(w, "detail", line->detail);
    json_close_object(w);
    return write_line(l, err);
}

enum status ledger_add_retry(struct ledger *l, const char *retry, struct error *err) {
    json_writer_reset(&l->json);
    json_open_object(&l->json, NULL);
    json_string(&l->json, "retry", retry);
    json_close_object(&l->json);
    TRY(write_line(l, err));
    return ledger_sync(l, err);
}

enum status
ledger_add_list(struct ledger *l, const char *name, uint64_t first_row, struct error *err) {
    json_writer_reset(&l->json);
    json_open_object(&l->json, NULL);
    json_string(&l->json, "list", name);
    json_u64(&l->json, "first", first_row);
    json_close_object(&l->json);
    TRY(write_line(l, err));
    return ledger_sync(l, err);
}

enum status ledger_sync(struct ledger *l, struct error *err) {
    return l->fs->sync(l->file, err);
}
