/*
 * dataset.json to a checked struct: what the program may rely on afterwards is that names are file
 * names without folders, counts are within the format's limits, and sums over the shards agree with
 * the totals and with the last generation. Of a damaged one, what can still be read.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/manifest_internal.h"
#include "formats/json/json_reader.h"

static const struct manifest empty;

struct parse {
    struct manifest *m;
    const char *name;
    struct error *err;
    bool shrinks; /* samples may have been removed between generations */
};

static enum status corrupt(const struct parse *p, const char *what, size_t index) {
    return error_set(p->err, STATUS_CORRUPT, "%s: %s %zu is missing or wrong", p->name, what,
                     index);
}

static enum status
bad_field(const struct parse *p, const char *field, const char *of, size_t index) {
    return error_set(p->err, STATUS_CORRUPT, "%s: '%s' of %s %zu is missing or wrong", p->name,
                     field, of, index);
}

/* A member that was read: its name, and whether it was there and right. */
struct field {
    const char *name;
    bool ok;
};

/* The first that is not; NULL: all are. */
static const char *first_bad(const struct field *fields, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].ok) {
            return fields[i].name;
        }
    }
    return NULL;
}

static bool get_u64(const struct json_value *v, const char *key, uint64_t *out) {
    return json_value_u64(json_value_get(v, key), out);
}

const char *manifest_get_shard(struct shard_summary *s, const struct json_value *v) {
    const char *name = json_value_string(json_value_get(v, "name"), NULL);
    const struct json_value *etag = json_value_get(v, "etag");
    const char *tag = etag ? json_value_string(etag, NULL) : "";
    *s = (struct shard_summary){.name = {0}};
    if (!name || !shard_name_is_valid(name)) {
        return "name";
    }
    strcpy(s->name, name); /* its size was checked with its characters */
    if (!tag || strlen(tag) > SHARD_MAX_ETAG_BYTES) {
        return "etag";
    }
    strcpy(s->etag, tag);
    const struct field fields[] = {
        {"bytes", get_u64(v, "bytes", &s->size_bytes) && s->size_bytes <= (uint64_t)INT64_MAX},
        {"xxh64", json_value_hex64(json_value_get(v, "xxh64"), &s->hash)},
        {"index", json_value_hex64(json_value_get(v, "index"), &s->index_hash)},
        {"samples", json_value_u32(json_value_get(v, "samples"), &s->sample_count) &&
                        s->sample_count >= 1 && s->sample_count <= SHARD_MAX_SAMPLES},
        {"texts", json_value_u32(json_value_get(v, "texts"), &s->text_count)},
        {"image_bytes", get_u64(v, "image_bytes", &s->image_bytes)},
        {"first_id", get_u64(v, "first_id", &s->first_id)},
        {"last_id", get_u64(v, "last_id", &s->last_id) && s->last_id <= SHARD_MAX_ID &&
                        s->first_id <= s->last_id &&
                        s->last_id - s->first_id >= s->sample_count - 1},
    };
    return first_bad(fields, sizeof(fields) / sizeof(fields[0]));
}

static enum status parse_shards(const struct parse *p, const struct json_value *list) {
    size_t count = json_value_count(list);
    FAIL_IF(!json_value_is_array(list) || count > MANIFEST_MAX_SHARDS, p->err, STATUS_CORRUPT,
            "%s: the list of shards is missing or has more than %d entries", p->name,
            MANIFEST_MAX_SHARDS);
    for (size_t i = 0; i < count; i++) {
        struct shard_summary s;
        const char *bad = manifest_get_shard(&s, json_value_at(list, i));
        RETURN_IF(bad, bad_field(p, bad, "shard", i));
        TRY(manifest_add_shard(p->m, &s, p->err));
    }
    return STATUS_OK;
}

static enum status parse_sources(const struct parse *p, const struct json_value *list) {
    for (size_t i = 0; i < json_value_count(list); i++) {
        const struct json_value *v = json_value_at(list, i);
        const char *name = json_value_string(json_value_get(v, "name"), NULL);
        uint64_t rows = 0;
        RETURN_IF(!name || !manifest_is_plain_name(name) || !get_u64(v, "rows", &rows),
                  corrupt(p, "source", i));
        TRY(manifest_add_source(p->m, name, rows, p->err));
        struct manifest_source *s = &p->m->sources[i];
        RETURN_IF((json_value_get(v, "bytes") && !get_u64(v, "bytes", &s->bytes)) ||
                      (json_value_get(v, "sample_hash") &&
                       !json_value_hex64(json_value_get(v, "sample_hash"), &s->sample_hash)) ||
                      (json_value_get(v, "content") &&
                       !json_value_hex64(json_value_get(v, "content"), &s->content)),
                  corrupt(p, "source", i));
    }
    return json_value_is_array(list) ? STATUS_OK : corrupt(p, "the list of sources: entry", 0);
}

static enum status parse_options(const struct parse *p, const struct json_value *object) {
    void *position = NULL;
    const char *name = NULL;
    const struct json_value *value = NULL;
    RETURN_IF(!json_value_is_object(object), corrupt(p, "the options: entry", 0));
    while (json_value_next_member(object, &position, &name, &value)) {
        const char *text = json_value_string(value, NULL);
        RETURN_IF(!text, corrupt(p, "option", p->m->option_count));
        TRY(manifest_add_option(p->m, name, text, p->err));
    }
    return STATUS_OK;
}

/* Absent: none. */
static enum status parse_classes(const struct parse *p, const struct json_value *list) {
    if (!list) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < json_value_count(list); i++) {
        const char *name = json_value_string(json_value_at(list, i), NULL);
        RETURN_IF(!name, corrupt(p, "class", i));
        TRY(manifest_add_class(p->m, name, p->err));
    }
    return json_value_is_array(list) ? STATUS_OK : corrupt(p, "the list of classes: entry", 0);
}

/* Absent: none. */
static enum status parse_tokenizer(const struct parse *p, const struct json_value *v) {
    if (!v) {
        return STATUS_OK;
    }
    const char *file = json_value_string(json_value_get(v, "file"), NULL);
    const char *kind = json_value_string(json_value_get(v, "kind"), NULL);
    uint64_t hash = 0;
    FAIL_IF(!file || !manifest_is_plain_name(file) || !kind ||
                !json_value_hex64(json_value_get(v, "xxh64"), &hash),
            p->err, STATUS_CORRUPT, "%s: a field of the tokenizer is missing or wrong", p->name);
    return manifest_set_tokenizer(p->m, file, kind, hash, p->err);
}

/* Absent: none. */
static enum status parse_removed(const struct parse *p, const struct json_value *v) {
    struct manifest_removed *r = &p->m->removed;
    if (!v) {
        return STATUS_OK;
    }
    const struct json_value *list = json_value_get(v, "ids");
    const size_t count = json_value_count(list);
    const struct json_value *at = json_value_get(v, "generations"); /* absent: not known */
    const struct field fields[] = {
        {"generations", !at || (json_value_is_array(at) && json_value_count(at) == count)},
        {"samples", get_u64(v, "samples", &r->samples) && r->samples <= count},
        {"texts", get_u64(v, "texts", &r->texts)},
        {"image_bytes", get_u64(v, "image_bytes", &r->image_bytes)},
        {"ids", json_value_is_array(list) && count <= MANIFEST_MAX_REMOVED},
    };
    const char *bad = first_bad(fields, sizeof(fields) / sizeof(fields[0]));
    FAIL_IF(bad, p->err, STATUS_CORRUPT, "%s: '%s' of the removed samples is missing or wrong",
            p->name, bad);
    r->ids = malloc((count + 1) * sizeof(*r->ids));
    r->at = calloc(count + 1, sizeof(*r->at));
    TRY_MEMORY(r->ids && r->at, p->err, "out of memory for the manifest");
    for (r->count = 0; r->count < count; r->count++) {
        uint64_t *id = &r->ids[r->count];
        RETURN_IF(!json_value_u64(json_value_at(list, r->count), id) || *id > SHARD_MAX_ID ||
                      (r->count > 0 && *id <= id[-1]) ||
                      (at && !json_value_u32(json_value_at(at, r->count), &r->at[r->count])),
                  corrupt(p, "the id of removed sample", r->count));
    }
    return STATUS_OK;
}

static enum status parse_generations(const struct parse *p, const struct json_value *list) {
    struct manifest_generation before = {0};
    for (size_t i = 0; i < json_value_count(list); i++) {
        const struct json_value *v = json_value_at(list, i);
        struct manifest_generation g = {0};
        const struct field fields[] = {
            {"shards", json_value_u32(json_value_get(v, "shards"), &g.shards) &&
                           (p->shrinks || g.shards >= before.shards)},
            {"samples",
             get_u64(v, "samples", &g.samples) && (p->shrinks || g.samples >= before.samples)},
            {"texts", get_u64(v, "texts", &g.texts) && (p->shrinks || g.texts >= before.texts)},
            {"id_space", get_u64(v, "id_space", &g.id_space) && g.id_space >= before.id_space &&
                             g.samples <= g.id_space},
            {"fingerprint", json_value_hex64(json_value_get(v, "fingerprint"), &g.fingerprint)},
        };
        const char *bad = first_bad(fields, sizeof(fields) / sizeof(fields[0]));
        RETURN_IF(bad, bad_field(p, bad, "generation", i));
        before = g;
        TRY(manifest_add_generation(p->m, &g, p->err));
    }
    return p->m->generation_count > 0 ? STATUS_OK : corrupt(p, "generation", 0);
}

/* Totals against the shards and the last generation. */
static enum status check_sums(const struct parse *p, const struct json_value *root) {
    struct manifest *m = p->m;
    struct manifest sum;
    const struct manifest_generation *last = &m->generations[m->generation_count - 1];
    const struct field fields[] = {
        {"samples", get_u64(root, "samples", &m->samples)},
        {"texts", get_u64(root, "texts", &m->texts)},
        {"id_space", get_u64(root, "id_space", &m->id_space)},
        {"image_bytes", get_u64(root, "image_bytes", &m->image_bytes)},
        {"bytes", get_u64(root, "bytes", &m->bytes)},
        {"fingerprint", json_value_hex64(json_value_get(root, "fingerprint"), &m->fingerprint)},
    };
    const char *bad = first_bad(fields, sizeof(fields) / sizeof(fields[0]));
    FAIL_IF(bad, p->err, STATUS_CORRUPT, "%s: '%s' is missing or wrong", p->name, bad);
    FAIL_IF(!manifest_sum_shards(m, &sum) || sum.samples != m->samples || sum.texts != m->texts ||
                sum.image_bytes != m->image_bytes || sum.bytes != m->bytes ||
                sum.id_space > m->id_space,
            p->err, STATUS_CORRUPT, "%s: the totals are not the sums of the shards", p->name);
    FAIL_IF(last->shards != m->shard_count || last->samples != m->samples ||
                last->texts != m->texts || last->id_space != m->id_space ||
                last->fingerprint != m->fingerprint,
            p->err, STATUS_CORRUPT, "%s: the last generation differs from the dataset", p->name);
    return STATUS_OK;
}

static enum status parse_root(const struct parse *p, const struct json_value *root) {
    const char *format = json_value_string(json_value_get(root, "format"), NULL);
    const char *container = json_value_string(json_value_get(root, "container"), NULL);
    const char *created_by = json_value_string(json_value_get(root, "created_by"), NULL);
    enum shard_container known;
    uint64_t version = 0;
    FAIL_IF(!format || strcmp(format, MANIFEST_FORMAT) != 0 || !get_u64(root, "version", &version),
            p->err, STATUS_CORRUPT, "%s: not a dataset's manifest", p->name);
    FAIL_IF(version < MANIFEST_VERSION || version > MANIFEST_VERSION_BASE, p->err, STATUS_VERSION,
            "%s: version %" PRIu64 ", this program reads versions %d to %d", p->name, version,
            MANIFEST_VERSION, MANIFEST_VERSION_BASE);
    FAIL_IF(!container || !shard_container_of_name(&known, container), p->err, STATUS_VERSION,
            "%s: unknown container '%.40s'", p->name, container ? container : "");
    FAIL_IF(!created_by, p->err, STATUS_CORRUPT, "%s: does not record the program that wrote it",
            p->name);
    TRY(manifest_init(p->m, known, created_by, p->err));
    const char *base = json_value_string(json_value_get(root, "base"), NULL);
    if (version == MANIFEST_VERSION_BASE) {
        FAIL_IF(!base || manifest_set_base(p->m, base, NULL) != STATUS_OK, p->err, STATUS_CORRUPT,
                "%s: its base is missing or wrong", p->name);
    }
    TRY(parse_shards(p, json_value_get(root, "shards")));
    TRY(parse_sources(p, json_value_get(root, "sources")));
    TRY(parse_options(p, json_value_get(root, "options")));
    TRY(parse_classes(p, json_value_get(root, "classes")));
    TRY(parse_tokenizer(p, json_value_get(root, "tokenizer")));
    const struct json_value *removed = json_value_get(root, "removed");
    p->m->shrank =
        version == MANIFEST_VERSION_REMOVED || (version == MANIFEST_VERSION_BASE && removed);
    if (p->m->shrank) {
        TRY(removed ? parse_removed(p, removed)
                    : error_set(p->err, STATUS_CORRUPT, "%s: lacks the removed samples", p->name));
    }
    const struct parse last = {p->m, p->name, p->err, p->m->shrank};
    TRY(parse_generations(&last, json_value_get(root, "generations")));
    return check_sums(p, root);
}

enum status manifest_parse(struct manifest *m,
                           const char *name,
                           const void *text,
                           size_t size_bytes,
                           struct error *err) {
    REQUIRE(m && name && (text || size_bytes == 0));
    struct json_document *document = NULL;
    *m = empty;
    FAIL_IF(size_bytes > MANIFEST_MAX_BYTES, err, STATUS_LIMIT,
            "%s: has %zu bytes, the limit is %d", name, size_bytes, MANIFEST_MAX_BYTES);
    TRY(json_document_parse(&document, name, text, size_bytes, err));
    const struct parse p = {m, name, err, false};
    enum status s = parse_root(&p, json_document_root(document));
    json_document_destroy(document);
    if (s != STATUS_OK) {
        manifest_fini(m);
    }
    return s;
}

/* ---- salvage ----------------------------------------------------------------------------------
 */

/* One part of the manifest into `out`, or nothing of it. */
static bool salvage_part(struct manifest *out,
                         const char *name,
                         enum status (*parse)(const struct parse *, const struct json_value *),
                         const struct json_value *v) {
    *out = empty;
    const struct parse p = {out, name, NULL, true};
    if (v && parse(&p, v) == STATUS_OK) {
        return true;
    }
    manifest_fini(out);
    return false;
}

static void salvage_root(struct manifest *m,
                         struct manifest_salvaged *read,
                         const char *name,
                         const struct json_value *root) {
    struct manifest t;
    uint64_t id_space = 0;
    const char *created_by = json_value_string(json_value_get(root, "created_by"), NULL);
    const char *container = json_value_string(json_value_get(root, "container"), NULL);
    if (!container || !shard_container_of_name(&m->container, container)) {
        m->container = SHARD_CONTAINER_TAR_ZSTD;
    }
    if (created_by) {
        (void)manifest_copy_text(&m->created_by, created_by, NULL);
    }
    read->shards = salvage_part(&t, name, parse_shards, json_value_get(root, "shards"));
    m->shards = t.shards;
    m->shard_count = t.shard_count;
    read->sources = salvage_part(&t, name, parse_sources, json_value_get(root, "sources"));
    m->sources = t.sources;
    m->source_count = t.source_count;
    read->options = salvage_part(&t, name, parse_options, json_value_get(root, "options"));
    m->options = t.options;
    m->option_count = t.option_count;
    read->classes = salvage_part(&t, name, parse_classes, json_value_get(root, "classes"));
    m->classes = t.classes;
    m->class_count = t.class_count;
    const struct json_value *removed = json_value_get(root, "removed");
    read->removed = salvage_part(&t, name, parse_removed, removed) || !removed;
    m->removed = t.removed;
    (void)salvage_part(&t, name, parse_tokenizer, json_value_get(root, "tokenizer"));
    m->tokenizer = t.tokenizer;
    if (salvage_part(&t, name, parse_generations, json_value_get(root, "generations"))) {
        m->generations = t.generations;
        m->generation_count = t.generation_count;
        m->id_space = t.generations[t.generation_count - 1].id_space;
    }
    if (get_u64(root, "id_space", &id_space) && id_space > m->id_space &&
        id_space <= SHARD_MAX_ID + 1) {
        m->id_space = id_space;
    }
    read->fingerprint = json_value_hex64(json_value_get(root, "fingerprint"), &m->fingerprint);
}

enum status manifest_salvage(struct manifest *m,
                             struct manifest_salvaged *read,
                             const struct file_system *fs,
                             const char *directory,
                             struct error *err) {
    REQUIRE(m && read && fs && directory);
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    struct json_document *document = NULL;
    *m = empty;
    *read = (struct manifest_salvaged){.shards = false};
    TRY(path_join(path, sizeof(path), directory, MANIFEST_NAME, err));
    TRY(file_read_all(fs, &text, path, MANIFEST_MAX_BYTES, err));
    enum status s = json_document_parse(&document, path, text.data, text.size_bytes, err);
    if (s == STATUS_OK) {
        salvage_root(m, read, path, json_document_root(document));
    }
    json_document_destroy(document);
    byte_buffer_fini(&text);
    return s;
}

enum status manifest_read(struct manifest *m,
                          const struct file_system *fs,
                          const char *directory,
                          struct error *err) {
    REQUIRE(m && fs && directory);
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    *m = empty;
    TRY(path_join(path, sizeof(path), directory, MANIFEST_NAME, err));
    TRY(file_read_all(fs, &text, path, MANIFEST_MAX_BYTES, err));
    enum status s = manifest_parse(m, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    return s;
}
