/*
 * The manifest to dataset.json, one shard per line so that people and diff can read it. The same
 * manifest gives the same bytes.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/json_writer.h"
#include "formats/dataset/manifest_internal.h"

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
    json_open_array(w, "ids");
    for (size_t i = 0; i < r->count; i++) {
        json_u64(w, NULL, r->ids[i]);
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
    json_open_array(w, "classes");
    for (size_t i = 0; i < m->class_count; i++) {
        json_string(w, NULL, m->classes[i]);
    }
    json_close_array(w);
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
    json_u64(&w, "version", shrank ? MANIFEST_VERSION_REMOVED : MANIFEST_VERSION);
    json_string(&w, "created_by", m->created_by);
    json_string(&w, "container", shard_container_name(m->container));
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
