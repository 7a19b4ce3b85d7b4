/*
 * ccdump info: the totals of a dataset, from its manifest; of a shard or a plain tar, by summing
 * its samples.
 */
#include <string.h>
#include <sys/stat.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "tools/ccdump/ccdump_internal.h"

struct options {
    bool json;
    struct remote_choice remote;
};

static const struct cli_option rows[] = {
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json),
     .help = "one JSON object per argument, one per line"},
    CLI_REMOTE_ROWS(struct options, remote),
};

static const struct cli_program program = {
    .name = "ccdump info",
    .purpose = "summarises a dataset, a shard or a plain tar",
    .usage = CLI_TEXTS("DIR|SHARD|TAR... [--json]"),
    CLI_OPTIONS(rows),
    .arguments = {1, CLI_MAX_ARGUMENTS},
    .examples = CLI_TEXTS("ccdump info cc3m cc12m --json | jq .samples", "ccdump info 00000.tar"),
    .notes = CLI_TEXTS("A plain tar has no index and is read completely. Its fingerprint is that "
                       "of a dataset of its usable rows with row numbers as ids."),
};

/* The same totals for every kind. */
struct totals {
    uint64_t samples, id_space, texts, shards, image_bytes, bytes;
    uint64_t fingerprint;
    uint64_t problems; /* a tar's rows that cannot be packed */
    const char *container;
};

/* ---- a dataset ------------------------------------------------------------------------------- */

static void write_lists(struct json_writer *w, const struct manifest *m) {
    manifest_put_generations(w, m);
    json_open_array(w, "sources");
    for (size_t i = 0; i < m->source_count; i++) {
        json_open_object(w, NULL);
        json_string(w, "name", m->sources[i].name);
        json_u64(w, "rows", m->sources[i].rows);
        json_close_object(w);
    }
    json_close_array(w);
    manifest_put_options(w, m);
    manifest_put_classes(w, m);
    json_u64(w, "removed", m->removed.count);
    json_u64(w, "removed_in_shards", m->removed.samples);
    if (!m->tokenizer.file) {
        json_null(w, "tokenizer");
        return;
    }
    manifest_put_tokenizer(w, m);
}

/* ---- any kind -------------------------------------------------------------------------------- */

static void write_json(struct json_writer *w, const struct totals *t, const struct manifest *m) {
    json_u64(w, "samples", t->samples);
    json_u64(w, "id_space", t->id_space);
    json_u64(w, "texts", t->texts);
    json_u64(w, "shards", t->shards);
    json_u64(w, "image_bytes", t->image_bytes);
    json_u64(w, "bytes", t->bytes);
    json_hex64(w, "fingerprint", t->fingerprint);
    json_string(w, "container", t->container);
    if (m) {
        if (m->base) {
            json_string(w, "base", m->base);
        }
        json_string(w, "created_by", m->created_by);
        write_lists(w, m);
    } else {
        json_null(w, "created_by");
        json_u64(w, "problems", t->problems);
    }
}

static enum status report(const struct options *o,
                          const char *path,
                          const struct totals *t,
                          const struct manifest *m,
                          struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    if (!o->json) {
        json_location(&w, "path", path);
    }
    write_json(&w, t, m);
    return end_result(&w, o->json, err);
}

static enum status info_dataset(const struct options *o, const char *path, struct error *err) {
    struct manifest m;
    TRY(manifest_read(&m, file_system_of(path), path, err));
    struct totals t = {
        .samples = m.samples,
        .id_space = m.id_space,
        .texts = m.texts,
        .shards = m.shard_count,
        .image_bytes = m.image_bytes,
        .bytes = m.bytes,
        .fingerprint = m.fingerprint,
        .container = shard_container_name(m.container),
    };
    enum status s = report(o, path, &t, &m, err);
    manifest_fini(&m);
    return s;
}

/* Sums all samples; the fingerprint is defined in formats/SHARD_FORMAT.md, section 11. */
static enum status add_up(struct totals *t, struct input *in, struct hasher *h, struct error *err) {
    struct sample_facts f;
    enum status s = STATUS_OK;
    for (s = input_next(in, &f, err); s == STATUS_OK; s = input_next(in, &f, err)) {
        uint8_t bytes[24];
        t->id_space = f.id + 1;
        if (f.problem) {
            t->problems++;
            continue;
        }
        t->samples++;
        t->texts += f.caption_count;
        t->image_bytes += f.image_bytes;
        store_u64(bytes, f.id);
        store_u64(bytes + 8, f.image_hash);
        store_u64(bytes + 16, f.caption_hash);
        hasher_update(h, bytes, sizeof(bytes));
    }
    t->fingerprint = hasher_value(h);
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status info_file(const struct options *o, const char *path, struct error *err) {
    struct input *in = NULL;
    struct hasher *h = NULL;
    struct stat info;
    TRY(input_open(&in, path, err));
    struct totals t = {.shards = 1, .container = in->container};
    if (strcmp(path, "-") != 0 && stat(path, &info) == 0) {
        t.bytes = (uint64_t)info.st_size;
    }
    enum status s = hasher_create(&h, err);
    THEN(s, add_up(&t, in, h, err));
    hasher_destroy(h);
    input_close(in);
    return s == STATUS_OK ? report(o, path, &t, NULL, err) : s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    TRY(remote_choice_use(&o->remote, err));
    for (size_t i = 0; i < a->count; i++) {
        enum input_kind kind = INPUT_TAR;
        TRY(input_kind_of(&kind, a->items[i], err));
        TRY(kind == INPUT_DATASET ? info_dataset(o, a->items[i], err)
                                  : info_file(o, a->items[i], err));
    }
    return STATUS_OK;
}

CLI_MAIN(ccdump_info, program, struct options, run)
