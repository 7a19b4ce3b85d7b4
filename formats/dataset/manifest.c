/*
 * The manifest in memory: parts are appended, then the totals and the generation follow from them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/json_writer.h"
#include "formats/base/sort.h"
#include "formats/dataset/manifest.h"
#include "formats/dataset/manifest_internal.h"

static const struct manifest empty;

enum status manifest_copy_text(char **out, const char *text, struct error *err) {
    size_t size = strlen(text);
    FAIL_IF(size > MANIFEST_MAX_TEXT_BYTES, err, STATUS_LIMIT,
            "text of %zu bytes in the manifest, the limit is %d", size, MANIFEST_MAX_TEXT_BYTES);
    *out = malloc(size + 1);
    TRY_MEMORY(*out, err, "out of memory for the manifest");
    memcpy(*out, text, size + 1);
    return STATUS_OK;
}

enum status manifest_init(struct manifest *m,
                          enum shard_container container,
                          const char *created_by,
                          struct error *err) {
    REQUIRE(m && created_by);
    *m = empty;
    m->container = container;
    return manifest_copy_text(&m->created_by, created_by, err);
}

bool manifest_has_been(const struct manifest *m, uint64_t fingerprint) {
    size_t g = 0;
    while (g < m->generation_count && m->generations[g].fingerprint != fingerprint) {
        g++;
    }
    return g < m->generation_count || m->fingerprint == fingerprint;
}

void manifest_fini(struct manifest *m) {
    for (size_t i = 0; i < m->source_count; i++) {
        free(m->sources[i].name);
    }
    for (size_t i = 0; i < m->option_count; i++) {
        free(m->options[i].name);
        free(m->options[i].value);
    }
    for (size_t i = 0; i < m->class_count; i++) {
        free(m->classes[i]);
    }
    free(m->tokenizer.file);
    free(m->tokenizer.kind);
    free(m->created_by);
    free(m->base);
    free(m->classes);
    free(m->shards);
    free(m->sources);
    free(m->options);
    free(m->removed.ids);
    free(m->removed.at);
    free(m->generations);
    *m = empty;
}

/* Room for one more element of `array`, which has `count`; returns LIMIT at `max`, NOMEM. */
#define TRY_GROW(array, count, max, err, ...)                                                      \
    do {                                                                                           \
        FAIL_IF((count) == (max), err, STATUS_LIMIT, __VA_ARGS__);                                 \
        void *larger_ = grow(array, count, sizeof(*(array)));                                      \
        TRY_MEMORY(larger_, err, "out of memory for the manifest");                                \
        (array) = larger_;                                                                         \
    } while (0)

/* Room for element `count` of an array that doubles: capacity is the power of two >= count. */
static void *grow(void *array, size_t count, size_t element_bytes) {
    if (count > 0 && (count & (count - 1)) != 0) {
        return array;
    }
    return realloc(array, (count == 0 ? 1 : 2 * count) * element_bytes);
}

enum status
manifest_add_shard(struct manifest *m, const struct shard_summary *shard, struct error *err) {
    REQUIRE(m && shard && shard_name_is_valid(shard->name));
    TRY_GROW(m->shards, m->shard_count, MANIFEST_MAX_SHARDS, err,
             "more than %d shards in a dataset: choose a larger --shard-samples or "
             "--shard-size and start again",
             MANIFEST_MAX_SHARDS);
    m->shards[m->shard_count++] = *shard;
    return STATUS_OK;
}

bool manifest_is_plain_name(const char *name) {
    return name[0] != '\0' && strchr(name, '/') == NULL;
}

enum status
manifest_add_source(struct manifest *m, const char *name, uint64_t rows, struct error *err) {
    REQUIRE(m && name && manifest_is_plain_name(name));
    TRY_GROW(m->sources, m->source_count, MANIFEST_MAX_SOURCES, err, "more than %d sources",
             MANIFEST_MAX_SOURCES);
    m->sources[m->source_count] = (struct manifest_source){.rows = rows};
    TRY(manifest_copy_text(&m->sources[m->source_count].name, name, err));
    m->source_count++;
    return STATUS_OK;
}

enum status
manifest_add_option(struct manifest *m, const char *name, const char *value, struct error *err) {
    REQUIRE(m && name && value);
    TRY_GROW(m->options, m->option_count, MANIFEST_MAX_OPTIONS, err, "more than %d options",
             MANIFEST_MAX_OPTIONS);
    struct manifest_option *o = &m->options[m->option_count];
    *o = (struct manifest_option){NULL, NULL};
    TRY(manifest_copy_text(&o->name, name, err));
    enum status s = manifest_copy_text(&o->value, value, err);
    if (s != STATUS_OK) {
        free(o->name);
        return s;
    }
    m->option_count++;
    return STATUS_OK;
}

enum status manifest_add_class(struct manifest *m, const char *name, struct error *err) {
    REQUIRE(m && name);
    TRY_GROW(m->classes, m->class_count, MANIFEST_MAX_CLASSES, err, "more than %d classes",
             MANIFEST_MAX_CLASSES);
    TRY(manifest_copy_text(&m->classes[m->class_count], name, err));
    m->class_count++;
    return STATUS_OK;
}

enum status manifest_set_tokenizer(struct manifest *m,
                                   const char *file,
                                   const char *kind,
                                   uint64_t hash,
                                   struct error *err) {
    REQUIRE(m && (!file || (kind && manifest_is_plain_name(file))));
    struct manifest_tokenizer t = {NULL, NULL, hash};
    if (file) {
        TRY(manifest_copy_text(&t.file, file, err));
        enum status s = manifest_copy_text(&t.kind, kind, err);
        if (s != STATUS_OK) {
            free(t.file);
            return s;
        }
    }
    free(m->tokenizer.file);
    free(m->tokenizer.kind);
    m->tokenizer = t;
    return STATUS_OK;
}

enum status
manifest_add_removed(struct manifest *m, const uint64_t *ids, size_t count, struct error *err) {
    REQUIRE(m && (ids || count == 0));
    struct manifest_removed *r = &m->removed;
    FAIL_IF(count > MANIFEST_MAX_REMOVED - r->count, err, STATUS_LIMIT,
            "more than %d removed samples", MANIFEST_MAX_REMOVED);
    const size_t most = r->count + count + 1;
    struct manifest_removed all = {.ids = malloc(most * sizeof(*all.ids)),
                                   .at = malloc(most * sizeof(*all.at))};
    uint64_t *fresh = malloc((count + 1) * sizeof(*fresh));
    if (!all.ids || !all.at || !fresh) {
        free(all.ids);
        free(all.at);
        free(fresh);
        return error_set(err, STATUS_NOMEM, "out of memory for the manifest");
    }
    memcpy(fresh, ids, count * sizeof(*fresh));
    qsort(fresh, count, sizeof(*fresh), compare_u64);
    for (size_t i = 0, k = 0; i < r->count || k < count;) {
        const bool old = k == count || (i < r->count && r->ids[i] <= fresh[k]);
        const uint64_t id = old ? r->ids[i] : fresh[k];
        if (all.count == 0 || all.ids[all.count - 1] != id) {
            all.at[all.count] = old ? r->at[i] : (uint32_t)m->generation_count;
            all.ids[all.count++] = id;
        }
        i += old;
        k += !old;
    }
    free(fresh);
    free(r->ids);
    free(r->at);
    r->ids = all.ids;
    r->at = all.at;
    r->count = all.count;
    return STATUS_OK;
}

enum status manifest_set_base(struct manifest *m, const char *base, struct error *err) {
    FAIL_IF(!path_is_remote(base) || m->container != SHARD_CONTAINER_TAR_FOREIGN, err,
            STATUS_INVALID, "'%.100s' is not a location of tars", base);
    return manifest_copy_text(&m->base, base, err);
}

bool manifest_is_removed(const struct manifest *m, uint64_t id) {
    return m->removed.count > 0 &&
           bsearch(&id, m->removed.ids, m->removed.count, sizeof(id), compare_u64) != NULL;
}

enum status manifest_add_generation(struct manifest *m,
                                    const struct manifest_generation *g,
                                    struct error *err) {
    TRY_GROW(m->generations, m->generation_count, MANIFEST_MAX_GENERATIONS, err,
             "more than %d generations", MANIFEST_MAX_GENERATIONS);
    m->generations[m->generation_count++] = *g;
    return STATUS_OK;
}

bool manifest_sum_shards(const struct manifest *m, struct manifest *out) {
    *out = empty;
    for (size_t i = 0; i < m->shard_count; i++) {
        const struct shard_summary *s = &m->shards[i];
        if (!checked_add_u64(out->samples, s->sample_count, &out->samples) ||
            !checked_add_u64(out->texts, s->text_count, &out->texts) ||
            !checked_add_u64(out->image_bytes, s->image_bytes, &out->image_bytes) ||
            !checked_add_u64(out->bytes, s->size_bytes, &out->bytes)) {
            return false;
        }
        if (s->last_id >= out->id_space) {
            out->id_space = s->last_id + 1;
        }
    }
    const struct manifest_removed *r = &m->removed;
    if (r->samples > out->samples || r->texts > out->texts || r->image_bytes > out->image_bytes) {
        return false;
    }
    out->samples -= r->samples;
    out->texts -= r->texts;
    out->image_bytes -= r->image_bytes;
    return true;
}

enum status manifest_seal(struct manifest *m, uint64_t fingerprint, struct error *err) {
    REQUIRE(m && m->created_by);
    struct manifest sum;
    FAIL_IF(!manifest_sum_shards(m, &sum), err, STATUS_LIMIT,
            "the dataset's sizes exceed 64 bits, or more samples were removed than exist");
    m->samples = sum.samples;
    m->texts = sum.texts;
    m->image_bytes = sum.image_bytes;
    m->bytes = sum.bytes;
    m->fingerprint = fingerprint;
    m->id_space = sum.id_space > m->id_space ? sum.id_space : m->id_space;
    const struct manifest_generation g = {
        .shards = (uint32_t)m->shard_count,
        .samples = m->samples,
        .texts = m->texts,
        .id_space = m->id_space,
        .fingerprint = fingerprint,
    };
    if (m->generation_count > 0) {
        const struct manifest_generation *last = &m->generations[m->generation_count - 1];
        if (last->shards == g.shards && last->samples == g.samples && last->texts == g.texts &&
            last->id_space == g.id_space && last->fingerprint == g.fingerprint) {
            return STATUS_OK;
        }
    }
    return manifest_add_generation(m, &g, err);
}

/* ---- to dataset.json: one shard per line so that people and diff can read it. The same manifest
 * gives the same bytes. ---- */

/* Ends the line between two values: a comma, then a line feed. */
static void next_line(struct json_writer *w) {
    if (w->status == STATUS_OK) {
        w->status = byte_buffer_append(&w->out, ",\n", 2, &w->error);
    }
    w->comma = false;
}

void manifest_put_shard(struct json_writer *w, const char *name, const struct shard_summary *s) {
    json_open_object(w, name);
    json_string(w, "name", s->name);
    json_u64(w, "bytes", s->size_bytes);
    json_hex64(w, "xxh64", s->hash);
    json_hex64(w, "index", s->index_hash);
    json_u64(w, "samples", s->sample_count);
    json_u64(w, "texts", s->text_count);
    json_u64(w, "image_bytes", s->image_bytes);
    json_u64(w, "first_id", s->first_id);
    json_u64(w, "last_id", s->last_id);
    if (s->etag[0] != '\0') {
        json_string(w, "etag", s->etag);
    }
    json_close_object(w);
}

static void write_shards(struct json_writer *w, const struct manifest *m) {
    json_open_array(w, "shards");
    for (size_t i = 0; i < m->shard_count; i++) {
        if (i > 0) {
            next_line(w);
        }
        manifest_put_shard(w, NULL, &m->shards[i]);
    }
    json_close_array(w);
}

void manifest_put_generations(struct json_writer *w, const struct manifest *m) {
    json_open_array(w, "generations");
    for (size_t i = 0; i < m->generation_count; i++) {
        const struct manifest_generation *g = &m->generations[i];
        json_open_object(w, NULL);
        json_u64(w, "shards", g->shards);
        json_u64(w, "samples", g->samples);
        json_u64(w, "texts", g->texts);
        json_u64(w, "id_space", g->id_space);
        json_hex64(w, "fingerprint", g->fingerprint);
        json_close_object(w);
    }
    json_close_array(w);
}

static void write_removed(struct json_writer *w, const struct manifest_removed *r) {
    json_open_object(w, "removed");
    json_u64(w, "samples", r->samples);
    json_u64(w, "texts", r->texts);
    json_u64(w, "image_bytes", r->image_bytes);
    json_u64s(w, "ids", r->ids, r->count);
    json_open_array(w, "generations");
    for (size_t i = 0; i < r->count; i++) {
        json_u64(w, NULL, r->at[i]);
    }
    json_close_array(w);
    json_close_object(w);
}

void manifest_put_options(struct json_writer *w, const struct manifest *m) {
    json_open_object(w, "options");
    for (size_t i = 0; i < m->option_count; i++) {
        json_string(w, m->options[i].name, m->options[i].value);
    }
    json_close_object(w);
}

void manifest_put_classes(struct json_writer *w, const struct manifest *m) {
    json_strings(w, "classes", (const char *const *)m->classes, m->class_count);
}

void manifest_put_tokenizer(struct json_writer *w, const struct manifest *m) {
    json_open_object(w, "tokenizer");
    json_string(w, "file", m->tokenizer.file);
    json_string(w, "kind", m->tokenizer.kind);
    json_hex64(w, "xxh64", m->tokenizer.hash);
    json_close_object(w);
}

static void write_origin(struct json_writer *w, const struct manifest *m) {
    json_open_array(w, "sources");
    for (size_t i = 0; i < m->source_count; i++) {
        json_open_object(w, NULL);
        json_string(w, "name", m->sources[i].name);
        json_u64(w, "rows", m->sources[i].rows);
        if (m->sources[i].bytes > 0) {
            json_u64(w, "bytes", m->sources[i].bytes);
            json_hex64(w, "sample_hash", m->sources[i].sample_hash);
        }
        if (m->sources[i].content != 0) {
            json_hex64(w, "content", m->sources[i].content);
        }
        json_close_object(w);
    }
    json_close_array(w);
    manifest_put_options(w, m);
    if (m->class_count > 0) {
        next_line(w);
        manifest_put_classes(w, m);
    }
    if (m->tokenizer.file) {
        next_line(w);
        manifest_put_tokenizer(w, m);
    }
}

enum status manifest_write(const struct manifest *m,
                           const struct file_system *fs,
                           const char *directory,
                           struct error *err) {
    REQUIRE(m && fs && directory && m->created_by && m->generation_count > 0);
    char path[PATH_MAX_BYTES];
    struct json_writer w;
    TRY(path_join(path, sizeof(path), directory, MANIFEST_NAME, err));
    json_writer_init(&w, MANIFEST_MAX_BYTES);
    json_open_object(&w, NULL);
    json_string(&w, "format", MANIFEST_FORMAT);
    const bool shrank = m->shrank || m->removed.count > 0;
    json_u64(&w, "version",
             m->base  ? MANIFEST_VERSION_BASE
             : shrank ? MANIFEST_VERSION_REMOVED
                      : MANIFEST_VERSION);
    json_string(&w, "created_by", m->created_by);
    json_string(&w, "container", shard_container_name(m->container));
    if (m->base) {
        json_string(&w, "base", m->base);
    }
    json_u64(&w, "samples", m->samples);
    json_u64(&w, "id_space", m->id_space);
    json_u64(&w, "texts", m->texts);
    json_u64(&w, "image_bytes", m->image_bytes);
    json_u64(&w, "bytes", m->bytes);
    json_hex64(&w, "fingerprint", m->fingerprint);
    next_line(&w);
    manifest_put_generations(&w, m);
    next_line(&w);
    if (shrank) {
        write_removed(&w, &m->removed);
        next_line(&w);
    }
    write_origin(&w, m);
    next_line(&w);
    write_shards(&w, m);
    json_close_object(&w);
    json_newline(&w);
    enum status s = json_writer_status(&w, err);
    THEN(s, file_write_atomic(fs, path, w.out.data, w.out.size_bytes, err));
    json_writer_fini(&w);
    return s;
}
