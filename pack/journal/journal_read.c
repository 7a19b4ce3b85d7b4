/*
 * Reading pack.journal into a plan. A kill can only damage the last line; it is dropped. Damage
 * before a valid line has another cause, and the journal is refused.
 */
#include "pack/journal/journal_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/json/json_reader.h"
#include "formats/shard/tar.h"
#include "net/location.h"
#include "pack/options_internal.h"
#include "pack/run/directory_internal.h"

enum { FRONT_BYTES = 35, BACK_BYTES = 1 }; /* of a line, around its JSON */

struct reading {
    struct pack_plan *plan;
    const char *name;
    size_t line; /* from 1 */
    struct error *err;
};

static enum status damaged(const struct reading *r, const char *what) {
    return error_set(
        r->err, STATUS_CORRUPT,
        "%s: line %zu: %s is missing or wrong; the run cannot be resumed; --overwrite restarts it",
        r->name, r->line, what);
}

bool pack_journal_unwrap(const uint8_t **json,
                         size_t *json_bytes,
                         const uint8_t *line,
                         size_t size_bytes) {
    static const char front[] = "{\"xxh64\":\"";
    static const char middle[] = "\",\"line\":";
    char want[17];
    if (size_bytes < FRONT_BYTES + BACK_BYTES + 2 || memcmp(line, front, sizeof(front) - 1) != 0 ||
        memcmp(line + 26, middle, sizeof(middle) - 1) != 0 || line[size_bytes - 1] != '}') {
        return false;
    }
    *json = line + FRONT_BYTES;
    *json_bytes = size_bytes - FRONT_BYTES - BACK_BYTES;
    snprintf(want, sizeof(want), "%016llx", (unsigned long long)hash64(*json, *json_bytes));
    return memcmp(line + sizeof(front) - 1, want, 16) == 0;
}

/* ---- fields of a line ---- */

static bool get_u64(const struct json_value *v, const char *key, uint64_t *out) {
    return json_value_u64(json_value_get(v, key), out);
}

static enum status take_shard(struct reading *r, const struct json_value *v) {
    struct shard_summary s;
    uint32_t number = 0;
    RETURN_IF(manifest_get_shard(&s, v), damaged(r, "a field of the shard"));
    RETURN_IF(!pack_shard_number(&number, s.name, true) || number != r->plan->next_number,
              damaged(r, "the shard's name"));
    TRY(manifest_add_shard(&r->plan->manifest, &s, r->err));
    r->plan->next_number++;
    return STATUS_OK;
}

static enum status take_classes(struct reading *r, const struct json_value *list) {
    for (size_t i = 0; i < json_value_count(list); i++) {
        const char *name = json_value_string(json_value_at(list, i), NULL);
        RETURN_IF(!name, damaged(r, "the name of a class"));
        TRY(manifest_add_class(&r->plan->manifest, name, r->err));
    }
    return STATUS_OK;
}

static const char *reason_name(int i) {
    return source_reason_name((enum source_reason)i);
}

static const char *ignored_name(int i) {
    return source_ignored_name((enum source_ignored_kind)i);
}

/* Reads an object of names and counts. */
static bool
take_counts(uint64_t *out, int count, const char *(*name_of)(int i), const struct json_value *v) {
    void *position = NULL;
    const char *key = NULL;
    const struct json_value *value = NULL;
    memset(out, 0, (size_t)count * sizeof(out[0]));
    while (json_value_next_member(v, &position, &key, &value)) {
        int i = 0;
        while (i < count && strcmp(key, name_of(i)) != 0) {
            i++;
        }
        if (i == count || !json_value_u64(value, &out[i])) {
            return false;
        }
    }
    return json_value_is_object(v);
}

bool pack_journal_get_counts(uint64_t rejected_by[REASON_COUNT],
                             struct source_ignored *ignored,
                             const struct json_value *v) {
    return take_counts(rejected_by, REASON_COUNT, reason_name, json_value_get(v, "rejected")) &&
           take_counts(ignored->by, IGNORED_KINDS, ignored_name, json_value_get(v, "ignored"));
}

static bool get_file(const struct json_value *v, struct manifest_source *out) {
    return get_u64(v, "bytes", &out->bytes) &&
           json_value_hex64(json_value_get(v, "sample_hash"), &out->sample_hash);
}

static bool get_source(struct reading *r,
                       const struct json_value *v,
                       struct manifest_source *out,
                       size_t index) {
    const char *note = json_value_string(json_value_get(v, "note"), NULL);
    return (!note || pack_plan_note(r->plan, index, note, r->err) == STATUS_OK) &&
           get_u64(v, "rows", &out->rows) && out->rows <= SHARD_MAX_ID && get_file(v, out) &&
           json_value_hex64(json_value_get(v, "content"), &out->content);
}

/* Where the source that is being read continues; requires the point's other fields. */
static bool take_place(struct pack_plan *p, const struct json_value *v) {
    struct source_place *place = &p->point.place;
    *place = (struct source_place){.rows = p->point.row, .content = p->point.content};
    return !v ||
           (p->point.source < p->opt->source_count &&
            location_is_remote(p->opt->sources[p->point.source]) &&
            get_u64(v, "offset", &place->offset_bytes) && place->offset_bytes >= TAR_BLOCK_BYTES &&
            get_u64(v, "members", &place->members) && get_u64(v, "joined", &place->joined) &&
            take_counts(place->ignored.by, IGNORED_KINDS, ignored_name,
                        json_value_get(v, "ignored")) &&
            get_file(v, &p->sources[p->point.source]));
}

/* The sources that ended since the line before, and the current one. */
static bool take_sources(struct reading *r, const struct json_value *list, size_t from) {
    struct pack_plan *p = r->plan;
    const struct pack_point *at = &p->point;
    if (json_value_count(list) != at->source - from) {
        return false;
    }
    for (size_t i = from; i < at->source; i++) {
        if (!get_source(r, json_value_at(list, i - from), &p->sources[i], i)) {
            return false;
        }
    }
    uint64_t begin = at->source == p->first.source ? p->first.row : 0;
    if (at->source == p->opt->source_count) {
        return at->row == 0;
    }
    p->sources[at->source].rows = at->row - begin;
    p->sources[at->source].content = at->content;
    return at->row >= begin && at->row <= SHARD_MAX_ID;
}

static enum status take_point(struct reading *r, const struct json_value *v) {
    struct pack_plan *p = r->plan;
    struct pack_point point = p->point;
    uint64_t source = 0;
    const char *example = json_value_string(json_value_get(v, "json_example"), NULL);
    RETURN_IF(!get_u64(v, "source", &source) || !get_u64(v, "row", &point.row) ||
                  source < p->point.source || source > p->opt->source_count ||
                  (source == p->point.source && point.row < p->point.row),
              damaged(r, "the next row"));
    RETURN_IF(!get_u64(v, "rejects_bytes", &point.rejects_bytes) ||
                  point.rejects_bytes < p->point.rejects_bytes ||
                  !pack_journal_get_counts(point.rejected_by, &point.ignored, v) ||
                  !get_u64(v, "json_dropped", &point.json_dropped) || !example ||
                  !json_value_hex64(json_value_get(v, "content"), &point.content),
              damaged(r, "a count"));
    snprintf(point.json_example, sizeof(point.json_example), "%s", example);
    size_t from = p->point.source;
    point.source = (size_t)source;
    p->point = point;
    return take_sources(r, json_value_get(v, "sources"), from) &&
                   take_place(p, json_value_get(v, "place"))
               ? STATUS_OK
               : damaged(r, "a source");
}

static enum status take_begin(struct reading *r, const struct json_value *root) {
    struct pack_plan *p = r->plan;
    const struct json_value *totals = json_value_get(root, "totals");
    RETURN_IF(!get_u64(root, "rejects_bytes", &p->point.rejects_bytes) ||
                  (totals != NULL) != (p->opt->part.count > 0 && !pack_part_is_whole(p->opt)),
              damaged(r, "where the run begins"));
    if (pack_part_is_whole(p->opt)) {
        pack_part_locate(p);
    }
    if (totals) {
        size_t count = p->opt->source_count;
        p->totals = calloc(count, sizeof(*p->totals));
        FAIL_IF(!p->totals, r->err, STATUS_NOMEM, "out of memory for rows");
        bool good = json_value_count(totals) == count;
        for (size_t i = 0; good && i < count; i++) {
            good = get_source(r, json_value_at(totals, i), &p->totals[i], i) &&
                   p->totals[i].rows <= SHARD_MAX_ID / count;
        }
        RETURN_IF(!good, damaged(r, "the rows of a source"));
        pack_part_locate(p);
    }
    if (!p->opt->append) { /* the dataset has them */
        TRY(take_classes(r, json_value_get(root, "classes")));
    }
    return STATUS_OK;
}

static enum status take_line(struct reading *r, const uint8_t *json, size_t json_bytes) {
    if (r->line == 1) {
        return STATUS_OK; /* the head, which has been compared */
    }
    struct json_document *document = NULL;
    TRY(json_document_parse(&document, r->name, json, json_bytes, r->err));
    const struct json_value *root = json_document_root(document);
    const struct json_value *shard = json_value_get(root, "shard");
    const struct json_value *point = json_value_get(root, "point");
    enum status s = STATUS_OK;
    if (r->line == 2) {
        s = take_begin(r, root);
    } else {
        if (shard) {
            s = take_shard(r, shard);
        }
        THEN(s, take_point(r, point));
        THEN(s, take_classes(r, json_value_get(point, "classes")));
    }
    json_document_destroy(document);
    return s;
}

/* ---- differences ---- */

static enum status differs(struct error *err, const char *what, const char *was, const char *is) {
    return error_set(err, STATUS_MISMATCH,
                     "--resume requires the same options and sources as the interrupted run: %.60s "
                     "was %.120s, is %.120s",
                     what, was ? was : "not given", is ? is : "not given");
}

/* Compares the members of two objects of strings. */
static enum status compare_settings(const struct json_value *was,
                                    const struct json_value *is,
                                    bool turned,
                                    struct error *err) {
    void *position = NULL;
    const char *key = NULL;
    const struct json_value *value = NULL;
    while (json_value_next_member(was, &position, &key, &value)) {
        const char *a = json_value_string(value, NULL);
        const char *b = json_value_string(json_value_get(is, key), NULL);
        if (!a || !b || strcmp(a, b) != 0) {
            char name[64];
            snprintf(name, sizeof(name), "--%.60s", key);
            return turned ? differs(err, name, b, a) : differs(err, name, a, b);
        }
    }
    return STATUS_OK;
}

static enum status
compare_sources(const struct json_value *was, const struct json_value *is, struct error *err) {
    size_t count = json_value_count(was);
    for (size_t i = 0; i < count || i < json_value_count(is); i++) {
        const struct json_value *a = json_value_at(was, i);
        const struct json_value *b = json_value_at(is, i);
        const char *a_name = json_value_string(json_value_get(a, "name"), NULL);
        const char *b_name = json_value_string(json_value_get(b, "name"), NULL);
        uint64_t a_bytes = 0;
        uint64_t b_bytes = 0;
        char what[32];
        snprintf(what, sizeof(what), "source %zu", i + 1);
        RETURN_IF(!a_name || !b_name || strcmp(a_name, b_name) != 0,
                  differs(err, what, a_name, b_name));
        get_u64(a, "bytes", &a_bytes);
        get_u64(b, "bytes", &b_bytes);
        if (a_bytes != b_bytes) {
            char a_text[48];
            char b_text[48];
            snprintf(a_text, sizeof(a_text), "of %" PRIu64 " bytes", a_bytes);
            snprintf(b_text, sizeof(b_text), "of %" PRIu64, b_bytes);
            return differs(err, b_name, a_text, b_text);
        }
    }
    return STATUS_OK;
}

static enum status
compare_roots(const struct json_value *was, const struct json_value *is, struct error *err) {
    static const char *const texts[][2] = {{"journal", "the kind of run"},
                                           {"created_by", "the program"},
                                           {"container", "--container"}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *a = json_value_string(json_value_get(was, texts[i][0]), NULL);
        const char *b = json_value_string(json_value_get(is, texts[i][0]), NULL);
        RETURN_IF(!a || !b || strcmp(a, b) != 0, differs(err, texts[i][1], a, b));
    }
    const struct json_value *a = json_value_get(was, "settings");
    const struct json_value *b = json_value_get(is, "settings");
    TRY(compare_settings(a, b, false, err));
    TRY(compare_settings(b, a, true, err));
    TRY(compare_sources(json_value_get(was, "sources"), json_value_get(is, "sources"), err));
    return error_set(err, STATUS_MISMATCH,
                     "the interrupted append was started on another dataset; --append without "
                     "--resume restarts it");
}

static enum status compare_heads(const struct reading *r, const uint8_t *json, size_t json_bytes) {
    const struct byte_buffer *head = &r->plan->head;
    if (json_bytes == head->size_bytes && memcmp(json, head->data, json_bytes) == 0) {
        return STATUS_OK;
    }
    struct json_document *was = NULL;
    struct json_document *is = NULL;
    enum status s = json_document_parse(&was, r->name, json, json_bytes, r->err);
    THEN(s, json_document_parse(&is, r->name, head->data, head->size_bytes, r->err));
    THEN(s, compare_roots(json_document_root(was), json_document_root(is), r->err));
    json_document_destroy(was);
    json_document_destroy(is);
    return s;
}

/* ---- the whole ---- */

enum status pack_journal_parse(struct pack_plan *p,
                               const char *name,
                               const uint8_t *text,
                               size_t size_bytes,
                               struct error *err) {
    struct reading r = {p, name, 0, err};
    size_t at = 0;
    size_t torn_line = 0;
    p->journal_bytes = 0;
    while (at < size_bytes) {
        const uint8_t *end = memchr(text + at, '\n', size_bytes - at);
        const uint8_t *json = NULL;
        size_t json_bytes = 0;
        size_t line_bytes = (end ? (size_t)(end - text) : size_bytes) - at;
        r.line++;
        if (!end || !pack_journal_unwrap(&json, &json_bytes, text + at, line_bytes)) {
            torn_line = torn_line > 0 ? torn_line : r.line;
        } else if (torn_line > 0) {
            r.line = torn_line;
            return damaged(&r, "its text");
        } else {
            TRY(r.line == 1 ? compare_heads(&r, json, json_bytes)
                            : take_line(&r, json, json_bytes));
            p->journal_bytes = at + line_bytes + 1;
        }
        at += line_bytes + (end != NULL);
    }
    r.line = torn_line > 0 ? torn_line : r.line + 1;
    return r.line > 2 ? STATUS_OK : damaged(&r, "its head");
}

static enum status read_text(struct byte_buffer *out,
                             char path[PATH_MAX_BYTES],
                             const struct file_system *fs,
                             const char *directory,
                             struct error *err) {
    TRY(path_join(path, PATH_MAX_BYTES, directory, PACK_JOURNAL_NAME, err));
    return file_read_all(fs, out, path, PACK_JOURNAL_MAX_BYTES, err);
}

enum status pack_journal_read(struct pack_plan *p, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    TRY(read_text(&text, path, p->opt->fs, p->opt->directory, err));
    enum status s = pack_journal_parse(p, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    return s;
}

/* The first line's JSON, in `text`, which the caller frees. */
static enum status read_head(struct byte_buffer *text,
                             const uint8_t **json,
                             size_t *json_bytes,
                             char path[PATH_MAX_BYTES],
                             const struct file_system *fs,
                             const char *directory,
                             struct error *err) {
    TRY(read_text(text, path, fs, directory, err));
    const uint8_t *end = text->size_bytes > 0 ? memchr(text->data, '\n', text->size_bytes) : NULL;
    const struct reading r = {NULL, path, 1, err};
    if (end && pack_journal_unwrap(json, json_bytes, text->data, (size_t)(end - text->data))) {
        return STATUS_OK;
    }
    enum status s = damaged(&r, "its head");
    byte_buffer_fini(text);
    return s;
}

enum status pack_journal_compare(struct pack_plan *p, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    const uint8_t *json = NULL;
    size_t json_bytes = 0;
    TRY(read_head(&text, &json, &json_bytes, path, p->opt->fs, p->opt->directory, err));
    const struct reading r = {p, path, 1, err};
    enum status s = compare_heads(&r, json, json_bytes);
    byte_buffer_fini(&text);
    return s;
}

enum status pack_journal_has_head(bool *out,
                                  const struct file_system *fs,
                                  const char *directory,
                                  const struct byte_buffer *head,
                                  struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    const uint8_t *json = NULL;
    size_t json_bytes = 0;
    *out = false;
    TRY(read_head(&text, &json, &json_bytes, path, fs, directory, err));
    *out = json_bytes == head->size_bytes && memcmp(json, head->data, json_bytes) == 0;
    byte_buffer_fini(&text);
    return STATUS_OK;
}

enum status pack_journal_kind(struct pack_journal_kind *out,
                              const struct file_system *fs,
                              const char *directory,
                              struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    struct json_document *document = NULL;
    const uint8_t *json = NULL;
    size_t json_bytes = 0;
    memset(out, 0, sizeof(*out));
    TRY(read_head(&text, &json, &json_bytes, path, fs, directory, err));
    const struct reading r = {NULL, path, 1, err};
    enum status s = json_document_parse(&document, path, json, json_bytes, err);
    if (s == STATUS_OK) {
        const struct json_value *root = json_document_root(document);
        const char *kind = json_value_string(json_value_get(root, "journal"), NULL);
        uint64_t version = 0;
        const char *container = json_value_string(json_value_get(root, "container"), NULL);
        const char *part = json_value_string(
            json_value_get(json_value_get(root, "settings"), PACK_SETTING_PART), NULL);
        snprintf(out->part, sizeof(out->part), "%s", part ? part : "");
        get_u64(root, "generations", &out->generations);
        out->tars = container && strcmp(container, shard_container_name(SHARD_CONTAINER_TAR)) == 0;
        if (!kind || strlen(kind) >= sizeof(out->name) || !get_u64(root, "version", &version)) {
            s = damaged(&r, "its head");
        } else if (version != PACK_JOURNAL_VERSION) {
            s = error_set(err, STATUS_VERSION,
                          "%s: version %" PRIu64
                          ", this program resumes from version %d; resume it with the program that "
                          "started it, or use --overwrite to restart it",
                          path, version, PACK_JOURNAL_VERSION);
        } else {
            strcpy(out->name, kind);
        }
    }
    json_document_destroy(document);
    byte_buffer_fini(&text);
    return s;
}
