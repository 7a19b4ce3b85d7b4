/*
 * Writing pack.journal. Head and begin are written atomically. A shard's line is written after the
 * shard and the rejects before it are on the disk, so everything that a line names exists.
 */
#include "pack/journal/journal_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "pack/options_internal.h"

/* {"xxh64":"0123456789abcdef","line":{...}} */
enum status pack_journal_wrap(struct byte_buffer *out,
                              const uint8_t *text,
                              size_t size_bytes,
                              struct error *err) {
    char front[48];
    int n =
        snprintf(front, sizeof(front),
                 "{\"xxh64\":\"%016llx\",\"line\":", (unsigned long long)hash64(text, size_bytes));
    TRY(byte_buffer_append(out, front, (size_t)n, err));
    TRY(byte_buffer_append(out, text, size_bytes, err));
    return byte_buffer_append(out, "}\n", 2, err);
}

/* ---- head and begin ---- */

static void put_sources(struct json_writer *w, const struct pack_options *opt) {
    json_open_array(w, "sources");
    for (size_t i = 0; i < opt->source_count; i++) {
        struct stat info;
        bool file = stat(opt->sources[i], &info) == 0 && S_ISREG(info.st_mode);
        json_open_object(w, NULL);
        json_string(w, "name", opt->sources[i]);
        json_u64(w, "bytes", file ? (uint64_t)info.st_size : 0);
        json_close_object(w);
    }
    json_close_array(w);
}

static void put_file(struct json_writer *w, const struct manifest_source *s) {
    json_u64(w, "bytes", s->bytes);
    json_hex64(w, "sample_hash", s->sample_hash);
}

/* What dataset.json will say about a source, but for its name, and the source's note. */
static void put_source(struct json_writer *w, const struct manifest_source *s, const char *note) {
    json_open_object(w, NULL);
    json_u64(w, "rows", s->rows);
    put_file(w, s);
    json_hex64(w, "content", s->content);
    if (note) {
        json_string(w, "note", note);
    }
    json_close_object(w);
}

enum status pack_journal_head(struct byte_buffer *out,
                              const struct pack_options *opt,
                              const struct manifest *old,
                              size_t generations,
                              struct error *err) {
    struct pack_settings settings;
    struct json_writer w;
    pack_settings_of(&settings, opt);
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    const char *kind = opt->source_count > 0 ? "pack" : PACK_JOURNAL_WRITE;
    json_string(&w, "journal", opt->append ? "append" : kind);
    json_u64(&w, "version", PACK_JOURNAL_VERSION);
    json_string(&w, "created_by", opt->created_by);
    json_string(&w, "container", shard_container_name(opt->container));
    json_open_object(&w, "settings");
    for (size_t i = 0; i < settings.count; i++) {
        json_string(&w, settings.items[i].name, settings.items[i].value);
    }
    json_close_object(&w);
    put_sources(&w, opt);
    if (opt->append) {
        json_u64(&w, "generations", generations);
        json_hex64(&w, "fingerprint", old->generations[generations - 1].fingerprint);
    }
    json_close_object(&w);
    enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        out->size_bytes = 0;
        s = byte_buffer_append(out, w.out.data, w.out.size_bytes, err);
    }
    json_writer_fini(&w);
    return s;
}

static enum status
put_begin(struct byte_buffer *out, const struct pack_plan *p, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "rejects_bytes", p->point.rejects_bytes);
    if (p->totals) {
        json_open_array(&w, "totals");
        for (size_t i = 0; i < p->opt->source_count; i++) {
            put_source(&w, &p->totals[i], p->notes[i]);
        }
        json_close_array(&w);
    }
    /* Classes of sources that this part does not read, or of the old dataset. */
    manifest_put_classes(&w, &p->manifest);
    json_close_object(&w);
    enum status s = json_writer_status(&w, err);
    THEN(s, pack_journal_wrap(out, w.out.data, w.out.size_bytes, err));
    json_writer_fini(&w);
    return s;
}

enum status pack_journal_begin(const struct file_system *fs,
                               const char *directory,
                               const struct byte_buffer *head,
                               struct pack_plan *p,
                               struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    byte_buffer_init(&text, PACK_JOURNAL_MAX_BYTES);
    TRY(path_join(path, sizeof(path), directory, PACK_JOURNAL_NAME, err));
    enum status s = pack_journal_wrap(&text, head->data, head->size_bytes, err);
    if (s == STATUS_OK && p) {
        s = put_begin(&text, p, err);
        p->journal_bytes = text.size_bytes;
    }
    THEN(s, file_write_atomic(fs, path, text.data, text.size_bytes, err));
    byte_buffer_fini(&text);
    return s;
}

/* ---- lines of shards ---- */

enum status
pack_journal_open(struct pack_journal *j, const struct pack_plan *p, struct error *err) {
    char path[PATH_MAX_BYTES];
    const struct file_system *fs = p->opt->fs;
    memset(j, 0, sizeof(*j));
    j->plan = p;
    j->source = p->point.source;
    j->class_count = p->manifest.class_count;
    json_writer_init(&j->line, 0);
    TRY(path_join(path, sizeof(path), p->opt->directory, PACK_JOURNAL_NAME, err));
    TRY(fs->truncate(fs->context, path, p->journal_bytes, err));
    return fs->open(fs->context, &j->file, path, FILE_APPEND_WRITE, err);
}

void pack_journal_close(struct pack_journal *j) {
    if (j->plan) {
        j->plan->opt->fs->close(j->file);
        json_writer_fini(&j->line);
    }
    memset(j, 0, sizeof(*j));
}

static void put_ignored(struct json_writer *w, const struct source_ignored *ignored) {
    json_open_object(w, "ignored");
    for (int i = 0; i < IGNORED_KINDS; i++) {
        if (ignored->by[i] > 0) {
            json_u64(w, source_ignored_name((enum source_ignored_kind)i), ignored->by[i]);
        }
    }
    json_close_object(w);
}

void pack_journal_put_counts(struct json_writer *w,
                             const uint64_t rejected_by[REASON_COUNT],
                             const struct source_ignored *ignored) {
    json_open_object(w, "rejected");
    for (int i = 0; i < REASON_COUNT; i++) {
        if (rejected_by[i] > 0) {
            json_u64(w, source_reason_name((enum source_reason)i), rejected_by[i]);
        }
    }
    json_close_object(w);
    put_ignored(w, ignored);
}

/* Where the source that is being read continues, and which file that must be. */
static void put_place(struct json_writer *w,
                      const struct source_place *place,
                      const struct manifest_source *source) {
    json_open_object(w, "place");
    json_u64(w, "offset", place->offset_bytes);
    json_u64(w, "members", place->members);
    json_u64(w, "joined", place->joined);
    put_ignored(w, &place->ignored);
    put_file(w, source);
    json_close_object(w);
}

enum status pack_journal_point(struct pack_journal *j,
                               struct json_writer *w,
                               const struct manifest *m,
                               const struct pack_point *p,
                               const struct manifest_source *sources,
                               struct error *err) {
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_u64(w, "source", p->source);
    json_u64(w, "row", p->row);
    json_u64(w, "rejects_bytes", p->rejects_bytes);
    pack_journal_put_counts(w, p->rejected_by, &p->ignored);
    json_u64(w, "json_dropped", p->json_dropped);
    json_string(w, "json_example", p->json_example);
    json_hex64(w, "content", p->content);
    json_open_array(w, "sources");
    for (; j->source < p->source; j->source++) {
        put_source(w, &sources[j->source], j->plan->notes[j->source]);
    }
    json_close_array(w);
    if (p->place.offset_bytes > 0 && p->row > 0) {
        put_place(w, &p->place, &sources[p->source]);
    }
    json_open_array(w, "classes");
    for (; j->class_count < m->class_count; j->class_count++) {
        json_string(w, NULL, m->classes[j->class_count]);
    }
    json_close_array(w);
    json_close_object(w);
    return json_writer_status(w, err);
}

enum status pack_journal_add(struct pack_journal *j,
                             const struct shard_summary *shard,
                             const struct json_writer *point,
                             struct error *err) {
    const struct file_system *fs = j->plan->opt->fs;
    struct json_writer *w = &j->line;
    struct byte_buffer text;
    json_writer_reset(w);
    json_open_object(w, NULL);
    if (shard) {
        manifest_put_shard(w, "shard", shard);
    }
    json_raw(w, "point", (const char *)point->out.data, point->out.size_bytes);
    json_close_object(w);
    TRY(json_writer_status(w, err));
    byte_buffer_init(&text, PACK_JOURNAL_MAX_BYTES);
    enum status s = pack_journal_wrap(&text, w->out.data, w->out.size_bytes, err);
    THEN(s, fs->write(j->file, text.data, text.size_bytes, err));
    THEN(s, fs->sync(j->file, err));
    byte_buffer_fini(&text);
    return s;
}
